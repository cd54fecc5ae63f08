//! What failed in a row: system calls of the loop by errno, and operations in the client's own words.

use std::collections::BTreeMap;

use super::number::{Number, Style};
use super::{moving, shown};
use crate::record::{Moved, StrategyResult};
use crate::units::{Grouped, Ops};

/// The least rate at which an error is written per operation; rarer ones are written as a count.
const RATE_FROM: f64 = 0.0005;

/// How many errors are named unless all are asked for.
const CALLS_NAMED: usize = 4;
const WORDS_NAMED: usize = 2;

/// Whether anything failed.
pub(super) fn any(row: &StrategyResult) -> bool {
    !of_calls(row).is_empty() || !of_client(row).is_empty() || hidden(row).next().is_some()
}

/// Why nobody can say whether calls of the loop failed; `None` when it is known.
pub(super) fn untold(row: &StrategyResult) -> Option<&str> {
    match row.counted.known() {
        None => row.counted.reason(),
        Some(counted) => {
            let mut calls = counted.phases.run_loop.syscalls.values();
            calls.find_map(|counts| counts.errors.reason())
        }
    }
}

/// Everything that failed, in one line, the most frequent first: `recvfrom EAGAIN 1.97/op`, and what the
/// client said.
pub(super) fn in_words(row: &StrategyResult, all: bool) -> String {
    let (calls, words) = (of_calls(row), of_client(row));
    let ops = row.counted.known().and_then(|counted| counted.ops);
    let limit = |most: usize| if all { usize::MAX } else { most };
    let mut parts: Vec<String> = calls
        .iter()
        .take(limit(CALLS_NAMED))
        .map(|(call, errno, n)| {
            let mut text = match moving::over_passes(row, call, Some(errno)) {
                Some(span) => format!("{call} {errno} {}/op", moving::span(span)),
                None => format!("{call} {errno} {}", how_often(*n, ops)),
            };
            if let Some(native) = moving::at_native_speed(row, call, Some(errno)) {
                text.push_str(&format!(" ({} at native speed)", moving::span(native)));
            }
            text
        })
        .collect();
    // Failures that only tracing hid.
    parts.extend(hidden(row).map(|moved| {
        let errno = moved.errno.as_deref().unwrap_or_default();
        let native = moving::span(moved.fast);
        format!("{} {errno} 0/op ({native} at native speed)", moved.syscall)
    }));
    let shown_hidden = parts.len() - calls.len().min(limit(CALLS_NAMED));
    parts.extend(
        words
            .iter()
            .take(limit(WORDS_NAMED))
            .map(|(words, n)| format!("client {words} ×{}", Grouped(*n))),
    );
    let unnamed = calls.len() + words.len() + shown_hidden - parts.len();
    if unnamed > 0 {
        parts.push(format!("and {unnamed} more (--all)"));
    }
    shown(&parts.join(", "))
}

fn how_often(count: u64, ops: Option<Ops>) -> String {
    let rate = ops.and_then(|ops| ops.per_op(count));
    match rate.filter(|rate| *rate >= RATE_FROM) {
        Some(value) => {
            let style = Style::PerOp;
            format!(
                "{}/op",
                Number {
                    value,
                    style,
                    grouped: true
                }
            )
        }
        None => format!("×{}", Grouped(count)),
    }
}

/// Failures at native speed of which the counted passes saw none.
fn hidden(row: &StrategyResult) -> impl Iterator<Item = &Moved> {
    moving::moved(row)
        .iter()
        .filter(|moved| moved.errno.is_some() && moved.slow.high == 0.0)
}

/// Failed calls of the loop as call, errno and count, the most frequent first.
fn of_calls(row: &StrategyResult) -> Vec<(&str, &str, u64)> {
    let counted = row.counted.known().into_iter();
    let mut failed: Vec<(&str, &str, u64)> = counted
        .flat_map(|counted| &counted.phases.run_loop.syscalls)
        .filter_map(|(call, counts)| Some((call.as_str(), counts.errors.known()?)))
        .flat_map(|(call, errors)| errors.iter().map(move |(errno, n)| (call, errno.as_str(), *n)))
        .filter(|(_, _, n)| *n > 0)
        .collect();
    failed.sort_by(|a, b| b.2.cmp(&a.2).then(a.cmp(b)));
    failed
}

/// The client's own errors over the rounds and the counted pass, the most frequent first.
pub(super) fn of_client(row: &StrategyResult) -> Vec<(&str, u64)> {
    let rounds = row.timed.known().into_iter().flat_map(|timed| &timed.rounds);
    let counted = row.counted.known().map(|counted| &counted.client_errors);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (words, n) in rounds.map(|round| &round.errors).chain(counted).flatten() {
        let sum = sums.entry(words).or_default();
        *sum = sum.saturating_add(*n);
    }
    let mut said: Vec<(&str, u64)> = sums.into_iter().filter(|(_, n)| *n > 0).collect();
    said.sort_by(|a, b| b.1.cmp(&a.1).then(a.cmp(b)));
    said
}
