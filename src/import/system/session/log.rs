//! Lines of server and kernel logs.

use super::super::super::{number, text};
use super::Session;

impl Session {
    pub(super) fn backlog(&mut self) {
        if let (Some(asked), Some(most)) = (self.get("backlog_asked"), self.get("somaxconn"))
            && !self.values.contains_key("accept_queue_now")
        {
            self.set("backlog_effective", asked.min(most));
        }
    }

    /// Lines of server and kernel logs.
    pub(super) fn log_line(&mut self, line: &[u8]) -> bool {
        let after = |mark: &str| -> Option<u64> {
            let at = memchr::memmem::find(line, mark.as_bytes())? + mark.len();
            let digits = line[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            number::uint(&line[at..at + digits])
        };
        if let (Some(asked), Some(most)) = (after("TCP backlog setting of "), after("lower value of ")) {
            self.set("backlog_asked", asked);
            self.set("somaxconn", most);
            self.backlog();
            return true;
        }
        let pairs = [
            ("You requested maxclients of ", "maxclients_asked"),
            ("requiring at least ", "fds_needed"),
            ("set maximum open files to ", "fds_needed"),
            ("Current maximum open files is ", "nofile_server"),
            ("current maximum open files is ", "nofile_server"),
            ("maxclients has been reduced to ", "maxclients_effective"),
            ("maxclients reduced to ", "maxclients_effective"),
            ("open file limit '", "nofile_soft"),
            ("file-max limit ", "file_max"),
        ];
        let mut found = false;
        for (mark, name) in pairs {
            if let Some(n) = after(mark) {
                self.set(name, n);
                found = true;
            }
        }
        for (mark, name) in [
            ("file-max limit ", "file_max_reached"),
            ("fork rejected by pids controller", "pids_rejected"),
            ("max_connection", "max_connection_reset"),
            ("max number of clients reached", "maxclients_reached"),
        ] {
            if text::contains(line, mark) && (mark != "max_connection" || text::contains(line, "reset to")) {
                self.set(name, true);
                found = true;
            }
        }
        found
    }
}
