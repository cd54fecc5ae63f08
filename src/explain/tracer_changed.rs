//! TRACER_CHANGED: counts that depend on timing, and that tracing therefore shifts.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{RECEIVES, Row, WAITS, known, round2};
use crate::engine::EngineKind;
use crate::record::{Kind, Moved, Record, Span, Witness};

pub(super) struct TracerChanged;

const DOCS: &[Doc] = &[Doc {
    code: "TRACER_CHANGED",
    means: "Some counts of this client depend on whether a reply is already there when it looks. A traced client is \
            slower, so replies are there more often than in a real run.",
    measured: "The same work counted again at nearly native speed, and every count that came out differently. Without \
               such a witness: receives that found nothing (EAGAIN), and waits that are not a whole number per \
               operation, in the counted window.",
    wrong_when: "With a witness: the client's counts differ from run to run by themselves (--counted-runs shows that). \
                 Without: the client tries to read for another reason, always with the same outcome.",
    todo: "Take the values at native speed, and do not compare these counts between tracers or machines; all others \
           are exact.",
}];

impl Rule for TracerChanged {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    match row.result.witness.known() {
        Some(witness) => seen(row, witness),
        None => suspected(row),
    }
}

/// What a witness has seen: nothing is said of counts that did not move.
fn seen(row: &Row<'_>, witness: &Witness) -> Option<Finding> {
    if witness.moved.is_empty() {
        return None;
    }
    let counts: Vec<String> = witness.moved.iter().map(in_words).collect();
    let finding = Finding::about(row, "TRACER_CHANGED", Severity::Info)
        .with("witness", witness.engine.as_str())
        .with_known(
            "slowdown",
            row.counted()
                .and_then(|counted| known(&counted.slowdown))
                .map(round2),
        )
        .with_known("witness_slowdown", known(&witness.slowdown).map(round2))
        .with("moved", counts.clone());
    let rest = match &witness.calls {
        None => "the others are exact".to_owned(),
        Some(calls) => format!("of the {} calls counted twice the others are exact", calls.len()),
    };
    Some(
        finding
            .says(format!(
                "these counts depend on timing, which tracing changes: {}; {rest}",
                counts.join(", ")
            ))
            .try_next("take the values at native speed, or count with --engine bpf"),
    )
}

fn in_words(moved: &Moved) -> String {
    let errno = moved.errno.iter().map(|errno| format!(" {errno}"));
    format!(
        "{}{} {} per operation ({} at native speed)",
        moved.syscall,
        errno.collect::<String>(),
        span(moved.slow),
        span(moved.fast)
    )
}

fn span(span: Span) -> String {
    let (low, high) = (format!("{:.2}", span.low), format!("{:.2}", span.high));
    if low == high {
        low
    } else {
        format!("{low}..{high}")
    }
}

/// What may have moved when nobody looked twice.
fn suspected(row: &Row<'_>) -> Option<Finding> {
    let engine = &row.counted()?.engine;
    if EngineKind::by_name(engine).is_some_and(EngineKind::is_near_native) {
        return None;
    }
    let pipeline = f64::from(row.result.axes.pipeline.max(1));
    let empty = row.per_op(RECEIVES, |call| {
        call.errors
            .known()
            .and_then(|errors| errors.get("EAGAIN"))
            .copied()
            .unwrap_or(0)
    })? * pipeline;
    let waits = row.per_op(WAITS, |call| call.calls)? * pipeline;
    let is_whole = |value: f64| (value - value.round()).abs() <= 0.02;
    if empty < 0.02 && is_whole(waits) {
        return None;
    }
    Some(
        Finding::about(row, "TRACER_CHANGED", Severity::Info)
            .with("empty_receives_per_batch", round2(empty))
            .with("waits_per_batch", round2(waits))
            .with_known("slowdown", row.counted().and_then(|counted| known(&counted.slowdown)).map(round2))
            .says(
                "how often this client looks and finds nothing depends on timing, which tracing changes: its EAGAIN and \
                 wait counts are approximate, the others exact",
            )
            .try_next(match row.record.kind {
                Kind::Count => "compare only the other calls; or count with --engine bpf, which hardly slows a program",
                _ => {
                    "compare only the other calls; or let a witness say which counts moved (--witness, `systally list \
                     engines`)"
                }
            }),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row, set_call, set_counted};
    use crate::explain::{Finding, explain};
    use crate::record::{Moved, Span, StrategyResult, Witness};
    use crate::units::Measured;

    fn looks_first() -> StrategyResult {
        let mut strategy = row("memcached/persistent/tcp");
        set_call(&mut strategy, "poll", 660, &[]);
        set_call(&mut strategy, "recvfrom", 1660, &[("EAGAIN", 660)]);
        strategy
    }

    fn found(strategy: StrategyResult) -> Vec<Finding> {
        let mut record = empty();
        record.strategies.push(strategy);
        explain(&record)
    }

    fn witnessed(moved: Vec<Moved>) -> StrategyResult {
        let mut strategy = looks_first();
        strategy.witness = Measured::Known(Witness {
            engine: "bpf".to_owned(),
            passes: 1,
            calls: None,
            slowdown: Measured::Known(1.02),
            moved,
        });
        strategy
    }

    #[test]
    fn a_witness_names_what_moved_and_nothing_else() {
        let at = |value| Span {
            low: value,
            high: value,
        };
        let moved = Moved {
            syscall: "recvfrom".to_owned(),
            errno: Some("EAGAIN".to_owned()),
            slow: at(0.66),
            fast: at(0.99),
        };
        let findings = found(witnessed(vec![moved]));
        assert_eq!(findings.len(), 1, "{findings:?}");
        let says = &findings[0].says;
        assert!(
            says.contains("recvfrom EAGAIN 0.66 per operation (0.99 at native speed)"),
            "{says}"
        );
        assert!(!says.contains("poll"), "{says}");
    }

    #[test]
    fn a_witness_that_saw_nothing_move_is_believed() {
        assert_eq!(found(witnessed(Vec::new())), []);
    }

    #[test]
    fn counts_at_native_speed_are_what_they_are() {
        let mut strategy = looks_first();
        set_counted(&mut strategy, |counted| counted.engine = "bpf".to_owned());
        assert_eq!(found(strategy), []);
    }

    #[test]
    fn a_client_that_tries_first() {
        let mut record = empty();
        record.strategies.push(looks_first());
        assert_eq!(codes(&record), ["TRACER_CHANGED"]);
    }

    #[test]
    fn a_client_that_waits_first_is_exact() {
        let mut record = empty();
        let mut strategy = row("predis/persistent/tcp");
        set_call(&mut strategy, "poll", 1000, &[]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
