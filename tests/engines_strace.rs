//! The strace engine: a log that is read must come to the same numbers as every other engine, and strace
//! must leave nothing behind.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod engines_support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engines_support::*;
use systally::engine::{EngineError, EngineKind, Exit, Request, Selection, Stdio, Window, engine};
use systally::tally::{Errno, Syscall};

const STRACE: EngineKind = EngineKind::Strace;

/// The guest, when everything is there.
fn ready() -> Option<PathBuf> {
    usable(STRACE).then(guest).flatten()
}

/// The process that traces another one, from its status file.
fn tracer_of(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    line.unwrap().trim().parse().unwrap()
}

/// Whether a process is gone, or only waits to be reaped.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn sleeper() -> systally::engine::Program {
    let mut program = program(Path::new("sleep"), "1000", Stdio::Inherit);
    program.argv = ["sleep", "1000"].map(Into::into).to_vec();
    program
}

#[test]
fn several_programs_are_counted_each_by_its_own_strace() {
    let Some(guest) = ready() else { return };
    let outcome = run(STRACE, &guest, "calls 50", 10);
    assert_eq!(outcome.exits, vec![Exit::Code(0); 10]);
    assert_eq!(calls(counted(&outcome), "getppid"), 500);
    assert_eq!(calls(counted(&outcome), "execve"), 10);
    assert_eq!(entries(counted(&outcome), "exit_group"), 10);
    assert_eq!(outcome.tracees, 10);
}

#[test]
fn phases_change_at_the_very_call() {
    let Some(guest) = ready() else { return };
    for how in ["write", "writev", "unread"] {
        for (copies, rounds) in [(1, 1), (2, 3)] {
            let programs = vec![program(&guest, &format!("worker {rounds} 40 {how}"), Stdio::Piped); copies];
            let mut session = engine(STRACE)
                .launch(programs, &request(Window::Markers))
                .unwrap();
            drive(session.pipes(), rounds);
            let outcome = session.finish(Some(LIMIT)).unwrap();
            let all = tallies(&outcome);
            let (workers, rounds) = (copies as u64, u64::from(rounds));
            let context = format!("{how}, {workers} workers, {rounds} rounds");
            assert_eq!(calls(&all.startup, "getppid"), 2 * workers, "{context}");
            assert_eq!(
                calls(&all.run_loop, "getppid"),
                40 * rounds * workers,
                "{context}"
            );
            assert_eq!(calls(&all.shutdown, "getppid"), 5 * rounds * workers, "{context}");
            assert_eq!(all.run_loop.calls.len(), 1, "{context}: {:?}", all.run_loop);
            let open = |window: &systally::units::Measured<systally::units::Nanos>| {
                window.known().is_some_and(|span| span.0 > 0)
            };
            assert!(
                outcome.windows.iter().all(open),
                "{context}: {:?}",
                outcome.windows
            );
        }
    }
}

#[test]
fn only_chosen_calls_are_counted() {
    let Some(guest) = ready() else { return };
    let getppid = Syscall::native(libc::SYS_getppid);
    for (selection, kept) in [
        (Selection::Only(vec![getppid]), true),
        (Selection::Except(Syscall::all_by_name("getppid")), false),
    ] {
        let chosen = Request {
            selection,
            ..request(Window::Whole)
        };
        let programs = vec![program(&guest, "calls 9", Stdio::Inherit)];
        let outcome = engine(STRACE)
            .launch(programs, &chosen)
            .unwrap()
            .finish(Some(LIMIT))
            .unwrap();
        assert_eq!(calls(counted(&outcome), "getppid"), if kept { 9 } else { 0 });
        assert_eq!(counted(&outcome).calls.len() == 1, kept);
    }
}

#[test]
fn the_program_is_systally_s_own_child_and_ends_as_it_does() {
    if !usable(STRACE) || !have("sh") {
        return;
    }
    for (script, exit) in [
        ("exit 7", Exit::Code(7)),
        ("kill -TERM $$", Exit::Signal(libc::SIGTERM)),
    ] {
        let mut shell = program(Path::new("sh"), "", Stdio::Inherit);
        shell.argv = ["sh", "-c", script].map(Into::into).to_vec();
        let session = engine(STRACE)
            .launch(vec![shell], &request(Window::Whole))
            .unwrap();
        assert_eq!(session.finish(Some(LIMIT)).unwrap().exits, [exit], "{script}");
    }
}

#[test]
fn signals_reach_the_program_and_not_its_strace() {
    if !usable(STRACE) || !have("sleep") {
        return;
    }
    let session = engine(STRACE)
        .launch(vec![sleeper()], &request(Window::Whole))
        .unwrap();
    session.signal(libc::SIGTERM);
    let outcome = session.finish(Some(LIMIT)).unwrap();
    assert_eq!(outcome.exits, [Exit::Signal(libc::SIGTERM)]);
    // Had strace been ended as well, there would be no count.
    assert_eq!(entries(counted(&outcome), "execve"), 1);
}

