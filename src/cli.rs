//! The command line: clap types, no behaviour.
//!
//! `bench` speaks redis-benchmark, so `-h` is the host there and help has no short form; matrix and
//! export flags speak hyperfine; `count` speaks strace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd::count::CountArgs;
use crate::cmd::preflight::PreflightArgs;
use crate::import::ImportFormat;
use crate::plan::scenario::Scale;
use crate::render::Format;
use crate::strategy::contract::{Op, PayloadKind, Serializer};
use crate::units::parse_span;

/// Runs real client programs against a real server and counts the system calls each makes per operation.
#[derive(Debug, Parser)]
#[command(
    name = "systally",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Time client strategies untraced, then count their system calls per operation
    #[command(disable_help_flag = true)]
    Bench(Box<BenchArgs>),
    /// Count the system calls of any program, as `strace -c -f` does, per operation when it can
    Count(Box<CountArgs>),
    /// Say whether a planned load fits this machine and server, limit by limit
    #[command(disable_help_flag = true)]
    Preflight(Box<PreflightArgs>),
    /// Say why a client is slow or fails: findings from records and from other tools' tables and logs
    Explain(ExplainArgs),
    /// Read tables and logs of other tools (strace, dtruss, perf trace, truss, ktrace, ltrace, syscount …), and
    /// print the tables of a record again, in any format
    Import(ImportArgs),
    /// Show strategies, engines and scenarios: what is ready on this machine, and for what is not, why
    List(ListArgs),
    /// Print the JSON Schema of the record that `-o` writes
    Schema,
    /// Once, as root: keep what the perf engine needs for counting without rights
    Setup,
    /// A client worker in Rust; systally starts these itself
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// The built-in RESP server; systally starts it itself
    #[command(hide = true)]
    Responder(ResponderArgs),
    /// One run of a test of a limit, told on standard input; systally starts these itself
    #[command(hide = true)]
    Arm,
    /// A loop of one system call; systally starts it itself to measure what engines cost
    #[command(hide = true)]
    Loop(LoopArgs),
}

/// Which engine counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// The best one that may run here
    Auto,
    /// Native ptrace: every call, errno and time, no rights needed
    Ptrace,
    /// Native ptrace with half the stops: every call, but no errno, time or peers
    PtraceCounts,
    /// The kernel counts every call by BPF programs; needs CAP_BPF and CAP_PERFMON
    Bpf,
    /// The kernel counts a few chosen calls, mostly without rights (see `systally setup`)
    Perf,
    /// Reads the log of an installed strace: every call, errno and time, and slowly
    Strace,
    /// Do not count, only time
    None,
}

/// Which engine recounts at nearly native speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WitnessChoice {
    /// The best one that may run here, when the engine that counts slows the client
    Auto,
    /// All calls and errnos; needs CAP_BPF and CAP_PERFMON
    Bpf,
    /// The calls made most, mostly without rights (see `systally setup`)
    Perf,
    /// Do not recount
    None,
}

