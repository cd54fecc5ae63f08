//! Processes beyond what nix offers: process descriptors, waiting with resource usage, waking a thread
//! out of a blocking call, and dying the way a child died.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::unistd::Pid;

use crate::units::Nanos;

/// CPU time of a thread group and the children it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// In user mode.
    pub user: Nanos,
    /// In the kernel.
    pub system: Nanos,
}

fn nanos(time: libc::timeval) -> Nanos {
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000)
}

/// wait4(2): the process id and the raw status.
///
/// # Errors
/// What wait4 says.
pub fn wait4(pid: i32, flags: i32, usage: Option<&mut Usage>) -> Result<(i32, i32), Errno> {
    let mut status = 0;
    let Some(usage) = usage else {
        // SAFETY: `status` is live for the call; a null rusage is allowed.
        let found = unsafe { libc::wait4(pid, &raw mut status, flags, std::ptr::null_mut()) };
        return Errno::result(found).map(|pid| (pid, status));
    };
    // SAFETY: rusage is plain numbers, for which zero is a valid value.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right types.
    let found = unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut raw) };
    let pid = Errno::result(found)?;
    *usage = Usage {
        user: nanos(raw.ru_utime),
        system: nanos(raw.ru_stime),
    };
    Ok((pid, status))
}

/// Waits until a child has ended, without reaping it, so that its process id (and its group's) still
/// belongs to it.
///
/// # Errors
/// What waitid(2) says.
pub fn wait_ended(pid: Pid) -> Result<(), Errno> {
    nix::sys::wait::waitid(
        nix::sys::wait::Id::Pid(pid),
        nix::sys::wait::WaitPidFlag::WEXITED
            | nix::sys::wait::WaitPidFlag::WNOWAIT
            | nix::sys::wait::WaitPidFlag::__WALL,
    )
    .map(drop)
}

/// kill(2) with any signal number, real-time ones included; a target that is gone is no error.
pub fn send_signal(target: i32, signal: i32) {
    // SAFETY: plain numbers.
    unsafe {
        libc::kill(target, signal);
    }
}

/// A descriptor of a process: signals through it can never reach another process that was given the same
/// number later.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

/// `PIDFD_SIGNAL_PROCESS_GROUP`, Linux 6.9.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
/// `PIDFD_THREAD`, Linux 6.9.
const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

impl PidFd {
    /// Opens one. The process must be a child that is not reaped yet, or its number could be another's.
    ///
    /// # Errors
    /// ESRCH when there is no such process, ENOSYS before Linux 5.3.
    pub fn open(pid: Pid) -> Result<PidFd, Errno> {
        // SAFETY: plain numbers go in, a new descriptor or an error comes out.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Opens one of a single thread, which need not be the first of its process.
    ///
    /// # Errors
    /// ESRCH when there is no such thread, EINVAL before Linux 6.9.
    pub fn open_thread(tid: Pid) -> Result<PidFd, Errno> {
        // SAFETY: plain numbers go in, a new descriptor or an error comes out.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.as_raw(), PIDFD_THREAD) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// ESRCH when it has ended, EPERM when it runs as someone else.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        self.send(signal, 0)
    }

    /// Sends a signal to the process group that the process leads.
    ///
    /// # Errors
    /// As [`PidFd::signal`]; EINVAL before Linux 6.9.
    pub fn signal_group(&self, signal: i32) -> Result<(), Errno> {
        self.send(signal, SIGNAL_PROCESS_GROUP)
    }

    fn send(&self, signal: i32, flags: libc::c_uint) -> Result<(), Errno> {
        // SAFETY: the descriptor is live, siginfo may be null.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                flags,
            )
        };
        Errno::result(result).map(drop)
    }

    /// A duplicate of one of the process's descriptors (Linux 5.6; needs the right to trace it).
    ///
    /// # Errors
    /// EBADF when it has no such descriptor, EPERM without the right.
    pub fn borrow_descriptor(&self, fd: i32) -> Result<OwnedFd, Errno> {
        // SAFETY: plain numbers go in, a new descriptor or an error comes out.
        let copy = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), fd, 0) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(copy as i32) })
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The address of one side of a socket as raw `sockaddr` bytes.
///
/// # Errors
/// ENOTCONN for the peer of a socket that has none, ENOTSOCK for anything else than a socket.
pub fn socket_address(socket: BorrowedFd<'_>, side: Side) -> Result<Vec<u8>, Errno> {
    let mut bytes = [0u8; 128];
    let mut length = bytes.len() as libc::socklen_t;
    let address = bytes.as_mut_ptr().cast::<libc::sockaddr>();
    // SAFETY: `address` and `length` describe a live buffer; the kernel writes no more than `length`.
    let result = unsafe {
        match side {
            Side::Local => libc::getsockname(socket.as_raw_fd(), address, &raw mut length),
            Side::Peer => libc::getpeername(socket.as_raw_fd(), address, &raw mut length),
        }
    };
    Errno::result(result)?;
    let length = bytes.len().min(length as usize);
    Ok(bytes[..length].to_vec())
}

/// Whether a file gives capabilities to who executes it.
pub fn has_file_capabilities(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings end with NUL; a null buffer of length 0 only asks for the size.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    size > 0
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Our own.
    Local,
    /// The other.
    Peer,
}

