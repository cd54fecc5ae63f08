//! ptrace as typed states: what may be asked of a tracee depends on a value that only a stop gives, and
//! every way of resuming consumes that value.
//!
//! Wait statuses are decoded from the raw word, because the usual enums cannot express real-time
//! signals. All tracees are seized (`PTRACE_SEIZE`), so group stops are told apart from signals, and the
//! legacy post-exec SIGTRAP does not exist.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::process::Usage;

/// `PTRACE_EVENT_STOP`: the first stop of an attached tracee, group stops, and interrupts.
const EVENT_STOP: i32 = 128;
/// A syscall stop under `PTRACE_O_TRACESYSGOOD`.
const SYSGOOD_TRAP: i32 = libc::SIGTRAP | 0x80;
/// The request number is the same on every architecture (`include/uapi/linux/ptrace.h`); Linux 5.3.
const GET_SYSCALL_INFO: libc::c_ulong = 0x420e;

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

/// A tracee that is stopped, so that it can be examined. Resuming consumes it; dropping it leaves the
/// tracee stopped, which is right only for one that is being killed.
#[derive(Debug)]
#[must_use = "a stopped tracee has to be resumed"]
pub struct Stopped {
    tid: Pid,
    _this_thread: PhantomData<*const ()>,
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

/// How far a resumed tracee runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// To the next entry to or return from a system call.
    Syscall,
    /// To the next event or signal.
    Event,
}

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

/// A system call stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyscallStop {
    /// Entry.
    Entry(Entry),
    /// Return.
    Exit {
        /// The raw result: a value, or a negative errno when `failed`.
        result: i64,
        /// Whether the result is an errno.
        failed: bool,
    },
    /// A seccomp stop: also an entry, with the data of the filter that asked for it (`SECCOMP_RET_DATA`).
    /// Where several filters ask, the one that was installed last.
    Seccomp(Entry, u16),
    /// Not a system call stop.
    None,
}

/// A call as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// `AUDIT_ARCH_*` of the call.
    pub arch: u32,
    /// The raw number.
    pub number: u64,
    /// The six arguments.
    pub args: [u64; 6],
}

/// `struct ptrace_syscall_info`, its union as plain words. Source: `include/uapi/linux/ptrace.h`.
#[repr(C)]
#[derive(Default)]
struct RawInfo {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    words: [u64; 8],
}

/// One raw request. Returns what the system call returned, without glibc's handling of PEEK requests.
fn request(operation: libc::c_ulong, tid: Pid, address: usize, data: usize) -> Result<i64, Errno> {
    // SAFETY: the callers below pass for `address` and `data` either plain numbers or pointers to live
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
        Ok(decode(Pid::from_raw(pid), status))
    }
}

impl Default for Tracer {
    fn default() -> Self {
        Tracer::new()
    }
}

/// The raw wait status as a state.
fn decode(pid: Pid, status: i32) -> Wait {
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
    Wait::Stopped(
        Stopped {
            tid: pid,
            _this_thread: PhantomData,
        },
        stop,
    )
}

impl Stopped {
    /// Its thread id.
    pub fn tid(&self) -> Pid {
        self.tid
    }

