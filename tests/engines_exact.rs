//! Exactness: programs and hazards whose calls are known to the number, run under every engine, under
//! `strace -f -c`, and under a plain strace whose log is imported.
//!
//! What a guest does on purpose is compared with what it is known to do, and, for the engines that count
//! everything, the whole table with that of every other engine: start-up and end included.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod engines_support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use engines_support::{LIMIT, guest_of, have, program, request, strace, tallies, usable};
use systally::engine::{EngineKind, Exit, Request, Selection, Stdio, Window, engine};
use systally::tally::{Abi, CallTally, Errno, Syscall, Tally};

/// A program and what it is known to do.
struct Guest {
    /// File in `tests/guests`.
    source: &'static str,
    /// Its arguments.
    arguments: &'static str,
    /// What it does beyond what `idle` of its source does.
    known: &'static [Known],
    /// Whether the whole table is the same under every engine.
    whole: Whole,
    /// How it ends.
    exit: Exit,
}

/// One call of a guest.
struct Known {
    call: &'static str,
    /// Calls that return; `None` where that depends on timing.
    calls: Option<u64>,
    /// Calls that never return; `None` where that depends on timing.
    unfinished: Option<u64>,
    /// Failures.
    errors: &'static [(i32, u64)],
    /// Calls that a signal interrupts, and that the kernel would make anew.
    restarts: u64,
}

/// How much of a guest's table is the same in every run.
enum Whole {
    /// All of it.
    Same,
    /// All but these calls.
    But(&'static [&'static str]),
    /// It waits for others by polling.
    Differs,
}

const fn known(call: &'static str, calls: u64, errors: &'static [(i32, u64)]) -> Known {
    Known {
        call,
        calls: Some(calls),
        unfinished: Some(0),
        errors,
        restarts: 0,
    }
}

/// Calls that return.
const fn c(call: &'static str, calls: u64) -> Known {
    known(call, calls, &[])
}

/// Calls that a signal interrupts.
const fn r(call: &'static str, calls: u64, restarts: u64) -> Known {
    Known {
        restarts,
        ..c(call, calls)
    }
}

/// Calls that never return.
const fn u(call: &'static str, unfinished: u64) -> Known {
    Known {
        calls: Some(0),
        unfinished: Some(unfinished),
        ..c(call, 0)
    }
}

const fn guest(arguments: &'static str, known: &'static [Known], whole: Whole) -> Guest {
    Guest {
        source: "exact",
        arguments,
        known,
        whole,
        exit: Exit::Code(0),
    }
}

const fn kernel(arguments: &'static str, known: &'static [Known], whole: Whole) -> Guest {
    Guest {
        source: "kernel",
        ..guest(arguments, known, whole)
    }
}

const fn strange(arguments: &'static str, known: &'static [Known], whole: Whole) -> Guest {
    Guest {
        source: "strange",
        ..guest(arguments, known, whole)
    }
}

use Whole::{But, Differs, Same};
use libc::{EAGAIN, EBADF, ECHILD, ECONNREFUSED, EEXIST, EFAULT, EINVAL, ENOENT, ENOSYS, EPERM, ESRCH};

/// What a parent that waits is interrupted by its children's ends; under a tracer only.
const PARENT: Whole = But(&["wait4", "clone"]);
/// What threads do to each other depends on which is first.
const THREADS: Whole = But(&["futex", "mmap", "munmap", "mprotect", "madvise", "rt_sigprocmask"]);

