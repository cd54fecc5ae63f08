//! One connection's bytes: what has been read and not yet understood, and what has not yet been sent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::epoll::EpollFlags;

use super::commands;
use super::reply::{Protocol, Replies};
use super::request::{Parsed, Parser, ProtocolError};
use super::session::Session;
use super::state::State;

/// Output that may wait before no further command is executed: a client that does not read its replies
/// must not fill the memory with them.
const OUTPUT_PAUSE: usize = 1 << 20;
/// Input that may wait: as `client-query-buffer-limit`.
const INPUT_LIMIT: usize = 1 << 30;
/// Memory that an idle connection keeps.
const KEPT: usize = 64 << 10;

/// The socket.
#[derive(Debug)]
pub(super) enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }
}

/// What is to become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays.
    Open,
    /// It is to be closed now.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    parser: Parser,
    /// Begins with the command that is being read.
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of `output` has been sent.
    sent: usize,
    /// What epoll watches for.
    pub(super) interest: EpollFlags,
}

impl Link {
    pub(super) fn new(socket: Socket) -> Link {
        Link {
            socket,
            parser: Parser::default(),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            interest: EpollFlags::EPOLLIN,
        }
    }

    /// The socket, for epoll.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads once and executes what has arrived whole.
    pub(super) fn on_readable(
        &mut self,
        scratch: &mut [u8],
        state: &mut State,
        session: &mut Session,
        others: &[Option<Session>],
    ) -> Fate {
        match self.socket.read(scratch) {
            Ok(0) => return Fate::Closed,
            Ok(n) => {
                state.stats.input += n as u64;
                self.input.extend_from_slice(&scratch[..n]);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Fate::Open;
            }
            Err(_) => return Fate::Closed,
        }
        if self.input.len() > INPUT_LIMIT {
            return Fate::Closed;
        }
        self.advance(state, session, others)
    }

    /// Executes the commands that have arrived whole, and sends the replies.
    pub(super) fn advance(
        &mut self,
        state: &mut State,
        session: &mut Session,
        others: &[Option<Session>],
    ) -> Fate {
        loop {
            let exhausted = self.execute(state, session, others);
            if self.send(state) == Fate::Closed {
                return Fate::Closed;
            }
            if self.waiting() > 0 {
                // epoll tells when the socket takes more.
                return Fate::Open;
            }
            if session.closing {
                return Fate::Closed;
            }
            // Nothing would tell of commands that are left here when everything has been sent.
            if exhausted {
                return Fate::Open;
            }
        }
    }

    /// Executes commands until none is whole, or too much output waits; whether it was the former.
    fn execute(&mut self, state: &mut State, session: &mut Session, others: &[Option<Session>]) -> bool {
        let mut start = 0;
        let mut exhausted = false;
        while !session.closing && !exhausted && !self.is_paused() {
            match self.parser.next(&self.input[start..], session.authenticated) {
                Ok(Parsed::Command(args, taken)) => {
                    commands::execute(state, session, others, args, &mut self.output);
                    start += taken;
                    session.closing |= self.output.len() - self.sent > commands::MAX_OUTPUT;
                }
                Ok(Parsed::Nothing(taken)) => start += taken,
                Ok(Parsed::Incomplete) => exhausted = true,
                Err(ProtocolError(text)) => {
                    let text = format!("ERR {text}");
                    state.stats.error(text.as_bytes());
                    Replies::new(&mut self.output, Protocol::Resp2).error(text.as_bytes());
                    session.closing = true;
                }
            }
        }
        self.forget(start);
        exhausted
    }

    /// Drops what has been understood.
    fn forget(&mut self, taken: usize) {
        if taken == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEPT);
        } else if taken > 0 {
            self.input.drain(..taken);
        }
    }

    /// Bytes that have not been sent yet.
    fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether so much output waits that no further command is executed, and no more input read.
    fn is_paused(&self) -> bool {
        self.waiting() > OUTPUT_PAUSE
    }

    /// Sends as much as the socket takes.
    fn send(&mut self, state: &mut State) -> Fate {
        while self.waiting() > 0 {
            match self.socket.write(&self.output[self.sent..]) {
                Ok(0) => break,
                Ok(n) => {
                    self.sent += n;
                    state.stats.output += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    // What has been sent must not pile up before a slow reader; dropped only when it is the
                    // larger part, so that the rest is not moved over and over.
                    if self.sent > OUTPUT_PAUSE.max(self.waiting()) {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Fate::Open;
                }
                Err(_) => return Fate::Closed,
            }
        }
        self.output.clear();
        self.output.shrink_to(KEPT);
        self.sent = 0;
        Fate::Open
    }

    /// What epoll should watch for now.
    pub(super) fn wanted(&self, session: &Session) -> EpollFlags {
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, !session.closing && !self.is_paused());
        wanted.set(EpollFlags::EPOLLOUT, self.waiting() > 0);
        wanted
    }
}
