//! `systally count`: the system calls of any program, as `strace -c -f` counts them, with both kinds of
//! time, the errors by name, and per operation when the operations are known.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use regex::bytes::Regex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::{
    self, Availability, EngineError, EngineKind, Exit, Outcome, Program, Request, Stdio, Window,
};
use crate::explain::explain;
use crate::plan::trace_set;
use crate::proc::{self, Root};
use crate::record::{
    Axes, ClientInfo, Counted, Counters, Kind, Phases, PlanInfo, Record, Status, StrategyResult, wire,
};
use crate::render::{self, CountColumn, Format, SortBy, TimeKind, View};
use crate::sys::process::{PidFd, die_by, is_ignored};
use crate::units::{Measured, Nanos, Ops};

use super::secrets::shown_command;
use super::{Code, CommandError, CommandResult, WithCode, print, terminal, warn};

/// The calls that a turn of send and receive can be made of. Whoever leaves one out may miss turns.
const SENDS_AND_RECEIVES: &[&str] = &[
    "sendto", "sendmsg", "write", "writev", "recvfrom", "recvmsg", "read", "readv",
];

/// The longest line of a program's output that is searched for its number of operations.
const LONGEST_LINE: u64 = 1 << 20;

/// `systally count`.
#[derive(Debug, Args)]
pub struct CountArgs {
    /// The program to run and count, with its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub program: Vec<OsString>,

    /// Follow children and threads; always done, accepted as strace's flag
    #[arg(short = 'f', long)]
    pub follow_forks: bool,

    /// Print counts only; always done, accepted as strace's flag
    #[arg(short = 'c', long)]
    pub summary_only: bool,

    /// Calls to count: names, %network, %file, %desc, %process, %signal, %memory, %ipc, %clock, %creds,
    /// /regex, ! for all but these
    #[arg(short = 'e', long = "trace", value_name = "trace=SET")]
    pub trace: Vec<String>,

    /// Base `% time` and usecs/call on wall time instead of CPU time
    #[arg(short = 'w', long)]
    pub summary_wall_clock: bool,

    /// Sort by
    #[arg(short = 'S', long = "summary-sort-by", value_enum, default_value_t = SortBy::Time, value_name = "COLUMN")]
    pub sort: SortBy,

    /// Columns to show
    #[arg(
        short = 'U',
        long = "summary-columns",
        value_enum,
        value_delimiter = ',',
        value_name = "COLUMNS"
    )]
    pub columns: Vec<CountColumn>,

    /// Count only calls that succeeded
    #[arg(short = 'z', long, conflicts_with = "failed_only")]
    pub successful_only: bool,

    /// Count only calls that failed
    #[arg(short = 'Z', long)]
    pub failed_only: bool,

    /// Operations that the program makes, for counts per operation
    #[arg(long, value_name = "N", conflicts_with = "ops_from", value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,

    /// Take the operations from the program's standard output: the first group of this expression, or
    /// the first number in its match; the last matching line counts
    #[arg(long, value_name = "REGEX")]
    pub ops_from: Option<String>,

    /// Keep the record (JSON) in this file; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Form of the result. A table goes to standard error, since standard output is the program's; the
    /// other forms go to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// What counts
    #[arg(long, value_enum, default_value_t = CountEngine::Ptrace)]
    pub engine: CountEngine,

    /// Leave tracer and program where the scheduler puts them, instead of on one CPU (seven times slower
    /// for one busy thread, faster for a program that keeps several CPUs busy)
    #[arg(long)]
    pub no_pin: bool,
}

/// The engines that can count a program of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CountEngine {
    /// Every call with errno, times, bytes and peers; needs no rights
    Ptrace,
    /// Every call with errno and wall time at nearly full speed; needs CAP_BPF and CAP_PERFMON
    Bpf,
    /// A few calls (those of -e, eight at most, else what clients make most) at nearly full speed, mostly
    /// without rights
    Perf,
    /// Every call with errno and wall time, by an installed strace and as slowly
    Strace,
}

