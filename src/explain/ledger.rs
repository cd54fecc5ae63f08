//! CLAIMED_NOT_SERVED, SERVED_MORE_THAN_CLAIMED: client and server disagree about the work done.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::{PhaseCounts, Record, ServerOrigin};
use crate::strategy::contract::Op;
use crate::units::{Grouped, total};

pub(super) struct Ledger;

const DOCS: &[Doc] = &[
    Doc {
        code: "CLAIMED_NOT_SERVED",
        means: "The client counts operations that the server never executed: queued and not sent, or not checked.",
        measured: "Operations the client reports in the timed rounds, against the server's own command statistics \
                   over the same rounds.",
        wrong_when: "Another user reset the statistics of the server (CONFIG RESETSTAT) during a round, or the client \
                     uses another command for the operation.",
        todo: "Make the client read and check every reply; for a pipeline, execute it. The throughput shown is not one.",
    },
    Doc {
        code: "TIMED_BEFORE_FLUSH",
        means: "The client stopped its clock when its operations were queued; they were sent after that.",
        measured: "Operations the client reports in its rounds against what the server executed in them, and what the \
                   server executed between the end of a round and the next work; or, in the counted pass, bytes sent after \
               the window had closed and hardly any inside it.",
        wrong_when: "Another client of the same server sent the same commands after the round.",
        todo: "Read the clock after the pipeline has been executed and its replies have been read (in Predis: after the \
               closure of pipeline() has returned). The throughput shown is that of queueing.",
    },
    Doc {
        code: "SERVED_MORE_THAN_CLAIMED",
        means: "The server executed more operations than the client counts as done.",
        measured: "As above, the other way round.",
        wrong_when: "Other clients use the same server and the same commands.",
        todo: "With time-outs: the requests were executed although the client gave them up, so retries count twice; \
               raise the time-out or use operations that may be repeated.",
    },
];

impl Rule for Ledger {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record)
            .flat_map(|row| {
                let differs = check(&row);
                let late = differs.as_ref().and_then(|finding| late(&row, finding));
                let late = late.or_else(|| sent_after(&row));
                differs.into_iter().chain(late)
            })
            .collect()
    }
}

/// Whether what a client claimed and its server had not seen came after its clock had stopped.
fn late(row: &Row<'_>, differs: &Finding) -> Option<Finding> {
    let late = row.result.experiment.served_late;
    let number = |name: &str| differs.evidence.get(name).and_then(serde_json::Value::as_u64);
    let (claimed, rounds) = (number("claimed_ops")?, number("rounds")?);
    let missing = claimed.checked_sub(number("served_ops")?)?;
    // Most of it: a few stragglers are no cause.
    if missing == 0 || late.saturating_mul(2) < missing {
        return None;
    }
    Some(
        Finding::about(row, "TIMED_BEFORE_FLUSH", Severity::Error)
            .with("served_late", late)
            .with("missing_in_rounds", missing)
            .with("claimed_ops", claimed)
            .with("rounds", rounds)
            .says(format!(
                "the client had only queued its operations when it stopped its clock: of the {} that it claims in {} \
                 the server got {} after that, so its figure is that of queueing",
                Grouped(claimed),
                timed_rounds(rounds),
                Grouped(late)
            ))
            .try_next("read the clock after the pipeline is executed and its replies are read"),
    )
}

/// What both findings of one row are about.
fn timed_rounds(n: u64) -> String {
    match n {
        1 => "1 timed round".to_owned(),
        n => format!("{n} timed rounds"),
    }
}

/// Calls that send on a socket. `write` is left out: the worker's own lines go through it.
const SENDS: [&str; 4] = ["sendto", "sendmsg", "sendmmsg", "writev"];
/// The shortest request: `PING` as RESP is 14 bytes, a memcached `get` of one letter 7.
const SHORTEST_REQUEST: u64 = 7;

/// Whether the counted pass sent nothing, neither in its window nor after it, although it claims operations.
fn sent_nothing(row: &Row<'_>) -> bool {
    row.counted().is_some_and(|counted| {
        let phases = [&counted.phases.run_loop, &counted.phases.shutdown];
        let mut calls = phases
            .into_iter()
            .flat_map(|phase| SENDS.iter().filter_map(|name| phase.syscalls.get(*name)));
        counted.ops.is_some_and(|ops| ops.0 > 0)
            && counted.floor_ratio.known().is_some()
            && calls.all(|call| call.calls == 0)
    })
}

