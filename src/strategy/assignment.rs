//! From a strategy and the work to do to the program that one worker is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use super::client::{Client, Mode};
use super::contract::{
    Endpoint, KeyOrder, Keys, LatencyMode, Op, PROTOCOL, Payload, PayloadKind, Serializer, Spec, Stop, Store,
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
    /// Processes that the one worker of a mode that forks starts itself; 0 in the others.
    pub forks: u32,
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
            forks: 0,
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

    /// What it speaks to.
    pub fn store(&self) -> Store {
        match self.transport {
            Transport::Local => Store::None,
            Transport::Tcp | Transport::Unix => self.mode.store.unwrap_or_else(|| self.client.store()),
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
            forks: work.forks,
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
        let whole = if spec.holds_a_password() {
            String::new()
        } else {
            json(&spec)
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::contract::Connect;
    use crate::strategy::{Registry, ScriptSource};
    use std::ffi::OsStr;

    fn strategy(name: &str) -> Strategy {
        let source = ScriptSource {
            executable: "/usr/bin/systally".into(),
            scripts: None,
            clients: None,
        };
        let registry = Registry::load(&source).unwrap();
        registry.select(&[name.to_owned()]).unwrap().remove(0)
    }

    fn tcp(password: Option<&str>) -> [Endpoint; 1] {
        [Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: 6379,
            user: None,
            password: password.map(str::to_owned),
        }]
    }

    fn env<'a>(assignment: &'a Assignment, name: &str) -> &'a str {
        assignment.program.env[OsStr::new(name)].to_str().unwrap()
    }

    #[test]
    fn the_worker_reads_back_what_was_meant() {
        let work = Work {
            stop: Stop::Seconds(0.5),
            ..Work::default()
        };
        let given = strategy("redis-rs/pipeline/tcp").assign(&work, &tcp(None), 3);
        assert_eq!(given.first_line(), None);
        let read: Spec = serde_json::from_str(env(&given, "SYSTALLY_SPEC")).unwrap();
        assert_eq!(read, given.spec);
        assert_eq!((read.worker, read.batch, read.connect), (3, 16, Connect::Once));
        assert_eq!(given.program.argv, ["/usr/bin/systally", "worker", "redis-rs"]);
    }

    #[test]
    fn only_modes_that_pipeline_take_the_depth() {
        let work = Work {
            batch: 100,
            ..Work::default()
        };
        assert_eq!(strategy("redis-rs/persistent/tcp").batch(&work), 1);
        assert_eq!(strategy("redis-rs/pipeline/tcp").batch(&work), 100);
    }

    #[test]
    fn scalars_are_flat_and_what_does_not_apply_is_empty() {
        let given = strategy("redis-rs/connect/tcp").assign(&Work::default(), &tcp(None), 0);
        for (name, value) in [
            ("OP", "get"),
            ("SCHEME", "tcp"),
            ("HOST", "127.0.0.1"),
            ("PORT", "6379"),
            ("PATH", ""),
            ("OPS", "1000"),
            ("SECONDS", ""),
            ("BATCH", "1"),
            ("CONNECT", "per_op"),
            ("KEY_PREFIX", "st:"),
            ("KEY_COUNT", "1000"),
            ("PAYLOAD_BYTES", "4"),
            ("WARMUP", "20"),
        ] {
            assert_eq!(env(&given, &format!("SYSTALLY_{name}")), value, "{name}");
        }
    }

    #[test]
    fn a_password_is_in_no_environment() {
        let given = strategy("raw/persistent/tcp").assign(&Work::default(), &tcp(Some("hunter2")), 0);
        assert!(!format!("{given:?}").contains("hunter2"));
        assert_eq!(env(&given, "SYSTALLY_SPEC"), "");
        let line = given.first_line().unwrap();
        assert!(line.ends_with('\n'));
        let read: Spec = serde_json::from_str(&line).unwrap();
        assert_eq!(read.servers[0].credentials().1, Some("hunter2"));
    }
}
