//! `systally count`: the system calls of any program, as `strace -c -f` counts them, with both kinds of
//! time, the errors by name, and per operation when the operations are known. The program is started for
//! it, or is running already (`attach`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use regex::bytes::Regex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::{
    self, Availability, EngineError, EngineKind, Exit, Failures, Order, Program, Request, Stdio, Window,
};
use crate::files;
use crate::plan::trace_set;
use crate::render::{CountColumn, Format, SortBy};
use crate::sys::process::{PidFd, default_signals, die_by, is_ignored};
use crate::units::{Nanos, Ops, escape, parse_span};

use super::attach;
use super::count_ops::{Found, copy_and_search};
use super::count_result::{self, Finished};
use super::count_server::Watch;
use super::secrets::{hide_uri, shown_command};
use super::{Code, CommandError, CommandResult, WithCode, warn};

/// How long descendants that have outlived the program may take to end after TERM or HUP.
const TERM_PATIENCE: Duration = Duration::from_secs(3);
/// How often to look whether the program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Above the options for programs that run already.
const ATTACH: &str = "Running programs";

/// `systally count`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("attached").args(["pid", "name", "cgroup"]).multiple(true)))]
pub struct CountArgs {
    /// The program to run and count, with its arguments
    #[arg(
        required_unless_present_any = ["pid", "name", "cgroup"],
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

    /// Count failed calls too where that costs extra: `--engine perf` leaves them out. The other engines see
    /// them anyway, all but ptrace-counts
    #[arg(long)]
    pub errors: bool,

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

    /// Form of the result. A table, also that of strace, goes to standard error, since standard output is the
    /// program's; the other forms go to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// What counts
    #[arg(long, value_enum, default_value_t = CountEngine::Ptrace)]
    pub engine: CountEngine,

    /// Attach to running processes, by id: commas or spaces make lists. Ctrl-C or --for ends the count, and
    /// the programs run on
    #[arg(short = 'p', long = "pid", value_name = "PID", help_heading = ATTACH, conflicts_with = "program",
          value_parser = parse_pids)]
    pub pid: Vec<Pids>,

    /// Attach to all processes of that name, or whose program's file has it; *, ? and [] are patterns
    #[arg(long, value_name = "NAME", help_heading = ATTACH, conflicts_with = "program")]
    pub name: Vec<String>,

    /// Attach to the processes in that control group
    #[arg(long, value_name = "PATH", help_heading = ATTACH, conflicts_with = "program")]
    pub cgroup: Vec<String>,

    /// Attach to all that descend from these processes too
    #[arg(long, help_heading = ATTACH, conflicts_with = "program", requires = "attached")]
    pub tree: bool,

    /// How long to count: 500ms, 10s, 2m [default: until Ctrl-C]
    #[arg(long = "for", value_name = "SPAN", help_heading = ATTACH, conflicts_with = "program",
          requires = "attached", value_parser = parse_span)]
    pub span: Option<Duration>,

    /// Take the operations from this server's own command counters: redis://[user:password@]host[:port] or
    /// unix:///path. REDISCLI_AUTH keeps the password out of the process list
    #[arg(long, value_name = "URI", conflicts_with_all = ["ops", "ops_from"])]
    pub server: Option<String>,

    /// A second table: calls by what their descriptor leads to
    #[arg(long)]
    pub peers: bool,

    /// Only calls on descriptors that lead there (an address as --peers shows it)
    #[arg(long, value_name = "PEER", conflicts_with_all = ["connections", "successful_only", "failed_only"])]
    pub only_peer: Vec<String>,

    /// Only calls on connections that the program made: to the server that --server names, else to any
    #[arg(long, conflicts_with_all = ["successful_only", "failed_only"])]
    pub connections: bool,

    /// Leave tracer and program where the scheduler puts them, instead of on one CPU (seven times slower
    /// for one busy thread, faster for a program that keeps several CPUs busy)
    #[arg(long)]
    pub no_pin: bool,
}

/// The ids of one `-p`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pids(pub Vec<i32>);

/// Reads a list of process ids as strace does: `"$(pidof php)"` works.
fn parse_pids(text: &str) -> Result<Pids, String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let pids: Vec<i32> = words
        .filter(|word| !word.is_empty())
        .map(|word| match word.parse() {
            Ok(pid) if pid > 0 => Ok(pid),
            Ok(_) | Err(_) => Err(format!("'{}' is no process id", escape(word, 40))),
        })
        .collect::<Result<_, _>>()?;
    if pids.is_empty() {
        return Err("no process id is in it".to_owned());
    }
    Ok(Pids(pids))
}

impl CountArgs {
    /// Whether running programs are to be counted, and none is started.
    pub fn attaches(&self) -> bool {
        !(self.pid.is_empty() && self.name.is_empty() && self.cgroup.is_empty())
    }

