//! Lists of sockets, and counts of them by state.

use super::super::super::text;
use super::{Session, uint, words};

impl Session {
    /// Rows of `ss` and `netstat`, whole or summed up with `uniq -c`.
    pub(super) fn socket_line(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        let state = |word: &str| -> Option<&'static str> {
            Some(match word {
                "ESTAB" | "ESTABLISHED" => "established",
                "TIME-WAIT" | "TIME_WAIT" => "time_wait",
                "CLOSE-WAIT" | "CLOSE_WAIT" => "close_wait",
                "SYN-SENT" | "SYN_SENT" => "syn_sent",
                "SYN-RECV" | "SYN_RECV" => "syn_recv",
                "FIN-WAIT-1" | "FIN_WAIT1" => "fin_wait_1",
                "FIN-WAIT-2" | "FIN_WAIT2" => "fin_wait_2",
                "LAST-ACK" | "LAST_ACK" => "last_ack",
                "LISTEN" => "listening",
                _ => return None,
            })
        };
        match fields.as_slice() {
            [n, word] => {
                if let (Some(n), Some(name)) = (uint(n), state(word)) {
                    self.set(name, n);
                    return true;
                }
                // awk's or sort's summing of netstat's own headings.
                uint(n).is_some()
                    && matches!(
                        *word,
                        "State" | "Address" | "Foreign" | "servers)" | "established)"
                    )
            }
            ["State", rest @ ..] if rest.contains(&"Recv-Q") => {
                self.listen_table = true;
                true
            }
            ["Netid", "State", rest @ ..] if rest.contains(&"Recv-Q") => {
                self.listen_table = true;
                true
            }
            ["LISTEN", now, most, local, ..] | [_, "LISTEN", now, most, local, ..] => {
                let (Some(now), Some(most)) = (uint(now), uint(most)) else {
                    return false;
                };
                // The fullest listener is the one in question.
                let worse = self
                    .get("accept_queue_now")
                    .zip(self.get("backlog_effective"))
                    .is_none_or(|(n, b)| {
                        u128::from(now) * u128::from(b.max(1)) > u128::from(n) * u128::from(most.max(1))
                    });
                if worse {
                    self.set("accept_queue_now", now);
                    self.set("backlog_effective", most);
                    self.set("listener", text::shown(local.as_bytes(), 80));
                }
                true
            }
            _ => false,
        }
    }
}
