//! LIVENESS_PROBES: the client asks before each operation whether the connection still lives.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{RECEIVES, Row, WAITS, round2};
use crate::record::Record;
use crate::strategy::contract::Op;

pub(super) struct LivenessProbes;

const DOCS: &[Doc] = &[Doc {
    code: "LIVENESS_PROBES",
    means: "The client checks its connection at every operation: a peek at the socket (cheap), or an ECHO or PING and \
            its reply (a whole round trip).",
    measured: "Receives that only peek, and receives that found nothing and were not followed by a wait, per operation; \
               ECHO and PING calls that the server counted.",
    wrong_when: "A client reads without waiting for other reasons (an event loop that tries first).",
    todo: "For phpredis with pconnect: redis.pconnect.echo_check_liveness=0, or one connection kept by the script; \
           for pools, a check only after some idle time.",
}];

impl Rule for LivenessProbes {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let peeks = row.per_op(RECEIVES, |call| call.peeks.known().copied().unwrap_or(0));
    let empty = row.per_op(RECEIVES, |call| {
        call.errors
            .known()
            .and_then(|errors| errors.get("EAGAIN"))
            .copied()
            .unwrap_or(0)
    });
    let waits = row.per_op(WAITS, |call| call.calls);
    // A receive that found nothing is either followed by a wait for the reply, or it was a probe. This
    // is the least number of probes that explains the calls.
    let unexplained = match (empty, waits) {
        (Some(empty), Some(waits)) => (empty - waits).max(0.0),
        _ => 0.0,
    };
    let probes = peeks.unwrap_or(0.0).max(unexplained);
    let asked = by_command(row);
    if probes < 0.4 && asked < 0.4 {
        return None;
    }
    let (one, several) = if peeks.unwrap_or(0.0) >= 0.4 {
        ("one peek", "peeks")
    } else {
        ("one receive that finds nothing", "receives that find nothing")
    };
    let costs = if asked >= 0.4 {
        format!("{asked:.1} ECHO or PING per operation, each a round trip")
    } else if probes < 1.5 {
        format!("at least {one} per operation, each a system call and no round trip")
    } else {
        format!("at least {probes:.0} {several} per operation, each a system call and no round trip")
    };
    let severity = if asked >= 0.4 {
        Severity::Warning
    } else {
        Severity::Info
    };
    Some(
        Finding::about(row, "LIVENESS_PROBES", severity)
            .with("probes_per_op_at_least", round2(probes))
            .with("echo_or_ping_per_op", round2(asked))
            .with_known("empty_receives_per_op", empty.map(round2))
            .says(format!(
                "the client asks before each operation whether its connection lives: {costs}"
            ))
            .try_next(if asked >= 0.4 {
                "redis.pconnect.echo_check_liveness=0 in PHP; in pools a check after idle time only"
            } else {
                "a client that has its connection to itself where there is one (redis-py: single_connection_client=True; \
                 phpredis always looks); in a pipeline one such check serves a whole batch"
            }),
    )
}

/// ECHO and PING per operation as the server counted them in the timed rounds.
fn by_command(row: &Row<'_>) -> f64 {
    let is_ping = <Op as clap::ValueEnum>::from_str(&row.result.axes.op, true).is_ok_and(|op| op == Op::Ping);
    let probes: &[&str] = if is_ping { &["echo"] } else { &["echo", "ping"] };
    let Some(timed) = row.timed() else { return 0.0 };
    let views = timed
        .rounds
        .iter()
        .filter_map(|round| Some((round.server.known()?, round.ops.0)));
    let (asked, ops) = views.fold((0, 0), |(asked, ops), (view, n)| {
        (
            u64::saturating_add(asked, view.served(probes)),
            u64::saturating_add(ops, n),
        )
    });
    if ops == 0 { 0.0 } else { asked as f64 / ops as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, round, row, set_call, set_rounds};
    use crate::units::Measured;

    /// The calls of phpredis for one GET: two peeks, a wait, a read, a send.
    fn phpredis(eagain: u64, peeks: u64) -> Record {
        let mut record = empty();
        let mut strategy = row("phpredis/persistent/tcp");
        set_call(&mut strategy, "poll", 1000, &[]);
        set_call(&mut strategy, "recvfrom", 3000, &[("EAGAIN", eagain)]);
        let Measured::Known(counted) = &mut strategy.counted else {
            panic!()
        };
        counted
            .phases
            .run_loop
            .syscalls
            .get_mut("recvfrom")
            .unwrap()
            .peeks = Measured::Known(peeks);
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn peeks_are_probes_whether_or_not_data_was_there() {
        for (eagain, peeks) in [(2000, 0), (1000, 1000), (1500, 500)] {
            let codes = codes(&phpredis(eagain, peeks));
            assert!(
                codes.contains(&"LIVENESS_PROBES".to_owned()),
                "{eagain} {peeks}: {codes:?}"
            );
        }
    }

    #[test]
    fn an_echo_costs_a_round_trip() {
        let mut record = empty();
        let mut strategy = row("phpredis/pconnect/tcp");
        let mut one = round(100, 100, 100);
        let Measured::Known(view) = &mut one.server else {
            panic!()
        };
        view.commands.insert("echo".into(), 100);
        set_rounds(&mut strategy, vec![one], 100.0);
        record.strategies.push(strategy);
        let found = explained(&record);
        assert_eq!(
            (found[0].code.as_ref(), found[0].severity),
            ("LIVENESS_PROBES", Severity::Warning)
        );
    }

    #[test]
    fn a_try_before_a_wait_is_no_probe() {
        let mut record = empty();
        let mut strategy = row("memcached/persistent/tcp");
        set_call(&mut strategy, "poll", 660, &[]);
        set_call(&mut strategy, "recvfrom", 1660, &[("EAGAIN", 660)]);
        record.strategies.push(strategy);
        assert!(!codes(&record).contains(&"LIVENESS_PROBES".to_owned()));
    }
}
