//! What the clients of the `redis` crate have in common.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, Value,
};

use super::failure::{Failure, Failures};
use super::job::{Command, Job};
use super::round::Batch;
use crate::strategy::contract::Endpoint;

/// Version of the `redis` crate; a test holds it against `Cargo.lock`.
pub(super) const VERSION: &str = "1.8.1";

/// The server as the crate names it; its other settings are the crate's defaults.
pub(super) fn address(server: &Endpoint) -> Result<ConnectionInfo, RedisError> {
    let address = match server {
        Endpoint::Tcp { host, port, .. } => ConnectionAddr::Tcp(host.clone(), *port),
        Endpoint::Unix { path, .. } => ConnectionAddr::Unix(path.into()),
    };
    let (user, password) = server.credentials();
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = user {
        login = login.set_username(user);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    Ok(address.into_connection_info()?.set_redis_settings(login))
}

/// The command of an operation, built when it is sent, as programs do.
pub(super) fn command(job: &Job, i: u64) -> Cmd {
    let mut cmd = redis::cmd(job.command(i).name());
    match job.command(i) {
        Command::Get | Command::Incr => cmd.arg(job.key(i)),
        Command::Set => cmd.arg(job.key(i)).arg(job.payload.as_slice()),
        Command::Ping => &mut cmd,
    };
    cmd
}

/// Stores what GETs will read, one key at a time: where keys are spread over servers, no command holds
/// keys of several. Other operations ask for some keys, so that every server has its connection before the
/// window opens.
pub(super) fn store_each(
    job: &Job,
    mut send: impl FnMut(Cmd, &str) -> Result<(), RedisError>,
) -> Result<(), RedisError> {
    /// Enough to meet every server.
    const TOUCHED: usize = 200;
    let mut stored = false;
    for key in job.to_store().flatten() {
        stored = true;
        let mut cmd = redis::cmd("SET");
        cmd.arg(key).arg(job.payload.as_slice());
        send(cmd, key)?;
    }
    if !stored {
        for key in job.keys.iter().take(TOUCHED) {
            let mut cmd = redis::cmd("EXISTS");
            cmd.arg(key);
            send(cmd, key)?;
        }
    }
    Ok(())
}

/// The commands of a batch. Replies that are errors stay in their places among the others.
pub(super) fn pipeline(job: &Job, batch: Batch) -> Pipeline {
    let mut pipe = Pipeline::with_capacity(batch.count);
    for i in batch.first..batch.first + batch.count as u64 {
        pipe.add_command(command(job, i));
    }
    pipe.ignore_errors();
    pipe
}

/// The commands that store what GETs will read, in groups.
pub(super) fn to_store(job: &Job) -> impl Iterator<Item = Cmd> {
    job.to_store().map(|keys| {
        let mut cmd = redis::cmd("MSET");
        for key in keys {
            cmd.arg(key).arg(job.payload.as_slice());
        }
        cmd
    })
}

/// Whether the reply of operation `i` is the right one.
pub(super) fn check(job: &Job, i: u64, reply: &Value) -> Result<(), Failure> {
    let command = job.command(i);
    let right = match (command, reply) {
        (_, Value::ServerError(error)) => {
            return Err(Failure::server(&words(error.code(), error.details())));
        }
        (Command::Get, Value::BulkString(value)) => *value == job.payload,
        (Command::Set, Value::Okay) => true,
        (Command::Incr, Value::Int(n)) => *n > 0,
        (Command::Ping, Value::SimpleString(status)) => status == "PONG",
        _ => false,
    };
    if right { Ok(()) } else { Err(command.wrong_reply()) }
}

/// Checks what came back for a batch.
pub(super) fn check_all(
    job: &Job,
    batch: Batch,
    replies: Result<Vec<Value>, RedisError>,
    failures: &mut Failures,
) {
    match replies {
        Ok(replies) if replies.len() == batch.count => {
            for (i, reply) in (batch.first..).zip(&replies) {
                if let Err(failure) = check(job, i, reply) {
                    failures.add(&failure, 1);
                }
            }
        }
        Ok(_) => failures.add(
            &Failure::wrong_reply("a pipeline", "number of replies"),
            batch.count,
        ),
        Err(error) => failures.add(&failure("exchange", &error), batch.count),
    }
}

/// An error of the crate in the words of the contract. `doing` is the class of what the operating system
/// refuses: the crate does not tell sending from receiving.
pub(super) fn failure(doing: &'static str, error: &RedisError) -> Failure {
    if let Some(error) = os_error(error) {
        return Failure::io(doing, error);
    }
    let last = error.is_unrecoverable_error() || error.is_io_error();
    match error.code() {
        Some(code) => Failure {
            last,
            ..Failure::server(&words(code, error.detail()))
        },
        None => Failure {
            class: doing,
            message: error.to_string(),
            last,
        },
    }
}

fn words(code: &str, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => format!("{code} {detail}"),
        None => code.to_owned(),
    }
}

/// The operating system's error below one of the crate, which hands it out in an `Arc`.
fn os_error(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    source.downcast_ref::<io::Error>().or_else(|| {
        source
            .downcast_ref::<Arc<dyn Error + Send + Sync>>()?
            .downcast_ref()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether `Cargo.lock` has this version of a package.
    pub(in crate::strategy::rust) fn is_locked(name: &str, version: &str) -> bool {
        let lock: toml::Table = include_str!("../../../Cargo.lock").parse().unwrap();
        let packages = lock["package"].as_array().unwrap();
        packages.iter().any(|package| {
            package["name"].as_str() == Some(name) && package["version"].as_str() == Some(version)
        })
    }

    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        assert!(is_locked("redis", VERSION));
    }

    #[test]
    fn an_errno_keeps_its_name() {
        let error = RedisError::from(io::Error::from_raw_os_error(nix::libc::EAGAIN));
        assert_eq!(
            failure("connect", &error),
            Failure {
                class: "connect",
                message: "EAGAIN Try again".to_owned(),
                last: true,
            }
        );
    }
}
