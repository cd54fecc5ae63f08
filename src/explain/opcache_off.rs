//! OPCACHE_OFF: a PHP client compiled files in every operation because opcache was off.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use crate::record::Record;

pub(super) struct OpcacheOff;

const DOCS: &[Doc] = &[Doc {
    code: "OPCACHE_OFF",
    means: "A PHP client opened and compiled files in its loop, which opcache would have kept in memory.",
    measured: "Opens per operation, and the client's own word that opcache is off on the command line.",
    wrong_when: "The opens are the client's own data (a file cache that reads with file_get_contents).",
    todo: "Add -d opcache.enable_cli=1 and compare; a web server has opcache on by default, the command line off.",
}];

const OPENS: &[&str] = &["open", "openat", "openat2"];

impl Rule for OpcacheOff {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    // The word of PHP's workers: `true` or `false`.
    if row.result.client.environment.get("opcache_cli")? != "false" {
        return None;
    }
    let opens = row.per_op(OPENS, |call| call.calls)?;
    if opens < 0.5 {
        return None;
    }
    Some(
        Finding::about(row, "OPCACHE_OFF", Severity::Info)
            .with("opens_per_op", round2(opens))
            .says(format!(
                "opcache was off, so {opens:.1} files were opened and compiled in each operation"
            ))
            .try_next("php -d opcache.enable_cli=1; a web server has it on by default, so its figures differ from these"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row, set_call};

    #[test]
    fn only_where_files_are_opened_and_it_is_off() {
        let mut record = empty();
        let mut strategy = row("tmpfile/include/local");
        set_call(&mut strategy, "openat", 1_000, &[]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), [] as [&str; 0], "nobody says that it is off");
        let says = |record: &mut crate::record::Record, word: &str| {
            record.strategies[0]
                .client
                .environment
                .insert("opcache_cli".into(), word.into());
        };
        says(&mut record, "true");
        assert_eq!(codes(&record), [] as [&str; 0]);
        says(&mut record, "false");
        assert_eq!(codes(&record), ["OPCACHE_OFF"]);
        set_call(&mut record.strategies[0], "openat", 3, &[]);
        assert_eq!(codes(&record), [] as [&str; 0], "one-off opens");
    }
}
