//! What rows run against: one server, or several that serve together, seen as one.

use std::collections::BTreeMap;

use super::error::ServerError;
use super::health::Health;
use super::memcached::Memcached;
use super::private::Private;
use super::snapshot::Snapshot;
use super::{Server, shown};
use crate::record::{NodeView, ServerInfo, ServerView};
use crate::strategy::contract::{Endpoint, Transport};
use crate::units::Measured;

/// One server of a backend.
pub(super) enum Node {
    /// Redis, Valkey or the built-in responder.
    Redis(Box<Server>),
    /// memcached.
    Memcached(Box<Memcached>),
}

/// Servers that serve together. Dropping it ends the private ones and removes their folders.
pub struct Backend {
    /// Goes first: it holds connections to the nodes.
    pub(super) proxy: Option<Private>,
    pub(super) nodes: Vec<Node>,
    /// Where clients go, in the order of the nodes; those of the proxy where there is one.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) info: ServerInfo,
}

/// The counters of every server of a backend at one moment.
#[derive(Debug, Clone)]
pub struct Reading(Vec<(String, Snapshot)>);

impl Node {
    fn address(&self) -> String {
        match self {
            // The address that clients know, not the one of the control connection.
            Node::Redis(server) => shown(server.endpoints.first().unwrap_or(server.control.endpoint())),
            Node::Memcached(server) => shown(server.endpoint()),
        }
    }

    fn pid(&self) -> Option<i32> {
        match self {
            Node::Redis(server) => server.pid(),
            Node::Memcached(server) => server.pid(),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, ServerError> {
        match self {
            Node::Redis(server) => server.snapshot(),
            Node::Memcached(server) => server.snapshot(),
        }
    }

    fn health(&mut self) -> Health {
        match self {
            Node::Redis(server) => server.describe_alive(),
            Node::Memcached(server) => server.health(),
        }
    }
}

impl Backend {
    /// Which server it is. Of several, their common kind and version and all addresses.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Where a client that uses this transport connects: one address, or for a client that spreads its
    /// keys itself the first `servers` of them. Empty when nothing listens on that transport.
    pub fn endpoints(&self, transport: Transport, servers: u32) -> Vec<Endpoint> {
        self.endpoints
            .iter()
            .filter(|endpoint| endpoint.transport() == transport)
            .take(servers.max(1) as usize)
            .cloned()
            .collect()
    }

    /// The process id of the first server, when it runs on this machine for certain.
    pub fn pid(&self) -> Option<i32> {
        match &self.proxy {
            Some(proxy) => Some(proxy.pid(None)),
            None => self.nodes.first().and_then(Node::pid),
        }
    }

    /// The process ids of all its servers that run on this machine for certain, a proxy's first.
    pub fn pids(&self) -> Vec<i32> {
        let proxy = self.proxy.iter().map(|proxy| proxy.pid(None));
        proxy.chain(self.nodes.iter().filter_map(Node::pid)).collect()
    }

    /// Reads the counters of the first `servers` of its servers: those that a row runs against.
    ///
    /// # Errors
    /// The first server that does not answer any more.
    pub fn snapshot(&mut self, servers: u32) -> Result<Reading, ServerError> {
        let read = self
            .nodes
            .iter_mut()
            .take(servers.max(1) as usize)
            .map(|node| Ok((node.address(), node.snapshot()?)));
        read.collect::<Result<_, ServerError>>().map(Reading)
    }

    /// Whether all its servers are alive; if not, how the first of the others ended.
    pub fn describe_alive(&mut self) -> Health {
        let proxy = self.proxy.iter().map(Private::health);
        let nodes = self.nodes.iter_mut().map(Node::health);
        proxy
            .chain(nodes)
            .find(|health| !matches!(health, Health::Running))
            .unwrap_or(Health::Running)
    }

    /// How many of these keys there are; `None` of memcached, where what is there is a cache.
    ///
    /// # Errors
    /// As [`Server::existing_keys`].
    pub fn existing_keys(&mut self, keys: &[String]) -> Result<Option<u64>, ServerError> {
        let mut sum = None;
        for node in &mut self.nodes {
            if let Node::Redis(server) = node {
                sum = Some(sum.unwrap_or(0) + server.existing_keys(keys)?);
            }
        }
        Ok(sum)
    }

    /// Deletes keys, and returns how many of them there were. memcached is left alone: there everything
    /// goes by itself.
    ///
    /// # Errors
    /// As [`Server::delete_keys`].
    pub fn delete_keys(&mut self, keys: &[String]) -> Result<u64, ServerError> {
        let mut sum = 0;
        for node in &mut self.nodes {
            if let Node::Redis(server) = node {
                sum += server.delete_keys(keys)?;
            }
        }
        Ok(sum)
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl Reading {
    /// Clients that are connected now, to all servers together; `None` when one does not tell.
    pub fn connected_clients(&self) -> Option<u64> {
        let each = self
            .0
            .iter()
            .map(|(_, snapshot)| snapshot.counters().known()?.connected_clients);
        each.sum()
    }

    /// What was done between an earlier reading and this one: the sum over all servers, and where there are
    /// several also what each of them did.
    pub fn since(&self, earlier: &Reading) -> Measured<ServerView> {
        let mut sum = ServerView::default();
        for ((address, now), (_, then)) in self.0.iter().zip(&earlier.0) {
            match now.since(then) {
                Measured::Known(view) => {
                    sum.merge(&view);
                    if self.0.len() > 1 {
                        let node = NodeView {
                            commands: view.commands,
                            connections: view.connections,
                        };
                        sum.nodes.insert(address.clone(), node);
                    }
                }
                Measured::NotMeasured(why) if self.0.len() > 1 => {
                    return Measured::NotMeasured(format!("{address}: {why}"));
                }
                Measured::NotMeasured(why) => return Measured::NotMeasured(why),
            }
        }
        Measured::Known(sum)
    }

    /// The single counters by dotted name, summed over the servers.
    pub(super) fn named(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (name, value) in self.0.iter().flat_map(|(_, snapshot)| snapshot.named()) {
            *sum.entry(name).or_insert(0) += value;
        }
        sum
    }
}
