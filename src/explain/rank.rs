//! The order of findings: the gravest first, and among equals the one that explains most of what was lost
//! or slow.

use super::finding::{EXPLAINS, Finding};
use super::row::{Row, round2};
use crate::record::{Record, StrategyResult};
use crate::units::total;

/// Sorts findings and says of each what share of the lost and slow operations it explains.
pub(super) fn rank(record: &Record, findings: &mut [Finding]) {
    for finding in findings.iter_mut() {
        let Some(explained) = explained(finding) else {
            continue;
        };
        let of = suffered(record, |place, row| {
            finding.strategy.is_none() || finding.is_about(place, row)
        });
        if of > 0 {
            let share = explained.min(of) as f64 / of as f64;
            finding
                .evidence
                .insert("explains_share".to_owned(), round2(share).into());
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse((finding.severity, explained(finding))));
}

fn explained(finding: &Finding) -> Option<u64> {
    finding.evidence.get(EXPLAINS)?.as_u64()
}

/// Operations that these rows lost, and those that were slow because a connection request had to be
/// repeated.
fn suffered(record: &Record, wanted: impl Fn(usize, &StrategyResult) -> bool) -> u64 {
    let rows = Row::run(record).filter(|row| row.index().is_some_and(|place| wanted(place, row.result)));
    let mut sum = 0_u64;
    let mut over_tcp = false;
    for row in rows {
        over_tcp |= row.is_unix() == Some(false);
        sum = sum.saturating_add(total(row.symptoms().values().map(|seen| seen.count)));
    }
    let stalled = record.counters.grew("TcpExt.TCPSynRetrans").filter(|_| over_tcp);
    sum.saturating_add(stalled.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use crate::explain::explain;
    use crate::explain::testing::{empty, round, row, set_rounds};

    #[test]
    fn what_explains_most_comes_first() {
        let mut record = empty();
        for (name, text, lost) in [
            (
                "predis/connect/tcp",
                "ServerException:ERR max number of clients reached",
                3,
            ),
            (
                "phpredis/connect/unix",
                "RedisException:Resource temporarily unavailable",
                40,
            ),
        ] {
            let mut strategy = row(name);
            let mut lossy = round(1000 - lost, 1000, 1000 - lost);
            lossy.errors.insert(text.to_owned(), lost);
            set_rounds(&mut strategy, vec![lossy], 1000.0);
            record.strategies.push(strategy);
        }
        let found = explain(&record);
        let ranked: Vec<_> = found
            .iter()
            .map(|f| (f.code.as_ref(), f.evidence["explains_share"].as_f64()))
            .collect();
        assert_eq!(
            ranked,
            [
                ("UNIX_BACKLOG_EAGAIN", Some(1.0)),
                ("REDIS_MAXCLIENTS", Some(1.0))
            ]
        );
    }
}
