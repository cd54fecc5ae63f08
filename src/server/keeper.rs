//! A child process that is watched by a thread of its own and never outlives this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::sys::lifetime::die_with_this_thread;

/// How long a killed child may take to go. Only a process stuck in the kernel needs longer; it is left to
/// its fate then.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// A watched child. Dropping it kills the child, with its process group.
///
/// The child leads a process group of its own, so that a terminal's Ctrl-C reaches systally alone, which
/// can then save what it has while its server still runs.
#[derive(Debug)]
pub(super) struct Keeper {
    pid: Pid,
    end: Arc<End>,
    watcher: Option<JoinHandle<()>>,
}

/// The pipes of a child whose command asked for them.
#[derive(Debug)]
pub(super) struct Ends {
    /// Writes to its standard input.
    pub(super) stdin: Option<ChildStdin>,
    /// Reads its standard output.
    pub(super) stdout: Option<ChildStdout>,
    /// Reads its standard error.
    pub(super) stderr: Option<ChildStderr>,
}

#[derive(Debug, Default)]
struct End {
    /// Set in the same critical section in which the child is reaped: as long as it is `None`, the process
    /// id cannot have gone to another process.
    status: Mutex<Option<Ended>>,
    changed: Condvar,
}

/// How a child ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended(
    /// `None` when somebody else took its exit status.
    pub(super) Option<ExitStatus>,
);

impl Keeper {
    /// Starts a command.
    pub(super) fn spawn(mut command: Command) -> io::Result<(Keeper, Ends)> {
        command.process_group(0);
        die_with_this_thread(&mut command);
        let end = Arc::new(End::default());
        let (sender, started) = mpsc::channel();
        let watched = Arc::clone(&end);
        // The thread that forks the child must live as long as the child: see `die_with_this_thread`.
        let watcher = std::thread::Builder::new()
            .name("server-keeper".to_owned())
            .spawn(move || match command.spawn() {
                Ok(mut child) => {
                    let ends = Ends {
                        stdin: child.stdin.take(),
                        stdout: child.stdout.take(),
                        stderr: child.stderr.take(),
                    };
                    let pid = Pid::from_raw(child.id().cast_signed());
                    let _ = sender.send(Ok((pid, ends)));
                    watched.watch(child, pid);
                }
                Err(e) => {
                    let _ = sender.send(Err(e));
                }
            })?;
        match started.recv() {
            Ok(Ok((pid, ends))) => Ok((
                Keeper {
                    pid,
                    end,
                    watcher: Some(watcher),
                },
                ends,
            )),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::other("the thread that starts the server ended early")),
        }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended; `None` while it runs.
    pub(super) fn ended(&self) -> Option<Ended> {
        *self.end.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its end, `limit` at most.
    pub(super) fn wait(&self, limit: Duration) -> Option<Ended> {
        let deadline = Instant::now() + limit;
        let mut status = self.end.status.lock().unwrap_or_else(PoisonError::into_inner);
        while status.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            status = self
                .end
                .changed
                .wait_timeout(status, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *status
    }

    /// Kills it and its process group, and waits until it is gone. Nothing in a private server is worth a
    /// gentler end.
    pub(super) fn kill(&self) {
        {
            let status = self.end.status.lock().unwrap_or_else(PoisonError::into_inner);
            if status.is_none() {
                // It may be gone already, as a zombie that the watcher is about to reap.
                let _ = killpg(self.pid, Signal::SIGKILL);
            }
        }
        self.wait(GONE_LIMIT);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.kill();
        if self.ended().is_some()
            && let Some(watcher) = self.watcher.take()
        {
            let _ = watcher.join();
        }
    }
}

impl End {
    fn watch(&self, mut child: Child, pid: Pid) {
        // WNOWAIT leaves the zombie, so that reaping it can be one step with publishing its end.
        while let Err(Errno::EINTR) = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {}
        // What the child left behind in its group goes with it, while the zombie still holds the group's id.
        let _ = killpg(pid, Signal::SIGKILL);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        *status = Some(Ended(child.wait().ok()));
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    #[test]
    fn an_end_is_seen() {
        let (keeper, _ends) = Keeper::spawn(shell("exit 7")).unwrap();
        let Ended(status) = keeper.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.unwrap().code(), Some(7));
    }

    #[test]
    fn a_drop_kills_the_whole_group() {
        use std::io::{BufRead, BufReader, Read};
        let (keeper, ends) = Keeper::spawn(shell("sleep 600 & echo $!; wait")).unwrap();
        let mut output = BufReader::new(ends.stdout.unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(keeper.ended().is_none());
        drop(keeper);
        // The pipe closes only when the grandchild has gone, too.
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
    }

    #[test]
    fn a_program_that_cannot_run_is_an_error() {
        assert!(Keeper::spawn(Command::new("/nonexistent/program")).is_err());
    }
}
