//! Descriptors of the traced processes: what each leads to, and the state of the talk on it.

use super::args;
use crate::import::Map;
use crate::import::text;

/// Descriptors kept over all processes; beyond that new ones are not followed.
const MOST_FDS: usize = 65_536;
/// Descriptor tables kept.
const MOST_TABLES: usize = 8_192;

/// Index of a peer in the collector's list.
pub(crate) type PeerId = usize;

/// What a descriptor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// Nothing is known.
    #[default]
    Unknown,
    /// A stream socket.
    Stream,
    /// A datagram socket.
    Datagram,
    /// An epoll instance.
    Epoll,
    /// A file, pipe, terminal, event, timer: no peer.
    Local,
}

/// Which side of a connection the traced program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Role {
    /// Not seen yet.
    #[default]
    Unknown,
    /// It sends commands.
    Client,
    /// It receives them.
    Server,
}

/// One descriptor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fd {
    pub(crate) kind: Kind,
    pub(crate) role: Role,
    pub(crate) peer: Option<PeerId>,
    /// The log shows how it came to be.
    pub(crate) made_here: bool,
    pub(crate) accepted: bool,
    /// `connect` returned EINPROGRESS at this time.
    pub(crate) connecting: bool,
    pub(crate) connect_at: Option<u64>,
    /// `connect` failed at once: there never was a connection.
    pub(crate) refused: bool,
    /// Sends and commands since data was last received.
    pub(crate) sends: u64,
    pub(crate) commands: u64,
    /// When the last send ended, and the thread's clock of waits then.
    pub(crate) sent_at: Option<u64>,
    pub(crate) wait_mark: u64,
    /// Turns or commands since it was opened.
    pub(crate) carried: u64,
    pub(crate) nodelay: bool,
    pub(crate) noted_without_nodelay: bool,
    pub(crate) data_out: bool,
    pub(crate) data_in: bool,
    /// The peer has closed its side.
    pub(crate) ended: bool,
    /// Reported ready and then found empty, how often in a row.
    pub(crate) spin: u64,
    /// Reported ready and not received from yet.
    pub(crate) reported: bool,
    pub(crate) eagain_streak: u64,
    /// Hash of the last command sent.
    pub(crate) last_command: u64,
}

/// Descriptors of a table that a forked child gets a copy of. A server with many connections that forks
/// again and again must not cost a copy of them each time.
const MOST_COPIED: usize = 1_024;

/// Index of a descriptor in the list of all.
type Slot = u32;

#[derive(Debug, Default)]
struct Table {
    /// Where each descriptor is. They are large: a map of them would hardly fit any cache.
    slots: Map<u32, Slot>,
    /// Threads that share it.
    users: usize,
}

/// Tables of descriptors. Threads share one, forked children get a copy.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    tables: Vec<Table>,
    free: Vec<usize>,
    /// All descriptors of all tables.
    fds: Vec<Fd>,
    free_fds: Vec<Slot>,
    /// Table, descriptor and slot asked for last: a call asks several times for the same.
    last: Option<(usize, u32, Slot)>,
}

impl Tables {
    /// Descriptors kept now.
    fn total(&self) -> usize {
        self.fds.len() - self.free_fds.len()
    }

