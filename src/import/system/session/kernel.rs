//! Lines of the kernel's log, and `/proc/net/sockstat`.

use super::{Session, uint, words};
use crate::import::text;

/// Words of the kernel's log, and the value that counts lines with them.
const LOGGED: [(&str, &str); 5] = [
    ("nf_conntrack: table full", "conntrack_full_lines"),
    ("TCP: out of memory", "tcp_out_of_memory_lines"),
    // Kernels before 3.1 said it so.
    ("Out of socket memory", "tcp_out_of_memory_lines"),
    ("time wait bucket table overflow", "time_wait_overflow_lines"),
    ("orphaned sockets", "orphans_lines"),
];

impl Session {
    /// A line of the kernel's log.
    pub(super) fn kernel_line(&mut self, line: &[u8]) -> bool {
        if self.syn_flooding(line) {
            return true;
        }
        for (mark, name) in LOGGED {
            // `ss -s` and `sockstat` speak of orphans without a complaint.
            let complains = name != "orphans_lines" || text::contains(line, "too many");
            if complains && text::contains(line, mark) {
                self.add(name, 1);
                return true;
            }
        }
        false
    }

    /// `TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:6379. Sending cookies.`; older kernels
    /// write it small and the port alone, and without cookies `Dropping request.`
    fn syn_flooding(&mut self, line: &[u8]) -> bool {
        let mark = b"ossible SYN flooding on port ";
        let Some(at) = memchr::memmem::find(line, mark) else {
            return false;
        };
        let rest = &line[at + mark.len()..];
        let end = memchr::memmem::find(rest, b". ").unwrap_or(rest.len());
        let address = text::shown(&rest[..end], 60);
        let port = address.rsplit(':').next().unwrap_or_default();
        let name = if text::contains(rest, "Dropping request") {
            "syn_dropped_lines"
        } else {
            "syn_cookies_lines"
        };
        self.add(name, 1);
        self.set("syn_flooding_port", port.trim_end_matches('.'));
        true
    }

    /// `/proc/net/sockstat`: `TCP: inuse 12 orphan 0 tw 3 alloc 20 mem 5`.
    pub(super) fn sockstat_line(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        let [family, "inuse", n, pairs @ ..] = fields.as_slice() else {
            return matches!(fields.as_slice(), ["sockets:", "used", n] if uint(n).is_some());
        };
        if !family.ends_with(':') || uint(n).is_none() {
            return false;
        }
        if *family != "TCP:" {
            return true;
        }
        for pair in pairs.chunks_exact(2) {
            let name = match pair[0] {
                "orphan" => "orphaned",
                "tw" => "time_wait",
                "mem" => "tcp_memory_pages",
                _ => continue,
            };
            if let Some(n) = uint(pair[1]) {
                self.set(name, n);
            }
        }
        true
    }
}
