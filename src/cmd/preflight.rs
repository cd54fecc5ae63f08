//! `systally preflight`: does the planned load fit this machine and this server?
//!
//! Everything it decides on is read through one [`Root`] and can be saved with `--save-state` and used again
//! with `--state`, on any machine.

use std::collections::BTreeMap;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};

use crate::cli::{EngineChoice, ServerArgs};
use crate::explain::{Finding, Severity};
use crate::limits::{self, Load, ServerKind, Witness, is_loopback};
use crate::plan::scenario::{self, Scale, Scenario, Terms};
use crate::proc::{self, Root, process, sockdiag};
use crate::record::{Counters, Kind, LimitReading, PlanInfo, Record, ServerInfo, ServerOrigin, Verdict};
use crate::render::{self, Format, View};
use crate::run::interrupt::Interrupt;
use crate::server::{Server, ServerChoice};
use crate::strategy::contract::{Endpoint, Op, PayloadKind, Serializer};
use crate::strategy::{Registry, ScriptSource};
use crate::units::{Measured, escape};

use super::{
    Code, CommandError, CommandResult, WithCode, preflight_load, print, secrets, servers, terminal, warn,
};

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
    fn base_fds(self) -> u64 {
        match self {
            PlanClient::Phpredis | PlanClient::Predis | PlanClient::PhpMemcached => 5,
            PlanClient::RedisPy | PlanClient::Pymemcache => 4,
            PlanClient::RedisRs => 3,
        }
    }
}

/// Descriptors of a client nobody named.
const BASE_FDS: u64 = 5;

/// Prints whether the load fits, and ends with 4 when it does not.
///
/// # Errors
/// Unusable flags or a folder that is no recording (2); a folder that cannot be written (1).
pub fn run(args: &mut PreflightArgs) -> CommandResult {
    args.plan.server_kind = servers::kind_or_uri(&mut args.server, args.plan.server_word.take())?;
    secrets::hide(&mut args.server)?;
    let (record, code) = decide(args)?;
    let view = View {
        all_syscalls: args.all,
        ..terminal::view()
    };
    print(&render::render(&record, args.format, &view)?)?;
    Ok(code)
}

/// The record and the exit code.
fn decide(args: &PreflightArgs) -> Result<(Record, Code), CommandError> {
    let root = root(args)?;
    let strategies = preflight_load::strategies(args)?;
    let endpoint = endpoint(args)?;
    let (mut witness, unreachable) = match &args.state {
        Some(_) => (Witness::recorded(&root)?, None),
        None => match endpoint
            .as_ref()
            .map(|endpoint| ask(endpoint, args.plan.server_kind))
        {
            None => (None, None),
            Some(Ok(witness)) => (Some(witness), None),
            Some(Err(why)) => (None, Some(why)),
        },
    };
    let mut load = load(args, &root, endpoint.as_ref());
    if let Some(terms) = scenario_terms(&args.plan)? {
        add_scenario(
            &mut load,
            &terms,
            endpoint.is_none() && args.plan.transport.is_none(),
        );
    }
    if let Some(witness) = &mut witness {
        if args.state.is_none() {
            witness.pid = witness.pid.or_else(|| owner(&root, &load));
            witness.keep(&root);
        }
        load.server_pid = witness.pid;
        load.server = witness.facts(&root);
    }
    if let Some(kind) = args.plan.server_kind {
        load.server.kind = match kind {
            PlanServer::Redis => ServerKind::Redis,
            PlanServer::Memcached => ServerKind::Memcached,
            PlanServer::Other => ServerKind::Other,
        };
    }
    let mut findings = Vec::new();
    if !args.is_planned() {
        findings.push(capacity(&root, &load));
    }
    let loads = preflight_load::loads(&root, &strategies, &args.server, &load)?;
    let mut readings = limits::check_each(&root, &loads);
    if witness.is_none() && args.state.is_none() {
        without_server(&mut readings, unreachable.is_some());
    }
    let fits = limits::worst(&readings) != Verdict::Fail;
    let record = Record {
        kind: Kind::Preflight,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: true,
        host: proc::host(&root),
        server: witness
            .as_ref()
            .map(|witness| server_info(witness, endpoint.as_ref())),
        more_servers: Vec::new(),
        plan: args.info(),
        strategies: Vec::new(),
        imports: Vec::new(),
        limits: readings,
        counters: Counters::default(),
        sampled: None,
        findings,
        proofs: Vec::new(),
    };
    if let Some(folder) = &args.save_state {
        root.save(folder).context("cannot save what was read")?;
    }
    if let Some(why) = &unreachable {
        warn(&format!("systally: {why}; its limits are unknown here"));
    }
    let code = match (fits, unreachable) {
        (false, _) => Code::DoesNotFit,
        (true, Some(_)) => Code::Failed,
        (true, None) => Code::Ok,
    };
    Ok((record, code))
}

