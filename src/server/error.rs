//! What can go wrong with a server, each with its cause and the next step.

use std::fmt;
use std::io;
use std::time::Duration;

use nix::errno::Errno;

use super::health::Health;
use super::locate::NotFound;
use crate::folder::NoFolder;
use crate::proc::own;

/// A server that cannot be started or used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be used.
    #[error("cannot use the server at {endpoint}: {trouble}")]
    Unusable {
        /// Its address, escaped, without a password.
        endpoint: String,
        /// What is wrong.
        trouble: Trouble,
    },
    /// It worked and then did not.
    #[error("the server at {endpoint} does not answer any more: {trouble}{}", aside(health.as_ref()))]
    Lost {
        /// Its address.
        endpoint: String,
        /// What is wrong.
        trouble: Trouble,
        /// Whether it is still alive, for a private one.
        health: Option<Health>,
    },
    /// Two addresses were named and lead to two servers.
    #[error("{first} and {second} lead to two different servers; name only one of them")]
    TwoServers {
        /// One address.
        first: String,
        /// The other.
        second: String,
    },
    /// No endpoint was given.
    #[error("no server was named; give -h and -p, -s or -u")]
    NoEndpoint,
    /// A server that shall run in a network namespace of its own, and cannot.
    #[error("no server in a network namespace of its own: {why}")]
    NoOwnNetwork {
        /// Why.
        why: &'static str,
    },
    /// A server program was asked for that is not there.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A server program was found and did not start.
    #[error("{program} did not start: {health}; {}", cure("correct that"))]
    NotStarted {
        /// Path of the program, escaped.
        program: String,
        /// How it ended, with its last words.
        health: Health,
    },
    /// A server program started and never became ready.
    #[error(
        "{program} did not answer within {} s after its start: {health}; {}",
        limit.as_secs(),
        cure("try again")
    )]
    NotReady {
        /// Path of the program, escaped.
        program: String,
        /// How long it was given.
        limit: Duration,
        /// What is known of it, with its last words.
        health: Health,
    },
    /// The program could not be executed at all.
    #[error("cannot run {program}: {source}{}", no_fork(source))]
    Spawn {
        /// Path of the program, escaped.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No folder for the private server.
    #[error(transparent)]
    Folder(#[from] NoFolder),
    /// A cluster was needed where only the built-in server is.
    #[error(
        "the built-in server cannot be a node of a cluster; install redis-server, and leave out --builtin-server"
    )]
    NoClusterHere,
    /// The nodes of a cluster do not come together.
    #[error("the private cluster did not become ready within {} s: {state}; see `systally list` for strategies without one", limit.as_secs())]
    NoCluster {
        /// How long it was given.
        limit: Duration,
        /// What a node said of it last, escaped.
        state: String,
    },
    /// A reply that makes no sense for the command.
    #[error(
        "the server at {endpoint} answered {command} in a way that systally does not understand: {reply}"
    )]
    Answer {
        /// Its address.
        endpoint: String,
        /// The command.
        command: &'static str,
        /// What came, escaped.
        reply: String,
    },
    /// Ctrl-C or its kin while starting.
    #[error("interrupted while the server was starting")]
    Interrupted,
}

/// What helps a server that does not start: a limit of this process that it inherits, else what it said.
fn cure(step: &str) -> String {
    own::tight().unwrap_or_else(|| format!("{step}, or do without it with --builtin-server"))
}

/// Why no process could be started for it, where that is a limit on processes. One on open files is told
/// where errors are printed.
fn no_fork(source: &io::Error) -> String {
    match own::errno_of(source) {
        Some(errno @ (Errno::EAGAIN | Errno::ENOMEM)) => own::of_fork(errno)
            .map(|limit| format!("; {limit}"))
            .unwrap_or_default(),
        Some(_) | None => String::new(),
    }
}

fn aside(health: Option<&Health>) -> String {
    health.map(|health| format!(" ({health})")).unwrap_or_default()
}

/// Why a connection or a command failed. Displays as cause, semicolon, next step.
#[derive(Debug)]
pub enum Trouble {
    /// Nothing listens there.
    Refused,
    /// Nothing listens on the UNIX socket: a file that its server left behind.
    StaleSocket,
    /// The socket's path does not exist.
    PathMissing,
    /// The path exists and is no socket.
    NotASocket,
    /// The path may not be used by this user.
    NotPermitted,
    /// The host name means nothing; what the resolver said.
    NameNotFound(String),
    /// A wait was over before its answer came; what was waited for.
    TimedOut(Waiting, Duration),
    /// What answers there does not speak RESP.
    NotRedis {
        /// The first bytes, escaped; empty when it only closed the connection.
        begins: String,
        /// What it looks like.
        looks_like: Option<OtherProtocol>,
    },
    /// What answers there does not speak memcached's text protocol.
    NotMemcached {
        /// The first bytes, escaped.
        begins: String,
        /// What it looks like.
        looks_like: Option<OtherProtocol>,
    },
    /// A password is needed.
    AuthNeeded,
    /// The password or user was refused; the server's words.
    AuthRefused(String),
    /// The data set is still being loaded.
    Loading,
    /// All connections that the server allows are taken.
    MaxClients,
    /// Protected mode keeps other hosts out.
    ProtectedMode,
    /// The server closed the connection.
    Closed,
    /// Any other refusal, in the server's words, escaped.
    Refusal(String),
    /// Any other failure of the connection.
    Io(io::Error),
}

