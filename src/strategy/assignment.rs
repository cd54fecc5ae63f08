//! From a strategy and the work to do to the program that one worker is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use super::client::{Client, Mode};
use super::contract::{
    Endpoint, KeyOrder, Keys, LatencyMode, Op, PROTOCOL, Payload, PayloadKind, Serializer, Spec, Stop,
    Transport,
};
use super::name::StrategyName;
use crate::engine::{Program, Stdio};

/// A client in one of its modes over one transport.
#[derive(Clone)]
pub struct Strategy {
    /// The client.
    pub client: Arc<dyn Client>,
    /// How it is used.
    pub mode: Mode,
    /// How it reaches the server.
    pub transport: Transport,
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Strategy({})", self.name())
    }
}

/// What every worker of a run does, whatever its client.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// The operation.
    pub op: Op,
    /// When a round ends, for one worker.
    pub stop: Stop,
    /// Operations per batch in the modes that pipeline; the others ignore it.
    pub batch: u32,
    /// Keys.
    pub keys: Keys,
    /// Values.
    pub payload: Payload,
    /// Uncounted operations of each worker before its first round.
    pub warmup: u32,
    /// Failed operations after which a worker gives up a round.
    pub max_errors: u64,
    /// Whether workers keep histograms.
    pub latency: LatencyMode,
}

impl Default for Work {
    /// A thousand GETs of four bytes over a thousand keys.
    fn default() -> Self {
        Work {
            op: Op::Get,
            stop: Stop::Ops(1_000),
            batch: 16,
            keys: Keys {
                prefix: "st:".to_owned(),
                count: 1_000,
                order: KeyOrder::Seq,
                seed: 1,
            },
            payload: Payload {
                kind: PayloadKind::String,
                bytes: 4,
                serializer: Serializer::None,
            },
            warmup: 20,
            max_errors: 10_000,
            latency: LatencyMode::Hist,
        }
    }
}

impl Strategy {
    /// Its name.
    pub fn name(&self) -> StrategyName {
        StrategyName {
            client: self.client.name().to_owned(),
            mode: self.mode.name.clone(),
            transport: self.transport,
        }
    }

    /// Operations per batch: the plan's depth in a mode that pipelines, 1 in the others.
    pub fn batch(&self, work: &Work) -> u32 {
        if self.mode.pipeline { work.batch.max(1) } else { 1 }
    }

    /// What worker number `worker` is asked to do. The caller gives servers of the strategy's transport.
    pub fn spec(&self, work: &Work, servers: &[Endpoint], worker: u32) -> Spec {
        Spec {
            protocol: PROTOCOL,
            worker,
            op: work.op,
            connect: self.mode.connect,
            stop: work.stop,
            batch: self.batch(work),
            warmup: work.warmup,
            max_errors: work.max_errors,
            forks: 0,
            servers: servers.to_vec(),
            key: work.keys.clone(),
            payload: work.payload.clone(),
            latency: work.latency,
            options: self.mode.options.clone(),
        }
    }

    /// The program that does it.
    pub fn assign(&self, work: &Work, servers: &[Endpoint], worker: u32) -> Assignment {
        Assignment::new(self.client.command(), self.spec(work, servers, worker))
    }
}

/// One worker to start: the program, and what it is asked to do.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The program, with the specification in its environment unless that holds a password.
    pub program: Program,
    /// The specification.
    pub spec: Spec,
}

impl Assignment {
    /// Gives a specification to any program that keeps the worker contract.
    pub fn new(argv: Vec<OsString>, spec: Spec) -> Assignment {
        let mut env: BTreeMap<OsString, OsString> = flat(&spec)
            .into_iter()
            .map(|(name, value)| (format!("SYSTALLY_{name}").into(), value.into()))
            .collect();
        // Empty, not absent: a variable that systally itself inherited must not reach the worker.
        let whole = if spec.holds_a_password() { String::new() } else { json(&spec) };
        env.insert("SYSTALLY_SPEC".into(), whole.into());
        Assignment {
            program: Program {
                argv,
                env,
                stdio: Stdio::Piped,
                own_group: true,
            },
            spec,
        }
    }

    /// What the worker must be given as the first line of its standard input: the specification when it
    /// holds a password, nothing otherwise.
    pub fn first_line(&self) -> Option<String> {
        self.spec
            .holds_a_password()
            .then(|| format!("{}\n", json(&self.spec)))
    }
}

fn json(spec: &Spec) -> String {
    // Only a map whose keys are not strings can fail to become JSON, and there is none in a Spec.
    serde_json::to_string(spec).unwrap_or_default()
}

/// The scalars of a specification, so that a worker in C or shell needs no JSON parser. What does not
/// apply is empty. Passwords have no place here.
fn flat(spec: &Spec) -> Vec<(&'static str, String)> {
    let (mut scheme, mut host, mut port, mut path) = ("", String::new(), String::new(), String::new());
    if let Some(server) = spec.servers.first() {
        scheme = server.transport().name();
        match server {
            Endpoint::Tcp { host: h, port: p, .. } => (host, port) = (h.clone(), p.to_string()),
            Endpoint::Unix { path: p, .. } => path.clone_from(p),
        }
    }
    let (ops, seconds) = match spec.stop {
        Stop::Ops(ops) => (ops.to_string(), String::new()),
        Stop::Seconds(seconds) => (String::new(), seconds.to_string()),
    };
    vec![
        ("OP", spec.op.name().to_owned()),
        ("SCHEME", scheme.to_owned()),
        ("HOST", host),
        ("PORT", port),
        ("PATH", path),
        ("OPS", ops),
        ("SECONDS", seconds),
        ("BATCH", spec.batch.to_string()),
        ("CONNECT", spec.connect.name().to_owned()),
        ("KEY_PREFIX", spec.key.prefix.clone()),
        ("KEY_COUNT", spec.key.count.to_string()),
        ("PAYLOAD_BYTES", spec.payload.bytes.to_string()),
        ("WARMUP", spec.warmup.to_string()),
    ]
}
