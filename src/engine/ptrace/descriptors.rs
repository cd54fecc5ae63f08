//! Descriptor tables of the tracees: what each number leads to, resolved once and remembered until the
//! number is closed.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::unistd::Pid;
use procfs::net::{TcpNetEntries, UnixNetEntries};
use procfs::{FromRead, FromReadSI};

use super::fast::FastMap;
use super::peers::{Link, PeerId, Peers, address_name};
use crate::proc::Root;
use crate::sys::process::{PidFd, Side, socket_address};

/// One open descriptor, as far as it matters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    /// What it leads to.
    pub(super) peer: PeerId,
    /// Whether it is a socket.
    pub(super) socket: bool,
    /// Whether it is a stream socket (or a sequenced one): only these make connections.
    pub(super) stream: bool,
    /// Whether a connection was begun on it.
    pub(super) connected: bool,
    /// Sends since the last receive.
    pub(super) sends: u32,
    /// When the last of them returned.
    pub(super) sent_at: Option<Instant>,
    /// Whether small sends may be held back.
    pub(super) nagle: Nagle,
    /// How many more times to look for its peer.
    tries: u8,
    origin: Origin,
}

impl Descriptor {
    /// `connect` has given it this peer, or taken its peer away.
    pub(super) fn lead_to(&mut self, peer: PeerId, connected: bool) {
        self.peer = peer;
        self.connected = connected;
        self.sends = 0;
        self.tries = if connected { 0 } else { TRIES };
    }
}

/// What is known of Nagle's algorithm on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nagle {
    /// Nothing: it was set up before it was seen.
    Unknown,
    /// No TCP.
    None,
    /// TCP as the kernel makes it.
    On,
    /// TCP_NODELAY is set.
    Off,
}

/// How a socket came to be, as far as the calls that made it were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Unknown,
    Made,
    Accepted,
}

/// An unconnected socket may be connected by a call that is not watched, so its peer is looked for a few
/// times; a datagram socket that never connects must not cost a look-up for each call for ever.
const TRIES: u8 = 4;

/// A descriptor table; threads share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableId(usize);

#[derive(Debug, Default)]
struct Table {
    users: usize,
    open: FastMap<i32, Descriptor>,
}

/// All tables.
#[derive(Debug)]
pub(super) struct Descriptors {
    tables: Vec<Table>,
    free: Vec<usize>,
    root: Root,
}

impl Descriptors {
    /// No tables yet.
    pub(super) fn new() -> Descriptors {
        Descriptors {
            tables: Vec::new(),
            free: Vec::new(),
            root: Root::live(),
        }
    }

    /// A table of which nothing is known.
    pub(super) fn fresh(&mut self) -> TableId {
        self.add(FastMap::default())
    }

    /// The same table for one more thread.
    pub(super) fn share(&mut self, table: TableId) -> TableId {
        self.tables[table.0].users += 1;
        table
    }

    /// A copy, as a child has one.
    pub(super) fn copy(&mut self, table: TableId) -> TableId {
        let open = self.tables[table.0].open.clone();
        self.add(open)
    }

    /// A thread that used it has ended or uses another.
    pub(super) fn release(&mut self, table: TableId) {
        let entry = &mut self.tables[table.0];
        entry.users -= 1;
        if entry.users == 0 {
            entry.open = FastMap::default();
            self.free.push(table.0);
        }
    }

    fn add(&mut self, open: FastMap<i32, Descriptor>) -> TableId {
        let table = Table { users: 1, open };
        match self.free.pop() {
            Some(index) => {
                self.tables[index] = table;
                TableId(index)
            }
            None => {
                self.tables.push(table);
                TableId(self.tables.len() - 1)
            }
        }
    }

    /// A number no longer stands for what it did.
    pub(super) fn forget(&mut self, table: TableId, fd: i32) {
        self.tables[table.0].open.remove(&fd);
    }

    /// The same for a range of numbers.
    pub(super) fn forget_range(&mut self, table: TableId, first: u32, last: u32) {
        self.tables[table.0]
            .open
            .retain(|fd, _| !(first..=last).contains(&(*fd as u32)));
    }

    /// A `socket` call gave this number.
    pub(super) fn made(&mut self, table: TableId, fd: i32, family: u64, kind: u64) {
        let kind = kind as i32 & 0xf;
        let stream = kind == libc::SOCK_STREAM || kind == libc::SOCK_SEQPACKET;
        let inet = matches!(family as i32, libc::AF_INET | libc::AF_INET6);
        let nagle = if inet && stream { Nagle::On } else { Nagle::None };
        self.put(table, fd, stream, Origin::Made, nagle);
    }

    /// An `accept` call gave this number.
    pub(super) fn accepted(&mut self, table: TableId, fd: i32) {
        self.put(table, fd, true, Origin::Accepted, Nagle::Unknown);
    }

