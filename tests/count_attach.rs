//! Attaching to programs that run already: what is counted of them, and that they run on as before. The
//! guests in `tests/guests/running.c` check themselves that nothing went wrong for them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::guest;
use counting::{can_trace, everything, of, only};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use systally::engine::{Attachment, Availability, EngineError, EngineKind, Outcome, Request, engine};
use systally::proc::Root;
use systally::proc::processes::with_descendants;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A guest that runs. It is a shell's child and not this process's: the parent of a tracee would see its
/// ptrace stops when it is the tracer's own process, which systally never is.
struct Guest {
    shell: Child,
    pid: i32,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    ready: String,
}

impl Guest {
    /// Starts one and waits until it says that it is ready; `None` where there is no compiler or no ptrace.
    fn start(arguments: &[&str]) -> Option<Guest> {
        let program = guest("running")?;
        if !can_trace() {
            return None;
        }
        let mut shell = Command::new("sh")
            .args(["-c", "\"$0\" \"$@\"; exit $?"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut guest = Guest {
            stdin: shell.stdin.take(),
            stdout: BufReader::new(shell.stdout.take().unwrap()),
            shell,
            pid: 0,
            ready: String::new(),
        };
        guest.ready = guest.line();
        assert!(guest.ready.ends_with("ready"));
        guest.pid = with_descendants(&Root::live(), &[guest.shell.id() as i32])[1];
        Some(guest)
    }

    /// A line that it says; it may take its time, but not for ever.
    fn line(&mut self) -> String {
        if self.stdout.buffer().is_empty() {
            let stdout = self.stdout.get_ref();
            let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            let limit = PollTimeout::try_from(LIMIT).unwrap();
            let ready = poll(&mut fds, limit).unwrap();
            assert!(ready > 0, "the guest says nothing: {}", threads_of(self.pid));
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> i32 {
        self.pid
    }

    /// Has it do the things of these letters.
    fn asked(&mut self, what: &str) {
        for letter in what.bytes() {
            self.stdin.as_mut().unwrap().write_all(&[letter]).unwrap();
            assert_eq!(self.line(), "done");
        }
    }

    /// Ends its input; it has to end well. Returns what it said last.
    fn finish(mut self) -> String {
        drop(self.stdin.take());
        let said = self.line();
        let give_up = Instant::now() + LIMIT;
        while self.shell.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < give_up,
                "the guest does not end: {}",
                threads_of(self.pid())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = self.shell.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        assert!(said.ends_with("finished"), "{said}");
        said
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Ok(None) = self.shell.try_wait() {
            // A failed test: the shell still waits for it, so the number is its own.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            let _ = self.shell.kill();
            let _ = self.shell.wait();
        }
    }
}

/// State and tracer of each thread, for messages.
fn threads_of(pid: i32) -> String {
    let mut text = String::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
    {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let fields = status
            .lines()
            .filter(|line| line.starts_with("State:") || line.starts_with("TracerPid:"));
        text.push_str(&format!("{:?}; ", fields.collect::<Vec<_>>()));
    }
    text
}

/// The states of its threads, and whether any is traced.
fn states(pid: i32) -> (Vec<char>, bool) {
    let (mut states, mut traced) = (Vec::new(), false);
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        for line in status.lines() {
            if let Some(state) = line.strip_prefix("State:\t") {
                states.extend(state.chars().next());
            }
            traced |= line
                .strip_prefix("TracerPid:\t")
                .is_some_and(|tracer| tracer != "0");
        }
    }
    (states, traced)
}

/// It runs as if nobody had ever been there.
fn assert_free(pid: i32) {
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        let (states, traced) = states(pid);
        // A thread that was just let go may take a moment to be scheduled.
        if !traced && !states.iter().any(|state| matches!(state, 't' | 'T')) {
            return;
        }
        assert!(Instant::now() < give_up, "{}", threads_of(pid));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn attach_with(kind: EngineKind, pids: &[i32], request: &Request) -> Box<dyn Attachment> {
    let pids = pids.to_vec();
    engine(kind)
        .attach(Arc::new(move || pids.clone()), request)
        .unwrap()
}

fn attach(pids: &[i32]) -> Box<dyn Attachment> {
    attach_with(EngineKind::Ptrace, pids, &everything())
}

fn calls(outcome: &Outcome, name: &str) -> u64 {
    of(outcome, name).calls
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < give_up, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The engines that can attach here.
fn engines() -> Vec<EngineKind> {
    let ready = |kind: &EngineKind| match engine(*kind).availability() {
        Availability::Ready => true,
        Availability::Unavailable { why, fix } => {
            println!("SKIP: {kind}: {why}; {fix}");
            false
        }
    };
    [EngineKind::Ptrace, EngineKind::Bpf]
        .into_iter()
        .filter(ready)
        .collect()
}

#[test]
fn calls_of_all_threads_and_of_what_they_start_are_counted_exactly() {
    for kind in engines() {
        let Some(mut guest) = Guest::start(&["rounds", "5"]) else {
            return;
        };
        guest.asked("r");
        let attachment = attach_with(kind, &[guest.pid()], &everything());
        assert_eq!(attachment.processes(), [guest.pid()]);
        // Three rounds of five threads, two new threads, a child, and a child that executes a program.
        guest.asked("rtrftre");
        let outcome = attachment.detach().unwrap();
        guest.asked("r");
        assert_eq!(
            calls(&outcome, "getppid"),
            3 * 5 * 1000 + 2 * 300 + 500 + 700,
            "{kind}"
        );
        assert_eq!(calls(&outcome, "execve"), 1, "{kind}");
        // Threads that were there, and five new ones.
        assert_eq!(outcome.tracees, 6 + 2 + 2, "{kind}");
        assert!(outcome.windows[0].known().unwrap().0 > 0);
        assert_free(guest.pid());
        guest.finish();
    }
}

#[test]
fn chosen_calls_only_are_counted() {
    for kind in engines() {
        let Some(mut guest) = Guest::start(&["rounds", "2"]) else {
            return;
        };
        let request = Request {
            selection: only(&["getppid"]),
            ..everything()
        };
        let attachment = attach_with(kind, &[guest.pid()], &request);
        guest.asked("rf");
        let outcome = attachment.detach().unwrap();
        let run_loop = &outcome.tallies.known().unwrap().run_loop;
        assert_eq!((run_loop.total(), run_loop.calls.len()), (2500, 1), "{kind}");
        guest.finish();
    }
}

#[test]
fn a_blocked_call_is_counted_when_it_returns_and_never_twice() {
    let Some(guest) = Guest::start(&["blocked"]) else {
        return;
    };
    let pid = guest.pid();
    until("five threads wait", || {
        let (states, _) = states(pid);
        states.len() == 6 && states.iter().all(|state| *state == 'S')
    });
    // In the middle of nothing but these calls, several times over: none may see an EINTR.
    for _ in 0..3 {
        let mut attachment = attach(&[pid]);
        attachment
            .wait(Some(Duration::from_millis(100)), &|| false)
            .unwrap();
        let outcome = attachment.detach().unwrap();
        for (name, waiting) in [
            ("recvfrom", 2),
            ("read", 2),
            ("epoll_wait", 1),
            ("restart_syscall", 1),
        ] {
            let call = of(&outcome, name);
            assert_eq!((call.calls, call.unfinished), (0, waiting), "{name}");
        }
        assert_free(pid);
    }
    let mut attachment = attach(&[pid]);
    attachment
        .wait(Some(Duration::from_millis(100)), &|| false)
        .unwrap();
    guest.finish();
    attachment.wait(Some(LIMIT), &|| false).unwrap();
    let outcome = attachment.detach().unwrap();
    for (name, returned) in [
        ("recvfrom", 2),
        ("read", 2),
        ("epoll_wait", 1),
        ("restart_syscall", 1),
    ] {
        let call = of(&outcome, name);
        assert_eq!(
            (call.calls, call.unfinished, call.failed()),
            (returned, 0, 0),
            "{name}"
        );
    }
}

#[test]
fn under_bpf_a_call_that_was_entered_before_is_not_counted() {
    if !engines().contains(&EngineKind::Bpf) {
        return;
    }
    let Some(guest) = Guest::start(&["blocked"]) else {
        return;
    };
    until("five threads wait", || {
        states(guest.pid()).0.iter().all(|state| *state == 'S')
    });
    let mut attachment = attach_with(EngineKind::Bpf, &[guest.pid()], &everything());
    guest.finish();
    attachment.wait(Some(LIMIT), &|| false).unwrap();
    let outcome = attachment.detach().unwrap();
    for name in ["recvfrom", "epoll_wait", "poll"] {
        assert_eq!(
            (calls(&outcome, name), of(&outcome, name).unfinished),
            (0, 0),
            "{name}"
        );
    }
    assert_eq!(calls(&outcome, "write"), 6);
}

#[test]
fn a_stopped_process_stays_stopped() {
    let Some(guest) = Guest::start(&["busy", "3"]) else {
        return;
    };
    let pid = guest.pid();
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    until("it is stopped", || {
        states(pid).0.iter().all(|state| *state == 'T')
    });
    for _ in 0..3 {
        let mut attachment = attach(&[pid]);
        attachment
            .wait(Some(Duration::from_millis(60)), &|| false)
            .unwrap();
        let outcome = attachment.detach().unwrap();
        assert_eq!(calls(&outcome, "getppid"), 0);
        until("it is stopped again", || {
            let (states, traced) = states(pid);
            !traced && states.iter().all(|state| *state == 'T')
        });
    }
    // Continued while it is traced, and stopped again.
    let mut attachment = attach(&[pid]);
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    attachment
        .wait(Some(Duration::from_millis(100)), &|| false)
        .unwrap();
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    attachment
        .wait(Some(Duration::from_millis(100)), &|| false)
        .unwrap();
    let outcome = attachment.detach().unwrap();
    assert!(calls(&outcome, "getppid") > 0);
    until("it is stopped at last", || states(pid) == (vec!['T'; 4], false));
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    guest.finish();
}

#[test]
fn a_process_that_stops_while_it_is_let_go_is_not_lost() {
    let Some(guest) = Guest::start(&["busy", "2"]) else {
        return;
    };
    let pid = Pid::from_raw(guest.pid());
    for round in 0..20 {
        let attachment = attach(&[guest.pid()]);
        if round % 2 == 0 {
            kill(pid, Signal::SIGSTOP).unwrap();
        }
        attachment.detach().unwrap();
        kill(pid, Signal::SIGCONT).unwrap();
        assert_free(guest.pid());
    }
    guest.finish();
}

#[test]
fn no_signal_is_lost_or_delivered_twice() {
    let Some(guest) = Guest::start(&["signals"]) else {
        return;
    };
    let pid = guest.pid();
    let mut sent = 0;
    for _ in 0..25 {
        let attachment = attach(&[pid]);
        for _ in 0..20 {
            counting_signal(pid);
            sent += 1;
        }
        attachment.detach().unwrap();
    }
    // The kernel queues them; nobody knows when the last has run.
    until("all signals have been handled", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let pending = status.lines().find(|line| line.starts_with("SigQ:")).unwrap();
        let shared = status.lines().find(|line| line.starts_with("ShdPnd:")).unwrap();
        !pending.is_empty() && shared.ends_with("0000000000000000")
    });
    assert_eq!(guest.finish(), format!("{sent} finished"));
}

/// `SIGRTMIN` of the C library, with kill(2), which queues it.
fn counting_signal(pid: i32) {
    assert!(
        Command::new("kill")
            .args(["-s", "RTMIN", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn threads_that_are_made_in_a_burst_are_all_let_go() {
    for kind in engines() {
        let Some(guest) = Guest::start(&["burst"]) else {
            return;
        };
        for _ in 0..10 {
            let mut attachment = attach_with(kind, &[guest.pid()], &everything());
            attachment
                .wait(Some(Duration::from_millis(20)), &|| false)
                .unwrap();
            let outcome = attachment.detach().unwrap();
            // In a burst the kernel may refuse bpf the memory of a new thread; then there is no count, and it
            // says so.
            if let Some(why) = outcome.tallies.reason() {
                assert!(
                    kind == EngineKind::Bpf && why.contains("could not be followed"),
                    "{kind}: {why}"
                );
            }
        }
        assert_free(guest.pid());
        guest.finish();
    }
}

#[test]
fn children_that_are_forked_meanwhile_are_let_go_too() {
    let Some(guest) = Guest::start(&["forks"]) else {
        return;
    };
    for _ in 0..20 {
        let mut attachment = attach(&[guest.pid()]);
        attachment
            .wait(Some(Duration::from_millis(10)), &|| false)
            .unwrap();
        attachment.detach().unwrap();
    }
    // A child that were left stopped would keep its parent waiting.
    guest.finish();
}

#[test]
fn a_process_that_cannot_be_stopped_is_let_go_all_the_same() {
    let Some(guest) = Guest::start(&["vfork"]) else {
        return;
    };
    let mut attachment = attach(&[guest.pid()]);
    attachment
        .wait(Some(Duration::from_millis(50)), &|| false)
        .unwrap();
    let outcome = attachment.detach().unwrap();
    assert_eq!(outcome.tallies.known().unwrap().run_loop.total(), 0);
    assert_free(guest.pid());
    guest.finish();
}

#[test]
fn one_that_has_ended_is_no_error_for_the_others() {
    let Some(mut guest) = Guest::start(&["rounds", "1"]) else {
        return;
    };
    let gone = {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id() as i32
    };
    let attachment = attach(&[gone, guest.pid()]);
    assert_eq!(attachment.processes(), [guest.pid()]);
    assert!(attachment.refused().is_empty());
    guest.asked("r");
    assert_eq!(calls(&attachment.detach().unwrap(), "getppid"), 1000);
    guest.finish();
    match engine(EngineKind::Ptrace).attach(Arc::new(move || vec![gone]), &everything()) {
        Err(EngineError::NoneLeft) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("attached to nothing"),
    }
}

#[test]
fn a_program_that_ends_ends_the_count() {
    let Some(guest) = Guest::start(&["busy", "2"]) else {
        return;
    };
    let mut attachment = attach(&[guest.pid()]);
    attachment
        .wait(Some(Duration::from_millis(50)), &|| false)
        .unwrap();
    guest.finish();
    let began = Instant::now();
    attachment.wait(None, &|| began.elapsed() > LIMIT).unwrap();
    assert!(began.elapsed() < LIMIT);
    let outcome = attachment.detach().unwrap();
    assert_eq!(of(&outcome, "exit_group").unfinished, 1);
}

/// Threads that are on their way out when they are attached to: the count must still see that all have ended.
#[test]
fn a_burst_that_ends_ends_the_count() {
    for kind in engines() {
        for _ in 0..3 {
            let Some(guest) = Guest::start(&["burst"]) else {
                return;
            };
            let mut attachment = attach_with(kind, &[guest.pid()], &everything());
            guest.finish();
            let began = Instant::now();
            attachment.wait(None, &|| began.elapsed() > LIMIT).unwrap();
            assert!(began.elapsed() < LIMIT, "{kind}");
            attachment.detach().unwrap();
        }
    }
}

/// A process that ends between being named and being attached to.
#[test]
fn one_that_ends_meanwhile_is_none_for_every_engine() {
    for kind in engines() {
        let child = std::sync::Mutex::new(Command::new("sleep").arg("600").spawn().unwrap());
        let find = move || {
            let mut child = child.lock().unwrap();
            let _ = child.kill();
            let _ = child.wait();
            vec![child.id() as i32]
        };
        match engine(kind).attach(Arc::new(find), &everything()) {
            Err(EngineError::NoneLeft) => {}
            Err(other) => panic!("{kind}: {other}"),
            Ok(_) => panic!("{kind} attached to nothing"),
        }
    }
}

#[test]
fn perf_says_that_it_cannot_attach() {
    match engine(EngineKind::Perf).attach(Arc::new(|| vec![1]), &everything()) {
        Err(error @ EngineError::CannotAttach { .. }) => {
            assert!(error.to_string().contains("--engine ptrace"))
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("perf attached"),
    }
    assert!(engine(EngineKind::Ptrace).capabilities().attach);
    assert!(!engine(EngineKind::Perf).capabilities().attach);
}

// The command.

fn systally(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_systally"));
    command.arg("count").args(arguments).env("COLUMNS", "120");
    command
}

/// A run of it: exit code and everything on standard error.
fn run(arguments: &[&str]) -> (i32, String) {
    let output = systally(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), said)
}

/// Starts it and waits until it says that it counts.
fn counting_now(arguments: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_systally"), "count"])
        .args(arguments)
        .env("COLUMNS", "120")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("systally: counting "), "{line}");
    (child, lines)
}

/// The first number of the row of a call.
fn row<'a>(table: &'a str, name: &str) -> Option<Vec<&'a str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.contains(&name) && words.first().is_some_and(|word| word.parse::<f64>().is_ok()))
}

#[test]
fn ctrl_c_and_the_time_end_the_count_and_not_the_program() {
    let Some(guest) = Guest::start(&["busy", "2"]) else {
        return;
    };
    let pid = guest.pid().to_string();
    for kind in engines() {
        let (code, said) = run(&["-p", &pid, "--for", "200ms", "--engine", kind.name()]);
        assert_eq!(code, 0, "{said}");
        assert!(row(&said, "getppid").is_some(), "{said}");
        assert!(
            said.contains(&format!("(pid {pid}), by {kind}, for 200 ms")),
            "{said}"
        );
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            let (mut child, mut lines) = counting_now(&["--pid", &pid, "--engine", kind.name()]);
            kill(Pid::from_raw(child.id() as i32), signal).unwrap();
            let mut table = String::new();
            lines.read_to_string(&mut table).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0), "{table}");
            assert!(table.contains("total"), "{table}");
            assert_free(guest.pid());
        }
    }
    guest.finish();
}

/// Others may depend on a program that runs, so it is not stopped where bpf can do what is asked for.
#[test]
fn a_running_program_is_not_stopped_unless_that_is_needed() {
    if !engines().contains(&EngineKind::Bpf) {
        return;
    }
    let Some(guest) = Guest::start(&["busy", "1"]) else {
        return;
    };
    let pid = guest.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    let by = |more: &[&str], line: &str, engine: EngineKind| {
        let record = ["-o", file.to_str().unwrap()];
        let (code, said) = run(&[&["-p", &pid, "--for", "100ms"], more, &record].concat());
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(&format!("(pid {pid}), by {line}")), "{said}");
        let record = systally::record::wire::load(&file).unwrap();
        let counted = record.strategies[0].counted.known().unwrap();
        assert_eq!(counted.engine, engine.name());
        // What was measured is no more than the engine sees.
        let phases = &counted.phases.run_loop.syscalls;
        let cpu = phases["getppid"].cpu.known().is_some();
        assert!(!(cpu && engine == EngineKind::Bpf), "{said}");
    };
    by(&[], "bpf (auto: it does not stop the program; ", EngineKind::Bpf);
    by(
        &["--peers"],
        "ptrace (auto: bpf does not see where ",
        EngineKind::Ptrace,
    );
    by(
        &["-U", "calls,cpu"],
        "ptrace (auto: bpf does not see CPU time)",
        EngineKind::Ptrace,
    );
    by(&["--engine", "ptrace"], "ptrace, for ", EngineKind::Ptrace);
    guest.finish();
}

#[test]
fn killing_systally_leaves_the_program_running() {
    for kind in engines() {
        let Some(guest) = Guest::start(&["busy", "4"]) else {
            return;
        };
        let pid = guest.pid().to_string();
        for round in 0..12u64 {
            let (mut child, _lines) = counting_now(&["-p", &pid, "--engine", kind.name()]);
            std::thread::sleep(Duration::from_millis(round * 3));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_free(guest.pid());
        }
        // And in the middle of attaching.
        for round in 0..12u64 {
            let mut child = systally(&["-p", &pid, "--engine", kind.name()])
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(4 + round * 2));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_free(guest.pid());
        }
        guest.finish();
    }
}

