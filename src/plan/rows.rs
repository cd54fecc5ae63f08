//! The rows of a run: strategies times operations, pipeline depths, payload sizes and client counts.

use crate::record::Axes;
use crate::server::{CLUSTER_NODES, Place};
use crate::strategy::contract::{Keys, LatencyMode, Op, Payload, PayloadKind, Serializer, Stop, Store};
use crate::strategy::{Strategy, Work};

/// Operations per batch in pipeline modes when nobody says otherwise.
pub const DEFAULT_PIPELINE: u32 = 16;

/// The operation when nobody says otherwise.
pub const DEFAULT_OP: Op = Op::Setget;

/// Operations that a worker makes before `ready`, so that lazy connects, autoloading and arenas are
/// behind it when the window opens.
const WARMUP_OPS: u32 = 20;

/// Failed operations after which a worker gives up its round.
const MAX_ERRORS: u64 = 10_000;

/// The axes of a matrix, each with one value or more.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Operations that were asked for; empty for `setget`, or the first that a mode offers where it does not
    /// offer that.
    pub ops: Vec<Op>,
    /// Depths that were asked for; empty for the default of each mode.
    pub pipeline: Vec<u32>,
    /// Payload sizes in bytes.
    pub payload_bytes: Vec<u64>,
    /// Worker processes at once.
    pub clients: Vec<u32>,
    /// Servers that clients spread their keys over; the others have one, whatever is here.
    pub servers: Vec<u32>,
}

/// What all rows share.
#[derive(Debug, Clone)]
pub struct Common {
    /// The key space.
    pub keys: Keys,
    /// The shape of values.
    pub payload: PayloadKind,
    /// How clients serialise them.
    pub serializer: Serializer,
}

/// One row: a strategy and one value of every axis.
#[derive(Debug, Clone)]
pub struct Row {
    /// The client, mode and transport.
    pub strategy: Strategy,
    /// The operation.
    pub op: Op,
    /// Operations per batch.
    pub batch: u32,
    /// Payload size in bytes.
    pub payload_bytes: u64,
    /// Whether other rows of the run have another payload size.
    pub sizes_differ: bool,
    /// Worker processes at once.
    pub clients: u32,
    /// Servers that the keys are spread over: the client's shards, or what is behind a proxy.
    pub servers: u32,
}

impl Row {
    /// Workers that systally starts for the row: one for each client, but a script that forks its clients
    /// is started once.
    pub fn workers(&self) -> u32 {
        if self.strategy.mode.forks { 1 } else { self.clients }
    }

    /// Its name for whoever waits for it: the strategy, and the axes that are not one.
    pub fn title(&self) -> String {
        let mut title = self.strategy.name().to_string();
        for (axis, value) in [
            ("clients", self.clients),
            ("servers", self.servers),
            ("pipeline", self.batch),
        ] {
            if value != 1 {
                title.push_str(&format!(" {axis}={value}"));
            }
        }
        title
    }

    /// What it runs against; `None` for a client that needs no server.
    pub fn place(&self) -> Option<Place> {
        Place::of(self.strategy.store(), self.strategy.transport)
    }

    /// The axes as the record keeps them.
    pub fn axes(&self) -> Axes {
        Axes {
            op: self.op.name().to_owned(),
            transport: self.strategy.transport.name().to_owned(),
            pipeline: self.batch,
            payload_bytes: self.payload_bytes,
            clients: self.clients,
            store: self.strategy.store().name().to_owned(),
            servers: self.servers,
        }
    }

    /// The keys of the row. Rows take turns on one server and read what they find there, so values of another
    /// size, or written in the form of another client, have names of their own.
    pub fn keys(&self, common: &Common) -> Keys {
        let mut keys = common.keys.clone();
        if self.sizes_differ {
            keys.prefix.push_str(&format!("{}:", self.payload_bytes));
        }
        if common.payload != PayloadKind::String {
            keys.prefix.push_str(&format!("{}:", self.strategy.client.name()));
        }
        keys
    }

    /// What each worker of the row is asked to do.
    pub fn work(&self, common: &Common, stop: Stop) -> Work {
        Work {
            op: self.op,
            stop,
            batch: self.batch,
            keys: self.keys(common),
            payload: Payload {
                kind: common.payload,
                bytes: self.payload_bytes,
                serializer: common.serializer,
            },
            warmup: WARMUP_OPS,
            max_errors: MAX_ERRORS,
            latency: LatencyMode::Hist,
            forks: if self.strategy.mode.forks { self.clients } else { 0 },
        }
    }
}

/// Every combination. Rows of one strategy stand together; an axis that a strategy's mode does not have
/// (a pipeline depth where nothing is pipelined) does not multiply its rows.
pub fn rows(strategies: &[Strategy], matrix: &Matrix) -> Vec<Row> {
    let mut rows = Vec::new();
    for strategy in strategies {
        let mut strategy = strategy.clone();
        strategy.mode.pipeline |= strategy.mode.depth_when_asked && !matrix.pipeline.is_empty();
        let batches = match (strategy.mode.pipeline, matrix.pipeline.as_slice()) {
            (false, _) => &[1],
            (true, []) => &[DEFAULT_PIPELINE],
            (true, depths) => depths,
        };
        let most = matrix.servers.iter().copied().max().unwrap_or(1);
        let servers = match strategy.store() {
            Store::Shards => matrix.servers.as_slice(),
            // It is started once, before all of them.
            Store::Twemproxy => &[most],
            Store::Cluster => &[CLUSTER_NODES],
            Store::Redis | Store::Memcached | Store::None => &[1],
        };
        let offered = |op: &Op| strategy.mode.ops.is_empty() || strategy.mode.ops.contains(op);
        let ops = match (matrix.ops.as_slice(), strategy.mode.ops.first()) {
            ([], Some(first)) if !offered(&DEFAULT_OP) => std::slice::from_ref(first),
            ([], _) => &[DEFAULT_OP],
            (asked, _) => asked,
        };
        for op in ops {
            for batch in batches {
                for payload_bytes in &matrix.payload_bytes {
                    for clients in &matrix.clients {
                        rows.extend(servers.iter().map(|servers| Row {
                            strategy: strategy.clone(),
                            op: *op,
                            batch: *batch,
                            payload_bytes: *payload_bytes,
                            sizes_differ: matrix.payload_bytes.iter().any(|other| other != payload_bytes),
                            clients: *clients,
                            servers: *servers,
                        }));
                    }
                }
            }
        }
    }
    rows
}

/// The share of worker number `worker` when `total` operations are dealt over `clients`.
pub fn share(total: u64, clients: u32, worker: u32) -> u64 {
    let (clients, worker) = (u64::from(clients.max(1)), u64::from(worker));
    total / clients + u64::from(worker < total % clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_total() {
        for (total, clients) in [(10, 3), (1, 1), (100, 7), (3, 3)] {
            let sum: u64 = (0..clients).map(|w| share(total, clients, w)).sum();
            assert_eq!(sum, total);
        }
        assert_eq!(share(10, 3, 0), 4);
        assert_eq!(share(10, 3, 2), 3);
    }
}
