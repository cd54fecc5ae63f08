//! Starting a program so that a tracer can attach before it executes, and so that a program that cannot
//! be executed is an error of the start and not an exit status.
//!
//! Everything that allocates is done before the fork; the child only makes system calls.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use super::process::keep_children;

/// What to execute.
#[derive(Debug, Clone)]
pub struct Image {
    /// Path of the file; it is not searched for.
    pub path: CString,
    /// Arguments, the program's name first.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=value`.
    pub envp: Vec<CString>,
}

/// How to start it.
#[derive(Debug)]
pub struct Setup<'a> {
    /// What becomes descriptors 0, 1 and 2; `None` keeps systally's own.
    pub stdio: Option<[BorrowedFd<'a>; 3]>,
    /// Make it the leader of a new process group.
    pub own_group: bool,
    /// Kill it when the thread that starts it ends.
    pub die_with_thread: bool,
    /// Its signal mask.
    pub mask: SigSet,
    /// Hold it before exec until [`Child::release`].
    pub hold: bool,
    /// A seccomp filter to install just before exec; empty for none.
    pub filter: &'a [libc::sock_filter],
    /// Set `no_new_privs`, without which only CAP_SYS_ADMIN may install a filter.
    pub no_new_privs: bool,
}

/// A child between fork and exec, or after it.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    line: UnixStream,
}

/// What the child was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Arranging its streams, group or signals.
    Setup,
    /// Installing the filter.
    Filter,
    /// Executing the program.
    Exec,
}

/// Why a program did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartError {
    /// Where.
    pub step: Step,
    /// What the kernel said.
    pub errno: Errno,
}

const STEP_SETUP: u8 = 1;
const STEP_FILTER: u8 = 2;
const STEP_EXEC: u8 = 3;
/// `SECCOMP_FILTER_FLAG_SPEC_ALLOW`: without it, kernels before 5.16 slow the filtered program down by
/// mitigations that it would not have without systally.
const SPEC_ALLOW: libc::c_ulong = 4;

impl Child {
    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets a held child go on to exec.
    ///
    /// # Errors
    /// EPIPE when it has died meanwhile.
    pub fn release(&mut self) -> std::io::Result<()> {
        self.line.write_all(&[1])
    }

    /// Why it did not start; `None` when it has executed the program. Blocks until either is certain,
    /// which a traced child never is before its exec stop.
    pub fn start_error(self) -> Option<StartError> {
        self.report()
    }

    /// As [`Child::start_error`], for a child that is known to have ended.
    pub fn start_error_of_dead(self) -> Option<StartError> {
        // Another fork may still hold a copy of the child's end, so end of file cannot be waited for.
        self.line.set_nonblocking(true).ok()?;
        self.report()
    }

    fn report(mut self) -> Option<StartError> {
        let mut report = [0u8; 5];
        // The line is closed by exec, so a program that runs reads as end of file.
        self.line.read_exact(&mut report).ok()?;
        let step = match report[0] {
            STEP_FILTER => Step::Filter,
            STEP_EXEC => Step::Exec,
            _ => Step::Setup,
        };
        let errno = i32::from_ne_bytes([report[1], report[2], report[3], report[4]]);
        Some(StartError {
            step,
            errno: Errno::from_raw(errno),
        })
    }
}

