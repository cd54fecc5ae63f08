//! A planned load and the server it goes to, in the terms of the limits.

use super::ServerFacts;
use crate::proc::process::Who;
use crate::proc::sockdiag::{Address, Listener};
use crate::strategy::contract::Endpoint;

/// A planned load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Client processes (N).
    pub processes: u64,
    /// Connections each holds at one time (M).
    pub connections_per_process: u64,
    /// Whether each operation makes a connection of its own.
    pub connect_per_op: bool,
    /// Over TCP; otherwise over a UNIX socket.
    pub tcp: bool,
    /// Whether the server is on this machine.
    pub same_host: bool,
    /// Whether the server's address is in 127.0.0.0/8 or `::1`. A local server under another address of
    /// the host is not.
    pub loopback: bool,
    /// Expected connections per second over all processes; `None` when nobody can say.
    pub connects_per_second: Option<u64>,
    /// Whether the server ends connections (the client sends QUIT and waits), so that TIME_WAIT stays with
    /// the server and it no longer counts a closed client when the next comes.
    pub server_closes_first: bool,
    /// Descriptors a client process has open before it connects (a PHP script 5).
    pub client_base_fds: u64,
    /// Memory that a client process takes of its own, in bytes.
    pub client_bytes: u64,
    /// Whether that was measured; assumed otherwise.
    pub client_bytes_measured: bool,
    /// Connections made in all, over the whole load; `None` when nobody can say.
    pub connects_in_all: Option<u64>,
    /// Attempts of one operation that can wait in the server's queue together: 1 without timeouts.
    pub attempts_per_op: u64,
    /// Distinct server addresses (shards); each has ports of its own.
    pub destinations: u64,
    /// Commands sent before the first reply is read.
    pub pipeline: u64,
    /// Length of a value in bytes.
    pub payload_bytes: u64,
    /// Address of the server, when there is one.
    pub endpoint: Option<Endpoint>,
    /// Process id of the server, when known.
    pub server_pid: Option<i32>,
    /// What the server says of itself.
    pub server: ServerFacts,
}

impl Default for Load {
    /// One client with one connection over loopback TCP, kept for the whole run.
    fn default() -> Self {
        Load {
            processes: 1,
            connections_per_process: 1,
            connect_per_op: false,
            tcp: true,
            same_host: true,
            loopback: true,
            connects_per_second: None,
            server_closes_first: false,
            client_base_fds: 5,
            client_bytes: 5 << 20,
            client_bytes_measured: false,
            connects_in_all: None,
            attempts_per_op: 1,
            destinations: 1,
            pipeline: 1,
            payload_bytes: 0,
            endpoint: None,
            server_pid: None,
            server: ServerFacts::default(),
        }
    }
}

impl Load {
    /// One client with one kept connection to this address. Whether a host name leads to this machine is
    /// only known for `localhost` and for loopback addresses; the caller may know better.
    pub fn to(endpoint: &Endpoint) -> Load {
        let (tcp, loopback) = match endpoint {
            Endpoint::Unix { .. } => (false, true),
            Endpoint::Tcp { host, .. } => (true, is_loopback(host)),
        };
        Load {
            tcp,
            loopback,
            same_host: loopback,
            endpoint: Some(endpoint.clone()),
            ..Load::default()
        }
    }

    /// Connections open at one time.
    pub fn open(&self) -> u64 {
        if self.connect_per_op {
            self.processes
        } else {
            self.processes.saturating_mul(self.connections_per_process)
        }
    }

    /// Connections a client process holds at one time.
    pub fn held(&self) -> u64 {
        if self.connect_per_op {
            1
        } else {
            self.connections_per_process
        }
    }

    /// Descriptors a client process needs.
    pub fn client_fds(&self) -> u64 {
        self.client_base_fds.saturating_add(self.held())
    }

    /// Connections the server counts at one time. It still counts one that the client has just closed
    /// when the next is accepted, unless it was the server that closed.
    pub fn counted_by_server(&self) -> u64 {
        if self.connect_per_op && !self.server_closes_first {
            self.processes.saturating_mul(2)
        } else {
            self.open()
        }
    }

