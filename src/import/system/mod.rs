//! Pasted system state: `/proc/PID/limits`, sysctls, `ss`, `netstat -s`, server log lines, clocksources.
//!
//! People paste a shell session: a prompt with a command, then its output. The command says what a bare
//! number means. Everything recognised becomes a named value; rules compare them.

mod session;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use serde_json::Value;

use super::model::Imported;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, text};
use session::Session;

/// The importer of `/proc/PID/limits`, `prlimit` and `ulimit -a`.
pub(super) struct ProcLimits;
/// The importer of network and descriptor state.
pub(super) struct NetState;
/// The importer of clocksources.
pub(super) struct Clocksource;

fn session(input: &mut dyn BufRead, imported: &mut Imported) -> Result<bool, ImportError> {
    let mut session = Session::default();
    lines::for_each::<()>(input, |line| {
        let clean = text::unwrap_line(line.text);
        if !session.line(&clean) && !text::is_noise(&clean) {
            imported.unknown_lines.add(line.number, line.text);
        }
        ControlFlow::Continue(())
    })?;
    let found = !session.values.is_empty();
    imported.values = session.values;
    imported.notes.push(
        "these are settings and counters of a system, not calls: there is no table of calls here".to_owned(),
    );
    Ok(found)
}

/// The values that the first lines of an input hold.
fn values(head: &Head<'_>) -> BTreeMap<String, Value> {
    let mut session = Session::default();
    for line in &head.lines {
        session.line(line);
    }
    session.values
}

impl Importer for ProcLimits {
    fn format(&self) -> ImportFormat {
        ImportFormat::ProcLimits
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        let heading = |line: &[u8]| {
            let line = text::trim(line);
            line.starts_with(b"Limit ") && text::contains(line, "Soft Limit")
                || line.starts_with(b"RESOURCE DESCRIPTION")
                || line.starts_with(b"core file size") && text::contains(line, "-c)")
        };
        match head.any(heading) {
            // Beside other state it is one part of a session.
            Sniff::Yes
                if values(head)
                    .keys()
                    .all(|key| key.ends_with("_soft") || key.ends_with("_hard")) =>
            {
                Sniff::Yes
            }
            Sniff::Yes => Sniff::No,
            other => other,
        }
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        if !session(input, &mut imported)? {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        Ok(imported)
    }
}

impl Importer for NetState {
    fn format(&self) -> ImportFormat {
        ImportFormat::NetState
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        if !values(head).is_empty() {
            Sniff::Yes
        } else if head.whole {
            Sniff::No
        } else {
            Sniff::NeedMore
        }
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        if !session(input, &mut imported)? {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        Ok(imported)
    }
}

impl Importer for Clocksource {
    fn format(&self) -> ImportFormat {
        ImportFormat::Clocksource
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        match head.any(|line| text::contains(line, "clocksource")) {
            Sniff::Yes
                if values(head)
                    .keys()
                    .all(|key| matches!(key.as_str(), "current" | "available")) =>
            {
                if values(head).is_empty() {
                    Sniff::No
                } else {
                    Sniff::Yes
                }
            }
            Sniff::Yes => Sniff::No,
            other => other,
        }
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        if !session(input, &mut imported)? {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> BTreeMap<String, Value> {
        NetState.import(&mut text.as_bytes()).unwrap().values
    }

    #[test]
    fn headings_of_ss_are_not_sockets() {
        let with = read("# ss -tan state time-wait dst 10.0.0.20:6379 | wc -l\n28190\n");
        assert_eq!(with["time_wait_to_peer"], 28189);
        let without = read("$ ss -Htan state time-wait | wc -l\n28190\n");
        assert_eq!(without["time_wait"], 28190);
        let grep = read("root@h:~# netstat -an | grep TIME_WAIT | wc -l\n5\n");
        assert_eq!(grep["time_wait"], 5);
    }

    #[test]
    fn sysctls_in_three_forms() {
        assert_eq!(
            read("net.ipv4.ip_local_port_range = 32768\t60999\n")["ports"],
            28232
        );
        assert_eq!(
            read("$ cat /proc/sys/net/ipv4/tcp_tw_reuse\n2\n")["tcp_tw_reuse"],
            2
        );
        assert_eq!(read("$ sysctl -n net.core.somaxconn\n128\n")["somaxconn"], 128);
    }

    #[test]
    fn redis_says_what_it_got() {
        let values = read(
            "# You requested maxclients of 10000 requiring at least 10032 max file descriptors.\n\
             1:M Server can't set maximum open files to 10032 because of OS error: Operation not permitted.\n\
             1:M Current maximum open files is 4096. maxclients has been reduced to 4064 to compensate for low ulimit.\n",
        );
        assert_eq!(values["maxclients_effective"], 4064);
        assert_eq!(values["nofile_server"], 4096);
    }

    #[test]
    fn hostile_numbers_are_not_values() {
        assert!(
            NetState
                .import(&mut &b"net.core.somaxconn = 99999999999999999999999\n"[..])
                .is_err()
        );
        assert!(
            NetState
                .import(&mut &b"net.ipv4.ip_local_port_range = 60999 32768\n"[..])
                .is_err()
        );
    }

    #[test]
    fn limits_of_prlimit_and_ulimit() {
        let values = read("NOFILE     max number of open files                1024    524288 files\n");
        assert_eq!(values["nofile_hard"], 524288);
        assert_eq!(
            read("open files                          (-n) 1024\n")["nofile_soft"],
            1024
        );
        assert_eq!(
            read("Max open files            unlimited            unlimited            files\n")["nofile_soft"],
            "unlimited"
        );
    }
}
