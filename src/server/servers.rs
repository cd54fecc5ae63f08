//! The servers of a run: each kind that its rows need, started once, in the order of [`Place`].

use std::collections::BTreeMap;
use std::fmt;

use super::backend::{Backend, Node};
use super::error::ServerError;
use super::memcached::Memcached;
use super::private::PrivateOptions;
use super::{Server, ServerChoice, ServerProgram, cluster, locate, place as address_of, twemproxy};
use crate::record::{ServerInfo, ServerOrigin};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Endpoint, Store, Transport};

/// Masters of a private Redis Cluster: the fewest that a cluster is ever run with.
pub const CLUSTER_NODES: u32 = 3;

/// What rows run against, apart from how many servers it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// One Redis server, on TCP and a UNIX socket.
    Redis,
    /// One memcached, on this transport.
    Memcached(Transport),
    /// A Redis Cluster, on TCP.
    Cluster,
    /// Redis servers that know nothing of each other.
    Shards,
    /// twemproxy in front of such servers.
    Twemproxy,
}

impl Place {
    /// What the clients of a store need over a transport; `None` for those that need no server.
    pub fn of(store: Store, transport: Transport) -> Option<Place> {
        match store {
            _ if transport == Transport::Local => None,
            Store::None => None,
            Store::Redis => Some(Place::Redis),
            Store::Memcached => Some(Place::Memcached(transport)),
            Store::Cluster => Some(Place::Cluster),
            Store::Shards => Some(Place::Shards),
            Store::Twemproxy => Some(Place::Twemproxy),
        }
    }

    /// The store it is.
    pub fn store(self) -> Store {
        match self {
            Place::Redis => Store::Redis,
            Place::Memcached(_) => Store::Memcached,
            Place::Cluster => Store::Cluster,
            Place::Shards => Store::Shards,
            Place::Twemproxy => Store::Twemproxy,
        }
    }
}

/// Which servers are wanted: the user's own where they are named, private ones otherwise.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// For [`Place::Redis`]. Shards are built in when this is, and private otherwise.
    pub redis: ServerChoice,
    /// The user's memcached; a private one for every transport that has none here.
    pub memcached: Vec<Endpoint>,
}

impl Wanted {
    /// Private servers only, Redis from PATH or built in.
    pub fn private(options: PrivateOptions) -> Wanted {
        Wanted {
            redis: ServerChoice::Auto {
                prefer: None,
                options,
            },
            memcached: Vec::new(),
        }
    }

    /// How private servers are set up.
    fn options(&self) -> PrivateOptions {
        match &self.redis {
            ServerChoice::External(_) => PrivateOptions::default(),
            ServerChoice::Auto { options, .. } | ServerChoice::BuiltIn { options } => options.clone(),
        }
    }

    /// A private server like the one for [`Place::Redis`].
    fn another(&self) -> ServerChoice {
        match &self.redis {
            ServerChoice::External(_) => ServerChoice::Auto {
                prefer: None,
                options: self.options(),
            },
            private @ (ServerChoice::Auto { .. } | ServerChoice::BuiltIn { .. }) => private.clone(),
        }
    }
}

/// A place without a server.
#[derive(Debug)]
pub struct Absence {
    /// Why.
    pub error: ServerError,
    /// Whether its program is not installed, or this machine's servers cannot do it: a row that needs it is
    /// then skipped, not failed.
    pub missing: bool,
}

/// The servers of a run. Dropping it ends the private ones and removes their folders.
#[derive(Debug, Default)]
pub struct Servers {
    running: BTreeMap<Place, Backend>,
    absent: BTreeMap<Place, Absence>,
}

impl Servers {
    /// Starts or connects to what is needed, each place with as many servers as its greediest need (the
    /// number matters to shards and to what is behind twemproxy).
    ///
    /// A server that is missing or does not start is kept as an [`Absence`], for the rows that need it to
    /// tell.
    ///
    /// # Errors
    /// A server that the user named and that cannot be used, the one Redis server when it does not start,
    /// and an interruption. Nothing is left running then.
    pub fn start(
        wanted: &Wanted,
        needs: impl IntoIterator<Item = (Place, u32)>,
        interrupt: &Interrupt,
    ) -> Result<Servers, ServerError> {
        let mut places: BTreeMap<Place, u32> = BTreeMap::new();
        for (place, servers) in needs {
            let most = places.entry(place).or_insert(1);
            *most = servers.max(*most);
        }
        let mut servers = Servers::default();
        for (place, number) in places {
            match start(place, number, wanted, interrupt) {
                Ok(backend) => {
                    servers.running.insert(place, backend);
                }
                Err(error) if is_grave(place, &error, wanted) => return Err(error),
                Err(error) => {
                    let missing = matches!(error, ServerError::NotFound(_) | ServerError::NoClusterHere);
                    servers.absent.insert(place, Absence { error, missing });
                }
            }
        }
        Ok(servers)
    }

    /// No server at a place, for this reason, which is no failure of the rows that need it.
    pub fn without(place: Place, error: ServerError) -> Servers {
        let absence = Absence { error, missing: true };
        Servers {
            running: BTreeMap::new(),
            absent: [(place, absence)].into(),
        }
    }

    /// The servers of a place; `None` when it is absent or was not asked for.
    pub fn get(&self, place: Place) -> Option<&Backend> {
        self.running.get(&place)
    }