    /// A new table with one user; `None` when there are too many.
    pub(crate) fn new_table(&mut self) -> Option<usize> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.tables.len() >= MOST_TABLES => return None,
            None => {
                self.tables.push(Table::default());
                self.tables.len() - 1
            }
        };
        self.tables.get_mut(id)?.users = 1;
        Some(id)
    }

    /// The same table for one more thread.
    pub(crate) fn share(&mut self, id: usize) -> usize {
        if let Some(table) = self.tables.get_mut(id) {
            table.users += 1;
        }
        id
    }

    /// A copy of a table, for a forked child.
    pub(crate) fn copy(&mut self, of: usize) -> Option<usize> {
        let id = self.new_table()?;
        let slots = &self.tables.get(of)?.slots;
        if slots.is_empty() || slots.len() > MOST_COPIED || self.total() + slots.len() > MOST_FDS {
            return Some(id);
        }
        let mut copy = slots.clone();
        for slot in copy.values_mut() {
            let fd = self.fds.get(*slot as usize).cloned().unwrap_or_default();
            *slot = self.put(fd);
        }
        self.tables.get_mut(id)?.slots = copy;
        Some(id)
    }

    fn put(&mut self, fd: Fd) -> Slot {
        if let Some(slot) = self.free_fds.pop()
            && let Some(place) = self.fds.get_mut(slot as usize)
        {
            *place = fd;
            return slot;
        }
        self.fds.push(fd);
        (self.fds.len() - 1) as Slot
    }

    /// A thread that used the table has ended; with the last one it is given back.
    pub(crate) fn release(&mut self, id: usize) {
        let Some(table) = self.tables.get_mut(id).filter(|table| table.users > 0) else {
            return;
        };
        table.users -= 1;
        if table.users == 0 {
            // A new map: clearing a large one costs its capacity, each time the table is used again.
            self.free_fds
                .extend(std::mem::take(&mut table.slots).into_values());
            self.free.push(id);
            self.last = None;
        }
    }

    /// The descriptor when it is known.
    pub(crate) fn get(&mut self, table: usize, fd: u64) -> Option<&mut Fd> {
        let fd = u32::try_from(fd).ok()?;
        let slot = match self.last {
            Some((last_table, last_fd, slot)) if (last_table, last_fd) == (table, fd) => slot,
            _ => *self.tables.get(table)?.slots.get(&fd)?,
        };
        self.last = Some((table, fd, slot));
        self.fds.get_mut(slot as usize)
    }

    /// The descriptor, made when new; `None` when there are too many.
    pub(crate) fn of(&mut self, table: usize, fd: u64) -> Option<&mut Fd> {
        let number = u32::try_from(fd).ok()?;
        let known = self.last.is_some_and(|last| (last.0, last.1) == (table, number))
            || self.tables.get(table)?.slots.contains_key(&number);
        if !known {
            if self.total() >= MOST_FDS {
                return None;
            }
            let slot = self.put(Fd::default());
            self.tables.get_mut(table)?.slots.insert(number, slot);
            self.last = Some((table, number, slot));
        }
        self.get(table, fd)
    }

    /// Puts a fresh descriptor in place of whatever had the number.
    pub(crate) fn open(&mut self, table: usize, fd: u64, state: Fd) {
        if let Some(slot) = self.of(table, fd) {
            *slot = state;
        }
    }

    /// Takes a descriptor out.
    pub(crate) fn close(&mut self, table: usize, fd: u64) -> Option<Fd> {
        let fd = u32::try_from(fd).ok()?;
        let slot = self.tables.get_mut(table)?.slots.remove(&fd)?;
        self.last = None;
        self.free_fds.push(slot);
        self.fds.get_mut(slot as usize).map(std::mem::take)
    }
}

/// An address in a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// IPv4 or IPv6, `host:port`.
    Ip(String),
    /// A UNIX socket's path.
    Unix(String),
    /// Another family.
    Other,
}

/// Host and port of an IPv4 address exactly as strace writes it, which nearly all are.
fn inet(body: &[u8]) -> Option<(&str, &str)> {
    fn run(text: &[u8], longest: usize, dot: bool) -> Option<(&str, &[u8])> {
        let length = text
            .iter()
            .position(|b| !(b.is_ascii_digit() || dot && *b == b'.'))
            .filter(|length| (1..=longest).contains(length))?;
        let (run, rest) = text.split_at(length);
        Some((std::str::from_utf8(run).ok()?, rest))
    }
    let (port, rest) = run(
        body.strip_prefix(b"sa_family=AF_INET, sin_port=htons(")?,
        6,
        false,
    )?;
    let (host, rest) = run(rest.strip_prefix(b"), sin_addr=inet_addr(\"")?, 45, true)?;
    rest.starts_with(b"\"").then_some((host, port))
}

/// Reads a `struct sockaddr` as strace prints it (also `-X raw`), or as FreeBSD's truss does.
pub(crate) fn address(arg: &[u8]) -> Option<Address> {
    let arg = args::value(arg);
    let body = arg.strip_prefix(b"{")?;
    if let Some((host, port)) = inet(body) {
        return Some(Address::Ip(format!("{host}:{port}")));
    }
    let is_inet = body.starts_with(b"sa_family=AF_INET");
    if !is_inet
        && (text::contains(body, "sun_path=")
            || text::contains(body, "AF_UNIX")
            || text::contains(body, "AF_LOCAL"))
    {
        let path = args::between(body, "\"", b"\"")?;
        let mark = if text::contains(body, "=@\"") { "@" } else { "" };
        return Some(Address::Unix(format!("unix:{mark}{}", text::shown(path, 108))));
    }
    if let Some(host) = args::between(body, "sin_addr=inet_addr(\"", b"\"") {
        let port = args::between(body, "htons(", b")")?;
        return Some(Address::Ip(format!(
            "{}:{}",
            text::shown(host, 45),
            text::shown(port, 6)
        )));
    }
    if text::contains(body, "sin6_port=") {
        let host = args::between(body, "inet_pton(AF_INET6, \"", b"\"")?;
        let port = args::between(body, "htons(", b")")?;
        return Some(Address::Ip(format!(
            "[{}]:{}",
            text::shown(host, 45),
            text::shown(port, 6)
        )));
    }
    for family in ["AF_INET6 ", "AF_INET "] {
        if let Some(host) = args::between(body, family, b" }") {
            return Some(Address::Ip(text::shown(host, 60)));
        }
    }
    Some(Address::Other)
}