    /// Lets it run on, delivering `signal` unless that is 0.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn resume(self, until: Until, signal: i32) -> Result<Running, PtraceError> {
        let operation = match until {
            Until::Syscall => libc::PTRACE_SYSCALL,
            Until::Event => libc::PTRACE_CONT,
        };
        request(operation as libc::c_ulong, self.tid, 0, signal as usize)?;
        Ok(Running { tid: self.tid })
    }

    /// Leaves it in its group stop, but hears of the end of that stop.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn listen(self) -> Result<Running, PtraceError> {
        request(libc::PTRACE_LISTEN as libc::c_ulong, self.tid, 0, 0)?;
        Ok(Running { tid: self.tid })
    }

    /// Lets it go: it runs on untraced, delivering `signal` unless that is 0. One in a group stop stays
    /// stopped.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn detach(self, signal: i32) -> Result<(), PtraceError> {
        request(libc::PTRACE_DETACH as libc::c_ulong, self.tid, 0, signal as usize)?;
        Ok(())
    }

    /// Has the call it is returning from made again, when that call is one of `calls` (native numbers) and
    /// was cut short with EINTR: the kernel then runs it anew, or, when a signal with a handler is
    /// waiting, returns EINTR as it would have done anyway (ERESTARTNOHAND). Returns whether it will.
    ///
    /// Stopping a tracee makes some calls return EINTR to programs that have no reason to expect it
    /// (signal(7), "interruption by stop signals").
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn make_again(&self, calls: &[libc::c_long]) -> Result<bool, PtraceError> {
        const ERESTARTNOHAND: i64 = 514;
        let Some((number, result)) = self.returning()? else {
            return Ok(false);
        };
        if result != -i64::from(libc::EINTR) || !calls.contains(&number) {
            return Ok(false);
        }
        self.set_result(-ERESTARTNOHAND)?;
        Ok(true)
    }

    /// The native call it is returning from and the result, `None` when it is in none.
    #[cfg(target_arch = "x86_64")]
    fn returning(&self) -> Result<Option<(libc::c_long, i64)>, PtraceError> {
        // The number is -1 outside of calls (arch/x86/include/asm/syscall.h).
        let number = self.peek_user(libc::ORIG_RAX)?;
        let result = self.peek_user(libc::RAX)?;
        Ok((number >= 0).then_some((number, result)))
    }

    #[cfg(target_arch = "x86_64")]
    fn peek_user(&self, register: libc::c_int) -> Result<i64, PtraceError> {
        let mut word = 0i64;
        request(
            libc::PTRACE_PEEKUSER as libc::c_ulong,
            self.tid,
            register as usize * 8,
            (&raw mut word) as usize,
        )?;
        Ok(word)
    }

    #[cfg(target_arch = "x86_64")]
    fn set_result(&self, value: i64) -> Result<(), PtraceError> {
        self.poke_user(libc::RAX, value)
    }

    #[cfg(target_arch = "x86_64")]
    fn poke_user(&self, register: libc::c_int, value: i64) -> Result<(), PtraceError> {
        request(
            libc::PTRACE_POKEUSER as libc::c_ulong,
            self.tid,
            register as usize * 8,
            value as usize,
        )?;
        Ok(())
    }

    /// Where the registers are not known, calls are left as they are.
    #[cfg(not(target_arch = "x86_64"))]
    fn returning(&self) -> Result<Option<(libc::c_long, i64)>, PtraceError> {
        Ok(None)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn set_result(&self, _: i64) -> Result<(), PtraceError> {
        Ok(())
    }

    /// The system call it is stopped at.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile; EIO on kernels before 5.3.
    pub fn syscall(&self) -> Result<SyscallStop, PtraceError> {
        let mut info = RawInfo::default();
        let size = size_of::<RawInfo>();
        request(GET_SYSCALL_INFO, self.tid, size, (&raw mut info) as usize)?;
        let entry = || Entry {
            arch: info.arch,
            number: info.words[0],
            args: std::array::from_fn(|i| info.words[i + 1]),
        };
        Ok(match i32::from(info.op) {
            1 => SyscallStop::Entry(entry()),
            2 => SyscallStop::Exit {
                result: info.words[0] as i64,
                failed: info.words[1].to_ne_bytes()[0] != 0,
            },
            // `ret_data` is the low half of the last word; only 16 bits of it can be set.
            3 => SyscallStop::Seccomp(entry(), (info.words[7] & libc::SECCOMP_RET_DATA as u64) as u16),
            _ => SyscallStop::None,
        })
    }

    /// At a seccomp stop: has the call fail with ENOSYS without being made, which is what the kernel does to
    /// a program that nobody traces. Returns whether that can be done here.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    #[cfg(target_arch = "x86_64")]
    pub fn refuse(&self) -> Result<bool, PtraceError> {
        // A number below zero is skipped (`__seccomp_filter` in kernel/seccomp.c), and the result stays.
        self.poke_user(libc::ORIG_RAX, -1)?;
        self.set_result(-i64::from(libc::ENOSYS))?;
        Ok(true)
    }

    /// Where the registers are not known, the call is made.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn refuse(&self) -> Result<bool, PtraceError> {
        Ok(false)
    }

    /// The number that comes with an event: the new thread id for [`Stop::Fork`], the former thread id
    /// for [`Stop::Exec`].
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn message(&self) -> Result<u64, PtraceError> {
        let mut message: libc::c_ulong = 0;
        request(
            libc::PTRACE_GETEVENTMSG as libc::c_ulong,
            self.tid,
            0,
            (&raw mut message) as usize,
        )?;
        Ok(message)
    }

    /// Reads one word of its memory.
    ///
    /// # Errors
    /// EIO when the address is not mapped.
    pub fn peek(&self, address: u64) -> Result<[u8; 8], PtraceError> {
        let mut word = [0u8; 8];
        request(
            libc::PTRACE_PEEKDATA as libc::c_ulong,
            self.tid,
            address as usize,
            word.as_mut_ptr() as usize,
        )?;
        Ok(word)
    }

    /// Overwrites one word of its memory.
    ///
    /// # Errors
    /// EIO when the address is not mapped.
    pub fn poke(&self, address: u64, word: [u8; 8]) -> Result<(), PtraceError> {
        request(
            libc::PTRACE_POKEDATA as libc::c_ulong,
            self.tid,
            address as usize,
            u64::from_ne_bytes(word) as usize,
        )?;
        Ok(())
    }
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

    #[test]
    fn the_info_structure_has_the_kernel_s_size() {
        assert_eq!(size_of::<RawInfo>(), 88);
    }
}