/// Makes sure that children of this process can be waited for, and cheaply. Does its work once.
///
/// Whoever started systally may have said to ignore SIGCHLD, and then the kernel keeps no status of a child
/// that ends (wait(2), notes). And without `SA_NOCLDSTOP` it sends the signal at each stop of a tracee too, which
/// makes every counted call a little dearer. Returns whether SIGCHLD was ignored: programs that are started
/// for the user are to find it so.
pub fn keep_children() -> bool {
    static WAS_IGNORED: OnceLock<bool> = OnceLock::new();
    *WAS_IGNORED.get_or_init(|| {
        let was_ignored = is_ignored(libc::SIGCHLD);
        let action = SigAction::new(SigHandler::SigDfl, SaFlags::SA_NOCLDSTOP, SigSet::empty());
        // SAFETY: SIG_DFL is no handler at all. It cannot fail for this signal.
        let _ = unsafe { nix::sys::signal::sigaction(Signal::SIGCHLD, &action) };
        was_ignored
    })
}

/// Leaves SIGCHLD as this process found it, for a program that takes its place.
pub fn ignore_children_again() {
    if keep_children() {
        // SAFETY: SIG_IGN is no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
}

/// The signal that wakes a tracer thread. Its default is to be ignored, so that a stray one harms nobody.
const BELL: Signal = Signal::SIGURG;

/// A thread that can be woken out of a blocking system call: the call then fails with EINTR.
#[derive(Debug, Clone, Copy)]
pub struct Bell {
    thread: Pid,
}

extern "C" fn heard(_: libc::c_int) {}

impl Bell {
    /// The bell of the calling thread.
    ///
    /// # Errors
    /// When the handler cannot be installed.
    pub fn here() -> Result<Bell, Errno> {
        static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
        (*INSTALLED.get_or_init(|| {
            let action = SigAction::new(
                SigHandler::Handler(heard),
                // Without SA_RESTART: the very point is to interrupt.
                SaFlags::empty(),
                SigSet::empty(),
            );
            // SAFETY: the handler does nothing, which is safe at any moment.
            unsafe { nix::sys::signal::sigaction(BELL, &action) }.map(drop)
        }))?;
        keep_children();
        let mut others = SigSet::all();
        others.remove(BELL);
        // The kernel sends SIGCHLD for each tracee that ends. It is dropped at once where it is ignored and
        // not blocked; blocked here, it would wake another thread each time.
        others.remove(Signal::SIGCHLD);
        others.thread_set_mask()?;
        Ok(Bell {
            thread: nix::unistd::gettid(),
        })
    }

    /// Rings it. A ring just before the thread blocks is lost, so ring until it has answered.
    pub fn ring(self) {
        // SAFETY: plain numbers. The thread is one of ours; when it has ended the call fails with ESRCH,
        // and a number given to a new thread of ours only gets an ignored signal.
        unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                nix::unistd::getpid().as_raw(),
                self.thread.as_raw(),
                BELL as i32,
            );
        }
    }
}

/// Whether this process ignores a signal, because its parent said so (nohup, a background job).
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and what is read is live.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    read == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// The signals that people and other programs end a program with.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Gives the signals of [`ENDING`] their default effect again, but for those that are ignored.
pub fn default_signals() {
    for signal in ENDING {
        if !is_ignored(signal) {
            // SAFETY: SIG_DFL is no handler at all.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Takes a variable out of the environment that programs started from here inherit. Does nothing once this
/// process has a second thread, so call it first thing.
pub fn forget_variable(name: &str) {
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if alone {
        // SAFETY: no other thread exists that could read or change the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
}

/// Ends this process by `signal`, as a child of ours ended, without a core file of our own. Returns only
/// when the signal does not kill.
pub fn die_by(signal: i32) {
    // A failure only means that a core file may be written.
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: SIG_DFL is no handler at all; sigemptyset, sigaddset and pthread_sigmask get a live set.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_of_this_process_can_be_borrowed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let me = PidFd::open(nix::unistd::getpid()).unwrap();
        let copy = me.borrow_descriptor(listener.as_raw_fd()).unwrap();
        let address = socket_address(copy.as_fd(), Side::Local).unwrap();
        assert_eq!(address[0..2], (libc::AF_INET as u16).to_ne_bytes());
        assert_eq!(
            u16::from_be_bytes([address[2], address[3]]),
            listener.local_addr().unwrap().port()
        );
        assert_eq!(socket_address(copy.as_fd(), Side::Peer), Err(Errno::ENOTCONN));
        assert_eq!(me.borrow_descriptor(100_000).unwrap_err(), Errno::EBADF);
    }

    #[test]
    fn a_ring_ends_a_blocking_call() {
        let (send, receive) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            send.send(Bell::here().unwrap()).unwrap();
            let (read, _write) = nix::unistd::pipe().unwrap();
            nix::unistd::read(&read, &mut [0u8; 1])
        });
        let bell = receive.recv().unwrap();
        while !sleeper.is_finished() {
            bell.ring();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(sleeper.join().unwrap(), Err(Errno::EINTR));
    }
}
