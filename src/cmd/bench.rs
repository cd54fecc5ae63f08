//! `systally bench`: time client strategies untraced, count their system calls, check with the server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow};

use crate::cli::{BenchArgs, LoadArgs};
use crate::engine::{self, EngineKind};
use crate::files;
use crate::plan::rows::{Common, DEFAULT_OP, Matrix, Row, rows};
use crate::plan::{DEFAULT_KEYS, DEFAULT_RUNS};
use crate::record::{PlanInfo, Record, Status, wire};
use crate::run::interrupt::Interrupt;
use crate::run::prove::arm::Groups;
use crate::run::{Bench, RoundLength, Save, Settings, out_of_reach};
use crate::server::{PrivateOptions, ServerChoice, Servers, Wanted};
use crate::strategy::contract::{Connect, KeyOrder, Keys, Store};
use crate::strategy::{Registry, ScriptSource, Strategy, program_strategies};
use crate::sys::namespace::set_open_files_of;

use super::outputs::{Header, file, form, places, write_outputs};
use super::progress::Bar;
use super::servers::{start, wanted};
use super::written_keys::{clean_up, keys_of, to_clean};
use super::{Code, CommandError, CommandResult, WithCode, counting, need_proc, prove, scenario, secrets};

/// What all timed rounds together take when nobody sets their length.
const DEFAULT_TOTAL: Duration = Duration::from_secs(11);

/// Warm-up and patience when nobody sets them.
pub(super) const DEFAULT_WARMUP: u32 = 1;
pub(super) const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

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
    args.server.uri = args.server.uri.take().or(args.server_uri.take());
    secrets::hide(&mut args.server)?;
    let args = &*args;
    let form = form(&args.output);
    places(&args.output)?;
    need_proc()?;
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
        return Err(anyhow!(
            "none of the clients that systally knows works against this server; `systally list` shows what they work against"
        ))
        .code(Code::Usage);
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
    let keys = keys_of(&rows, &common);
    let to_clean = to_clean(&mut servers, &keys)?;
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
    let mut record = {
        let steps = file(args.output.output.as_deref()).filter(|path| files::is_replaced(path));
        let mut save = steps.map(|path| {
            // Whether it can be kept is asked and told at the end.
            move |record: &Record| drop(wire::save(record, path))
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
    clean_up(&mut servers, &to_clean, &keys);
    servers.stop();
    if args.prove && record.complete {
        show.line("proving: each suspected limit is changed by turns, elsewhere")?;
        prove::prove(args, &mut record, &interrupt);
        if interrupt.requested() {
            record.complete = false;
        } else if record.proofs.is_empty() {
            show.line("proving: nothing to prove, no finding suspects a limit that can be changed")?;
        }
    }
    interrupt.release();
    write_outputs(args, form, &record)?;
    Ok(exit_code(&record, args.ignore_failure))
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
    let mut chosen = Vec::new();
    if !args.strategies.is_empty() || args.program.is_empty() {
        let source = ScriptSource::from_env(args.clients_file.clone()).code(Code::Usage)?;
        let registry = Registry::load(&source).code(Code::Usage)?;
        if args.strategies.is_empty() && memcached {
            let all = registry.select(&["*/*/*".to_owned()]).code(Code::Usage)?;
            chosen.extend(all.into_iter().filter(|one| one.store() == Store::Memcached));
        } else {
            chosen.extend(registry.select(&args.strategies).code(Code::Usage)?);
        }
    }
    let taken: Vec<&str> = chosen.iter().map(|one: &Strategy| one.client.name()).collect();
    let own = program_strategies(&args.program, &taken);
    chosen.splice(0..0, own);
    if let Some(keep) = args.load.keep_alive {
        let per_op = |s: &Strategy| matches!(s.mode.connect, Connect::PerOp);
        let (kept, dropped): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|one| per_op(one) == (keep == 0));
        if kept.is_empty() && !dropped.is_empty() {
            return Err(dropped_by_keep_alive(keep, &dropped, args)).code(Code::Usage);
        }
        chosen = kept;
    }
    Ok(chosen)
}

/// Why nothing is left of what was chosen, and what to do.
fn dropped_by_keep_alive(keep: u8, dropped: &[Strategy], args: &BenchArgs) -> anyhow::Error {
    /// Strategies that are named one by one.
    const NAMED: usize = 3;
    let (left, such) = match keep {
        0 => ("that connect for each operation", "'*/connect'"),
        _ => ("that keep their connection", "'*/persistent'"),
    };
    if !args.program.is_empty() && args.strategies.is_empty() {
        return anyhow!(
            "--keep-alive {keep} leaves only modes {left}, and a program behind -- counts as one that keeps its \
             connection; leave --keep-alive out: what the program does is counted all the same"
        );
    }
    let mut names: Vec<String> = dropped
        .iter()
        .take(NAMED)
        .map(|one| one.name().to_string())
        .collect();
    if dropped.len() > NAMED {
        names.push(format!("{} more", dropped.len() - NAMED));
    }
    anyhow!(
        "--keep-alive {keep} leaves only modes {left}, and there is none among what was chosen ({}); leave \
         --keep-alive out, or name such modes: {such}",
        names.join(", ")
    )
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
        usage: false,
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
        ("seed".to_owned(), args.load.seed.to_string()),
        (
            "keyspace".to_owned(),
            args.load.keyspace.unwrap_or(DEFAULT_KEYS).to_string(),
        ),
    ]);
    let tests = match args.load.tests.as_slice() {
        [] => &[DEFAULT_OP],
        asked => asked,
    };
    let tests: Vec<&str> = tests.iter().map(|op| op.name()).collect();
    plan.insert("tests".to_owned(), tests.join(","));
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
