//! The `redis` crate with its blocking connection.

use std::collections::BTreeMap;

use redis::{Client, Connection, Value};

use super::RustClient;
use super::failure::{Fail, Failure, Failures};
use super::harness::Worker;
use super::job::{Job, WAIT};
use super::redis_common as common;
use super::redis_rs_many as many;
use super::round::{Batch, Round};
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Spec, Store, Transport};

pub(super) const CLIENT: RustClient = RustClient {
    name: "redis-rs",
    description: "the redis crate for Rust, blocking",
    version: common::VERSION,
    built_by: None,
    transports: &Transport::SOCKETS,
    modes,
    set_up,
};

fn modes() -> Vec<Mode> {
    let mode = |name: &str, connect, pipeline, description: &str| Mode {
        name: name.to_owned(),
        connect,
        store: None,
        transports: Vec::new(),
        pipeline,
        depth_when_asked: false,
        forks: false,
        default: true,
        ops: Vec::new(),
        demonstration: false,
        options: BTreeMap::new(),
        description: description.to_owned(),
    };
    let many = |name: &str, store, over: &str, description: &str| Mode {
        name: name.to_owned(),
        store: Some(store),
        options: BTreeMap::from([(many::OVER.to_owned(), over.into())]),
        description: description.to_owned(),
        ..Mode::default()
    };
    vec![
        mode(
            "connect",
            Connect::PerOp,
            false,
            "a new connection for each operation",
        ),
        mode(
            "persistent",
            Connect::Once,
            false,
            "one connection, one operation at a time",
        ),
        mode(
            "pipeline",
            Connect::Once,
            true,
            "one connection, operations in pipelines",
        ),
        many(
            "cluster",
            Store::Cluster,
            many::CLUSTER,
            "the crate's client of a Redis Cluster",
        ),
        many(
            "shards",
            Store::Shards,
            many::SHARDS,
            "a connection to each shard, keys spread by ketama",
        ),
    ]
}

fn set_up(spec: &Spec) -> Result<Box<dyn Worker>, Fail> {
    if let Some(over) = spec.options.get(many::OVER) {
        return many::set_up(spec, over.as_str().unwrap_or_default());
    }
    let job = Job::new(spec, &[Connect::Once, Connect::PerOp])?;
    let failed = |why: Failure| Fail::connect(&job.server, &why);
    let client = common::address(&job.server)
        .and_then(Client::open)
        .map_err(|e| failed(common::failure("connect", &e)))?;
    let mut connection = first_connection(&client).map_err(failed)?;
    for cmd in common::to_store(&job) {
        cmd.exec(&mut connection)
            .map_err(|e| Fail::config(format!("storing the keys to read: {e}")))?;
    }
    Ok(if spec.connect == Connect::PerOp {
        Box::new(Connecting { job, client })
    } else {
        Box::new(Kept { job, connection })
    })
}

/// Connects with time-outs, and asks whether the server answers: the crate passes over some refusals
/// until the first command.
fn first_connection(client: &Client) -> Result<Connection, Failure> {
    let mut connection = client
        .get_connection_with_timeout(WAIT)
        .map_err(|e| common::failure("connect", &e))?;
    connection
        .set_read_timeout(Some(WAIT))
        .and_then(|()| connection.set_write_timeout(Some(WAIT)))
        .and_then(|()| redis::cmd("PING").exec(&mut connection))
        .map_err(|e| common::failure("connect", &e))?;
    Ok(connection)
}

/// One connection for all. A server that stops answering ends an operation after [`WAIT`]; in a pipeline
/// the crate waits so long for each reply that is missing, and the limit of the round may come first.
struct Kept {
    job: Job,
    connection: Connection,
}

impl Worker for Kept {
    fn run(&mut self, round: &mut Round) {
        round.drive(|batch, failures| self.step(batch, failures));
    }
}

impl Kept {
    fn step(&mut self, batch: Batch, failures: &mut Failures) {
        if batch.count > 1 {
            let replies = common::pipeline(&self.job, batch).query(&mut self.connection);
            return common::check_all(&self.job, batch, replies, failures);
        }
        let outcome = common::command(&self.job, batch.first)
            .query::<Value>(&mut self.connection)
            .map_err(|e| common::failure("exchange", &e))
            .and_then(|reply| common::check(&self.job, batch.first, &reply));
        if let Err(failure) = outcome {
            failures.add(&failure, 1);
        }
    }
}

/// A connection for each operation, made as a program does that never thought of time-outs: setting them
/// would be system calls of ours, not of the crate's. Where a server accepts and never answers, the limit
/// that systally sets for the round ends the wait.
struct Connecting {
    job: Job,
    client: Client,
}

impl Worker for Connecting {
    fn run(&mut self, round: &mut Round) {
        round.drive(|batch, failures| {
            if let Err(failure) = self.one(batch.first) {
                // The next connection is a new one, whatever became of this.
                failures.add(
                    &Failure {
                        last: false,
                        ..failure
                    },
                    1,
                );
            }
        });
    }
}

impl Connecting {
    fn one(&self, i: u64) -> Result<(), Failure> {
        let mut connection = self
            .client
            .get_connection()
            .map_err(|e| common::failure("connect", &e))?;
        let reply = common::command(&self.job, i)
            .query::<Value>(&mut connection)
            .map_err(|e| common::failure("exchange", &e))?;
        common::check(&self.job, i, &reply)
    }
}
