//! What a client speaks to, and how it gets there.

use serde::{Deserialize, Serialize};

/// How a worker reaches its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// A UNIX stream socket.
    Unix,
    /// None: the client keeps its data in its own process or in files.
    Local,
}

impl Transport {
    /// All, in the order in which rows are listed.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Local];

    /// Those that lead to a server.
    pub const SOCKETS: [Transport; 2] = [Transport::Tcp, Transport::Unix];

    /// The name in strategies, files and records.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
            Transport::Local => "local",
        }
    }
}

/// What a client speaks to, and so what its runs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// Redis, or Valkey.
    Redis,
    /// memcached.
    Memcached,
    /// A Redis Cluster; the worker is given all its masters.
    Cluster,
    /// Redis servers that know nothing of each other: the client spreads its keys over them.
    Shards,
    /// twemproxy, which spreads the keys over Redis servers behind it.
    Twemproxy,
    /// No server: the client keeps its data in its own process or in files.
    None,
}

impl Store {
    /// The name in files and records.
    pub fn name(self) -> &'static str {
        match self {
            Store::Redis => "redis",
            Store::Memcached => "memcached",
            Store::Cluster => "cluster",
            Store::Shards => "shards",
            Store::Twemproxy => "twemproxy",
            Store::None => "none",
        }
    }
}

/// One server address as a worker sees it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "lowercase", deny_unknown_fields)]
pub enum Endpoint {
    /// TCP.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// ACL user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Password.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<String>,
    },
    /// UNIX stream socket.
    Unix {
        /// Path of the socket.
        path: String,
        /// ACL user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Password.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<String>,
    },
}

impl Endpoint {
    /// How it is reached.
    pub fn transport(&self) -> Transport {
        match self {
            Endpoint::Tcp { .. } => Transport::Tcp,
            Endpoint::Unix { .. } => Transport::Unix,
        }
    }

    /// ACL user and password.
    pub fn credentials(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Endpoint::Tcp { user, password, .. } | Endpoint::Unix { user, password, .. } => {
                (user.as_deref(), password.as_deref())
            }
        }
    }
}

/// The address without user and password, so that a debug line cannot leak them.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Endpoint::Unix { path, .. } => write!(f, "unix:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_does_not_show() {
        let endpoint = Endpoint::Tcp {
            host: "::1".into(),
            port: 6379,
            user: Some("u".into()),
            password: Some("hunter2".into()),
        };
        assert_eq!(format!("{endpoint:?} {endpoint}"), "[::1]:6379 [::1]:6379");
    }
}
