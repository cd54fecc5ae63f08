//! The commands: one short file each. Only this folder writes to standard output.

pub mod arm;
mod attach;
pub mod bench;
pub mod calls;
pub mod count;
mod count_args;
mod count_engine;
mod count_ops;
mod count_output;
mod count_result;
mod count_server;
mod count_signals;
pub mod counting;
pub mod explain;
pub mod import;
pub mod list;
mod outputs;
pub mod preflight;
mod progress;
pub mod prove;
pub mod responder;
mod scenario;
pub mod schema;
pub mod secrets;
mod servers;
pub mod setup;
pub mod terminal;
pub mod usage;
pub mod worker;
mod written_keys;

use std::io::{self, Write};
use std::sync::Arc;

use nix::errno::Errno;
use signal_hook::consts::SIGXFSZ;

use crate::proc::own;
use crate::sys::process::is_ignored;
use crate::units::escape;

/// How systally ends; the same numbers for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// 0: all went well.
    Ok,
    /// 1: a strategy or a run failed.
    Failed,
    /// 2: wrong usage or unusable input.
    Usage,
    /// 4: preflight found that the load does not fit.
    DoesNotFit,
    /// 5: a result is there but not whole: interrupted, or not confirmed by the server.
    Incomplete,
    /// 6: nothing may be measured here.
    CannotMeasure,
    /// The status of the program that `count` ran.
    Child(u8),
}

impl Code {
    /// The number handed to the caller's shell.
    pub fn number(self) -> u8 {
        match self {
            Code::Ok => 0,
            Code::Failed => 1,
            Code::Usage => 2,
            Code::DoesNotFit => 4,
            Code::Incomplete => 5,
            Code::CannotMeasure => 6,
            Code::Child(status) => status,
        }
    }
}

/// An error on its way to `main`, which prints it once, with the code to end with.
#[derive(Debug)]
pub struct CommandError {
    /// The exit code.
    pub code: Code,
    /// What went wrong, with its causes.
    pub error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        CommandError {
            code: Code::Failed,
            error: error.into(),
        }
    }
}

/// What a command returns.
pub type CommandResult = Result<Code, CommandError>;

/// Gives an error the code it ends with.
pub trait WithCode<T> {
    /// Turns an error into a [`CommandError`] with this code.
    ///
    /// # Errors
    /// The error it was called on.
    fn code(self, code: Code) -> Result<T, CommandError>;
}

impl<T, E: Into<anyhow::Error>> WithCode<T> for Result<T, E> {
    fn code(self, code: Code) -> Result<T, CommandError> {
        self.map_err(|error| CommandError {
            code,
            error: error.into(),
        })
    }
}

/// Makes a file that grows beyond the limit of file sizes (`ulimit -f`) an error of the write, where the signal
/// would end systally with everything that it has found out. Programs that systally starts get the signal as
/// ever: a handler does not outlive execve(2).
pub fn heed_size_limits() {
    if !is_ignored(SIGXFSZ) {
        // Without it the limit ends systally, as it would any program.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Refuses to begin where there is no `/proc`.
///
/// # Errors
/// What mounts it, with the code for what cannot be measured.
fn need_proc() -> Result<(), CommandError> {
    own::need_proc()
        .map_err(|why| anyhow::anyhow!("cannot measure: {why}"))
        .code(Code::CannotMeasure)
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    delivered(out.write_all(text.as_bytes()).and_then(|()| out.flush()), |e| {
        format!("cannot write to standard output: {e}")
    })
}

/// A result that nobody reads any more is no error.
fn delivered(written: io::Result<()>, says: impl Fn(&io::Error) -> String) -> io::Result<()> {
    match written {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(io::Error::new(e.kind(), says(&e))),
        Err(_) | Ok(()) => Ok(()),
    }
}

/// Writes a result to standard error, where the output of a program that runs has standard output. A reader that
/// went away is no error.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn print_beside(text: &str) -> io::Result<()> {
    delivered(writeln!(io::stderr().lock(), "{text}"), |e| {
        format!("cannot write the result to standard error: {e}; -o FILE keeps it")
    })
}

/// Writes a line to standard error; nobody can be told when that fails.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The longest line of an error that is shown whole.
const LONGEST_ERROR_LINE: usize = 4_000;

/// An error and its causes in one line, without control characters; a cause that the error quotes already is not repeated.
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    if let Some(limit) = error.chain().find_map(own_limit) {
        text.push_str("; ");
        text.push_str(&limit);
    }
    // File names in messages may hold anything; the lines of a message are its own.
    text.lines()
        .map(|line| escape(line, LONGEST_ERROR_LINE))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The limit of this very process that a cause of an error tells of.
fn own_limit(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    let errno = match cause.downcast_ref::<io::Error>() {
        Some(error) => own::errno_of(error),
        None => cause.downcast_ref::<Errno>().copied(),
    };
    own::of(errno?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_limit_of_our_own_is_named_with_its_cure() {
        let error = anyhow::Error::from(Errno::EMFILE).context("cannot open x");
        let text = describe(&error);
        assert_eq!(
            text.matches("raise that with ulimit -n 1024").count(),
            1,
            "{text}"
        );
        let error = anyhow::Error::from(io::Error::from_raw_os_error(libc::EMFILE)).context("cannot open x");
        assert!(describe(&error).contains("raise that with ulimit -n 1024"));
        assert!(!describe(&anyhow!("x").context("y")).contains("ulimit"));
    }

    #[test]
    fn a_quoted_cause_is_said_once() {
        let error = anyhow!("no such file")
            .context("cannot open x: no such file")
            .context("starting");
        assert_eq!(describe(&error), "starting: cannot open x: no such file");
        assert_eq!(
            describe(&anyhow!("a\u{1b}[31m: no such file")),
            "a\\u{1b}[31m: no such file"
        );
    }
}
