//! EVENT_LOOP_SPIN and POLL_STORM in a counted pass. The codes are described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{RECEIVES, Row, WAITS, round2};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Spin;

/// So many empty looks in a row are no accident.
const MANY: u64 = 20;

impl Rule for Spin {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record)
            .flat_map(|row| [asking(&row), storm(&row)])
            .flatten()
            .collect()
    }
}

fn asking(row: &Row<'_>) -> Option<Finding> {
    let talk = row.talk()?;
    let turns = talk.turns().max(1);
    let empty = row.loop_errors(RECEIVES, "EAGAIN");
    let waits = row.loop_calls(WAITS);
    // A receive that finds nothing is followed by a wait, or by the next try.
    let tries = empty.saturating_sub(waits);
    let finding = Finding::about(row, "EVENT_LOOP_SPIN", Severity::Warning);
    let finding = if talk.longest_poll_streak >= MANY {
        finding
            .with("in_a_row", talk.longest_poll_streak)
            .with("waits_with_time_out_0", talk.polls_at_once)
            .says(format!(
                "{} times in a row a wait with time-out 0 reported nothing: the program asks in a loop where it could wait",
                Grouped(talk.longest_poll_streak)
            ))
    } else if tries >= MANY && tries >= turns.saturating_mul(10) {
        finding
            .with("empty_receives", empty)
            .with("waits", waits)
            .with("replies", talk.turns())
            .says(format!(
                "{} receives got EAGAIN for {} replies with no wait between them: the program asks in a loop where it could \
                 wait",
                Grouped(empty),
                Grouped(talk.turns())
            ))
    } else {
        return None;
    };
    Some(finding.try_next("wait with poll or epoll and a time-out"))
}

fn storm(row: &Row<'_>) -> Option<Finding> {
    // Per operation; a counted program without --ops has its replies.
    let (rate, unit) = match row.per_op(WAITS, |call| call.calls) {
        Some(rate) => (rate, "operation"),
        None => {
            let turns = row.talk()?.turns();
            if turns < MANY {
                return None;
            }
            (row.loop_calls(WAITS) as f64 / turns as f64, "reply")
        }
    };
    if rate < 10.0 {
        return None;
    }
    Some(
        Finding::about(row, "POLL_STORM", Severity::Warning)
            .with("waits", row.loop_calls(WAITS))
            .with(&format!("waits_per_{unit}"), round2(rate))
            .says(format!(
                "{rate:.0} waits for descriptors per {unit}, where one or two would do"
            ))
            .try_next(
                "trace with strace -f -e trace=poll,select,epoll_wait -T to see what the loop is woken for",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, row, set_call, set_talk};

    fn with(waits: u64, empty_receives: u64, streak: u64) -> Record {
        let mut record = empty();
        let mut strategy = row("ioredis/persistent/unix");
        set_call(&mut strategy, "epoll_wait", waits, &[]);
        set_call(
            &mut strategy,
            "recvfrom",
            1000 + empty_receives,
            &[("EAGAIN", empty_receives)],
        );
        set_talk(&mut strategy, |talk| {
            talk.waits = [(10, 1000)].into();
            talk.longest_poll_streak = streak;
        });
        record.strategies.push(strategy);
        record
    }

    fn spins(record: &Record) -> Vec<String> {
        let mut codes = codes(record);
        codes.retain(|code| code == "EVENT_LOOP_SPIN" || code == "POLL_STORM");
        codes
    }

    #[test]
    fn a_loop_that_asks_and_one_that_is_woken() {
        assert_eq!(spins(&with(1000, 0, 400)), ["EVENT_LOOP_SPIN"]);
        assert_eq!(spins(&with(0, 50_000, 0)), ["EVENT_LOOP_SPIN"]);
        assert_eq!(spins(&with(30_000, 0, 0)), ["POLL_STORM"]);
    }

    #[test]
    fn a_drain_that_ends_with_eagain_is_no_spin() {
        // One wait, one receive, one more that finds nothing: the shape of every edge-triggered client.
        assert_eq!(spins(&with(1000, 1000, 1)), [] as [&str; 0]);
        assert_eq!(spins(&with(0, 1000, 0)), [] as [&str; 0]);
    }
}