impl CountEngine {
    fn kind(self) -> EngineKind {
        match self {
            CountEngine::Ptrace => EngineKind::Ptrace,
            CountEngine::Bpf => EngineKind::Bpf,
            CountEngine::Perf => EngineKind::Perf,
            CountEngine::Strace => EngineKind::Strace,
        }
    }
}

/// Runs and counts the program, prints the table, and ends as the program ended.
///
/// # Errors
/// Usage; a program that cannot be run (127 not found, 126 not executable, as shells say); no right to
/// trace (6).
pub fn run(args: &CountArgs) -> CommandResult {
    let selection = trace_set::parse(&args.trace).code(Code::Usage)?;
    let search = args
        .ops_from
        .as_deref()
        .map(|expression| Regex::new(expression).map_err(|e| anyhow!("--ops-from: {e}")))
        .transpose()
        .code(Code::Usage)?;
    let engine = engine::engine(args.engine.kind());
    if let Availability::Unavailable { why, fix } = engine.availability() {
        return Err(anyhow!("cannot count: {why}; {fix}")).code(Code::CannotMeasure);
    }
    let program = Program {
        argv: args.program.clone(),
        env: BTreeMap::new(),
        stdio: if search.is_some() {
            Stdio::PipedOutput
        } else {
            Stdio::Inherit
        },
        own_group: false,
    };
    let request = Request {
        window: Window::Whole,
        selection,
        pin: !args.no_pin,
        cpu_time: args.engine == CountEngine::Ptrace,
    };
    // Before the program exists, so that no signal finds systally without its handler. What systally was
    // told to ignore (nohup) the program ignores too.
    let handled = [SIGINT, SIGQUIT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| !is_ignored(*signal));
    let signals = Signals::new(handled).context("cannot handle signals")?;
    let started = Instant::now();
    let mut session = engine.launch(vec![program], &request).map_err(launch_error)?;
    let targets = session
        .pids()
        .iter()
        .filter_map(|pid| PidFd::open(Pid::from_raw(*pid)).ok());
    let forwarding = forward(signals, targets.collect());
    let reader = match (search, session.pipes().pop()) {
        (Some(search), Some(pipes)) => Some(thread::spawn(move || copy_and_search(pipes.stdout, &search))),
        _ => None,
    };
    let outcome = session.finish(None).code(Code::Failed)?;
    let elapsed = Nanos::from(started.elapsed());
    forwarding.close();
    let found = reader.map(|thread| thread.join().unwrap_or_default());
    let exit = outcome.exits.first().copied().unwrap_or(Exit::Code(0));
    let ops = match (args.ops, found) {
        (Some(ops), _) => Some(Ops(ops)),
        (None, Some(found)) => {
            if found.is_none() {
                warn(
                    "systally: --ops-from found no number in the program's output; counts are not per operation",
                );
            }
            found
        }
        (None, None) => None,
    };
    let record = record(args, &request, outcome, exit, ops, elapsed);
    show(args, &record)?;
    Ok(end_as(exit))
}

fn launch_error(error: EngineError) -> CommandError {
    let code = match &error {
        EngineError::Exec {
            source: nix::errno::Errno::ENOENT,
            ..
        } => Code::Child(127),
        EngineError::Exec { .. } => Code::Child(126),
        EngineError::Denied { .. } => Code::CannotMeasure,
        EngineError::System { .. } | EngineError::Broken { .. } => Code::Failed,
    };
    CommandError {
        code,
        error: error.into(),
    }
}

