//! What tracing itself changed: the same work counted twice, by an engine that slows it and by one that
//! hardly does, and the counts in which the two differ. Beside it what came out differently from pass to
//! pass of one engine, for which nobody is to blame but the timing of that moment.

use std::collections::BTreeSet;

use super::Counted;
use crate::tally::Errno;
use crate::units::Measured;

/// Counts of the same deterministic thing differ by nothing. What depends on timing differs by more than
/// this share of the greater one; between them lie the few calls that a run makes now and then.
const TOLERANCE: f64 = 0.02;

/// Per operation, less than this is no difference: a call that one pass made and another did not.
const LEAST_PER_OP: f64 = 0.005;

/// Why there is no witness in a record of a build that knew of none.
pub const UNSAID: &str = "the record does not say whether it was counted twice";

/// The second count of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Witness {
    /// The engine that made it.
    pub engine: String,
    /// How many passes it made.
    pub passes: u32,
    /// The calls it counted; `None` for all.
    pub calls: Option<Vec<String>>,
    /// Untraced throughput over throughput under the witness, in its first pass.
    pub slowdown: Measured<f64>,
    /// What tracing changed in the measured window; empty when nothing.
    pub moved: Vec<Moved>,
}

/// The least and the greatest of a count over passes; equal when there was but one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Span {
    /// Over these values; `None` without any.
    fn of(values: impl Iterator<Item = f64>) -> Option<Span> {
        values.fold(None, |span: Option<Span>, value| {
            Some(span.map_or(
                Span {
                    low: value,
                    high: value,
                },
                |span| Span {
                    low: span.low.min(value),
                    high: span.high.max(value),
                },
            ))
        })
    }

    /// How far the two lie apart; zero when they overlap.
    fn gap(self, other: Span) -> f64 {
        (self.low - other.high).max(other.low - self.high).max(0.0)
    }
}

/// One count that came out differently at another speed.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The system call.
    pub syscall: String,
    /// The errno, when it is the failures of the call that differ; `None` for its calls.
    pub errno: Option<String>,
    /// Per operation under the slower engine; in all when the operations are not known.
    pub slow: Span,
    /// The same at nearly full speed, and so nearer to what the client does when nobody counts.
    pub fast: Span,
}

/// One count that was not the same in all passes of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Varied {
    /// The system call.
    pub syscall: String,
    /// The errno, when it is the failures of the call; `None` for its calls.
    pub errno: Option<String>,
    /// Per operation, over the passes.
    pub per_op: Span,
}

/// How much of a program a witness counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All calls and every errno (bpf).
    All,
    /// A few calls, and of their errors only EAGAIN by name (perf).
    Chosen,
}

/// What is compared: the calls of a name, or its failures with one errno.
type Key = (String, Option<String>);

/// Compares the measured windows of two counts of the same work, each made by one pass or several. Only
/// what both engines count is compared: a call or an errno that the faster one does not know is no
/// difference, and neither is what the passes of one engine already differ by.
pub fn compare(slow: &[Counted], fast: &[Counted], coverage: Coverage) -> Vec<Moved> {
    let again = Errno(libc::EAGAIN).name();
    let is_known = |(call, errno): &Key| match (coverage, errno) {
        (Coverage::All, _) => true,
        (Coverage::Chosen, Some(errno)) => *errno == again && fast.iter().all(|pass| names_again(pass, call)),
        (Coverage::Chosen, None) => fast
            .iter()
            .any(|pass| pass.phases.run_loop.syscalls.contains_key(call)),
    };
    let in_all = slow.iter().chain(fast).all(|pass| pass.ops.is_some());
    keys(slow.iter().chain(fast))
        .into_iter()
        .filter(is_known)
        .filter_map(|key| {
            let (slow, fast) = (span(slow, &key, in_all)?, span(fast, &key, in_all)?);
            let gap = slow.gap(fast);
            let apart = gap > TOLERANCE * slow.high.max(fast.high) && (!in_all || gap >= LEAST_PER_OP);
            let (syscall, errno) = key;
            apart.then_some(Moved {
                syscall,
                errno,
                slow,
                fast,
            })
        })
        .collect()
}

/// Whether a pass of an engine that names no errno but EAGAIN would have named it for this call: where only
/// other failures are counted, EAGAIN may be among them.
fn names_again(pass: &Counted, call: &str) -> bool {
    let call = pass.phases.run_loop.syscalls.get(call);
    let Some(Measured::Known(errors)) = call.map(|call| &call.errors) else {
        return false;
    };
    errors.contains_key(&*Errno(libc::EAGAIN).name()) || !errors.contains_key(&*Errno::OTHER.name())
}

/// What was not the same in all of these passes, which one engine made of the same work.
pub fn varied(passes: &[Counted]) -> Vec<Varied> {
    keys(passes.iter())
        .into_iter()
        .filter_map(|key| {
            let per_op = span(passes, &key, true)?;
            let (syscall, errno) = key;
            (per_op.low < per_op.high).then_some(Varied {
                syscall,
                errno,
                per_op,
            })
        })
        .collect()
}

/// Everything that the loops of these passes count.
fn keys<'a>(passes: impl Iterator<Item = &'a Counted>) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for (name, call) in passes.flat_map(|pass| &pass.phases.run_loop.syscalls) {
        keys.insert((name.clone(), None));
        for errno in call.errors.known().into_iter().flat_map(|errors| errors.keys()) {
            keys.insert((name.clone(), Some(errno.clone())));
        }
    }
    keys
}

