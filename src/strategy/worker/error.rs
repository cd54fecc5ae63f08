//! What can be wrong with workers.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::engine::{EngineError, Exit};
use crate::units::escape;

/// Why a strategy could not be run.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The engine could not start the workers, or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Workers did not do what the contract wants.
    #[error("{}", describe(faults, *workers))]
    Workers {
        /// One for each worker that is known to be at fault, by number; never empty.
        faults: Vec<Fault>,
        /// How many workers there were.
        workers: usize,
    },
    /// The user asked to stop.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// The signal.
        signal: i32,
    },
    /// The pipes to the workers failed.
    #[error("talking to the workers over their pipes: {source}")]
    Pipes {
        /// What poll(2), read(2), write(2) or fcntl(2) said.
        source: nix::errno::Errno,
    },
    /// An earlier error has ended the workers.
    #[error("the workers were ended by an earlier error")]
    Over,
}

impl WorkerError {
    pub(super) fn pipes(source: nix::errno::Errno) -> WorkerError {
        WorkerError::Pipes { source }
    }
}

fn describe(faults: &[Fault], workers: usize) -> String {
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    // One worker may have done several things wrong.
    let failed: BTreeSet<usize> = faults.iter().map(|fault| fault.worker).collect();
    match failed.len() {
        0 | 1 if workers == 1 => first,
        n => format!("{first} ({n} of {workers} workers failed)"),
    }
}

/// When a fault showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Before `ready`.
    StartUp,
    /// Between `go` and `done`.
    Round,
    /// Between two rounds.
    Idle,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::StartUp => "before it was ready",
            Phase::Round => "in its round",
            Phase::Idle => "between its rounds",
        })
    }
}

/// A worker at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its number, from 0.
    pub worker: usize,
    /// Its process id.
    pub pid: i32,
    /// When the fault showed.
    pub phase: Phase,
    /// What was wrong.
    pub problem: Problem,
    /// The end of what it wrote to standard error, 4 KiB at most, without passwords. Not escaped.
    pub stderr: String,
}

/// What was wrong with a worker. Texts from workers are escaped and free of passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It said `fail`.
    Failed {
        /// `spec`, `config` or `connect`.
        class: String,
        /// Its words.
        message: String,
    },
    /// It ended without saying anything.
    Ended {
        /// How; `None` when the engine could not tell.
        exit: Option<Exit>,
    },
    /// It said nothing for too long.
    TimedOut {
        /// How long it had.
        limit: Duration,
        /// The line that it began and did not end.
        unfinished: Option<String>,
    },
    /// It closed its standard output and goes on.
    ClosedOutput,
    /// It wrote a line that is no event.
    Garbage {
        /// The first such line, cut.
        line: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It wrote more than a megabyte that is no event.
    TooMuch {
        /// How much of it was read.
        bytes: usize,
    },
    /// It speaks another protocol.
    WrongProtocol {
        /// Which.
        said: u32,
    },
    /// It said the right thing at the wrong time.
    OutOfOrder {
        /// The event.
        said: &'static str,
    },
    /// Its result cannot be true.
    Miscounted {
        /// Why.
        what: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            worker, pid, phase, ..
        } = self;
        write!(f, "worker {worker} (pid {pid}) ")?;
        match &self.problem {
            Problem::Failed { class, message } => write!(f, "cannot run ({class}): {message}"),
            Problem::Ended { exit: Some(exit) } => write!(
                f,
                "ended {phase}, without an event of the worker contract ({exit})"
            ),
            Problem::Ended { exit: None } => {
                write!(f, "ended {phase}, without an event of the worker contract")
            }
            Problem::TimedOut { limit, unfinished } => {
                write!(f, "gave no answer {phase}, within {:.1} s", limit.as_secs_f64())?;
                match unfinished {
                    Some(line) => write!(f, "; it wrote a line without its end: {line}"),
                    None => Ok(()),
                }
            }
            Problem::ClosedOutput => write!(f, "closed its standard output {phase}, and goes on"),
            Problem::Garbage { line, why } => write!(
                f,
                "wrote {why} {phase}, where only lines of the worker contract have a place: {line}"
            ),
            Problem::TooMuch { bytes } => write!(
                f,
                "wrote {} KiB {phase}, with no event of the worker contract among them",
                bytes >> 10
            ),
            Problem::WrongProtocol { said } => write!(
                f,
                "speaks protocol {said} of the worker contract, but this systally speaks {}",
                crate::strategy::contract::PROTOCOL
            ),
            Problem::OutOfOrder { said } => write!(f, "said {said} {phase}, where it has no place"),
            Problem::Miscounted { what } => write!(f, "gave a result that cannot be true: {what}"),
        }?;
        let words = last_lines(&self.stderr);
        if words.is_empty() {
            Ok(())
        } else {
            write!(f, "; its last words on standard error: {words}")
        }
    }
}

/// The last three lines that say something, on one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.iter()
        .map(|line| escape(line, 160))
        .collect::<Vec<_>>()
        .join(" | ")
}
