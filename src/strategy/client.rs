//! What a client of the table is: the trait that Rust clients and scripts share.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::contract::{Connect, Op, Store, Transport};

/// One client library or program that systally can drive.
pub trait Client: Send + Sync {
    /// What the user types and the tables show; see [`super::is_name`].
    fn name(&self) -> &str;
    /// The language it is written for.
    fn language(&self) -> &str;
    /// One line for `systally list`.
    fn description(&self) -> &str;
    /// The ways to use it, in the order in which rows are listed; never empty.
    fn modes(&self) -> Vec<Mode>;
    /// What it speaks to.
    fn store(&self) -> Store {
        Store::Redis
    }
    /// How it can reach that; never empty.
    fn transports(&self) -> Vec<Transport>;
    /// Whether its worker starts another program for each round, which does not keep the contract: what
    /// starting that costs is then taken out of the counts.
    fn is_program(&self) -> bool {
        false
    }
    /// Whether it can run on this machine. The first call may start a program and wait for it, twenty
    /// seconds at most; later calls give the same answer at once.
    fn presence(&self) -> Presence;
    /// Program and arguments of its worker.
    fn command(&self) -> Vec<OsString>;
}

/// One way to use a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Mode {
    /// The middle part of a strategy's name.
    pub name: String,
    /// When connections are made.
    pub connect: Connect,
    /// What it speaks to where that differs from the client's other modes.
    pub store: Option<Store>,
    /// How it can reach that where these are not all the client's ways; empty for all.
    pub transports: Vec<Transport>,
    /// Whether operations go out in batches of the plan's pipeline depth; one by one otherwise.
    pub pipeline: bool,
    /// Whether it takes the pipeline depth when the user gives one, although it is no pipeline mode: the
    /// floor does, so that it can stand beside a pipeline of the same depth.
    pub depth_when_asked: bool,
    /// The operations it offers where these are not all of the client's, the one that stands for the default
    /// first; empty for all.
    pub ops: Vec<Op>,
    /// Whether it runs when the user names no strategy.
    pub default: bool,
    /// Whether one worker forks all clients itself, as a published script did, instead of systally
    /// starting a worker for each.
    pub forks: bool,
    /// Whether it shows a known mistake, so that its figure is not to be believed. It runs only when it
    /// is named.
    pub demonstration: bool,
    /// Handed to the worker unchanged.
    pub options: BTreeMap<String, serde_json::Value>,
    /// One line for `systally list`.
    pub description: String,
}

impl Default for Mode {
    /// One connection for the whole run, one operation at a time, run when it is named.
    fn default() -> Self {
        Mode {
            name: String::new(),
            connect: Connect::Once,
            store: None,
            transports: Vec::new(),
            pipeline: false,
            depth_when_asked: false,
            ops: Vec::new(),
            default: false,
            demonstration: false,
            forks: false,
            options: BTreeMap::new(),
            description: String::new(),
        }
    }
}

impl Mode {
    /// The client's transports that this mode has.
    pub fn transports(&self, client: &dyn Client) -> Vec<Transport> {
        let mut all = client.transports();
        all.retain(|transport| {
            // The nodes of a cluster send clients to each other's TCP addresses.
            (self.transports.is_empty() || self.transports.contains(transport))
                && (self.store != Some(Store::Cluster) || *transport == Transport::Tcp)
        });
        all
    }

    /// Where the mode stands among those of its client: connecting each time, then kept connections,
    /// then pipelines, and by name within each.
    pub(super) fn rank(&self) -> (bool, u8, &str) {
        let connect = match self.connect {
            Connect::PerOp => 0,
            Connect::PersistentPerOp => 1,
            Connect::Once | Connect::Persistent => 2,
        };
        (self.pipeline, connect, &self.name)
    }
}

/// Whether a client can run on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// It can.
    Ready {
        /// Its version as it says itself; empty when it does not.
        version: String,
    },
    /// It cannot.
    Missing {
        /// Why, in one clause.
        why: String,
        /// The command that installs it.
        install: String,
    },
}