const GUESTS: &[Guest] = &[
    guest("nothing", &[], Same),
    guest(
        "pipes",
        &[
            c("pipe2", 1),
            c("write", 100),
            known("read", 110, &[(EAGAIN, 10)]),
            c("close", 1),
        ],
        Same,
    ),
    guest(
        "vectors",
        &[
            c("memfd_create", 1),
            c("ftruncate", 1),
            c("writev", 20),
            c("readv", 20),
            c("lseek", 40),
            c("pwrite64", 5),
            c("preadv", 5),
        ],
        Same,
    ),
    guest(
        "messages",
        &[
            c("socketpair", 1),
            known("sendmsg", 12, &[(EBADF, 2)]),
            known("recvmsg", 17, &[(EAGAIN, 7)]),
            c("sendmmsg", 3),
            c("recvmmsg", 3),
        ],
        Same,
    ),
    guest(
        "tcp",
        &[
            c("socket", 3),
            known("connect", 2, &[(ECONNREFUSED, 1)]),
            c("accept4", 1),
            c("setsockopt", 4),
            c("sendto", 30),
            known("recvfrom", 37, &[(EAGAIN, 6)]),
            c("shutdown", 1),
            c("bind", 1),
        ],
        Same,
    ),
    guest(
        "unix-missing",
        &[c("socket", 1), known("connect", 3, &[(ENOENT, 3)])],
        Same,
    ),
    guest(
        "epoll",
        &[
            c("epoll_create1", 1),
            c("eventfd2", 1),
            known("epoll_ctl", 5, &[(EEXIST, 2), (ENOENT, 1)]),
            c("epoll_pwait", 11),
            c("write", 1),
        ],
        Same,
    ),
    guest(
        "waits",
        &[c("clock_nanosleep", 3), c("ppoll", 2), c("sched_yield", 4)],
        Same,
    ),
    guest(
        "failing",
        &[
            known("openat", 10, &[(ENOENT, 10)]),
            known("close", 4, &[(EBADF, 4)]),
            known("dup", 2, &[(EBADF, 2)]),
            known("mkdirat", 3, &[(EEXIST, 3)]),
            known("kill", 5, &[(ESRCH, 5)]),
            known("munmap", 2, &[(EINVAL, 2)]),
            known("wait4", 6, &[(ECHILD, 6)]),
        ],
        Same,
    ),
    guest(
        "memory",
        &[
            c("mmap", 20),
            c("mprotect", 20),
            c("madvise", 20),
            c("munmap", 20),
        ],
        Same,
    ),
    guest(
        "descriptors",
        &[
            c("dup", 5),
            c("dup3", 3),
            known("fcntl", 8, &[(EBADF, 2)]),
            c("close_range", 1),
            c("unshare", 3),
        ],
        Same,
    ),
    guest(
        "signals",
        &[
            c("rt_sigaction", 2),
            c("tgkill", 12),
            c("kill", 8),
            c("rt_sigreturn", 20),
        ],
        Same,
    ),
    guest(
        "interrupted",
        &[
            c("setitimer", 5),
            r("ppoll", 3, 3),
            r("clock_nanosleep", 2, 2),
            c("rt_sigreturn", 5),
        ],
        Same,
    ),
    guest("stopped", &[c("restart_syscall", 1), c("kill", 2)], Differs),
    guest("killed-child", &[u("pause", 1), c("kill", 1)], Differs),
    guest(
        "births",
        &[c("clone", 5), c("clone3", 3), c("fork", 2), u("exit_group", 10)],
        But(&["wait4"]),
    ),
    guest("tree", &[c("getppid", 200), u("exit_group", 39)], PARENT),
    guest("chain", &[c("getppid", 11), c("execve", 10)], Same),
    guest("thread-exits", &[c("getppid", 90), u("exit", 10)], Differs),
    guest(
        "deceiving",
        &[
            c("prctl", 1),
            c("write", 30),
            known("faccessat", 4, &[(ENOENT, 4)]),
        ],
        Same,
    ),
    guest(
        "many",
        &[c("write", 500), c("getppid", 500), c("openat", 1)],
        Same,
    ),
    kernel("calls 1000", &[c("getppid", 1000)], Same),
    kernel("short 30", &[c("getppid", 30), u("exit_group", 30)], PARENT),
    kernel("threads 20 10", &[c("getppid", 200)], THREADS),
    kernel(
        "orphan 7",
        &[c("getppid", 7), u("exit_group", 2)],
        But(&["wait4", "clone", "clock_nanosleep"]),
    ),
    kernel(
        "foreign",
        &[
            known("recvfrom", 2, &[(EBADF, 2)]),
            c("i386:brk", 5),
            known("i386:socket", 2, &[(EFAULT, 2)]),
            known("i386:socketcall", 1, &[(EINVAL, 1)]),
        ],
        Same,
    ),
    kernel(
        "unknown",
        &[
            known("syscall_0x270f", 3, &[(ENOSYS, 3)]),
            known("syscall_0xffffffffffffffff", 2, &[(ENOSYS, 2)]),
        ],
        But(&["x32:getpid"]),
    ),
    kernel("refused", &[known("getppid", 9, &[(EPERM, 7)])], Same),
    kernel("restart", &[r("recvfrom", 11, 10)], Differs),
    kernel("unfinished", &[u("pause", 3)], Differs),
    Guest {
        exit: Exit::Signal(libc::SIGKILL),
        ..kernel("killed", &[u("pause", 1)], Differs)
    },
    kernel("exec", &[c("getppid", 22), c("execve", 1)], Differs),
    kernel("spawn 4", &[c("getppid", 12), c("execve", 4)], But(&["wait4"])),
    kernel(
        "failures",
        &[
            known("recvfrom", 22, &[(EAGAIN, 12), (EBADF, 5)]),
            known("sendto", 5, &[(EBADF, 4)]),
            c("socketpair", 1),
        ],
        Same,
    ),
    strange("vfork", &[c("getppid", 5), c("vfork", 1)], But(&["wait4"])),
    strange("seccomp", &[known("getppid", 9, &[(EPERM, 7)])], Same),
    strange(
        "asks-for-tracer",
        &[
            known("getppid", 8, &[(ENOSYS, 5)]),
            known("close", 1, &[(ENOSYS, 1)]),
        ],
        But(&["wait4", "clone"]),
    ),
    strange(
        "die-in-call",
        &[Known {
            calls: None,
            ..u("read", 5)
        }],
        Differs,
    ),
];

