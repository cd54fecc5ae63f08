//! What may be asked of a stopped tracee, and the ways to resume it.

use std::marker::PhantomData;

use nix::unistd::Pid;

use super::{PtraceError, Running, request};

/// The request number is the same on every architecture (`include/uapi/linux/ptrace.h`); Linux 5.3.
const GET_SYSCALL_INFO: libc::c_ulong = 0x420e;

/// A tracee that is stopped, so that it can be examined. Resuming consumes it; dropping it leaves the
/// tracee stopped, which is right only for one that is being killed.
#[derive(Debug)]
#[must_use = "a stopped tracee has to be resumed"]
pub struct Stopped {
    tid: Pid,
    _this_thread: PhantomData<*const ()>,
}

/// How far a resumed tracee runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// To the next entry to or return from a system call.
    Syscall,
    /// To the next event or signal.
    Event,
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

/// Restart unless a handler ran (include/linux/errno.h).
const ERESTARTNOHAND: i64 = 514;

impl Stopped {
    /// The tracee that a wait of this thread found stopped.
    pub(super) fn found(tid: Pid) -> Stopped {
        Stopped {
            tid,
            _this_thread: PhantomData,
        }
    }

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
        if self.cut_short(calls)?.is_none() {
            return Ok(false);
        }
        self.set_result(-ERESTARTNOHAND)?;
        Ok(true)
    }

    /// Which of `calls` (native numbers) it is returning from with EINTR.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn cut_short(&self, calls: &[libc::c_long]) -> Result<Option<libc::c_long>, PtraceError> {
        let found = self.returning()?;
        let cut = found.filter(|(_, result)| *result == -i64::from(libc::EINTR));
        Ok(cut
            .map(|(number, _)| number)
            .filter(|number| calls.contains(number)))
    }

    /// The native call that [`Stopped::make_again`] was said for and that has not begun anew yet.
    ///
    /// # Errors
    /// [`PtraceError::Gone`] when it was killed meanwhile.
    pub fn begins_anew(&self) -> Result<Option<libc::c_long>, PtraceError> {
        let found = self.returning()?;
        Ok(found
            .filter(|(_, result)| *result == -ERESTARTNOHAND)
            .map(|(number, _)| number))
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

    /// The number that comes with an event: the new thread id for [`super::Stop::Fork`], the former thread id
    /// for [`super::Stop::Exec`].
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

    #[test]
    fn the_info_structure_has_the_kernel_s_size() {
        assert_eq!(size_of::<RawInfo>(), 88);
    }
}
