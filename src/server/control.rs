//! The control connection: systally's own conversation with the server, apart from the load.
//!
//! It is opened before the load, so that a server whose connections are all taken still answers, and it
//! keeps account of what it sent, so that the ledger can leave it out.

use std::io::{self, ErrorKind, Read};
use std::time::Instant;

use redis::Value;

use super::error::{OtherProtocol, Trouble, Waiting};
use super::identity;
use super::link::{Link, REPLY_LIMIT, trouble_of};
use super::own::{AUTH, Own, OwnWork, PING};
use crate::strategy::contract::Endpoint;
use crate::units::escape;

/// Longest reply that is read. `INFO all` of a large server has some tens of kilobytes.
const REPLY_BYTES: u64 = 16 << 20;

/// How much of a strange reply is kept to show.
const SHOWN_BYTES: usize = 60;

/// The open connection.
pub(super) struct Control {
    endpoint: Endpoint,
    link: Link,
    parser: redis::Parser,
    own: OwnWork,
    /// Whether a reply is outstanding that nobody waits for any more: the next one read would be taken for
    /// the answer to another command.
    out_of_step: bool,
}

impl Control {
    /// Connects, authenticates when the endpoint has a password, and makes sure that a Redis server
    /// answers.
    pub(super) fn open(endpoint: &Endpoint) -> Result<Control, Trouble> {
        let mut control = Control {
            endpoint: endpoint.clone(),
            link: Link::connect(endpoint)?,
            parser: redis::Parser::new(),
            out_of_step: false,
            own: OwnWork {
                connections: 1,
                ..OwnWork::default()
            },
        };
        control.greet()?;
        Ok(control)
    }

    /// Asks PING first, so that a password goes only to what answers as Redis does, and again after AUTH,
    /// which a server allows while it is loading.
    fn greet(&mut self) -> Result<(), Trouble> {
        let (user, password) = self.endpoint.credentials();
        let Some(password) = password else {
            return self.ping();
        };
        let words: Vec<String> = user.into_iter().chain([password]).map(str::to_owned).collect();
        match self.ping() {
            Ok(()) | Err(Trouble::AuthNeeded) => {}
            Err(other) => return Err(other),
        }
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        match self.call(AUTH, &words) {
            Ok(_) => self.ping(),
            // Only the error's code: a server without AUTH quotes the arguments in its error.
            Err(Trouble::Refusal(said)) => {
                let code = said.split(' ').next().unwrap_or_default();
                Err(Trouble::AuthRefused(code.to_owned()))
            }
            Err(other) => Err(other),
        }
    }

