//! ptrace as typed states: what may be asked of a tracee depends on a value that only a stop gives, and
//! every way of resuming consumes that value.
//!
//! All tracees are seized (`PTRACE_SEIZE`), so group stops are told apart from signals, and the
//! legacy post-exec SIGTRAP does not exist.
#![allow(unsafe_code)]

mod stopped;
mod wait;

use std::marker::PhantomData;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::process::Usage;

pub use stopped::{Entry, Stopped, SyscallStop, Until};
pub use wait::{ForkKind, Stop, Wait};

/// The right to trace, bound to the thread that made it: the kernel ties a tracee to one thread, not to
/// a process.
#[derive(Debug)]
pub struct Tracer {
    _this_thread: PhantomData<*const ()>,
}

/// What to be told of beside system calls and signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Follow children, threads and exec.
    pub follow: bool,
    /// Stop where a seccomp filter says `RET_TRACE`. Without this such a call fails with ENOSYS, as it
    /// does for an untraced program.
    pub seccomp: bool,
    /// Kill it when this thread ends. Without this it runs on untraced then, even when systally was killed.
    pub kill_with_tracer: bool,
}

impl Options {
    fn bits(self) -> libc::c_int {
        // SYSGOOD also makes the end of a tracer harmless: what a tracee finds as the signal to go on with
        // is no valid number then, where it would be a deadly SIGTRAP without.
        let mut bits = libc::PTRACE_O_TRACESYSGOOD;
        if self.kill_with_tracer {
            bits |= libc::PTRACE_O_EXITKILL;
        }
        if self.follow {
            bits |= libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACECLONE;
        }
        if self.seccomp {
            bits |= libc::PTRACE_O_TRACESECCOMP;
        }
        bits
    }
}

/// A tracee that runs, or is about to.
#[derive(Debug)]
pub struct Running {
    tid: Pid,
}

impl Running {
    /// Its thread id.
    pub fn tid(&self) -> Pid {
        self.tid
    }

    /// Asks it to stop. A tracee that is stopped already stays as it is, one in a group stop reports it
    /// again.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it has ended.
    pub fn interrupt(self) -> Result<Running, PtraceError> {
        interrupt(self.tid)?;
        Ok(self)
    }
}

/// The tracee is no longer stopped: something killed it, and its end will be reported by the next waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Why a ptrace request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtraceError {
    /// See [`Gone`].
    Gone,
    /// Something that should not happen.
    Failed(Errno),
}

impl From<Errno> for PtraceError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ESRCH => PtraceError::Gone,
            other => PtraceError::Failed(other),
        }
    }
}

/// One raw request. Returns what the system call returned, without glibc's handling of PEEK requests.
fn request(operation: libc::c_ulong, tid: Pid, address: usize, data: usize) -> Result<i64, Errno> {
    // SAFETY: the callers in this folder pass for `address` and `data` either plain numbers or pointers to live
    // memory of the size that the request writes; a wrong pid is an error, never undefined behaviour.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            operation,
            tid.as_raw() as libc::c_long,
            address,
            data,
        )
    };
    Errno::result(result)
}

fn interrupt(tid: Pid) -> Result<(), PtraceError> {
    request(libc::PTRACE_INTERRUPT as libc::c_ulong, tid, 0, 0)?;
    Ok(())
}

impl Tracer {
    /// Makes this thread a tracer.
    pub fn new() -> Tracer {
        Tracer {
            _this_thread: PhantomData,
        }
    }

    /// Attaches to a running process or thread without stopping it.
    ///
    /// # Errors
    /// EPERM when tracing is not permitted or another tracer holds it, ESRCH when it has ended, EIO when
    /// the kernel does not know an option.
    pub fn seize(&self, pid: Pid, options: Options) -> Result<Running, Errno> {
        request(
            libc::PTRACE_SEIZE as libc::c_ulong,
            pid,
            0,
            options.bits() as usize,
        )?;
        Ok(Running { tid: pid })
    }

    /// Asks a tracee that runs, as far as this thread knows, to stop: [`Running::interrupt`] for whoever
    /// keeps thread ids.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it has ended or is not traced by this thread.
    pub fn interrupt(&self, tid: Pid) -> Result<(), PtraceError> {
        interrupt(tid)
    }

    /// Waits for the next event of any tracee or child of this thread.
    ///
    /// `usage`, when given, receives the resource usage of the thread group concerned; it makes each
    /// wait a little slower.
    ///
    /// # Errors
    /// What wait4(2) says, `EINTR` and `ECHILD` excepted.
    pub fn wait(&self, usage: Option<&mut Usage>) -> Result<Wait, Errno> {
        let (pid, status) = match super::process::wait4(-1, libc::__WALL | libc::__WNOTHREAD, usage) {
            Ok(found) => found,
            Err(Errno::EINTR) => return Ok(Wait::Interrupted),
            Err(Errno::ECHILD) => return Ok(Wait::NoneLeft),
            Err(other) => return Err(other),
        };
        Ok(wait::decode(Pid::from_raw(pid), status))
    }
}

impl Default for Tracer {
    fn default() -> Self {
        Tracer::new()
    }
}
