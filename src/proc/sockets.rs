//! The socket tables `/proc/PID/net/tcp`, `tcp6` and `unix`.
//!
//! What they do not have: the length a listener's queue may reach (see [`super::sockdiag`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::process::Who;
use super::{ReadError, Root};

/// The states of a TCP socket that matter here, by the kernel's numbers (`include/net/tcp_states.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    /// 1.
    Established,
    /// 2.
    SynSent,
    /// 6.
    TimeWait,
    /// 10.
    Listen,
    /// Any other.
    Other,
}

/// A line of `tcp` or `tcp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// Own end.
    pub local: SocketAddr,
    /// Other end.
    pub remote: SocketAddr,
    /// State.
    pub state: TcpState,
    /// Bytes to read; for a listener, connections waiting to be accepted.
    pub rx_queue: u64,
    /// Inode; 0 when no process owns it.
    pub inode: u64,
}

/// Reads the TCP sockets of a process's network namespace, both families. A kernel without IPv6 has no
/// `tcp6`, and that is no error.
///
/// # Errors
/// An unreadable file, or a line that is not a socket (a file that was cut).
pub fn tcp(root: &Root, who: Who) -> Result<Vec<TcpSocket>, ReadError> {
    let mut sockets = Vec::new();
    for (name, optional) in [("net/tcp", false), ("net/tcp6", true)] {
        let path = who.file(name);
        let text = match root.read(&path).map_err(ReadError::from) {
            Ok(text) => text,
            Err(e) if optional && e.is_absent() => continue,
            Err(e) => return Err(e),
        };
        if !text.trim_start().starts_with("sl") {
            return Err(ReadError::content(&path, "a table of sockets", &text));
        }
        for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
            sockets.push(tcp_line(line).ok_or_else(|| ReadError::content(&path, "a socket", line))?);
        }
    }
    Ok(sockets)
}

fn tcp_line(line: &str) -> Option<TcpSocket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, state, queues, _, _, _, _, inode, ..] = words[..] else {
        return None;
    };
    Some(TcpSocket {
        local: address(local)?,
        remote: address(remote)?,
        state: match u8::from_str_radix(state, 16).ok()? {
            1 => TcpState::Established,
            2 => TcpState::SynSent,
            6 => TcpState::TimeWait,
            10 => TcpState::Listen,
            _ => TcpState::Other,
        },
        rx_queue: u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?,
        inode: inode.parse().ok()?,
    })
}

/// An address as the kernel prints it: words of 32 bits in its own byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok();
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0_u8; 16];
            for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(i * 8)?.to_ne_bytes());
            }
            // IPv4 over an IPv6 socket is the same destination.
            match Ipv6Addr::from(bytes).to_ipv4_mapped() {
                Some(mapped) => IpAddr::V4(mapped),
                None => IpAddr::V6(Ipv6Addr::from(bytes)),
            }
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// A line of `unix` that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    /// Path, or `@name` for an abstract one.
    pub name: String,
    /// Whether it listens.
    pub listens: bool,
    /// Inode; 0 for a connection that nobody has accepted yet.
    pub inode: u64,
}

/// `__SO_ACCEPTCON` in the flags column (`include/linux/net.h`).
const ACCEPTS: u32 = 1 << 16;

/// Reads the named UNIX sockets. A line that is not a socket is skipped, because a name may hold a line
/// break.
///
/// # Errors
/// An unreadable file, or one without the kernel's head line.
pub fn unix(root: &Root, who: Who) -> Result<Vec<UnixSocket>, ReadError> {
    let path = who.file("net/unix");
    let text = root.read(&path)?;
    if !text.starts_with("Num") {
        return Err(ReadError::content(&path, "a table of sockets", &text));
    }
    Ok(text.lines().skip(1).filter_map(unix_line).collect())
}

fn unix_line(line: &str) -> Option<UnixSocket> {
    let mut rest = line;
    let mut words = [""; 7];
    for word in &mut words {
        rest = rest.trim_start_matches(' ');
        let end = rest.find(' ').unwrap_or(rest.len());
        (*word, rest) = rest.split_at(end);
    }
    let [_, _, _, flags, _, _, inode] = words;
    // One space separates the name, which may itself begin with spaces.
    let name = rest.strip_prefix(' ')?;
    if name.is_empty() {
        return None;
    }
    Some(UnixSocket {
        name: name.to_owned(),
        listens: u32::from_str_radix(flags, 16).ok()? & ACCEPTS != 0,
        inode: inode.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn the_tables_of_this_machine_show_our_own_sockets() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let sockets = tcp(&Root::live(), Who::Me).unwrap();
        assert!(
            sockets
                .iter()
                .any(|s| s.local == address && s.state == TcpState::Listen && s.rx_queue == 1)
        );
        assert!(
            sockets
                .iter()
                .any(|s| s.local == client.local_addr().unwrap() && s.remote == address)
        );
    }

    #[test]
    fn a_named_unix_listener_and_its_pending_peer_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let name = path.to_str().unwrap();
        let sockets = unix(&Root::live(), Who::Me).unwrap();
        let ours: Vec<_> = sockets.iter().filter(|s| s.name == name).collect();
        assert_eq!(ours.iter().filter(|s| s.listens).count(), 1);
        assert_eq!(ours.iter().filter(|s| s.inode == 0).count(), 1);
    }

    #[test]
    fn a_cut_tcp_table_is_an_error() {
        let line = "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000081 00:00000000 00000000     0        0 1126 1\n";
        let whole = Tree::new().with("proc/self/net/tcp", format!("{HEAD}{line}"));
        let sockets = tcp(&whole.root(), Who::Me).unwrap();
        assert_eq!(sockets[0].rx_queue, 129);
        if cfg!(target_endian = "little") {
            assert_eq!(sockets[0].local.to_string(), "127.0.0.1:6379");
        }
        for cut in [
            "",
            "junk\n",
            &format!("{HEAD}{}", &line[..40]),
            &format!("{HEAD}   0: zz\n"),
        ] {
            let tree = Tree::new().with("proc/self/net/tcp", cut);
            assert!(tcp(&tree.root(), Who::Me).is_err(), "{cut:?}");
        }
    }
}