    fn put(&mut self, table: TableId, fd: i32, stream: bool, origin: Origin, nagle: Nagle) {
        let descriptor = Descriptor {
            peer: Peers::SOCKET,
            socket: true,
            stream,
            connected: origin == Origin::Accepted,
            sends: 0,
            sent_at: None,
            nagle,
            tries: if origin == Origin::Accepted { 1 } else { TRIES },
            origin,
        };
        self.tables[table.0].open.insert(fd, descriptor);
    }

    /// What a number leads to, looked up in the stopped thread `tid` when it is not known yet.
    pub(super) fn resolve(
        &mut self,
        table: TableId,
        fd: i32,
        owner: Owner,
        peers: &mut Peers,
    ) -> Option<&mut Descriptor> {
        let open = &mut self.tables[table.0].open;
        let descriptor = match open.entry(fd) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(look_up(&self.root, owner, fd, peers)?)
            }
        };
        if descriptor.tries > 0 && descriptor.peer == Peers::SOCKET {
            descriptor.tries -= 1;
            name_socket(&self.root, owner, fd, None, descriptor, peers);
        }
        Some(descriptor)
    }

    /// As [`Descriptors::resolve`], without looking for the peer: `connect` is about to tell it.
    pub(super) fn socket_for_connect(
        &mut self,
        table: TableId,
        fd: i32,
        owner: Owner,
        peers: &mut Peers,
    ) -> Option<&mut Descriptor> {
        let open = &mut self.tables[table.0].open;
        match open.entry(fd) {
            std::collections::hash_map::Entry::Occupied(entry) => Some(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut descriptor = look_up(&self.root, owner, fd, peers)?;
                // It may have been connected by the very call that is looked at.
                descriptor.connected = false;
                Some(entry.insert(descriptor))
            }
        }
    }

    /// How many tables are in use.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        self.tables.len() - self.free.len()
    }
}

/// Whose descriptor it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// The thread.
    pub(super) tid: Pid,
    /// Its process.
    pub(super) tgid: Pid,
}

/// Reads the link of a descriptor; `None` when it is not open.
fn look_up(root: &Root, owner: Owner, fd: i32, peers: &mut Peers) -> Option<Descriptor> {
    let link = std::fs::read_link(root.path(&format!("proc/{}/fd/{fd}", owner.tid))).ok()?;
    let mut descriptor = Descriptor {
        peer: Peers::SOCKET,
        socket: false,
        stream: false,
        connected: false,
        sends: 0,
        sent_at: None,
        nagle: Nagle::Unknown,
        tries: 0,
        origin: Origin::Unknown,
    };
    match Link::parse(&link.to_string_lossy()) {
        Link::Kind(kind) => descriptor.peer = peers.id(&kind),
        Link::Socket(inode) => {
            descriptor.socket = true;
            descriptor.stream = true;
            descriptor.tries = TRIES - 1;
            name_socket(root, owner, fd, Some(inode), &mut descriptor, peers);
        }
    }
    Some(descriptor)
}

/// Finds the peer of a socket: by asking the socket itself through a duplicate, or, where that is not
/// permitted, in the kernel's lists by its inode.
fn name_socket(
    root: &Root,
    owner: Owner,
    fd: i32,
    inode: Option<u64>,
    descriptor: &mut Descriptor,
    peers: &mut Peers,
) {
    let name = match duplicate(owner, fd) {
        Ok(socket) => ask(&socket, descriptor),
        Err(_) => inode
            .or_else(|| inode_of(root, owner, fd))
            .and_then(|inode| find_by_inode(root, owner, inode, descriptor)),
    };
    if let Some(name) = name {
        descriptor.peer = peers.id(&name);
        descriptor.tries = 0;
    }
}

fn duplicate(owner: Owner, fd: i32) -> Result<std::os::fd::OwnedFd, Errno> {
    PidFd::open(owner.tgid)?.borrow_descriptor(fd)
}

/// Asks a socket for its type and peer.
fn ask(socket: &std::os::fd::OwnedFd, descriptor: &mut Descriptor) -> Option<String> {
    use nix::sys::socket::{SockType, getsockopt, sockopt};
    if let Ok(kind) = getsockopt(socket, sockopt::SockType) {
        descriptor.stream = matches!(kind, SockType::Stream | SockType::SeqPacket);
    }
    let local = || {
        socket_address(socket.as_fd(), Side::Local)
            .ok()
            .and_then(|bytes| address_name(&bytes))
    };
    match socket_address(socket.as_fd(), Side::Peer) {
        Ok(peer) => {
            descriptor.connected = true;
            let accepted = descriptor.origin == Origin::Accepted;
            match (address_name(&peer), accepted) {
                // Each client of a server has a port of its own; what tells them apart from other
                // traffic is the address that they called.
                (Some(_), true) | (None, _) => {
                    Some(local().map_or("socketpair".to_owned(), |name| format!("clients of {name}")))
                }
                (Some(peer), false) => Some(peer),
            }
        }
        Err(_) => None,
    }
}

