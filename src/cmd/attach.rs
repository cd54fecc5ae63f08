//! `systally count -p`: counts programs that are running already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::engine::{Attachment, Availability, EngineKind, Finder, Request};
use crate::proc::Root;
use crate::proc::processes::{self, NamePattern, Standing};
use crate::sys::process::{default_signals, is_ignored};
use crate::units::{Nanos, Ops, escape};

use super::count::{CountArgs, engine_error};
use super::count_engine::Chosen;
use super::count_result::{self, Finished};
use super::count_server::Watch;
use super::{Code, CommandError, CommandResult, WithCode, need_proc, warn};

/// Processes that are named one by one in messages.
const NAMED: usize = 5;

/// Attaches, counts until the time is over or somebody says so, detaches and prints the table.
///
/// # Errors
/// Processes that do not exist (usage) or may not be counted (6).
pub(super) fn run(
    args: &CountArgs,
    chosen: Chosen,
    request: &Request,
    mut watch: Option<Watch>,
) -> CommandResult {
    need_proc()?;
    let root = Root::live();
    let mut wanted = Wanted::new(args, &root)?;
    let engine = chosen.engine;
    if engine.kind() != EngineKind::Ptrace
        && let Availability::Unavailable { why, fix } = engine.availability()
    {
        return Err(anyhow!("cannot count: {why}; {fix}")).code(Code::CannotMeasure);
    }
    let stop = stop_flag()?;
    let find: Finder = {
        let (wanted, root) = (wanted.clone(), root.clone());
        Arc::new(move || wanted.find(&root))
    };
    let mut attachment = engine.attach(find, request).map_err(engine_error)?;
    let names = names(&root, attachment.processes());
    for refusal in attachment.refused() {
        warn(&format!(
            "systally: not counted: {}; {}",
            refusal.why, refusal.fix
        ));
    }
    let answered: BTreeSet<i32> = attachment
        .processes()
        .iter()
        .copied()
        .chain(attachment.refused().iter().map(|refusal| refusal.pid))
        .collect();
    for pid in wanted.pids.difference(&answered) {
        warn(&format!(
            "systally: process {pid} ended before it could be counted"
        ));
        wanted.missing.insert(*pid);
    }
    let until = match args.span {
        Some(span) => format!("for {}", Nanos::from(span)),
        None => "until Ctrl-C".to_owned(),
    };
    let why = chosen.why.map(|why| format!(" ({why})")).unwrap_or_default();
    warn(&format!(
        "systally: counting {names}, by {}{why}, {until}",
        chosen.kind()
    ));
    let began = std::time::Instant::now();
    // Nothing more to do about the processes when the server fails here: dropping lets them go.
    if let Some(watch) = &mut watch {
        watch.begin()?;
    }
    attachment
        .wait(args.span, &|| stop.load(Ordering::Relaxed))
        .map_err(engine_error)?;
    let served = watch.map(Watch::end);
    let elapsed = Nanos::from(began.elapsed());
    let finished = finished(args, chosen.kind(), &wanted, &names, attachment, elapsed, served)?;
    // A server that got nothing to do is an answer; one that gave none is not.
    let unknown_ops = finished
        .served
        .as_ref()
        .is_some_and(|served| served.view.known().is_none());
    let incomplete = unknown_ops
        || ["refused", "missing"]
            .iter()
            .any(|key| finished.settings.contains_key(*key));
    count_result::show(args, request, finished)?;
    Ok(if incomplete { Code::Incomplete } else { Code::Ok })
}

fn finished(
    args: &CountArgs,
    engine: EngineKind,
    wanted: &Wanted,
    names: &str,
    attachment: Box<dyn Attachment>,
    elapsed: Nanos,
    served: Option<super::count_server::Served>,
) -> Result<Finished, CommandError> {
    let list = |pids: &mut dyn Iterator<Item = i32>| {
        let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
        pids.join(",")
    };
    let mut settings = BTreeMap::from([(
        "pid".to_owned(),
        list(&mut attachment.processes().iter().copied()),
    )]);
    if let Some(span) = args.span {
        settings.insert("for".to_owned(), format!("{}ms", span.as_millis()));
    }
    if !attachment.refused().is_empty() {
        settings.insert(
            "refused".to_owned(),
            list(&mut attachment.refused().iter().map(|refusal| refusal.pid)),
        );
    }
    if !wanted.missing.is_empty() {
        settings.insert("missing".to_owned(), list(&mut wanted.missing.iter().copied()));
    }
    let over = args.span.is_some_and(|span| elapsed < Nanos::from(span));
    let processes = attachment.processes().to_vec();
    let mut outcome = attachment.detach().map_err(engine_error)?;
    // The programs are let go: what remains is to write, and that may be ended in the middle.
    default_signals();
    let root = Root::live();
    if over && !processes.iter().any(|pid| alive(&root, *pid)) {
        outcome
            .notes
            .push(format!("all counted processes had ended after {elapsed}"));
    }
    if engine == EngineKind::Ptrace {
        let bpf = match crate::engine::engine(EngineKind::Bpf).availability() {
            Availability::Ready => "--engine bpf, which may be used here,",
            Availability::Unavailable { .. } => "with CAP_BPF and CAP_PERFMON, --engine bpf",
        };
        outcome.notes.push(format!(
            "the program was slowed down while it was counted; {bpf} counts a running program at nearly full speed"
        ));
    }
    Ok(Finished {
        name: names.to_owned(),
        settings,
        outcome,
        ops: args
            .ops
            .map(Ops)
            .or(served.as_ref().and_then(|served| served.ops)),
        elapsed,
        served,
        engine,
    })
}

