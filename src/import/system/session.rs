//! A pasted shell session, line by line: what a line is, and the values it holds.

mod kernel;
mod redis;

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{errnos, number, text};

/// Values kept; foreign text can hold any number of sysctls.
const MOST_VALUES: usize = 512;

/// Reads a session line by line.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// What was recognised so far.
    pub(super) values: BTreeMap<String, Value>,
    /// The command whose output follows.
    command: String,
    /// Lines of output since.
    output: u64,
    /// Columns of an `ss` table were announced.
    listen_table: bool,
    /// A field of Redis' INFO was seen.
    in_info: bool,
    /// The setting whose value CONFIG GET prints next.
    setting: Option<&'static str>,
}

fn words(line: &[u8]) -> Vec<&str> {
    text::fields(line)
        .into_iter()
        .map(|f| std::str::from_utf8(f).unwrap_or("?"))
        .collect()
}

fn uint(word: &str) -> Option<u64> {
    number::uint(word.as_bytes())
}

impl Session {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        if self.values.len() < MOST_VALUES || self.values.contains_key(name) {
            self.values.insert(name.to_owned(), value.into());
        }
    }

    /// Counts on.
    fn add(&mut self, name: &str, more: u64) {
        let n = self.get(name).unwrap_or(0).saturating_add(more);
        self.set(name, n);
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.values.get(name).and_then(Value::as_u64)
    }

    /// Takes a line; whether it was recognised.
    pub(super) fn line(&mut self, line: &[u8]) -> bool {
        let line = text::trim(line);
        if line.is_empty() || line.len() > 4096 {
            return line.is_empty();
        }
        if let Some(command) = prompt(line) {
            self.command = text::shown(command, 300);
            self.output = 0;
            self.listen_table = false;
            return true;
        }
        self.output += 1;
        self.sysctl_line(line)
            || self.limit_line(line)
            || self.kernel_line(line)
            || self.log_line(line)
            || self.sockstat_line(line)
            || self.redis_line(line)
            || self.counter_line(line)
            || self.socket_line(line)
            || self.answer(line)
            || self.error_text(line)
    }

    /// A number beside its words tells on which system the text was made.
    fn number_is_of(&mut self, number: u64, name: &str) {
        let Ok(number) = u32::try_from(number) else { return };
        let linux = i32::try_from(number).is_ok_and(|n| crate::tally::Errno(n).name() == name);
        let bsd = errnos::name_of(errnos::System::Bsd, number) == Some(name);
        let solaris = errnos::name_of(errnos::System::Solaris, number) == Some(name);
        let system = match (linux, bsd, solaris) {
            (true, false, _) => "Linux",
            (false, true, _) => "a BSD or macOS (on Linux that number is another error)",
            (false, false, true) => "Solaris",
            _ => return,
        };
        self.set("error_numbers_of", system);
    }

    /// The output of a command that prints a bare value.
    fn answer(&mut self, line: &[u8]) -> bool {
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

    /// `net.core.somaxconn = 128`
    fn sysctl_line(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        match fields.as_slice() {
            [name, "=", rest @ ..] if name.contains('.') && !rest.is_empty() => {
                let name = name.replace('/', ".");
                self.sysctl(&name, rest)
            }
            _ => false,
        }
    }

    fn sysctl(&mut self, name: &str, fields: &[&str]) -> bool {
        let numbers: Vec<u64> = fields.iter().filter_map(|f| uint(f)).collect();
        let all_numbers = numbers.len() == fields.len();
        match (name, numbers.as_slice()) {
            ("net.ipv4.ip_local_port_range", [low, high]) if low <= high && *high <= 65_535 => {
                self.set("port_low", *low);
                self.set("port_high", *high);
                self.set("ports", high - low + 1);
            }
            ("net.ipv4.ip_local_port_range", _) => return false,
            ("fs.file-nr", [used, _, most]) => {
                self.set("file_nr", *used);
                self.set("file_max", *most);
            }
            ("fs.file-max", [most]) => self.set("file_max", *most),
            ("net.core.somaxconn", [n]) => {
                self.set("somaxconn", *n);
                self.backlog();
            }
            ("net.netfilter.nf_conntrack_count" | "net.nf_conntrack_count", [n]) => {
                self.set("conntrack_count", *n)
            }
            ("net.netfilter.nf_conntrack_max" | "net.nf_conntrack_max", [n]) => self.set("conntrack_max", *n),
            (_, [n]) if all_numbers => {
                let short = name.rsplit('.').next().unwrap_or(name);
                self.set(&text::shown(short.as_bytes(), 48), *n);
            }
            (_, [_, ..]) if all_numbers => {
                let short = name.rsplit('.').next().unwrap_or(name);
                self.set(&text::shown(short.as_bytes(), 48), numbers);
            }
            _ => return false,
        }
        true
    }

    /// A row of `/proc/PID/limits`, `prlimit`, `ulimit -a`.
    fn limit_line(&mut self, line: &[u8]) -> bool {
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

    fn backlog(&mut self) {
        if let (Some(asked), Some(most)) = (self.get("backlog_asked"), self.get("somaxconn"))
            && !self.values.contains_key("accept_queue_now")
        {
            self.set("backlog_effective", asked.min(most));
        }
    }

    /// Lines of server and kernel logs.
    fn log_line(&mut self, line: &[u8]) -> bool {
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

    /// Counters of `netstat -s`, `nstat`, INFO, memcached's `stats`.
    fn counter_line(&mut self, line: &[u8]) -> bool {
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

    /// Rows of `ss` and `netstat`, whole or summed up with `uniq -c`.
    fn socket_line(&mut self, line: &[u8]) -> bool {
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

    /// What programs print when a call failed: the words, or a bare number.
    fn error_text(&mut self, line: &[u8]) -> bool {
        // The order matters: one text contains the other.
        let texts = [
            ("Too many open files in system", "ENFILE"),
            ("file table overflow", "ENFILE"),
            ("Too many open files", "EMFILE"),
            ("Cannot assign requested address", "EADDRNOTAVAIL"),
            ("assign requested address", "EADDRNOTAVAIL"),
            ("Resource temporarily unavailable", "EAGAIN"),
            ("Connection refused", "ECONNREFUSED"),
            ("Connection timed out", "ETIMEDOUT"),
            ("Operation now in progress", "EINPROGRESS"),
            ("No buffer space available", "ENOBUFS"),
            ("Cannot allocate memory", "ENOMEM"),
            ("Connection reset by peer", "ECONNRESET"),
            ("Broken pipe", "EPIPE"),
        ];
        let by_words = texts
            .iter()
            .find(|(words, _)| text::contains(line, words))
            .map(|(_, name)| *name);
        let went_away = text::contains(line, "went away");
        let number = error_number(line);
        if let (Some(number), Some(name)) = (number, by_words) {
            self.number_is_of(number, name);
        }
        let name = match (by_words, number) {
            (Some(name), _) => name.to_owned(),
            (None, _) if went_away => "WENT_AWAY".to_owned(),
            // A number without words: Linux's, until something says otherwise.
            (None, Some(number)) => match i32::try_from(number) {
                Ok(number) => crate::tally::Errno(number).name().into_owned(),
                Err(_) => return false,
            },
            (None, None) => return false,
        };
        let mut list = match self.values.get("error_texts") {
            Some(Value::Object(list)) => list.clone(),
            Some(_) | None => serde_json::Map::new(),
        };
        let n = list.get(&name).and_then(Value::as_u64).unwrap_or(0);
        if list.len() >= 32 && n == 0 {
            return true;
        }
        list.insert(name, Value::from(n + 1));
        self.set("error_texts", list);
        true
    }
}

/// The errno in a client's text: `(99)`, `[115]`, `(61: Connection refused)`, `os error 24`, `Error 111`.
fn error_number(line: &[u8]) -> Option<u64> {
    let words = [
        "fail", "error", "Error", "connect", "progress", "refused", "assign",
    ];
    if !words.iter().any(|word| text::contains(line, word)) {
        return None;
    }
    for (i, byte) in line.iter().enumerate() {
        if !matches!(byte, b'(' | b'[') {
            continue;
        }
        let rest = &line[i + 1..];
        let rest = rest.strip_prefix(b"os error ").unwrap_or(rest);
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if (1..=3).contains(&digits) && matches!(rest.get(digits), Some(b')' | b']' | b':')) {
            return number::uint(&rest[..digits]).filter(|n| (1..=150).contains(n));
        }
    }
    None
}

fn limit(word: &str) -> Option<Value> {
    if word == "unlimited" {
        return Some(Value::from("unlimited"));
    }
    uint(word).map(Value::from)
}

/// The command behind a prompt: `# cat …`, `$ ss -s`, `root@host:~# …`.
fn prompt(line: &[u8]) -> Option<&[u8]> {
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
