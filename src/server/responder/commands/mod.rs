//! The commands: the table, and how one request is executed.

mod config;
mod connection;
mod keys;
mod strings;
mod table;
mod transaction;

use std::time::Instant;

use super::reply::Replies;
use super::request::Args;
use super::session::{Session, Talk};
use super::state::State;

pub(super) use table::{Spec, TABLE};

/// The most output that one connection may have waiting; beyond it the connection is closed.
pub(super) const MAX_OUTPUT: usize = 1 << 30;

/// One command in execution.
pub(super) struct Call<'a, 'b> {
    /// What all connections share.
    pub(super) state: &'a mut State,
    /// The connection that asks.
    pub(super) session: &'a mut Session,
    /// All other connections.
    pub(super) others: &'a [Option<Session>],
    /// The command's words.
    pub(super) args: Args<'a>,
    /// Where the reply goes.
    pub(super) out: &'a mut Replies<'b>,
}

/// An error reply, without its minus sign and line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure(pub(super) Vec<u8>);

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure(text.as_bytes().to_vec())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure(text.into_bytes())
    }
}

/// What a command's function gives: it has written its reply, or nothing and this error.
pub(super) type Outcome = Result<(), Failure>;

/// Errors that several commands share, in Redis's words.
pub(super) const SYNTAX: &str = "ERR syntax error";
/// A number that is none.
pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// A command before authentication.
const NO_AUTH: &str = "NOAUTH Authentication required.";

/// Executes one request and writes its reply.
pub(super) fn execute(
    state: &mut State,
    session: &mut Session,
    others: &[Option<Session>],
    args: Args<'_>,
    out: &mut Vec<u8>,
) {
    let protocol = session.protocol;
    let mut replies = Replies::new(out, protocol);
    let before = replies.len();
    let talk = session.talk;
    session.active = Instant::now();
    let started = session.active;
    admit(
        &mut Call {
            state,
            session,
            others,
            args,
            out: &mut replies,
        },
        started,
    );
    match talk {
        Talk::On => {}
        // `CLIENT REPLY ON` itself is answered.
        Talk::Off if session.talk == Talk::On => {}
        Talk::Off => replies.truncate(before),
        Talk::SkipNext => {
            replies.truncate(before);
            session.talk = Talk::On;
        }
    }
}

/// Checks a request as Redis does, in its order, then executes or queues it.
fn admit(call: &mut Call<'_, '_>, started: Instant) {
    let command = match find(call.args) {
        Ok(command) => command,
        Err(failure) => return refuse(call, None, &failure),
    };
    let spec = &TABLE[command];
    if !spec.accepts(call.args.len()) {
        return refuse(call, Some(command), &wrong_arity(spec));
    }
    if !call.session.authenticated && !spec.stranger {
        return refuse(call, Some(command), &NO_AUTH.into());
    }
    match &mut call.session.transaction {
        Some(transaction) if !spec.immediate => {
            if transaction.push(command, call.args) {
                call.out.simple("QUEUED");
            } else {
                // As when any input grows beyond what one connection may hold.
                call.session.closing = true;
            }
        }
        _ => run(call, command, started),
    }
}

/// Executes a command of the table and counts it.
fn run(call: &mut Call<'_, '_>, command: usize, started: Instant) {
    let spec = &TABLE[command];
    call.session.last_command = spec.name;
    let outcome = (spec.run)(call);
    let failed = outcome.is_err();
    if let Err(Failure(text)) = outcome {
        call.out.error(&text);
        call.state.stats.error(&text);
    }
    call.state.stats.executed(command, started.elapsed(), failed);
}

/// Refuses a request before execution; an open transaction is lost with it.
fn refuse(call: &mut Call<'_, '_>, command: Option<usize>, failure: &Failure) {
    if let Some(transaction) = &mut call.session.transaction {
        transaction.aborted = true;
    }
    if let Some(command) = command {
        call.state.stats.refused(command);
    }
    call.state.stats.error(&failure.0);
    call.out.error(&failure.0);
}

fn wrong_arity(spec: &Spec) -> Failure {
    format!("ERR wrong number of arguments for '{}' command", spec.name).into()
}

/// The place of a request's command in the table; a subcommand's own when it has one.
fn find(args: Args<'_>) -> Result<usize, Failure> {
    let name = args.get(0);
    let command = table::position(name, None).ok_or_else(|| unknown(args))?;
    let spec = &TABLE[command];
    if !spec.container || args.len() < 2 {
        return Ok(command);
    }
    table::position(args.get(1), Some(spec.name)).ok_or_else(|| {
        let mut text = b"ERR unknown subcommand '".to_vec();
        text.extend_from_slice(shown(args.get(1), 128));
        text.extend_from_slice(format!("'. Try {} HELP.", spec.name.to_uppercase()).as_bytes());
        Failure(text)
    })
}

fn unknown(args: Args<'_>) -> Failure {
    let mut quoted = Vec::new();
    for arg in args.from(1) {
        if quoted.len() >= 128 {
            break;
        }
        let room = 128 - quoted.len();
        quoted.push(b'\'');
        quoted.extend_from_slice(shown(arg, room));
        quoted.extend_from_slice(b"' ");
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(shown(args.get(0), 128));
    text.extend_from_slice(b"', with args beginning with: ");
    text.append(&mut quoted);
    Failure(text)
}

/// An argument in a message: up to a zero byte, `limit` bytes at most.
fn shown(arg: &[u8], limit: usize) -> &[u8] {
    let end = arg.iter().position(|b| *b == 0).unwrap_or(arg.len());
    &arg[..end.min(limit)]
}

/// An argument as a whole number.
fn integer(arg: &[u8]) -> Result<i64, Failure> {
    super::request::integer(arg).ok_or_else(|| NOT_AN_INTEGER.into())
}

/// Whether an argument is this word, in any case.
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

impl Call<'_, '_> {
    /// Whether the reply has grown so large that the connection must go.
    fn overflows(&mut self) -> bool {
        if self.out.len() > MAX_OUTPUT {
            self.session.closing = true;
        }
        self.session.closing
    }
}