#[test]
fn what_still_runs_at_the_limit_is_killed_and_said() {
    if !usable(STRACE) || !have("sh") || !have("sleep") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = "(setsid sleep 1000 >/dev/null 2>&1 & echo $! > \"$0\") & wait";
    let mut daemon = program(Path::new("sh"), "", Stdio::Inherit);
    daemon.argv = ["sh", "-c", script].map(Into::into).to_vec();
    daemon.argv.push(file.path().into());
    let session = engine(STRACE)
        .launch(vec![daemon], &request(Window::Whole))
        .unwrap();
    let begun = Instant::now();
    while std::fs::read_to_string(file.path()).unwrap().trim().is_empty() {
        assert!(begun.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let outcome = session.finish(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
    let daemon = std::fs::read_to_string(file.path()).unwrap();
    assert!(is_gone(daemon.trim().parse().unwrap()));
}

#[test]
fn dropping_a_session_ends_its_programs_and_straces() {
    if !usable(STRACE) || !have("sleep") {
        return;
    }
    let session = engine(STRACE)
        .launch(vec![sleeper()], &request(Window::Whole))
        .unwrap();
    let pid = session.pids()[0];
    let tracer = tracer_of(pid);
    assert!(tracer > 0);
    drop(session);
    assert!(is_gone(pid));
    let begun = Instant::now();
    while !is_gone(tracer) {
        assert!(begun.elapsed() < LIMIT, "its strace still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_strace_leaves_no_tracee_and_no_count() {
    if !usable(STRACE) || !have("sleep") {
        return;
    }
    let session = engine(STRACE)
        .launch(vec![sleeper()], &request(Window::Whole))
        .unwrap();
    let pid = session.pids()[0];
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(tracer_of(pid)),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let outcome = session.finish(Some(LIMIT)).unwrap();
    assert_eq!(outcome.exits, [Exit::Signal(libc::SIGKILL)]);
    assert!(is_gone(pid));
    let why = outcome.tallies.reason().unwrap();
    assert!(why.contains("was it killed?"), "{why}");
    assert_eq!(outcome.notes, Vec::<String>::new());
}

#[test]
fn a_killed_systally_leaves_no_program_behind() {
    if !usable(STRACE) || !have("sleep") {
        return;
    }
    let mut systally = std::process::Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["count", "--engine", "strace", "--", "sleep", "1000"])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let child = |of: u32| {
        let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
        let threads = std::fs::read_dir(format!("/proc/{of}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let of_threads =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let all: Vec<i32> = std::iter::once(children)
            .chain(of_threads)
            .flat_map(|list| {
                list.split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        all.into_iter().find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
        })
    };
    let (pid, tracer) = loop {
        assert!(begun.elapsed() < LIMIT, "the program never began");
        if let Some(pid) = child(systally.id()) {
            break (pid, tracer_of(pid));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    systally.kill().unwrap();
    systally.wait().unwrap();
    for (pid, what) in [(pid, "the program"), (tracer, "its strace")] {
        while !is_gone(pid) {
            assert!(begun.elapsed() < LIMIT, "{what} still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn what_killed_runs_left_behind_is_swept() {
    use std::os::unix::fs::DirBuilderExt;
    if !usable(STRACE) {
        return;
    }
    let base = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    // No process has this start time, so its owner is dead.
    let left = base.path().join("systally-1-18446744073709551615-0");
    std::fs::DirBuilder::new().mode(0o700).create(&left).unwrap();
    std::fs::write(left.join("owner.lock"), "").unwrap();
    let fifo = left.join("0");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["count", "--engine", "strace", "--", "true"])
        .env("TMPDIR", base.path())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(!left.exists());
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_of_the_launch() {
    if !usable(STRACE) {
        return;
    }
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), "no program").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(text.path(), executable).unwrap();
    let path = text.into_temp_path();
    for (name, errno) in [
        (Path::new("/no/such/program"), nix::errno::Errno::ENOENT),
        (&path, nix::errno::Errno::ENOEXEC),
    ] {
        let programs = vec![program(name, "", Stdio::Inherit)];
        match engine(STRACE).launch(programs, &request(Window::Whole)) {
            Err(EngineError::Exec { source, .. }) => assert_eq!(source, errno),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{} was launched", name.display()),
        }
    }
}

#[test]
fn errors_and_restarts_are_told_apart() {
    let Some(guest) = ready() else { return };
    let outcome = run(STRACE, &guest, "restart", 1);
    let recvfrom = &counted(&outcome).calls[&Syscall::native(libc::SYS_recvfrom)];
    assert_eq!(recvfrom.calls, 11);
    assert_eq!(recvfrom.restarts, BTreeMap::from([(Errno(512), 10)]));
    assert_eq!(recvfrom.errors, BTreeMap::new());
    assert!(recvfrom.wall.0 > 0);
}