/// `systally bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Strategies as client/mode/transport; parts may be left out or be `*`, commas make lists
    /// [default: every default mode of every client]
    #[arg(value_name = "STRATEGY")]
    pub strategies: Vec<String>,

    /// A published comparison by its name, or a file of your own (`systally list scenarios`); STRATEGY
    /// then picks of its rows
    #[arg(long, value_name = "NAME|FILE.toml", conflicts_with_all = [
        "program", "clients", "requests", "pipeline", "data_size", "payload", "serializer", "keyspace",
        "tests", "keep_alive", "seed", "duration", "counted_requests", "baseline",
    ])]
    pub scenario: Option<String>,

    /// Do F times the work of the scenario: fewer operations for each client, down to 10, then fewer clients
    #[arg(long, value_name = "F", requires = "scenario")]
    pub scale: Option<Scale>,

    /// Set what the article printed beside today's figures
    #[arg(long, requires = "scenario")]
    pub published: bool,

    /// Length of the listen queues of the private server [default: its own 511, or -c where that is more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535),
          conflicts_with_all = ["host", "port", "socket", "uri"])]
    pub tcp_backlog: Option<u32>,

    /// A program of your own that keeps the worker contract, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,

    /// Server and load
    #[command(flatten)]
    pub server: ServerArgs,

    /// The same as --uri
    #[arg(long = "server", value_name = "URI", help_heading = "Server",
          conflicts_with_all = ["host", "port", "socket", "uri", "builtin_server", "tcp_backlog"])]
    pub server_uri: Option<String>,

    /// Operations
    #[command(flatten)]
    pub load: LoadArgs,

    /// Timed rounds per strategy [default: 5, or what the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// Rounds before timing begins, not kept [default: 1, or what the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub warmup: Option<u32>,

    /// Length of a timed round, with its unit (`200ms`, `2s`), when -n does not set the operations
    /// [default: the whole run takes about 15 s]
    #[arg(long, value_name = "SPAN", value_parser = parse_span, conflicts_with = "requests")]
    pub duration: Option<Duration>,

    /// Operations of the counted pass in all [default: -n, or 1000 batches]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub counted_requests: Option<u64>,

    /// Longest wait for a worker: to connect, and beyond the time a round should take [default: 30s, or
    /// what the scenario says]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub timeout: Option<Duration>,

    /// The row that others are compared with [default: the first one measured]
    #[arg(long, value_name = "STRATEGY", visible_alias = "reference")]
    pub baseline: Option<String>,

    /// What counts the system calls
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub engine: EngineChoice,

    /// What recounts the same work at nearly native speed, to show which counts tracing changed
    #[arg(long, value_enum, default_value_t = WitnessChoice::Auto)]
    pub witness: WitnessChoice,

    /// How often each row is counted and recounted; counts that differ are shown as ranges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub counted_runs: u32,

    /// Put suspected limits to the test afterwards: the same load by turns with nothing changed and with
    /// only that limit raised, in a network namespace of its own with a second server
    #[arg(long)]
    pub prove: bool,

    /// Exit 0 even when a strategy failed
    #[arg(short = 'i', long)]
    pub ignore_failure: bool,

    /// A file of more script clients (see tracing-scripts/README.md)
    #[arg(long, value_name = "FILE", env = "SYSTALLY_CLIENTS")]
    pub clients_file: Option<PathBuf>,

    /// Output
    #[command(flatten)]
    pub output: OutputArgs,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// Which server: the user's own, or one that systally starts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Server host name or address; when no server is named, bench starts one
    #[arg(short = 'h', long, value_name = "HOST")]
    pub host: Option<String>,

    /// Server port [default: 6379 when -h is given]
    #[arg(short = 'p', long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Path of the server's UNIX socket
    #[arg(short = 's', long, visible_short_alias = 'S', value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Server as a URI: redis://[user:password@]host[:port], unix:///path, memcached://host[:port] or
    /// memcached+unix:///path
    #[arg(short = 'u', long, value_name = "URI", hide_env_values = true)]
    pub uri: Option<String>,

    /// Password; the environment variable keeps it out of the process list
    #[arg(
        short = 'a',
        long,
        value_name = "PASSWORD",
        env = "REDISCLI_AUTH",
        hide_env_values = true
    )]
    pub pass: Option<String>,

    /// ACL user that goes with the password
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// Use the built-in RESP server even when a real one is installed
    #[arg(long, conflicts_with_all = ["host", "port", "socket", "uri"])]
    pub builtin_server: bool,
}

/// The load: the axes of redis-benchmark; comma lists make a matrix.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load (comma lists make a matrix)")]
pub struct LoadArgs {
    /// Worker processes at once, one connection each
    #[arg(short = 'c', long, value_name = "N", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Vec<u32>,

    /// Operations per round in all, over all clients
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub requests: Option<u64>,

    /// Operations per batch [default: 16 in pipeline modes; other modes send one at a time, except raw,
    /// which takes this value when it is given]
    #[arg(short = 'P', long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pipeline: Vec<u32>,

