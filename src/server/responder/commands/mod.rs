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

#[cfg(test)]
mod tests {
    use super::super::request::{Parsed, Parser};
    use super::super::state::Config;
    use super::*;
    use proptest::prelude::*;

    fn state() -> State {
        State::new(Config {
            maxclients: 10,
            requirepass: Vec::new(),
            tcp_backlog: 511,
            port: 1,
            unixsocket: "/s".into(),
        })
    }

    /// Executes everything that `input` holds and returns the replies of each command, until the session
    /// wants to be closed.
    fn feed(state: &mut State, session: &mut Session, input: &[u8]) -> Vec<Vec<u8>> {
        let (mut parser, mut at, mut all) = (Parser::default(), 0, Vec::new());
        while !session.closing {
            match parser.next(&input[at..], session.authenticated) {
                Ok(Parsed::Command(args, taken)) => {
                    let mut out = Vec::new();
                    execute(state, session, &[], args, &mut out);
                    all.push(out);
                    at += taken;
                }
                Ok(Parsed::Nothing(taken)) => at += taken,
                Ok(Parsed::Incomplete) | Err(_) => break,
            }
        }
        all
    }

    fn session() -> Session {
        Session::new(1, 5, "127.0.0.1:2".into(), "127.0.0.1:1".into(), true)
    }

    /// Whether these bytes are whole replies, judged by a parser that is not ours.
    fn is_well_formed(mut bytes: &[u8], protocol: super::super::reply::Protocol) -> bool {
        use super::super::reply::Protocol;
        while !bytes.is_empty() {
            let taken = match protocol {
                Protocol::Resp2 => redis_protocol::resp2::decode::decode(bytes)
                    .ok()
                    .flatten()
                    .map(|(_, n)| n),
                Protocol::Resp3 => redis_protocol::resp3::decode::complete::decode(bytes)
                    .ok()
                    .flatten()
                    .map(|(_, n)| n),
            };
            match taken {
                Some(taken) if taken > 0 => bytes = &bytes[taken..],
                _ => return false,
            }
        }
        true
    }

    fn encode(words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    /// A command of the table, with words that its options know and some that they do not.
    fn command() -> impl Strategy<Value = Vec<u8>> {
        let options = "(?i)(ex|px|exat|nx|xx|get|keepttl|gt|lt|on|off|auth|default|setname|lib-name|id|type|all|save|[0-9-]{1,19}|k[0-2]|\\*)";
        let word = prop_oneof![
            4 => proptest::string::string_regex(options).unwrap().prop_map(String::into_bytes),
            // The other parser wants errors in UTF-8, and an error may quote a word.
            1 => prop::collection::vec(0u8..128, 0..8),
        ];
        (0..TABLE.len(), prop::collection::vec(word, 0..6)).prop_map(|(at, words)| {
            let name = TABLE[at].name.split('|').map(|part| part.as_bytes().to_vec());
            encode(&name.chain(words).collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..400)) {
            feed(&mut state(), &mut session(), &input);
        }

        #[test]
        fn any_commands_have_one_whole_reply_each(commands in prop::collection::vec(command(), 0..30)) {
            let (mut state, mut session) = (state(), session());
            for command in commands {
                let talk = session.talk;
                for reply in feed(&mut state, &mut session, &command) {
                    prop_assert!(
                        is_well_formed(&reply, session.protocol),
                        "{} -> {}", String::from_utf8_lossy(&command), String::from_utf8_lossy(&reply)
                    );
                    prop_assert!(!reply.is_empty() || talk != Talk::On || session.talk != Talk::On);
                }
                if session.closing {
                    break;
                }
            }
        }
    }

    #[test]
    fn other_connections_are_listed() {
        let others = [None, Some(Session::new(7, 9, "/s:0".into(), "/s:0".into(), true))];
        let mut out = Vec::new();
        let (mut state, mut me) = (state(), session());
        let words = [b"CLIENT".as_slice(), b"LIST"].concat();
        execute(
            &mut state,
            &mut me,
            &others,
            Args::new(&words, &[0..6, 6..10]),
            &mut out,
        );
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("id=1 addr=127.0.0.1:2 ") && text.contains("id=7 addr=/s:0 "),
            "{text}"
        );
        assert!(
            text.contains(" flags=U ") && text.contains(" cmd=client|list "),
            "{text}"
        );
    }

    #[test]
    fn a_password_is_wanted_from_those_who_come_after_it() {
        let (mut state, mut first) = (state(), session());
        feed(&mut state, &mut first, b"CONFIG SET requirepass pw\r\n");
        let mut stranger = Session::new(2, 6, "a".into(), "b".into(), false);
        let replies = feed(
            &mut state,
            &mut stranger,
            b"GET k\r\nAUTH no\r\nHELLO 3 AUTH default pw\r\nGET k\r\n",
        );
        let starts: Vec<&[u8]> = replies.iter().map(|reply| &reply[..3]).collect();
        assert_eq!(starts, [&b"-NO"[..], b"-WR", b"%7\r", b"_\r\n"]);
    }
}