/// The machine, or a recording of one.
fn root(args: &PreflightArgs) -> Result<Root, CommandError> {
    let Some(folder) = &args.state else {
        return Ok(Root::live().snapshot());
    };
    if !folder.join("proc").is_dir() {
        let shown = escape(&folder.display().to_string(), 200);
        return Err(anyhow!(
            "--state {shown}: not a recording (no folder `proc` in it); make one with --save-state"
        ))
        .code(Code::Usage);
    }
    Ok(Root::recorded(folder).snapshot())
}

/// The planned address: of several the one of the chosen transport, else the first.
fn endpoint(args: &PreflightArgs) -> Result<Option<Endpoint>, CommandError> {
    let ServerChoice::External(endpoints) = servers::server_choice(&args.server)? else {
        return Ok(None);
    };
    let wanted = |endpoint: &&Endpoint| match args.plan.transport {
        None => true,
        Some(PlanTransport::Tcp) => matches!(endpoint, Endpoint::Tcp { .. }),
        Some(PlanTransport::Unix) => matches!(endpoint, Endpoint::Unix { .. }),
    };
    match endpoints.iter().find(wanted) {
        Some(endpoint) => Ok(Some(endpoint.clone())),
        None => Err(anyhow!(
            "--transport: no address of that transport is given (-h and -p, or -s)"
        ))
        .code(Code::Usage),
    }
}

/// What is unknown only because there is no server to ask is said once and not a dozen times.
fn without_server(readings: &mut [LimitReading], unreachable: bool) {
    let of_server = |reading: &&mut LimitReading| {
        let server = reading.scope.starts_with("server")
            || ["cpu_quota", "server_memory_max", "overcommit"].contains(&reading.id.as_str());
        server && reading.verdict == Verdict::Unknown
    };
    for reading in readings.iter_mut().filter(of_server) {
        let (verdict, why) = if unreachable {
            (Verdict::Unknown, "the server cannot be asked")
        } else {
            (
                Verdict::NotApplicable,
                "no server is named: give -h and -p, -s or -u to have its limits as well",
            )
        };
        reading.verdict = verdict;
        reading.effect = why.to_owned();
        for value in [&mut reading.demand, &mut reading.capacity] {
            if value.known().is_none() {
                *value = Measured::NotMeasured(why.to_owned());
            }
        }
    }
}

impl PreflightArgs {
    /// Whether anything of a load was said.
    fn is_planned(&self) -> bool {
        !self.strategies.is_empty() || self.plan.is_given()
    }