    /// Whether only calls on some peers are to be shown.
    fn asks_for_peers(&self) -> bool {
        self.peers || self.connections || !self.only_peer.is_empty()
    }
}

/// The engines that can count a program of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CountEngine {
    /// Every call with errno, times, bytes and peers; needs no rights
    Ptrace,
    /// Every call at half the cost of ptrace, without errno, times, bytes and peers; needs no rights
    PtraceCounts,
    /// Every call with errno and wall time at nearly full speed; needs CAP_BPF and CAP_PERFMON
    Bpf,
    /// A few calls (those of -e, eight at most, else what clients make most) at nearly full speed, mostly
    /// without rights
    Perf,
    /// Every call with errno and wall time, by an installed strace and as slowly
    Strace,
}

impl CountEngine {
    /// The engine.
    pub fn kind(self) -> EngineKind {
        match self {
            CountEngine::Ptrace => EngineKind::Ptrace,
            CountEngine::PtraceCounts => EngineKind::PtraceCounts,
            CountEngine::Bpf => EngineKind::Bpf,
            CountEngine::Perf => EngineKind::Perf,
            CountEngine::Strace => EngineKind::Strace,
        }
    }
}

/// Counts, prints the table, and ends as the program ended (an attached one does not end: 0).
///
/// # Errors
/// Usage; a program that cannot be run (127 not found, 126 not executable, as shells say); no right to
/// trace (6); a server that cannot be used.
pub fn run(args: &mut CountArgs) -> CommandResult {
    hide_uri("--server", &mut args.server)?;
    let args = &*args;
    mistyped(&args.program)?;
    let selection = trace_set::parse(&args.trace).code(Code::Usage)?;
    if args.attaches() && args.ops_from.is_some() {
        return Err(anyhow!(
            "--ops-from reads the output of a program that systally starts; for a running one use --server or --ops"
        ))
        .code(Code::Usage);
    }
    let engine = engine::engine(args.engine.kind());
    if args.asks_for_peers() && !engine.capabilities().peers {
        return Err(anyhow!(
            "the {} engine does not see where descriptors lead; use --engine ptrace for --peers, --only-peer and \
             --connections",
            engine.kind()
        ))
        .code(Code::Usage);
    }
    let wants_failures = args.errors || args.successful_only || args.failed_only;
    if wants_failures && !engine.capabilities().errors {
        return Err(anyhow!(
            "the {} engine does not see which calls fail; use another one for --errors, -z and -Z",
            engine.kind()
        ))
        .code(Code::Usage);
    }
    // Before anything runs: what cannot be kept is not worth counting.
    if let Some(path) = args.output.as_deref().filter(|path| *path != Path::new("-")) {
        files::check(path).code(Code::Usage)?;
    }
    let request = Request {
        window: Window::Whole,
        selection,
        pin: !args.no_pin,
        cpu_time: args.engine == CountEngine::Ptrace,
        failures: if wants_failures {
            Failures::All
        } else {
            Failures::Free
        },
    };
    let watch = args.server.as_deref().map(Watch::open).transpose()?;
    if args.attaches() {
        attach::run(args, &request, watch)
    } else {
        launch(args, &request, watch)
    }
}

/// An option that this command does not know looks like the program. After `--` it is one.
///
/// # Errors
/// When the first word begins with `-` and no `--` stands before it.
fn mistyped(program: &[OsString]) -> Result<(), CommandError> {
    let Some(first) = program.first().filter(|first| first.as_bytes().starts_with(b"-")) else {
        return Ok(());
    };
    if std::env::args_os()
        .take_while(|word| word != first)
        .any(|word| word == "--")
    {
        return Ok(());
    }
    Err(anyhow!(
        "count has no option {}; see count --help (a program whose name begins so goes behind --)",
        escape(&first.to_string_lossy(), 80)
    ))
    .code(Code::Usage)
}

