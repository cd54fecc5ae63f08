//! Signals that a program ignores: untraced they are dropped before they reach it, under a tracer they are delivered
//! to be ignored then, and cut calls short that would have gone on (`sig_ignored` in kernel/signal.c).
//!
//! Most calls are then restarted by the kernel and the program sees nothing. Those in [`INTERRUPTIBLE`] return EINTR to a
//! program that has no reason to expect it. Such a return is held until the stop at the signal that comes at once:
//! when it is an ignored one, the call is made again and counted as one; its time-out begins anew.

use std::time::Instant;

use nix::unistd::Pid;

use super::Pace;
use super::availability::field;
use super::counts::Counts;
use super::state::{Again, Cut};
use super::tracing::Tracing;
use crate::sys::ptrace::{Stop, Stopped};
use crate::tally::{Errno, Syscall};
use crate::units::Nanos;

/// Calls that return EINTR after a stop where no handler ran, or with a time-out set on their socket, and
/// that may be made again without harm (signal(7)).
pub(super) const INTERRUPTIBLE: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_io_getevents,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Ignored unless there is a handler (signal(7)). SIGCONT is left out: after a stop, which does interrupt calls,
/// it comes to the same place.
const IGNORED_BY_DEFAULT: [i32; 3] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH];

impl Tracing {
    /// Whether a return is to be held until it is known which signal cut the call short. Then it is.
    pub(super) fn holds(&mut self, stopped: &Stopped, result: i64, failed: bool, now: Instant) -> bool {
        if !failed || result != -i64::from(libc::EINTR) {
            return false;
        }
        let Some(tracee) = self.tracees.get_mut(&stopped.tid().as_raw()) else {
            return false;
        };
        let held = tracee
            .call
            .take_if(|call| call.native && INTERRUPTIBLE.contains(&call.number));
        let Some(call) = held else { return false };
        tracee.cut = Some(Cut { call, at: now });
        true
    }

    /// The next stop after a held return, or a signal.
    pub(super) fn settle(&mut self, stopped: &Stopped, stop: Stop) {
        let tid = stopped.tid();
        let signal = match stop {
            Stop::Signal(signal) => Some(signal),
            _ => None,
        };
        let for_nothing = signal.and_then(|signal| self.cut_for_nothing(stopped, signal));
        let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) else {
            return;
        };
        let cut = tracee.cut.take();
        if let Some(number) = for_nothing
            && stopped.make_again(INTERRUPTIBLE) == Ok(true)
        {
            self.begins_anew(tid, number, cut);
            return;
        }
        if let Some(Cut { call, at }) = cut {
            tracee.call = Some(call);
            self.leave(stopped, -i64::from(libc::EINTR), true, at);
        } else if let (Some(signal), Some(again)) = (signal, tracee.again)
            && stopped.begins_anew() == Ok(Some(again.number))
            && !self.ignores(tid, signal)
        {
            // A second signal, before the call could be made again. For a handler the kernel lets it fail after all.
            let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) else {
                return;
            };
            tracee.again = None;
            let program = self.programs[tracee.program].index;
            if let Some(observer) = &self.job.observer {
                observer.repeated(program, Syscall::native(again.number), -1);
            }
            if let Some(cut) = again.cut {
                cut.failed(&mut self.counts);
            }
        }
    }

    /// The call of [`INTERRUPTIBLE`] that was cut short, when the signal is one that its program ignores.
    fn cut_for_nothing(&self, stopped: &Stopped, signal: i32) -> Option<libc::c_long> {
        let number = stopped.cut_short(INTERRUPTIBLE).ok().flatten()?;
        self.ignores(stopped.tid(), signal).then_some(number)
    }

    fn ignores(&self, tid: Pid, signal: i32) -> bool {
        let status = self.root.read(&format!("proc/{tid}/status"));
        status.is_ok_and(|status| is_ignored(&status, signal))
    }

    fn begins_anew(&mut self, tid: Pid, number: libc::c_long, cut: Option<Cut>) {
        let call = Syscall::native(number);
        let counted = self.roles.of(call).counted;
        let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) else {
            return;
        };
        let observer = self.job.observer.as_ref();
        if let Some(observer) = observer {
            observer.repeated(self.programs[tracee.program].index, call, 1);
        }
        // What is not counted by its stops is not stopped at again, or means nothing then.
        if cut.is_some() || observer.is_some() || (counted && self.job.pace == Pace::Counts) {
            tracee.again = Some(Again { number, cut });
        }
    }
}

impl Cut {
    /// Counts a call that does not begin anew: it has failed.
    pub(super) fn failed(self, counts: &mut Counts) {
        if let Some(slot) = self.call.slot {
            let wall = Nanos::from(self.at.saturating_duration_since(self.call.entered));
            let slot = counts.slot(slot);
            slot.returned(Some(Errno(libc::EINTR)), wall, Nanos(0));
        }
    }
}

/// Whether `/proc/PID/status` (proc(5)) says that a signal is dropped: `SigIgn`, or no handler and so by default.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = |name| u64::from_str_radix(field(status, name)?, 16).ok();
    let Some(bit) = u32::try_from(signal - 1).ok().and_then(|n| 1u64.checked_shl(n)) else {
        return false;
    };
    match (mask("SigIgn:"), mask("SigCgt:")) {
        (Some(ignored), Some(caught)) => {
            ignored & bit != 0 || (caught & bit == 0 && IGNORED_BY_DEFAULT.contains(&signal))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masks_of_a_process_say_what_it_ignores() {
        let status =
            "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000201\nSigCgt:\t0000000008010000\n";
        assert!(is_ignored(status, libc::SIGHUP) && is_ignored(status, libc::SIGUSR1));
        // Caught, by default ignored, by default deadly, not a signal.
        assert!(!is_ignored(status, libc::SIGCHLD) && !is_ignored(status, libc::SIGWINCH));
        assert!(is_ignored(status, libc::SIGURG));
        assert!(!is_ignored(status, libc::SIGTERM) && !is_ignored(status, libc::SIGCONT));
        assert!(!is_ignored(status, 0) && !is_ignored(status, 200));
        assert!(!is_ignored("Name:\tx\n", libc::SIGCHLD));
    }
}
