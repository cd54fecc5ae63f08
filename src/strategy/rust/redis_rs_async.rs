//! The `redis` crate with its multiplexed connection, on a tokio runtime of one thread.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value};
use tokio::runtime::{Builder, Runtime};

use super::RustClient;
use super::failure::{Fail, Failure};
use super::harness::Worker;
use super::job::{Job, WAIT};
use super::redis_common as common;
use super::round::Round;
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Spec, Transport};

pub(super) const CLIENT: RustClient = RustClient {
    name: "redis-rs-async",
    description: "the redis crate for Rust, multiplexed, on tokio (one thread)",
    version: common::VERSION,
    built_by: None,
    transports: &Transport::SOCKETS,
    modes,
    set_up,
};

/// Version of tokio; a test holds it against `Cargo.lock`.
const TOKIO: &str = "1.54.1";

fn modes() -> Vec<Mode> {
    let mode = |name: &str, pipeline, description: &str| Mode {
        name: name.to_owned(),
        connect: Connect::Once,
        store: None,
        transports: Vec::new(),
        pipeline,
        depth_when_asked: false,
        forks: false,
        default: !pipeline,
        ops: Vec::new(),
        demonstration: false,
        options: BTreeMap::new(),
        description: description.to_owned(),
    };
    vec![
        mode("persistent", false, "one connection, one operation at a time"),
        mode("pipeline", true, "one connection, operations in pipelines"),
    ]
}

fn set_up(spec: &Spec) -> Result<Box<dyn Worker>, Fail> {
    let job = Job::new(spec, &[Connect::Once])?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Fail::config(format!("starting a tokio runtime: {e}")))?;
    let connection = runtime.block_on(connect(&job))?;
    Ok(Box::new(Async {
        job,
        runtime,
        connection,
    }))
}

async fn connect(job: &Job) -> Result<MultiplexedConnection, Fail> {
    let failed = |e: &redis::RedisError| Fail::connect(&job.server, &common::failure("connect", e));
    // The crate's own limit for a reply is half a second, which a tracer can use up.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(WAIT))
        .set_response_timeout(Some(WAIT));
    let client = common::address(&job.server)
        .and_then(Client::open)
        .map_err(|e| failed(&e))?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|e| failed(&e))?;
    redis::cmd("PING")
        .exec_async(&mut connection)
        .await
        .map_err(|e| failed(&e))?;
    for cmd in common::to_store(job) {
        cmd.exec_async(&mut connection)
            .await
            .map_err(|e| Fail::config(format!("storing the keys to read: {e}")))?;
    }
    Ok(connection)
}

struct Async {
    job: Job,
    runtime: Runtime,
    connection: MultiplexedConnection,
}

impl Worker for Async {
    fn run(&mut self, round: &mut Round) {
        let Async {
            job,
            runtime,
            connection,
        } = self;
        runtime.block_on(async {
            round.begin();
            while let Some(batch) = round.next() {
                if batch.count > 1 {
                    let replies = common::pipeline(job, batch).query_async(connection).await;
                    common::check_all(job, batch, replies, &mut round.failures);
                } else if let Err(failure) = one(job, connection, batch.first).await {
                    round.failures.add(&failure, 1);
                }
                round.over(batch);
            }
        });
    }

    fn versions(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([("tokio".to_owned(), TOKIO.into())])
    }
}

async fn one(job: &Job, connection: &mut MultiplexedConnection, i: u64) -> Result<(), Failure> {
    let reply = common::command(job, i)
        .query_async::<Value>(connection)
        .await
        .map_err(|e| common::failure("exchange", &e))?;
    common::check(job, i, &reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        assert!(common::tests::is_locked("tokio", TOKIO));
    }
}
