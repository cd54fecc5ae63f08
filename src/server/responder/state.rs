//! What all connections share: keys, settings, and statistics in the words of `INFO`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use super::commands::TABLE;
use super::store::{DATABASES, Store};

/// The Redis version whose commands and replies these are; clients look at it to decide what they may use.
pub(super) const REDIS_VERSION: &str = "7.2.0";
/// How the responder names itself.
pub(super) const SERVER_NAME: &str = "systally-responder";

/// Everything the commands work on.
#[derive(Debug)]
pub(super) struct State {
    /// The keys.
    pub(super) store: Store,
    /// What `CONFIG` can change.
    pub(super) config: Config,
    /// Statistics.
    pub(super) stats: Stats,
    /// Connections open now.
    pub(super) connected: u64,
    started: Instant,
    run_id: String,
}

/// Settings.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// Connections at most.
    pub(super) maxclients: u64,
    /// The password, empty for none.
    pub(super) requirepass: Vec<u8>,
    /// Length asked for of the listeners' queues.
    pub(super) tcp_backlog: u32,
    /// Port on loopback.
    pub(super) port: u16,
    /// The UNIX socket.
    pub(super) unixsocket: PathBuf,
}

impl Config {
    /// Every setting that `CONFIG GET` knows.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let text = |text: &str| text.to_owned();
        vec![
            ("appendfsync", text("everysec")),
            ("appendonly", text("no")),
            ("bind", text("127.0.0.1")),
            ("client-query-buffer-limit", (1u64 << 30).to_string()),
            ("databases", DATABASES.to_string()),
            ("io-threads", text("1")),
            ("maxclients", self.maxclients.to_string()),
            ("maxmemory", text("0")),
            ("maxmemory-policy", text("noeviction")),
            ("port", self.port.to_string()),
            ("proto-max-bulk-len", (512u64 << 20).to_string()),
            ("protected-mode", text("yes")),
            (
                "requirepass",
                String::from_utf8_lossy(&self.requirepass).into_owned(),
            ),
            ("save", String::new()),
            ("tcp-backlog", self.tcp_backlog.to_string()),
            ("tcp-keepalive", text("0")),
            ("timeout", text("0")),
            ("unixsocket", self.unixsocket.to_string_lossy().into_owned()),
        ]
    }

    /// Whether a connection must authenticate.
    pub(super) fn guarded(&self) -> bool {
        !self.requirepass.is_empty()
    }

    /// Whether this is the password, in a time that does not depend on where they differ.
    pub(super) fn is_password(&self, given: &[u8]) -> bool {
        let wanted = &self.requirepass;
        let differs = wanted.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        wanted.len() == given.len() && differs == 0
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Connections accepted.
    pub(super) connections: u64,
    /// Connections refused because of `maxclients`.
    pub(super) rejected: u64,
    /// Bytes read.
    pub(super) input: u64,
    /// Bytes written.
    pub(super) output: u64,
    /// Reads of keys that exist.
    pub(super) hits: u64,
    /// Reads of keys that do not.
    pub(super) misses: u64,
    /// By place in the command table.
    commands: Vec<CommandStats>,
    /// Error replies by code.
    errors: BTreeMap<String, u64>,
}

/// Statistics of one command.
#[derive(Debug, Clone, Copy, Default)]
struct CommandStats {
    calls: u64,
    failed: u64,
    rejected: u64,
    busy: Duration,
}

impl Stats {
    fn command(&mut self, command: usize) -> &mut CommandStats {
        if self.commands.len() <= command {
            self.commands
                .resize(TABLE.len().max(command + 1), CommandStats::default());
        }
        &mut self.commands[command]
    }

    /// A command was executed.
    pub(super) fn executed(&mut self, command: usize, busy: Duration, failed: bool) {
        let stats = self.command(command);
        stats.calls += 1;
        stats.failed += u64::from(failed);
        stats.busy += busy;
    }

    /// A command was refused before it was executed.
    pub(super) fn refused(&mut self, command: usize) {
        self.command(command).rejected += 1;
    }

    /// An error was sent; counted by its first word.
    pub(super) fn error(&mut self, text: &[u8]) {
        let code = text.split(|b| *b == b' ').next().unwrap_or_default();
        *self
            .errors
            .entry(String::from_utf8_lossy(code).into_owned())
            .or_default() += 1;
    }
}

/// The sections of `INFO`, in order, with whether a plain `INFO` has them.
const SECTIONS: [(Section, &str, bool); 10] = [
    (Section::Server, "Server", true),
    (Section::Clients, "Clients", true),
    (Section::Memory, "Memory", true),
    (Section::Persistence, "Persistence", true),
    (Section::Stats, "Stats", true),
    (Section::Replication, "Replication", true),
    (Section::Cpu, "CPU", true),
    (Section::Commandstats, "Commandstats", false),
    (Section::Errorstats, "Errorstats", true),
    (Section::Keyspace, "Keyspace", true),
];

