//! Building [`LogFacts`] while a log streams by: one call at a time, in bounded memory.

mod class;
mod descriptors;
mod paths;
mod talk;
mod threads;
mod waits;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::fds::{Address, Kind, PeerId, Tables, decorated};
use super::{Gap, LogFacts, MOST_EXAMPLES, MOST_PEERS, OTHER_PEERS, Peer, UNKNOWN_PEER, Wait, args};
use crate::import::{Hash, Map, text};
use crate::units::Nanos;

pub(crate) use class::Class;
use threads::{Ids, Threads};

/// Threads and processes followed at one time.
const MOST_PIDS: usize = 16_384;
/// Keys of any counting map.
const MOST_KEYS: usize = 64;

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
    threads: Threads,
    /// Those beyond, of which only the number is of interest.
    unfollowed: Ids,
    /// Processes and threads seen so far.
    pub(crate) seen: u64,
    tables: Tables,
    peers: Vec<(String, Peer)>,
    peer_ids: Map<String, PeerId>,
    paths: Map<Vec<u8>, (u64, u64)>,
    sleeps: Map<u64, u64>,
    cloning: Vec<(u32, bool)>,
    first_at: Option<u64>,
    last_at: u64,
    payload: Vec<u8>,
    /// Of commands, to see one sent again.
    hash: Hash,
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
        if let Some(thread) = self.threads.get_mut(pid) {
            self.seen += u64::from(!std::mem::replace(&mut thread.met, true));
            return;
        }
        if self.threads.len() >= MOST_PIDS {
            self.facts.truncated = true;
            self.seen += u64::from(self.unfollowed.insert(pid));
            return;
        }
        self.seen += 1;
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
        self.threads.get(pid).is_some()
    }

    /// Whether a clone is under way.
    pub(crate) fn is_cloning(&self) -> bool {
        !self.cloning.is_empty()
    }

    fn child_table(&mut self, parent: u32, shares: bool) -> Option<usize> {
        let of = self.threads.get(parent)?.table?;
        if shares {
            Some(self.tables.share(of))
        } else {
            self.tables.copy(of)
        }
    }

    /// A thread has ended.
    pub(crate) fn gone(&mut self, pid: u32, killed_by: Option<&str>) {
        if let Some(signal) = killed_by {
            count(&mut self.facts.killed, signal);
        }
        let Some(thread) = self.threads.remove(pid) else {
            self.unfollowed.remove(pid);
            return;
        };
        if let Some(table) = thread.table {
            self.tables.release(table);
        }
    }

    /// Something of the log was too much to keep.
    pub(crate) fn truncated(&mut self) {
        self.facts.truncated = true;
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
        if let Some(thread) = self.threads.get_mut(pid)
            && std::mem::take(&mut thread.restarted)
        {
            count(&mut self.facts.interrupted, name);
        }
    }

    /// The call that has just been taken was cut short by a signal.
    pub(crate) fn restarted(&mut self, pid: u32) {
        if let Some(thread) = self.threads.get_mut(pid) {
            thread.restarted = true;
        }
    }

    fn clock(&mut self, call: &Call<'_>) {
        let Some(thread) = self.threads.get_mut(call.pid) else {
            return;
        };
        if let Some(at) = call.at {
            self.first_at = Some(self.first_at.map_or(at, |first| first.min(at)));
            self.last_at = self.last_at.max(at.saturating_add(call.took.unwrap_or(0)));
            if let Some((from, mut wait)) = thread.open_wait.take() {
                wait.length = Nanos(at.saturating_sub(from));
                waits::keep(&mut self.facts.waits, wait);
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
        let thread = self.threads.get_mut(pid)?;
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
        match self.threads.get(child).map(|thread| thread.table) {
            // It was seen before the clone returned.
            Some(Some(_)) => {}
            Some(None) => {
                let table = self.child_table(call.pid, shares);
                if let Some(thread) = self.threads.get_mut(child) {
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
        self.facts.files.most_asked = paths::most(&self.paths, |(asked, _)| *asked);
        self.facts.files.most_missing = paths::most(&self.paths, |(_, missing)| *missing);
        self.facts
    }
}

fn shares(args: &[u8]) -> bool {
    text::contains(args, "CLONE_THREAD") || text::contains(args, "CLONE_FILES")
}

fn positive(ret: Option<i64>) -> Option<u64> {
    ret.and_then(|n| u64::try_from(n).ok())
}
