//! Counts of system calls: per call, per errno, per phase, per operation.
//!
//! An engine fills a [`PhaseTallies`]; identities stay `(abi, number)` here and become names at the edge,
//! when the record is made, so that an unknown number is never lost.

mod errno;
mod sysno;
pub mod talk;

use std::collections::BTreeMap;

pub use errno::Errno;
pub use sysno::{Abi, Syscall};
pub use talk::{LongWait, Talk};

use crate::units::Nanos;

/// Which part of a worker's life a call belongs to, by the markers of the worker contract.
///
/// A call belongs to the phase in which it was *entered*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// From exec to the return of the `read(0)` that delivered `go`.
    Startup,
    /// From there to the entry of the `write(1)` that says `done`: the measured window.
    Loop,
    /// From there to the end.
    Shutdown,
}

/// What is known about one system call over one phase.
///
/// `calls` counts calls that returned, as `strace -c` does; `unfinished` counts those that were entered
/// and never returned (`exit_group`, or a thread that died inside). Entries = `calls` + `unfinished`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallTally {
    /// Calls that returned.
    pub calls: u64,
    /// Calls entered that never returned.
    pub unfinished: u64,
    /// Failed calls by errno; restarts are not in here.
    pub errors: BTreeMap<Errno, u64>,
    /// Calls that the kernel will restart by itself after a signal (`ERESTARTSYS` and kin): not failures.
    pub restarts: BTreeMap<Errno, u64>,
    /// Wall time between entry and return, as the engine saw it (a slow engine adds to it).
    pub wall: Nanos,
    /// Calls by duration, where the engine sorts them: by log2 of the nanoseconds; the least and the
    /// greatest key stand for everything below and above them.
    pub times: BTreeMap<u8, u64>,
    /// System CPU time between entry and return, where the engine can tell.
    pub cpu: Nanos,
    /// Bytes moved by successful data calls (sends, receives, reads, writes); peeks are not counted.
    pub bytes: u64,
    /// Successful receives that only peeked (`MSG_PEEK`).
    pub peeks: u64,
    /// Calls on descriptors that lead to a named peer, by the peer's name (`127.0.0.1:6379`,
    /// `unix:/run/redis.sock`, `pipe`, `file`, …); empty when the engine does not resolve descriptors.
    pub peers: BTreeMap<String, u64>,
}

impl CallTally {
    /// Adds what another tally of the same call holds.
    pub fn merge(&mut self, other: &CallTally) {
        self.calls += other.calls;
        self.unfinished += other.unfinished;
        for (errno, n) in &other.errors {
            *self.errors.entry(*errno).or_default() += n;
        }
        for (errno, n) in &other.restarts {
            *self.restarts.entry(*errno).or_default() += n;
        }
        self.wall += other.wall;
        for (log2, n) in &other.times {
            *self.times.entry(*log2).or_default() += n;
        }
        self.cpu += other.cpu;
        self.bytes += other.bytes;
        self.peeks += other.peeks;
        for (peer, n) in &other.peers {
            *self.peers.entry(peer.clone()).or_default() += n;
        }
    }

    /// What is more in this than in another tally of the same call, of a shorter run of the same program.
    fn beyond(&self, other: &CallTally) -> CallTally {
        CallTally {
            calls: self.calls.saturating_sub(other.calls),
            unfinished: self.unfinished.saturating_sub(other.unfinished),
            errors: minus(&self.errors, &other.errors),
            restarts: minus(&self.restarts, &other.restarts),
            wall: Nanos(self.wall.0.saturating_sub(other.wall.0)),
            times: minus(&self.times, &other.times),
            cpu: Nanos(self.cpu.0.saturating_sub(other.cpu.0)),
            bytes: self.bytes.saturating_sub(other.bytes),
            peeks: self.peeks.saturating_sub(other.peeks),
            peers: minus(&self.peers, &other.peers),
        }
    }

    /// How many calls failed, restarts apart.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// The calls of one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// By call.
    pub calls: BTreeMap<Syscall, CallTally>,
    /// Connections begun on stream sockets: `connect` that returned 0 or `EINPROGRESS`, once per socket.
    pub connects: u64,
    /// Turns of send, wait, receive on a socket: a receive of data that follows a send on that descriptor.
    pub round_trips: u64,
    /// Calls that send on a socket, whatever the call (`sendto`, `write`, `writev`, `sendmsg` …).
    pub sends: u64,
    /// Calls that received data from a socket, whatever the call; peeks and `EAGAIN` are not in here.
    pub receives: u64,
    /// Turns and waits; `None` from an engine that does not look at single calls.
    pub talk: Option<Talk>,
}

