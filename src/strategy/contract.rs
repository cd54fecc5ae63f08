//! The worker contract, protocol 1: how systally and a client program in any language talk.
//!
//! The specification goes in by `SYSTALLY_SPEC`; the worker answers with one JSON line per event and is
//! driven by the lines `go` and `exit` on its standard input. The whole text, for people who write a
//! worker, is in `tracing-scripts/README.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::experiment::{CounterReading, Spent};
use crate::units::Nanos;

/// The protocol number this build speaks.
pub const PROTOCOL: u32 = 1;

/// What one worker is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// [`PROTOCOL`].
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

/// How a worker reaches its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// A UNIX stream socket.
    Unix,
    /// None: the client keeps its data in its own process or in files.
    Local,
}

impl Transport {
    /// All, in the order in which rows are listed.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Local];

    /// Those that lead to a server.
    pub const SOCKETS: [Transport; 2] = [Transport::Tcp, Transport::Unix];

    /// The name in strategies, files and records.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
            Transport::Local => "local",
        }
    }
}

/// What a client speaks to, and so what its runs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// Redis, or Valkey.
    Redis,
    /// memcached.
    Memcached,
    /// A Redis Cluster; the worker is given all its masters.
    Cluster,
    /// Redis servers that know nothing of each other: the client spreads its keys over them.
    Shards,
    /// twemproxy, which spreads the keys over Redis servers behind it.
    Twemproxy,
    /// No server: the client keeps its data in its own process or in files.
    None,
}

impl Store {
    /// The name in files and records.
    pub fn name(self) -> &'static str {
        match self {
            Store::Redis => "redis",
            Store::Memcached => "memcached",
            Store::Cluster => "cluster",
            Store::Shards => "shards",
            Store::Twemproxy => "twemproxy",
            Store::None => "none",
        }
    }
}

/// One server address as a worker sees it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "lowercase", deny_unknown_fields)]
pub enum Endpoint {
    /// TCP.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// ACL user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Password.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<String>,
    },
    /// UNIX stream socket.
    Unix {
        /// Path of the socket.
        path: String,
        /// ACL user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Password.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<String>,
    },
}

impl Endpoint {
    /// How it is reached.
    pub fn transport(&self) -> Transport {
        match self {
            Endpoint::Tcp { .. } => Transport::Tcp,
            Endpoint::Unix { .. } => Transport::Unix,
        }
    }

    /// ACL user and password.
    pub fn credentials(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Endpoint::Tcp { user, password, .. } | Endpoint::Unix { user, password, .. } => {
                (user.as_deref(), password.as_deref())
            }
        }
    }
}

/// The address without user and password, so that a debug line cannot leak them.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Endpoint::Unix { path, .. } => write!(f, "unix:{path}"),
        }
    }
}

/// The key space: `prefix` and ten digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// What every key begins with.
    pub prefix: String,
    /// How many keys there are.
    pub count: u64,
    /// The order in which they are used.
    pub order: KeyOrder,
    /// Start of the random sequence; a worker adds its number.
    pub seed: u64,
}

impl Keys {
    /// The key with this index: the prefix and ten digits, so that every key has the same length.
    pub fn key(&self, index: u64) -> String {
        format!("{}{index:010}", self.prefix)
    }

    /// The indexes of one pass over the key space as worker number `worker` uses them: in order, or by
    /// the 31-bit generator `x = x * 1103515245 + 12345`, index `(x >> 8) mod count`, which gives the
    /// same sequence in every language.
    pub fn sequence(&self, worker: u32) -> Vec<u64> {
        let mut x = self.seed.wrapping_add(u64::from(worker)) & 0x7fff_ffff;
        (0..self.count)
            .map(|i| match self.order {
                KeyOrder::Seq => i,
                KeyOrder::Random => {
                    x = (x.wrapping_mul(1_103_515_245).wrapping_add(12_345)) & 0x7fff_ffff;
                    (x >> 8) % self.count
                }
            })
            .collect()
    }
}

/// How keys follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyOrder {
    /// 0, 1, 2 … and around.
    Seq,
    /// The generator of [`Keys::sequence`].
    Random,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    /// Its shape.
    pub kind: PayloadKind,
    /// Length of the string, or of the body field of an array or object.
    pub bytes: u64,
    /// How the client turns it into bytes.
    pub serializer: Serializer,
}

/// The shape of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PayloadKind {
    /// A string of `x`.
    String,
    /// A map of four fields.
    Array,
    /// An object of a named class with the same fields.
    Object,
}

impl PayloadKind {
    /// The name in specs, flags and tables.
    pub fn name(self) -> &'static str {
        match self {
            PayloadKind::String => "string",
            PayloadKind::Array => "array",
            PayloadKind::Object => "object",
        }
    }
}

/// How a client serialises arrays and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Serializer {
    /// Strings as they are.
    None,
    /// PHP's own.
    Php,
    /// igbinary.
    Igbinary,
    /// JSON.
    Json,
}

impl Serializer {
    /// The name in specs, flags and tables.
    pub fn name(self) -> &'static str {
        match self {
            Serializer::None => "none",
            Serializer::Php => "php",
            Serializer::Igbinary => "igbinary",
            Serializer::Json => "json",
        }
    }
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