    /// What was asked for, by long flag names.
    fn info(&self) -> PlanInfo {
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
    fn is_given(&self) -> bool {
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

    fn connects_per_op(&self) -> bool {
        self.mode == Some(PlanMode::Connect) || self.keep_alive == Some(0)
    }

    /// What was asked for, by long flag names.
    fn info(&self) -> PlanInfo {
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

/// The load in the terms of the limits, without what the server says.
fn load(args: &PreflightArgs, root: &Root, endpoint: Option<&Endpoint>) -> Load {
    let plan = &args.plan;
    let mut load = endpoint.map_or_else(Load::default, Load::to);
    if endpoint.is_none() {
        load.tcp = plan.transport != Some(PlanTransport::Unix);
    }
    if let Some(Endpoint::Tcp { host, .. }) = endpoint {
        (load.loopback, load.same_host) = place(root, host);
    }
    let most = |values: &[u64], default| values.iter().max().copied().unwrap_or(default);
    load.processes = most(&plan.clients, 1);
    load.connects_in_all = plan.requests.map(|requests| {
        // The counted pass is one round more.
        let rounds = plan.runs.saturating_add(plan.warmup).saturating_add(1);
        requests.saturating_mul(rounds)
    });
    load.connections_per_process = plan.connections.unwrap_or(1);
    load.connect_per_op = plan.connects_per_op();
    load.connects_per_second = plan.rate;
    load.server_closes_first = plan.closes_first == PlanCloser::Server;
    load.client_base_fds = plan
        .client_fds
        .or(plan.client.map(PlanClient::base_fds))
        .unwrap_or(BASE_FDS);
    load.attempts_per_op = plan.attempts;
    load.destinations = plan.shards;
    load.pipeline = most(&plan.pipeline, 1);
    load.payload_bytes = most(&plan.data_size, 0);
    load
}

/// What the scenario asks for at its heaviest, when one is named.
fn scenario_terms(plan: &PlanArgs) -> Result<Option<Terms>, CommandError> {
    let Some(name) = &plan.scenario else {
        return Ok(None);
    };
    let scenario = Scenario::find(name).code(Code::Usage)?;
    let source = ScriptSource::from_env(None).code(Code::Usage)?;
    let registry = Registry::load(&source).code(Code::Usage)?;
    let terms = scenario::heaviest(&scenario, plan.scale.unwrap_or_default(), &registry).code(Code::Usage)?;
    Ok(Some(terms))
}

/// The terms of a scenario in place of those of the flags; over both transports TCP asks for more.
fn add_scenario(load: &mut Load, terms: &Terms, any_transport: bool) {
    load.processes = terms.processes.max(1);
    load.connections_per_process = terms.connections_per_process.max(1);
    load.connect_per_op = terms.connect_per_op;
    load.destinations = terms.servers.max(1);
    load.pipeline = terms.pipeline.max(1);
    load.payload_bytes = terms.payload_bytes;
    load.connects_in_all = Some(terms.requests);
    if any_transport {
        load.tcp = terms.tcp || !terms.unix;
    }
}

/// Whether a host is loopback, and whether it is this machine; kept with the other readings.
fn place(root: &Root, host: &str) -> (bool, bool) {
    if is_loopback(host) {
        return (true, true);
    }
    let kept = format!("systally/address/{}", host.replace('/', "_"));
    let words = if root.is_live() {
        let address = (host, 0)
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next());
        match address.map(|address| address.ip()) {
            Some(ip) if ip.to_canonical().is_loopback() => "loopback",
            // Only an address of this machine can be bound; nothing is sent.
            Some(ip) if UdpSocket::bind((ip, 0)).is_ok() => "local",
            Some(_) | None => "remote",
        }
        .to_owned()
    } else {
        root.read(&kept).unwrap_or_default()
    };
    root.keep(&kept, &words);
    match words.trim_end() {
        "loopback" => (true, true),
        "local" => (false, true),
        _ => (false, false),
    }
}

/// Asks the server what it is and how it is set up.
fn ask(endpoint: &Endpoint, kind: Option<PlanServer>) -> Result<Witness, anyhow::Error> {
    match kind {
        Some(PlanServer::Other) => Ok(Witness {
            kind: ServerKind::Other,
            ..Witness::default()
        }),
        Some(PlanServer::Memcached) => ask_memcached(endpoint),
        Some(PlanServer::Redis) | None => match Server::start(
            ServerChoice::External(vec![endpoint.clone()]),
            &Interrupt::never(),
        ) {
            Ok(server) => Ok(redis_witness(server)),
            // Perhaps it is memcached; if not, what was said first is the better message.
            Err(error) if kind.is_none() => ask_memcached(endpoint).map_err(|_| error.into()),
            Err(error) => Err(error.into()),
        },
    }
}

fn redis_witness(mut server: Server) -> Witness {
    let info = server.info().clone();
    let mut named = info.settings;
    if let Ok(snapshot) = server.snapshot()
        && let Some(counters) = snapshot.counters().known()
    {
        let told = [
            ("connected_clients", counters.connected_clients),
            ("used_memory", counters.used_memory),
        ];
        named.extend(
            told.into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))),
        );
    }
    let pid = server.pid();
    server.stop();
    Witness {
        kind: ServerKind::Redis,
        version: info.version,
        answered: true,
        named,
        pid,
        ..Witness::default()
    }
}

