//! What a wait found: the raw status decoded, because the usual enums cannot express real-time signals.

use nix::unistd::Pid;

use super::Stopped;

/// `PTRACE_EVENT_STOP`: the first stop of an attached tracee, group stops, and interrupts.
const EVENT_STOP: i32 = 128;

/// A syscall stop under `PTRACE_O_TRACESYSGOOD`.
const SYSGOOD_TRAP: i32 = libc::SIGTRAP | 0x80;

/// Why a tracee stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// At the entry to, or the return from, a system call; [`Stopped::syscall`] tells which.
    Syscall,
    /// A seccomp filter asked for the tracer.
    Seccomp,
    /// It is about to receive this signal; resume with it to deliver it.
    Signal(i32),
    /// Its whole group was stopped by this signal.
    Group(i32),
    /// Its first stop, or the end of a group stop.
    Trap,
    /// It has made a child or thread.
    Fork(ForkKind),
    /// It has executed a program.
    Exec,
    /// An event that was not asked for.
    Other(i32),
}

/// By which event a child was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkKind {
    /// Exit signal SIGCHLD, not vfork.
    Fork,
    /// The parent waits for exec or exit of the child.
    Vfork,
    /// Another exit signal: nearly always a thread.
    Clone,
}

/// What a wait found.
#[derive(Debug)]
pub enum Wait {
    /// A tracee stopped.
    Stopped(Stopped, Stop),
    /// A tracee, or a child that was not traced yet, ended with this status.
    Exited(Pid, i32),
    /// It was killed by this signal.
    Killed(Pid, i32),
    /// A signal came to this thread.
    Interrupted,
    /// This thread has neither tracees nor children.
    NoneLeft,
}

/// The raw wait status as a state.
pub(super) fn decode(pid: Pid, status: i32) -> Wait {
    if libc::WIFEXITED(status) {
        return Wait::Exited(pid, libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Wait::Killed(pid, libc::WTERMSIG(status));
    }
    let signal = (status >> 8) & 0xff;
    let event = (status >> 16) & 0xffff;
    let stop = match event {
        0 if signal == SYSGOOD_TRAP => Stop::Syscall,
        0 => Stop::Signal(signal),
        EVENT_STOP if signal == libc::SIGTRAP => Stop::Trap,
        EVENT_STOP => Stop::Group(signal),
        libc::PTRACE_EVENT_SECCOMP => Stop::Seccomp,
        libc::PTRACE_EVENT_FORK => Stop::Fork(ForkKind::Fork),
        libc::PTRACE_EVENT_VFORK => Stop::Fork(ForkKind::Vfork),
        libc::PTRACE_EVENT_CLONE => Stop::Fork(ForkKind::Clone),
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        other => Stop::Other(other),
    };
    Wait::Stopped(Stopped::found(pid), stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop_of(status: i32) -> Stop {
        match decode(Pid::from_raw(7), status) {
            Wait::Stopped(stopped, stop) => {
                assert_eq!(stopped.tid(), Pid::from_raw(7));
                stop
            }
            other => panic!("not a stop: {other:?}"),
        }
    }

    #[test]
    fn statuses_decode_by_the_raw_word() {
        let stopped = |signal: i32, event: i32| (event << 16) | (signal << 8) | 0x7f;
        assert_eq!(stop_of(stopped(SYSGOOD_TRAP, 0)), Stop::Syscall);
        assert_eq!(stop_of(stopped(libc::SIGTRAP, 0)), Stop::Signal(libc::SIGTRAP));
        // A real-time signal, which nix's enum has no name for.
        assert_eq!(stop_of(stopped(64, 0)), Stop::Signal(64));
        assert_eq!(stop_of(stopped(libc::SIGTRAP, EVENT_STOP)), Stop::Trap);
        assert_eq!(
            stop_of(stopped(libc::SIGTSTP, EVENT_STOP)),
            Stop::Group(libc::SIGTSTP)
        );
        assert_eq!(
            stop_of(stopped(libc::SIGTRAP, libc::PTRACE_EVENT_CLONE)),
            Stop::Fork(ForkKind::Clone)
        );
        assert!(matches!(decode(Pid::from_raw(7), 3 << 8), Wait::Exited(_, 3)));
        assert!(matches!(decode(Pid::from_raw(7), 9), Wait::Killed(_, 9)));
        assert!(matches!(decode(Pid::from_raw(7), 0x80 | 64), Wait::Killed(_, 64)));
    }
}
