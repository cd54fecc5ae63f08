//! A connection whose every wait has an end.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::time::TimeVal;

use crate::strategy::contract::Endpoint;
use crate::strategy::rust::job::WAIT;

/// A blocking socket with time-outs. The standard library's streams use send(2) with MSG_NOSIGNAL and
/// recv(2), both of which reach the kernel as sendto and recvfrom.
pub(super) enum Link {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Link {
    pub(super) fn connect(server: &Endpoint) -> io::Result<Link> {
        match server {
            Endpoint::Tcp { host, port, .. } => tcp(host, *port).map(Link::Tcp),
            Endpoint::Unix { path, .. } => unix(path).map(Link::Unix),
        }
    }
}

fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, WAIT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(WAIT))?;
                stream.set_write_timeout(Some(WAIT))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A connect to a UNIX socket whose backlog is full waits as long as SO_SNDTIMEO says, so that must be
/// set before, and the standard library offers no way to do so.
fn unix(path: &str) -> io::Result<UnixStream> {
    let fd: OwnedFd = socket::socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let wait = TimeVal::new(WAIT.as_secs().cast_signed(), 0);
    socket::setsockopt(&fd, sockopt::SendTimeout, &wait)?;
    socket::setsockopt(&fd, sockopt::ReceiveTimeout, &wait)?;
    let address = UnixAddr::new(path)?;
    socket::connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &address)?;
    Ok(UnixStream::from(fd))
}

impl Read for Link {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Link::Tcp(stream) => stream.read(buffer),
            Link::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Link {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Link::Tcp(stream) => stream.write(bytes),
            Link::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
