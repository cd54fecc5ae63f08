//! `systally bench`: time client strategies untraced, count their system calls, check with the server.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{BenchArgs, LoadArgs, OutputArgs, ServerArgs};
use crate::engine::{self, EngineKind};
use crate::plan::rows::{Common, Matrix, Row, rows};
use crate::record::{PlanInfo, Record, ServerOrigin, Status, wire};
use crate::render::{self, Format, View};
use crate::run::interrupt::Interrupt;
use crate::run::prove::arm::Groups;
use crate::run::{Bench, Progress, RoundLength, Save, Settings, out_of_reach};
use crate::server::{
    Backend, Named, Place, PrivateOptions, ServerChoice, ServerError, Servers, Target, Wanted,
};
use crate::strategy::contract::{Connect, Endpoint, KeyOrder, Keys, Store};
use crate::strategy::{Presence, Registry, ScriptSource, Strategy, program_strategies};
use crate::sys::namespace::set_open_files_of;

use super::{
    Code, CommandError, CommandResult, WithCode, counting, print, prove, scenario, secrets, terminal, warn,
};

/// What all timed rounds together take when nobody sets their length.
const DEFAULT_TOTAL: Duration = Duration::from_secs(11);

/// Rounds and patience when nobody sets them.
pub(super) const DEFAULT_RUNS: u32 = 5;
pub(super) const DEFAULT_WARMUP: u32 = 1;
pub(super) const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

/// Keys when `-r` does not give their number; few enough to preload, many enough for shards.
const DEFAULT_KEYS: u64 = 1_000;

/// Keys whose names are in memory at once when they are deleted.
const KEYS_AT_ONCE: u64 = 10_000;

/// Runs the bench and prints the table.
///
/// # Errors
/// Usage (unknown strategy, unusable flags), a server that cannot be reached, a record that cannot be
/// written. What goes wrong with single strategies is in their rows and in the exit code.
pub fn run(args: &mut BenchArgs) -> CommandResult {
    run_within(args, &Within::default())
}

/// The surroundings of one run of a test.
#[derive(Default)]
pub(super) struct Within {
    /// How the private server is set up.
    pub(super) options: PrivateOptions,
    /// Soft limit of open files that the server is given when it runs.
    pub(super) server_nofile: Option<u64>,
    /// The control groups made for it.
    pub(super) groups: Groups,
}

impl Within {
    /// The servers of the run, set up as the test wants them.
    fn servers(&self, wanted: Wanted) -> Wanted {
        let options = |asked: PrivateOptions| PrivateOptions {
            tcp_backlog: self.options.tcp_backlog.or(asked.tcp_backlog),
            maxclients: self.options.maxclients.or(asked.maxclients),
            nofile: self.options.nofile.or(asked.nofile),
            ..asked
        };
        let redis = match wanted.redis {
            ServerChoice::Auto {
                prefer,
                options: asked,
            } => ServerChoice::Auto {
                prefer,
                options: options(asked),
            },
            ServerChoice::BuiltIn { options: asked } => ServerChoice::BuiltIn {
                options: options(asked),
            },
            external @ ServerChoice::External(_) => external,
        };
        Wanted { redis, ..wanted }
    }

    /// Does to the server what can only be done when it runs.
    fn prepare(&self, servers: &Servers) -> Result<(), CommandError> {
        let Some(pid) = servers.iter().find_map(|(_, server)| server.pid()) else {
            return Ok(());
        };
        self.groups
            .take_server(pid)
            .context("cannot put the server into its control group")
            .code(Code::CannotMeasure)?;
        match self.server_nofile {
            Some(soft) => set_open_files_of(pid, soft)
                .context("cannot set the server's limit of open files")
                .code(Code::CannotMeasure),
            None => Ok(()),
        }
    }
}