/// A section of `INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Server,
    Clients,
    Memory,
    Persistence,
    Stats,
    Replication,
    Cpu,
    Commandstats,
    Errorstats,
    Keyspace,
}

impl State {
    pub(super) fn new(config: Config) -> State {
        State {
            store: Store::new(),
            config,
            stats: Stats::default(),
            connected: 0,
            started: Instant::now(),
            run_id: run_id(),
        }
    }

    /// `CONFIG RESETSTAT`.
    pub(super) fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.store.expired = 0;
    }

    /// The text of `INFO` with the named sections; none is the default set, `all` and `everything` are all.
    pub(super) fn info<'a>(&self, wanted: impl Iterator<Item = &'a [u8]>) -> String {
        let wanted: Vec<&[u8]> = wanted.collect();
        let has = |name: &str| wanted.iter().any(|w| w.eq_ignore_ascii_case(name.as_bytes()));
        let everything = has("all") || has("everything");
        let default = wanted.is_empty() || has("default");
        let mut text = String::new();
        for (section, title, usual) in SECTIONS {
            if everything || (default && usual) || has(title) {
                if !text.is_empty() {
                    text.push_str("\r\n");
                }
                text.push_str(&format!("# {title}\r\n"));
                for (name, value) in self.section(section) {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{name}:{value}\r\n");
                }
            }
        }
        text
    }

    fn section(&self, section: Section) -> Vec<(String, String)> {
        let field = |name: &str, value: &dyn ToString| (name.to_owned(), value.to_string());
        match section {
            Section::Server => vec![
                field("redis_version", &REDIS_VERSION),
                field("server_name", &SERVER_NAME),
                field("systally_version", &env!("CARGO_PKG_VERSION")),
                field("redis_mode", &"standalone"),
                field("multiplexing_api", &"epoll"),
                field("process_id", &std::process::id()),
                field("run_id", &self.run_id),
                field("tcp_port", &self.config.port),
                field("uptime_in_seconds", &self.started.elapsed().as_secs()),
            ],
            Section::Clients => {
                vec![
                    field("connected_clients", &self.connected),
                    field("maxclients", &self.config.maxclients),
                ]
            }
            Section::Memory => vec![field("maxmemory", &0), field("maxmemory_policy", &"noeviction")],
            Section::Persistence => vec![field("loading", &0), field("aof_enabled", &0)],
            Section::Stats => self.counters(),
            Section::Replication => vec![field("role", &"master"), field("connected_slaves", &0)],
            Section::Cpu => match getrusage(UsageWho::RUSAGE_SELF) {
                Ok(usage) => {
                    let time = |t: nix::sys::time::TimeVal| format!("{}.{:06}", t.tv_sec(), t.tv_usec());
                    vec![
                        field("used_cpu_sys", &time(usage.system_time())),
                        field("used_cpu_user", &time(usage.user_time())),
                    ]
                }
                Err(_) => Vec::new(),
            },
            Section::Commandstats => self.command_stats(),
            Section::Errorstats => self
                .stats
                .errors
                .iter()
                .map(|(code, n)| (format!("errorstat_{code}"), format!("count={n}")))
                .collect(),
            Section::Keyspace => (0..DATABASES)
                .filter(|db| self.store.len(*db) > 0)
                .map(|db| {
                    let (keys, expires) = (self.store.len(db), self.store.expiring(db));
                    (
                        format!("db{db}"),
                        format!("keys={keys},expires={expires},avg_ttl=0"),
                    )
                })
                .collect(),
        }
    }

    fn counters(&self) -> Vec<(String, String)> {
        let stats = &self.stats;
        [
            ("total_connections_received", stats.connections),
            (
                "total_commands_processed",
                stats.commands.iter().map(|c| c.calls).sum(),
            ),
            ("total_net_input_bytes", stats.input),
            ("total_net_output_bytes", stats.output),
            ("rejected_connections", stats.rejected),
            ("expired_keys", self.store.expired),
            ("evicted_keys", 0),
            ("keyspace_hits", stats.hits),
            ("keyspace_misses", stats.misses),
            ("total_error_replies", stats.errors.values().sum()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .to_vec()
    }

    fn command_stats(&self) -> Vec<(String, String)> {
        TABLE
            .iter()
            .zip(&self.stats.commands)
            .filter(|(_, stats)| stats.calls + stats.rejected > 0)
            .map(|(spec, stats)| {
                let usec = stats.busy.as_micros();
                let per_call = stats.busy.as_secs_f64() * 1e6 / stats.calls.max(1) as f64;
                let value = format!(
                    "calls={},usec={usec},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                    stats.calls, stats.rejected, stats.failed
                );
                (format!("cmdstat_{}", spec.name), value)
            })
            .collect()
    }
}

/// Forty hex digits that differ with every start.
fn run_id() -> String {
    let mut bytes = [0u8; 20];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if random.is_err() {
        // Good enough to tell two starts apart, which is all it is for.
        let now = super::store::now_ms().to_le_bytes();
        bytes[..8].copy_from_slice(&now);
        bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
