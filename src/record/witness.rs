//! What tracing itself changed: the same work counted twice, by an engine that slows it and by one that
//! hardly does, and the counts in which the two differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{CallCounts, Counted};
use crate::tally::Errno;
use crate::units::Measured;

/// Counts of the same deterministic thing differ by nothing. What depends on timing differs by more than
/// this share of the greater one; between them lie the few calls that a run makes now and then.
const TOLERANCE: f64 = 0.02;

/// The second count of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Witness {
    /// The engine that made it.
    pub engine: String,
    /// What tracing changed in the measured window; empty when nothing.
    pub moved: Vec<Moved>,
}

/// One count that came out differently at another speed.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The system call.
    pub syscall: String,
    /// The errno, when it is the failures of the call that differ; `None` for its calls.
    pub errno: Option<String>,
    /// Per operation under the slower engine; in all when the operations are not known.
    pub slow: f64,
    /// The same at nearly full speed, and so nearer to what the client does when nobody counts.
    pub fast: f64,
}

/// How much of a program a witness counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All calls and every errno (bpf).
    All,
    /// A few calls, and of their errors only EAGAIN by name (perf).
    Chosen,
}

/// Compares the measured windows of two counts of the same work. Only what both engines count is
/// compared: a call or an errno that the faster one does not know is no difference.
pub fn compare(slow: &Counted, fast: &Counted, coverage: Coverage) -> Vec<Moved> {
    let mut moved = Vec::new();
    let again = Errno(libc::EAGAIN).name();
    let names: BTreeSet<&String> = slow
        .phases
        .run_loop
        .syscalls
        .keys()
        .chain(fast.phases.run_loop.syscalls.keys())
        .collect();
    for name in names {
        let (slow_call, fast_call) = (
            slow.phases.run_loop.syscalls.get(name),
            fast.phases.run_loop.syscalls.get(name),
        );
        if fast_call.is_none() && coverage == Coverage::Chosen {
            continue;
        }
        let calls = |call: Option<&CallCounts>| call.map_or(0, |call| call.calls);
        moved.extend(difference(
            slow,
            fast,
            name,
            None,
            calls(slow_call),
            calls(fast_call),
        ));
        let errors = |call: Option<&CallCounts>| match call.map(|call| &call.errors) {
            Some(Measured::Known(errors)) => Some(errors.clone()),
            Some(Measured::NotMeasured(_)) => None,
            None => Some(BTreeMap::new()),
        };
        let (Some(slow_errors), Some(fast_errors)) = (errors(slow_call), errors(fast_call)) else {
            continue;
        };
        let errnos: BTreeSet<&String> = slow_errors.keys().chain(fast_errors.keys()).collect();
        let is_known = |errno: &String| coverage == Coverage::All || *errno == again;
        for errno in errnos.into_iter().filter(|errno| is_known(errno)) {
            let count = |errors: &BTreeMap<String, u64>| errors.get(errno).copied().unwrap_or(0);
            moved.extend(difference(
                slow,
                fast,
                name,
                Some(errno),
                count(&slow_errors),
                count(&fast_errors),
            ));
        }
    }
    moved
}

fn difference(
    slow: &Counted,
    fast: &Counted,
    syscall: &str,
    errno: Option<&String>,
    slow_count: u64,
    fast_count: u64,
) -> Option<Moved> {
    let (slow_value, fast_value) = match (slow.ops, fast.ops) {
        (Some(slow_ops), Some(fast_ops)) => (slow_ops.per_op(slow_count)?, fast_ops.per_op(fast_count)?),
        (None, _) | (_, None) => (slow_count as f64, fast_count as f64),
    };
    let apart = (slow_value - fast_value).abs() > TOLERANCE * slow_value.max(fast_value);
    apart.then(|| Moved {
        syscall: syscall.to_owned(),
        errno: errno.cloned(),
        slow: slow_value,
        fast: fast_value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{PhaseCounts, Phases};
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
        let moved = compare(&slow, &fast, Coverage::All);
        let named: Vec<(&str, Option<&str>)> = moved
            .iter()
            .map(|moved| (moved.syscall.as_str(), moved.errno.as_deref()))
            .collect();
        assert_eq!(named, [("futex", None), ("recvfrom", Some("EAGAIN"))]);
        assert!((moved[1].slow - 1.0665).abs() < 1e-9 && (moved[1].fast - 1.9972).abs() < 1e-9);
        assert_eq!(compare(&slow, &slow, Coverage::All), []);
    }

    #[test]
    fn what_the_faster_engine_does_not_count_is_no_difference() {
        let slow = counted("ptrace", &[("recvfrom", 100, &[("EBADF", 5)]), ("brk", 7, &[])]);
        let fast = counted("perf", &[("recvfrom", 100, &[("other", 5)])]);
        assert_eq!(compare(&slow, &fast, Coverage::Chosen), []);
    }
}