/// What a time-out was waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The resolver.
    Name,
    /// The connection.
    Connect,
    /// Room in the queue of a UNIX listener.
    Queue,
    /// A reply.
    Reply,
}

/// A protocol that a reply looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherProtocol {
    /// HTTP.
    Http,
    /// TLS.
    Tls,
    /// memcached's text protocol.
    Memcached,
    /// SSH.
    Ssh,
}

impl OtherProtocol {
    /// Guesses from the first bytes of a reply.
    pub(super) fn guess(bytes: &[u8]) -> Option<OtherProtocol> {
        let all = [
            (&b"HTTP/"[..], OtherProtocol::Http),
            (b"SSH-", OtherProtocol::Ssh),
            // Record type alert (21) or handshake (22), major version 3 (RFC 8446, section 5.1).
            (b"\x15\x03", OtherProtocol::Tls),
            (b"\x16\x03", OtherProtocol::Tls),
            (b"ERROR\r\n", OtherProtocol::Memcached),
        ];
        all.iter()
            .find(|(start, _)| bytes.starts_with(start))
            .map(|(_, protocol)| *protocol)
    }

    fn name(self) -> &'static str {
        match self {
            OtherProtocol::Http => "an HTTP server",
            OtherProtocol::Tls => "a TLS server",
            OtherProtocol::Memcached => "memcached",
            OtherProtocol::Ssh => "an SSH server",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused => write!(
                f,
                "connection refused: nothing listens there; start the server, or check host and port"
            ),
            Trouble::StaleSocket => write!(
                f,
                "connection refused: the socket is there but no server listens on it any more; start the server"
            ),
            Trouble::PathMissing => write!(
                f,
                "no such socket; start the server, or see `unixsocket` in its configuration for the path"
            ),
            Trouble::NotASocket => {
                write!(
                    f,
                    "this is not a socket; see `unixsocket` in the server's configuration for the path"
                )
            }
            Trouble::NotPermitted => write!(
                f,
                "not permitted: connecting needs the right to write to the socket and to enter its folders; join its group, or set `unixsocketperm`"
            ),
            Trouble::NameNotFound(said) => {
                write!(
                    f,
                    "the host name cannot be resolved ({said}); check its spelling, or give an address"
                )
            }
            Trouble::TimedOut(waiting, limit) => waiting.explain(f, *limit),
            Trouble::NotRedis { begins, looks_like } => {
                write!(f, "this does not speak the Redis protocol")?;
                match looks_like {
                    Some(protocol) => write!(f, ", it looks like {}", protocol.name())?,
                    None if begins.is_empty() => write!(f, ": it closed the connection without a word")?,
                    None => write!(f, ": its reply begins with '{begins}'")?,
                }
                match looks_like {
                    Some(OtherProtocol::Tls) => {
                        write!(
                            f,
                            "; TLS is not supported yet, give the address of a plain listener"
                        )
                    }
                    Some(OtherProtocol::Http | OtherProtocol::Memcached | OtherProtocol::Ssh) | None => {
                        write!(f, "; check host and port")
                    }
                }
            }
            Trouble::NotMemcached { begins, looks_like } => {
                write!(f, "this does not speak memcached's protocol")?;
                match looks_like {
                    Some(protocol) => write!(f, ", it looks like {}", protocol.name())?,
                    None => write!(f, ": its reply begins with '{begins}'")?,
                }
                write!(f, "; check host and port")
            }
            Trouble::AuthNeeded => write!(
                f,
                "it wants a password (NOAUTH); set REDISCLI_AUTH, or give -a and, for an ACL user, --user"
            ),
            Trouble::AuthRefused(said) => {
                write!(
                    f,
                    "it refuses this user or password ({said}); check REDISCLI_AUTH, -a and --user, and in a URI \
                     write % as %25, / as %2F and @ as %40"
                )
            }
            Trouble::Loading => write!(
                f,
                "it is still loading its data (LOADING); try again when it is done"
            ),
            Trouble::MaxClients => write!(
                f,
                "it has no room for another connection (maxclients, or memcached's -c); close some clients, or raise it"
            ),
            Trouble::ProtectedMode => write!(
                f,
                "its protected mode keeps other hosts out; set a password or `bind`, or run systally on its host"
            ),
            Trouble::Closed => write!(f, "it closed the connection; see its log for the reason"),
            Trouble::Refusal(said) => write!(f, "it refuses: {said}"),
            Trouble::Io(source) => write!(f, "{source}"),
        }
    }
}

impl Waiting {
    fn explain(self, f: &mut fmt::Formatter<'_>, limit: Duration) -> fmt::Result {
        let seconds = limit.as_secs_f64();
        match self {
            Waiting::Name => write!(
                f,
                "the host name was not resolved within {seconds} s; check the resolver, or give an address"
            ),
            Waiting::Connect => write!(
                f,
                "no connection within {seconds} s; check host and port, and whether a firewall drops packets"
            ),
            Waiting::Queue => write!(
                f,
                "its queue of waiting connections stayed full for {seconds} s; it may be stopped or stuck"
            ),
            Waiting::Reply => write!(
                f,
                "no reply within {seconds} s; it may be stopped, busy with a slow command, or not a Redis server"
            ),
        }
    }
}
