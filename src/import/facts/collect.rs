//! Building [`LogFacts`] while a log streams by: one call at a time, in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::fds::{Address, Fd, Kind, PeerId, Role, Tables, address, decorated};
use super::{
    Gap, LogFacts, MOST_EXAMPLES, MOST_PEERS, OTHER_PEERS, Peer, Spin, UNKNOWN_PEER, Wait, args, payload,
};
use crate::import::text;
use crate::units::Nanos;

/// Threads and processes followed at one time.
const MOST_PIDS: usize = 16_384;
/// Keys of any counting map.
const MOST_KEYS: usize = 64;
/// Different paths whose counts are kept.
const MOST_PATHS: usize = 512;
/// Shortest wait worth keeping as an example.
const LONG: u64 = 20_000_000;
/// Around Linux's shortest delayed ACK.
const ACK_WAIT: std::ops::RangeInclusive<u64> = 38_000_000..=50_000_000;

/// What a system call does, as far as the facts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Socket,
    Connect,
    Accept,
    Close,
    Send,
    Receive,
    Write,
    Read,
    Poll,
    Select,
    EpollWait,
    EpollCreate,
    EpollCtl,
    SetOption,
    GetOption,
    Fcntl,
    Ioctl,
    Open,
    Stat,
    Sleep,
    Futex,
    Clone,
    Exec,
    Dup,
    OtherWait,
    Other,
}

impl Class {
    /// By name, on any system.
    pub(crate) fn of(name: &str) -> Class {
        // macOS has variants that are no cancellation points.
        match name.strip_suffix("_nocancel").unwrap_or(name) {
            "socket" => Class::Socket,
            "connect" | "connectx" => Class::Connect,
            "accept" | "accept4" => Class::Accept,
            "close" => Class::Close,
            "send" | "sendto" | "sendmsg" | "sendmmsg" => Class::Send,
            "recv" | "recvfrom" | "recvmsg" | "recvmmsg" => Class::Receive,
            "write" | "writev" => Class::Write,
            "read" | "readv" => Class::Read,
            "poll" | "ppoll" | "ppoll_time64" | "pollsys" => Class::Poll,
            "select" | "_newselect" | "pselect6" | "pselect" | "pselect6_time64" => Class::Select,
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Class::EpollWait,
            "epoll_create" | "epoll_create1" => Class::EpollCreate,
            "epoll_ctl" => Class::EpollCtl,
            "setsockopt" => Class::SetOption,
            "getsockopt" => Class::GetOption,
            "fcntl" | "fcntl64" => Class::Fcntl,
            "ioctl" => Class::Ioctl,
            "open" | "openat" | "openat2" => Class::Open,
            "stat" | "stat64" | "lstat" | "lstat64" | "newfstatat" | "fstatat64" | "statx" | "access"
            | "faccessat" | "faccessat2" | "readlink" | "readlinkat" => Class::Stat,
            "nanosleep" | "clock_nanosleep" | "clock_nanosleep_time64" | "usleep" => Class::Sleep,
            "futex" | "futex_time64" => Class::Futex,
            "clone" | "clone3" | "fork" | "vfork" => Class::Clone,
            "execve" | "execveat" => Class::Exec,
            "dup" | "dup2" | "dup3" => Class::Dup,
            "wait4" | "waitid" | "waitpid" | "pause" | "rt_sigtimedwait" | "rt_sigsuspend" | "sigsuspend"
            | "kevent" | "lwp_cond_wait" | "lwp_park" | "io_uring_enter" | "io_getevents" | "msgrcv"
            | "semop" => Class::OtherWait,
            _ => Class::Other,
        }
    }

    fn waits(self) -> bool {
        matches!(
            self,
            Class::Connect
                | Class::Accept
                | Class::Receive
                | Class::Poll
                | Class::Select
                | Class::EpollWait
                | Class::Sleep
                | Class::Futex
                | Class::OtherWait
        )
    }
}

/// One call of a log, whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// Thread id; 0 when the log has none.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) name: &'a Rc<str>,
    /// What it does.
    pub(crate) class: Class,
    /// Its arguments as printed.
    pub(crate) args: &'a [u8],
    /// What it returned; `None` when unknown or interrupted.
    pub(crate) ret: Option<i64>,
    /// Its errno.
    pub(crate) errno: Option<&'a str>,
    /// What stands after the return value (`([{fd=4, revents=POLLIN}])`).
    pub(crate) tail: &'a [u8],
    /// When it began, in nanoseconds of any clock.
    pub(crate) at: Option<u64>,
    /// How long it took, in nanoseconds.
    pub(crate) took: Option<u64>,
    /// Its line.
    pub(crate) line: u64,
}

/// A thread.
#[derive(Debug, Default)]
struct Thread {
    /// The log has a line of it; its clone alone does not count.
    met: bool,
    table: Option<usize>,
    /// When its last call ended, and which it was.
    last_end: Option<u64>,
    last_name: Option<Rc<str>>,
    /// Time spent in waits so far.
    wait_clock: u64,
    slept: Option<u64>,
    restarted: bool,
    /// A readiness check of its own epoll descriptor: descriptor and steps done.
    epoll_check: Option<(u64, u8)>,
    /// Waits with time-out 0 in a row that reported nothing.
    empty_polls: u64,
    /// A wait whose end is the next time stamp of this thread.
    open_wait: Option<(u64, Wait)>,
}