/// One line from a worker. Written with `event` as the first key, so that a tracer can match the first
/// bytes of the line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// Connected and warmed up.
    Ready {
        /// The protocol it speaks.
        protocol: u32,
        /// Its process id.
        pid: i32,
        /// Versions and what else matters of its environment.
        #[serde(default)]
        versions: BTreeMap<String, serde_json::Value>,
    },
    /// A round is over.
    Done(Done),
    /// It cannot go on.
    Fail {
        /// Kind of trouble.
        class: String,
        /// What happened.
        message: String,
    },
}

/// The result of one round of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Operations whose reply was right.
    pub ops: u64,
    /// Operations begun.
    pub asked: u64,
    /// From the first operation to the last.
    pub elapsed_ns: Nanos,
    /// Failed operations by `class:message`.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Times of operations, when asked for.
    #[serde(default)]
    pub latency: Option<WireLatency>,
    /// What a replayed script that counts for itself read; other workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterReading>,
    /// What the programs that the worker ran in the round spent, where they and not the worker are the
    /// client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spent>,
}

/// A worker's histogram: 16 buckets per power of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireLatency {
    /// Always `ns`.
    pub unit: String,
    /// `op`, or `batch` when a batch was timed as one.
    pub per: String,
    /// Pairs of a bucket's lower bound in nanoseconds and its count.
    pub hist: Vec<(u64, u64)>,
}

/// The number of the bucket a time falls into: 16 buckets per power of two, exact below 16.
pub fn bucket(ns: u64) -> usize {
    if ns < 16 {
        return ns as usize;
    }
    let exponent = ns.ilog2() as usize;
    (exponent - 3) * 16 + ((ns >> (exponent - 4)) & 15) as usize
}

/// The lower bound of a bucket in nanoseconds.
pub fn bucket_lower(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let exponent = bucket / 16 + 3;
    ((16 + bucket % 16) as u64) << (exponent - 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_within_a_sixteenth() {
        for ns in [
            0,
            1,
            15,
            16,
            17,
            31,
            32,
            33,
            1_000,
            123_456,
            40_000_000,
            u64::from(u32::MAX),
        ] {
            let lower = bucket_lower(bucket(ns));
            assert!(lower <= ns, "{ns}: {lower}");
            assert!(ns - lower <= ns / 16, "{ns}: {lower}");
        }
    }

    #[test]
    fn keys_are_the_same_in_every_language() {
        let keys = Keys {
            prefix: "st:".into(),
            count: 1000,
            order: KeyOrder::Random,
            seed: 1,
        };
        // 1 * 1103515245 + 12345 = 1103527590; >> 8 = 4310654; mod 1000 = 654.
        assert_eq!(keys.sequence(0)[0], 654);
        assert_ne!(keys.sequence(0), keys.sequence(1));
        assert_eq!(keys.key(7), "st:0000000007");
    }

    #[test]
    fn a_password_does_not_show() {
        let endpoint = Endpoint::Tcp {
            host: "::1".into(),
            port: 6379,
            user: Some("u".into()),
            password: Some("hunter2".into()),
        };
        assert_eq!(format!("{endpoint:?} {endpoint}"), "[::1]:6379 [::1]:6379");
    }

    #[test]
    fn redaction_knows_the_form_in_json() {
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
            key: Keys {
                prefix: "st:".into(),
                count: 1,
                order: KeyOrder::Seq,
                seed: 1,
            },
            payload: Payload {
                kind: PayloadKind::String,
                bytes: 4,
                serializer: Serializer::None,
            },
            latency: LatencyMode::None,
            options: BTreeMap::new(),
        };
        assert!(spec.holds_a_password());
        assert_eq!(
            spec.redact(r#"said a"b" and {"m":"a\"b\""}"#),
            r#"said *** and {"m":"***"}"#
        );
    }

    #[test]
    fn event_is_the_first_key_of_every_line() {
        let done = Event::Done(Done {
            ops: 1,
            asked: 1,
            elapsed_ns: Nanos(1),
            errors: BTreeMap::new(),
            latency: None,
            counter: None,
            usage: None,
        });
        let fail = Event::Fail {
            class: "spec".into(),
            message: "no".into(),
        };
        for (event, start) in [(done, r#"{"event":"done","#), (fail, r#"{"event":"fail","#)] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn events_parse_as_the_contract_says() {
        let ready = r#"{"event":"ready","protocol":1,"pid":12,"versions":{"php":"8.2","phpiredis":null}}"#;
        assert!(matches!(
            serde_json::from_str(ready),
            Ok(Event::Ready { pid: 12, .. })
        ));
        let done = r#"{"event":"done","ops":9,"asked":10,"elapsed_ns":5,"errors":{"E:x":1},"latency":{"unit":"ns","per":"op","hist":[[16,9]]}}"#;
        let Ok(Event::Done(done)) = serde_json::from_str::<Event>(done) else {
            panic!("not a done line")
        };
        assert_eq!((done.ops, done.asked, done.errors["E:x"]), (9, 10, 1));
    }
}