/// What a source does for nothing.
fn idle(source: &str) -> &'static str {
    match source {
        "exact" => "nothing",
        _ => "calls 0",
    }
}

/// The engines that count every call.
const ALL_CALLS: [EngineKind; 4] = [
    EngineKind::Ptrace,
    EngineKind::PtraceCounts,
    EngineKind::Bpf,
    EngineKind::Strace,
];

/// What was counted of a guest, by name.
type Counts = BTreeMap<String, CallTally>;

/// Every guest is run once under each engine.
fn counted(kind: EngineKind, source: &'static str, arguments: &str, exit: Exit) -> Option<Arc<Counts>> {
    type Runs = Mutex<BTreeMap<(EngineKind, &'static str, String), Arc<OnceLock<Option<Arc<Counts>>>>>>;
    static RUNS: Runs = Mutex::new(BTreeMap::new());
    let key = (kind, source, arguments.to_owned());
    let run = Arc::clone(RUNS.lock().unwrap().entry(key).or_default());
    run.get_or_init(|| {
        let path = guest_of(source)?;
        let session = engine(kind)
            .launch(
                vec![program(&path, arguments, Stdio::Inherit)],
                &request(Window::Whole),
            )
            .unwrap();
        let outcome = session.finish(Some(LIMIT)).unwrap();
        assert_eq!(outcome.exits, [exit], "{kind}: {source} {arguments}");
        // An engine that goes by a filter has to say that the guest has one of its own.
        let has_filter = kind == EngineKind::PtraceCounts && arguments == "asks-for-tracer";
        assert_eq!(
            outcome.notes.len(),
            usize::from(has_filter),
            "{kind}: {source} {arguments}"
        );
        assert!(
            outcome
                .notes
                .iter()
                .all(|note| note.contains("seccomp filter of its own")),
            "{kind}: {source} {arguments}: {:?}",
            outcome.notes
        );
        Some(Arc::new(by_name(&tallies(&outcome).run_loop)))
    })
    .clone()
}

fn by_name(tally: &Tally) -> Counts {
    let calls = tally.calls.iter();
    calls
        .map(|(call, n)| (call.name().into_owned(), n.clone()))
        .collect()
}

/// Counts of one call beyond those of the idle program.
struct Beyond {
    calls: u64,
    unfinished: u64,
    errors: BTreeMap<Errno, u64>,
    restarts: u64,
}

fn beyond(counts: &Counts, idle: &Counts, call: &str) -> Beyond {
    let of = |counts: &Counts| counts.get(call).cloned().unwrap_or_default();
    let (mut more, less) = (of(counts), of(idle));
    for (errno, n) in &less.errors {
        *more.errors.get_mut(errno).unwrap() -= n;
    }
    more.errors.retain(|_, n| *n > 0);
    Beyond {
        calls: more.calls - less.calls,
        unfinished: more.unfinished - less.unfinished,
        errors: more.errors,
        restarts: more.restarts.values().sum(),
    }
}

/// What does not hold of a guest; empty when everything does.
fn differences(guest: &Guest, counts: &Counts, idle: &Counts) -> Vec<String> {
    let mut differences = Vec::new();
    for known in guest.known {
        let seen = beyond(counts, idle, known.call);
        let mut expect = |what: &str, expected: Option<u64>, seen: u64| {
            if let Some(expected) = expected.filter(|expected| *expected != seen) {
                differences.push(format!("{} {what}: {expected} known, {seen} counted", known.call));
            }
        };
        expect("calls", known.calls, seen.calls);
        expect("unfinished", known.unfinished, seen.unfinished);
        expect("restarts", known.calls.map(|_| known.restarts), seen.restarts);
        let errors: BTreeMap<Errno, u64> = known
            .errors
            .iter()
            .map(|(errno, n)| (Errno(*errno), *n))
            .collect();
        if known.calls.is_some() && errors != seen.errors {
            differences.push(format!(
                "{} errors: {errors:?} known, {:?} counted",
                known.call, seen.errors
            ));
        }
    }
    differences
}

/// Fails with everything that does not hold.
fn finish(differences: Vec<String>) {
    assert!(differences.is_empty(), "{differences:#?}");
}

fn has_ia32() -> bool {
    // Without it the guest dies of SIGSEGV at its first `int 0x80`.
    let Some(path) = guest_of("kernel") else {
        return false;
    };
    Command::new(path).arg("foreign").status().unwrap().success()
}

/// The guests that this machine can run.
fn guests() -> impl Iterator<Item = &'static Guest> {
    let ia32 = has_ia32();
    GUESTS.iter().filter(move |guest| {
        let runs = ia32 || guest.arguments != "foreign";
        if !runs {
            println!("SKIP: this kernel was built without IA32 emulation");
        }
        runs
    })
}

