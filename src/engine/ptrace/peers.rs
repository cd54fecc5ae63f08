//! What a descriptor leads to, as a name: a server's address, a pipe, a file.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use crate::units::escape;

/// A name, interned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PeerId(u32);

/// More different names than this are counted together, so that a server with a hundred thousand clients
/// does not fill the record.
const MOST_NAMES: usize = 4096;

/// The names seen so far.
#[derive(Debug)]
pub(super) struct Peers {
    names: Vec<String>,
    ids: HashMap<String, PeerId>,
}

impl Peers {
    /// A socket that leads nowhere yet, or nobody knows where.
    pub(super) const SOCKET: PeerId = PeerId(0);
    const OTHERS: PeerId = PeerId(1);

    /// The id of a name.
    pub(super) fn id(&mut self, name: &str) -> PeerId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        if self.names.len() >= MOST_NAMES {
            return Peers::OTHERS;
        }
        let id = PeerId(self.names.len() as u32);
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// The name of an id.
    pub(super) fn name(&self, id: PeerId) -> &str {
        self.names.get(id.0 as usize).map_or("", String::as_str)
    }
}

impl Default for Peers {
    fn default() -> Self {
        let mut peers = Peers {
            names: Vec::new(),
            ids: HashMap::new(),
        };
        peers.id("socket");
        peers.id("other peers");
        peers
    }
}

/// A socket address as it is written in tables, or `None` when it names nobody (an unnamed UNIX socket,
/// `AF_UNSPEC`).
pub(super) fn address_name(sockaddr: &[u8]) -> Option<String> {
    let family = i32::from(u16::from_ne_bytes([*sockaddr.first()?, *sockaddr.get(1)?]));
    let port = |bytes: &[u8]| Some(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    match family {
        libc::AF_INET => {
            let octets: [u8; 4] = sockaddr.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(octets), port(sockaddr)?).to_string())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = sockaddr.get(8..24)?.try_into().ok()?;
            let address = Ipv6Addr::from(octets);
            let port = port(sockaddr)?;
            // A client that prefers IPv6 sockets still talks to the same server.
            Some(match address.to_ipv4_mapped() {
                Some(v4) => SocketAddrV4::new(v4, port).to_string(),
                None => SocketAddrV6::new(address, port, 0, 0).to_string(),
            })
        }
        libc::AF_UNIX => {
            let path = sockaddr.get(2..).filter(|path| !path.is_empty())?;
            let (mark, path) = match path[0] {
                // An abstract name may contain any byte and has no end mark.
                0 => ("@", &path[1..]),
                _ => ("", path.split(|byte| *byte == 0).next().unwrap_or(path)),
            };
            let path = String::from_utf8_lossy(path);
            (!path.is_empty()).then(|| format!("unix:{mark}{}", escape(&path, 120)))
        }
        libc::AF_UNSPEC => None,
        libc::AF_NETLINK => Some("netlink".to_owned()),
        libc::AF_VSOCK => Some("vsock".to_owned()),
        other => Some(format!("address family {other}")),
    }
}

/// What the link in `/proc/PID/fd` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    /// A socket, by its inode.
    Socket(u64),
    /// Anything else, by its kind.
    Kind(String),
}

impl Link {
    /// Reads the text of such a link.
    pub(super) fn parse(link: &str) -> Link {
        let kind = |name: &str| Link::Kind(name.to_owned());
        if let Some(inode) = link
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'))
        {
            return inode.parse().map_or_else(|_| kind("socket"), Link::Socket);
        }
        if link.starts_with("pipe:[") {
            return kind("pipe");
        }
        if let Some(name) = link.strip_prefix("anon_inode:") {
            return match name.trim_matches(['[', ']']) {
                "eventpoll" => kind("epoll"),
                "timerfd" => kind("timer"),
                other => kind(&escape(other, 40)),
            };
        }
        if link.starts_with("/dev/pts/") || link.starts_with("/dev/tty") || link == "/dev/console" {
            return kind("terminal");
        }
        if link.starts_with("/dev/") && !link.starts_with("/dev/shm/") {
            return kind("device");
        }
        kind("file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(family: i32, rest: &[u8]) -> Option<String> {
        address_name(&[&(family as u16).to_ne_bytes()[..], rest].concat())
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let port = [0x18, 0xeb];
        let v4 = [&port[..], &[127, 0, 0, 1], &[0; 8]].concat();
        assert_eq!(name(libc::AF_INET, &v4).unwrap(), "127.0.0.1:6379");
        let mut loopback = [0u8; 16];
        loopback[15] = 1;
        let v6 = [&port[..], &[0; 4], &loopback, &[0; 4]].concat();
        assert_eq!(name(libc::AF_INET6, &v6).unwrap(), "[::1]:6379");
        let mapped = [&[0u8; 10][..], &[0xff, 0xff, 10, 0, 0, 9]].concat();
        let v6 = [&port[..], &[0; 4], &mapped, &[0; 4]].concat();
        assert_eq!(name(libc::AF_INET6, &v6).unwrap(), "10.0.0.9:6379");
        assert_eq!(
            name(libc::AF_UNIX, b"/run/r.sock\0\0").unwrap(),
            "unix:/run/r.sock"
        );
        assert_eq!(name(libc::AF_UNIX, b"\0bus").unwrap(), "unix:@bus");
        assert_eq!(name(libc::AF_UNIX, b""), None);
        assert_eq!(name(libc::AF_UNSPEC, &[0; 14]), None);
        assert_eq!(name(libc::AF_INET, &[1]), None);
        assert_eq!(address_name(&[]), None);
        assert!(!name(libc::AF_UNIX, b"/a\x1b[2J").unwrap().contains('\u{1b}'));
    }

    #[test]
    fn links_become_kinds() {
        assert_eq!(Link::parse("socket:[4711]"), Link::Socket(4711));
        for (link, kind) in [
            ("pipe:[1]", "pipe"),
            ("anon_inode:[eventpoll]", "epoll"),
            ("anon_inode:[eventfd]", "eventfd"),
            ("anon_inode:[timerfd]", "timer"),
            ("anon_inode:inotify", "inotify"),
            ("/dev/pts/3", "terminal"),
            ("/dev/null", "device"),
            ("/dev/shm/x", "file"),
            ("/tmp/a (deleted)", "file"),
        ] {
            assert_eq!(Link::parse(link), Link::Kind(kind.to_owned()), "{link}");
        }
    }

    #[test]
    fn names_beyond_the_cap_are_counted_together() {
        let mut peers = Peers::default();
        let ids: Vec<_> = (0..MOST_NAMES + 10).map(|n| peers.id(&n.to_string())).collect();
        assert_eq!(peers.name(ids[0]), "0");
        assert_eq!(peers.name(ids[MOST_NAMES + 9]), "other peers");
        assert_eq!(peers.id("0"), ids[0]);
    }
}
