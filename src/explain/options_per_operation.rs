//! OPTIONS_PER_OPERATION: socket options set again and again on a connection that is kept.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, known, round2};
use crate::record::{Kind, Record};

pub(super) struct OptionsPerOperation;

const DOCS: &[Doc] = &[Doc {
    code: "OPTIONS_PER_OPERATION",
    means: "The client sets socket options or flags (setsockopt, fcntl, ioctl) at every operation, although the \
            connection stays the same.",
    measured: "Those calls per operation in the counted window, where fewer than one operation in two makes a \
               connection.",
    wrong_when: "The program does other work on other descriptors in the same window.",
    todo: "Make the client object once and reuse it; setting an option once per connection is enough.",
}];

const SET_UP: &str = "setsockopt";
const OPTIONS: &[&str] = &[SET_UP, "fcntl", "ioctl"];

impl Rule for OptionsPerOperation {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    // The window of a counted program holds its start-up, and its fcntl and ioctl calls may be on anything.
    let of_sockets = match row.record.kind {
        Kind::Count => &OPTIONS[..1],
        Kind::Bench | Kind::Import | Kind::Preflight => OPTIONS,
    };
    let connects = known(&row.counted()?.connects_per_op)?;
    let options = row.per_op(of_sockets, |call| call.calls)?;
    if connects >= 0.5 || options < 0.5 {
        return None;
    }
    let mut finding = Finding::about(row, "OPTIONS_PER_OPERATION", Severity::Warning)
        .with("options_per_op", round2(options))
        .with("connects_per_op", round2(connects));
    for call in of_sockets {
        let per_op = row.per_op(&[call], |counts| counts.calls).unwrap_or(0.0);
        if per_op > 0.0 {
            finding = finding.with(&format!("{call}_per_op"), round2(per_op));
        }
    }
    // `setsockopt` belongs to setting up a connection; the others switch a socket between waiting and not.
    let set_up = row.per_op(&[SET_UP], |call| call.calls).unwrap_or(0.0);
    let next = if set_up > options / 2.0 {
        "reuse one client object in place of a pconnect() or new Client for each operation"
    } else {
        "the client switches the socket between blocking and not around each operation: look for a setting (time-outs, \
         the parser, a pool's check) or a version that does not; in a pipeline it happens once a batch"
    };
    Some(
        finding
            .says(format!(
                "{options:.1} calls per operation only set options of a socket that has them already"
            ))
            .try_next(next),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, row, set_call, set_counted};
    use crate::units::Measured;

    fn with(connects: f64) -> Record {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/tcp");
        set_call(&mut strategy, "setsockopt", 2000, &[]);
        set_counted(&mut strategy, |counted| {
            counted.connects_per_op = Measured::Known(connects)
        });
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn options_on_a_kept_connection() {
        assert_eq!(codes(&with(0.0)), ["OPTIONS_PER_OPERATION"]);
    }

    #[test]
    fn options_belong_to_a_new_connection() {
        assert_eq!(codes(&with(1.0)), [] as [&str; 0]);
    }
}
