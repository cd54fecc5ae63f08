//! From the parts of a scenario to what one bench runs: a block has one value of every axis that the
//! rows of a bench share.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::{Amount, Network, Part, Scale, Scenario, ServerSetup};
use crate::plan::rows::{Common, Matrix, Row, rows};
use crate::strategy::contract::{Keys, Op, PayloadKind, Serializer, Store, Transport};
use crate::strategy::{Client, Mode, Presence, Registry, SelectError, Strategy};

/// The extension of PHP that slows everything down, and the name of its variants.
pub(super) const XDEBUG: &str = "xdebug";

/// A way to run the clients of a part. Clients that are no PHP scripts run the same in all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    /// Its name; empty when a part has only one.
    pub name: String,
    /// Settings of php.ini, each `name=value`.
    pub php_ini: Vec<String>,
    /// The extension that must be there with these settings, as PHP names it.
    pub needs_extension: Option<String>,
}

/// What one bench of a scenario runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Selectors of strategies.
    pub strategies: Vec<String>,
    /// Only these transports; all when empty.
    pub transports: Vec<Transport>,
    /// Operations.
    pub tests: Vec<Op>,
    /// Pipeline depths.
    pub pipeline: Vec<u32>,
    /// Bytes of a value.
    pub data_size: Vec<u64>,
    /// Client processes.
    pub clients: u32,
    /// Client processes before they were scaled, by which published figures are found.
    pub planned_clients: u32,
    /// Operations of a round, over all clients.
    pub requests: u64,
    /// Operations of the counted pass, over all clients.
    pub counted: u64,
    /// Shape of values.
    pub payload: PayloadKind,
    /// How clients serialise them.
    pub serializer: Serializer,
    /// Private servers.
    pub servers: u32,
    /// How the clients are run.
    pub variant: Variant,
    /// The key space.
    pub keys: Keys,
    /// Timed rounds.
    pub runs: u32,
    /// Rounds before them.
    pub warmup: u32,
    /// How long a replayed script sleeps before it reads its counter.
    pub pause: Option<Duration>,
    /// Whether CPU time and context switches are read.
    pub usage: bool,
    /// The private server.
    pub server: ServerSetup,
}

impl Scenario {
    /// Everything that is run, in order.
    pub fn blocks(&self, scale: Scale) -> Vec<Block> {
        let mut blocks = Vec::new();
        for part in &self.parts {
            for variant in &part.variants {
                for payload in &part.payload {
                    for clients in &part.clients {
                        for servers in &part.servers {
                            blocks.push(block(part, scale, (variant, *payload, *clients, *servers)));
                        }
                    }
                }
            }
        }
        blocks
    }
}

fn block(part: &Part, scale: Scale, axes: (&Variant, PayloadKind, u32, u32)) -> Block {
    let (variant, payload, planned_clients, servers) = axes;
    // A batch is the least that a pipeline can do.
    let batch = part.pipeline.iter().copied().max().map_or(1, u64::from);
    let (clients, requests) = match part.requests {
        Amount::PerClient(each) => {
            let (clients, each) = scale.per_client(planned_clients, each);
            (clients, each.saturating_mul(u64::from(clients)))
        }
        Amount::Total(total) => {
            let least = (10 * u64::from(planned_clients)).max(batch);
            (planned_clients, scale.amount(total, least))
        }
    };
    let counted = match part.counted {
        None => requests,
        Some(Amount::PerClient(each)) => requests.min(each.saturating_mul(u64::from(clients))),
        Some(Amount::Total(total)) => requests.min(total),
    };
    Block {
        strategies: part.strategies.clone(),
        transports: part.transports.clone(),
        tests: part.tests.clone(),
        pipeline: part.pipeline.clone(),
        data_size: part.data_size.clone(),
        clients,
        planned_clients,
        requests,
        counted,
        payload,
        serializer: match payload {
            PayloadKind::String => Serializer::None,
            PayloadKind::Array | PayloadKind::Object => part.serializer,
        },
        servers,
        variant: variant.clone(),
        keys: Keys {
            prefix: String::new(),
            count: part.keyspace,
            order: part.order,
            seed: part.seed,
        },
        runs: part.runs,
        warmup: part.warmup,
        pause: part.pause.map(|pause| scale.pause(pause)),
        usage: part.usage,
        server: part.server,
    }
}

impl Block {
    /// The rows of the block.
    ///
    /// # Errors
    /// The first selector that picks nothing.
    pub fn rows(&self, registry: &Registry) -> Result<Vec<Row>, SelectError> {
        let mut strategies = registry.select(&self.strategies)?;
        strategies.retain(|one| self.transports.is_empty() || self.transports.contains(&one.transport));
        for strategy in &mut strategies {
            self.vary(strategy);
        }
        Ok(rows(
            &strategies,
            &Matrix {
                ops: self.tests.clone(),
                pipeline: self.pipeline.clone(),
                payload_bytes: self.data_size.clone(),
                clients: vec![self.clients],
                servers: vec![self.servers],
            },
        ))
    }

    /// What the rows of the block share, with keys of this prefix.
    pub fn common(&self, key_prefix: &str) -> Common {
        Common {
            keys: Keys {
                prefix: key_prefix.to_owned(),
                ..self.keys.clone()
            },
            payload: self.payload,
            serializer: self.serializer,
        }
    }

