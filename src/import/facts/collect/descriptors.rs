//! What descriptors are: made, connected, accepted, set up, closed.

use super::super::fds::{Fd, Kind, address};
use super::super::{UNKNOWN_PEER, args};
use super::{Call, Class, Collector, count, max_time, positive};
use crate::import::{number, text};

impl Collector {
    pub(super) fn socket(&mut self, call: &Call<'_>) {
        let (Some(fd), Some(table)) = (positive(call.ret), self.table(call.pid)) else {
            return;
        };
        self.saw_fd(fd);
        let stream = text::contains(call.args, "SOCK_STREAM");
        let local = text::contains(call.args, "AF_NETLINK") || text::contains(call.args, "AF_PACKET");
        let kind = match (local, stream) {
            (true, _) => Kind::Local,
            (false, true) => Kind::Stream,
            (false, false) if text::contains(call.args, "SOCK_DGRAM") => Kind::Datagram,
            (false, false) => Kind::Unknown,
        };
        let state = Fd {
            kind,
            made_here: true,
            ..Fd::default()
        };
        self.tables.open(table, fd, state);
    }

    pub(super) fn connect(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        // What comes behind the address does not matter to it.
        let address = address(args::first(call.args).1);
        let Some(peer) = (match &address {
            Some(address) => self.peer_of(address),
            // dtruss and kdump show only a pointer.
            None => Some(self.peer_id(UNKNOWN_PEER, false)),
        }) else {
            return;
        };
        let Some(state) = self.tables.of(table, fd) else {
            return;
        };
        let datagram = state.kind == Kind::Datagram;
        let again = state.connecting;
        if call.errno != Some("EISCONN") && !(again && matches!(call.errno, None | Some("EALREADY"))) {
            state.connecting = call.errno == Some("EINPROGRESS");
            state.connect_at = call.at;
        } else {
            state.connecting = false;
        }
        state.refused =
            call.errno.is_some() && !matches!(call.errno, Some("EINPROGRESS" | "EISCONN" | "EALREADY"));
        state.peer = Some(peer);
        if !datagram {
            state.kind = Kind::Stream;
        }
        let nodelay = state.nodelay;
        let result = match (call.errno, call.ret) {
            (Some(errno), _) => errno,
            (None, Some(0..)) => "ok",
            (None, _) => "?",
        };
        if let (Some(peer), false) = (self.peer(peer), datagram || again) {
            count(&mut peer.connects, result);
            // Set before the connect, when it was not known yet where the socket would lead.
            peer.nodelay += u64::from(nodelay);
            if let Some(took) = call.took {
                max_time(&mut peer.longest_connect, took);
            }
        }
    }

    pub(super) fn accept(&mut self, call: &Call<'_>) {
        if let Some((table, listener)) = self.first_fd(call)
            && let Some(state) = self.tables.get(table, listener)
        {
            state.reported = false;
            state.spin = 0;
        }
        if let Some(errno) = call.errno {
            if errno != "EAGAIN" {
                count(&mut self.facts.accepts.errors, errno);
            }
            return;
        }
        let (Some(fd), Some(table)) = (positive(call.ret), self.table(call.pid)) else {
            return;
        };
        self.saw_fd(fd);
        self.facts.accepts.accepted += 1;
        let peer = self.peer_id("accepted clients", false);
        let state = Fd {
            kind: Kind::Stream,
            peer: Some(peer),
            made_here: true,
            accepted: true,
            ..Fd::default()
        };
        self.tables.open(table, fd, state);
    }

    pub(super) fn close(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        if let Some(thread) = self.threads.get_mut(call.pid)
            && thread.epoll_check.take() == Some((fd, 3))
        {
            self.facts.epoll_checks += 1;
        }
        let Some(state) = self.tables.close(table, fd) else {
            return;
        };
        self.end_spin(&state, fd);
        if state.accepted && !state.data_in && !state.data_out {
            self.facts.accepts.closed_unread += 1;
        }
        let (Kind::Stream, Some(peer), false) = (state.kind, state.peer, state.refused) else {
            return;
        };
        if let Some(peer) = self.peer(peer) {
            peer.closed_after[state.carried.min(2) as usize] += 1;
        }
    }