/// Passes on what was sent to systally alone. What the terminal sends (Ctrl-C, Ctrl-\) reaches the
/// program by itself, and systally only stays to print the table.
fn forward(mut signals: Signals, targets: Vec<PidFd>) -> signal_hook::iterator::Handle {
    let handle = signals.handle();
    thread::spawn(move || {
        for number in signals.forever() {
            let from_terminal = matches!(number, SIGINT | SIGQUIT)
                && tcgetpgrp(io::stdin())
                    .or_else(|_| tcgetpgrp(io::stderr()))
                    .is_ok_and(|group| group == getpgrp());
            for target in targets.iter().filter(|_| !from_terminal) {
                // A program that has just ended is no reason to complain.
                let _ = target.signal(number);
            }
        }
    });
    handle
}

/// Copies the program's output as it comes, and returns the number that the expression finds last.
fn copy_and_search(output: OwnedFd, search: &Regex) -> Option<Ops> {
    let mut reader = BufReader::new(std::fs::File::from(output));
    let mut found = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return found,
            Ok(_) => {}
        }
        let mut out = io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            // Nobody reads any more (`| head`). Closing our end lets the program's own next write say so.
            return found;
        }
        found = ops_in(&line, search).or(found);
    }
}

/// The first group of the match, or the first digits in it.
fn ops_in(line: &[u8], search: &Regex) -> Option<Ops> {
    let captures = search.captures(line)?;
    let text = captures.get(1).or_else(|| captures.get(0))?.as_bytes();
    let digits: Vec<u8> = text
        .iter()
        .copied()
        .skip_while(|b| !b.is_ascii_digit())
        .take_while(|b| b.is_ascii_digit() || matches!(b, b',' | b'_'))
        .filter(u8::is_ascii_digit)
        .collect();
    let number: u64 = std::str::from_utf8(&digits).ok()?.parse().ok()?;
    (number > 0).then_some(Ops(number))
}

fn record(
    args: &CountArgs,
    request: &Request,
    outcome: Outcome,
    exit: Exit,
    ops: Option<Ops>,
    elapsed: Nanos,
) -> Record {
    let can = engine::engine(args.engine.kind()).capabilities();
    let chosen = |names: &[&str]| names.iter().all(|name| request.selection.contains_all(name));
    let per_op = |count: u64, needed: &[&str]| match ops.and_then(|ops| ops.per_op(count)) {
        _ if !can.peers => {
            Measured::NotMeasured(format!("the {} engine does not see peers", args.engine.kind()))
        }
        _ if !chosen(needed) => {
            Measured::NotMeasured(format!("{} is not among the chosen calls", needed.join(", ")))
        }
        Some(value) => Measured::Known(value),
        None => Measured::NotMeasured("the operations of the program are not known".to_owned()),
    };
    let mut notes = outcome.notes;
    if ops.is_some() {
        notes.push("start-up and shutdown of the program are in its counts per operation".to_owned());
    }
    let counted = outcome.tallies.map(|tallies| Counted {
        engine: args.engine.kind().name().to_owned(),
        ops,
        elapsed,
        slowdown: Measured::NotMeasured("the program was not run untraced".to_owned()),
        connects_per_op: per_op(tallies.run_loop.connects, &["connect"]),
        round_trips_per_op: per_op(tallies.run_loop.round_trips, SENDS_AND_RECEIVES),
        sends_per_batch: Measured::NotMeasured("the batches of the program are not known".to_owned()),
        floor_ratio: Measured::NotMeasured("the batches of the program are not known".to_owned()),
        phases: Phases::from_tallies(&tallies, can, request.cpu_time),
        client_errors: BTreeMap::new(),
        cpu: outcome.cpu.map(|cpu| (cpu.user, cpu.system)),
        notes,
    });
    let first = args
        .program
        .first()
        .map(|p| Path::new(p).file_name().unwrap_or(p).to_string_lossy());
    let name = crate::units::escape(&first.unwrap_or_default(), 80);
    let row = StrategyResult {
        name: name.clone(),
        axes: Axes {
            op: String::new(),
            transport: String::new(),
            pipeline: 1,
            payload_bytes: 0,
            clients: 1,
        },
        client: ClientInfo {
            name,
            ..ClientInfo::default()
        },
        status: Status::Ok,
        reason: None,
        failure: None,
        timed: Measured::NotMeasured("count does not time".to_owned()),
        counted,
        varied: Vec::new(),
        witness: Measured::NotMeasured("count counts once".to_owned()),
        server_view: Measured::NotMeasured("no server was asked".to_owned()),
    };
    let mut record = Record {
        kind: Kind::Count,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: true,
        host: proc::host(&Root::live()),
        server: None,
        plan: PlanInfo {
            settings: BTreeMap::from([
                ("command".to_owned(), shown_command(&args.program)),
                ("ended".to_owned(), exit.to_string()),
            ]),
        },
        strategies: vec![row],
        limits: Vec::new(),
        counters: Counters::default(),
        findings: Vec::new(),
        imports: Vec::new(),
    };
    record.findings = explain(&record);
    record
}

