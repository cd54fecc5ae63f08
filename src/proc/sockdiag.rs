//! Listening sockets as the kernel's socket query (`NETLINK_SOCK_DIAG`) tells them: the queue a listener
//! really has, how full it is, and how many connections that very listener dropped. No file has these.
//!
//! The query sees the namespace of the caller only. Numbers are from `include/uapi/linux/inet_diag.h`,
//! `unix_diag.h` and `netlink.h`.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

use super::{ReadError, Root};

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// TCP; an unspecified address (`0.0.0.0`, `::`) stands for all.
    Tcp(SocketAddr),
    /// UNIX stream socket: path, or `@name` for an abstract one.
    Unix(String),
}

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Where.
    pub address: Address,
    /// Connections waiting to be accepted.
    pub queued: u32,
    /// The queue's bound: the smaller of what listen() asked for and somaxconn at that moment. One more
    /// than this fits.
    pub backlog: u32,
    /// Connections this listener dropped since it was made; only TCP counts them.
    pub drops: Option<u32>,
    /// Inode of the socket.
    pub inode: u32,
}

impl Listener {
    /// How many connections can wait at once.
    pub fn capacity(&self) -> u64 {
        u64::from(self.backlog) + 1
    }
}

const KEPT: &str = "systally/listeners.json";
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH.
const DUMP: u16 = 0x301;
/// NLM_F_REQUEST alone: one socket.
const REQUEST: u16 = 0x1;
const IPPROTO_TCP: u8 = 6;
/// A set of states with TCP_LISTEN alone.
const STATE_LISTEN: u32 = 1 << 10;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_MESSAGE: usize = 72;
const UNIX_MESSAGE: usize = 16;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_RQLEN: u16 = 4;
/// UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN.
const UNIX_SHOW: u32 = 0x1 | 0x10;
const HEADER: usize = 16;

/// The TCP and UNIX stream listeners of this network namespace; of a recording, those that were kept.
///
/// # Errors
/// A kernel or sandbox that does not answer the query; a recording without them.
pub fn listeners(root: &Root) -> Result<Vec<Listener>, ReadError> {
    if !root.is_live() || root.kept(KEPT).is_some() {
        let text = root.read(KEPT)?;
        return serde_json::from_str(&text)
            .map_err(|_| ReadError::content(KEPT, "a list of listeners", &text));
    }
    let mut found = tcp_listeners()?;
    found.extend(unix_listeners()?);
    if let Ok(text) = serde_json::to_string_pretty(&found) {
        root.keep(KEPT, &text);
    }
    Ok(found)
}

/// The TCP listeners alone, asked of the kernel now. Connections cost it nothing: it keeps listeners in a
/// table of their own.
///
/// # Errors
/// As [`listeners`].
pub fn tcp_listeners() -> Result<Vec<Listener>, ReadError> {
    let mut found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        query(&inet_request(family as u8), &mut |payload| {
            found.extend(inet_listener(payload));
        })?;
    }
    Ok(found)
}

/// The UNIX stream listeners alone, asked of the kernel now. It looks through all UNIX sockets of the
/// namespace for them, and hands over the listening ones only.
///
/// # Errors
/// As [`listeners`].
pub fn unix_listeners() -> Result<Vec<Listener>, ReadError> {
    let mut found = Vec::new();
    query(&unix_request(), &mut |payload| {
        found.extend(unix_listener(payload))
    })?;
    Ok(found)
}

fn inet_request(family: u8) -> Vec<u8> {
    let mut body = vec![family, IPPROTO_TCP, 1 << (INET_DIAG_SKMEMINFO - 1), 0];
    body.extend(STATE_LISTEN.to_ne_bytes());
    body.extend([0; 48]);
    body
}

fn unix_request() -> Vec<u8> {
    let mut body = vec![AddressFamily::Unix as u8, 0, 0, 0];
    for word in [STATE_LISTEN, 0, UNIX_SHOW, u32::MAX, u32::MAX] {
        body.extend(word.to_ne_bytes());
    }
    body
}

/// One UNIX listener that is known by its inode, asked of the kernel now; `None` when it is gone. Finding one
/// costs the kernel half of looking through all.
///
/// # Errors
/// As [`listeners`].
pub fn unix_listener_of(inode: u32) -> Result<Option<Listener>, ReadError> {
    let mut body = vec![AddressFamily::Unix as u8, 0, 0, 0];
    for word in [STATE_LISTEN, inode, UNIX_SHOW, u32::MAX, u32::MAX] {
        body.extend(word.to_ne_bytes());
    }
    let fd = ask(&body, REQUEST)?;
    let mut buffer = [0_u8; 1024];
    let read = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(|e| failed("receive", e))?;
    let answer = &buffer[..read];
    match u16_at(answer, 4) {
        Some(SOCK_DIAG_BY_FAMILY) => Ok(answer.get(HEADER..).and_then(unix_listener)),
        // No such socket any more.
        Some(NLMSG_ERROR) => Ok(None),
        Some(_) | None => Err(failed("a strange answer", nix::errno::Errno::EPROTO)),
    }
}

fn failed(what: &str, errno: nix::errno::Errno) -> ReadError {
    ReadError::Io(std::io::Error::new(
        std::io::Error::from(errno).kind(),
        format!("socket query ({what}): {errno}"),
    ))
}