    /// Bytes of a value
    #[arg(short = 'd', long, value_name = "BYTES", value_delimiter = ',', default_value = "4",
          value_parser = clap::value_parser!(u64).range(1..=104_857_600))]
    pub data_size: Vec<u64>,

    /// Servers that clients which shard spread their keys over
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: Vec<u32>,

    /// Shape of a value
    #[arg(long, value_enum, default_value_t = PayloadKind::String)]
    pub payload: PayloadKind,

    /// How clients serialise arrays and objects
    #[arg(long, value_enum, default_value_t = Serializer::None)]
    pub serializer: Serializer,

    /// Take keys at random from so many, instead of 1000 in order
    #[arg(short = 'r', long, value_name = "KEYS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keyspace: Option<u64>,

    /// What the names of the keys begin with; ten digits follow
    #[arg(long, value_name = "PREFIX", default_value = "st:")]
    pub key_prefix: String,

    /// Operations to run [default: setget, and the first that a mode offers where it does not offer that]
    #[arg(
        short = 't',
        long,
        value_enum,
        value_delimiter = ',',
        hide_default_value = true
    )]
    pub tests: Vec<Op>,

    /// 0: only modes that connect for each operation; 1: only modes that keep the connection
    #[arg(short = 'k', long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub keep_alive: Option<u8>,

    /// Start of the random sequence of keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Where results go, and in which form.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Form of what is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// The same as --format csv
    #[arg(long, conflicts_with = "format")]
    pub csv: bool,

    /// Keep the record (JSON) in this file; it is written after each step, so a run cut short keeps what
    /// it had. `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Also write the table as Markdown
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,

    /// Also write tidy CSV: a row per strategy, phase, call and errno
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,

    /// Also write the record as JSON
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,

    /// Also draw the throughput as SVG: by servers, clients or pipeline depth where these vary
    #[arg(long, value_name = "FILE")]
    pub export_svg: Option<PathBuf>,

    /// A column for every system call
    #[arg(long)]
    pub all: bool,

    /// A table for each strategy of its calls by what their descriptor leads to
    #[arg(long)]
    pub peers: bool,

    /// Only the table: no header, no progress
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// `systally import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Tables or logs, also packed with gzip or zstd; `-` is standard input. The files of one strace -ff
    /// run are read as one run. The record of a run of systally's own (-o) is shown again
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// What the files are, when their content does not tell
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<ImportFormat>,

    /// Operations that the traced program completed, for figures per operation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,

    /// Form of what is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Of a bench: a column for every system call
    #[arg(long)]
    pub all: bool,

    /// Of a run of systally's own: calls by what their descriptor leads to
    #[arg(long)]
    pub peers: bool,

    /// Write the record (JSON) to this file; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `systally explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Records of systally, other tools' tables and logs, or codes of findings to be described
    #[arg(required_unless_present = "list", value_name = "FILE|CODE")]
    pub what: Vec<PathBuf>,

    /// Describe every finding there is
    #[arg(long, conflicts_with = "what")]
    pub list: bool,

    /// What the foreign files are, when their content does not tell
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<ImportFormat>,

    /// Operations that the traced program completed, for figures per operation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,

    /// Form of what is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `systally list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list [default: everything]
    #[arg(value_enum)]
    pub what: Option<ListWhat>,

    /// Print the file of this scenario, to copy and change
    #[arg(long, value_name = "NAME", conflicts_with = "measure")]
    pub show: Option<String>,

    /// Measure what a counted call costs under each engine on this machine now
    #[arg(long)]
    pub measure: bool,

    /// A file of more script clients (see tracing-scripts/README.md)
    #[arg(long, value_name = "FILE", env = "SYSTALLY_CLIENTS")]
    pub clients_file: Option<PathBuf>,
}

/// What `list` can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListWhat {
    /// Client strategies
    Strategies,
    /// Engines
    Engines,
    /// Published comparisons that `bench --scenario` runs
    Scenarios,
    /// Output formats
    Formats,
}

/// `systally worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The Rust client to be
    pub name: String,
}

/// `systally responder`.
#[derive(Debug, Args)]
pub struct ResponderArgs {
    /// Path of the UNIX socket to listen on, beside a TCP port on loopback
    #[arg(long)]
    pub socket: PathBuf,

    /// Length of the listeners' queues
    #[arg(long)]
    pub tcp_backlog: Option<u32>,

    /// Connections at most
    #[arg(long)]
    pub maxclients: Option<u32>,
}

/// `systally loop`.
#[derive(Debug, Args)]
pub struct LoopArgs {
    /// How many calls to make
    pub calls: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
