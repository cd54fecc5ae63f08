//! fred, another Redis client for Rust, on a tokio runtime of one thread.

use super::RustClient;
use super::failure::Fail;
use super::harness::Worker;
use crate::strategy::client::Mode;
use crate::strategy::contract::{Spec, Transport};

pub(super) const CLIENT: RustClient = RustClient {
    name: "fred",
    description: "fred, an async Redis client for Rust, on tokio (one thread)",
    version: VERSION,
    built_by: Some(("fred", cfg!(feature = "fred"))),
    transports: &Transport::SOCKETS,
    modes,
    set_up,
};

/// Version of fred; a test holds it against `Cargo.lock`.
const VERSION: &str = "10.1.0";

fn modes() -> Vec<Mode> {
    let mode = |name: &str, pipeline, description: &str| Mode {
        name: name.to_owned(),
        pipeline,
        description: description.to_owned(),
        ..Mode::default()
    };
    vec![
        mode("persistent", false, "one connection, one operation at a time"),
        mode(
            "pipeline",
            true,
            "one connection, operations in pipelines: all of a batch under way together",
        ),
    ]
}

#[cfg(not(feature = "fred"))]
fn set_up(_: &Spec) -> Result<Box<dyn Worker>, Fail> {
    Err(Fail::config("this systally was built without fred"))
}

#[cfg(feature = "fred")]
use built::set_up;

#[cfg(feature = "fred")]
mod built {
    use fred::prelude::*;
    use fred::types::CustomCommand;
    use futures_util::future::join_all;
    use tokio::runtime::{Builder as Tokio, Runtime};

    use super::super::failure::Failure;
    use super::super::job::{Command, Job, WAIT};
    use super::super::round::{Batch, Round};
    use super::{Fail, Spec, Worker};
    use crate::strategy::contract::{Connect, Endpoint};

    struct Async {
        job: Job,
        runtime: Runtime,
        client: Client,
    }

    pub(super) fn set_up(spec: &Spec) -> Result<Box<dyn Worker>, Fail> {
        let job = Job::new(spec, &[Connect::Once])?;
        let runtime = Tokio::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Fail::config(format!("starting a tokio runtime: {e}")))?;
        let client = runtime.block_on(connect(&job))?;
        Ok(Box::new(Async { job, runtime, client }))
    }

    async fn connect(job: &Job) -> Result<Client, Fail> {
        let failed = |e: Error| Fail::connect(&job.server, &failure("connect", &e));
        let server = match &job.server {
            Endpoint::Tcp { host, port, .. } => ServerConfig::new_centralized(host.as_str(), *port),
            Endpoint::Unix { path, .. } => ServerConfig::new_unix_socket(path),
        };
        let (username, password) = job.server.credentials();
        let config = Config {
            server,
            username: username.map(str::to_owned),
            password: password.map(str::to_owned),
            ..Config::default()
        };
        let client = Builder::from_config(config)
            .with_connection_config(|config| {
                config.connection_timeout = WAIT;
                config.internal_command_timeout = WAIT;
            })
            .with_performance_config(|config| config.default_command_timeout = WAIT)
            .build()
            .map_err(failed)?;
        client.init().await.map_err(failed)?;
        for keys in job.to_store() {
            let pairs: Vec<(Key, Value)> = keys
                .iter()
                .map(|key| (Key::from(key.as_str()), Value::Bytes(job.payload.clone().into())))
                .collect();
            let stored: Result<(), Error> = client.mset(pairs).await;
            stored.map_err(|e| Fail::config(format!("storing the keys to read: {e}")))?;
        }
        Ok(client)
    }

    impl Worker for Async {
        fn run(&mut self, round: &mut Round) {
            let Async { job, runtime, client } = self;
            runtime.block_on(async {
                round.begin();
                while let Some(batch) = round.next() {
                    if batch.count > 1 {
                        pipeline(job, client, batch, round).await;
                    } else {
                        let reply = call(job, client, batch.first).await;
                        note(job, batch.first, reply, round);
                    }
                    round.over(batch);
                }
            });
        }
    }

    async fn call(job: &Job, client: &Client, i: u64) -> Result<Value, Error> {
        match job.command(i) {
            Command::Get => client.get(job.key(i)).await,
            Command::Set => {
                client
                    .set(job.key(i), job.payload.as_slice(), None, None, false)
                    .await
            }
            Command::Incr => client.incr(job.key(i)).await,
            Command::Ping => {
                client
                    .custom(
                        CustomCommand::new_static("PING", None, false),
                        Vec::<Value>::new(),
                    )
                    .await
            }
        }
    }

    /// Commands that are under way together go out in one write. fred's own `Pipeline` writes each by itself.
    async fn pipeline(job: &Job, client: &Client, batch: Batch, round: &mut Round) {
        let numbers = batch.first..batch.first + batch.count as u64;
        let replies = join_all(numbers.clone().map(|i| call(job, client, i))).await;
        for (i, reply) in numbers.zip(replies) {
            note(job, i, reply, round);
        }
    }

    fn note(job: &Job, i: u64, reply: Result<Value, Error>, round: &mut Round) {
        let command = job.command(i);
        let outcome = match (command, reply) {
            (_, Err(error)) => Err(failure("exchange", &error)),
            (Command::Get, Ok(value)) if value.as_bytes() == Some(job.payload.as_slice()) => Ok(()),
            (Command::Set, Ok(value)) if value.as_str().as_deref() == Some("OK") => Ok(()),
            (Command::Incr, Ok(value)) if value.as_i64().is_some_and(|n| n > 0) => Ok(()),
            (Command::Ping, Ok(value)) if value.as_str().as_deref() == Some("PONG") => Ok(()),
            _ => Err(command.wrong_reply()),
        };
        if let Err(failure) = outcome {
            round.failures.add(&failure, 1);
        }
    }

    fn failure(class: &'static str, error: &Error) -> Failure {
        match error.kind() {
            ErrorKind::IO | ErrorKind::Timeout | ErrorKind::Canceled => Failure {
                class,
                message: error.details().to_owned(),
                last: true,
            },
            _ => Failure::server(error.details()),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        assert!(super::super::redis_common::tests::is_locked(
            "fred",
            super::VERSION
        ));
    }
}