fn show(args: &CountArgs, record: &Record) -> Result<(), CommandError> {
    let view = View {
        sort: args.sort,
        time: if args.summary_wall_clock {
            TimeKind::Wall
        } else {
            TimeKind::Cpu
        },
        columns: args.columns.clone(),
        header: false,
        ..terminal::view_of_stderr()
    };
    match &args.output {
        Some(path) if path == Path::new("-") => print(&render::render(record, Format::Json, &view)?)?,
        Some(path) => wire::save(record, path)?,
        None => {}
    }
    let text = match (args.successful_only, args.failed_only) {
        (false, false) => render::render(record, args.format, &view)?,
        (_, failed) => render::render(&only(record, failed), args.format, &view)?,
    };
    match args.format {
        Format::Table => warn(text.trim_end()),
        Format::Markdown | Format::Csv | Format::Json => print(&text)?,
    }
    Ok(())
}

/// The record with only the calls that failed, or only those that did not. Times and bytes are of all
/// calls together and cannot be divided, so they are not shown.
fn only(record: &Record, failed: bool) -> Record {
    let mut record = record.clone();
    let why = || "times and bytes are not kept apart for calls that failed".to_owned();
    for row in &mut record.strategies {
        let Measured::Known(counted) = &mut row.counted else {
            continue;
        };
        let phases = &mut counted.phases;
        for phase in [&mut phases.startup, &mut phases.run_loop, &mut phases.shutdown] {
            for call in phase.syscalls.values_mut() {
                let failures = call.failed().unwrap_or(0);
                if failed {
                    call.calls = failures;
                    call.restarts.clear();
                } else {
                    call.calls -= failures.min(call.calls);
                    call.errors = Measured::Known(BTreeMap::new());
                }
                call.unfinished = 0;
                call.wall = Measured::NotMeasured(why());
                call.cpu = Measured::NotMeasured(why());
                call.bytes = Measured::NotMeasured(why());
            }
            phase.syscalls.retain(|_, call| call.calls > 0);
        }
    }
    record
}

/// Ends as the program did: with its status, or by its signal. systally leaves no core file of its own.
fn end_as(exit: Exit) -> Code {
    match exit {
        Exit::Code(status) => Code::Child(status.to_le_bytes()[0]),
        Exit::Signal(number) => {
            die_by(number);
            // Only a signal whose default is not to end a process gets here.
            Code::Child(128u8.wrapping_add(number.to_le_bytes()[0]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_the_first_group_or_the_first_number() {
        let find = |regex: &str, line: &str| ops_in(line.as_bytes(), &Regex::new(regex).expect("a regex"));
        assert_eq!(
            find(r"(\d+) requests completed", "  100000 requests completed in 1 s"),
            Some(Ops(100_000))
        );
        assert_eq!(find("ops.*", "ops: 1,234 in 5 s"), Some(Ops(1_234)));
        assert_eq!(find("done", "done"), None);
        assert_eq!(find(r"(\d+)", "99999999999999999999999"), None);
        assert_eq!(find(r"(\d+)", "0"), None);
    }
}
