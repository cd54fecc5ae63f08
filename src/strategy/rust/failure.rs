//! What goes wrong in a worker, in the words of the contract.

use std::collections::BTreeMap;
use std::io;

use crate::strategy::contract::Event;
use crate::tally::Errno;
use crate::units::escape;

/// Different failures kept apart in a round; further ones are added up.
const MAX_KINDS: usize = 64;

/// Why a worker cannot begin: a `fail` line.
#[derive(Debug)]
pub(super) struct Fail {
    class: &'static str,
    message: String,
}

impl Fail {
    /// The specification asks for what this worker cannot do.
    pub(super) fn spec(message: impl Into<String>) -> Fail {
        Fail {
            class: "spec",
            message: message.into(),
        }
    }

    /// The server cannot be reached, or refuses.
    pub(super) fn connect(server: &impl std::fmt::Display, why: &Failure) -> Fail {
        Fail {
            class: "connect",
            message: format!("{server}: {}", why.message),
        }
    }

    /// This machine or this server is not fit for the work.
    pub(super) fn config(message: impl Into<String>) -> Fail {
        Fail {
            class: "config",
            message: message.into(),
        }
    }

    /// The line to write.
    pub(super) fn event(&self, redact: impl Fn(&str) -> String) -> Event {
        Event::Fail {
            class: self.class.to_owned(),
            message: escape(&redact(&self.message), 400),
        }
    }
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// What was being done (`connect`, `send`, `receive`), or whose word it is (`ServerError`).
    pub(super) class: &'static str,
    /// What happened.
    pub(super) message: String,
    /// Whether the connection is of no more use, or a wait has run out: the round ends here. Trying on
    /// would only count the same failure until `max_errors`, each time after the same wait.
    pub(super) last: bool,
}

impl Failure {
    /// The server answered with an error; the connection is as good as before.
    pub(super) fn server(words: &str) -> Failure {
        Failure {
            class: "ServerError",
            message: words.to_owned(),
            last: false,
        }
    }

    /// The server answered something else than it should.
    pub(super) fn wrong_reply(command: &str, what: &str) -> Failure {
        Failure {
            class: "WrongReply",
            message: format!("{command} returned another {what}"),
            last: false,
        }
    }

    /// The operating system's answer, by its errno: `ECONNREFUSED Connection refused`.
    pub(super) fn io(class: &'static str, error: &io::Error) -> Failure {
        let message = match (error.raw_os_error(), error.kind()) {
            // On a blocking socket EAGAIN is how SO_RCVTIMEO and SO_SNDTIMEO run out; on a UNIX connect it
            // can also be a full backlog, and the caller's class tells them apart.
            (Some(code), io::ErrorKind::WouldBlock) if class != "connect" => {
                format!(
                    "{} no answer within {} s",
                    Errno(code).name(),
                    super::job::WAIT.as_secs()
                )
            }
            (Some(code), _) => format!(
                "{} {}",
                Errno(code).name(),
                nix::errno::Errno::from_raw(code).desc()
            ),
            (None, io::ErrorKind::TimedOut) => {
                format!("ETIMEDOUT no answer within {} s", super::job::WAIT.as_secs())
            }
            (None, io::ErrorKind::UnexpectedEof) => "the server closed the connection".to_owned(),
            (None, _) => error.to_string(),
        };
        Failure {
            class,
            message,
            last: true,
        }
    }
}

/// Failed operations of a round, by `class:message`.
#[derive(Debug, Default)]
pub(super) struct Failures {
    by_kind: BTreeMap<String, u64>,
    total: u64,
    last: bool,
}

impl Failures {
    /// Counts `operations` that failed for this reason.
    pub(super) fn add(&mut self, failure: &Failure, operations: usize) {
        let operations = operations as u64;
        self.total += operations;
        self.last |= failure.last;
        let mut kind = format!("{}:{}", failure.class, escape(&failure.message, 120));
        if self.by_kind.len() >= MAX_KINDS && !self.by_kind.contains_key(&kind) {
            kind = "other:failures of more kinds than are kept apart".to_owned();
        }
        *self.by_kind.entry(kind).or_default() += operations;
    }

    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether one of them ends the round.
    pub(super) fn ends_the_round(&self) -> bool {
        self.last
    }

    /// Some failure, for a message.
    pub(super) fn first(&self) -> Option<&str> {
        self.by_kind.keys().next().map(String::as_str)
    }

    /// By kind, as a `done` line has them.
    pub(super) fn by_kind(&self, redact: impl Fn(&str) -> String) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        for (kind, n) in &self.by_kind {
            *out.entry(redact(kind)).or_default() += n;
        }
        out
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Failures::default();
    }
}
