//! perf_event_open(2) for counting at tracepoints, calls that a counter can be tried on, and a tracefs
//! that nobody else sees.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Whose events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of the calling thread alone, from [`Counter::enable`] on.
    OwnThread,
    /// Those of a process and of every descendant that it makes from now on, from its next exec on.
    Program(i32),
}

/// A counter of one tracepoint. The kernel adds to it; there is no buffer, so nothing can be lost.
#[derive(Debug)]
pub struct Counter(OwnedFd);

/// `struct perf_event_attr` of `PERF_ATTR_SIZE_VER0`, which is all that counting needs.
#[repr(C)]
struct Attribute {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;
const FORMAT_TIME_ENABLED: u64 = 1;
const FORMAT_TIME_RUNNING: u64 = 2;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
/// Counting events of the kernel needs rights; system call tracepoints count as events of the program.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;

impl Counter {
    /// Opens one for the tracepoint of this number. Counters of one group are put on a CPU and taken off it
    /// together, which costs a little less than each by itself; `leader` is the first one of the group.
    ///
    /// # Errors
    /// EACCES or EPERM when it is forbidden, ENOENT or EINVAL when there is no such tracepoint, EMFILE.
    pub fn open(tracepoint: u64, whose: Whose, leader: Option<&Counter>) -> Result<Counter, Errno> {
        let (pid, flags) = match whose {
            Whose::OwnThread => (0, DISABLED),
            Whose::Program(pid) => (pid, DISABLED | INHERIT | ENABLE_ON_EXEC),
        };
        let attribute = Attribute {
            kind: PERF_TYPE_TRACEPOINT,
            size: size_of::<Attribute>() as u32,
            config: tracepoint,
            sample_period: 0,
            sample_type: 0,
            read_format: FORMAT_TIME_ENABLED | FORMAT_TIME_RUNNING,
            flags: flags | EXCLUDE_KERNEL,
            wakeup: 0,
            bp_type: 0,
            config1: 0,
        };
        let leader = leader.map_or(-1, |leader| leader.0.as_raw_fd());
        // SAFETY: the attribute is live and has the size that it states; no CPU (-1), and a live descriptor or
        // no group (-1).
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attribute,
                pid,
                -1,
                leader,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let fd = Errno::result(fd)?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Counts only events for which an expression on the tracepoint's fields holds (`ret == -11`). To be
    /// set before anything is counted.
    ///
    /// # Errors
    /// EINVAL when the kernel does not understand it.
    pub fn filter(&self, expression: &str) -> Result<(), Errno> {
        let expression = CString::new(expression).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the descriptor is a perf event; the expression is a live string with its end.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_SET_FILTER, expression.as_ptr()) };
        Errno::result(done).map(drop)
    }

    /// Begins to count.
    ///
    /// # Errors
    /// What ioctl(2) says.
    pub fn enable(&self) -> Result<(), Errno> {
        // SAFETY: the descriptor is a perf event; the argument is plain.
        Errno::result(unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_ENABLE, 0) }).map(drop)
    }

    /// Stops counting.
    ///
    /// # Errors
    /// What ioctl(2) says.
    pub fn disable(&self) -> Result<(), Errno> {
        // SAFETY: as above.
        Errno::result(unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_DISABLE, 0) }).map(drop)
    }

    /// What it has counted so far, descendants included.
    ///
    /// # Errors
    /// What read(2) says; ENODATA when the kernel did not count all the time, which it always does for
    /// tracepoints.
    pub fn read(&self) -> Result<u64, Errno> {
        let mut bytes = [0u8; 24];
        let read = nix::unistd::read(&self.0, &mut bytes)?;
        let word = |at: usize| {
            let mut word = [0u8; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let [count, enabled, running] = [0, 8, 16].map(word);
        if read == bytes.len() && enabled == running {
            Ok(count)
        } else {
            Err(Errno::ENODATA)
        }
    }
}

/// Makes a system call that has no effect and returns at once, and says whether it did: only calls in a
/// short list can be made harmless. Most of these are given the descriptor -1, and fail.
pub fn make_harmless_call(number: i64) -> bool {
    const ON_DESCRIPTOR: &[i64] = &[
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_preadv,
        libc::SYS_pwritev,
        libc::SYS_sendto,
        libc::SYS_recvfrom,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_sendmmsg,
        libc::SYS_recvmmsg,
        libc::SYS_connect,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_shutdown,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_close,
        libc::SYS_fcntl,
        libc::SYS_ioctl,
        libc::SYS_fstat,
        libc::SYS_lseek,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_ftruncate,
        libc::SYS_flock,
        libc::SYS_dup,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_ctl,
        libc::SYS_getdents64,
        libc::SYS_openat,
        libc::SYS_newfstatat,
        libc::SYS_readlinkat,
    ];
    /// Numbers that newer machines do not have.
    #[cfg(target_arch = "x86_64")]
    const OLD_ON_DESCRIPTOR: &[i64] = &[libc::SYS_epoll_wait];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD_ON_DESCRIPTOR: &[i64] = &[];
    // Calls that take no arguments, that wait for nothing, or that are given a null address or an empty
    // range.
    const ON_NOTHING: &[i64] = &[
        libc::SYS_getppid,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_sched_yield,
        libc::SYS_nanosleep,
        libc::SYS_munmap,
        libc::SYS_mmap,
        libc::SYS_brk,
    ];
    #[cfg(target_arch = "x86_64")]
    const OLD_ON_NOTHING: &[i64] = &[
        libc::SYS_poll,
        libc::SYS_access,
        libc::SYS_open,
        libc::SYS_stat,
        libc::SYS_pipe,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD_ON_NOTHING: &[i64] = &[];
    let first: libc::c_long = if ON_DESCRIPTOR.contains(&number) || OLD_ON_DESCRIPTOR.contains(&number) {
        -1
    } else if ON_NOTHING.contains(&number) || OLD_ON_NOTHING.contains(&number) {
        0
    } else {
        return false;
    };
    // SAFETY: a call from the lists above. With these arguments each either takes none, fails on the
    // descriptor -1 or on a null address before it does anything, or is asked for nothing.
    unsafe { libc::syscall(number, first, 0, 0, 0, 0, 0) };
    true
}

/// Mounts tracefs where no path leads to; it is gone when the descriptor is closed.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENODEV when the kernel has no tracefs, ENOSYS before Linux 5.2.
pub fn private_tracefs() -> Result<OwnedFd, Errno> {
    const FSCONFIG_CMD_CREATE: libc::c_long = 6;
    // FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC.
    const CLOEXEC: libc::c_long = 1;
    // SAFETY: the name is a string with its end; plain numbers otherwise.
    let filesystem = unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), CLOEXEC) };
    // SAFETY: the descriptor is new and nobody else's.
    let filesystem = unsafe { OwnedFd::from_raw_fd(Errno::result(filesystem)? as i32) };
    // SAFETY: the command takes no key, no value and no number.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            filesystem.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<u8>(),
            std::ptr::null::<u8>(),
            0,
        )
    };
    Errno::result(created)?;
    // SAFETY: plain numbers go in, a new descriptor or an error comes out.
    let mount = unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            filesystem.as_raw_fd(),
            CLOEXEC,
            libc::MOUNT_ATTR_RDONLY,
        )
    };
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(Errno::result(mount)? as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_calls_are_made_and_others_are_not() {
        assert!(make_harmless_call(libc::SYS_getppid));
        assert!(make_harmless_call(libc::SYS_close));
        for number in [libc::SYS_exit_group, libc::SYS_kill, libc::SYS_pause, -1] {
            assert!(!make_harmless_call(number));
        }
    }
}
