//! What `INFO` says: fields by name, and the command statistics.

use std::collections::BTreeMap;

use crate::units::{Nanos, escape};

/// The longest value that is kept, in characters.
const VALUE_CHARS: usize = 200;

/// A parsed `INFO` reply: every `name:value` line, whatever its section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Info(BTreeMap<String, String>);

impl Info {
    /// Parses the text; lines of any other form are passed over.
    pub(super) fn parse(text: &str) -> Info {
        let fields = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.trim_end().split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Info(fields.collect())
    }

    /// A field as text, escaped.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| escape(value, VALUE_CHARS))
    }

    /// A field that is a whole number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }

    /// The statistics of every command, by name in lower case; `None` when the server gives none at all
    /// (it never lacks those of the `INFO` that asked, but for the very first one).
    pub(super) fn commands(&self) -> BTreeMap<String, CommandCounts> {
        self.0
            .iter()
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("cmdstat_")?;
                Some((
                    escape(&name.to_lowercase(), VALUE_CHARS),
                    CommandCounts::parse(value)?,
                ))
            })
            .collect()
    }

    /// Error replies by their code.
    pub(super) fn errors(&self) -> BTreeMap<String, u64> {
        self.0
            .iter()
            .filter_map(|(name, value)| {
                let code = name.strip_prefix("errorstat_")?;
                let count = value.strip_prefix("count=")?.parse().ok()?;
                Some((escape(code, VALUE_CHARS), count))
            })
            .collect()
    }
}

/// The statistics of one command, cumulative since the server's start or `CONFIG RESETSTAT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandCounts {
    /// Executed calls, failed ones included.
    pub calls: u64,
    /// Executed calls that failed; `None` before Redis 6.2.
    pub failed: Option<u64>,
    /// Calls refused before execution; `None` before Redis 6.2.
    pub rejected: Option<u64>,
    /// Time in execution.
    pub busy: Option<Nanos>,
}

impl CommandCounts {
    /// Parses `calls=1,usec=2,usec_per_call=2.00,rejected_calls=0,failed_calls=0`.
    fn parse(value: &str) -> Option<CommandCounts> {
        let mut calls = None;
        let mut counts = CommandCounts::default();
        for (name, number) in value.split(',').filter_map(|pair| pair.split_once('=')) {
            let number = number.parse::<u64>().ok();
            match name {
                "calls" => calls = number,
                "failed_calls" => counts.failed = number,
                "rejected_calls" => counts.rejected = number,
                "usec" => counts.busy = number.map(|usec| Nanos(usec.saturating_mul(1000))),
                _ => {}
            }
        }
        Some(CommandCounts {
            calls: calls?,
            ..counts
        })
    }

    /// What was added since an earlier reading; `None` when a count went back.
    pub(super) fn since(&self, earlier: &CommandCounts) -> Option<CommandCounts> {
        let minus = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => now.checked_sub(then).map(Some),
            (now, _) => Some(now),
        };
        Some(CommandCounts {
            calls: self.calls.checked_sub(earlier.calls)?,
            failed: minus(self.failed, earlier.failed)?,
            rejected: minus(self.rejected, earlier.rejected)?,
            busy: minus(self.busy.map(|b| b.0), earlier.busy.map(|b| b.0))?.map(Nanos),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nexecutable:/a:b\r\n\r\n# Commandstats\r\n\
        cmdstat_get:calls=5,usec=7,usec_per_call=1.40,rejected_calls=2,failed_calls=1\r\n\
        cmdstat_config|get:calls=1,usec=9,usec_per_call=9.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_OLD:calls=3,usec=4,usec_per_call=1.33\r\ncmdstat_bad:calls=x\r\n# Errorstats\r\nerrorstat_ERR:count=4\r\n";

    #[test]
    fn fields_and_command_statistics() {
        let info = Info::parse(TEXT);
        assert_eq!(info.text("redis_version").as_deref(), Some("7.0.15"));
        assert_eq!(info.text("executable").as_deref(), Some("/a:b"));
        let commands = info.commands();
        let names: Vec<&str> = commands.keys().map(String::as_str).collect();
        assert_eq!(names, ["config|get", "get", "old"]);
        let get = commands["get"];
        assert_eq!(
            (get.calls, get.failed, get.rejected, get.busy),
            (5, Some(1), Some(2), Some(Nanos(7000)))
        );
        assert_eq!(commands["old"].failed, None);
        assert_eq!(info.errors()["ERR"], 4);
    }

    #[test]
    fn a_difference_that_goes_back_is_none() {
        let now = CommandCounts {
            calls: 5,
            failed: Some(1),
            rejected: Some(0),
            busy: None,
        };
        let then = CommandCounts {
            calls: 3,
            ..CommandCounts::default()
        };
        assert_eq!(now.since(&then).map(|d| (d.calls, d.failed)), Some((2, Some(1))));
        assert_eq!(then.since(&now), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(?s).{0,200}", stats in "cmdstat_.{0,10}:calls=.{0,30}") {
            let info = Info::parse(&(text + "\n" + &stats));
            let _ = (info.commands(), info.errors(), info.number("x"));
        }
    }
}
