//! The socket of a control connection: connecting, sending and receiving, each with a limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::error::{Trouble, Waiting};
use crate::strategy::contract::Endpoint;
use crate::units::escape;

/// Longest wait for a connection, the resolver included.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait for a reply.
pub(super) const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// The socket of a control connection.
#[derive(Debug)]
pub(super) enum Link {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
}

impl Link {
    /// Connects, waiting for [`CONNECT_LIMIT`] at most.
    pub(super) fn connect(endpoint: &Endpoint) -> Result<Link, Trouble> {
        let deadline = Instant::now() + CONNECT_LIMIT;
        let link = match endpoint {
            Endpoint::Tcp { host, port, .. } => Link::Tcp(connect_tcp(host, *port, deadline)?),
            Endpoint::Unix { path, .. } => Link::Unix(connect_unix(path, deadline)?),
        };
        match &link {
            Link::Tcp(stream) => stream
                .set_nodelay(true)
                .and_then(|()| stream.set_write_timeout(Some(REPLY_LIMIT))),
            Link::Unix(stream) => stream.set_write_timeout(Some(REPLY_LIMIT)),
        }
        .map_err(Trouble::Io)?;
        Ok(link)
    }

    /// Sends everything, waiting for [`REPLY_LIMIT`] at most.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self {
            Link::Tcp(stream) => stream.write_all(bytes),
            Link::Unix(stream) => stream.write_all(bytes),
        }
        .map_err(|e| trouble_of(e, Waiting::Reply, REPLY_LIMIT))
    }

    /// Receives what there is, waiting for `limit` at most.
    pub(super) fn receive(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        match self {
            Link::Tcp(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(buffer)
            }
            Link::Unix(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(buffer)
            }
        }
    }
}

/// What a failed call on the socket means.
pub(super) fn trouble_of(error: io::Error, waiting: Waiting, limit: Duration) -> Trouble {
    match error.kind() {
        ErrorKind::ConnectionRefused => Trouble::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Trouble::Closed,
        // A socket's own time-out ends a read with EAGAIN (socket(7), SO_RCVTIMEO).
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Trouble::TimedOut(waiting, limit),
        _ => Trouble::Io(error),
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, Trouble> {
    let mut last = None;
    for address in resolve(host, port)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = Some(trouble_of(e, Waiting::Connect, CONNECT_LIMIT)),
        }
    }
    Err(last.unwrap_or(Trouble::TimedOut(Waiting::Connect, CONNECT_LIMIT)))
}

/// Addresses of a host. The resolver has no time-out of its own that would suit, so it runs in a thread,
/// which is left behind when it is late.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Trouble> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (sender, answer) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let found = (name.as_str(), port)
                .to_socket_addrs()
                .map(|all| all.collect::<Vec<_>>());
            // Nobody listens any more when the answer came too late.
            let _ = sender.send(found);
        })
        .map_err(Trouble::Io)?;
    match answer.recv_timeout(CONNECT_LIMIT) {
        Ok(Ok(found)) if !found.is_empty() => Ok(found),
        Ok(Ok(_)) => Err(Trouble::NameNotFound("it has no address".to_owned())),
        Ok(Err(e)) => Err(Trouble::NameNotFound(escape(&e.to_string(), 120))),
        Err(_) => Err(Trouble::TimedOut(Waiting::Name, CONNECT_LIMIT)),
    }
}

/// Connects without ever blocking: a blocking connect waits without end when the listener's queue is full
/// and nobody accepts.
fn connect_unix(path: &str, deadline: Instant) -> Result<UnixStream, Trouble> {
    let address = UnixAddr::new(path).map_err(|e| Trouble::Io(e.into()))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(|e| Trouble::Io(e.into()))?;
    loop {
        match connect(fd.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(errno) => return Err(unix_trouble(errno, path)),
        }
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false).map_err(Trouble::Io)?;
    Ok(stream)
}

fn unix_trouble(errno: Errno, path: &str) -> Trouble {
    use std::os::unix::fs::FileTypeExt;
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => Trouble::PathMissing,
        Errno::EACCES | Errno::EPERM => Trouble::NotPermitted,
        Errno::EAGAIN => Trouble::TimedOut(Waiting::Queue, CONNECT_LIMIT),
        // The kernel refuses for any file that nobody listens on, sockets or not.
        Errno::ECONNREFUSED => match std::fs::metadata(path) {
            Ok(meta) if !meta.file_type().is_socket() => Trouble::NotASocket,
            _ => Trouble::StaleSocket,
        },
        Errno::EPROTOTYPE => Trouble::NotASocket,
        other => Trouble::Io(other.into()),
    }
}
