//! A row of a record as rules look at it.

use std::collections::BTreeMap;

use super::evidence::Fact;
use super::symptom::Symptom;
use crate::record::{CallCounts, Counted, Failure, FailureKind, Kind, PhaseCounts, Record, Status};
use crate::record::{StrategyResult, Timed, Verdict};
use crate::tally::Talk;
use crate::units::{Measured, Nanos, total};

/// Calls that wait for a descriptor.
pub(super) const WAITS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
];
/// Calls that receive.
pub(super) const RECEIVES: &[&str] = &["recvfrom", "recv", "recvmsg", "read", "readv"];

/// Calls that only let time pass.
pub(super) const SLEEPS: &[&str] = &["nanosleep", "clock_nanosleep"];
/// Calls that threads wait for each other with.
pub(super) const FUTEX: &[&str] = &["futex", "futex_wait", "futex_wake", "futex_waitv"];

/// Calls about files by path, and the looks at them that go with it.
pub(super) const FILE_CALLS: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "fstat",
    "getcwd",
];

/// UNIX sockets where the C library and run-time systems ask for names, users and logging before they speak
/// to any server (`nscd(8)`, `nss-systemd(8)`, `syslog(3)`). On most machines nothing answers there, which
/// says nothing about the server.
const LOOKUP_SOCKETS: &[&str] = &[
    "unix:/var/run/nscd/",
    "unix:/run/nscd/",
    "unix:/run/systemd/",
    "unix:/run/dbus/",
    "unix:/var/run/dbus/",
    "unix:/dev/log",
];

/// Whether a peer is no server but a place where names are looked up.
pub(in crate::explain) fn is_lookup(peer: &str) -> bool {
    LOOKUP_SOCKETS.iter().any(|place| peer.starts_with(place))
}

/// Whether a peer is a name server. What is asked there is no work of the client's, and has a finding of its
/// own.
pub(in crate::explain) fn is_resolver(peer: &str) -> bool {
    peer.ends_with(":53")
}

/// How a strategy uses connections, from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A connection per operation is what it is meant to show.
    Connect,
    /// One connection is kept.
    Kept,
    /// No such name (a counted program, an import).
    Unknown,
}

/// A row together with the record it stands in.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) record: &'a Record,
    pub(super) result: &'a StrategyResult,
}

impl<'a> Row<'a> {
    /// The rows that were run.
    pub(super) fn run(record: &'a Record) -> impl Iterator<Item = Row<'a>> {
        record
            .strategies
            .iter()
            .filter(|result| result.status != Status::Skipped)
            .map(move |result| Row { record, result })
    }

    /// Its place among the strategies, by which sampled readings know it.
    pub(super) fn index(&self) -> Option<usize> {
        let mut rows = self.record.strategies.iter();
        rows.position(|row| std::ptr::eq(row, self.result))
    }

    /// The slowest operation or batch of the timed rounds, in nanoseconds.
    pub(super) fn slowest(&self) -> Option<u64> {
        Some(self.timed()?.latency.known()?.max.0)
    }

    /// Whether a connection request had to be repeated: its operation took a second or more, or ran into
    /// a time-out.
    pub(super) fn stalled(&self) -> bool {
        const ALMOST_A_SECOND: u64 = 900_000_000;
        self.is_unix() == Some(false)
            && (self.slowest().is_some_and(|ns| ns >= ALMOST_A_SECOND)
                || self.symptoms().contains_key(&Symptom::TimedOut))
    }

    pub(super) fn name(&self) -> &'a str {
        &self.result.name
    }