/// Runs it in surroundings that were made for it.
///
/// # Errors
/// As [`run`].
pub(super) fn run_within(args: &mut BenchArgs, within: &Within) -> CommandResult {
    secrets::hide(&mut args.server)?;
    let args = &*args;
    let form = form(&args.output);
    places(&args.output)?;
    if let Some(name) = &args.scenario {
        return scenario::run(args, name);
    }
    let options = PrivateOptions {
        tcp_backlog: args.tcp_backlog.or_else(|| backlog_for(&args.load.clients)),
        ..PrivateOptions::default()
    };
    let wanted = wanted(&args.server, options)?;
    let strategies = strategies(args, !wanted.memcached.is_empty())?;
    let rows = rows(
        &strategies,
        &Matrix {
            ops: args.load.tests.clone(),
            pipeline: args.load.pipeline.clone(),
            payload_bytes: args.load.data_size.clone(),
            clients: args.load.clients.clone(),
            servers: args.load.shards.clone(),
        },
    );
    if rows.is_empty() {
        return Err(anyhow!("no strategy is left to run; `systally list` shows all")).code(Code::Usage);
    }
    let counting = counting::choose(args.engine, args.witness)?;
    let interrupt = Interrupt::install().context("cannot handle signals")?;
    let wanted = within.servers(wanted);
    let mut servers = start(&wanted, &rows, &interrupt)?;
    within.prepare(&servers)?;
    let (rows, left_out) = within_reach(rows, &servers, &args.strategies);
    let baseline = args
        .baseline
        .as_deref()
        .map(|name| baseline(&rows, name))
        .transpose()?;
    let common = common(&args.load);
    let settings = settings(args, &rows, baseline);
    let to_clean = to_clean(&mut servers, &common)?;
    let timing = engine::engine(EngineKind::None);

    let show = Header {
        format: form,
        quiet: args.output.quiet,
    };
    for (_, server) in servers.iter() {
        show.line(&format!("server: {server}"))?;
    }
    if let Some(note) = left_out {
        show.line(&format!("note: {note}"))?;
    }
    show.line(&header(&settings, &rows))?;
    show.prose(&counting.line)?;

    let progress = Bar::new(args.output.quiet);
    let mut saved = Ok(());
    let mut record = {
        let mut save = file(args.output.output.as_deref()).map(|path| {
            let saved = &mut saved;
            move |record: &Record| *saved = wire::save(record, path)
        });
        Bench {
            rows: &rows,
            common: &common,
            settings: &settings,
            servers: &mut servers,
            timing,
            counting: counting
                .engine
                .ok_or_else(|| "--engine none was asked for".to_owned()),
            witness: counting.witness,
            interrupt: &interrupt,
            progress: &progress,
            sampler: None,
            save: save.as_mut().map(|save| save as &mut Save),
        }
        .run()
    };
    clean_up(&mut servers, &to_clean, &common);
    servers.stop();
    if args.prove && record.complete {
        show.line("proving: each suspected limit is changed by turns, elsewhere")?;
        prove::prove(args, &mut record, &interrupt);
        if let Some(path) = file(args.output.output.as_deref()) {
            saved = wire::save(&record, path);
        }
    }

    write_outputs(args, form, &record)?;
    // Last, so that what cannot be kept in the file has at least been shown.
    saved?;
    Ok(exit_code(&record, args.ignore_failure))
}

/// Connects to the servers that the rows need, or starts them.
pub(super) fn start(wanted: &Wanted, rows: &[Row], interrupt: &Interrupt) -> Result<Servers, CommandError> {
    let needs = rows
        .iter()
        .filter(|row| matches!(row.strategy.client.presence(), Presence::Ready { .. }))
        .filter_map(|row| Some((row.place()?, row.servers)));
    Servers::start(wanted, needs, interrupt).map_err(|error| {
        let code = if matches!(error, ServerError::Interrupted) {
            Code::Incomplete
        } else {
            Code::Failed
        };
        CommandError {
            code,
            error: error.into(),
        }
    })
}

/// The form of what is printed.
pub(super) fn form(output: &OutputArgs) -> Format {
    if output.output.as_deref() == Some(Path::new("-")) {
        Format::Json
    } else if output.csv {
        Format::Csv
    } else {
        output.format
    }
}

/// A path that is not standard output.
pub(super) fn file(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| *path != Path::new("-"))
}

/// Makes sure that results can be written where they shall go, before minutes are spent on them.
fn places(output: &OutputArgs) -> Result<(), CommandError> {
    let all = [
        &output.output,
        &output.export_markdown,
        &output.export_csv,
        &output.export_json,
        &output.export_svg,
    ];
    all.into_iter()
        .filter_map(|path| file(path.as_deref()))
        .try_for_each(wire::check)
        .code(Code::Usage)
}

/// The servers of the user's that are to be cleaned up after the run.
///
/// # Errors
/// One that holds keys that the run would write.
pub(super) fn to_clean(servers: &mut Servers, common: &Common) -> Result<Vec<Place>, CommandError> {
    let mut places = Vec::new();
    for (place, server) in servers.iter_mut() {
        if server.info().origin == ServerOrigin::External && spare_others(server, common)? {
            places.push(place);
        }
    }
    Ok(places)
}