/// The collector.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    facts: LogFacts,
    threads: HashMap<u32, Thread>,
    /// Processes and threads seen so far.
    pub(crate) seen: u64,
    tables: Tables,
    peers: Vec<(String, Peer)>,
    peer_ids: HashMap<String, PeerId>,
    paths: HashMap<Vec<u8>, (u64, u64)>,
    sleeps: HashMap<u64, u64>,
    cloning: Vec<(u32, bool)>,
    first_at: Option<u64>,
    last_at: u64,
    payload: Vec<u8>,
}

/// Adds to a counting map that must stay small.
fn count(map: &mut BTreeMap<String, u64>, key: &str) {
    if let Some(n) = map.get_mut(key) {
        *n += 1;
    } else if map.len() < MOST_KEYS {
        map.insert(key.to_owned(), 1);
    } else {
        *map.entry("other".to_owned()).or_default() += 1;
    }
}

fn add_time(slot: &mut Option<Nanos>, time: u64) {
    *slot = Some(slot.unwrap_or_default() + Nanos(time));
}

fn max_time(slot: &mut Option<Nanos>, time: u64) {
    *slot = Some(slot.unwrap_or_default().max(Nanos(time)));
}

impl Collector {
    /// Takes one call.
    pub(crate) fn call(&mut self, call: &Call<'_>) {
        self.meet(call.pid);
        self.clock(call);
        if let Some(took) = call.took {
            add_time(&mut self.facts.in_calls, took);
            if call.class.waits() {
                add_time(&mut self.facts.waiting, took);
            }
        }
        match call.class {
            Class::Other | Class::OtherWait => {}
            Class::Socket => self.socket(call),
            Class::Connect => self.connect(call),
            Class::Accept => self.accept(call),
            Class::Close => self.close(call),
            Class::Send | Class::Write => self.send(call),
            Class::Receive | Class::Read => self.receive(call),
            Class::Poll | Class::Select | Class::EpollWait => self.poll(call),
            Class::EpollCreate => self.epoll_create(call),
            Class::EpollCtl => self.epoll_ctl(call),
            Class::SetOption | Class::Fcntl | Class::Ioctl => self.option(call),
            Class::GetOption => self.so_error(call),
            Class::Open | Class::Stat => self.path(call),
            Class::Sleep => self.sleep(call),
            Class::Futex => self.futex(call),
            Class::Clone => self.cloned(call),
            Class::Exec => self.facts.execs += u64::from(call.ret == Some(0)),
            Class::Dup => self.dup(call),
        }
        if call.class.waits() && call.class != Class::Sleep {
            self.keep_wait(call);
        }
    }

    /// Notes that a thread exists. A new one during a clone is its child.
    pub(crate) fn meet(&mut self, pid: u32) {
        if let Some(thread) = self.threads.get_mut(&pid) {
            self.seen += u64::from(!std::mem::replace(&mut thread.met, true));
            return;
        }
        self.seen += 1;
        if self.threads.len() >= MOST_PIDS {
            self.facts.truncated = true;
            return;
        }
        let table = match self.cloning.last() {
            Some((parent, shares)) => {
                let (parent, shares) = (*parent, *shares);
                self.child_table(parent, shares)
            }
            None => None,
        };
        self.threads.insert(
            pid,
            Thread {
                met: true,
                table,
                ..Thread::default()
            },
        );
    }

