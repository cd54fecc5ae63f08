//! The control connection: systally's own conversation with the server, apart from the load.
//!
//! It is opened before the load, so that a server whose connections are all taken still answers, and it
//! keeps account of what it sent, so that the ledger can leave it out.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use redis::Value;

use super::error::{OtherProtocol, Trouble, Waiting};
use super::identity;
use crate::strategy::contract::Endpoint;
use crate::units::escape;

/// Longest wait for a connection, the resolver included.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for a reply.
pub(super) const REPLY_LIMIT: Duration = Duration::from_secs(5);
/// Longest reply that is read. `INFO all` of a large server has some tens of kilobytes.
const REPLY_BYTES: u64 = 16 << 20;
/// How much of a strange reply is kept to show.
const SHOWN_BYTES: usize = 60;

/// What the control connection did, in the server's terms: calls by command, `config|get` for a
/// subcommand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OwnWork {
    /// Calls that went well.
    pub(super) calls: BTreeMap<&'static str, u64>,
    /// Calls that were refused or failed.
    pub(super) failed: BTreeMap<&'static str, u64>,
    /// Connections made.
    pub(super) connections: u64,
}

/// One command of the control connection; the names are those of `INFO commandstats`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// How the server's statistics name it.
    pub(super) stat: &'static str,
    /// The words that make it.
    pub(super) words: &'static [&'static str],
}

/// `PING`.
pub(super) const PING: Own = Own {
    stat: "ping",
    words: &["PING"],
};
/// `AUTH`; its arguments never appear in a message.
const AUTH: Own = Own {
    stat: "auth",
    words: &["AUTH"],
};
/// `INFO all`: `server`, `clients`, `stats` and `commandstats` in one reply, hence of one moment.
pub(super) const INFO: Own = Own {
    stat: "info",
    words: &["INFO", "all"],
};
/// `CONFIG GET`.
pub(super) const CONFIG_GET: Own = Own {
    stat: "config|get",
    words: &["CONFIG", "GET"],
};
/// `DEL`.
pub(super) const DEL: Own = Own {
    stat: "del",
    words: &["DEL"],
};

/// `CLUSTER ADDSLOTS`.
pub(super) const ADD_SLOTS: Own = Own {
    stat: "cluster|addslots",
    words: &["CLUSTER", "ADDSLOTS"],
};
/// `CLUSTER SET-CONFIG-EPOCH`.
pub(super) const SET_EPOCH: Own = Own {
    stat: "cluster|set-config-epoch",
    words: &["CLUSTER", "SET-CONFIG-EPOCH"],
};
/// `CLUSTER MEET`.
pub(super) const MEET: Own = Own {
    stat: "cluster|meet",
    words: &["CLUSTER", "MEET"],
};
/// `CLUSTER INFO`.
pub(super) const CLUSTER_INFO: Own = Own {
    stat: "cluster|info",
    words: &["CLUSTER", "INFO"],
};

/// `EXISTS`.
pub(super) const EXISTS: Own = Own {
    stat: "exists",
    words: &["EXISTS"],
};

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

/// The socket of a control connection.
#[derive(Debug)]
pub(super) enum Link {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
}

impl Link {
    /// Connects, waiting for [`CONNECT_LIMIT`] at most.
    pub(super) fn connect(endpoint: &Endpoint) -> Result<Link, Trouble> {
        let deadline = Instant::now() + CONNECT_LIMIT;
        let link = match endpoint {
            Endpoint::Tcp { host, port, .. } => Link::Tcp(connect_tcp(host, *port, deadline)?),
            Endpoint::Unix { path, .. } => Link::Unix(connect_unix(path, deadline)?),
        };
        match &link {
            Link::Tcp(stream) => stream
                .set_nodelay(true)
                .and_then(|()| stream.set_write_timeout(Some(REPLY_LIMIT))),
            Link::Unix(stream) => stream.set_write_timeout(Some(REPLY_LIMIT)),
        }
        .map_err(Trouble::Io)?;
        Ok(link)
    }

    /// Sends everything, waiting for [`REPLY_LIMIT`] at most.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self {
            Link::Tcp(stream) => stream.write_all(bytes),
            Link::Unix(stream) => stream.write_all(bytes),
        }
        .map_err(|e| trouble_of(e, Waiting::Reply, REPLY_LIMIT))
    }

    /// Receives what there is, waiting for `limit` at most.
    pub(super) fn receive(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        match self {
            Link::Tcp(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(buffer)
            }
            Link::Unix(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(buffer)
            }
        }
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

/// What a failed call on the socket means.
pub(super) fn trouble_of(error: io::Error, waiting: Waiting, limit: Duration) -> Trouble {
    match error.kind() {
        ErrorKind::ConnectionRefused => Trouble::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Trouble::Closed,
        // A socket's own time-out ends a read with EAGAIN (socket(7), SO_RCVTIMEO).
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Trouble::TimedOut(waiting, limit),
        _ => Trouble::Io(error),
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, Trouble> {
    let mut last = None;
    for address in resolve(host, port)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = Some(trouble_of(e, Waiting::Connect, CONNECT_LIMIT)),
        }
    }
    Err(last.unwrap_or(Trouble::TimedOut(Waiting::Connect, CONNECT_LIMIT)))
}

/// Addresses of a host. The resolver has no time-out of its own that would suit, so it runs in a thread,
/// which is left behind when it is late.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Trouble> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (sender, answer) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let found = (name.as_str(), port)
                .to_socket_addrs()
                .map(|all| all.collect::<Vec<_>>());
            // Nobody listens any more when the answer came too late.
            let _ = sender.send(found);
        })
        .map_err(Trouble::Io)?;
    match answer.recv_timeout(CONNECT_LIMIT) {
        Ok(Ok(found)) if !found.is_empty() => Ok(found),
        Ok(Ok(_)) => Err(Trouble::NameNotFound("it has no address".to_owned())),
        Ok(Err(e)) => Err(Trouble::NameNotFound(escape(&e.to_string(), 120))),
        Err(_) => Err(Trouble::TimedOut(Waiting::Name, CONNECT_LIMIT)),
    }
}

/// Connects without ever blocking: a blocking connect waits without end when the listener's queue is full
/// and nobody accepts.
fn connect_unix(path: &str, deadline: Instant) -> Result<UnixStream, Trouble> {
    let address = UnixAddr::new(path).map_err(|e| Trouble::Io(e.into()))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(|e| Trouble::Io(e.into()))?;
    loop {
        match connect(fd.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(errno) => return Err(unix_trouble(errno, path)),
        }
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false).map_err(Trouble::Io)?;
    Ok(stream)
}

fn unix_trouble(errno: Errno, path: &str) -> Trouble {
    use std::os::unix::fs::FileTypeExt;
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => Trouble::PathMissing,
        Errno::EACCES | Errno::EPERM => Trouble::NotPermitted,
        Errno::EAGAIN => Trouble::TimedOut(Waiting::Queue, CONNECT_LIMIT),
        // The kernel refuses for any file that nobody listens on, sockets or not.
        Errno::ECONNREFUSED => match std::fs::metadata(path) {
            Ok(meta) if !meta.file_type().is_socket() => Trouble::NotASocket,
            _ => Trouble::StaleSocket,
        },
        Errno::EPROTOTYPE => Trouble::NotASocket,
        other => Trouble::Io(other.into()),
    }
}
