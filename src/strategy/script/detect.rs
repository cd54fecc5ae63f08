//! Asks whether a script client can run here.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::proc::own;
use crate::units::escape;

/// How long a detect command may take. Starting an interpreter takes seconds on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(20);

/// How much of its output is read.
const MAX_OUTPUT: usize = 64 << 10;

/// Why a client cannot run here, in one clause.
#[derive(Debug, thiserror::Error)]
pub(super) enum Absent {
    #[error("{program} is not installed")]
    NoProgram { program: String },
    #[error("{program} cannot be run: {source}")]
    CannotRun { program: String, source: io::Error },
    #[error("{program} says no ({status}{said})")]
    Refused {
        program: String,
        status: ExitStatus,
        said: String,
    },
    #[error("{program} gave no answer within {} s", LIMIT.as_secs())]
    TimedOut { program: String },
}

impl Absent {
    /// The limit of this very process that was in the way, and how to raise it.
    pub(super) fn own_limit(&self) -> Option<String> {
        match self {
            Absent::CannotRun { source, .. } => own::errno_of(source).and_then(own::of_fork),
            Absent::NoProgram { .. } | Absent::Refused { .. } | Absent::TimedOut { .. } => None,
        }
    }
}

/// Runs a detect command and returns the first line of its standard output, which is the version.
pub(super) fn version(argv: &[OsString]) -> Result<String, Absent> {
    version_within(argv, LIMIT)
}

fn version_within(argv: &[OsString], limit: Duration) -> Result<String, Absent> {
    let deadline = Instant::now() + limit;
    let (name, args) = argv
        .split_first()
        .map_or((OsString::new(), argv), |(a, b)| (a.clone(), b));
    let program = escape(&name.to_string_lossy(), 60);
    let spawned = Command::new(&name)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Absent::NoProgram { program }),
        Err(source) => return Err(Absent::CannotRun { program, source }),
    };
    let outcome = watch(&mut child, deadline);
    // What it started must not outlive it, however it ended; a group that is gone is no trouble.
    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
    let _ = child.wait();
    match outcome {
        Ok(Some((status, out, _))) if status.success() => Ok(first_line(&out, 60)),
        Ok(Some((status, out, err))) => {
            let words = [err, out]
                .iter()
                .map(|text| first_line(text, 100))
                .find(|line| !line.is_empty());
            Err(Absent::Refused {
                program,
                status,
                said: words.map(|line| format!(": {line}")).unwrap_or_default(),
            })
        }
        Ok(None) => Err(Absent::TimedOut { program }),
        Err(source) => Err(Absent::CannotRun { program, source }),
    }
}

type Answer = (ExitStatus, Vec<u8>, Vec<u8>);

/// Reads both streams until they end and the child with them; `None` when the deadline came first.
fn watch(child: &mut Child, deadline: Instant) -> io::Result<Option<Answer>> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    while Instant::now() < deadline {
        // The child may end while a descendant holds its streams open: look at both.
        if let Some(status) = child.try_wait()? {
            drain(&mut stdout, &mut out)?;
            drain(&mut stderr, &mut err)?;
            return Ok(Some((status, out, err)));
        }
        let step = Duration::from_millis(5).min(deadline.saturating_duration_since(Instant::now()));
        if !(drain(&mut stdout, &mut out)? | drain(&mut stderr, &mut err)?) {
            std::thread::sleep(step);
        }
    }
    Ok(None)
}

/// Reads what is there without waiting; whether there was anything. A stream that ends becomes `None`.
fn drain<R: Read + std::os::fd::AsFd>(stream: &mut Option<R>, kept: &mut Vec<u8>) -> io::Result<bool> {
    let mut any = false;
    while let Some(reader) = stream {
        let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO)? == 0 {
            break;
        }
        let mut block = [0; 4096];
        let n = reader.read(&mut block)?;
        if n == 0 {
            *stream = None;
        } else {
            any = true;
            let room = MAX_OUTPUT.saturating_sub(kept.len());
            kept.extend_from_slice(&block[..n.min(room)]);
            if room == 0 {
                break;
            }
        }
    }
    Ok(any)
}

fn first_line(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    escape(line.unwrap_or_default(), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<String, String> {
        let argv = ["sh", "-c", script].map(OsString::from);
        version_within(&argv, Duration::from_millis(1_500)).map_err(|e| e.to_string())
    }

    #[test]
    fn the_first_line_is_the_version() {
        assert_eq!(sh("echo 5.3.7; echo more"), Ok("5.3.7".into()));
        assert_eq!(sh("printf 5.3.7"), Ok("5.3.7".into()));
        assert_eq!(sh("true"), Ok(String::new()));
        assert_eq!(sh("printf '\\033[1m1.0'"), Ok("\\u{1b}[1m1.0".into()));
    }

    #[test]
    fn refusals_say_why() {
        assert_eq!(sh("exit 1"), Err("sh says no (exit status: 1)".into()));
        assert_eq!(
            sh("echo cannot load it >&2; exit 4"),
            Err("sh says no (exit status: 4: cannot load it)".into())
        );
        let missing = version(&["/nowhere/at/all".into()]).unwrap_err().to_string();
        assert_eq!(missing, "/nowhere/at/all is not installed");
        assert!(version(&["/".into()]).is_err());
        assert!(version(&[]).is_err());
    }

    #[test]
    fn nothing_hangs() {
        assert_eq!(sh("sleep 60"), Err("sh gave no answer within 20 s".into()));
        // It floods both streams and goes on: what is read is bounded, and so is the time.
        assert!(sh("yes & yes >&2 & wait").is_err());
        // It ends, but a descendant keeps the streams open.
        assert_eq!(sh("sleep 60 & echo 1.0"), Ok("1.0".into()));
    }
}
