//! The `redis` crate behind r2d2, the usual pool of blocking connections.

use std::collections::BTreeMap;

use ::r2d2::Pool;
use redis::{Client, Value};

use super::RustClient;
use super::failure::{Fail, Failure};
use super::harness::Worker;
use super::job::{Job, WAIT};
use super::redis_common as common;
use super::round::Round;
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Spec, Transport};

/// The option that turns the check of a connection off.
const UNCHECKED: &str = "unchecked";

/// Version of r2d2; a test holds it against `Cargo.lock`.
const VERSION: &str = "0.8.10";

pub(super) const CLIENT: RustClient = RustClient {
    name: "redis-rs-r2d2",
    description: "the redis crate for Rust behind the pool r2d2",
    version: VERSION,
    built_by: None,
    transports: &Transport::SOCKETS,
    modes,
    set_up,
};

fn modes() -> Vec<Mode> {
    let mode = |name: &str, unchecked: bool, description: &str| Mode {
        name: name.to_owned(),
        options: BTreeMap::from([(UNCHECKED.to_owned(), unchecked.into())]),
        description: description.to_owned(),
        ..Mode::default()
    };
    vec![
        mode(
            "pool",
            false,
            "a connection from the pool for each operation, asked PING first",
        ),
        mode(
            "pool-unchecked",
            true,
            "the same without PING (test_on_check_out off)",
        ),
    ]
}

struct Pooled {
    job: Job,
    pool: Pool<Client>,
}

fn set_up(spec: &Spec) -> Result<Box<dyn Worker>, Fail> {
    let job = Job::over(spec, &[Connect::Once], &[UNCHECKED])?;
    let unchecked = spec
        .options
        .get(UNCHECKED)
        .and_then(serde_json::Value::as_bool)
        .unwrap_or(false);
    let failed = |e: &redis::RedisError| Fail::connect(&job.server, &common::failure("connect", e));
    let client = common::address(&job.server)
        .and_then(Client::open)
        .map_err(|e| failed(&e))?;
    // Asked once without the pool, whose own error says nothing of the cause.
    client.get_connection_with_timeout(WAIT).map_err(|e| failed(&e))?;
    let pool = Pool::builder()
        .max_size(1)
        .test_on_check_out(!unchecked)
        .connection_timeout(WAIT)
        .build(client)
        .map_err(|e| Fail::config(format!("the pool has no connection: {e}")))?;
    let mut connection = pool
        .get()
        .map_err(|e| Fail::config(format!("the pool has no connection: {e}")))?;
    for cmd in common::to_store(&job) {
        cmd.exec(&mut *connection)
            .map_err(|e| Fail::config(format!("storing the keys to read: {e}")))?;
    }
    drop(connection);
    Ok(Box::new(Pooled { job, pool }))
}

impl Worker for Pooled {
    fn run(&mut self, round: &mut Round) {
        round.drive(|batch, failures| {
            if let Err(failure) = self.one(batch.first) {
                failures.add(&failure, 1);
            }
        });
    }
}

impl Pooled {
    fn one(&self, i: u64) -> Result<(), Failure> {
        let mut connection = self.pool.get().map_err(|e| Failure {
            class: "connect",
            message: e.to_string(),
            // It has waited for as long as a worker waits for anything.
            last: true,
        })?;
        let reply = common::command(&self.job, i)
            .query::<Value>(&mut *connection)
            .map_err(|e| common::failure("exchange", &e))?;
        common::check(&self.job, i, &reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        assert!(common::tests::is_locked("r2d2", VERSION));
    }
}
