//! NAGLE_DELAYED_ACK and its denial in a counted pass. The codes are described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use crate::record::Record;
use crate::units::{Grouped, Nanos};

pub(super) struct Nagle;

impl Rule for Nagle {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

const FIX: &str =
    "TCP_NODELAY (in PHP the stream context option tcp_nodelay), or one send for the whole request";

fn check(row: &Row<'_>) -> Option<Finding> {
    let Some(talk) = row.talk() else {
        return unseen(row);
    };
    let held = talk.ack_waits_after_several;
    // One reply of many that took 40 ms is a busy machine.
    if held >= 2 || held > 0 && talk.turns_with_several_sends <= 3 {
        let option = match (talk.turns_without_nodelay, talk.turns_with_nodelay) {
            (0, _) => "whether TCP_NODELAY was set before is not known",
            (_, 0) => "TCP_NODELAY was never set on its sockets",
            (_, _) => "TCP_NODELAY was set on some of its sockets only",
        };
        return Some(
            Finding::about(row, "NAGLE_DELAYED_ACK", Severity::Warning)
                .with("waits_near_40_ms", held)
                .with("turns", talk.turns())
                .with("most_sends_before_a_reply", talk.most_sends_in_turn)
                .with("mean_wait_ms", ms(Nanos(talk.waited.0 / talk.turns().max(1))))
                .says(format!(
                    "{} of {} replies came about 40 ms after the last of several sends: Nagle's algorithm and a delayed ACK; \
                     {option}",
                    Grouped(held),
                    Grouped(talk.turns())
                ))
                .try_next(FIX),
        );
    }
    let longest = talk.longest_wait;
    if talk.turns_without_nodelay == 0 {
        return None;
    }
    Some(
        Finding::about(row, "NAGLE_NOT_THE_CAUSE", Severity::Info)
            .with("longest_wait_ms", ms(longest))
            .with("turns_without_nodelay", talk.turns_without_nodelay)
            .with("turns_with_several_sends", talk.turns_with_several_sends)
            .says(
                "TCP_NODELAY is not set, but no reply was held back for 40 ms after several sends: Nagle's algorithm is not \
                 the cause of anything here",
            )
            .try_next("nothing; the option would change nothing"),
    )
}

/// Without single calls there is only the clients' own histogram to go by.
fn unseen(row: &Row<'_>) -> Option<Finding> {
    let latency = row.timed()?.latency.known()?;
    let near = [latency.p50, latency.p90, latency.p99]
        .into_iter()
        .find(|time| (38_000_000..=50_000_000).contains(&time.0))?;
    if row.is_unix() == Some(true) {
        return None;
    }
    Some(
        Finding::about(row, "NAGLE_UNDECIDED", Severity::Info)
            .with("latency_ms", ms(near))
            .says(format!(
                "operations take {near}, which is close to Linux's shortest delayed ACK, and this engine does not see how many \
                 sends come before a reply: whether Nagle's algorithm is the cause cannot be told"
            ))
            .try_next("count with --engine ptrace"),
    )
}

fn ms(span: Nanos) -> f64 {
    round2(span.0 as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, row, set_counted, set_talk};
    use crate::tally::Talk;

    fn turns(ms: u64, nodelay: bool) -> Record {
        let mut record = empty();
        let mut strategy = row("predis/persistent/tcp");
        let wait = Nanos(ms * 1_000_000);
        let held = u64::from(ms == 40) * 1000;
        set_talk(&mut strategy, |talk| {
            *talk = Talk {
                turns_with_several_sends: 0,
                most_sends_in_turn: 2,
                waited: Nanos(wait.0 * 1000),
                longest_wait: wait,
                waits: [(wait.0.max(1).ilog2() as u8, 1000)].into(),
                ack_waits_after_several: if nodelay { 0 } else { held },
                turns_without_nodelay: if nodelay { 0 } else { 1000 },
                turns_with_nodelay: if nodelay { 1000 } else { 0 },
                ..Talk::default()
            };
        });
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn forty_milliseconds_after_two_sends() {
        let found = explained(&turns(40, false));
        assert_eq!(found[0].code, "NAGLE_DELAYED_ACK");
        assert!(found[0].says.contains("never set"), "{}", found[0].says);
        assert_eq!(found[0].evidence["mean_wait_ms"], 40.0);
    }

    #[test]
    fn no_stall_is_a_clear_no_and_nodelay_needs_none() {
        assert_eq!(codes(&turns(0, false)), ["NAGLE_NOT_THE_CAUSE"]);
        assert_eq!(codes(&turns(40, true)), [] as [&str; 0]);
        assert_eq!(codes(&turns(0, true)), [] as [&str; 0]);
    }

    #[test]
    fn an_engine_without_single_calls_cannot_tell() {
        let mut record = turns(40, false);
        set_counted(&mut record.strategies[0], |counted| {
            counted.phases.run_loop.talk = None;
            counted.engine = "bpf".to_owned();
        });
        assert_eq!(codes(&record), [] as [&str; 0]);
        crate::explain::testing::set_latency(&mut record.strategies[0], Nanos(40_500_000));
        assert_eq!(codes(&record), ["NAGLE_UNDECIDED"]);
    }
}
