//! Which calls are counted, by which tracepoints, and whether those are what they are taken for.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;

use super::ids::{CACHE, Ids, IdsError};
use crate::engine::Selection;
use crate::proc::Root;
use crate::sys::perf::{Counter, Whose, make_harmless_call};
use crate::tally::{Abi, Syscall};

/// The most calls at once. Every counter costs something at each sleep and each fork of the program, some
/// 0.25 µs, so that counters for all calls would be slower than a tracer.
pub const MOST_CALLS: usize = 8;

/// What is counted when nobody chooses: what clients of a server make in their loops.
const USUAL: [&str; MOST_CALLS] = [
    "sendto",
    "recvfrom",
    "poll",
    "read",
    "write",
    "epoll_wait",
    "connect",
    "setsockopt",
];

/// A call that can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Which.
    pub(super) call: Syscall,
    /// The tracepoint at its return.
    pub(super) tracepoint: u64,
}

/// Why calls cannot be counted.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallsError {
    /// The numbers of the tracepoints are not known.
    #[error(transparent)]
    Ids(#[from] IdsError),
    /// Too many.
    #[error("{0} calls were chosen, and counters are for {MOST_CALLS} at most")]
    TooMany(usize),
    /// One that has no counter.
    #[error("{name}: {why}")]
    NoCounter {
        /// Its name.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// The kernel refused a counter.
    #[error("open a counter for {name}: {source}")]
    Refused {
        /// Of which call.
        name: String,
        /// What the kernel said.
        source: Errno,
    },
    /// A counter that counts something else.
    #[error("the kept number of the tracepoint of {name} is wrong: {counted} of {made} calls were counted")]
    Wrong {
        /// Of which call.
        name: String,
        /// What the counter said.
        counted: u64,
        /// How many calls were made.
        made: u64,
    },
}

/// How many calls a tracepoint is tried with.
const TRIES: u64 = 3;

/// Whether a call can be counted at all at its return: `rt_sigreturn` has no number left there.
pub fn has_counter(call: Syscall) -> bool {
    call != Syscall::native(libc::SYS_rt_sigreturn)
}

/// Calls that may end in EAGAIN, which moves with timing and is counted by itself.
const MAY_SAY_AGAIN: [i64; 13] = [
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_futex,
];

/// Whether clients meet EAGAIN in this call. Others (poll, setsockopt, close …) go without a counter of it.
pub fn may_say_again(call: Syscall) -> bool {
    MAY_SAY_AGAIN
        .iter()
        .any(|number| call == Syscall::native(*number))
}

/// The calls of a selection, each tried.
pub(super) fn choose(selection: &Selection) -> Result<Vec<Chosen>, CallsError> {
    let wanted = wanted(selection)?;
    let ids = Ids::find(&Root::live(), Path::new(CACHE))?;
    let mut chosen = Vec::with_capacity(wanted.len());
    for call in wanted {
        let no_counter = |why| CallsError::NoCounter {
            name: call.name().into_owned(),
            why,
        };
        if !has_counter(call) {
            return Err(no_counter("it has no number any more when it returns"));
        }
        let tracepoint = ids
            .of(call)
            .ok_or(no_counter("this kernel has no tracepoint for it"))?;
        if !verify(call, tracepoint)? && !ids.are_live() {
            return Err(no_counter(
                "its kept tracepoint cannot be tried without harm; run as root",
            ));
        }
        chosen.push(Chosen { call, tracepoint });
    }
    Ok(chosen)
}

/// The native calls of a selection. Tracepoints of single calls do not see other ABIs.
fn wanted(selection: &Selection) -> Result<Vec<Syscall>, CallsError> {
    let usual = || {
        USUAL
            .iter()
            .filter_map(|name| Syscall::by_name(Abi::NATIVE, name))
    };
    let wanted: Vec<Syscall> = match selection {
        Selection::All => usual().collect(),
        Selection::Except(left_out) => usual().filter(|call| !left_out.contains(call)).collect(),
        Selection::Only(calls) => {
            let native: BTreeSet<Syscall> = calls
                .iter()
                .copied()
                .filter(|call| call.abi == Abi::NATIVE)
                .collect();
            native.into_iter().collect()
        }
    };
    if wanted.len() > MOST_CALLS {
        return Err(CallsError::TooMany(wanted.len()));
    }
    Ok(wanted)
}

/// Counts a known number of calls of this thread by a tracepoint. False when the call cannot be made
/// without harm. A tracepoint that has passed is not tried again by this process.
fn verify(call: Syscall, tracepoint: u64) -> Result<bool, CallsError> {
    static PASSED: Mutex<BTreeSet<(Syscall, u64)>> = Mutex::new(BTreeSet::new());
    let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if passed.contains(&(call, tracepoint)) {
        return Ok(true);
    }
    let name = || call.name().into_owned();
    let refused = |source| CallsError::Refused { name: name(), source };
    let counter = Counter::open(tracepoint, Whose::OwnThread, None).map_err(refused)?;
    let number = i64::try_from(call.number).unwrap_or(-1);
    counter.enable().map_err(refused)?;
    let made = (0..TRIES).all(|_| make_harmless_call(number));
    counter.disable().map_err(refused)?;
    let counted = counter.read().map_err(refused)?;
    if !made {
        return Ok(false);
    }
    if counted != TRIES {
        return Err(CallsError::Wrong {
            name: name(),
            counted,
            made: TRIES,
        });
    }
    passed.insert((call, tracepoint));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_of_native_calls_and_short() {
        let read = Syscall::native(libc::SYS_read);
        let foreign = Syscall {
            abi: Abi::I386,
            number: 3,
        };
        assert_eq!(
            wanted(&Selection::Only(vec![read, foreign, read])).unwrap(),
            [read]
        );
        assert_eq!(wanted(&Selection::All).unwrap().len(), MOST_CALLS);
        assert!(!wanted(&Selection::Except(vec![read])).unwrap().contains(&read));
        let many = (0..9).map(Syscall::native).collect();
        assert!(matches!(
            wanted(&Selection::Only(many)),
            Err(CallsError::TooMany(9))
        ));
    }
}
