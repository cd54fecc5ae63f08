//! `systally count`: the system calls of any program, as `strace -c -f` counts them, with both kinds of
//! time, the errors by name, and per operation when the operations are known. The program is started for
//! it, or is running already (`attach`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use nix::unistd::Pid;
use regex::bytes::Regex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::{
    Availability, Engine, EngineError, EngineKind, Exit, Failures, Program, Request, Stdio, Window,
};
use crate::files;
use crate::plan::trace_set;
use crate::sys::process::{PidFd, default_signals, die_by, is_ignored};
use crate::units::{Nanos, Ops, escape};

use super::attach;
use super::count_engine::Chosen;
use super::count_ops::{Found, copy_and_search};
use super::count_output::SharedOutput;
use super::count_result::{self, Finished};
use super::count_server::Watch;
use super::count_signals::forward;
use super::secrets::{hide_uri, shown_command};
use super::{Code, CommandError, CommandResult, WithCode, warn};

pub use super::count_args::{CountArgs, CountEngine, Pids};

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
    let chosen = Chosen::new(args);
    let engine = chosen.engine;
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
        cpu_time: engine.kind() == EngineKind::Ptrace,
        failures: if wants_failures {
            Failures::All
        } else {
            Failures::Free
        },
    };
    let watch = args.server.as_deref().map(Watch::open).transpose()?;
    if args.attaches() {
        attach::run(args, chosen, &request, watch)
    } else {
        launch(args, engine, &request, watch)
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
fn launch(
    args: &CountArgs,
    engine: &dyn Engine,
    request: &Request,
    mut watch: Option<Watch>,
) -> CommandResult {
    let search = args
        .ops_from
        .as_deref()
        .map(|expression| Regex::new(expression).map_err(|e| anyhow!("--ops-from: {e}")))
        .transpose()
        .code(Code::Usage)?;
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
    let output = args.shares_output().then(SharedOutput::now);
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
    let hint = output.and_then(SharedOutput::hint);
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
        engine: engine.kind(),
    };
    count_result::show(args, request, finished)?;
    if let Some(hint) = hint {
        warn(hint);
    }
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