fn every_guest_under(kind: EngineKind) {
    if !usable(kind) {
        return;
    }
    let mut all = Vec::new();
    for guest in guests() {
        let Some(idle) = counted(kind, guest.source, idle(guest.source), Exit::Code(0)) else {
            return;
        };
        let counts = counted(kind, guest.source, guest.arguments, guest.exit).unwrap();
        let found = differences(guest, &counts, &idle);
        all.extend(found.into_iter().map(|one| format!("{}: {one}", guest.arguments)));
    }
    finish(all);
}

#[test]
fn there_are_many_guests_and_each_has_a_name_of_its_own() {
    let names: BTreeSet<_> = GUESTS
        .iter()
        .map(|guest| (guest.source, guest.arguments))
        .collect();
    assert_eq!(names.len(), GUESTS.len());
    assert!(GUESTS.len() >= 25);
}

#[test]
fn ptrace_counts_what_every_guest_does() {
    every_guest_under(EngineKind::Ptrace);
}

/// One stop a call sees entries alone: what came back and what did not are one sum, and there are no errors.
#[test]
fn ptrace_counts_sees_every_entry() {
    let kind = EngineKind::PtraceCounts;
    if !usable(kind) {
        return;
    }
    // What a guest's own filter denies is denied before the one stop there is.
    let denies_itself = |guest: &&Guest| matches!(guest.arguments, "seccomp" | "refused");
    let mut all = Vec::new();
    for guest in guests().filter(|guest| !denies_itself(guest)) {
        let Some(idle) = counted(kind, guest.source, idle(guest.source), Exit::Code(0)) else {
            return;
        };
        let counts = counted(kind, guest.source, guest.arguments, guest.exit).unwrap();
        for known in guest.known {
            let Some(calls) = known.calls else { continue };
            let seen = beyond(&counts, &idle, known.call);
            let expected = calls + known.unfinished.unwrap_or(seen.unfinished);
            if seen.calls + seen.unfinished != expected {
                all.push(format!(
                    "{}: {} {expected} known, {} + {} counted",
                    guest.arguments, known.call, seen.calls, seen.unfinished
                ));
            }
        }
    }
    finish(all);
}

