//! The two listening sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};

use super::ResponderError;

/// Descriptors that are not connections, as many as Redis sets aside.
const RESERVED_FILES: u64 = 32;

/// A UNIX socket's file, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile(pub(super) PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Its folder may be gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on a free port of the loopback address.
pub(super) fn tcp(backlog: u32) -> Result<(TcpListener, SocketAddr), ResponderError> {
    let open = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        queue(&listener, backlog)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|source| ResponderError::Listen {
        address: Ipv4Addr::LOCALHOST.to_string(),
        source,
    })
}

/// Listens on a UNIX socket that only this user may connect to.
pub(super) fn unix(path: &Path, backlog: u32) -> Result<(UnixListener, SocketFile), ResponderError> {
    let open = || {
        let listener = UnixListener::bind(path)?;
        let file = SocketFile(path.to_owned());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        listener.set_nonblocking(true)?;
        queue(&listener, backlog)?;
        Ok((listener, file))
    };
    let address = || crate::units::escape(&path.to_string_lossy(), 200);
    open().map_err(|source| ResponderError::Listen {
        address: address(),
        source,
    })
}

/// Sets the length of a listener's queue: a second listen(2) only changes that. The kernel cuts it to
/// net.core.somaxconn.
fn queue(listener: &impl AsFd, backlog: u32) -> io::Result<()> {
    let backlog = i32::try_from(backlog)
        .ok()
        .and_then(|n| Backlog::new(n).ok())
        .unwrap_or(Backlog::MAXCONN);
    Ok(listen(&listener.as_fd(), backlog)?)
}

/// Raises the limit of open files as far as that is allowed, and returns how many clients fit below it.
pub(super) fn clients_that_fit(wanted: u32) -> u64 {
    let wanted = u64::from(wanted);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return wanted;
    };
    let needed = wanted + RESERVED_FILES;
    let limit = if soft < needed && setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).is_ok() {
        needed.min(hard)
    } else {
        soft
    };
    wanted.min(limit.saturating_sub(RESERVED_FILES)).max(1)
}
