//! What Redis says of itself: INFO, CONFIG GET, and its refusals.

use super::{Session, uint, words};
use crate::import::text;

/// Numbers of INFO that rules compare.
const INFO: [&str; 13] = [
    "connected_clients",
    "rejected_connections",
    "maxclients",
    "total_connections_received",
    "total_commands_processed",
    "blocked_clients",
    "instantaneous_ops_per_sec",
    "uptime_in_seconds",
    "used_memory",
    "maxmemory",
    "evicted_keys",
    "mem_clients_normal",
    "total_system_memory",
];

/// Settings whose values CONFIG GET prints on a line of their own.
const SETTINGS: [&str; 4] = ["maxclients", "maxmemory", "maxmemory-policy", "tcp-backlog"];

impl Session {
    pub(super) fn redis_line(&mut self, line: &[u8]) -> bool {
        self.info(line) || self.config(line) || self.refusal(line)
    }

    /// `connected_clients:191`
    fn info(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        let [one] = fields.as_slice() else {
            return false;
        };
        let Some((name, value)) = one.split_once(':') else {
            return false;
        };
        if name == "errorstat_OOM" {
            // errorstat_OOM:count=12
            if let Some(n) = value.strip_prefix("count=").and_then(uint) {
                self.set("oom_errors", n);
            }
            return true;
        }
        if name == "maxmemory_policy" {
            self.set("maxmemory_policy", text::shown(value.as_bytes(), 40));
            return true;
        }
        if INFO.contains(&name)
            && let Some(n) = uint(value)
        {
            self.set(name, n);
            self.in_info = true;
            return true;
        }
        // The rest of INFO is understood, and nothing is made of it.
        self.in_info
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    }

    /// `1) "maxclients"` and `2) "10000"`, or without the numbers, as redis-cli prints into a pipe.
    fn config(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        let word = match fields.as_slice() {
            [number, word] if number.ends_with(')') && uint(number.trim_end_matches(')')).is_some() => {
                word.trim_matches('"')
            }
            [word] => word.trim_matches('"'),
            _ => {
                self.setting = None;
                return false;
            }
        };
        if let Some(setting) = self.setting.take() {
            let name = match setting {
                "maxmemory-policy" => {
                    self.set("maxmemory_policy", text::shown(word.as_bytes(), 40));
                    return true;
                }
                "tcp-backlog" => "backlog_asked",
                other => other,
            };
            if let Some(n) = uint(word) {
                self.set(name, n);
                self.backlog();
                return true;
            }
        }
        self.setting = SETTINGS.into_iter().find(|name| *name == word);
        self.setting.is_some()
    }

    /// What a client prints of a server without memory.
    fn refusal(&mut self, line: &[u8]) -> bool {
        let refused = text::contains(line, "command not allowed when used memory");
        if refused {
            self.add("oom_replies", 1);
        }
        refused
    }
}