impl Tally {
    /// The entry of one call, made when it is new.
    pub fn of(&mut self, call: Syscall) -> &mut CallTally {
        self.calls.entry(call).or_default()
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Tally) {
        for (call, tally) in &other.calls {
            self.of(*call).merge(tally);
        }
        self.connects += other.connects;
        self.round_trips += other.round_trips;
        self.sends += other.sends;
        self.receives += other.receives;
        if let Some(talk) = &other.talk {
            self.talk.get_or_insert_default().merge(talk);
        }
    }

    /// What is more in this than in the tally of a shorter run of the same program: what starting and
    /// ending it costs is in both and so in neither. Turns and waits are no sums and are left out.
    pub fn beyond(&self, shorter: &Tally) -> Tally {
        let none = CallTally::default();
        let calls = self.calls.iter().map(|(call, tally)| {
            let more = tally.beyond(shorter.calls.get(call).unwrap_or(&none));
            (*call, more)
        });
        Tally {
            // The same number of calls never takes the same time.
            calls: calls
                .filter(|(_, more)| more.calls > 0 || more.unfinished > 0)
                .collect(),
            connects: self.connects.saturating_sub(shorter.connects),
            round_trips: self.round_trips.saturating_sub(shorter.round_trips),
            sends: self.sends.saturating_sub(shorter.sends),
            receives: self.receives.saturating_sub(shorter.receives),
            talk: None,
        }
    }

    /// All calls that returned.
    pub fn total(&self) -> u64 {
        self.calls.values().map(|t| t.calls).sum()
    }
}

/// What is more in one map of counts than in another, without zeroes.
fn minus<K: Ord + Clone>(more: &BTreeMap<K, u64>, less: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    more.iter()
        .map(|(key, n)| (key.clone(), n.saturating_sub(less.get(key).copied().unwrap_or(0))))
        .filter(|(_, n)| *n > 0)
        .collect()
}

/// The three phases of a worker, or everything in [`Phase::Startup`]'s place when there are no markers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PhaseTallies {
    /// Up to `go`.
    pub startup: Tally,
    /// The measured window. A program without markers (`count`) is all loop.
    pub run_loop: Tally,
    /// After `done`.
    pub shutdown: Tally,
}

impl PhaseTallies {
    /// The tally of one phase.
    pub fn phase(&mut self, phase: Phase) -> &mut Tally {
        match phase {
            Phase::Startup => &mut self.startup,
            Phase::Loop => &mut self.run_loop,
            Phase::Shutdown => &mut self.shutdown,
        }
    }

    /// Adds another worker's phases.
    pub fn merge(&mut self, other: &PhaseTallies) {
        self.startup.merge(&other.startup);
        self.run_loop.merge(&other.run_loop);
        self.shutdown.merge(&other.shutdown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(calls: &[(&str, u64)], wall: u64) -> Tally {
        let mut tally = Tally::default();
        for (name, n) in calls {
            let call = Syscall::all_by_name(name).remove(0);
            *tally.of(call) = CallTally {
                calls: *n,
                wall: Nanos(wall),
                errors: [(Errno(11), *n)].into(),
                ..CallTally::default()
            };
        }
        tally
    }

    #[test]
    fn what_both_runs_of_a_program_do_is_in_neither() {
        let short = tally(&[("execve", 1), ("read", 1_010), ("close", 3)], 70);
        let long = tally(&[("execve", 1), ("read", 2_010), ("write", 4)], 90);
        let more = long.beyond(&short);
        let counts: BTreeMap<_, _> = more
            .calls
            .iter()
            .map(|(call, n)| (call.name(), n.calls))
            .collect();
        assert_eq!(counts, [("read".into(), 1_000), ("write".into(), 4)].into());
        let read = &more.calls[&Syscall::all_by_name("read").remove(0)];
        assert_eq!((read.wall, read.failed()), (Nanos(20), 1_000));
    }
}