    pub(super) fn epoll_create(&mut self, call: &Call<'_>) {
        let (Some(fd), Some(table)) = (positive(call.ret), self.table(call.pid)) else {
            return;
        };
        self.saw_fd(fd);
        let state = Fd {
            kind: Kind::Epoll,
            made_here: true,
            ..Fd::default()
        };
        self.tables.open(table, fd, state);
        if let Some(thread) = self.threads.get_mut(call.pid) {
            thread.epoll_check = Some((fd, 1));
        }
    }

    pub(super) fn epoll_ctl(&mut self, call: &Call<'_>) {
        let (first, rest) = args::first(call.args);
        let epoll = args::fd(first);
        let (operation, rest) = args::first(rest);
        if let Some(errno) = call.errno {
            let operation = text::shown(operation, 24);
            count(&mut self.facts.epoll_ctl_errors, &format!("{operation} {errno}"));
        }
        if let Some(fd) = args::fd(args::first(rest).0) {
            self.saw_fd(fd);
        }
        if let Some(thread) = self.threads.get_mut(call.pid)
            && let Some((fd, 1)) = thread.epoll_check
            && epoll == Some(fd)
        {
            thread.epoll_check = Some((fd, 2));
        }
    }

    pub(super) fn option(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        let (option, rest) = args::first(args::first(call.args).1);
        let is_dup = call.class == Class::Fcntl && option.starts_with(b"F_DUPFD");
        if is_dup {
            self.duplicate(table, fd, positive(call.ret));
            return;
        }
        let Some(state) = self.tables.get(table, fd) else {
            if call.class == Class::SetOption {
                self.tables.open(
                    table,
                    fd,
                    Fd {
                        kind: Kind::Stream,
                        ..Fd::default()
                    },
                );
            }
            return;
        };
        if state.kind != Kind::Stream {
            return;
        }
        let mut nodelay = false;
        let what: &str = match call.class {
            Class::SetOption => {
                // The level comes first: SOL_TCP, TCP_NODELAY, [1], 4.
                let (name, rest) = args::first(rest);
                if name == b"TCP_NODELAY" && call.errno.is_none() && text::contains(rest, "[1]") {
                    nodelay = !std::mem::replace(&mut state.nodelay, true);
                }
                "setsockopt"
            }
            Class::Fcntl => "fcntl",
            _ if option == b"FIONBIO" => "ioctl FIONBIO",
            _ if option == b"FIONREAD" => "ioctl FIONREAD",
            _ => "ioctl",
        };
        let in_use = state.data_out;
        let peer = state.peer;
        let peer = match peer {
            Some(peer) => peer,
            // Before connect it is not known where the socket will lead.
            None => self.peer_id(UNKNOWN_PEER, false),
        };
        if let Some(peer) = self.peer(peer) {
            count(&mut peer.options, what);
            peer.options_in_use += u64::from(in_use);
            peer.nodelay += u64::from(nodelay);
            peer.readiness_checks += u64::from(what == "ioctl FIONREAD");
        }
    }

    pub(super) fn so_error(&mut self, call: &Call<'_>) {
        if !text::contains(call.args, "SO_ERROR") {
            return;
        }
        let Some(value) = args::between(call.args, "SO_ERROR, [", b"]") else {
            return;
        };
        let name = match number::uint(value) {
            Some(0) => return,
            Some(n) => match i32::try_from(n) {
                Ok(n) => crate::tally::Errno(n).name().into_owned(),
                Err(_) => return,
            },
            None => text::name(value),
        };
        count(&mut self.facts.so_errors, &name);
        if let Some((table, fd)) = self.first_fd(call)
            && let Some(peer) = self.tables.get(table, fd).and_then(|f| f.peer)
            && let Some(peer) = self.peer(peer)
        {
            count(&mut peer.errors, &name);
        }
    }

    pub(super) fn dup(&mut self, call: &Call<'_>) {
        if let Some((table, fd)) = self.first_fd(call) {
            self.duplicate(table, fd, positive(call.ret));
        }
    }

    pub(super) fn duplicate(&mut self, table: usize, fd: u64, to: Option<u64>) {
        let Some(to) = to else { return };
        self.saw_fd(to);
        if let Some(state) = self.tables.get(table, fd).map(|state| state.clone()) {
            self.tables.open(table, to, state);
        } else {
            self.tables.close(table, to);
        }
    }
}