/// Forks and sets the child up.
///
/// The calling thread becomes its parent in the sense of [`Setup::die_with_thread`] and of
/// `__WNOTHREAD`.
///
/// # Errors
/// What socketpair(2) or fork(2) says.
pub fn spawn(image: &Image, setup: &Setup<'_>) -> std::io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    let argv = pointers(&image.argv);
    let envp = pointers(&image.envp);
    let ignore_children = keep_children();
    let plan = Plan {
        parent: nix::unistd::getpid().as_raw(),
        line: theirs.as_raw_fd(),
        other_end: ours.as_raw_fd(),
        path: image.path.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        stdio: setup.stdio.map(|fds| fds.map(|fd| fd.as_raw_fd())),
        own_group: setup.own_group,
        die_with_thread: setup.die_with_thread,
        hold: setup.hold,
        no_new_privs: setup.no_new_privs,
        filter: libc::sock_fprog {
            len: u16::try_from(setup.filter.len()).unwrap_or(u16::MAX),
            filter: setup.filter.as_ptr().cast_mut(),
        },
        mask: setup.mask,
        ignore_children,
    };
    // SAFETY: the child runs only `Plan::run`, which makes nothing but async-signal-safe calls.
    let forked = unsafe { libc::fork() };
    match forked {
        -1 => Err(std::io::Error::last_os_error()),
        0 => plan.run(),
        pid => {
            let pid = Pid::from_raw(pid);
            if setup.own_group {
                // Also done by the child; here too, so that signals to the group work from now on. It
                // fails once the child has executed, when it is done already.
                let _ = nix::unistd::setpgid(pid, pid);
            }
            Ok(Child { pid, line: ours })
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// Everything the child needs, ready made.
struct Plan {
    parent: libc::pid_t,
    line: RawFd,
    /// The parent's end, of which the child has a copy that would hide the parent's closing it.
    other_end: RawFd,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdio: Option<[RawFd; 3]>,
    own_group: bool,
    die_with_thread: bool,
    hold: bool,
    no_new_privs: bool,
    filter: libc::sock_fprog,
    mask: SigSet,
    /// Whether the child is to find SIGCHLD ignored.
    ignore_children: bool,
}

impl Plan {
    /// The child's life up to exec. Never returns.
    fn run(&self) -> ! {
        // SAFETY: only async-signal-safe system calls with plain numbers and pointers that were made
        // before the fork and are live in the copied memory.
        unsafe {
            // Until it is traced, the child must not outlive the thread that would trace it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            if libc::getppid() != self.parent {
                libc::_exit(127);
            }
            libc::close(self.other_end);
            if self.own_group && libc::setpgid(0, 0) != 0 {
                self.fail(STEP_SETUP);
            }
            if let Some(fds) = self.stdio {
                for (target, fd) in fds.iter().enumerate() {
                    if libc::dup2(*fd, target as RawFd) < 0 {
                        self.fail(STEP_SETUP);
                    }
                }
            }
            if self.hold {
                let mut go = 0u8;
                if libc::read(self.line, (&raw mut go).cast(), 1) != 1 {
                    libc::_exit(127);
                }
            }
            if !self.die_with_thread {
                libc::prctl(libc::PR_SET_PDEATHSIG, 0 as libc::c_ulong);
            }
            self.reset_signals();
            if self.no_new_privs && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0, 0, 0) != 0 {
                self.fail(STEP_FILTER);
            }
            if self.filter.len > 0 {
                let installed = libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER as libc::c_ulong,
                    SPEC_ALLOW,
                    &raw const self.filter,
                );
                if installed != 0 {
                    self.fail(STEP_FILTER);
                }
            }
            libc::execve(self.path, self.argv, self.envp);
            self.fail(STEP_EXEC);
        }
    }

    /// Handlers of systally must not run in the child, and Rust's ignored SIGPIPE must not be inherited.
    /// Signals that systally's own parent chose to ignore stay ignored. All are blocked until here.
    unsafe fn reset_signals(&self) {
        // SAFETY: sigaction with live or null pointers; numbers that cannot be changed give an error.
        unsafe {
            for signal in 1..=64 {
                let mut action: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, ptr::null(), &raw mut action) != 0 {
                    continue;
                }
                let handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
                if handled || signal == libc::SIGPIPE {
                    action.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, &raw const action, ptr::null_mut());
                }
            }
            if self.ignore_children {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::sigprocmask(libc::SIG_SETMASK, self.mask.as_ref(), ptr::null_mut());
        }
    }

    /// Reports the step and errno, and ends.
    unsafe fn fail(&self, step: u8) -> ! {
        // SAFETY: errno of this thread; the buffer is live.
        unsafe {
            let errno = (*libc::__errno_location()).to_ne_bytes();
            let report = [step, errno[0], errno[1], errno[2], errno[3]];
            libc::write(self.line, report.as_ptr().cast(), report.len());
            libc::_exit(127);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn image(path: &str, argv: &[&str]) -> Image {
        Image {
            path: CString::new(path).unwrap(),
            argv: argv.iter().map(|a| CString::new(*a).unwrap()).collect(),
            envp: vec![CString::new("GREETING=hello").unwrap()],
        }
    }

    fn setup<'a>(stdio: Option<[BorrowedFd<'a>; 3]>) -> Setup<'a> {
        Setup {
            stdio,
            own_group: true,
            die_with_thread: true,
            mask: SigSet::empty(),
            hold: false,
            filter: &[],
            no_new_privs: false,
        }
    }

    fn status(pid: Pid) -> i32 {
        super::super::process::wait4(pid.as_raw(), 0, None).unwrap().1
    }

    #[test]
    fn a_program_runs_with_its_environment_and_streams() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let null = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap();
        let streams = [null.as_fd(), write.as_fd(), null.as_fd()];
        let shell = image("/bin/sh", &["sh", "-c", "echo $GREETING; exit 4"]);
        let child = spawn(&shell, &setup(Some(streams))).unwrap();
        let pid = child.pid();
        assert_eq!(child.start_error(), None);
        assert_eq!(libc::WEXITSTATUS(status(pid)), 4);
        drop(write);
        let mut said = String::new();
        std::fs::File::from(read).read_to_string(&mut said).unwrap();
        assert_eq!(said, "hello\n");
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_an_error() {
        for (path, errno) in [("/no/such/file", Errno::ENOENT), ("/etc/passwd", Errno::EACCES)] {
            let child = spawn(&image(path, &["x"]), &setup(None)).unwrap();
            let pid = child.pid();
            assert_eq!(
                child.start_error(),
                Some(StartError {
                    step: Step::Exec,
                    errno
                })
            );
            status(pid);
        }
    }

    #[test]
    fn a_held_child_waits_and_dies_with_its_parent_s_interest() {
        let held = Setup {
            hold: true,
            ..setup(None)
        };
        let mut child = spawn(&image("/bin/true", &["true"]), &held).unwrap();
        let pid = child.pid();
        child.release().unwrap();
        assert_eq!(child.start_error(), None);
        assert_eq!(libc::WEXITSTATUS(status(pid)), 0);

        let dropped = spawn(&image("/bin/true", &["true"]), &held).unwrap();
        let pid = dropped.pid();
        drop(dropped);
        assert_eq!(libc::WEXITSTATUS(status(pid)), 127);
    }
}