/// Removes what the workers have written from servers of the user's.
pub(super) fn clean_up(servers: &mut Servers, places: &[Place], common: &Common) {
    for place in places {
        if let Some(server) = servers.get_mut(*place) {
            delete_written(server, common);
        }
    }
}

/// Makes sure that a server of the user's holds none of the keys that the run will write. Returns whether
/// they may be deleted afterwards: not when nobody can see whose they are.
fn spare_others(server: &mut Backend, common: &Common) -> Result<bool, CommandError> {
    let mut first = 0;
    while first < common.keys.count {
        let last = common.keys.count.min(first + KEYS_AT_ONCE);
        match server.existing_keys(&written_keys(common, first..last)) {
            Ok(None) => return Ok(false),
            Ok(Some(0)) => {}
            Ok(Some(found)) => {
                let prefix = crate::units::escape(&common.keys.prefix, 80);
                return Err(anyhow!(
                    "the server holds {found} keys that this run would overwrite and then delete \
                     ({prefix} or n:{prefix} and ten digits); choose other names with --key-prefix"
                ))
                .code(Code::Usage);
            }
            Err(error) => {
                warn(&format!(
                    "systally: cannot see whether the keys of this run exist already, so they stay: {error}"
                ));
                return Ok(false);
            }
        }
        first = last;
    }
    Ok(true)
}

fn delete_written(server: &mut Backend, common: &Common) {
    let mut first = 0;
    while first < common.keys.count {
        let last = common.keys.count.min(first + KEYS_AT_ONCE);
        if let Err(error) = server.delete_keys(&written_keys(common, first..last)) {
            warn(&format!(
                "systally: the keys of this run are still on the server: {error}"
            ));
            return;
        }
        first = last;
    }
}

/// Takes out the rows whose server has no address for their transport, unless they were named in full or
/// nothing else is left; and says so in one line.
fn within_reach(rows: Vec<Row>, servers: &Servers, named: &[String]) -> (Vec<Row>, Option<String>) {
    let named: Vec<&str> = named
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect();
    let keep = |row: &Row| {
        out_of_reach(row, servers).is_none() || named.contains(&row.strategy.name().to_string().as_str())
    };
    if !rows.iter().any(keep) {
        return (rows, None);
    }
    let (kept, out): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(keep);
    let note = out.first().and_then(|row| {
        let why = out_of_reach(row, servers)?;
        let transport = row.strategy.transport.name();
        Some(format!("{} rows over {transport} are left out: {why}", out.len()))
    });
    (kept, note)
}

/// The queue that a private server needs so that all clients can connect at one time; `None` where the
/// server's own default (511) is enough. Redis' default would drop the others' handshakes, and what is
/// measured then is how TCP sends them again. `--tcp-backlog 511` shows that.
fn backlog_for(clients: &[u32]) -> Option<u32> {
    /// The default of Redis and of Valkey.
    const DEFAULT: u32 = 511;
    clients
        .iter()
        .copied()
        .max()
        .filter(|most| *most > DEFAULT)
        .map(|most| most.min(65_535))
}

/// The strategies that were named, or all default ones, and the user's own program. Where the user's
/// server is a memcached, all of its clients stand for the default ones.
fn strategies(args: &BenchArgs, memcached: bool) -> Result<Vec<Strategy>, CommandError> {
    let mut chosen = program_strategies(&args.program);
    if !args.strategies.is_empty() || chosen.is_empty() {
        let source = ScriptSource::from_env(args.clients_file.clone()).code(Code::Usage)?;
        let registry = Registry::load(&source).code(Code::Usage)?;
        if args.strategies.is_empty() && memcached {
            let all = registry.select(&["*/*/*".to_owned()]).code(Code::Usage)?;
            chosen.extend(all.into_iter().filter(|one| one.store() == Store::Memcached));
        } else {
            chosen.extend(registry.select(&args.strategies).code(Code::Usage)?);
        }
    }
    if let Some(keep) = args.load.keep_alive {
        let per_op = |s: &Strategy| matches!(s.mode.connect, Connect::PerOp);
        chosen.retain(|strategy| per_op(strategy) == (keep == 0));
    }
    Ok(chosen)
}

