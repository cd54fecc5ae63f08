//! The operations of a specification, with keys and payload made before the window opens.

use std::time::Duration;

use super::failure::{Fail, Failure};
use crate::strategy::contract::{Connect, Endpoint, Op, PayloadKind, Serializer, Spec};

/// How long a worker waits for its server: to connect, to send, or for a reply.
pub(super) const WAIT: Duration = Duration::from_secs(5);

/// Keys a worker keeps in memory at most.
const MAX_KEYS: u64 = 50_000_000;

/// Longest payload: what a Redis server takes by default (`proto-max-bulk-len`).
const MAX_PAYLOAD: u64 = 512 << 20;

/// One command of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// `GET`.
    Get,
    /// `SET`.
    Set,
    /// `INCR`.
    Incr,
    /// `PING`.
    Ping,
}

impl Command {
    /// As the server knows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Command::Get => "GET",
            Command::Set => "SET",
            Command::Incr => "INCR",
            Command::Ping => "PING",
        }
    }

    /// The failure of a reply of the right kind that is not the right one.
    pub(super) fn wrong_reply(self) -> Failure {
        let what = match self {
            Command::Get => "value",
            Command::Set | Command::Incr | Command::Ping => "reply",
        };
        Failure::wrong_reply(self.name(), what)
    }
}

/// What the operations of a worker are.
pub(super) struct Job {
    /// The only server, or the first of several.
    pub(super) server: Endpoint,
    /// All servers.
    pub(super) servers: Vec<Endpoint>,
    /// The keys in the order of use; `INCR` has names of its own, since the others hold payloads.
    pub(super) keys: Vec<String>,
    /// The value.
    pub(super) payload: Vec<u8>,
    op: Op,
}

impl Job {
    /// Takes over a specification, if it is one for a client that stores strings on one server.
    pub(super) fn new(spec: &Spec, connects: &[Connect]) -> Result<Job, Fail> {
        if spec.servers.len() > 1 {
            return Err(Fail::spec("this worker speaks to one server"));
        }
        Job::over(spec, connects, &[])
    }

    /// The same for a client that spreads its keys over several servers itself, and one that has options.
    pub(super) fn over(spec: &Spec, connects: &[Connect], options: &[&str]) -> Result<Job, Fail> {
        let Some(server) = spec.servers.first() else {
            return Err(Fail::spec("this worker needs a server"));
        };
        if !connects.contains(&spec.connect) {
            return Err(Fail::spec(format!(
                "this worker cannot connect {}",
                spec.connect.name()
            )));
        }
        if spec.op == Op::Suite {
            return Err(Fail::spec("op suite: only redis-benchmark runs its own tests"));
        }
        if spec.payload.kind != PayloadKind::String || spec.payload.serializer != Serializer::None {
            return Err(Fail::spec(
                "this client stores strings only: it has no serializer",
            ));
        }
        if spec.payload.bytes > MAX_PAYLOAD {
            return Err(Fail::spec(format!("payload.bytes must be at most {MAX_PAYLOAD}")));
        }
        if spec.key.count == 0 || spec.key.count > MAX_KEYS {
            return Err(Fail::spec(format!("key.count must be from 1 to {MAX_KEYS}")));
        }
        let unknown = |option: &&String| !options.contains(&option.as_str());
        if let Some(option) = spec.options.keys().find(unknown) {
            return Err(Fail::spec(format!("this client has no option {option}")));
        }
        let prefix = if spec.op == Op::Incr { "n:" } else { "" };
        Ok(Job {
            server: server.clone(),
            servers: spec.servers.clone(),
            keys: spec
                .key
                .sequence(spec.worker)
                .into_iter()
                .map(|index| format!("{prefix}{}", spec.key.key(index)))
                .collect(),
            payload: vec![b'x'; spec.payload.bytes as usize],
            op: spec.op,
        })
    }

    /// The command of operation number `i`.
    pub(super) fn command(&self, i: u64) -> Command {
        match self.op {
            Op::Get => Command::Get,
            Op::Set => Command::Set,
            Op::Setget if i.is_multiple_of(2) => Command::Set,
            Op::Setget => Command::Get,
            Op::Incr => Command::Incr,
            // A specification with the suite is refused.
            Op::Ping | Op::Suite => Command::Ping,
        }
    }

    /// Operations in a row that share a key.
    pub(super) fn ops_per_key(&self) -> u64 {
        if self.op == Op::Setget { 2 } else { 1 }
    }

    /// The key of operation number `i`.
    pub(super) fn key(&self, i: u64) -> &str {
        let n = self.keys.len() as u64;
        &self.keys[(i / self.ops_per_key() % n) as usize]
    }

    /// The keys that must hold the payload before the loop, in groups of about a megabyte.
    pub(super) fn to_store(&self) -> impl Iterator<Item = &[String]> {
        let keys: &[String] = if self.op == Op::Get { &self.keys } else { &[] };
        let group = ((1 << 20) / self.payload.len().max(1)).clamp(1, 1_000);
        keys.chunks(group)
    }
}
