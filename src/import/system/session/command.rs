//! Commands at a prompt, and what a bare value that one prints means.

use serde_json::Value;

use super::super::super::text;
use super::{Session, uint, words};

/// The command behind a prompt: `# cat …`, `$ ss -s`, `root@host:~# …`.
pub(super) fn prompt(line: &[u8]) -> Option<&[u8]> {
    for mark in [&b"# "[..], b"$ "] {
        if let Some(command) = line.strip_prefix(mark) {
            return Some(text::trim(command));
        }
        if let Some(at) = memchr::memmem::find(&line[..line.len().min(80)], mark) {
            let before = &line[..at];
            // user@host:dir, [user@host dir]
            if before.contains(&b'@') && !before.contains(&b'=') {
                return Some(text::trim(&line[at + 2..]));
            }
        }
    }
    None
}

/// The sysctl that a `cat` or `sysctl -n` prints.
fn sysctl_path(command: &str) -> Option<String> {
    if let Some(at) = command.find("/proc/sys/") {
        let path = command[at + 10..].split_whitespace().next()?;
        // One file only: of several it is not clear which line is whose.
        return (command.matches("/proc/sys/").count() == 1 && !path.contains('*'))
            .then(|| path.replace('/', "."));
    }
    let mut parts = command.split_whitespace();
    if parts.next() == Some("sysctl") && parts.next() == Some("-n") {
        return parts.next().map(str::to_owned);
    }
    None
}

fn has_flag(command: &str, flag: char) -> bool {
    command
        .split_whitespace()
        .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(flag))
}

/// The peer that a command filters by: `dst 10.0.0.20:6379`, `grep 10.0.0.20:6379`, `dport = :6379`.
fn peer(command: &str) -> Option<String> {
    let mut parts = command.split_whitespace().peekable();
    while let Some(part) = parts.next() {
        if matches!(part, "dst" | "dport" | "grep") {
            let mut value = parts.next()?;
            if value == "=" {
                value = parts.next()?;
            }
            let value = value.trim_matches(|c| matches!(c, '\'' | '"' | '(' | ')'));
            if value.contains(':') && value.chars().any(|c| c.is_ascii_digit()) {
                return Some(text::shown(value.as_bytes(), 60));
            }
        }
    }
    None
}

impl Session {
    /// The output of a command that prints a bare value.
    pub(super) fn answer(&mut self, line: &[u8]) -> bool {
        let command = self.command.clone();
        let fields = words(line);
        if let Some(path) = sysctl_path(&command) {
            return self.sysctl(&path, &fields);
        }
        if command.contains("clocksource") {
            if command.contains("available_clocksource") {
                let list: Vec<Value> = fields.iter().map(|f| Value::from(*f)).collect();
                self.set("available", list);
            } else {
                self.set("current", fields.first().copied().unwrap_or_default());
            }
            return true;
        }
        let [number] = fields.as_slice() else {
            return false;
        };
        let Some(n) = uint(number) else { return false };
        let counts_lines = command.contains("wc -l") || command.contains("grep -c");
        let lower = command.to_lowercase();
        if command.starts_with("ulimit") {
            let name = match command.split_whitespace().nth(1) {
                Some("-n" | "-Sn" | "-nS") => "nofile_soft",
                Some("-Hn" | "-nH") => "nofile_hard",
                Some("-u") => "nproc_soft",
                _ => return false,
            };
            self.set(name, n);
            return true;
        }
        if counts_lines && (lower.contains("/fd") || lower.contains("lsof")) {
            self.set("fds_now", n);
            return true;
        }
        if counts_lines && (lower.contains("time-wait") || lower.contains("time_wait")) {
            // ss prints a heading, and netstat behind grep does not.
            let heading = lower.starts_with("ss ")
                && command.contains("wc -l")
                && !lower.contains("grep")
                && !has_flag(&command, 'H');
            let n = n.saturating_sub(u64::from(heading));
            match peer(&command) {
                Some(peer) => {
                    self.set("time_wait_to_peer", n);
                    self.set("time_wait_peer", peer);
                }
                None => self.set("time_wait", n),
            }
            return true;
        }
        if counts_lines && (lower.contains("established") || lower.contains("estab")) {
            self.set("established", n);
            return true;
        }
        let cgroup = [
            "pids.max",
            "pids.current",
            "pids.peak",
            "memory.max",
            "memory.current",
        ];
        if let Some(name) = cgroup.iter().find(|name| command.contains(*name)) {
            self.set(name, n);
            return true;
        }
        false
    }
}