fn inode_of(root: &Root, owner: Owner, fd: i32) -> Option<u64> {
    let link = std::fs::read_link(root.path(&format!("proc/{}/fd/{fd}", owner.tid))).ok()?;
    match Link::parse(&link.to_string_lossy()) {
        Link::Socket(inode) => Some(inode),
        Link::Kind(_) => None,
    }
}

/// Looks a socket up in `/proc/PID/net/tcp` and `tcp6` of its own network namespace. For a UNIX socket
/// those lists name the socket itself and not its peer, so only an accepted one has a name there.
fn find_by_inode(root: &Root, owner: Owner, inode: u64, descriptor: &mut Descriptor) -> Option<String> {
    let open = |list: &str| std::fs::File::open(root.path(&format!("proc/{}/net/{list}", owner.tid))).ok();
    for list in ["tcp", "tcp6"] {
        let Some(entries) =
            open(list).and_then(|file| TcpNetEntries::from_read(file, procfs::current_system_info()).ok())
        else {
            continue;
        };
        let Some(entry) = entries.0.into_iter().find(|entry| entry.inode == inode) else {
            continue;
        };
        let connected = entry.remote_address.port() != 0;
        descriptor.connected = connected;
        return connected.then(|| match descriptor.origin {
            Origin::Accepted => format!("clients of {}", entry.local_address),
            Origin::Unknown | Origin::Made => entry.remote_address.to_string(),
        });
    }
    let sockets = UnixNetEntries::from_read(open("unix")?).ok()?;
    let entry = sockets.0.into_iter().find(|entry| entry.inode == inode)?;
    let path = entry.path?;
    Some(format!(
        "clients of unix:{}",
        crate::units::escape(&path.to_string_lossy(), 120)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    fn myself() -> Owner {
        Owner {
            tid: nix::unistd::gettid(),
            tgid: nix::unistd::getpid(),
        }
    }

    #[test]
    fn a_connected_socket_is_named_by_its_peer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = std::net::TcpStream::connect(&address).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (mut descriptors, mut peers) = (Descriptors::new(), Peers::default());
        let table = descriptors.fresh();
        let found = *descriptors
            .resolve(table, client.as_raw_fd(), myself(), &mut peers)
            .unwrap();
        assert!(found.socket && found.stream && found.connected);
        assert_eq!(peers.name(found.peer), address);
        descriptors.accepted(table, server.as_raw_fd());
        let found = *descriptors
            .resolve(table, server.as_raw_fd(), myself(), &mut peers)
            .unwrap();
        assert_eq!(peers.name(found.peer), format!("clients of {address}"));
        // The kernel's list says the same.
        let mut blank = Descriptor {
            origin: Origin::Unknown,
            ..found
        };
        let inode = inode_of(&Root::live(), myself(), client.as_raw_fd()).unwrap();
        assert_eq!(
            find_by_inode(&Root::live(), myself(), inode, &mut blank),
            Some(address)
        );
    }

    #[test]
    fn unix_sockets_pipes_and_files_have_their_kinds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        let (read, _write) = nix::unistd::pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        let (mut descriptors, mut peers) = (Descriptors::new(), Peers::default());
        let table = descriptors.fresh();
        let mut name = |fd: i32| {
            let found = *descriptors.resolve(table, fd, myself(), &mut peers).unwrap();
            peers.name(found.peer).to_owned()
        };
        let shown = format!("unix:{}", path.display());
        assert_eq!(name(client.as_raw_fd()), shown);
        assert_eq!(name(server.as_raw_fd()), format!("clients of {shown}"));
        assert_eq!(name(one.as_raw_fd()), "socketpair");
        assert_eq!(name(read.as_raw_fd()), "pipe");
        assert_eq!(name(file.as_raw_fd()), "file");
        assert!(
            descriptors
                .resolve(table, 100_000, myself(), &mut peers)
                .is_none()
        );
    }

    #[test]
    fn tables_are_copied_shared_and_reused() {
        let mut descriptors = Descriptors::new();
        let parent = descriptors.fresh();
        let kind = libc::SOCK_STREAM as u64 | libc::SOCK_CLOEXEC as u64;
        descriptors.made(parent, 3, libc::AF_INET as u64, kind);
        let child = descriptors.copy(parent);
        let thread = descriptors.share(parent);
        descriptors.forget(thread, 3);
        let known = |d: &Descriptors, table: TableId| d.tables[table.0].open.contains_key(&3);
        assert!(known(&descriptors, child) && !known(&descriptors, parent));
        descriptors.forget_range(child, 3, u32::MAX);
        assert!(!known(&descriptors, child));
        for table in [parent, thread, child] {
            descriptors.release(table);
        }
        assert_eq!(descriptors.in_use(), 0);
        let reused = descriptors.fresh();
        assert!(!known(&descriptors, reused));
        assert_eq!(descriptors.in_use(), 1);
    }
}
