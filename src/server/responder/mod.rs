//! The built-in responder: a small RESP server over TCP and a UNIX socket, for machines without Redis.
//!
//! It answers the commands that clients and benchmarks need, with the replies, errors, limits and
//! statistics of Redis, so that a run against it is checked just as one against Redis. It is no Redis: one
//! thread, strings only, no persistence. It runs in a process of its own, so that its system calls and its
//! CPU time are nobody else's.
//!
//! ```text
//! event loop (epoll) ─→ link: bytes in ─→ request ─→ commands ─→ reply ─→ link: bytes out
//!                                                      │
//!                                        state: store, config, statistics
//! ```

mod commands;
mod event_loop;
mod link;
mod listen;
mod reply;
mod request;
mod session;
mod state;
mod store;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::run::interrupt::Interrupt;
use event_loop::EventLoop;

/// How the responder listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Path of the UNIX socket; nothing may be there yet.
    pub socket: PathBuf,
    /// Length of the listeners' queues; the kernel cuts it to `net.core.somaxconn`.
    pub tcp_backlog: u32,
    /// Connections at most; lowered when the process may not open so many files.
    pub maxclients: u32,
}

impl Options {
    /// With Redis's own defaults.
    pub fn new(socket: PathBuf) -> Options {
        Options {
            socket,
            tcp_backlog: 511,
            maxclients: 10_000,
        }
    }
}

/// Where the responder listens. Displays as the line that tells it to whoever started the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The loopback address and port.
    pub tcp: SocketAddr,
    /// The UNIX socket.
    pub unix: PathBuf,
}

/// The line on standard output.
#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line<T> {
    Ready(T),
}

impl Ready {
    /// Reads the line; `None` for any other.
    pub(super) fn parse(line: &str) -> Option<Ready> {
        serde_json::from_str(line).ok().map(|Line::Ready(ready)| ready)
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&Line::Ready(self)).map_err(|_| fmt::Error)?)
    }
}

/// Why the responder could not listen or go on.
#[derive(Debug, thiserror::Error)]
pub enum ResponderError {
    /// A socket cannot be set up.
    #[error("the built-in server cannot listen on {address}: {source}")]
    Listen {
        /// Which one.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// epoll does not work.
    #[error("the built-in server cannot wait for its connections (epoll): {source}")]
    Wait {
        /// What the kernel said.
        source: Errno,
    },
    /// Nobody could be told that it is ready.
    #[error("the built-in server cannot say that it is ready: {source}")]
    Ready {
        /// What writing said.
        source: io::Error,
    },
}

/// Listens on a free loopback port and on the UNIX socket, calls `ready` with the addresses, and serves
/// until the interrupt comes or standard input ends (whoever started this process has gone then). The
/// socket file is removed at the end.
///
/// # Errors
/// When a socket cannot be set up, or epoll fails. What a client does is never an error here.
pub fn serve(
    options: &Options,
    interrupt: &Interrupt,
    ready: impl FnOnce(&Ready) -> io::Result<()>,
) -> Result<(), ResponderError> {
    let mut event_loop = EventLoop::new(options)?;
    ready(event_loop.ready()).map_err(|source| ResponderError::Ready { source })?;
    event_loop.run(interrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_reads_back() {
        let ready = Ready {
            tcp: "127.0.0.1:4711".parse().unwrap(),
            unix: "/tmp/a b\n/s".into(),
        };
        let line = ready.to_string();
        assert_eq!(
            line,
            r#"{"event":"ready","tcp":"127.0.0.1:4711","unix":"/tmp/a b\n/s"}"#
        );
        assert_eq!(Ready::parse(&line), Some(ready));
        for other in [
            "",
            "running 1 test",
            r#"{"event":"done"}"#,
            r#"{"tcp":"127.0.0.1:1","unix":"/s"}"#,
        ] {
            assert_eq!(Ready::parse(other), None, "{other}");
        }
    }
}
