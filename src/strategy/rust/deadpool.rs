//! The `redis` crate behind deadpool, a pool for async programs, on a tokio runtime of one thread.

use super::RustClient;
use super::failure::Fail;
use super::harness::Worker;
use crate::strategy::client::Mode;
use crate::strategy::contract::{Spec, Transport};

pub(super) const CLIENT: RustClient = RustClient {
    name: "redis-rs-deadpool",
    description: "the redis crate for Rust behind the async pool deadpool, on tokio (one thread)",
    version: VERSION,
    built_by: Some(("deadpool", cfg!(feature = "deadpool"))),
    transports: &Transport::SOCKETS,
    modes,
    set_up,
};

/// Version of deadpool-redis; a test holds it against `Cargo.lock`.
const VERSION: &str = "0.23.1";

fn modes() -> Vec<Mode> {
    vec![Mode {
        name: "pool".to_owned(),
        description: "a connection from the pool for each operation, asked PING first".to_owned(),
        ..Mode::default()
    }]
}

#[cfg(not(feature = "deadpool"))]
fn set_up(_: &Spec) -> Result<Box<dyn Worker>, Fail> {
    Err(Fail::config("this systally was built without deadpool"))
}

#[cfg(feature = "deadpool")]
use built::set_up;

#[cfg(feature = "deadpool")]
mod built {
    use deadpool_redis::{Manager, Pool, Runtime as PoolRuntime};
    use redis::Value;
    use tokio::runtime::{Builder, Runtime};

    use super::super::failure::Failure;
    use super::super::job::{Job, WAIT};
    use super::super::redis_common as common;
    use super::super::round::Round;
    use super::{Fail, Spec, Worker};
    use crate::strategy::contract::Connect;

    struct Pooled {
        job: Job,
        runtime: Runtime,
        pool: Pool,
    }

    pub(super) fn set_up(spec: &Spec) -> Result<Box<dyn Worker>, Fail> {
        let job = Job::new(spec, &[Connect::Once])?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Fail::config(format!("starting a tokio runtime: {e}")))?;
        let failed = |e: &redis::RedisError| Fail::connect(&job.server, &common::failure("connect", e));
        let manager = common::address(&job.server)
            .and_then(Manager::new)
            .map_err(|e| failed(&e))?;
        let pool = Pool::builder(manager)
            .max_size(1)
            .runtime(PoolRuntime::Tokio1)
            .wait_timeout(Some(WAIT))
            .create_timeout(Some(WAIT))
            .recycle_timeout(Some(WAIT))
            .build()
            .map_err(|e| Fail::config(format!("making the pool: {e}")))?;
        runtime.block_on(async {
            let mut connection = pool
                .get()
                .await
                .map_err(|e| Fail::connect(&job.server, &no_connection(&e)))?;
            for cmd in common::to_store(&job) {
                cmd.exec_async(&mut connection)
                    .await
                    .map_err(|e| Fail::config(format!("storing the keys to read: {e}")))?;
            }
            Ok(())
        })?;
        Ok(Box::new(Pooled { job, runtime, pool }))
    }

    fn no_connection(error: &deadpool_redis::PoolError) -> Failure {
        match error {
            deadpool_redis::PoolError::Backend(error) => common::failure("connect", error),
            other => Failure {
                class: "connect",
                message: other.to_string(),
                last: true,
            },
        }
    }

    impl Worker for Pooled {
        fn run(&mut self, round: &mut Round) {
            let Pooled { job, runtime, pool } = self;
            runtime.block_on(async {
                round.begin();
                while let Some(batch) = round.next() {
                    if let Err(failure) = one(job, pool, batch.first).await {
                        round.failures.add(&failure, 1);
                    }
                    round.over(batch);
                }
            });
        }
    }

    async fn one(job: &Job, pool: &Pool, i: u64) -> Result<(), Failure> {
        let mut connection = pool.get().await.map_err(|e| no_connection(&e))?;
        let reply = common::command(job, i)
            .query_async::<Value>(&mut connection)
            .await
            .map_err(|e| common::failure("exchange", &e))?;
        common::check(job, i, &reply)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        assert!(super::super::redis_common::tests::is_locked(
            "deadpool-redis",
            super::VERSION
        ));
    }
}