/// The row that `--baseline` names.
fn baseline(rows: &[Row], name: &str) -> Result<usize, CommandError> {
    rows.iter()
        .position(|row| row.strategy.name().to_string().starts_with(name))
        .ok_or_else(|| {
            anyhow!(
                "--baseline {}: no such row in this run",
                crate::units::escape(name, 80)
            )
        })
        .code(Code::Usage)
}

/// The servers that the command line asks for; private ones are set up by `options`.
pub(super) fn wanted(args: &ServerArgs, options: PrivateOptions) -> Result<Wanted, CommandError> {
    let Named { redis, memcached } = target(args)?.named().code(Code::Usage)?;
    let redis = if args.builtin_server {
        ServerChoice::BuiltIn { options }
    } else {
        choice(redis, options)
    };
    Ok(Wanted { redis, memcached })
}

/// The one server that the command line asks for, whatever it is.
pub(super) fn server_choice(args: &ServerArgs) -> Result<ServerChoice, CommandError> {
    let options = PrivateOptions::default();
    if args.builtin_server {
        return Ok(ServerChoice::BuiltIn { options });
    }
    let Named { redis, memcached } = target(args)?.named().code(Code::Usage)?;
    let endpoints = if memcached.is_empty() { redis } else { memcached };
    Ok(choice(endpoints, options))
}

/// The user's own server, or a private one where none is named.
fn choice(endpoints: Vec<Endpoint>, options: PrivateOptions) -> ServerChoice {
    if endpoints.is_empty() {
        ServerChoice::Auto {
            prefer: None,
            options,
        }
    } else {
        ServerChoice::External(endpoints)
    }
}

/// What the command line says of the user's server.
fn target(args: &ServerArgs) -> Result<Target, CommandError> {
    let socket = match &args.socket {
        Some(path) => Some(
            path.to_str()
                .map(str::to_owned)
                .ok_or_else(|| anyhow!("--socket: the path is not valid UTF-8"))
                .code(Code::Usage)?,
        ),
        None => None,
    };
    Ok(Target {
        host: args.host.clone(),
        port: args.port,
        socket,
        uri: args.uri.clone(),
        user: args.user.clone(),
        password: args.pass.clone(),
    })
}

fn common(load: &LoadArgs) -> Common {
    let (count, order) = match load.keyspace {
        Some(count) => (count, KeyOrder::Random),
        None => (DEFAULT_KEYS, KeyOrder::Seq),
    };
    Common {
        keys: Keys {
            prefix: load.key_prefix.clone(),
            count,
            order,
            seed: load.seed,
        },
        payload: load.payload,
        serializer: load.serializer,
    }
}

/// Keys that the workers may have written, of these numbers: values, and the counters of `incr`.
fn written_keys(common: &Common, numbers: Range<u64>) -> Vec<String> {
    numbers
        .flat_map(|i| {
            let key = common.keys.key(i);
            [format!("n:{key}"), key]
        })
        .collect()
}

fn settings(args: &BenchArgs, rows: &[Row], baseline: Option<usize>) -> Settings {
    let runs = args.runs.unwrap_or(DEFAULT_RUNS);
    let warmup = args.warmup.unwrap_or(DEFAULT_WARMUP);
    let length = match (args.load.requests, args.duration) {
        (Some(requests), _) => RoundLength::Ops(requests),
        (None, Some(span)) => RoundLength::Span(span),
        (None, None) => {
            let per_row = runs.saturating_add(warmup).max(1);
            let rounds = u32::try_from(rows.len())
                .unwrap_or(u32::MAX)
                .saturating_mul(per_row);
            RoundLength::Span(
                (DEFAULT_TOTAL / rounds.max(1)).clamp(Duration::from_millis(50), Duration::from_secs(1)),
            )
        }
    };
    Settings {
        runs,
        warmup,
        length,
        counted_ops: args.counted_requests,
        counted_runs: args.counted_runs,
        patience: args.timeout.unwrap_or(DEFAULT_PATIENCE),
        baseline,
        plan: plan_info(args, runs, warmup, length),
    }
}