#[test]
fn bpf_counts_what_every_guest_does() {
    every_guest_under(EngineKind::Bpf);
}

#[test]
fn strace_s_log_has_what_every_guest_does() {
    every_guest_under(EngineKind::Strace);
}

/// perf counts the calls that are known of each guest: native ones, and of their failures EAGAIN by name.
#[test]
fn perf_counts_the_chosen_calls_of_every_guest() {
    let kind = EngineKind::Perf;
    if !usable(kind) {
        return;
    }
    let mut all = Vec::new();
    for guest in guests() {
        let Some(path) = guest_of(guest.source) else {
            return;
        };
        let native = |known: &&Known| Syscall::by_name(Abi::NATIVE, known.call).is_some();
        // What never returns is seen by no counter at returns, and rt_sigreturn has no number there.
        let is_seen = |known: &&Known| known.calls != Some(0) && known.call != "rt_sigreturn";
        let chosen: Vec<&Known> = guest.known.iter().filter(native).filter(is_seen).collect();
        if chosen.is_empty() {
            continue;
        }
        let calls = chosen
            .iter()
            .filter_map(|known| Syscall::by_name(Abi::NATIVE, known.call));
        let only = Request {
            selection: Selection::Only(calls.collect()),
            ..request(Window::Whole)
        };
        let count = |arguments: &str, exit| {
            let programs = vec![program(&path, arguments, Stdio::Inherit)];
            let session = engine(kind).launch(programs, &only).unwrap();
            let outcome = session.finish(Some(LIMIT)).unwrap();
            assert_eq!(outcome.exits, [exit], "{arguments}");
            by_name(&tallies(&outcome).run_loop)
        };
        let counts = count(guest.arguments, guest.exit);
        let idle = count(idle(guest.source), Exit::Code(0));
        for known in chosen {
            let Some(calls) = known.calls else { continue };
            let seen = beyond(&counts, &idle, known.call);
            let again = |errno: i32| errno == EAGAIN;
            let mut errors: BTreeMap<Errno, u64> = BTreeMap::new();
            for (errno, n) in known.errors {
                *errors
                    .entry(if again(*errno) {
                        Errno(EAGAIN)
                    } else {
                        Errno::OTHER
                    })
                    .or_default() += n;
            }
            if (seen.calls, &seen.errors) != (calls, &errors) {
                all.push(format!(
                    "{}: {} {calls} {errors:?} known, {} {:?} counted",
                    guest.arguments, known.call, seen.calls, seen.errors
                ));
            }
        }
    }
    finish(all);
}

/// Chosen calls stop by a filter of ours; a filter of the guest's own that asks for a tracer gets none by that,
/// whether the calls that it is about are chosen or not.
#[test]
fn a_filter_that_asks_for_a_tracer_finds_none() {
    let Some(path) = guest_of("strange") else { return };
    let of = |names: &[&str]| -> Vec<Syscall> {
        names.iter().flat_map(|name| Syscall::all_by_name(name)).collect()
    };
    for kind in [EngineKind::Ptrace, EngineKind::PtraceCounts, EngineKind::Perf] {
        if !usable(kind) {
            continue;
        }
        let mut selections = vec![
            (Selection::Only(of(&["getppid", "close"])), true),
            (Selection::Only(of(&["getpid"])), false),
        ];
        if kind != EngineKind::Perf {
            selections.push((Selection::Except(of(&["write"])), true));
            selections.push((Selection::Except(of(&["getppid"])), false));
        }
        for (selection, counted) in selections {
            let only = Request {
                selection,
                ..request(Window::Whole)
            };
            for copies in [1, 3] {
                let programs = vec![program(&path, "asks-for-tracer", Stdio::Inherit); copies];
                let outcome = engine(kind)
                    .launch(programs, &only)
                    .unwrap()
                    .finish(Some(LIMIT))
                    .unwrap();
                // It looks itself at what its calls return.
                assert!(
                    outcome.exits.iter().all(|exit| *exit == Exit::Code(0)),
                    "{kind} {:?}: {:?}",
                    only.selection,
                    outcome.exits
                );
                let counts = by_name(&tallies(&outcome).run_loop);
                let seen = counts.get("getppid").cloned().unwrap_or_default();
                let copies = copies as u64;
                let expected = if counted { 8 * copies } else { 0 };
                assert_eq!(seen.calls, expected, "{kind} {:?}", only.selection);
                if kind != EngineKind::PtraceCounts && counted {
                    assert_eq!(seen.failed(), 5 * copies, "{kind}");
                }
            }
        }
    }
}