/// Whether the counted pass sent its operations after the window had closed. That shows even where the
/// server was so quick that the ledger agrees.
fn sent_after(row: &Row<'_>) -> Option<Finding> {
    let counted = row.counted()?;
    let ops = counted.ops?.0;
    let sent = |phase: &PhaseCounts| -> Option<u64> {
        let calls = SENDS.iter().filter_map(|name| phase.syscalls.get(*name));
        calls.map(|call| call.bytes.known().copied()).sum()
    };
    let (inside, after) = (sent(&counted.phases.run_loop)?, sent(&counted.phases.shutdown)?);
    let least = ops.saturating_mul(SHORTEST_REQUEST);
    if ops == 0 || inside >= least || after < least {
        return None;
    }
    Some(
        Finding::about(row, "TIMED_BEFORE_FLUSH", Severity::Error)
            .with("bytes_sent_in_window", inside)
            .with("bytes_sent_after", after)
            .with("counted_ops", ops)
            .says(format!(
                "the client had only queued its operations when it stopped its clock: of the {} operations of the counted \
                 pass it sent {} bytes after that and {} before, so its figure is that of queueing",
                Grouped(ops),
                Grouped(after),
                Grouped(inside)
            ))
            .try_next("read the clock after the pipeline is executed and its replies are read"),
    )
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let op = <Op as clap::ValueEnum>::from_str(&row.result.axes.op, true).ok()?;
    let timed = row.timed()?;
    let (mut claimed, mut asked, mut served, mut failed) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut rounds = 0_u64;
    for round in &timed.rounds {
        let Some(view) = round.server.known() else {
            continue;
        };
        rounds += 1;
        claimed = claimed.saturating_add(round.ops.0);
        asked = asked.saturating_add(round.asked.0);
        served = served.saturating_add(view.served(op.commands()));
        let refused = op.commands().iter().filter_map(|name| view.failed.get(*name));
        failed = failed.saturating_add(total(refused.copied()));
    }
    let finding = |code, severity| {
        Finding::about(row, code, severity)
            .with("claimed_ops", claimed)
            .with("asked_ops", asked)
            .with("served_ops", served)
            .with("failed_at_server", failed)
            .with("rounds", rounds)
    };
    if claimed > served {
        let pipeline = row.result.axes.pipeline > 1;
        let why = match served {
            0 if pipeline && sent_nothing(row) => {
                ", and no call of the counted pass sends anything: the pipeline was filled and never executed (in PHP, \
                 exec() is missing)"
            }
            _ => "",
        };
        let seen = match served {
            0 => "none".to_owned(),
            served => Grouped(served).to_string(),
        };
        return Some(
            finding("CLAIMED_NOT_SERVED", Severity::Error)
                .with("claimed_ops_per_s", timed.ops_per_s.median.round())
                .says(format!(
                    "the client claims {} operations a second; of the {} operations that it claims in {} the server saw \
                     {seen} within them{why}",
                    million(timed.ops_per_s.median),
                    Grouped(claimed),
                    timed_rounds(rounds)
                ))
                .try_next(
                    "the client must send what it queues and read every reply; its figure is no throughput",
                ),
        );
    }
    if served > claimed {
        let more = served - claimed;
        let external = row
            .record
            .server
            .as_ref()
            .is_none_or(|server| server.origin == ServerOrigin::External);
        let (severity, says) = if served <= asked {
            (
                Severity::Warning,
                format!(
                    "the server executed {} operations that the client counts as failed",
                    Grouped(more)
                ),
            )
        } else if external {
            (
                Severity::Info,
                format!(
                    "the server executed {} operations more than this client: others use it too, or it retried",
                    Grouped(more)
                ),
            )
        } else {
            (
                Severity::Warning,
                format!(
                    "the server executed {} operations more than the client was asked for: it retried",
                    Grouped(more)
                ),
            )
        };
        return Some(
            finding("SERVED_MORE_THAN_CLAIMED", severity)
                .says(says)
                .try_next("raise the client's time-out, or measure on a server of its own"),
        );
    }
    None
}