fn ask_memcached(endpoint: &Endpoint) -> Result<Witness, anyhow::Error> {
    servers::reach_memcached(endpoint)?;
    let named = limits::memcached::stats(endpoint)
        .with_context(|| format!("cannot ask memcached at {}", escape(&endpoint.to_string(), 200)))?;
    Ok(Witness {
        kind: ServerKind::Memcached,
        version: named
            .get("version")
            .map(|version| escape(version, 60))
            .unwrap_or_default(),
        answered: true,
        named,
        ..Witness::default()
    })
}

/// The process that holds the listener of the planned address.
fn owner(root: &Root, load: &Load) -> Option<i32> {
    let listeners = sockdiag::listeners(root).ok()?;
    process::owner_of_socket(root, load.listener(&listeners)?.inode).ok()
}

fn server_info(witness: &Witness, endpoint: Option<&Endpoint>) -> ServerInfo {
    ServerInfo {
        kind: match witness.kind {
            ServerKind::Redis => "redis",
            ServerKind::Memcached => "memcached",
            ServerKind::Other => "other",
        }
        .to_owned(),
        version: escape(&witness.version, 60),
        origin: ServerOrigin::External,
        addresses: endpoint
            .iter()
            .map(|endpoint| escape(&endpoint.to_string(), 200))
            .collect(),
        settings: witness
            .named
            .iter()
            .map(|(name, value)| (escape(name, 60), escape(value, 120)))
            .collect(),
        ..ServerInfo::default()
    }
}

/// What can be carried, as a finding: it is not a matter of fitting.
fn capacity(root: &Root, load: &Load) -> Finding {
    let found = limits::capacities(root, load);
    let mut evidence = BTreeMap::new();
    let mut parts = Vec::new();
    for capacity in &found {
        match capacity.most {
            Some(most) => {
                evidence.insert(format!("{}_most", capacity.id), most.into());
                evidence.insert(
                    format!("{}_first_limit", capacity.id),
                    capacity.first.join(", ").into(),
                );
                parts.push(format!(
                    "{most} {} (then {})",
                    capacity.what,
                    capacity.first.join(", ")
                ));
            }
            None => parts.push(format!("{}: no limit that can be read", capacity.what)),
        }
    }
    let mut says = format!("this machine and server carry at most {}", parts.join("; "));
    if let Some(rate) = limits::beyond_loopback(root, load) {
        evidence.insert("connects_per_second_beyond_loopback".to_owned(), rate.into());
        says.push_str(&format!(
            ". The rate holds over loopback only: to a server's other addresses, of this machine too, {rate} a second can \
             last, unless tcp_tw_reuse is 1"
        ));
    }
    if let Some((open, rate)) = limits::followed(root, load) {
        evidence.insert("conntrack_connections_most".to_owned(), open.into());
        evidence.insert("conntrack_connects_per_second_most".to_owned(), rate.into());
        says.push_str(&format!(
            ". Where a rule of the packet filter follows connections (nf_conntrack_max), {open} at once and {rate} a second"
        ));
    }
    Finding {
        code: "CAPACITY".into(),
        severity: Severity::Info,
        strategy: None,
        row: None,
        evidence,
        says,
        try_next: "give the load (-c, --connections, --mode, --rate) to see what it needs of each limit"
            .to_owned(),
        not_the_cause: Vec::new(),
    }
}
