//! Counters of kernels and servers.

use super::super::super::{number, text};
use super::{Session, uint, words};

impl Session {
    /// Counters of `netstat -s`, `nstat`, INFO, memcached's `stats`.
    pub(super) fn counter_line(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        if let Some(n) = fields.first().and_then(|f| uint(f)) {
            let rest = text::shown(line, 200);
            for (mark, name) in [
                (
                    "times the listen queue of a socket overflowed",
                    "listen_overflows",
                ),
                ("SYNs to LISTEN sockets", "listen_drops"),
                ("TCP sockets finished time wait", "time_wait_finished"),
                ("connections reset due to unexpected data", "aborted_on_data"),
                ("failed connection attempts", "failed_connects"),
                ("segments retransmited", "retransmits"),
                ("segments retransmitted", "retransmits"),
                ("SYN cookies sent", "syncookies_sent"),
                ("TCP ran low on memory", "tcp_memory_pressures"),
            ] {
                if rest.contains(mark) {
                    self.set(name, n);
                    return true;
                }
            }
        }
        if let [name, value, ..] = fields.as_slice()
            && let Some(n) = uint(value)
        {
            let known = match *name {
                "TcpExtListenOverflows" => Some("listen_overflows"),
                "TcpExtListenDrops" => Some("listen_drops"),
                "TcpExtTCPTimeWaitOverflow" => Some("time_wait_overflow"),
                "TcpExtTWRecycled" => Some("time_wait_recycled"),
                "TcpExtTCPReqQFullDrop" => Some("syn_queue_drops"),
                "TcpExtTCPReqQFullDoCookies" => Some("syn_queue_cookies"),
                "TcpExtTCPMemoryPressures" => Some("tcp_memory_pressures"),
                _ => None,
            };
            if let Some(known) = known {
                self.set(known, n);
                return true;
            }
        }
        if let ["STAT", name, value] = fields.as_slice() {
            let name = format!("memcached_{}", text::shown(name.as_bytes(), 40));
            match uint(value) {
                Some(n) => self.set(&name, n),
                None => return true,
            }
            return true;
        }
        // ss -s: TCP:   28250 (estab 12, closed 28220, orphaned 0, timewait 28211)
        if line.starts_with(b"TCP:") {
            let mut found = false;
            for (mark, name) in [
                ("estab ", "established"),
                ("timewait ", "time_wait"),
                ("orphaned ", "orphaned"),
            ] {
                if let Some(at) = memchr::memmem::find(line, mark.as_bytes()) {
                    let rest = &line[at + mark.len()..];
                    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                    if let Some(n) = number::uint(&rest[..digits]) {
                        self.set(name, n);
                        found = true;
                    }
                }
            }
            return found;
        }
        false
    }
}