/// A rate as people say it: `1.6 million`, `25 400`.
fn million(rate: f64) -> String {
    if rate >= 1e6 {
        format!("{:.1} million", rate / 1e6)
    } else {
        // A rate is far below 2^53, and negative ones do not occur.
        Grouped(rate.round().max(0.0) as u64).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, round, row, set_call, set_counted, set_rounds};

    #[test]
    fn a_pipeline_that_is_never_sent() {
        let mut record = empty();
        let mut strategy = row("phpredis/pipeline/tcp");
        set_rounds(
            &mut strategy,
            vec![round(10_000, 10_000, 0), round(10_000, 10_000, 0)],
            1_621_555.0,
        );
        record.strategies.push(strategy);
        let found = explained(&record);
        assert_eq!(found[0].code, "CLAIMED_NOT_SERVED");
        assert_eq!(
            found[0].says,
            "the client claims 1.6 million operations a second; of the 20 000 operations that it claims in 2 timed rounds \
             the server saw none within them"
        );
    }

    #[test]
    fn a_pipeline_without_its_end_is_named_where_the_calls_were_counted() {
        let mut record = empty();
        let mut strategy = row("phpredis/unsent/tcp");
        strategy.axes.pipeline = 100;
        set_rounds(&mut strategy, vec![round(10_000, 10_000, 0)], 1_740_069.0);
        set_counted(&mut strategy, |counted| {
            counted.phases.run_loop.syscalls.remove("sendto");
            counted.phases.run_loop.syscalls.remove("recvfrom");
        });
        set_call(&mut strategy, "brk", 3, &[]);
        record.strategies.push(strategy);
        let says = &explained(&record)[0].says;
        assert!(
            says.ends_with("never executed (in PHP, exec() is missing)"),
            "{says}"
        );
    }

    #[test]
    fn a_pipeline_that_is_timed_before_it_is_sent() {
        let mut record = empty();
        let mut strategy = row("predis/timed-before-flush/tcp");
        set_rounds(&mut strategy, vec![round(10_000, 10_000, 0)], 765_286.0);
        strategy.experiment.served_late = 10_000;
        record.strategies.push(strategy);
        let found = explained(&record);
        assert_eq!(codes(&record), ["CLAIMED_NOT_SERVED", "TIMED_BEFORE_FLUSH"]);
        assert!(
            found[1]
                .says
                .contains("of the 10 000 that it claims in 1 timed round the server got 10 000 after that"),
            "{}",
            found[1].says
        );
        // Both speak of the same operations.
        for evidence in ["claimed_ops", "rounds"] {
            assert_eq!(
                found[0].evidence[evidence], found[1].evidence[evidence],
                "{evidence}"
            );
        }
        assert!(
            found[0]
                .says
                .contains("of the 10 000 operations that it claims in 1 timed round the server saw none"),
            "{}",
            found[0].says
        );
        // A few stragglers are not it.
        record.strategies[0].experiment.served_late = 10;
        assert_eq!(codes(&record), ["CLAIMED_NOT_SERVED"]);
    }

    #[test]
    fn a_retry_is_seen_by_the_server_only() {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/tcp");
        set_rounds(&mut strategy, vec![round(243, 2000, 762)], 243.0);
        record.strategies.push(strategy);
        let found = explained(&record);
        assert_eq!(found[0].code, "SERVED_MORE_THAN_CLAIMED");
        assert!(
            found[0]
                .says
                .contains("519 operations that the client counts as failed"),
            "{}",
            found[0].says
        );
    }

    #[test]
    fn others_on_a_shared_server_are_only_noted() {
        let mut record = empty();
        record.server.as_mut().unwrap().origin = ServerOrigin::External;
        let mut strategy = row("raw/persistent/tcp");
        set_rounds(&mut strategy, vec![round(100, 100, 150)], 100.0);
        record.strategies.push(strategy);
        assert_eq!(explained(&record)[0].severity, Severity::Info);
    }

    #[test]
    fn books_that_agree_are_silent() {
        let mut record = empty();
        let mut strategy = row("raw/persistent/tcp");
        set_rounds(&mut strategy, vec![round(100, 100, 100)], 100.0);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