/// What `-y` and `-yy` tell about a descriptor.
pub(crate) fn decorated(decoration: &[u8]) -> Option<(Kind, Option<Address>)> {
    let inner = |prefix: &str| {
        decoration
            .strip_prefix(prefix.as_bytes())
            .and_then(|rest| rest.strip_suffix(b"]"))
    };
    let far_end = |text: &[u8]| {
        memchr::memmem::find(text, b"->").map(|at| Address::Ip(text::shown(&text[at + 2..], 60)))
    };
    for prefix in ["TCP:[", "TCPv6:["] {
        if let Some(pair) = inner(prefix) {
            return Some((Kind::Stream, far_end(pair)));
        }
    }
    for prefix in ["UDP:[", "UDPv6:["] {
        if let Some(pair) = inner(prefix) {
            return Some((Kind::Datagram, far_end(pair)));
        }
    }
    if decoration.starts_with(b"UNIX") {
        let path = args::between(decoration, "\"", b"\"")
            .map(|p| Address::Unix(format!("unix:{}", text::shown(p, 108))));
        let kind = if decoration.starts_with(b"UNIX-DGRAM") {
            Kind::Datagram
        } else {
            Kind::Stream
        };
        return Some((kind, path));
    }
    if decoration.starts_with(b"socket:[") {
        return None;
    }
    if decoration == b"anon_inode:[eventpoll]" {
        return Some((Kind::Epoll, None));
    }
    Some((Kind::Local, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let ip = |text: &str| Some(Address::Ip(text.to_owned()));
        assert_eq!(
            address(br#"{sa_family=AF_INET, sin_port=htons(6379), sin_addr=inet_addr("127.0.0.1")}"#),
            ip("127.0.0.1:6379")
        );
        assert_eq!(
            address(
                br#"{sa_family=AF_INET6, sin6_port=htons(6379), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}"#
            ),
            ip("[::1]:6379")
        );
        assert_eq!(address(b"{ AF_INET 127.0.0.1:6379 }"), ip("127.0.0.1:6379"));
        assert_eq!(
            address(br#"{sa_family=AF_UNIX, sun_path=@"x"}"#),
            Some(Address::Unix("unix:@x".to_owned()))
        );
        assert_eq!(address(b"{sa_family=AF_NETLINK, nl_pid=0}"), Some(Address::Other));
        assert_eq!(address(b"0x7ffee8ea9a30"), None);
    }

    #[test]
    fn decorations() {
        assert_eq!(
            decorated(b"TCP:[127.0.0.1:5->127.0.0.1:6379]"),
            Some((Kind::Stream, Some(Address::Ip("127.0.0.1:6379".to_owned()))))
        );
        assert_eq!(decorated(b"/etc/passwd"), Some((Kind::Local, None)));
        assert_eq!(decorated(b"socket:[1]"), None);
    }

    #[test]
    fn tables_stay_bounded() {
        let mut tables = Tables::default();
        let first = tables.new_table().unwrap();
        for fd in 0..100_000 {
            tables.open(first, fd, Fd::default());
        }
        assert_eq!(tables.total(), MOST_FDS);
        let copy = tables.copy(first).unwrap();
        assert!(tables.get(copy, 1).is_none());
        tables.release(first);
        assert_eq!(tables.total(), 0);
        assert_eq!(tables.new_table(), Some(first));
    }

    #[test]
    fn a_place_used_again_is_another_descriptor() {
        let sends = |n| Fd {
            sends: n,
            ..Fd::default()
        };
        let mut tables = Tables::default();
        let first = tables.new_table().unwrap();
        tables.open(first, 4, sends(1));
        let copy = tables.copy(first).unwrap();
        tables.get(first, 4).unwrap().sends = 2;
        assert_eq!(tables.close(first, 4).map(|fd| fd.sends), Some(2));
        assert!(tables.get(first, 4).is_none() && tables.close(first, 4).is_none());
        assert_eq!(tables.get(copy, 4).map(|fd| fd.sends), Some(1));
        tables.open(first, 5, sends(3));
        assert_eq!(tables.get(copy, 4).map(|fd| fd.sends), Some(1));
        tables.release(copy);
        assert!(tables.get(copy, 4).is_none());
        assert_eq!(tables.of(first, 4).map(|fd| fd.sends), Some(0));
        assert_eq!((tables.total(), tables.fds.len()), (2, 2));
    }
}