    fn ping(&mut self) -> Result<(), Trouble> {
        match self.call(PING, &[]) {
            Ok(Value::SimpleString(said)) if said.eq_ignore_ascii_case("pong") => Ok(()),
            Ok(other) => {
                let said = identity::text(&other).unwrap_or_else(|| format!("{other:?}"));
                let begins = escape(&said, SHOWN_BYTES);
                Err(Trouble::NotRedis {
                    begins,
                    looks_like: None,
                })
            }
            // An ACL user may lack the right to PING and still do everything else.
            Err(Trouble::Refusal(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Sends one command and reads its reply. Replies that are errors come back as [`Trouble`].
    ///
    /// An idle connection may have been closed by the server's `timeout`; so one that is found closed is
    /// opened once more, and one whose last reply was not waited for is opened anew. Every command used here
    /// may be sent twice without harm.
    pub(super) fn ask(&mut self, own: Own, args: &[&[u8]]) -> Result<Value, Trouble> {
        if self.out_of_step {
            self.open_again()?;
        }
        match self.call(own, args) {
            Err(Trouble::Closed) => {
                self.open_again()?;
                self.call(own, args)
            }
            other => other,
        }
    }

    fn open_again(&mut self) -> Result<(), Trouble> {
        self.link = Link::connect(&self.endpoint)?;
        self.parser = redis::Parser::new();
        self.out_of_step = false;
        self.own.connections += 1;
        self.greet()
    }

    /// What was done so far, the last command included.
    pub(super) fn own(&self) -> &OwnWork {
        &self.own
    }

    /// Address of this connection's endpoint.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The link, for questions about the process at its other end.
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    fn call(&mut self, own: Own, args: &[&[u8]]) -> Result<Value, Trouble> {
        let mut command = redis::Cmd::new();
        for word in own.words {
            command.arg(*word);
        }
        for arg in args {
            command.arg(*arg);
        }
        // A server that refuses a connection says why and closes it; the words can still be read when
        // the write finds it closed.
        let sent = self.link.send(&command.get_packed_command());
        if let Err(trouble @ Trouble::TimedOut(..)) = sent {
            self.out_of_step = true;
            return Err(trouble);
        }
        let mut incoming = Incoming::new(&mut self.link);
        let parsed = self.parser.parse_value(&mut incoming);
        let trouble = match parsed {
            Ok(Value::ServerError(error)) => {
                let text = match error.details() {
                    Some(details) => format!("{} {details}", error.code()),
                    None => error.code().to_owned(),
                };
                *self.own.failed.entry(own.stat).or_default() += 1;
                refusal(&text)
            }
            Ok(value) => {
                *self.own.calls.entry(own.stat).or_default() += 1;
                return Ok(value);
            }
            Err(error) => {
                self.out_of_step = true;
                incoming.explain(&error)
            }
        };
        Err(match (sent, trouble) {
            (Err(sent), Trouble::Closed) => sent,
            (_, trouble) => trouble,
        })
    }
}

/// What a server means by an error reply.
fn refusal(text: &str) -> Trouble {
    let code = text.split(' ').next().unwrap_or_default();
    match code {
        "NOAUTH" => Trouble::AuthNeeded,
        "WRONGPASS" => Trouble::AuthRefused("WRONGPASS".to_owned()),
        "LOADING" => Trouble::Loading,
        "DENIED" => Trouble::ProtectedMode,
        // Servers before 6 have no code of their own for these.
        "ERR" if text.contains("max number of clients") => Trouble::MaxClients,
        "ERR" if text.contains("invalid password") => Trouble::AuthRefused("invalid password".to_owned()),
        "ERR" if text.contains("without any password configured") || text.contains("no password is set") => {
            Trouble::AuthRefused("it has no password set; leave out -a and REDISCLI_AUTH".to_owned())
        }
        _ => Trouble::Refusal(escape(text, 200)),
    }
}

/// Reads one reply: no longer than [`REPLY_LIMIT`] in all, no more than [`REPLY_BYTES`].
struct Incoming<'a> {
    link: &'a mut Link,
    deadline: Instant,
    left: u64,
    begins: Vec<u8>,
    failure: Option<Trouble>,
}

impl<'a> Incoming<'a> {
    fn new(link: &'a mut Link) -> Self {
        Incoming {
            link,
            deadline: Instant::now() + REPLY_LIMIT,
            left: REPLY_BYTES,
            begins: Vec::new(),
            failure: None,
        }
    }

    /// Why parsing stopped: what the socket said, or else that the bytes are no reply.
    fn explain(&mut self, error: &redis::RedisError) -> Trouble {
        if let Some(failure) = self.failure.take() {
            return failure;
        }
        let looks_like = OtherProtocol::guess(&self.begins);
        if self.begins.is_empty() && error.is_io_error() {
            return Trouble::Closed;
        }
        let begins = escape(&String::from_utf8_lossy(&self.begins), SHOWN_BYTES);
        Trouble::NotRedis { begins, looks_like }
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = self.deadline.saturating_duration_since(Instant::now());
        if limit.is_zero() || self.left == 0 {
            self.failure = Some(match self.left {
                0 => Trouble::Refusal(format!("a reply longer than {} MiB", REPLY_BYTES >> 20)),
                _ => Trouble::TimedOut(Waiting::Reply, REPLY_LIMIT),
            });
            return Err(ErrorKind::TimedOut.into());
        }
        match self.link.receive(buffer, limit) {
            Ok(n) => {
                self.left = self.left.saturating_sub(n as u64);
                let room = SHOWN_BYTES.saturating_sub(self.begins.len()).min(n);
                self.begins.extend_from_slice(&buffer[..room]);
                Ok(n)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Err(e),
            Err(e) => {
                let kind = e.kind();
                self.failure = Some(trouble_of(e, Waiting::Reply, REPLY_LIMIT));
                Err(kind.into())
            }
        }
    }
}