    /// The settings that tell its rows from those of other blocks, beside the axes that every bench has.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        let mut put = |name: &str, value: &str| settings.insert(name.to_owned(), value.to_owned());
        if !self.variant.name.is_empty() {
            put("variant", &self.variant.name);
        }
        if self.payload != PayloadKind::String {
            put("payload", self.payload.name());
            put("serializer", self.serializer.name());
        }
        if self.server.network == Network::Own {
            put("network", self.server.network.name());
        }
        settings
    }

    /// Runs a PHP client with the settings of the variant, and hands over the pause.
    fn vary(&self, strategy: &mut Strategy) {
        if let (Some(pause), true) = (self.pause, strategy.mode.forks) {
            let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            strategy.mode.options.insert("pause_ms".to_owned(), ms.into());
        }
        if strategy.client.language() == "php" && self.variant != Variant::default() {
            strategy.client = Arc::new(Varied {
                client: Arc::clone(&strategy.client),
                variant: self.variant.clone(),
            });
        }
    }
}

/// A client run in a variant.
struct Varied {
    client: Arc<dyn Client>,
    variant: Variant,
}

impl Varied {
    /// `-d name=value` for each setting.
    fn flags(&self) -> impl Iterator<Item = OsString> + '_ {
        let settings = self.variant.php_ini.iter();
        settings.flat_map(|line| [OsString::from("-d"), OsString::from(line)])
    }
}

impl Client for Varied {
    fn name(&self) -> &str {
        self.client.name()
    }

    fn language(&self) -> &str {
        self.client.language()
    }

    fn description(&self) -> &str {
        self.client.description()
    }

    fn modes(&self) -> Vec<Mode> {
        self.client.modes()
    }

    fn store(&self) -> Store {
        self.client.store()
    }

    fn transports(&self) -> Vec<Transport> {
        self.client.transports()
    }

    fn presence(&self) -> Presence {
        let presence = self.client.presence();
        let (Presence::Ready { .. }, Some(extension)) = (&presence, &self.variant.needs_extension) else {
            return presence;
        };
        let mut command = Command::new("php");
        command
            .args(self.flags())
            .args(["-d", "display_errors=stderr", "-r"])
            .arg(format!("exit(extension_loaded('{extension}') ? 0 : 1);"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => presence,
            Ok(_) | Err(_) => Presence::Missing {
                why: format!("PHP has no extension {extension}"),
                install: format!("sudo apt-get install php-{}", extension.to_ascii_lowercase()),
            },
        }
    }

    fn command(&self) -> Vec<OsString> {
        let mut command = self.client.command();
        if !command.is_empty() {
            command.splice(1..1, self.flags());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::ScriptSource;
    use std::path::Path;

    fn registry() -> Registry {
        let source = ScriptSource {
            executable: "/usr/bin/systally".into(),
            scripts: None,
            clients: None,
        };
        Registry::load(&source).unwrap()
    }

    fn scenario(part: &str) -> Scenario {
        let text = format!("about = \"x\"\n[[bench]]\n{part}\n");
        super::super::file::parse(Path::new("x.toml"), &text).unwrap()
    }

    #[test]
    fn a_block_for_each_value_of_what_a_bench_keeps_fixed() {
        let all = scenario(
            "strategies = ['phpredis/persistent']\nrequests-per-client = 100\nclients = [2, 3]\n\
             payload = ['string', 'array']\nserializer = 'php'",
        );
        let blocks = all.blocks("0.5".parse().unwrap());
        let seen: Vec<_> = blocks
            .iter()
            .map(|one| (one.payload, one.clients, one.requests, one.serializer))
            .collect();
        assert_eq!(
            seen,
            [
                (PayloadKind::String, 2, 100, Serializer::None),
                (PayloadKind::String, 3, 150, Serializer::None),
                (PayloadKind::Array, 2, 100, Serializer::Php),
                (PayloadKind::Array, 3, 150, Serializer::Php),
            ]
        );
        assert!(blocks[0].settings().is_empty());
        assert_eq!(blocks[2].settings()["payload"], "array");
    }

    #[test]
    fn a_total_keeps_its_clients_and_a_batch() {
        let all = scenario("strategies = ['raw']\nrequests = 1000\nclients = [4]\npipeline = [64]");
        let block = &all.blocks("0.001".parse().unwrap())[0];
        assert_eq!((block.clients, block.requests, block.counted), (4, 64, 64));
    }

    #[test]
    fn a_variant_changes_how_php_is_run_and_nothing_else() {
        let all = scenario(
            "strategies = ['phpredis/persistent', 'raw']\nrequests = 10\ntransports = ['tcp']\n\
             variant = [{ name = 'odd', php-ini = ['opcache.enable_cli=1'] }]",
        );
        let rows = all.blocks(Scale::ONE)[0].rows(&registry()).unwrap();
        let commands: Vec<Vec<OsString>> = rows.iter().map(|row| row.strategy.client.command()).collect();
        assert_eq!(commands[0][..3], ["php", "-d", "opcache.enable_cli=1"]);
        assert_eq!(commands[1], ["/usr/bin/systally", "worker", "raw"]);
        assert_eq!(rows.len(), 2);
    }
}
