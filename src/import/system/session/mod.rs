//! A pasted shell session, line by line: what a line is, and the values it holds. One file for each kind of line.

mod command;
mod counter;
mod error;
mod kernel;
mod limit;
mod log;
mod redis;
mod socket;
mod sysctl;

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{number, text};

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
        if let Some(command) = command::prompt(line) {
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
}