    /// The server's process.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn server_process(&self) -> Result<Who, &'static str> {
        match (self.server_pid, self.same_host) {
            (Some(pid), true) => Ok(Who::Pid(pid)),
            (_, false) => Err("the server is on another machine"),
            (None, true) => Err("the server's process is not known (another user, or another namespace)"),
        }
    }

    /// Connections that can wait at once to be accepted: a synchronous client has one under way, times the
    /// attempts that time-outs leave behind in the queue.
    pub fn waiting(&self) -> u64 {
        self.processes.saturating_mul(self.attempts_per_op.max(1))
    }

    /// The listener of the planned address among those known.
    pub fn listener<'a>(&self, listeners: &'a [Listener]) -> Option<&'a Listener> {
        let endpoint = self.endpoint.as_ref()?;
        // An exact address goes before one that stands for all.
        let score = |listener: &Listener| match (endpoint, &listener.address) {
            (Endpoint::Unix { path, .. }, Address::Unix(name)) => same_path(path, name).then_some(2),
            (Endpoint::Tcp { host, port, .. }, Address::Tcp(address)) if address.port() == *port => {
                match host.parse::<std::net::IpAddr>() {
                    Ok(ip) if ip == address.ip() => Some(2),
                    // `[::]` takes IPv4 too unless it was told not to.
                    Ok(ip) if address.ip().is_unspecified() && (ip.is_ipv4() || address.is_ipv6()) => Some(1),
                    Ok(_) => None,
                    Err(_) => Some(u8::from(is_loopback(host) && address.ip().is_loopback())),
                }
            }
            _ => None,
        };
        listeners
            .iter()
            .filter_map(|listener| Some((score(listener)?, listener)))
            .max_by_key(|(score, _)| *score)
            .map(|(_, listener)| listener)
    }
}

/// Whether two paths of a socket are the same: the server may have bound it by another name than the client
/// uses (a link, `/var/run` for `/run`).
fn same_path(ours: &str, bound: &str) -> bool {
    if ours == bound {
        return true;
    }
    let is_path = |name: &str| !name.is_empty() && !name.starts_with('@');
    let file = |name: &str| {
        std::path::Path::new(name)
            .file_name()
            .map(std::ffi::OsStr::to_owned)
    };
    // A link to the socket itself may have any name, but is rare; looking up every listener is dear.
    is_path(ours)
        && is_path(bound)
        && file(ours) == file(bound)
        && matches!(
            (std::fs::canonicalize(ours), std::fs::canonicalize(bound)),
            (Ok(ours), Ok(bound)) if ours == bound
        )
}

/// Whether a host name or address is loopback, as far as can be said without asking a resolver.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp {
            host: host.into(),
            port,
            user: None,
            password: None,
        }
    }

    fn listener(address: &str) -> Listener {
        Listener {
            address: Address::Tcp(address.parse().unwrap()),
            queued: 0,
            backlog: 511,
            drops: None,
            inode: 1,
        }
    }

    #[test]
    fn loopback_is_an_address_class_not_a_machine() {
        assert!(Load::to(&tcp("127.0.0.9", 1)).loopback);
        assert!(Load::to(&tcp("::ffff:127.0.0.1", 1)).loopback);
        assert!(Load::to(&tcp("localhost", 1)).loopback);
        assert!(!Load::to(&tcp("10.0.0.1", 1)).loopback);
        assert!(!Load::to(&tcp("::2", 1)).same_host);
    }

    #[test]
    fn a_socket_has_many_names() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("r.sock"), "").unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        let name = |part: &str| folder.path().join(part).to_str().unwrap().to_owned();
        assert!(same_path(&name("link/r.sock"), &name("real/r.sock")));
        assert!(same_path(&name("real/../real/r.sock"), &name("real/r.sock")));
        assert!(!same_path(&name("link/q.sock"), &name("real/r.sock")));
        assert!(!same_path("@x", "/x"));
    }

    #[test]
    fn the_listener_of_the_address_is_found() {
        let listeners = [
            listener("0.0.0.0:6379"),
            listener("127.0.0.1:6379"),
            listener("[::1]:6379"),
            listener("127.0.0.1:6380"),
        ];
        let find = |host: &str, port| {
            Load::to(&tcp(host, port))
                .listener(&listeners)
                .map(|l| match &l.address {
                    Address::Tcp(address) => address.to_string(),
                    Address::Unix(name) => name.clone(),
                })
        };
        assert_eq!(find("127.0.0.1", 6379).as_deref(), Some("127.0.0.1:6379"));
        assert_eq!(find("10.0.0.7", 6379).as_deref(), Some("0.0.0.0:6379"));
        assert_eq!(find("::1", 6379).as_deref(), Some("[::1]:6379"));
        assert_eq!(find("127.0.0.2", 6380), None);
    }
}
