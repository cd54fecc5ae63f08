//! What one worker is asked to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Endpoint, Keys, Payload};

/// What one worker is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// [`super::PROTOCOL`].
    pub protocol: u32,
    /// This worker's number among those of the strategy, from 0.
    pub worker: u32,
    /// The operation.
    pub op: Op,
    /// When connections are made.
    pub connect: Connect,
    /// When the loop ends.
    pub stop: Stop,
    /// Operations per batch; 1 is no pipeline.
    pub batch: u32,
    /// Uncounted operations before `ready`.
    pub warmup: u32,
    /// Failed operations after which the worker gives up the round.
    pub max_errors: u64,
    /// Processes the worker itself forks; only the replays of old scripts use more than 0.
    pub forks: u32,
    /// Where to connect; several are shards.
    pub servers: Vec<Endpoint>,
    /// Keys.
    pub key: Keys,
    /// Values.
    pub payload: Payload,
    /// Whether the worker keeps a histogram.
    pub latency: LatencyMode,
    /// What only this client understands.
    pub options: BTreeMap<String, serde_json::Value>,
}

impl Spec {
    /// Whether a server wants a password. Such a specification goes to the worker by its standard input:
    /// an environment can be read from `/proc` for as long as the process lives.
    pub fn holds_a_password(&self) -> bool {
        self.passwords().next().is_some()
    }

    /// Takes the servers' passwords out of a text that will be shown, also in the form that JSON writes.
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for password in self.passwords() {
            let quoted = serde_json::Value::from(password).to_string();
            let written = quoted.get(1..quoted.len() - 1).unwrap_or(password);
            text = text.replace(password, "***").replace(written, "***");
        }
        text
    }

    fn passwords(&self) -> impl Iterator<Item = &str> {
        self.servers
            .iter()
            .filter_map(|server| server.credentials().1)
            .filter(|password| !password.is_empty())
    }
}

/// An operation of the loop.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// `GET` of a key that exists.
    Get,
    /// `SET` of a key.
    Set,
    /// `SET` and `GET` of the same key by turns; each is one operation.
    Setget,
    /// `INCR` of a counter.
    Incr,
    /// `PING`.
    Ping,
    /// The default tests of redis-benchmark, one after the other; no other client runs them.
    Suite,
}

impl Op {
    /// The name in specs, flags and records.
    pub fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Set => "set",
            Op::Setget => "setget",
            Op::Incr => "incr",
            Op::Ping => "ping",
            Op::Suite => "suite",
        }
    }

    /// The server commands that operations of this kind become, in lower case as `INFO commandstats`
    /// names them.
    pub fn commands(self) -> &'static [&'static str] {
        match self {
            Op::Get => &["get"],
            Op::Set => &["set"],
            Op::Setget => &["set", "get"],
            // Some clients send INCRBY with 1, which is the same operation.
            Op::Incr => &["incr", "incrby"],
            Op::Ping => &["ping"],
            Op::Suite => &[
                "ping", "set", "get", "incr", "lpush", "rpush", "lpop", "rpop", "sadd", "hset", "spop",
                "zadd", "zpopmin", "lrange", "mset",
            ],
        }
    }
}

/// When a worker connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connect {
    /// Once, before `ready`.
    Once,
    /// A new connection for each operation, closed after it.
    PerOp,
    /// Once, by the client's own persistent call (`pconnect`).
    Persistent,
    /// The persistent call for each operation.
    PersistentPerOp,
}

impl Connect {
    /// The name in specifications.
    pub fn name(self) -> &'static str {
        match self {
            Connect::Once => "once",
            Connect::PerOp => "per_op",
            Connect::Persistent => "persistent",
            Connect::PersistentPerOp => "persistent_per_op",
        }
    }
}

/// When the loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// After so many operations.
    Ops(u64),
    /// After so many seconds.
    Seconds(f64),
}

/// Whether a worker times each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LatencyMode {
    /// It keeps a histogram.
    Hist,
    /// It does not.
    None,
}

#[cfg(test)]
mod tests {
    use super::super::PROTOCOL;
    use super::*;
    use crate::strategy::assignment::Work;

    #[test]
    fn redaction_knows_the_form_in_json() {
        let work = Work::default();
        let spec = Spec {
            protocol: PROTOCOL,
            worker: 0,
            op: Op::Ping,
            connect: Connect::Once,
            stop: Stop::Ops(1),
            batch: 1,
            warmup: 0,
            max_errors: 1,
            forks: 0,
            servers: vec![Endpoint::Unix {
                path: "/s".into(),
                user: None,
                password: Some("a\"b\"".into()),
            }],
            key: work.keys,
            payload: work.payload,
            latency: LatencyMode::None,
            options: BTreeMap::new(),
        };
        assert!(spec.holds_a_password());
        assert_eq!(
            spec.redact(r#"said a"b" and {"m":"a\"b\""}"#),
            r#"said *** and {"m":"***"}"#
        );
    }
}