#[test]
fn whole_tables_are_the_same_under_every_engine() {
    let kinds = [EngineKind::Ptrace, EngineKind::Bpf, EngineKind::Strace];
    let kinds: Vec<EngineKind> = kinds.into_iter().filter(|kind| usable(*kind)).collect();
    let mut all = Vec::new();
    for guest in guests() {
        let varying: &[&str] = match guest.whole {
            Same => &[],
            But(varying) => varying,
            Differs => continue,
        };
        let mut tables = Vec::new();
        for kind in &kinds {
            let Some(counts) = counted(*kind, guest.source, guest.arguments, guest.exit) else {
                return;
            };
            let alike = counts
                .iter()
                .filter(|(name, _)| !varying.contains(&name.as_str()));
            // Times are the engines' own, and only one of them sees bytes and peers.
            let table: BTreeMap<String, CallTally> = alike
                .map(|(name, n)| {
                    let n = CallTally {
                        calls: n.calls,
                        unfinished: n.unfinished,
                        errors: n.errors.clone(),
                        restarts: n.restarts.clone(),
                        ..CallTally::default()
                    };
                    (name.clone(), n)
                })
                .collect();
            tables.push((kind, table));
        }
        for pair in tables.windows(2) {
            let [(one, a), (other, b)] = pair else { continue };
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names.into_iter().filter(|name| a.get(*name) != b.get(*name)) {
                all.push(format!(
                    "{} {name}: {one} {:?}, {other} {:?}",
                    guest.arguments,
                    a.get(name),
                    b.get(name)
                ));
            }
        }
    }
    finish(all);
}

/// Calls and failures, restarts included, of what strace counts itself, by name.
type Outside = BTreeMap<String, (u64, u64)>;

/// Runs a guest under a plain `strace -f` and imports its log: calls that were begun, and failures.
fn imported(path: &Path, arguments: &str) -> Outside {
    let log = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("strace")
        .args(["-f", "-o"])
        .arg(log.path())
        .arg(path)
        .args(arguments.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "{arguments}: {status}");
    let file = std::fs::File::open(log.path()).unwrap();
    let imported = systally::import::import(Box::new(file), None).unwrap();
    assert_eq!(
        imported.unknown_lines.count, 0,
        "{arguments}: {:?}",
        imported.unknown_lines
    );
    let rows = imported.tables.iter().flat_map(|table| &table.rows);
    rows.map(|row| (row.syscall.clone(), (row.calls(), row.errors.unwrap_or(0))))
        .collect()
}

