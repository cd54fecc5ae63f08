//! Children that cannot outlive the thread that started them.

#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

/// Makes the kernel send SIGKILL to the child when the thread that spawns it ends, however it ends.
///
/// The kernel ties this to the *thread*, not to the process (prctl(2), `PR_SET_PDEATHSIG`), so the command
/// must be spawned from a thread that lives as long as the child should. A child whose parent died before
/// it could ask for the signal does not start: `spawn` reports `ESRCH`.
pub fn die_with_this_thread(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let ask = move || -> io::Result<()> {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() == parent {
            Ok(())
        } else {
            Err(Errno::ESRCH.into())
        }
    };
    // SAFETY: the closure runs between fork and exec. It makes two system calls, prctl and getppid, and
    // neither allocates nor takes a lock, on its error path either.
    unsafe { command.pre_exec(ask) }
}
