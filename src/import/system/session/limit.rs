//! Resource limits: `/proc/PID/limits`, `prlimit`, `ulimit -a`, systemd's.

use serde_json::Value;

use super::super::super::{number, text};
use super::{Session, uint, words};

impl Session {
    /// A row of `/proc/PID/limits`, `prlimit`, `ulimit -a`.
    pub(super) fn limit_line(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        let known = [
            ("Max open files", "nofile"),
            ("Max processes", "nproc"),
            ("Max locked memory", "memlock"),
            ("Max stack size", "stack"),
            ("Max address space", "as"),
            ("Max pending signals", "sigpending"),
            ("Max msgqueue size", "msgqueue"),
            ("Max file size", "fsize"),
            ("Max core file size", "core"),
            ("Max cpu time", "cpu"),
            ("Max data size", "data"),
            ("Max resident set", "rss"),
            ("Max file locks", "locks"),
            ("Max nice priority", "nice"),
            ("Max realtime priority", "rtprio"),
            ("Max realtime timeout", "rttime"),
        ];
        if let Some((label, name)) = known.iter().find(|(label, _)| line.starts_with(label.as_bytes())) {
            let rest = words(&line[label.len()..]);
            if let [soft, hard, ..] = rest.as_slice()
                && let (Some(soft), Some(hard)) = (limit(soft), limit(hard))
            {
                self.set(&format!("{name}_soft"), soft);
                self.set(&format!("{name}_hard"), hard);
                return true;
            }
            return false;
        }
        if line.starts_with(b"Limit ") && text::contains(line, "Soft Limit") {
            return true;
        }
        // prlimit: NOFILE max number of open files 1024 524288 files
        if let ["NOFILE", middle @ .., soft, hard, "files"] = fields.as_slice()
            && !middle.is_empty()
            && let (Some(soft), Some(hard)) = (limit(soft), limit(hard))
        {
            self.set("nofile_soft", soft);
            self.set("nofile_hard", hard);
            return true;
        }
        if fields.as_slice() == ["RESOURCE", "DESCRIPTION", "SOFT", "HARD", "UNITS"] {
            return true;
        }
        // ulimit -a: open files                      (-n) 1024
        let flag = match fields.as_slice() {
            [.., flag, value] if flag.starts_with('(') || flag.starts_with('-') => Some((*flag, *value)),
            _ => None,
        };
        if let Some((flag, value)) = flag
            && fields.len() >= 3
            && let (true, Some(value)) = (flag.ends_with(')'), limit(value))
        {
            let name = match flag.trim_matches(|c| matches!(c, '(' | ')' | '-')) {
                "n" => "nofile_soft",
                "u" => "nproc_soft",
                "l" => "memlock_soft",
                "s" => "stack_soft",
                other if other.len() == 1 => return true,
                _ => return false,
            };
            self.set(name, value);
            return true;
        }
        // systemd: LimitNOFILE=65536
        if let Some(n) = line.strip_prefix(b"LimitNOFILE=").and_then(number::uint) {
            self.set("systemd_nofile", n);
            return true;
        }
        false
    }
}

fn limit(word: &str) -> Option<Value> {
    if word == "unlimited" {
        return Some(Value::from("unlimited"));
    }
    uint(word).map(Value::from)
}