/// Compares every guest with what strace says of it; `begun` tells whether calls that never return count.
fn every_guest_outside(count: impl Fn(&Path, &str) -> Outside, begun: bool) {
    if !have("strace") {
        return;
    }
    let mut idles: BTreeMap<&str, Outside> = BTreeMap::new();
    let mut all = Vec::new();
    // strace puts other ABIs into tables of their own.
    let is_native = |guest: &&Guest| !matches!(guest.arguments, "foreign" | "unknown");
    for guest in guests().filter(is_native) {
        if guest.exit != Exit::Code(0) {
            continue;
        }
        let Some(path) = guest_of(guest.source) else {
            return;
        };
        let idle = idles
            .entry(guest.source)
            .or_insert_with(|| count(&path, idle(guest.source)));
        let counts = count(&path, guest.arguments);
        for known in guest.known {
            let of = |counts: &Outside| counts.get(known.call).copied().unwrap_or_default();
            let (more, less) = (of(&counts), of(idle));
            let (Some(calls), Some(unfinished)) = (known.calls, known.unfinished) else {
                continue;
            };
            let expected_calls = calls + if begun { unfinished } else { 0 };
            // The result of rt_sigreturn is the register of what was interrupted.
            let failed: u64 = known.errors.iter().map(|(_, n)| n).sum::<u64>() + known.restarts;
            let failed = if known.call == "rt_sigreturn" {
                more.1 - less.1
            } else {
                failed
            };
            let seen = (more.0 - less.0, more.1 - less.1);
            if seen != (expected_calls, failed) {
                all.push(format!(
                    "{}: {} {:?} known, {seen:?} counted",
                    guest.arguments,
                    known.call,
                    (expected_calls, failed)
                ));
            }
        }
    }
    finish(all);
}

#[test]
fn strace_c_counts_the_same() {
    every_guest_outside(strace, false);
}

#[test]
fn an_imported_strace_log_counts_the_same() {
    every_guest_outside(imported, true);
}

/// The processes of a guest that forks: all at once.
const PROCESSES: [u64; 4] = [1, 10, 100, 1_000];

fn forks(processes: u64) -> String {
    format!("forks {processes} 10")
}

fn kernel_guest() -> Option<PathBuf> {
    guest_of("kernel")
}

#[test]
fn counts_are_exact_for_one_to_a_thousand_processes() {
    for kind in ALL_CALLS {
        if !usable(kind) {
            continue;
        }
        for processes in PROCESSES {
            let Some(counts) = counted(kind, "kernel", &forks(processes), Exit::Code(0)) else {
                return;
            };
            let context = format!("{kind}, {processes} processes");
            assert_eq!(counts["getppid"].calls, 10 * processes, "{context}");
            assert_eq!(counts["getppid"].failed(), 0, "{context}");
            assert_eq!(counts["exit_group"].unfinished, processes + 1, "{context}");
            assert_eq!(counts["execve"].calls, 1, "{context}");
        }
    }
}

#[test]
fn perf_is_exact_for_one_to_a_thousand_processes() {
    let (true, Some(path)) = (usable(EngineKind::Perf), kernel_guest()) else {
        return;
    };
    let only = Request {
        selection: Selection::Only(vec![Syscall::native(libc::SYS_getppid)]),
        ..request(Window::Whole)
    };
    for processes in PROCESSES {
        let programs = vec![program(&path, &forks(processes), Stdio::Inherit)];
        let session = engine(EngineKind::Perf).launch(programs, &only).unwrap();
        let outcome = session.finish(Some(LIMIT)).unwrap();
        let counts = by_name(&tallies(&outcome).run_loop);
        assert_eq!(counts["getppid"].calls, 10 * processes, "{processes} processes");
    }
}

#[test]
fn strace_itself_counts_the_same_for_one_to_a_thousand_processes() {
    let (true, Some(path)) = (have("strace"), kernel_guest()) else {
        return;
    };
    for processes in PROCESSES {
        let counts = strace(&path, &forks(processes));
        assert_eq!(counts["getppid"], (10 * processes, 0), "{processes} processes");
    }
}

/// Programs of their own, each with its own descendants.
#[test]
fn programs_that_are_started_together_are_counted_together() {
    let Some(path) = kernel_guest() else { return };
    for kind in ALL_CALLS {
        if !usable(kind) {
            continue;
        }
        let programs = vec![program(&path, "forks 5 10", Stdio::Inherit); 10];
        let session = engine(kind).launch(programs, &request(Window::Whole)).unwrap();
        let outcome = session.finish(Some(LIMIT)).unwrap();
        let counts = by_name(&tallies(&outcome).run_loop);
        assert_eq!(counts["getppid"].calls, 500, "{kind}");
        assert_eq!(counts["exit_group"].unfinished, 60, "{kind}");
        assert_eq!(outcome.tracees, 60, "{kind}");
    }
}
