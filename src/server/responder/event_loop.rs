//! The loop: one thread waits for all sockets and serves whichever is ready, as Redis does.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::link::{Fate, Link, Socket};
use super::listen::{self, SocketFile};
use super::reply::{Protocol, Replies};
use super::session::Session;
use super::state::{Config, State};
use super::{Options, Ready, ResponderError};
use crate::run::interrupt::Interrupt;

/// Which descriptor an event is about; connections follow by their slot.
const TCP: u64 = 0;
const UNIX: u64 = 1;
const STDIN: u64 = 2;
const FIRST_SLOT: u64 = 3;

/// Events taken at once.
const EVENTS: usize = 256;
/// Connections accepted at once, so that a storm of them does not starve those that are open.
const ACCEPTS: usize = 1000;
/// Bytes read at once.
const SCRATCH: usize = 64 << 10;
/// How long to wait at most, in milliseconds: a signal that comes just before the wait does not end it.
const TICK_MS: u16 = 500;

/// Everything the responder has open.
pub(super) struct EventLoop {
    epoll: Epoll,
    tcp: TcpListener,
    unix: UnixListener,
    ready: Ready,
    state: State,
    /// Both lists have the same length; a connection has the same slot in each.
    links: Vec<Option<Link>>,
    sessions: Vec<Option<Session>>,
    free: Vec<usize>,
    next_id: u64,
    scratch: Vec<u8>,
    /// Whether the listeners are left alone because no descriptor is free.
    paused: bool,
    _file: SocketFile,
}