/// One count over passes; `None` when a pass does not know it.
fn span(passes: &[Counted], (name, errno): &Key, per_op: bool) -> Option<Span> {
    let values = passes.iter().map(|pass| {
        let call = pass.phases.run_loop.syscalls.get(name);
        let count = match (call, errno) {
            (None, _) => 0,
            (Some(call), None) => call.calls,
            (Some(call), Some(errno)) => call.errors.known()?.get(errno).copied().unwrap_or(0),
        };
        if per_op {
            pass.ops?.per_op(count)
        } else {
            Some(count as f64)
        }
    });
    Span::of(values.collect::<Option<Vec<f64>>>()?.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::record::{CallCounts, PhaseCounts, Phases};
    use crate::units::{Nanos, Ops};

    /// Name, calls and errors of each call.
    type Calls<'a> = [(&'a str, u64, &'a [(&'a str, u64)])];

    fn counted(engine: &str, calls: &Calls<'_>) -> Counted {
        let not_measured = || Measured::NotMeasured("not here".to_owned());
        let syscalls = calls.iter().map(|(name, calls, errors)| {
            let call = CallCounts {
                calls: *calls,
                unfinished: 0,
                errors: Measured::Known(errors.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()),
                restarts: BTreeMap::new(),
                wall: Measured::NotMeasured(String::new()),
                cpu: Measured::NotMeasured(String::new()),
                bytes: Measured::NotMeasured(String::new()),
                peeks: Measured::NotMeasured(String::new()),
                peers: BTreeMap::new(),
            };
            ((*name).to_owned(), call)
        });
        let run_loop = PhaseCounts {
            syscalls: syscalls.collect(),
            talk: None,
        };
        Counted {
            engine: engine.to_owned(),
            ops: Some(Ops(10_000)),
            elapsed: Nanos(1),
            slowdown: not_measured(),
            phases: Phases {
                run_loop,
                ..Phases::default()
            },
            connects_per_op: not_measured(),
            round_trips_per_op: not_measured(),
            sends_per_batch: not_measured(),
            floor_ratio: not_measured(),
            client_errors: BTreeMap::new(),
            cpu: Measured::NotMeasured(String::new()),
            notes: Vec::new(),
        }
    }

    #[test]
    fn only_what_moved_by_more_than_chance_is_named() {
        let slow = counted(
            "ptrace",
            &[
                ("recvfrom", 30_000, &[("EAGAIN", 10_665)]),
                ("sendto", 10_000, &[]),
            ],
        );
        let fast = counted(
            "bpf",
            &[
                ("recvfrom", 30_001, &[("EAGAIN", 19_972)]),
                ("sendto", 10_000, &[]),
                ("futex", 50, &[]),
            ],
        );
        let (slow, fast) = ([slow], [fast]);
        let moved = compare(&slow, &fast, Coverage::All);
        let named: Vec<(&str, Option<&str>)> = moved
            .iter()
            .map(|moved| (moved.syscall.as_str(), moved.errno.as_deref()))
            .collect();
        assert_eq!(named, [("futex", None), ("recvfrom", Some("EAGAIN"))]);
        let (under, native) = (moved[1].slow, moved[1].fast);
        assert_eq!(under.low, under.high);
        assert!((under.low - 1.0665).abs() < 1e-9 && (native.low - 1.9972).abs() < 1e-9);
        assert_eq!(compare(&slow, &slow, Coverage::All), []);
    }

    #[test]
    fn what_the_faster_engine_does_not_count_is_no_difference() {
        let slow = counted("ptrace", &[("recvfrom", 100, &[("EBADF", 5)]), ("brk", 7, &[])]);
        let fast = counted("perf", &[("recvfrom", 100, &[("other", 5)])]);
        assert_eq!(compare(&[slow], &[fast], Coverage::Chosen), []);
    }

    #[test]
    fn an_eagain_that_the_faster_engine_may_have_counted_unnamed_is_no_difference() {
        let slow = counted("ptrace", &[("sendmmsg", 9_000, &[("EAGAIN", 5_000)])]);
        let unnamed = counted("perf", &[("sendmmsg", 9_000, &[("other", 5_000)])]);
        assert_eq!(
            compare(std::slice::from_ref(&slow), &[unnamed], Coverage::Chosen),
            []
        );
        let named = counted("perf", &[("sendmmsg", 9_000, &[("EAGAIN", 8_000), ("other", 1)])]);
        assert_eq!(compare(&[slow], &[named], Coverage::Chosen).len(), 1);
    }

    #[test]
    fn what_differs_from_pass_to_pass_is_not_the_tracer_s_doing() {
        let pass = |engine, again| counted(engine, &[("recvfrom", 30_000, &[("EAGAIN", again)])]);
        let slow = [pass("ptrace", 15_000), pass("ptrace", 18_000)];
        let varied = varied(&slow);
        assert_eq!(varied.len(), 1);
        assert_eq!(varied[0].errno.as_deref(), Some("EAGAIN"));
        assert_eq!(varied[0].per_op, Span { low: 1.5, high: 1.8 });

        let near = [pass("bpf", 17_000), pass("bpf", 20_000)];
        assert_eq!(compare(&slow, &near, Coverage::All), []);
        let far = [pass("bpf", 19_900), pass("bpf", 20_000)];
        let moved = compare(&slow, &far, Coverage::All);
        assert_eq!(moved.len(), 1);
        assert_eq!(moved[0].fast, Span { low: 1.99, high: 2.0 });
    }

    #[test]
    fn a_call_made_now_and_then_is_no_difference() {
        let slow = counted("ptrace", &[("brk", 2, &[])]);
        let fast = counted("bpf", &[("brk", 40, &[])]);
        assert_eq!(compare(&[slow], &[fast], Coverage::All), []);
    }
}