#[test]
fn a_tree_of_workers_is_counted_by_its_manager() {
    let Some((guest, workers)) = Guest::start_tree(3) else {
        return;
    };
    let manager = guest.pid().to_string();
    for kind in engines() {
        let engine = ["--engine", kind.name()];
        let (code, alone) = run(&[&["-p", &manager, "--for", "100ms"], &engine[..]].concat());
        assert_eq!(code, 0, "{alone}");
        assert!(row(&alone, "getppid").is_none(), "{alone}");
        let (code, said) = run(&[&["-p", &manager, "--tree", "--for", "300ms"], &engine[..]].concat());
        assert_eq!(code, 0, "{said}");
        assert!(row(&said, "getppid").is_some(), "{said}");
        for pid in &workers {
            assert!(said.contains(&format!("fpm-worker (pid {pid})")), "{said}");
            assert_free(*pid);
        }
    }
    let list = workers.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let (code, said) = run(&["-p", &list, "--for", "100ms"]);
    assert_eq!(code, 0, "{said}");
    // Only the workers have this name; those of other runs of this test do too.
    let (code, said) = run(&["--name", "fpm-work?r", "--for", "100ms"]);
    assert_eq!(code, 0, "{said}");
    let found = workers
        .iter()
        .filter(|pid| said.contains(&format!("(pid {pid})")))
        .count();
    assert!(found > 0, "{said}");
    guest.finish();
}