impl EventLoop {
    /// Listens on both sockets.
    pub(super) fn new(options: &Options) -> Result<EventLoop, ResponderError> {
        let maxclients = listen::clients_that_fit(options.maxclients);
        let (unix, file) = listen::unix(&options.socket, options.tcp_backlog)?;
        let (tcp, address) = listen::tcp(options.tcp_backlog)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(wait_failed)?;
        epoll
            .add(&tcp, EpollEvent::new(EpollFlags::EPOLLIN, TCP))
            .map_err(wait_failed)?;
        epoll
            .add(&unix, EpollEvent::new(EpollFlags::EPOLLIN, UNIX))
            .map_err(wait_failed)?;
        match epoll.add(io::stdin().as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, STDIN)) {
            // A file or /dev/null, or no standard input at all: there is no end to wait for.
            Ok(()) | Err(Errno::EPERM | Errno::EBADF) => {}
            Err(source) => return Err(wait_failed(source)),
        }
        let config = Config {
            maxclients,
            requirepass: Vec::new(),
            tcp_backlog: options.tcp_backlog,
            port: address.port(),
            unixsocket: options.socket.clone(),
        };
        Ok(EventLoop {
            epoll,
            tcp,
            unix,
            ready: Ready {
                tcp: address,
                unix: options.socket.clone(),
            },
            state: State::new(config),
            links: Vec::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            next_id: 1,
            scratch: vec![0; SCRATCH],
            paused: false,
            _file: file,
        })
    }

    /// Where it listens.
    pub(super) fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Serves until the interrupt comes or standard input ends.
    pub(super) fn run(&mut self, interrupt: &Interrupt) -> Result<(), ResponderError> {
        let mut events = [EpollEvent::empty(); EVENTS];
        while !interrupt.requested() {
            let n = match self.epoll.wait(&mut events, TICK_MS) {
                Ok(n) => n,
                Err(Errno::EINTR) => continue,
                Err(source) => return Err(wait_failed(source)),
            };
            for event in &events[..n] {
                match event.data() {
                    TCP => self.accept_tcp(),
                    UNIX => self.accept_unix(),
                    STDIN => {
                        if stdin_ended() {
                            return Ok(());
                        }
                    }
                    slot => self.serve(
                        usize::try_from(slot - FIRST_SLOT).unwrap_or(usize::MAX),
                        event.events(),
                    ),
                }
            }
            if self.paused {
                self.watch_listeners(true);
            }
        }
        Ok(())
    }

    /// Serves one connection. The event may be stale: its slot may be empty by now, or have gone to a new
    /// connection, whose read then finds nothing.
    fn serve(&mut self, slot: usize, events: EpollFlags) {
        let taken = |session: &mut Option<Session>| session.take();
        let Some(mut session) = self.sessions.get_mut(slot).and_then(taken) else {
            return;
        };
        let Some(Some(link)) = self.links.get_mut(slot) else {
            return;
        };
        let mut fate = Fate::Open;
        if events.contains(EpollFlags::EPOLLOUT) {
            fate = link.advance(&mut self.state, &mut session, &self.sessions);
        }
        let gone = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        if fate == Fate::Open && events.intersects(EpollFlags::EPOLLIN | gone) {
            fate = if link.interest.contains(EpollFlags::EPOLLIN) {
                link.on_readable(&mut self.scratch, &mut self.state, &mut session, &self.sessions)
            } else if events.intersects(gone) {
                Fate::Closed
            } else {
                Fate::Open
            };
        }
        let wanted = link.wanted(&session);
        if fate == Fate::Open && wanted != link.interest {
            let event = EpollEvent::new(wanted, slot as u64 + FIRST_SLOT);
            match self.epoll.modify(link.socket(), &mut { event }) {
                Ok(()) => link.interest = wanted,
                Err(_) => fate = Fate::Closed,
            }
        }
        match fate {
            Fate::Open => self.sessions[slot] = Some(session),
            Fate::Closed => {
                // Closing the descriptor takes it out of the epoll set.
                self.links[slot] = None;
                self.free.push(slot);
                self.state.connected -= 1;
            }
        }
    }

    fn accept_tcp(&mut self) {
        for _ in 0..ACCEPTS {
            match self.tcp.accept() {
                Ok((stream, peer)) => {
                    let local = self.ready.tcp.to_string();
                    let set_up = stream
                        .set_nonblocking(true)
                        .and_then(|()| stream.set_nodelay(true));
                    if set_up.is_ok() {
                        self.admit(Socket::Tcp(stream), peer.to_string(), local);
                    }
                }
                Err(e) if self.goes_on(&e) => {}
                Err(_) => return,
            }
        }
    }

    fn accept_unix(&mut self) {
        for _ in 0..ACCEPTS {
            match self.unix.accept() {
                Ok((stream, _)) => {
                    // A client's end of a UNIX connection has no name; Redis shows the server's for both.
                    let name = format!("{}:0", self.ready.unix.display());
                    if stream.set_nonblocking(true).is_ok() {
                        self.admit(Socket::Unix(stream), name.clone(), name);
                    }
                }
                Err(e) if self.goes_on(&e) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether to accept further after an error.
    fn goes_on(&mut self, error: &io::Error) -> bool {
        match error.kind() {
            ErrorKind::WouldBlock => false,
            // This client is gone; the next may not be.
            ErrorKind::ConnectionAborted | ErrorKind::Interrupted => true,
            _ => {
                // No descriptor is free. The connection stays in the queue and would be reported again at
                // once, without end; so it is left for the next turn.
                self.watch_listeners(false);
                false
            }
        }
    }

    fn watch_listeners(&mut self, watch: bool) {
        let flags = if watch {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::empty()
        };
        let tcp = self.epoll.modify(&self.tcp, &mut EpollEvent::new(flags, TCP));
        let unix = self.epoll.modify(&self.unix, &mut EpollEvent::new(flags, UNIX));
        self.paused = !watch || tcp.is_err() || unix.is_err();
    }

    fn admit(&mut self, mut socket: Socket, peer: String, local: String) {
        if self.state.connected >= self.state.config.maxclients {
            self.state.stats.rejected += 1;
            let mut reply = Vec::new();
            Replies::new(&mut reply, Protocol::Resp2).error(b"ERR max number of clients reached");
            // The client may be gone already.
            let _ = socket.write(&reply);
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.sessions.push(None);
            self.links.len() - 1
        });
        let fd = socket.as_fd().as_raw_fd();
        let link = Link::new(socket);
        let event = EpollEvent::new(link.interest, slot as u64 + FIRST_SLOT);
        if self.epoll.add(link.socket(), event).is_err() {
            self.free.push(slot);
            return;
        }
        let open = !self.state.config.guarded();
        self.sessions[slot] = Some(Session::new(self.next_id, fd, peer, local, open));
        self.links[slot] = Some(link);
        self.next_id += 1;
        self.state.connected += 1;
        self.state.stats.connections += 1;
    }
}

fn wait_failed(source: Errno) -> ResponderError {
    ResponderError::Wait { source }
}

/// Whether standard input has come to its end; what comes before it is passed over.
fn stdin_ended() -> bool {
    let mut buffer = [0; 1024];
    match nix::unistd::read(io::stdin().as_fd(), &mut buffer) {
        Ok(0) => true,
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => false,
        Err(_) => true,
    }
}