    pub(super) fn timed(&self) -> Option<&'a Timed> {
        self.result.timed.known()
    }

    pub(super) fn counted(&self) -> Option<&'a Counted> {
        self.result.counted.known()
    }

    pub(super) fn failure(&self) -> Option<&'a Failure> {
        self.result.failure.as_ref()
    }

    pub(super) fn failed_by(&self, kind: FailureKind) -> Option<&'a Failure> {
        self.failure().filter(|failure| failure.kind == kind)
    }

    /// Whether the server was seen dying in this run: what is refused after that has its cause.
    pub(super) fn server_died(&self) -> bool {
        self.record
            .strategies
            .iter()
            .filter_map(|result| result.failure.as_ref())
            .any(|failure| failure.kind == FailureKind::ServerDied)
    }

    /// A reading taken when the row failed.
    pub(super) fn fact(&self, fact: Fact) -> Option<&'a str> {
        self.failure()?.facts.get(fact.key()).map(String::as_str)
    }

    pub(super) fn number(&self, fact: Fact) -> Option<u64> {
        self.fact(fact)?.parse().ok()
    }

    pub(super) fn yes(&self, fact: Fact) -> Option<bool> {
        self.fact(fact).map(|text| text == "yes")
    }

    pub(super) fn mode(&self) -> Mode {
        match self.name().split('/').nth(1) {
            Some("connect") => Mode::Connect,
            Some(_) => Mode::Kept,
            None => Mode::Unknown,
        }
    }

    /// Whether it goes over a UNIX socket; `None` when nothing tells (an import).
    pub(super) fn is_unix(&self) -> Option<bool> {
        match self.result.axes.transport.as_str() {
            "unix" => Some(true),
            "tcp" => Some(false),
            _ => {
                let peers = self
                    .all_phases()
                    .filter_map(|phase| phase.syscalls.get("connect"));
                let mut names = peers
                    .flat_map(|call| call.peers.keys())
                    .filter(|name| !is_lookup(name));
                names.next().map(|name| name.starts_with("unix:"))
            }
        }
    }

    /// The address it was to reach.
    pub(super) fn endpoint(&self) -> &'a str {
        let of_failure = self.failure().map(|failure| failure.endpoint.as_str());
        of_failure
            .filter(|endpoint| !endpoint.is_empty())
            .unwrap_or_else(|| {
                let addresses = self
                    .record
                    .server
                    .as_ref()
                    .map(|server| server.addresses.as_slice());
                let unix = self.is_unix().unwrap_or(false);
                addresses
                    .unwrap_or_default()
                    .iter()
                    .find(|address| address.starts_with("unix:") == unix)
                    .map_or("the server", String::as_str)
            })
    }

    fn all_phases(&self) -> impl Iterator<Item = &'a PhaseCounts> {
        self.counted().into_iter().flat_map(|counted| {
            [
                &counted.phases.startup,
                &counted.phases.run_loop,
                &counted.phases.shutdown,
            ]
        })
    }

    /// Failed operations by what the client's words mean, with one of its texts each.
    pub(super) fn symptoms(&self) -> BTreeMap<Symptom, Seen> {
        let mut out: BTreeMap<Symptom, Seen> = BTreeMap::new();
        let mut add = |text: &str, count: u64| {
            let seen = out.entry(Symptom::of(text)).or_insert_with(|| Seen {
                count: 0,
                text: text.to_owned(),
            });
            seen.count = seen.count.saturating_add(count);
        };
        for round in self.timed().into_iter().flat_map(|timed| &timed.rounds) {
            round.errors.iter().for_each(|(text, count)| add(text, *count));
        }
        if let Some(counted) = self.counted() {
            counted
                .client_errors
                .iter()
                .for_each(|(text, count)| add(text, *count));
        }
        if let Some(failure) = self.failure() {
            let symptom = match &failure.errno {
                Some(errno) => Symptom::of_errno(errno),
                // The class tells what was not done, where the words are those of several things.
                None => Symptom::of(&format!("{}:{}", failure.class, failure.message)),
            };
            // The first failed operation is already counted when the worker's own errors have it.
            out.entry(symptom).or_insert_with(|| Seen {
                count: 1,
                text: failure.message.clone(),
            });
        }
        out
    }

    /// How often a symptom was met: in the client's words, or as the errno of one of these calls. A connect
    /// that failed and cost no operation went elsewhere; not every engine knows where.
    pub(super) fn met(&self, symptom: Symptom, calls: &[&str]) -> Option<Seen> {
        let said = self.symptoms().remove(&symptom);
        let counted = symptom.errno().map_or(0, |errno| self.kernel(calls, errno));
        match said {
            Some(seen) => Some(Seen {
                count: seen.count.max(counted),
                ..seen
            }),
            None if calls == ["connect"] && self.lost_nothing() => None,
            None if counted > 0 => Some(Seen {
                count: counted,
                text: format!(
                    "{} {}",
                    calls.first().unwrap_or(&""),
                    symptom.errno().unwrap_or("")
                ),
            }),
            None => None,
        }
    }

    /// How often one of these calls failed with an errno in the counted pass, all phases. Failed calls to
    /// the sockets of name look-ups are left out.
    pub(super) fn kernel(&self, calls: &[&str], errno: &str) -> u64 {
        let counts = self
            .all_phases()
            .flat_map(|phase| calls.iter().filter_map(|call| phase.syscalls.get(*call)));
        total(counts.filter_map(|call| {
            let failed = call.errors.known()?.get(errno).copied()?;
            let of_lookups = match errno {
                "ENOENT" | "ECONNREFUSED" | "EACCES" => total(
                    call.peers
                        .iter()
                        .filter(|(peer, _)| is_lookup(peer))
                        .map(|(_, n)| *n),
                ),
                _ => 0,
            };
            Some(failed.saturating_sub(of_lookups))
        }))
    }

    /// Whether a bench's row is known to have done all that was asked of it without one failed operation.
    pub(super) fn lost_nothing(&self) -> bool {
        self.record.kind == Kind::Bench
            && self.failure().is_none()
            && self.symptoms().is_empty()
            && self.lost_share() == Some(0.0)
    }

    /// One number over these calls in the measured window, per operation; `None` when the operations are
    /// not known.
    pub(super) fn per_op(&self, calls: &[&str], of: impl Fn(&CallCounts) -> u64) -> Option<f64> {
        let counted = self.counted()?;
        let counts = calls
            .iter()
            .filter_map(|call| counted.phases.run_loop.syscalls.get(*call));
        counted.ops?.per_op(total(counts.map(of)))
    }

    /// Turns and waits of the measured window; `None` when the engine does not look at single calls.
    pub(super) fn talk(&self) -> Option<&'a Talk> {
        self.counted()?.phases.run_loop.talk.as_ref()
    }

    /// The counts of these calls in the measured window.
    pub(super) fn loop_counts(&self, calls: &[&str]) -> impl Iterator<Item = &'a CallCounts> {
        let counted = self.counted();
        calls
            .iter()
            .filter_map(move |call| counted?.phases.run_loop.syscalls.get(*call))
    }

    /// These calls in the measured window.
    pub(super) fn loop_calls(&self, calls: &[&str]) -> u64 {
        total(self.loop_counts(calls).map(|call| call.calls))
    }

    /// How often one of them failed so there.
    pub(super) fn loop_errors(&self, calls: &[&str], errno: &str) -> u64 {
        let errors = self
            .loop_counts(calls)
            .filter_map(|call| call.errors.known()?.get(errno));
        total(errors.copied())
    }

    /// Time in them there; `None` when the engine has no times.
    pub(super) fn loop_wall(&self, calls: &[&str]) -> Option<Nanos> {
        let times: Option<Vec<u64>> = self
            .loop_counts(calls)
            .map(|call| Some(call.wall.known()?.0))
            .collect();
        Some(Nanos(total(times?)))
    }

    /// These calls in all phases, as far as they are not known to have failed.
    pub(super) fn good_calls(&self, calls: &[&str]) -> u64 {
        let counts = self
            .all_phases()
            .flat_map(|phase| calls.iter().filter_map(|call| phase.syscalls.get(*call)));
        total(counts.map(|call| call.calls.saturating_sub(call.failed().unwrap_or(0))))
    }

    /// Operations asked for, over all rounds and the counted pass.
    pub(super) fn lost_share(&self) -> Option<f64> {
        let rounds = &self.timed()?.rounds;
        let asked = total(rounds.iter().map(|round| round.asked.0));
        let done = total(rounds.iter().map(|round| round.ops.0));
        (asked > 0).then(|| asked.saturating_sub(done) as f64 / asked as f64)
    }

    /// Usual suspects that were read and are fine, but for the one in question.
    pub(super) fn cleared(&self, except: &[&str]) -> Vec<String> {
        self.record
            .limits
            .iter()
            .filter(|reading| reading.verdict == Verdict::Ok && !except.contains(&reading.id.as_str()))
            .filter_map(|reading| {
                let (demand, capacity) = (reading.demand.known()?, reading.capacity.known()?);
                Some(format!("{}: needs {demand} of {capacity}", reading.id))
            })
            .collect()
    }
}

/// A symptom met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// How often.
    pub(super) count: u64,
    /// One text of it.
    pub(super) text: String,
}

/// Two decimals, for evidence.
pub(super) fn round2(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A known value of a measurement by value.
pub(super) fn known(value: &Measured<f64>) -> Option<f64> {
    value.known().copied()
}