    /// The same, to talk to.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut Backend> {
        self.running.get_mut(&place)
    }

    /// Why a place has no server.
    pub fn absence(&self, place: Place) -> Option<&Absence> {
        self.absent.get(&place)
    }

    /// What runs, Redis first.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &Backend)> {
        self.running.iter().map(|(place, backend)| (*place, backend))
    }

    /// The same, to talk to.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut Backend)> {
        self.running.iter_mut().map(|(place, backend)| (*place, backend))
    }

    /// The counters of all servers by dotted name: those of the one Redis server as `redis.…`, of memcached
    /// as `memcached.…`, of several servers with the name of their place before that. A server that does not
    /// answer is left out.
    pub fn counters(&mut self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (place, backend) in &mut self.running {
            let Ok(reading) = backend.snapshot(u32::MAX) else {
                continue;
            };
            let several = !matches!(place, Place::Redis | Place::Memcached(_));
            for (name, value) in reading.named() {
                let name = if several {
                    format!("{}.{name}", place.store().name())
                } else {
                    name
                };
                *all.entry(name).or_insert(0) += value;
            }
        }
        all
    }

    /// Ends the private servers; the user's are only left alone. The same happens on drop.
    pub fn stop(self) {}
}

/// Whether the run cannot go on without it.
fn is_grave(place: Place, error: &ServerError, wanted: &Wanted) -> bool {
    match place {
        _ if matches!(error, ServerError::Interrupted) => true,
        Place::Redis => true,
        Place::Memcached(transport) => named(&wanted.memcached, transport).is_some(),
        Place::Cluster | Place::Shards | Place::Twemproxy => false,
    }
}

fn named(endpoints: &[Endpoint], transport: Transport) -> Option<&Endpoint> {
    endpoints
        .iter()
        .find(|endpoint| endpoint.transport() == transport)
}

fn start(place: Place, number: u32, wanted: &Wanted, interrupt: &Interrupt) -> Result<Backend, ServerError> {
    match place {
        Place::Redis => Ok(of_redis(
            vec![Server::start(wanted.redis.clone(), interrupt)?],
            None,
        )),
        Place::Memcached(transport) => {
            let server = match named(&wanted.memcached, transport) {
                Some(endpoint) => Memcached::connect(endpoint.clone())?,
                None => Memcached::start(transport, &wanted.options(), interrupt)?,
            };
            Ok(Backend {
                proxy: None,
                endpoints: vec![server.endpoint().clone()],
                info: server.info().clone(),
                nodes: vec![Node::Memcached(Box::new(server))],
            })
        }
        Place::Cluster => {
            let built_in = matches!(wanted.another(), ServerChoice::BuiltIn { .. });
            if built_in
                || !ServerProgram::REDIS
                    .iter()
                    .any(|program| locate(*program).is_ok())
            {
                return Err(ServerError::NoClusterHere);
            }
            let servers = cluster::start(CLUSTER_NODES, &wanted.options(), interrupt)?;
            let mut backend = of_redis(servers, None);
            // Its nodes send clients to each other's TCP addresses.
            backend
                .endpoints
                .retain(|endpoint| endpoint.transport() == Transport::Tcp);
            Ok(named_place(backend, place))
        }
        Place::Shards => Ok(named_place(
            of_redis(several(number, wanted, interrupt)?, None),
            place,
        )),
        Place::Twemproxy => {
            // The proxy first: without it the servers need not be started.
            locate(ServerProgram::Twemproxy)?;
            let servers = several(number, wanted, interrupt)?;
            let proxy = twemproxy::start(&servers, interrupt)?;
            Ok(named_place(of_redis(servers, Some(proxy)), place))
        }
    }
}

fn several(number: u32, wanted: &Wanted, interrupt: &Interrupt) -> Result<Vec<Server>, ServerError> {
    (0..number.max(1))
        .map(|_| Server::start(wanted.another(), interrupt))
        .collect()
}

fn of_redis(servers: Vec<Server>, proxy: Option<twemproxy::Proxy>) -> Backend {
    let mut info = servers
        .first()
        .map(|server| server.info.clone())
        .unwrap_or_default();
    let own: Vec<Endpoint> = servers
        .iter()
        .flat_map(|server| server.endpoints.clone())
        .collect();
    let (proxy, endpoints) = match proxy {
        Some(proxy) => {
            if let Some(version) = proxy.version.known() {
                info.settings.insert("twemproxy".to_owned(), version.clone());
            }
            (Some(proxy.private), proxy.endpoints)
        }
        None => (None, own),
    };
    info.addresses = endpoints.iter().map(super::shown).collect();
    Backend {
        proxy,
        endpoints,
        info,
        nodes: servers
            .into_iter()
            .map(|server| Node::Redis(Box::new(server)))
            .collect(),
    }
}

/// Puts into the description what several servers are to each other.
fn named_place(mut backend: Backend, place: Place) -> Backend {
    backend.info.place = place.store().name().to_owned();
    backend.info.servers = u32::try_from(backend.nodes.len()).unwrap_or(u32::MAX);
    backend
}

/// `redis 7.0.15, private (tcp 127.0.0.1:40123, unix /tmp/…/server.sock)`.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerInfo {
            kind,
            version,
            origin,
            place,
            servers,
            ..
        } = &self.info;
        match place.as_str() {
            "cluster" => write!(f, "cluster of {servers} x ")?,
            "shards" => write!(f, "{servers} shards, each ")?,
            "twemproxy" => write!(f, "twemproxy before {servers} x ")?,
            _ => {}
        }
        write!(f, "{kind} {version}, ")?;
        match origin {
            ServerOrigin::External => write!(f, "yours")?,
            ServerOrigin::Private => write!(f, "private")?,
            ServerOrigin::BuiltIn => write!(f, "built in: it serves this run, it is not Redis")?,
        }
        let addresses: Vec<String> = self
            .endpoints
            .iter()
            .map(|e| format!("{} {}", e.transport().name(), address_of(e)))
            .collect();
        write!(f, " ({})", addresses.join(", "))
    }
}
