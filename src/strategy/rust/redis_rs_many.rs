//! The `redis` crate over several servers: its client of a Redis Cluster, and blocking connections to
//! shards chosen by ketama.

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Client, Connection, RedisResult, Value};

use super::failure::{Fail, Failure, Failures};
use super::harness::Worker;
use super::job::{Job, WAIT};
use super::ketama::Ring;
use super::redis_common as common;
use super::round::{Batch, Round};
use crate::strategy::contract::{Connect, Spec};

/// The option that says over what the keys are spread.
pub(super) const OVER: &str = "over";
/// Its value for a Redis Cluster.
pub(super) const CLUSTER: &str = "cluster";
/// Its value for shards.
pub(super) const SHARDS: &str = "shards";

pub(super) fn set_up(spec: &Spec, over: &str) -> Result<Box<dyn Worker>, Fail> {
    let job = Job::over(spec, &[Connect::Once], &[OVER])?;
    let failed = |e: &redis::RedisError| Fail::connect(&job.server, &common::failure("connect", e));
    match over {
        CLUSTER => {
            let mut connection = cluster(&job).map_err(|e| failed(&e))?;
            common::store_each(&job, |cmd, _| cmd.exec(&mut connection)).map_err(|e| failed(&e))?;
            Ok(Box::new(Cluster { job, connection }))
        }
        SHARDS => {
            let mut shards = Shards::connect(&job).map_err(|e| failed(&e))?;
            common::store_each(&job, |cmd, key| cmd.exec(shards.of(key))).map_err(|e| failed(&e))?;
            Ok(Box::new(Sharded { job, shards }))
        }
        _ => Err(Fail::spec(format!("the option {OVER} is {CLUSTER} or {SHARDS}"))),
    }
}

fn cluster(job: &Job) -> RedisResult<ClusterConnection> {
    let nodes = job
        .servers
        .iter()
        .map(common::address)
        .collect::<RedisResult<Vec<_>>>()?;
    let connection = ClusterClient::builder(nodes)
        .connection_timeout(WAIT)
        .build()?
        .get_connection()?;
    connection.set_read_timeout(Some(WAIT))?;
    connection.set_write_timeout(Some(WAIT))?;
    Ok(connection)
}

struct Cluster {
    job: Job,
    connection: ClusterConnection,
}

impl Worker for Cluster {
    fn run(&mut self, round: &mut Round) {
        round.drive(|batch, failures| {
            let reply = common::command(&self.job, batch.first).query::<Value>(&mut self.connection);
            note(&self.job, batch, reply, failures);
        });
    }
}

/// A connection to each shard.
struct Shards {
    ring: Ring,
    connections: Vec<Connection>,
}

impl Shards {
    fn connect(job: &Job) -> RedisResult<Shards> {
        let connections = job.servers.iter().map(|server| {
            let connection = Client::open(common::address(server)?)?.get_connection_with_timeout(WAIT)?;
            connection.set_read_timeout(Some(WAIT))?;
            connection.set_write_timeout(Some(WAIT))?;
            Ok(connection)
        });
        let names: Vec<String> = job.servers.iter().map(ToString::to_string).collect();
        Ok(Shards {
            connections: connections.collect::<RedisResult<_>>()?,
            ring: Ring::new(names.iter().map(String::as_str)),
        })
    }

    /// The shard of a key.
    fn of(&mut self, key: &str) -> &mut Connection {
        &mut self.connections[self.ring.server(key)]
    }
}

struct Sharded {
    job: Job,
    shards: Shards,
}

impl Worker for Sharded {
    fn run(&mut self, round: &mut Round) {
        round.drive(|batch, failures| {
            let shard = self.shards.of(self.job.key(batch.first));
            let reply = common::command(&self.job, batch.first).query::<Value>(shard);
            note(&self.job, batch, reply, failures);
        });
    }
}

fn note(job: &Job, batch: Batch, reply: RedisResult<Value>, failures: &mut Failures) {
    let outcome = reply
        .map_err(|e| common::failure("exchange", &e))
        .and_then(|reply| common::check(job, batch.first, &reply));
    if let Err(failure) = outcome {
        // One server that is gone is not all of them.
        let failure = Failure {
            last: false,
            ..failure
        };
        failures.add(&failure, 1);
    }
}
