//! Counts that depend on timing: which of a row's cells they are in, their ranges over passes, and what they
//! are at native speed.

use super::model::{Cell, Notes};
use super::number::{Number, Style, range};
use super::shown;
use crate::record::{Moved, Span, StrategyResult};

fn per_op(value: f64) -> Number {
    Number {
        value,
        style: Style::PerOp,
        grouped: true,
    }
}

/// A span of counts per operation.
pub(super) fn span(span: Span) -> String {
    range(per_op(span.low), per_op(span.high))
}

/// What tracing changed in a row.
pub(super) fn moved(row: &StrategyResult) -> &[Moved] {
    row.witness
        .known()
        .map(|witness| witness.moved.as_slice())
        .unwrap_or_default()
}

/// The same count at native speed, when tracing changed it.
pub(super) fn at_native_speed(row: &StrategyResult, syscall: &str, errno: Option<&str>) -> Option<Span> {
    moved(row)
        .iter()
        .find(|moved| moved.syscall == syscall && moved.errno.as_deref() == errno)
        .map(|moved| moved.fast)
}

/// The range of a count over the counted passes, when they differ.
pub(super) fn over_passes(row: &StrategyResult, syscall: &str, errno: Option<&str>) -> Option<Span> {
    row.varied
        .iter()
        .find(|varied| varied.syscall == syscall && varied.errno.as_deref() == errno)
        .map(|varied| varied.per_op)
}

/// The cell of a call, as it was counted in the first pass, with its range and its mark.
pub(super) fn cell(row: &StrategyResult, syscall: &str, counted: f64, notes: &mut Notes) -> Cell {
    let range = over_passes(row, syscall, None);
    let note = at_native_speed(row, syscall, None).and_then(|_| note(row, notes));
    if range.is_none() && note.is_none() {
        return Cell::Number(per_op(counted));
    }
    let span = range.unwrap_or(Span {
        low: counted,
        high: counted,
    });
    Cell::Moving {
        low: per_op(span.low),
        high: per_op(span.high),
        note,
    }
}

/// The cell of all calls together; marked when tracing changed one of them.
pub(super) fn total(row: &StrategyResult, counted: f64, notes: &mut Notes) -> Cell {
    if moved(row).iter().all(|moved| moved.errno.is_some()) {
        return Cell::Number(per_op(counted));
    }
    Cell::Moving {
        low: per_op(counted),
        high: per_op(counted),
        note: note(row, notes),
    }
}

/// The note of a row with all counts that tracing changed, both values of each; none when it changed none.
pub(super) fn note(row: &StrategyResult, notes: &mut Notes) -> Option<usize> {
    let witness = row.witness.known().filter(|witness| !witness.moved.is_empty())?;
    let by = shown(&witness.engine);
    let counts: Vec<String> = witness.moved.iter().map(|moved| in_words(moved, &by)).collect();
    Some(notes.number(&format!("changed by tracing: {}", counts.join(", "))))
}

/// `recvfrom EAGAIN 1.83/op (1.99 at native speed, by bpf)`.
fn in_words(moved: &Moved, by: &str) -> String {
    let errno = moved.errno.iter().map(|errno| format!(" {errno}"));
    shown(&format!(
        "{}{} {}/op ({} at native speed, by {by})",
        moved.syscall,
        errno.collect::<String>(),
        span(moved.slow),
        span(moved.fast)
    ))
}