impl Guest {
    /// A manager with workers, whose ids it says.
    fn start_tree(workers: usize) -> Option<(Guest, Vec<i32>)> {
        let guest = Guest::start(&["tree", &workers.to_string()])?;
        let pids = guest
            .ready
            .split_whitespace()
            .filter_map(|word| word.parse().ok());
        let pids = pids.collect();
        Some((guest, pids))
    }
}

#[test]
fn a_control_group_names_its_processes() {
    let Some(guest) = Guest::start(&["busy", "1"]) else {
        return;
    };
    let folder = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find_map(|root| {
            let folder = std::path::Path::new(root).join(format!("systally-test-{}", std::process::id()));
            std::path::Path::new(root)
                .join("cgroup.procs")
                .exists()
                .then_some(())?;
            std::fs::create_dir(&folder).ok()?;
            Some(folder)
        });
    let Some(folder) = folder else {
        println!("SKIP: no control group can be made here");
        return;
    };
    let moved = std::fs::write(folder.join("cgroup.procs"), guest.pid().to_string());
    if moved.is_ok() {
        let (code, said) = run(&["--cgroup", folder.to_str().unwrap(), "--for", "100ms"]);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains(&format!("counting running-{} ", "")) || said.contains("(pid "),
            "{said}"
        );
        assert!(row(&said, "getppid").is_some(), "{said}");
    } else {
        println!("SKIP: a process cannot be moved into a control group here");
    }
    guest.finish();
    let (code, said) = run(&["--cgroup", folder.to_str().unwrap(), "--for", "100ms"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("no process to attach to"), "{said}");
    std::fs::remove_dir(&folder).unwrap();
}