fn alive(root: &Root, pid: i32) -> bool {
    crate::proc::process::is_alive(root, pid).unwrap_or(false)
}

/// What was asked for, to be looked for again and again.
#[derive(Debug, Clone)]
struct Wanted {
    pids: BTreeSet<i32>,
    /// Those that were named and are not there.
    missing: BTreeSet<i32>,
    names: Vec<NamePattern>,
    cgroups: Vec<String>,
    tree: bool,
}

impl Wanted {
    /// Makes sure that something is there to begin with.
    fn new(args: &CountArgs, root: &Root) -> Result<Wanted, CommandError> {
        let (mut pids, mut missing) = (BTreeSet::new(), BTreeSet::new());
        for pid in args.pid.iter().flat_map(|pids| pids.0.iter().copied()) {
            match processes::process_of(root, pid) {
                Some(process) if process == own_pid() => {
                    return Err(anyhow!("-p {pid} is systally itself")).code(Code::Usage);
                }
                Some(process) => match without_program(root, process) {
                    None => {
                        if process != pid {
                            warn(&format!(
                                "systally: {pid} is a thread of process {process}, which is counted with all its threads"
                            ));
                        }
                        pids.insert(process);
                    }
                    Some(why) => {
                        warn(&format!("systally: {why}"));
                        missing.insert(pid);
                    }
                },
                None => {
                    warn(&format!("systally: there is no process {pid}"));
                    missing.insert(pid);
                }
            }
        }
        let names = args
            .name
            .iter()
            .map(|glob| {
                if glob.trim().is_empty() {
                    return Err(anyhow!(
                        "--name '': no process has an empty name; give the name that ps shows, such as --name php-fpm, \
                         or a pattern such as --name 'php*'"
                    ));
                }
                NamePattern::new(glob)
                    .ok_or_else(|| anyhow!("--name {}: the brackets hold nothing possible", escape(glob, 80)))
            })
            .collect::<Result<_, _>>()
            .code(Code::Usage)?;
        let wanted = Wanted {
            pids,
            missing,
            names,
            cgroups: args.cgroup.clone(),
            tree: args.tree,
        };
        for group in &wanted.cgroups {
            if processes::is_root_group(group) {
                return Err(anyhow!(
                    "--cgroup {}: that is the group of the whole machine, and all of it would be stopped for a moment; \
                     name a group below it",
                    if group.is_empty() { "''".to_owned() } else { escape(group, 200) }
                ))
                .code(Code::Usage);
            }
            processes::in_cgroup(root, group)
                .with_context(|| format!("--cgroup {}", escape(group, 200)))
                .code(Code::Usage)?;
        }
        if wanted.find(root).is_empty() {
            return Err(anyhow!("there is no process to attach to{}", nearly(args, root))).code(Code::Usage);
        }
        Ok(wanted)
    }

    /// The processes that are there now, never systally itself.
    fn find(&self, root: &Root) -> Vec<i32> {
        let mut found: Vec<i32> = self.pids.iter().copied().collect();
        if !self.names.is_empty() {
            let fits = |pid: &i32| self.names.iter().any(|name| name.fits(root, *pid));
            found.extend(processes::all(root).into_iter().filter(fits));
        }
        for group in &self.cgroups {
            // It was there a moment ago; an empty one may be removed.
            found.extend(processes::in_cgroup(root, group).unwrap_or_default());
        }
        if self.tree {
            found = processes::with_descendants(root, &found);
        }
        let mut seen = BTreeSet::from([own_pid()]);
        // Threads of the kernel and what has ended are not among what a name or a group means.
        found.retain(|pid| seen.insert(*pid) && processes::standing(root, *pid) == Standing::Runs);
        found
    }
}

/// Why there is nothing to count of a process; `None` when there is.
fn without_program(root: &Root, pid: i32) -> Option<String> {
    let who = || names(root, &[pid]);
    match processes::standing(root, pid) {
        Standing::Runs => None,
        Standing::Ended => Some(format!(
            "{} has ended, and only waits for its parent to fetch its status",
            who()
        )),
        Standing::Kernel => Some(format!(
            "{} is a thread of the kernel, which makes no system calls",
            who()
        )),
    }
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// What a name that fits nothing may have been meant to be.
fn nearly(args: &CountArgs, root: &Root) -> String {
    for glob in &args.name {
        let wider = NamePattern::new(&format!("*{glob}*"));
        let fits =
            |pid: &i32| *pid != own_pid() && wider.as_ref().is_some_and(|wider| wider.fits(root, *pid));
        if let Some(pid) = processes::all(root).into_iter().find(fits) {
            return format!(
                ": none is named {}, but {} would be found by --name '*{}*'",
                escape(glob, 80),
                names(root, &[pid]),
                escape(glob, 80)
            );
        }
    }
    String::new()
}

/// Processes in words: `php-fpm8.2 (pid 12) and 3 others`.
fn names(root: &Root, pids: &[i32]) -> String {
    let name = |pid: &i32| match processes::name(root, *pid) {
        name if name.is_empty() => format!("pid {pid}"),
        name => format!("{} (pid {pid})", escape(&name, 40)),
    };
    let named: Vec<String> = pids.iter().take(NAMED).map(name).collect();
    match pids.len() - named.len() {
        0 => named.join(", "),
        1 => format!("{} and one more process", named.join(", ")),
        more => format!("{} and {more} more processes", named.join(", ")),
    }
}

/// A flag that Ctrl-C and its kin set. What systally was told to ignore (nohup) stays ignored.
fn stop_flag() -> Result<Arc<AtomicBool>, CommandError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        if !is_ignored(signal) {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
        }
    }
    Ok(stop)
}