    /// Whether the thread is known, from a line or from its clone.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        self.threads.contains_key(&pid)
    }

    /// Whether a clone is under way.
    pub(crate) fn is_cloning(&self) -> bool {
        !self.cloning.is_empty()
    }

    fn child_table(&mut self, parent: u32, shares: bool) -> Option<usize> {
        let of = self.threads.get(&parent)?.table?;
        if shares { Some(of) } else { self.tables.copy(of) }
    }

    /// A thread has ended.
    pub(crate) fn gone(&mut self, pid: u32, killed_by: Option<&str>) {
        if let Some(signal) = killed_by {
            count(&mut self.facts.killed, signal);
        }
        let Some(thread) = self.threads.remove(&pid) else {
            return;
        };
        if let Some(table) = thread.table
            && !self.threads.values().any(|t| t.table == Some(table))
        {
            self.tables.drop_table(table);
        }
    }

    /// A clone has begun and its child may show up before it returns.
    pub(crate) fn clone_begins(&mut self, pid: u32, args: &[u8]) {
        if self.cloning.len() < MOST_KEYS {
            self.cloning.push((pid, shares(args)));
        }
    }

    /// A signal was delivered.
    pub(crate) fn signal(&mut self, pid: u32, name: &str) {
        count(&mut self.facts.signals, name);
        if let Some(thread) = self.threads.get_mut(&pid)
            && std::mem::take(&mut thread.restarted)
        {
            count(&mut self.facts.interrupted, name);
        }
    }

    /// The call that has just been taken was cut short by a signal.
    pub(crate) fn restarted(&mut self, pid: u32) {
        if let Some(thread) = self.threads.get_mut(&pid) {
            thread.restarted = true;
        }
    }

    fn clock(&mut self, call: &Call<'_>) {
        let Some(thread) = self.threads.get_mut(&call.pid) else {
            return;
        };
        if let Some(at) = call.at {
            self.first_at = Some(self.first_at.map_or(at, |first| first.min(at)));
            self.last_at = self.last_at.max(at.saturating_add(call.took.unwrap_or(0)));
            if let Some((from, mut wait)) = thread.open_wait.take() {
                wait.length = Nanos(at.saturating_sub(from));
                keep(&mut self.facts.waits, wait);
            }
            if let Some(end) = thread.last_end {
                let gap = at.saturating_sub(end);
                add_time(&mut self.facts.outside, gap);
                if self.facts.longest_gap.as_ref().is_none_or(|g| g.length.0 < gap) {
                    self.facts.longest_gap = Some(Gap {
                        length: Nanos(gap),
                        after: thread.last_name.as_deref().unwrap_or_default().to_owned(),
                        before: call.name.to_string(),
                        line: call.line,
                    });
                }
            }
            thread.last_end = call.took.map(|took| at.saturating_add(took));
            if thread.last_end.is_some() {
                thread.last_name = Some(Rc::clone(call.name));
            }
        }
        if let Some(took) = call.took
            && call.class.waits()
        {
            thread.wait_clock = thread.wait_clock.saturating_add(took);
        }
        if !matches!(call.class, Class::Poll | Class::Select | Class::EpollWait) {
            thread.empty_polls = 0;
        }
    }

    /// The thread's descriptor table, made at first use.
    fn table(&mut self, pid: u32) -> Option<usize> {
        let thread = self.threads.get_mut(&pid)?;
        if thread.table.is_none() {
            thread.table = self.tables.new_table();
            if thread.table.is_none() {
                self.facts.truncated = true;
            }
        }
        thread.table
    }

    fn peer_id(&mut self, name: &str, unix: bool) -> PeerId {
        if let Some(id) = self.peer_ids.get(name) {
            return *id;
        }
        let name = if self.peers.len() >= MOST_PEERS {
            self.facts.truncated = true;
            OTHER_PEERS
        } else {
            name
        };
        if let Some(id) = self.peer_ids.get(name) {
            return *id;
        }
        let id = self.peers.len();
        self.peers.push((
            name.to_owned(),
            Peer {
                unix,
                ..Peer::default()
            },
        ));
        self.peer_ids.insert(name.to_owned(), id);
        id
    }

    fn peer_of(&mut self, address: &Address) -> Option<PeerId> {
        match address {
            Address::Ip(name) => Some(self.peer_id(name, false)),
            Address::Unix(path) => Some(self.peer_id(path, true)),
            Address::Other => None,
        }
    }

    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id).map(|(_, peer)| peer)
    }

    fn saw_fd(&mut self, fd: u64) {
        if self.facts.highest_fd.is_none_or(|highest| highest < fd) {
            self.facts.highest_fd = Some(fd);
        }
    }

    /// The descriptor of the first argument: table, number, and what `-y` says of it, applied.
    fn first_fd(&mut self, call: &Call<'_>) -> Option<(usize, u64)> {
        let (first, _) = args::first(call.args);
        let fd = args::fd(first)?;
        let table = self.table(call.pid)?;
        self.saw_fd(fd);
        if first.contains(&b'<')
            && self.tables.get(table, fd).is_none_or(|f| f.kind == Kind::Unknown)
            && let Some((kind, address)) = args::decoration(first).and_then(decorated)
        {
            let peer = address.as_ref().and_then(|a| self.peer_of(a));
            if let Some(state) = self.tables.of(table, fd) {
                state.kind = kind;
                state.peer = state.peer.or(peer);
            }
        }
        Some((table, fd))
    }

    /// The peer of a socket; a connection from before the log has a name for all of its kind.
    fn socket_peer(&mut self, table: usize, fd: u64) -> Option<PeerId> {
        let known = self.tables.of(table, fd)?.peer;
        if known.is_some() {
            return known;
        }
        let id = self.peer_id(UNKNOWN_PEER, false);
        self.tables.of(table, fd)?.peer = Some(id);
        Some(id)
    }

    fn socket(&mut self, call: &Call<'_>) {
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

    fn connect(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        let address = address(args::nth(call.args, 1));
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
        let result = match (call.errno, call.ret) {
            (Some(errno), _) => errno,
            (None, Some(0..)) => "ok",
            (None, _) => "?",
        };
        if let (Some(peer), false) = (self.peer(peer), datagram || again) {
            count(&mut peer.connects, result);
            if let Some(took) = call.took {
                max_time(&mut peer.longest_connect, took);
            }
        }
    }

    fn accept(&mut self, call: &Call<'_>) {
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

    fn close(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        if let Some(thread) = self.threads.get_mut(&call.pid)
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

    /// Whether a call on a descriptor moves data of a connection; finds sockets by what they carry.
    fn is_talk(&mut self, call: &Call<'_>, table: usize, fd: u64) -> bool {
        let socket_call = matches!(call.class, Class::Send | Class::Receive);
        let Some(state) = self.tables.of(table, fd) else {
            self.facts.truncated = true;
            return false;
        };
        match state.kind {
            Kind::Stream => true,
            Kind::Datagram | Kind::Local | Kind::Epoll => false,
            Kind::Unknown if socket_call => {
                state.kind = Kind::Stream;
                true
            }
            Kind::Unknown if fd <= 2 => false,
            Kind::Unknown => {
                payload::strings(call.args, &mut self.payload);
                let talk = payload::commands(&self.payload, |_, _| {}).commands > 0;
                if talk {
                    state.kind = Kind::Stream;
                }
                talk
            }
        }
    }

    fn send(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        if self
            .tables
            .get(table, fd)
            .is_some_and(|f| f.kind == Kind::Datagram)
        {
            self.datagram(call, table, fd);
            return;
        }
        if !self.is_talk(call, table, fd) {
            return;
        }
        let Some(peer_id) = self.socket_peer(table, fd) else {
            return;
        };
        if let Some(errno) = call.errno {
            if let (Some(peer), true) = (self.peer(peer_id), errno != "EAGAIN") {
                count(&mut peer.errors, errno);
            }
            return;
        }
        let bytes = positive(call.ret).unwrap_or(0);
        let mut buffer = std::mem::take(&mut self.payload);
        let cut = payload::strings(call.args, &mut buffer);
        let wait_clock = self.threads.get(&call.pid).map_or(0, |t| t.wait_clock);
        let slept = self.threads.get_mut(&call.pid).and_then(|t| t.slept.take());
        let Some(state) = self.tables.of(table, fd) else {
            return;
        };
        let server = state.role == Role::Server || state.accepted;
        let mut commands = 0;
        if server {
            if let Some(reply) = payload::error_reply(&buffer) {
                count(&mut self.facts.error_replies, &text::shown(reply, 60));
            }
        } else {
            let last_command = &mut state.last_command;
            let facts = &mut self.facts;
            let found = payload::commands(&buffer, |name, argument| {
                count(&mut facts.commands.sent, name);
                let mut hasher = DefaultHasher::new();
                (name, argument).hash(&mut hasher);
                let hash = hasher.finish();
                if let (true, Some(slept)) = (hash == *last_command, slept) {
                    note_repeat(facts, name, argument, slept);
                }
                *last_command = hash;
            });
            commands = found.commands;
            if commands > 0 {
                state.role = Role::Client;
                self.facts.commands.cut_payloads += u64::from(cut);
            }
        }
        state.sends += 1;
        state.commands += commands;
        state.carried += commands;
        let end = call.at.map(|at| at.saturating_add(call.took.unwrap_or(0)));
        state.sent_at = end;
        state.wait_mark = wait_clock;
        state.data_out = true;
        state.connecting = false;
        state.reported = false;
        state.spin = 0;
        let tcp_made_here = state.made_here && !state.accepted;
        let missing_nodelay = tcp_made_here && !state.nodelay && !state.noted_without_nodelay;
        state.noted_without_nodelay |= missing_nodelay;
        let depth = state.commands;
        self.payload = buffer;
        if let Some(peer) = self.peer(peer_id) {
            peer.sends += 1;
            peer.sent_bytes += bytes;
            peer.commands += commands;
            peer.deepest_pipeline = peer.deepest_pipeline.max(depth);
            peer.without_nodelay += u64::from(missing_nodelay && !peer.unix);
        }
    }

    /// Queries: only the peer, its sends and the waits for it matter.
    fn datagram(&mut self, call: &Call<'_>, table: usize, fd: u64) {
        let named = address(args::nth(call.args, 4)).or_else(|| {
            let at = memchr::memmem::find(call.args, b"msg_name={")?;
            address(&call.args[at + 9..])
        });
        let peer = match &named {
            Some(address) => self.peer_of(address),
            None => self.tables.get(table, fd).and_then(|f| f.peer),
        };
        let Some(peer) = peer else { return };
        if let Some(state) = self.tables.get(table, fd) {
            state.peer = Some(peer);
            state.sends += 1;
        }
        if let Some(peer) = self.peer(peer) {
            // sendmmsg sends several at once (an A and an AAAA query).
            let messages = if &**call.name == "sendmmsg" {
                positive(call.ret).unwrap_or(1)
            } else {
                1
            };
            peer.sends += messages;
        }
    }

    fn receive(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        if let (Some(state), Some(0..)) = (self.tables.get(table, fd), call.ret)
            && state.kind == Kind::Datagram
        {
            state.sends = 0;
            let peer = state.peer;
            if let Some(peer) = peer.and_then(|id| self.peer(id)) {
                peer.receives += 1;
            }
            return;
        }
        if !self.is_talk(call, table, fd) {
            if let (Some(state), true) = (self.tables.get(table, fd), call.errno.is_none()) {
                state.reported = false;
                state.spin = 0;
            }
            return;
        }
        let Some(peer_id) = self.socket_peer(table, fd) else {
            return;
        };
        let peek = call.class == Class::Receive && text::contains(call.args, "MSG_PEEK");
        match (call.ret, call.errno) {
            (_, Some("EAGAIN")) => self.nothing_there(table, fd, peer_id, peek),
            (_, Some(errno)) => {
                if let Some(peer) = self.peer(peer_id) {
                    count(&mut peer.errors, errno);
                }
            }
            (Some(0), None) => self.end_of_stream(table, fd, peer_id, peek),
            (Some(n @ 1..), None) => {
                if peek {
                    if let Some(peer) = self.peer(peer_id) {
                        peer.peeks += 1;
                    }
                } else {
                    self.data(call, table, fd, peer_id, n.unsigned_abs());
                }
            }
            (_, None) => {}
        }
    }

    fn nothing_there(&mut self, table: usize, fd: u64, peer_id: PeerId, peek: bool) {
        let mut streak = 0;
        if let Some(state) = self.tables.get(table, fd) {
            if std::mem::take(&mut state.reported) {
                state.spin += 1;
            }
            if !peek {
                state.eagain_streak += 1;
                streak = state.eagain_streak;
            }
        }
        if streak > 1 {
            // The first of a row is the end of a drain; from the second on nobody waited.
            self.facts.eagain_streak = self.facts.eagain_streak.max(streak);
        }
        if let Some(peer) = self.peer(peer_id) {
            if peek {
                peer.peeks += 1;
                peer.eagain_peeks += 1;
            } else {
                peer.eagain_receives += 1;
            }
        }
    }

    fn end_of_stream(&mut self, table: usize, fd: u64, peer_id: PeerId, peek: bool) {
        let Some(state) = self.tables.get(table, fd) else {
            return;
        };
        let first = !std::mem::replace(&mut state.ended, true);
        let idle = peek || state.sends == 0;
        if let Some(peer) = self.peer(peer_id) {
            peer.peeks += u64::from(peek);
            if first {
                peer.closed_by_peer += 1;
                peer.closed_idle += u64::from(idle);
            }
        }
    }

    fn data(&mut self, call: &Call<'_>, table: usize, fd: u64, peer_id: PeerId, bytes: u64) {
        let wait_clock = self.threads.get(&call.pid).map_or(0, |t| t.wait_clock);
        let mut buffer = std::mem::take(&mut self.payload);
        let cut = payload::strings(call.args, &mut buffer);
        let Some(state) = self.tables.get(table, fd) else {
            self.payload = buffer;
            return;
        };
        state.data_in = true;
        state.reported = false;
        state.spin = 0;
        state.eagain_streak = 0;
        let server = state.role == Role::Server || (state.role == Role::Unknown && state.sends == 0);
        let mut commands = 0;
        if server {
            let facts = &mut self.facts;
            commands =
                payload::commands(&buffer, |name, _| count(&mut facts.commands.received, name)).commands;
            if commands > 0 {
                state.role = Role::Server;
                state.carried += commands;
                self.facts.commands.cut_payloads += u64::from(cut);
            }
        } else if let Some(reply) = payload::error_reply(&buffer) {
            count(&mut self.facts.error_replies, &text::shown(reply, 60));
        }
        let turn = (state.sends > 0 && state.role != Role::Server).then(|| {
            let wait = match (call.at, state.sent_at) {
                (Some(at), Some(sent)) => {
                    Some(at.saturating_add(call.took.unwrap_or(0)).saturating_sub(sent))
                }
                _ if call.took.is_some() => Some(wait_clock.saturating_sub(state.wait_mark)),
                _ => None,
            };
            (state.sends, wait)
        });
        if turn.is_some() && state.role == Role::Unknown {
            state.carried += 1;
        }
        state.sends = 0;
        state.commands = 0;
        let asked = args::nth(call.args, 2);
        self.payload = buffer;
        let buffer_size = super::super::number::int(args::value(asked)).and_then(|n| u64::try_from(n).ok());
        if let Some(peer) = self.peer(peer_id) {
            peer.receives += 1;
            peer.received_bytes += bytes;
            peer.commands += commands;
            if bytes >= 4096 && buffer_size == Some(bytes) {
                peer.full_receives += 1;
                peer.full_buffer = peer.full_buffer.max(bytes);
            }
            if let Some((sends, wait)) = turn {
                peer.turns += 1;
                peer.turns_with_several_sends += u64::from(sends > 1);
                peer.most_sends_in_turn = peer.most_sends_in_turn.max(sends);
                if let Some(wait) = wait {
                    peer.timed_turns += 1;
                    add_time(&mut peer.turn_wait, wait);
                    max_time(&mut peer.longest_turn_wait, wait);
                    if ACK_WAIT.contains(&wait) {
                        if sends > 1 {
                            peer.ack_waits_after_several += 1;
                        } else {
                            peer.ack_waits_after_one += 1;
                        }
                    }
                }
            }
        }
    }

    fn poll(&mut self, call: &Call<'_>) {
        let Some(table) = self.table(call.pid) else {
            return;
        };
        let (fd, events) = waited_for(call);
        let timeout = wait_timeout(call);
        let nothing = call.ret == Some(0);
        if let Some(thread) = self.threads.get_mut(&call.pid) {
            if timeout == Some(0) && nothing {
                thread.empty_polls += 1;
                self.facts.empty_poll_streak = self.facts.empty_poll_streak.max(thread.empty_polls);
            } else {
                thread.empty_polls = 0;
            }
            if call.class == Class::EpollWait
                && let Some((epoll, 2)) = thread.epoll_check
                && args::fd(args::first(call.args).0) == Some(epoll)
                && timeout == Some(0)
            {
                thread.epoll_check = Some((epoll, 3));
            }
        }
        if let (true, Some(ms)) = (nothing, timeout.filter(|ms| *ms > 0)) {
            *small_slot(&mut self.facts.timed_out, ms) += 1;
        }
        let Some(fd) = fd else { return };
        self.saw_fd(fd);
        // What is reported is looked at only for sockets, and epoll's user data need not be a descriptor.
        let known = self
            .tables
            .get(table, fd)
            .is_some_and(|f| matches!(f.kind, Kind::Stream | Kind::Datagram));
        let failed_spin = call.ret.is_some_and(|n| n > 0);
        if !(known || failed_spin && call.class == Class::EpollWait) {
            return;
        }
        let Some(state) = self.tables.of(table, fd) else {
            return;
        };
        let mut connected_in = None;
        if failed_spin {
            if state.reported && state.kind == Kind::Stream {
                // Reported again, and nobody sent or received in between.
                state.spin += 1;
            }
            state.reported = true;
            state.eagain_streak = 0;
            if std::mem::take(&mut state.connecting) {
                let end = call.at.map(|at| at.saturating_add(call.took.unwrap_or(0)));
                connected_in = end
                    .zip(state.connect_at)
                    .map(|(end, begin)| end.saturating_sub(begin))
                    .or(call.took);
            }
        } else if timeout.is_some_and(|ms| ms > 0) {
            state.eagain_streak = 0;
        }
        let spin = state.spin;
        let peer = state.peer;
        if spin >= 2 && failed_spin {
            note_spin(&mut self.facts.spins, fd, call.name, events, spin + 1);
        }
        if let Some(peer) = peer.and_then(|id| self.peer(id)) {
            peer.readiness_checks += u64::from(timeout == Some(0));
            if let (true, Some(ms)) = (nothing, timeout.filter(|ms| *ms > 0)) {
                *small_slot(&mut peer.timed_out, ms) += 1;
            }
            if let Some(connected_in) = connected_in {
                max_time(&mut peer.longest_connect, connected_in);
            }
        }
    }

    fn end_spin(&mut self, state: &Fd, fd: u64) {
        if let (true, Some(spin)) = (state.spin >= 2, self.facts.spins.iter_mut().find(|s| s.fd == fd)) {
            spin.repeats = spin.repeats.max(state.spin);
        }
    }

    fn epoll_create(&mut self, call: &Call<'_>) {
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
        if let Some(thread) = self.threads.get_mut(&call.pid) {
            thread.epoll_check = Some((fd, 1));
        }
    }

    fn epoll_ctl(&mut self, call: &Call<'_>) {
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
        if let Some(thread) = self.threads.get_mut(&call.pid)
            && let Some((fd, 1)) = thread.epoll_check
            && epoll == Some(fd)
        {
            thread.epoll_check = Some((fd, 2));
        }
    }

    fn option(&mut self, call: &Call<'_>) {
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

    fn so_error(&mut self, call: &Call<'_>) {
        if !text::contains(call.args, "SO_ERROR") {
            return;
        }
        let Some(value) = args::between(call.args, "SO_ERROR, [", b"]") else {
            return;
        };
        let name = match super::super::number::uint(value) {
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

    fn path(&mut self, call: &Call<'_>) {
        if call.class == Class::Open
            && let (Some(fd), Some(table)) = (positive(call.ret), self.table(call.pid))
        {
            self.saw_fd(fd);
            let state = Fd {
                kind: Kind::Local,
                made_here: true,
                ..Fd::default()
            };
            self.tables.open(table, fd, state);
        }
        let Some(open) = memchr::memchr(b'"', call.args) else {
            return;
        };
        let end = args::end_of_string(call.args, open);
        let path = call.args.get(open + 1..end.saturating_sub(1)).unwrap_or(&[]);
        let path = &path[..path.len().min(256)];
        if path.is_empty() {
            return;
        }
        let missing = call.errno == Some("ENOENT");
        let files = &mut self.facts.files;
        files.calls += 1;
        files.missing += u64::from(missing);
        files.php += u64::from(path.ends_with(b".php"));
        files.xdebug += u64::from(text::contains(path, "xdebug") && !missing);
        const RESOLVER: [&[u8]; 5] = [
            b"/etc/resolv.conf",
            b"/etc/hosts",
            b"/etc/nsswitch.conf",
            b"/etc/host.conf",
            b"/etc/gai.conf",
        ];
        files.resolver_opens += u64::from(call.class == Class::Open && RESOLVER.contains(&path));
        let room = self.paths.len() < MOST_PATHS;
        match self.paths.get_mut(path) {
            Some((asked, gone)) => {
                *asked += 1;
                *gone += u64::from(missing);
            }
            None if room => {
                self.paths.insert(path.to_vec(), (1, u64::from(missing)));
            }
            None => {}
        }
    }

    fn sleep(&mut self, call: &Call<'_>) {
        let asked = args::timespec(call.args);
        let length = call.took.or(asked);
        let Some(length) = length else { return };
        if let Some(thread) = self.threads.get_mut(&call.pid) {
            thread.slept = Some(asked.unwrap_or(length));
        }
        // By what was asked for: what the clock made of it differs each time.
        let micros = asked.unwrap_or(length) / 1_000;
        if let Some(n) = self.sleeps.get_mut(&micros) {
            *n += 1;
        } else if self.sleeps.len() < 256 {
            self.sleeps.insert(micros, 1);
        }
    }

    fn futex(&mut self, call: &Call<'_>) {
        let futex = &mut self.facts.futex;
        if text::contains(call.args, "FUTEX_WAIT") || text::contains(call.args, "FUTEX_LOCK") {
            futex.waits += 1;
            futex.too_late += u64::from(call.errno == Some("EAGAIN"));
            if let Some(took) = call.took {
                add_time(&mut futex.time, took);
            }
        } else {
            futex.wakes += 1;
        }
    }

    fn cloned(&mut self, call: &Call<'_>) {
        let shares = shares(call.args);
        self.cloning.retain(|(parent, _)| *parent != call.pid);
        let Some(child) = positive(call.ret)
            .filter(|n| *n > 0)
            .and_then(|n| u32::try_from(n).ok())
        else {
            return;
        };
        self.facts.children += 1;
        match self.threads.get(&child).map(|thread| thread.table) {
            // It was seen before the clone returned.
            Some(Some(_)) => {}
            Some(None) => {
                let table = self.child_table(call.pid, shares);
                if let Some(thread) = self.threads.get_mut(&child) {
                    thread.table = table;
                }
            }
            // Without -f the log never shows it again, so it must not cost much.
            None if self.threads.len() < MOST_PIDS => {
                let table = self.child_table(call.pid, shares);
                self.threads.insert(
                    child,
                    Thread {
                        table,
                        ..Thread::default()
                    },
                );
            }
            None => self.facts.truncated = true,
        }
    }

    fn dup(&mut self, call: &Call<'_>) {
        if let Some((table, fd)) = self.first_fd(call) {
            self.duplicate(table, fd, positive(call.ret));
        }
    }

    fn duplicate(&mut self, table: usize, fd: u64, to: Option<u64>) {
        let Some(to) = to else { return };
        self.saw_fd(to);
        if let Some(state) = self.tables.get(table, fd).map(|state| state.clone()) {
            self.tables.open(table, to, state);
        } else {
            self.tables.close(table, to);
        }
    }

    fn keep_wait(&mut self, call: &Call<'_>) {
        if call.took.is_some_and(|took| took < LONG) || (call.took.is_none() && call.at.is_none()) {
            return;
        }
        let fd = match call.class {
            Class::Poll | Class::Select | Class::EpollWait => waited_for(call).0,
            Class::Connect | Class::Accept | Class::Receive => args::fd(args::first(call.args).0),
            _ => None,
        };
        let table = self.threads.get(&call.pid).and_then(|t| t.table);
        let peer = fd
            .zip(table)
            .and_then(|(fd, table)| self.tables.get(table, fd))
            .and_then(|f| f.peer)
            .and_then(|id| self.peers.get(id))
            .map(|(name, _)| name.clone())
            .unwrap_or_default();
        let wait = Wait {
            call: call.name.to_string(),
            peer,
            length: Nanos(call.took.unwrap_or(0)),
            timeout_ms: wait_timeout(call),
            in_vain: call.ret == Some(0)
                && matches!(call.class, Class::Poll | Class::Select | Class::EpollWait)
                || call.errno == Some("ETIMEDOUT"),
            line: call.line,
        };
        match (call.took, call.at) {
            (Some(_), _) => keep(&mut self.facts.waits, wait),
            (None, Some(at)) => {
                if let Some(thread) = self.threads.get_mut(&call.pid) {
                    thread.open_wait = Some((at, wait));
                }
            }
            (None, None) => {}
        }
    }

    /// The summary.
    pub(crate) fn finish(mut self) -> LogFacts {
        self.facts.span = self
            .first_at
            .map(|first| Nanos(self.last_at.saturating_sub(first)));
        self.facts.peers = std::mem::take(&mut self.peers)
            .into_iter()
            .filter(|(_, peer)| {
                *peer
                    != Peer {
                        unix: peer.unix,
                        ..Peer::default()
                    }
            })
            .collect();
        let mut sleeps: Vec<(u64, u64)> = self.sleeps.drain().collect();
        sleeps.sort_by_key(|(length, n)| (std::cmp::Reverse(*n), *length));
        sleeps.truncate(MOST_EXAMPLES);
        self.facts.sleeps = sleeps.into_iter().collect();
        self.facts.files.most_asked = most(&self.paths, |(asked, _)| *asked);
        self.facts.files.most_missing = most(&self.paths, |(_, missing)| *missing);
        self.facts
    }
}

/// The paths with the highest counts, those asked for once left out.
fn most(paths: &HashMap<Vec<u8>, (u64, u64)>, by: impl Fn(&(u64, u64)) -> u64) -> BTreeMap<String, u64> {
    let mut list: Vec<(&Vec<u8>, u64)> = paths
        .iter()
        .map(|(path, n)| (path, by(n)))
        .filter(|(_, n)| *n > 1)
        .collect();
    list.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    list.truncate(MOST_EXAMPLES);
    list.into_iter()
        .map(|(path, n)| (text::shown(path, 120), n))
        .collect()
}

/// Keeps the longest waits.
fn keep(waits: &mut Vec<Wait>, wait: Wait) {
    if wait.length.0 < LONG {
        return;
    }
    let at = waits.partition_point(|have| have.length >= wait.length);
    if at < MOST_EXAMPLES {
        waits.insert(at, wait);
        waits.truncate(MOST_EXAMPLES);
    }
}

fn note_spin(spins: &mut Vec<Spin>, fd: u64, call: &str, events: &[u8], repeats: u64) {
    let events = || text::shown(events, 40);
    let room = spins.len() < MOST_EXAMPLES;
    match spins.iter_mut().find(|spin| spin.fd == fd) {
        Some(spin) if spin.repeats < repeats => {
            spin.repeats = repeats;
            spin.events = events();
        }
        Some(_) => {}
        None if room => spins.push(Spin {
            fd,
            call: call.to_owned(),
            events: events(),
            repeats,
        }),
        None => {}
    }
}

fn note_repeat(facts: &mut LogFacts, name: &str, argument: &[u8], slept: u64) {
    let key = format!("{name} {}", text::shown(argument, 40));
    if !facts.repeats.contains_key(&key) && facts.repeats.len() >= MOST_EXAMPLES {
        return;
    }
    let repeat = facts.repeats.entry(key).or_insert_with(|| super::Repeat {
        equal: true,
        sleep: Nanos(slept),
        times: 0,
    });
    repeat.times += 1;
    repeat.equal &= repeat.sleep.0.abs_diff(slept) <= slept / 20;
    repeat.sleep = Nanos(slept);
}

fn small_slot(map: &mut BTreeMap<u64, u64>, key: u64) -> &mut u64 {
    let key = if map.contains_key(&key) || map.len() < MOST_KEYS {
        key
    } else {
        u64::MAX
    };
    map.entry(key).or_default()
}

fn shares(args: &[u8]) -> bool {
    text::contains(args, "CLONE_THREAD") || text::contains(args, "CLONE_FILES")
}

fn positive(ret: Option<i64>) -> Option<u64> {
    ret.and_then(|n| u64::try_from(n).ok())
}

/// The first descriptor a wait is about (what was reported, else what was asked for), and the events
/// reported for it.
fn waited_for<'a>(call: &Call<'a>) -> (Option<u64>, &'a [u8]) {
    let in_braces = |text: &'a [u8]| -> Option<u64> {
        // The end is that of a list entry, or of the decoration that -y adds.
        args::between(text, "{fd=", b",}<")
            .and_then(super::super::number::int)
            .and_then(|n| u64::try_from(n).ok())
    };
    match call.class {
        Class::Poll => {
            let reported = in_braces(call.tail);
            let events = args::between(call.tail, "revents=", b"},").unwrap_or(&[]);
            (reported.or_else(|| in_braces(call.args)), events)
        }
        Class::Select => {
            let list = args::between(call.tail, "[", b" ]").or_else(|| args::between(call.args, "[", b" ]"));
            (list.and_then(args::fd), &[])
        }
        Class::EpollWait => {
            let (_, rest) = args::first(call.args);
            let (list, _) = args::first(rest);
            let fd = args::number_after(list, "u32=").or_else(|| args::number_after(list, "data="));
            (
                fd.filter(|n| *n < 1 << 20),
                args::between(list, "events=", b",}").unwrap_or(&[]),
            )
        }
        _ => (None, &[]),
    }
}

/// The time-out of a wait in milliseconds; `None` for ever, or when it is not shown.
fn wait_timeout(call: &Call<'_>) -> Option<u64> {
    let ms = |arg: &[u8]| super::super::number::int(args::value(arg)).and_then(|n| u64::try_from(n).ok());
    let spec = |arg: &[u8]| args::timespec(arg).map(|nanos| nanos / 1_000_000);
    match call.class {
        Class::Poll => {
            let arg = args::nth(call.args, 2);
            spec(arg).or_else(|| ms(arg))
        }
        Class::Select => spec(args::nth(call.args, 4)),
        Class::EpollWait => {
            let arg = args::nth(call.args, 3);
            spec(arg).or_else(|| ms(arg))
        }
        _ => None,
    }
}
