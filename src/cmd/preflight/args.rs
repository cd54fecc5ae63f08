//! The flags of `systally preflight`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::{EngineChoice, ServerArgs};
use crate::plan::scenario::Scale;
use crate::record::PlanInfo;
use crate::render::Format;
use crate::strategy::contract::{Op, PayloadKind, Serializer};
use crate::units::escape;

/// `systally preflight`.
#[derive(Debug, Args)]
pub struct PreflightArgs {
    /// Strategies as client/mode/transport, as for bench: whether they keep connections, how they reach the
    /// server, and what a process of theirs needs
    #[arg(value_name = "STRATEGY", conflicts_with_all = ["mode", "keep_alive", "transport", "client", "client_fds"])]
    pub strategies: Vec<String>,

    /// The server the load is for
    #[command(flatten)]
    pub server: ServerArgs,

    /// The load
    #[command(flatten)]
    pub plan: PlanArgs,

    /// Decide on a recording made with --save-state, not on this machine
    #[arg(long, value_name = "DIR", conflicts_with = "save_state")]
    pub state: Option<PathBuf>,

    /// Also copy what was read (no secrets) into this folder
    #[arg(long, value_name = "DIR")]
    pub save_state: Option<PathBuf>,

    /// Form of what is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// A file of more script clients (see tracing-scripts/README.md)
    #[arg(long, value_name = "FILE", env = "SYSTALLY_CLIENTS")]
    pub clients_file: Option<PathBuf>,

    /// Also the limits that do not bear on this load
    #[arg(long)]
    pub all: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// The planned load. Without any strategy, -c, -n, --connections, --mode and --rate there is no plan, and
/// preflight says what the machine can carry.
#[derive(Debug, Args)]
#[command(next_help_heading = "Planned load (none: what this machine can carry)")]
pub struct PlanArgs {
    /// The heaviest load of this scenario (`systally list scenarios`), or of one in a file
    #[arg(long, value_name = "NAME|FILE.toml", conflicts_with_all = [
        "clients", "requests", "connections", "mode", "keep_alive", "rate", "shards", "pipeline", "data_size",
    ])]
    pub scenario: Option<String>,

    /// The scenario with F times the work, as for bench
    #[arg(long, value_name = "F", requires = "scenario")]
    pub scale: Option<Scale>,

    /// Client processes at once; of several the most
    #[arg(short = 'c', long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub clients: Vec<u64>,

    /// Operations per round in all, over all clients: with a connection each, so many connections
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,

    /// Timed rounds, as for bench
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub runs: u64,

    /// Rounds before timing begins, as for bench
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub warmup: u64,

    /// Connections that each process holds at one time [default: 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    pub connections: Option<u64>,

    /// When connections are made [default: persistent]
    #[arg(long, value_enum)]
    pub mode: Option<PlanMode>,

    /// 0: as --mode connect; 1: as --mode persistent
    #[arg(short = 'k', long, value_name = "0|1", conflicts_with = "mode",
          value_parser = clap::value_parser!(u8).range(0..=1))]
    pub keep_alive: Option<u8>,

    /// Connections made a second, over all processes
    #[arg(long, value_name = "N")]
    pub rate: Option<u64>,

    /// Transport, when no server is named or both its addresses are
    #[arg(long, value_enum)]
    pub transport: Option<PlanTransport>,

    /// The client, for the descriptors a process has open before it connects
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub client: Option<PlanClient>,

    /// Descriptors a process has open before it connects [default: the client's, or 5]
    #[arg(long, value_name = "N", conflicts_with = "client")]
    pub client_fds: Option<u64>,

    /// Attempts of one operation that time-outs can leave in the server's queue at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub attempts: u64,

    /// Who closes a connection first; the server does after a QUIT
    #[arg(long, value_enum, default_value_t = PlanCloser::Client)]
    pub closes_first: PlanCloser,

    /// Server addresses that the load is spread over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub shards: u64,

    /// What the server is, when it cannot be asked
    #[arg(skip)]
    pub server_kind: Option<PlanServer>,

    /// The same as --uri; or, for a server that cannot be asked, what it is: redis, memcached or other
    #[arg(long = "server", value_name = "URI|KIND")]
    pub server_word: Option<String>,

    /// Operations per batch [default: 1]; of several the most
    #[arg(short = 'P', long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub pipeline: Vec<u64>,

    /// Bytes of a value [default: 0]; of several the most
    #[arg(short = 'd', long, value_name = "BYTES", value_delimiter = ',')]
    pub data_size: Vec<u64>,

    /// What else the command line of a bench may hold; no limit depends on it
    #[command(flatten)]
    pub rest: BenchRest,
}