/// Sends one request on a socket of its own, from which the answer can be received.
fn ask(body: &[u8], flags: u16) -> Result<OwnedFd, ReadError> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .map_err(|e| failed("socket", e))?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(1, 0)).map_err(|e| failed("setsockopt", e))?;
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    sendmsg::<NetlinkAddr>(
        fd.as_raw_fd(),
        &[IoSlice::new(&message)],
        &[],
        MsgFlags::empty(),
        Some(&NetlinkAddr::new(0, 0)),
    )
    .map_err(|e| failed("send", e))?;
    Ok(fd)
}

/// Sends one dump request and hands every answer's payload to `each`.
fn query(body: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), ReadError> {
    let fd = ask(body, DUMP)?;
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let read = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(|e| failed("receive", e))?;
        let mut rest = &buffer[..read];
        while rest.len() >= HEADER {
            let length = u32_at(rest, 0).unwrap_or(0) as usize;
            let kind = u16_at(rest, 4).unwrap_or(NLMSG_ERROR);
            if length < HEADER || length > rest.len() {
                return Err(failed("a cut answer", nix::errno::Errno::EPROTO));
            }
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = u32_at(rest, HEADER).map_or(0, |code| (code as i32).wrapping_neg());
                    return Err(failed("refused", nix::errno::Errno::from_raw(code)));
                }
                SOCK_DIAG_BY_FAMILY => each(&rest[HEADER..length]),
                _ => {}
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        if read == 0 {
            return Err(failed("no answer", nix::errno::Errno::EPROTO));
        }
    }
}

fn inet_listener(payload: &[u8]) -> Option<Listener> {
    let ip = match i32::from(*payload.first()?) {
        nix::libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*payload.get(8..12)?.first_chunk::<4>()?)),
        nix::libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*payload.get(8..24)?.first_chunk::<16>()?)),
        _ => return None,
    };
    let port = u16::from_be_bytes(*payload.get(4..6)?.first_chunk::<2>()?);
    Some(Listener {
        address: Address::Tcp(SocketAddr::new(ip, port)),
        queued: u32_at(payload, 56)?,
        backlog: u32_at(payload, 60)?,
        // The ninth number of the memory information (SK_MEMINFO_DROPS).
        drops: attribute(payload.get(INET_MESSAGE..)?, INET_DIAG_SKMEMINFO).and_then(|info| u32_at(info, 32)),
        inode: u32_at(payload, 68)?,
    })
}

fn unix_listener(payload: &[u8]) -> Option<Listener> {
    let attributes = payload.get(UNIX_MESSAGE..)?;
    let lengths = attribute(attributes, UNIX_DIAG_RQLEN)?;
    let name = attribute(attributes, UNIX_DIAG_NAME)?;
    let name = match name.strip_prefix(&[0]) {
        Some(hidden) => format!("@{}", String::from_utf8_lossy(hidden)),
        None => String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
    };
    Some(Listener {
        address: Address::Unix(name),
        queued: u32_at(lengths, 0)?,
        backlog: u32_at(lengths, 4)?,
        drops: None,
        inode: u32_at(payload, 4)?,
    })
}

/// The payload of the first attribute of a kind.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        if u16_at(rest, 2)? == wanted {
            return rest.get(4..length);
        }
        if length < 4 {
            return None;
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_listeners_have_their_backlog_and_queue() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // A second listen() sets another backlog.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(7).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.sock");
        let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let _peer = std::os::unix::net::UnixStream::connect(&path).unwrap();

        let found = match listeners(&Root::live()) {
            Ok(found) => found,
            Err(e) => return println!("SKIP: the kernel does not answer socket queries here: {e}"),
        };
        let tcp = found.iter().find(|l| l.address == Address::Tcp(address)).unwrap();
        assert_eq!((tcp.backlog, tcp.queued, tcp.drops), (7, 1, Some(0)));
        assert_eq!(tcp.capacity(), 8);
        let unix = found
            .iter()
            .find(|l| l.address == Address::Unix(path.to_str().unwrap().to_owned()))
            .unwrap();
        assert_eq!((unix.queued, unix.drops), (1, None));
        assert_eq!(unix_listener_of(unix.inode).unwrap().as_ref(), Some(unix));
        assert_eq!(unix_listener_of(u32::MAX - 1).unwrap(), None);
    }

    #[test]
    fn a_recording_gives_back_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("systally")).unwrap();
        let kept = folder.path().join(KEPT);
        let root = Root::recorded(folder.path());
        assert!(listeners(&root).is_err());
        std::fs::write(
            &kept,
            r#"[{"address":{"unix":"/s"},"queued":0,"backlog":511,"drops":null,"inode":9}]"#,
        )
        .unwrap();
        assert_eq!(listeners(&root).unwrap()[0].capacity(), 512);
        for hostile in [
            "",
            "[",
            "{}",
            r#"[{"address":{"unix":"/s"},"queued":-1,"backlog":511,"drops":null,"inode":9}]"#,
        ] {
            std::fs::write(&kept, hostile).unwrap();
            assert!(listeners(&root).is_err(), "{hostile}");
        }
    }

    #[test]
    fn odd_answers_are_dropped_without_a_panic() {
        for length in 0..120 {
            let bytes = vec![2_u8; length];
            let _ = inet_listener(&bytes);
            let _ = unix_listener(&bytes);
            let _ = attribute(&bytes, 7);
            let _ = attribute(&vec![0_u8; length], 7);
        }
    }
}
