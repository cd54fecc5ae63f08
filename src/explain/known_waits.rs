//! WAIT_EQUALS_TIMEOUT in a counted pass. The code is described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{RECEIVES, Row, WAITS, round2};
use super::trace::famous;
use crate::record::Record;
use crate::tally::LongWait;
use crate::units::Grouped;

pub(super) struct KnownWaits;

/// Shorter ones are what an event loop does between two timers.
const SHORTEST: u64 = 100_000_000;

impl Rule for KnownWaits {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let waits = &row.talk()?.long_waits;
    // A sleep, a lock and a child end when they are meant to, and `read` may wait for a person.
    let waits = || {
        waits.iter().filter(|wait| {
            let call = wait.call.as_str();
            call == "connect" || call != "read" && (WAITS.contains(&call) || RECEIVES.contains(&call))
        })
    };
    // A short time-out that ran out is the program's own, whatever else lasts as long.
    let ended =
        |wait: &&LongWait| (wait.timed_out > 0 || wait.call == "connect") && wait.took.0 >= 900_000_000;
    let known = waits()
        .filter(ended)
        .find_map(|wait| Some((wait, famous(wait.took.0, wait.call == "connect")?.to_owned())));
    // A receive that does not block ends with EAGAIN as well, however long the CPU was somebody else's
    // meanwhile; only a wait for a descriptor has a time-out of any length.
    let has_timer = |wait: &LongWait| !RECEIVES.contains(&wait.call.as_str());
    let own = || {
        waits()
            .find(|wait| wait.timed_out > 0 && wait.took.0 >= SHORTEST && has_timer(wait))
            .map(|wait| {
                let what = format!("its time-out of about {} ran out", wait.took);
                (wait, what)
            })
    };
    // A lost packet does not end a wait by itself: the reply comes late.
    let lost = || {
        waits().filter(|wait| wait.timed_out == 0).find_map(|wait| {
            let what = famous(wait.took.0, false).filter(|_| wait.took.0 < 1_000_000_000)?;
            Some((wait, what.to_owned()))
        })
    };
    let (severity, (wait, what)) = match (known, own(), lost()) {
        (Some(known), _, _) => (Severity::Warning, known),
        (None, _, Some(lost)) => (Severity::Info, lost),
        (None, Some(own), None) => (Severity::Info, own),
        (None, None, None) => return None,
    };
    Some(
        Finding::about(row, "WAIT_EQUALS_TIMEOUT", severity)
            .with("wait_ms", round2(wait.took.0 as f64 / 1e6))
            .with("times", wait.count)
            .with("timed_out", wait.timed_out)
            .with("call", wait.call.as_str())
            .says(format!(
                "{} waited {} ({}): {what}",
                wait.call,
                wait.took,
                match wait.count {
                    1 => "once".to_owned(),
                    n => format!("{} times", Grouped(n)),
                }
            ))
            .try_next("find whose time-out it is; what should have come earlier got lost or was never sent"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, row, set_talk};
    use crate::units::Nanos;

    fn waited(call: &str, ms: u64, timed_out: u64) -> Record {
        let mut record = empty();
        let mut strategy = row("predis/persistent/unix");
        set_talk(&mut strategy, |talk| {
            talk.long_waits = vec![LongWait {
                call: call.to_owned(),
                took: Nanos(ms * 1_000_000),
                count: 1,
                timed_out,
            }];
        });
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn sixty_seconds_of_php_and_a_lost_packet() {
        let found = explained(&waited("poll", 60_002, 1));
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(
            found[0].says.contains("default_socket_timeout"),
            "{}",
            found[0].says
        );
        assert_eq!(codes(&waited("connect", 3_010, 0)), ["WAIT_EQUALS_TIMEOUT"]);
        assert_eq!(explained(&waited("recvfrom", 203, 0))[0].severity, Severity::Info);
        for ms in [150, 200] {
            let found = explained(&waited("epoll_wait", ms, 1));
            assert_eq!(found[0].severity, Severity::Info);
            assert!(found[0].says.contains("its time-out"), "{}", found[0].says);
        }
    }

    #[test]
    fn a_slow_reply_and_a_sleep_are_no_time_outs() {
        assert_eq!(codes(&waited("poll", 60_002, 0)), [] as [&str; 0]);
        assert_eq!(codes(&waited("poll", 1_400, 0)), [] as [&str; 0]);
        assert_eq!(codes(&waited("clock_nanosleep", 5_000, 1)), [] as [&str; 0]);
        assert_eq!(codes(&waited("read", 5_000, 1)), [] as [&str; 0]);
        assert_eq!(codes(&waited("epoll_wait", 50, 1)), [] as [&str; 0]);
        // A peek that does not block, on a busy machine.
        assert_eq!(codes(&waited("recvfrom", 135, 1)), [] as [&str; 0]);
    }
}
