//! XDEBUG_LOADED: a PHP client ran with the debugger loaded.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::Record;

pub(super) struct Xdebug;

const DOCS: &[Doc] = &[Doc {
    code: "XDEBUG_LOADED",
    means: "The PHP extension xdebug was loaded: it makes PHP code slower; the system calls stay the same.",
    measured: "The client's own list of versions.",
    wrong_when: "It is loaded and switched off (xdebug.mode=off), which costs little.",
    todo: "Run with -d xdebug.mode=off or without the extension, and measure again.",
}];

impl Rule for Xdebug {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let version = row.result.client.environment.get("xdebug")?;
    if version.is_empty() {
        return None;
    }
    Some(
        Finding::about(row, "XDEBUG_LOADED", Severity::Warning)
            .with("xdebug", version.as_str())
            .says(format!(
                "xdebug {version} was loaded: the throughput is lower than it would be, the counts are not"
            ))
            .try_next(
                "php -d xdebug.mode=off, or remove the extension from the command line's configuration",
            ),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row};

    #[test]
    fn only_where_it_is_loaded() {
        let mut record = empty();
        record.strategies.push(row("phpredis/persistent/tcp"));
        assert_eq!(codes(&record), [] as [&str; 0]);
        record.strategies[0]
            .client
            .environment
            .insert("xdebug".into(), "3.2.0".into());
        assert_eq!(codes(&record), ["XDEBUG_LOADED"]);
    }
}