/// Flags of a bench that no limit depends on, so that its command line can be given as it is.
#[derive(Debug, Args)]
pub struct BenchRest {
    /// Operations to run
    #[arg(short = 't', long, value_enum, value_delimiter = ',', hide = true)]
    pub tests: Vec<Op>,

    /// Keys
    #[arg(short = 'r', long, value_name = "KEYS", hide = true)]
    pub keyspace: Option<u64>,

    /// Names of the keys
    #[arg(long, value_name = "PREFIX", hide = true)]
    pub key_prefix: Option<String>,

    /// Start of the random sequence of keys
    #[arg(long, value_name = "N", hide = true)]
    pub seed: Option<u64>,

    /// Shape of a value
    #[arg(long, value_enum, hide = true)]
    pub payload: Option<PayloadKind>,

    /// How clients serialise
    #[arg(long, value_enum, hide = true)]
    pub serializer: Option<Serializer>,

    /// Length of a timed round
    #[arg(long, value_name = "SPAN", hide = true)]
    pub duration: Option<String>,

    /// What would count the calls
    #[arg(long, value_enum, hide = true)]
    pub engine: Option<EngineChoice>,
}

/// When connections are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanMode {
    /// A new connection for each operation
    Connect,
    /// Connections are kept
    Persistent,
}

/// The transport of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanTransport {
    /// TCP
    Tcp,
    /// UNIX socket
    Unix,
}

/// Who closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanCloser {
    /// The client: TIME_WAIT stays with it
    Client,
    /// The server
    Server,
}

/// What the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanServer {
    /// Redis, Valkey and their kin
    Redis,
    /// memcached
    Memcached,
    /// Something else
    Other,
}

/// Clients, by the descriptors they have open before they connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanClient {
    /// PHP with the extension
    Phpredis,
    /// PHP
    Predis,
    /// PHP with libmemcached
    PhpMemcached,
    /// Python
    RedisPy,
    /// Python
    Pymemcache,
    /// Rust, or any program that begins with three streams
    RedisRs,
}

impl PlanClient {
    /// As counted in a script before its first connection.
    pub(super) fn base_fds(self) -> u64 {
        match self {
            PlanClient::Phpredis | PlanClient::Predis | PlanClient::PhpMemcached => 5,
            PlanClient::RedisPy | PlanClient::Pymemcache => 4,
            PlanClient::RedisRs => 3,
        }
    }
}

/// Descriptors of a client nobody named.
pub(super) const BASE_FDS: u64 = 5;

impl PreflightArgs {
    /// Whether anything of a load was said.
    pub(super) fn is_planned(&self) -> bool {
        !self.strategies.is_empty() || self.plan.is_given()
    }

    /// What was asked for, by long flag names.
    pub(super) fn info(&self) -> PlanInfo {
        let mut info = self.plan.info();
        if !self.strategies.is_empty() {
            info.settings
                .insert("strategies".to_owned(), escape(&self.strategies.join(","), 200));
        }
        info
    }
}

impl PlanArgs {
    /// Whether anything of a load was said.
    pub(super) fn is_given(&self) -> bool {
        if self.scenario.is_some() {
            return true;
        }
        !self.clients.is_empty()
            || self.requests.is_some()
            || self.connections.is_some()
            || self.mode.is_some()
            || self.keep_alive.is_some()
            || self.rate.is_some()
    }

    pub(super) fn connects_per_op(&self) -> bool {
        self.mode == Some(PlanMode::Connect) || self.keep_alive == Some(0)
    }

    /// What was asked for, by long flag names.
    pub(super) fn info(&self) -> PlanInfo {
        let mut settings = BTreeMap::new();
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                settings.insert(name.to_owned(), value);
            }
        };
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        put("scenario", self.scenario.as_ref().map(|name| escape(name, 200)));
        put("scale", self.scale.map(|scale| scale.to_string()));
        let word =
            |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
        let most = |values: &[u64]| values.iter().max().copied();
        put("clients", number(most(&self.clients)));
        put("requests", number(self.requests));
        put("connections", number(self.connections));
        put("mode", word(self.mode.and_then(|mode| mode.to_possible_value())));
        put("keep-alive", self.keep_alive.map(|keep| keep.to_string()));
        put("rate", number(self.rate));
        put(
            "transport",
            word(self.transport.and_then(|transport| transport.to_possible_value())),
        );
        put(
            "client",
            word(self.client.and_then(|client| client.to_possible_value())),
        );
        put("client-fds", number(self.client_fds));
        put("attempts", number(Some(self.attempts).filter(|n| *n != 1)));
        put("shards", number(Some(self.shards).filter(|n| *n != 1)));
        put("pipeline", number(most(&self.pipeline)));
        put("data-size", number(most(&self.data_size)));
        if self.closes_first == PlanCloser::Server {
            put("closes-first", Some("server".to_owned()));
        }
        PlanInfo { settings }
    }
}