/// What the record keeps of the command line; the server's address and password are not in it.
fn plan_info(args: &BenchArgs, runs: u32, warmup: u32, length: RoundLength) -> PlanInfo {
    fn list<T: ToString>(values: &[T]) -> String {
        values
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }
    let mut plan = BTreeMap::from([
        ("runs".to_owned(), runs.to_string()),
        ("warmup".to_owned(), warmup.to_string()),
        ("clients".to_owned(), list(&args.load.clients)),
        ("data-size".to_owned(), list(&args.load.data_size)),
        (
            "tests".to_owned(),
            args.load
                .tests
                .iter()
                .map(|op| op.name())
                .collect::<Vec<_>>()
                .join(","),
        ),
        ("seed".to_owned(), args.load.seed.to_string()),
        (
            "keyspace".to_owned(),
            args.load.keyspace.unwrap_or(DEFAULT_KEYS).to_string(),
        ),
    ]);
    match length {
        RoundLength::Ops(total) => plan.insert("requests".to_owned(), total.to_string()),
        RoundLength::Span(span) => plan.insert("duration".to_owned(), format!("{}ms", span.as_millis())),
    };
    if args.counted_runs > 1 {
        plan.insert("counted-runs".to_owned(), args.counted_runs.to_string());
    }
    if !args.load.pipeline.is_empty() {
        plan.insert("pipeline".to_owned(), list(&args.load.pipeline));
    }
    if let Some(backlog) = args.tcp_backlog {
        plan.insert("tcp-backlog".to_owned(), backlog.to_string());
    }
    PlanInfo { settings: plan }
}

/// The second line: what is run, with the long names of the flags.
fn header(settings: &Settings, rows: &[Row]) -> String {
    let flags: Vec<String> = settings
        .plan
        .settings
        .iter()
        .map(|(name, value)| format!("--{name} {value}"))
        .collect();
    format!("bench: {} rows, {}", rows.len(), flags.join(" "))
}

/// Where the lines above the table go: standard output with a table, standard error with a form that
/// programs read.
pub(super) struct Header {
    pub(super) format: Format,
    pub(super) quiet: bool,
}

impl Header {
    /// Words, which may be folded; the addresses and flags of other lines are to be copied whole.
    pub(super) fn prose(&self, text: &str) -> io::Result<()> {
        self.line(render::fold(text, &terminal::view()).trim_end())
    }

    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        match self.format {
            Format::Table => print(&format!("{text}\n")),
            Format::Markdown | Format::Csv | Format::Json => {
                warn(text);
                Ok(())
            }
        }
    }
}

/// A progress bar on standard error when that is a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(quiet: bool) -> Bar {
        let target = if quiet || !io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        Bar(ProgressBar::with_draw_target(None, target))
    }
}

impl Progress for Bar {
    fn begin(&self, steps: u64) {
        self.0.set_length(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} eta {eta} {wide_msg}") {
            self.0.set_style(style);
        }
    }

    fn step(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

pub(super) fn write_outputs(args: &BenchArgs, format: Format, record: &Record) -> Result<(), CommandError> {
    let view = View {
        all_syscalls: args.output.all,
        peers: args.output.peers,
        header: false,
        ..terminal::view()
    };
    print(&render::render(record, format, &view)?)?;
    for (path, format) in [
        (&args.output.export_markdown, Format::Markdown),
        (&args.output.export_csv, Format::Csv),
        (&args.output.export_json, Format::Json),
    ] {
        let Some(path) = path else { continue };
        let text = render::render(
            record,
            format,
            &View {
                all_syscalls: args.output.all,
                peers: args.output.peers,
                ..View::default()
            },
        )?;
        write(path, &text)?;
    }
    if let Some(path) = &args.output.export_svg {
        match render::plot::svg(record) {
            Some(picture) => write(path, &picture)?,
            None => warn("systally: --export-svg: nothing was timed, so there is nothing to draw"),
        }
    }
    Ok(())
}

/// Writes a file, or standard output for `-`.
fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    if path == Path::new("-") {
        print(text)?;
    } else {
        std::fs::write(path, text)
            .with_context(|| format!("cannot write {}: choose another place", path.display()))?;
    }
    Ok(())
}

/// Cut short first, then failures, then what the server did not confirm.
pub(super) fn exit_code(record: &Record, ignore_failure: bool) -> Code {
    let any = |status: Status| record.strategies.iter().any(|row| row.status == status);
    let failed = any(Status::Failed)
        || record
            .strategies
            .iter()
            .any(|row| row.status == Status::Ok && row.reason.is_some())
        || record.strategies.iter().all(|row| row.status == Status::Skipped);
    if !record.complete {
        Code::Incomplete
    } else if failed && !ignore_failure {
        Code::Failed
    } else if any(Status::Unverified) {
        Code::Incomplete
    } else {
        Code::Ok
    }
}