/// Starts the program and counts it to its end.
fn launch(args: &CountArgs, request: &Request, mut watch: Option<Watch>) -> CommandResult {
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
    // Before the program exists, so that no signal finds systally without its handler. What systally was
    // told to ignore (nohup) the program ignores too.
    let handled = [SIGINT, SIGQUIT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| !is_ignored(*signal));
    let signals = Signals::new(handled).context("cannot handle signals")?;
    if let Some(watch) = &mut watch {
        watch.begin()?;
    }
    let started = Instant::now();
    let mut session = engine.launch(vec![program], request).map_err(engine_error)?;
    let targets = session
        .pids()
        .iter()
        .filter_map(|pid| PidFd::open(Pid::from_raw(*pid)).ok());
    let forwarding = forward(signals, targets.collect(), session.order())?;
    let reader = match (search, session.pipes().pop()) {
        (Some(search), Some(pipes)) => Some(
            thread::Builder::new()
                .spawn(move || copy_and_search(pipes.stdout, &search))
                .context("cannot start a thread that reads the program's output (ulimit -u)")
                .code(Code::CannotMeasure)?,
        ),
        _ => None,
    };
    let mut outcome = session.finish(None).code(Code::Failed)?;
    let elapsed = Nanos::from(started.elapsed());
    forwarding.close();
    // Nothing is left that could be passed on to: whoever ends systally now means systally.
    default_signals();
    let served = watch.map(Watch::end);
    let found = reader.map(|thread| thread.join().unwrap_or(Found::Nothing));
    let exit = outcome.exits.first().copied().unwrap_or(Exit::Code(0));
    let ops = match (args.ops, &served, found) {
        (Some(ops), ..) => Some(Ops(ops)),
        (None, Some(served), _) => served.ops,
        (None, None, Some(Found::Ops(ops))) => Some(ops),
        (None, None, Some(without)) => {
            warn(&format!(
                "systally: --ops-from {without}; counts are not per operation"
            ));
            None
        }
        (None, None, None) => None,
    };
    if ops.is_some() {
        outcome
            .notes
            .push("start-up and shutdown of the program are in its counts per operation".to_owned());
    }
    let first = args
        .program
        .first()
        .map(|p| Path::new(p).file_name().unwrap_or(p).to_string_lossy());
    let finished = Finished {
        name: escape(&first.unwrap_or_default(), 80),
        settings: BTreeMap::from([
            ("command".to_owned(), shown_command(&args.program)),
            ("ended".to_owned(), exit.to_string()),
        ]),
        outcome,
        ops,
        elapsed,
        served,
    };
    count_result::show(args, request, finished)?;
    Ok(end_as(exit))
}

/// The code that an engine's error ends with.
pub(super) fn engine_error(error: EngineError) -> CommandError {
    let code = match &error {
        EngineError::Exec {
            source: nix::errno::Errno::ENOENT,
            ..
        } => Code::Child(127),
        EngineError::Exec { .. } => Code::Child(126),
        EngineError::Denied { .. } => Code::CannotMeasure,
        EngineError::System { .. } | EngineError::NoProcess { .. } | EngineError::Broken { .. } => {
            Code::Failed
        }
        // As for processes that were never there.
        EngineError::NoneLeft | EngineError::CannotAttach { .. } => Code::Usage,
    };
    CommandError {
        code,
        error: error.into(),
    }
}

/// Passes on what was sent to systally alone. What the terminal sends (Ctrl-C, Ctrl-\) reaches the
/// program by itself, and systally only stays to print the table.
///
/// When the program has ended, then or by that signal, the signal goes to all that it left behind and is still
/// counted, and what does not end by it is killed: nobody else would end it, and the table waits for it.
///
/// # Errors
/// When no thread can be started for it.
fn forward(
    mut signals: Signals,
    targets: Vec<PidFd>,
    everything: Order,
) -> Result<signal_hook::iterator::Handle, CommandError> {
    let targets = Arc::new(targets);
    let handle = signals.handle();
    let pass_on = move || {
        for number in signals.forever() {
            let from_terminal = matches!(number, SIGINT | SIGQUIT)
                && tcgetpgrp(io::stdin())
                    .or_else(|_| tcgetpgrp(io::stderr()))
                    .is_ok_and(|group| group == getpgrp());
            if from_terminal {
                continue;
            }
            for target in targets.iter() {
                // One that has ended is no error; what it left behind is seen to below.
                let _ = target.signal(number);
            }
            if matches!(number, SIGTERM | SIGHUP | SIGINT | SIGQUIT) {
                let (program, left) = (Arc::clone(&targets), everything.clone());
                let end = move || {
                    // Until it is reaped, a signal can still be sent to it. It may take its time to end.
                    while program.iter().any(|target| target.signal(0).is_ok()) {
                        thread::sleep(LOOK_EVERY);
                    }
                    left.signal_all(number);
                    thread::sleep(TERM_PATIENCE);
                    left.signal_all(libc::SIGKILL);
                };
                // Without room for a thread nobody waits.
                if thread::Builder::new().spawn(end).is_err() {
                    everything.signal_all(number);
                }
            }
        }
    };
    thread::Builder::new()
        .spawn(pass_on)
        .context("cannot start a thread that passes signals on (ulimit -u)")
        .code(Code::CannotMeasure)?;
    Ok(handle)
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
    fn process_ids_come_in_lists() {
        assert_eq!(parse_pids("12"), Ok(Pids(vec![12])));
        assert_eq!(parse_pids("12, 13\n14 "), Ok(Pids(vec![12, 13, 14])));
        for bad in ["", " ", "x", "0", "-4", "12,y", "99999999999"] {
            assert!(parse_pids(bad).is_err(), "{bad}");
        }
    }
}