/// What is no running program is said to be none, by every engine in the same words and with the same code.
#[test]
fn what_runs_no_program_is_answered_alike() {
    let Some(guest) = Guest::start(&["rounds", "2"]) else {
        return;
    };
    let mut zombie = Command::new("true").spawn().unwrap();
    let zombie_pid = zombie.id().to_string();
    until("it is a zombie", || {
        std::fs::read_to_string(format!("/proc/{zombie_pid}/stat"))
            .unwrap()
            .contains(") Z ")
    });
    let kernel = std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if !kernel {
        println!("SKIP: no thread of the kernel can be seen here");
    }
    let own = guest.pid().to_string();
    let tid = std::fs::read_dir(format!("/proc/{own}/task"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .find(|tid| *tid != own)
        .unwrap();
    let mut said_first: Option<Vec<String>> = None;
    for kind in engines() {
        let count = |pid: &str| run(&["-p", pid, "--for", "100ms", "--engine", kind.name()]);
        let mut said = Vec::new();
        let mut answer = |pid: &str, part: &str| {
            let (code, text) = count(pid);
            assert_eq!(code, 2, "{kind}: {text}");
            assert!(text.contains(part), "{kind}: {text}");
            said.push(text);
        };
        answer("2147483647", "there is no process 2147483647");
        answer(&zombie_pid, "has ended, and only waits for its parent");
        if kernel {
            answer("2", "kthreadd (pid 2) is a thread of the kernel");
        }
        match &said_first {
            None => said_first = Some(said),
            Some(first) => assert_eq!(*first, said),
        }
        // Beside one that runs they make the count incomplete.
        let (code, text) = count(&format!("{zombie_pid},{own}"));
        assert_eq!(code, 5, "{kind}: {text}");
        assert!(text.contains(&format!("(pid {own})")), "{text}");
        let (code, text) = count(&tid);
        assert_eq!(code, 0, "{kind}: {text}");
        let part = format!("{tid} is a thread of process {own}, which is counted with all its threads");
        assert!(text.contains(&part), "{text}");
    }
    zombie.wait().unwrap();
    guest.finish();
}

#[test]
fn wrong_usage_is_code_2() {
    let own = std::process::id().to_string();
    for (arguments, part) in [
        (&["-p", "x"][..], "'x' is no process id"),
        (&["-p", "0"], "'0' is no process id"),
        (&["-p", "2147483647"], "there is no process 2147483647"),
        (&["-p", "1", "--", "true"], "cannot be used"),
        (&["--tree", "--", "true"], "cannot be used"),
        (&["--for", "1s"], "required"),
        (&["-p", &own, "--for", "5"], "a unit is needed"),
        (&["-p", &own, "--ops-from", "x"], "--ops-from"),
        (&["-p", &own, "--engine", "bpf", "--peers"], "--engine ptrace"),
        (&["--name", "systally-no-such-name"], "no process to attach to"),
        (&["--name", "[z-a]"], "brackets"),
        (&["--name", ""], "no process has an empty name"),
        (&["--cgroup", "/systally/none"], "--cgroup /systally/none"),
        (&["-p", &own, "--server", "http://x"], "cannot begin with"),
        (
            &["-p", &own, "-o", "/nonexistent/x"],
            "cannot write /nonexistent/x",
        ),
    ] {
        let (code, said) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}

#[test]
fn a_name_that_nearly_fits_is_told() {
    let Some((guest, _)) = Guest::start_tree(1) else {
        return;
    };
    let (code, said) = run(&["--name", "fpm-wor"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--name '*fpm-wor*'"), "{said}");
    guest.finish();
}

#[test]
fn without_rights_it_says_why_and_ends_with_6() {
    if !nix::unistd::geteuid().is_root() || !common::have("setpriv") {
        println!("SKIP: only root can become a user without rights");
        return;
    }
    let Some(guest) = Guest::start(&["busy", "1"]) else {
        return;
    };
    let folder = tempfile::Builder::new()
        .prefix("systally")
        .tempdir_in("/tmp")
        .unwrap();
    let program = folder.path().join("systally");
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_systally"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--bounding-set",
                "-all",
            ])
            .arg(&program)
            .arg("count")
            .args(arguments)
            .current_dir("/")
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = as_nobody(&["-p", &guest.pid().to_string(), "--for", "1s"]);
    assert_eq!(code, Some(6), "{said}");
    assert!(
        said.contains("another user (uid 0)") && said.contains("sudo"),
        "{said}"
    );
    assert_free(guest.pid());
    guest.finish();
}

#[test]
fn another_tracer_is_named() {
    if !common::have("strace") {
        return;
    }
    let Some(guest) = Guest::start(&["busy", "1"]) else {
        return;
    };
    let pid = guest.pid();
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=none",
            "-p",
            &pid.to_string(),
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("strace has attached", || states(pid).1);
    let (code, said) = run(&["-p", &pid.to_string(), "--for", "1s", "--engine", "ptrace"]);
    strace.kill().unwrap();
    strace.wait().unwrap();
    assert_eq!(code, 6, "{said}");
    assert!(
        said.contains(&format!("traced by strace (pid {}", strace.id())),
        "{said}"
    );
    // One that can be counted is, and the other is told of; the result is not whole.
    let other = Guest::start(&["busy", "1"]).unwrap();
    let (code, said) = run(&["-p", &format!("{pid},{}", other.pid()), "--for", "100ms"]);
    assert_eq!(code, 0, "{said}");
    guest.finish();
    other.finish();
}

#[test]
fn a_process_that_is_traced_is_left_out_and_the_others_are_counted() {
    if !common::have("strace") {
        return;
    }
    let Some(guest) = Guest::start(&["busy", "1"]) else {
        return;
    };
    let Some(other) = Guest::start(&["busy", "1"]) else {
        return;
    };
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=none",
            "-p",
            &guest.pid().to_string(),
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("strace has attached", || states(guest.pid()).1);
    let (code, said) = run(&[
        "-p",
        &format!("{},{}", guest.pid(), other.pid()),
        "--for",
        "100ms",
        "--engine",
        "ptrace",
    ]);
    strace.kill().unwrap();
    strace.wait().unwrap();
    assert_eq!(code, 5, "{said}");
    assert!(
        said.contains("not counted: ") && row(&said, "getppid").is_some(),
        "{said}"
    );
    guest.finish();
    other.finish();
}

#[test]
fn a_live_phpredis_client_is_divided_by_what_its_server_counted() {
    let folder = tempfile::tempdir().unwrap();
    let has_phpredis = Command::new("php")
        .args(["-r", "exit(extension_loaded('redis') ? 0 : 1);"])
        .status()
        .is_ok_and(|status| status.success());
    if !has_phpredis || !common::have("redis-server") || !can_trace() {
        println!("SKIP: php with phpredis and redis-server are needed");
        return;
    }
    // A port that the kernel has just given and taken back.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut server = Command::new("redis-server")
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--requirepass",
            "hunter2",
            "--dir",
        ])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the server listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    // A program that systally starts is divided in the same way: 50 times two, and one AUTH.
    let uri = format!("redis://:hunter2@127.0.0.1:{port}");
    let file = folder.path().join("started.json");
    let short = format!(
        "$r = new Redis(); $r->connect('127.0.0.1', {port}); $r->auth('hunter2'); \
         for ($i = 0; $i < 50; $i++) {{ $r->set('k', $i); $r->get('k'); }}"
    );
    let (code, said) = run(&[
        "--server",
        &uri,
        "-o",
        file.to_str().unwrap(),
        "--",
        "php",
        "-r",
        &short,
    ]);
    assert_eq!(code, 0, "{said}");
    let record = systally::record::wire::load(&file).unwrap();
    let counted = record.strategies[0].counted.known().unwrap();
    assert_eq!(counted.ops, Some(systally::units::Ops(101)), "{said}");
    let script = format!(
        "$r = new Redis(); $r->connect('127.0.0.1', {port}); $r->auth('hunter2'); echo \"ready\\n\"; \
         for ($i = 0; ; $i++) {{ $r->set('k', $i); if ($r->get('k') != $i) exit(3); }}"
    );
    let mut client = Command::new("php")
        .args(["-r", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(client.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    assert_eq!(ready, "ready\n");
    let pid = client.id().to_string();
    for kind in engines() {
        let file = folder.path().join("record.json");
        let (code, said) = run(&[
            "-p",
            &pid,
            "--for",
            "1500ms",
            "--server",
            &uri,
            "--engine",
            kind.name(),
            "-o",
            file.to_str().unwrap(),
        ]);
        assert_eq!(code, 0, "{said}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!said.contains("hunter2") && !text.contains("hunter2"), "{said}");
        let record = systally::record::wire::load(&file).unwrap();
        let counted = record.strategies[0].counted.known().unwrap();
        let ops = counted.ops.expect("the server counted").0;
        assert!(ops > 20, "{said}");
        let total = counted.phases.run_loop.total();
        let sends = counted.phases.run_loop.syscalls["sendto"].calls;
        // Each operation is one send, three receives (two of them look) and a poll; one may be cut by each end.
        let by_sends = total as f64 / sends as f64;
        assert!(
            (by_sends - 5.0).abs() <= 10.0 / sends as f64,
            "{total} of {sends}: {said}"
        );
        // The server is asked within the window, so a few operations at its ends are in one number only.
        let per_op = total as f64 / ops as f64;
        assert!((4.5..5.5).contains(&per_op), "{kind}: {per_op}: {said}");
        assert!(
            said.contains("commands that the server counted") && said.contains("get "),
            "{said}"
        );
        assert!(said.contains("per op"), "{said}");
        if kind == EngineKind::Ptrace {
            let receives = &counted.phases.run_loop.syscalls["recvfrom"];
            assert_eq!(receives.peers[&format!("127.0.0.1:{port}")], receives.calls);
            assert!(
                (counted.round_trips_per_op.known().unwrap() - 1.0).abs() < 0.1,
                "{said}"
            );
        }
    }
    // The password is not in the process list while it runs.
    let (mut counting, _lines) = counting_now(&["-p", &pid, "--server", &uri, "--connections", "--peers"]);
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", counting.id())).unwrap();
    let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
    assert!(
        cmdline.contains("***") && !cmdline.contains("hunter2"),
        "{cmdline}"
    );
    kill(Pid::from_raw(counting.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(counting.wait().unwrap().code(), Some(0));
    assert!(client.try_wait().unwrap().is_none(), "the client runs on");
    assert_free(client.id() as i32);
    for child in [&mut client, &mut server] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
