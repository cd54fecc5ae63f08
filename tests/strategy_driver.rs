//! The driver against workers that do what they should not. Each worker here is a few lines of shell or
//! Python; none of them may make systally hang, panic, or leave a process behind.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod strategy_support;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use strategy_support::{LIMIT, PlainEngine, request};
use systally::engine::Exit;
use systally::run::interrupt::Interrupt;
use systally::strategy::contract::{Connect, Endpoint, LatencyMode, PROTOCOL, Spec, Stop};
use systally::strategy::worker::{Fault, Phase, Problem, WorkerError, Workers};
use systally::strategy::{Assignment, Work};

const READY: &str = r#"{"event":"ready","protocol":1,"pid":1,"versions":{"x":"1.0"}}"#;

fn spec(password: Option<&str>) -> Spec {
    let work = Work::default();
    Spec {
        protocol: PROTOCOL,
        worker: 0,
        op: work.op,
        connect: Connect::Once,
        stop: Stop::Ops(10),
        batch: 1,
        warmup: 0,
        max_errors: 100,
        forks: 0,
        servers: vec![Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: 1,
            user: None,
            password: password.map(str::to_owned),
        }],
        key: work.keys,
        payload: work.payload,
        latency: LatencyMode::Hist,
        options: Default::default(),
    }
}

fn assign(argv: &[&str], spec: Spec) -> Assignment {
    Assignment::new(argv.iter().map(OsString::from).collect(), spec)
}

fn sh(script: &str) -> Assignment {
    assign(&["sh", "-c", script], spec(None))
}

fn start(assignments: Vec<Assignment>) -> Workers {
    Workers::start(&PlainEngine, assignments, &request()).unwrap()
}

fn done(ops: u64, asked: u64, errors: &str) -> String {
    format!(r#"{{"event":"done","ops":{ops},"asked":{asked},"elapsed_ns":0,"errors":{errors}}}"#)
}

/// A worker that says these lines, one for each line it is given, after `ready`.
fn answering(lines: &[&str]) -> Assignment {
    let mut script = format!("echo '{READY}'\n");
    for line in lines {
        script.push_str(&format!("read word; echo '{line}'\n"));
    }
    script.push_str("read word");
    sh(&script)
}

fn faults(error: WorkerError) -> Vec<Fault> {
    match error {
        WorkerError::Workers { faults, .. } => faults,
        other => panic!("{other}"),
    }
}

/// The only fault of a start that must fail, and its text.
fn fails_to_start(assignment: Assignment, limit: Duration) -> (Fault, String) {
    let error = start(vec![assignment])
        .ready(limit, &Interrupt::never())
        .unwrap_err();
    let text = error.to_string();
    let [fault] = faults(error).try_into().unwrap();
    assert_eq!(fault.phase, Phase::StartUp);
    assert!(nobody_lives(fault.pid), "{text}");
    (fault, text)
}

/// The only fault of a first round that must fail, and its text.
fn fails_in_its_round(assignment: Assignment, limit: Duration) -> (Fault, String) {
    let mut workers = start(vec![assignment]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    let error = workers.round(limit, &Interrupt::never()).unwrap_err();
    let text = error.to_string();
    let [fault] = faults(error).try_into().unwrap();
    assert!(nobody_lives(fault.pid), "{text}");
    assert!(matches!(
        workers.round(limit, &Interrupt::never()),
        Err(WorkerError::Over)
    ));
    (fault, text)
}

/// Whether the group of a worker is gone. Zombies that wait for their new parent do not count.
fn nobody_lives(pid: i32) -> bool {
    let in_group = |stat: String| {
        let fields: Vec<String> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        fields.get(2).is_some_and(|group| *group == pid.to_string()) && fields[0] != "Z"
    };
    let deadline = Instant::now() + LIMIT;
    while std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .any(in_group)
    {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn python(script: &str) -> Option<Assignment> {
    let there = std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_ok();
    if !there {
        println!("SKIP: python3 is not installed");
    }
    there.then(|| assign(&["python3", "-c", script], spec(None)))
}

#[test]
fn two_rounds_and_an_end() {
    let mut workers = start(vec![answering(&[
        &done(10, 10, "{}"),
        &done(8, 10, r#"{"ServerError:OOM no":2}"#),
    ])]);
    let ready = workers.ready(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(ready[0].versions["x"], "1.0");
    let round = workers.round(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!((round.dones.len(), round.dones[0].ops), (1, 10));
    let round = workers.round(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(round.dones[0].errors["ServerError:OOM no"], 2);
    let outcome = workers.finish(LIMIT).unwrap();
    assert_eq!((outcome.exits, outcome.notes), (vec![Exit::Code(0)], vec![]));
}

#[test]
fn nobody_goes_before_all_are_ready() {
    // The slow one ends if `go` comes before its `ready`.
    let Some(slow) = python(&format!(
        "import select, sys\n\
         if select.select([0], [], [], 0.3)[0]: sys.exit(9)\n\
         print('{READY}', flush=True); sys.stdin.readline()\n\
         print('{}', flush=True); sys.stdin.readline()",
        done(10, 10, "{}")
    )) else {
        return;
    };
    let mut workers = start(vec![answering(&[&done(10, 10, "{}")]), slow]);
    assert_eq!(workers.ready(LIMIT, &Interrupt::never()).unwrap().len(), 2);
    let round = workers.round(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(round.dones.len(), 2);
    assert_eq!(workers.finish(LIMIT).unwrap().exits, [Exit::Code(0); 2]);
}

#[test]
fn text_before_ready_is_a_note() {
    let mut workers = start(vec![sh(&format!(
        "echo; echo 'PHP Warning:  \x1b[31mred'; echo '{READY}'; read word; echo '{}'; echo after; read word",
        done(10, 10, "{}")
    ))]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    workers.round(LIMIT, &Interrupt::never()).unwrap();
    let notes = workers.finish(LIMIT).unwrap().notes;
    assert!(
        notes
            .iter()
            .any(|note| note.contains("PHP Warning:  \\u{1b}[31mred")),
        "{notes:?}"
    );
}

#[test]
fn garbage_is_shown_escaped() {
    for (script, part, why) in [
        ("printf '\\377\\376\\n'", "\u{fffd}", "not UTF-8"),
        ("printf 'a\\000b\\n'", "a\\u{0}b", "control"),
        ("echo '{\"event\":\"hello\"}'", "hello", "no event"),
        ("echo '{\"level\":\"warn\"}'", "warn", "no event"),
        ("echo '{'", "{", "no event"),
        ("echo '{\"event\":\"done\",\"ops\":-1}'", "-1", "no event"),
    ] {
        let (fault, text) = fails_to_start(sh(&format!("{script}; sleep 60")), LIMIT);
        let Problem::Garbage { line, why: said } = &fault.problem else {
            panic!("{text}")
        };
        assert!(line.contains(part) && said.contains(why), "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
}

#[test]
fn text_in_the_window_is_garbage() {
    let (fault, text) = fails_in_its_round(answering(&["Warning: something"]), LIMIT);
    assert!(matches!(fault.problem, Problem::Garbage { .. }), "{text}");
    assert!(
        text.contains("in its round") && text.contains("Warning: something"),
        "{text}"
    );
}

#[test]
fn silence_has_a_limit_and_shows_the_last_words() {
    let (fault, text) = fails_to_start(
        sh("echo one >&2; echo two >&2; sleep 60"),
        Duration::from_millis(400),
    );
    assert!(matches!(fault.problem, Problem::TimedOut { .. }), "{text}");
    assert_eq!(fault.stderr, "one\ntwo\n");
    assert!(text.ends_with("standard error: one | two"), "{text}");

    let silent = sh(&format!("echo '{READY}'; sleep 60"));
    let (fault, text) = fails_in_its_round(silent, Duration::from_millis(200));
    assert!(matches!(fault.problem, Problem::TimedOut { .. }), "{text}");
    assert!(text.contains("in its round, within 0.2 s"), "{text}");
}

#[test]
fn a_line_without_an_end_is_named() {
    let (_, text) = fails_to_start(
        sh(&format!("printf '{READY}'; sleep 60")),
        Duration::from_millis(400),
    );
    assert!(
        text.contains("a line without its end: {\"event\":\"ready\""),
        "{text}"
    );
}

#[test]
fn an_early_end_is_told_with_its_status() {
    let (fault, text) = fails_to_start(sh("echo no such module >&2; exit 7"), LIMIT);
    assert_eq!(
        fault.problem,
        Problem::Ended {
            exit: Some(Exit::Code(7))
        }
    );
    assert!(
        text.contains("exit status 7") && text.ends_with("no such module"),
        "{text}"
    );

    let (fault, text) = fails_to_start(sh("kill -SEGV $$"), LIMIT);
    assert_eq!(
        fault.problem,
        Problem::Ended {
            exit: Some(Exit::Signal(11))
        }
    );
    assert!(text.contains("SIGSEGV"), "{text}");

    let (fault, text) = fails_in_its_round(sh(&format!("echo '{READY}'; read word; kill -KILL $$")), LIMIT);
    assert_eq!(
        fault.problem,
        Problem::Ended {
            exit: Some(Exit::Signal(9))
        }
    );
    assert!(text.contains("in its round"), "{text}");

    // It went away while nobody asked it for anything.
    let (fault, _) = fails_in_its_round(sh(&format!("echo '{READY}'; exit 0")), LIMIT);
    assert_eq!(
        fault.problem,
        Problem::Ended {
            exit: Some(Exit::Code(0))
        }
    );
}

#[test]
fn an_output_that_closes_is_no_end() {
    let (fault, text) = fails_to_start(sh("exec >&-; sleep 60"), LIMIT);
    assert_eq!(fault.problem, Problem::ClosedOutput, "{text}");
}

#[test]
fn a_fail_line_is_passed_on() {
    let line = r#"{"event":"fail","class":"connect","message":"tcp://h:1: Connection refused"}"#;
    // With and without an end, since the worker is over.
    for script in [
        format!("echo '{line}'; exit 3"),
        format!("printf '{line}'; exit 3"),
    ] {
        let (fault, text) = fails_to_start(sh(&script), LIMIT);
        assert_eq!(
            fault.problem,
            Problem::Failed {
                class: "connect".into(),
                message: "tcp://h:1: Connection refused".into(),
            },
            "{text}"
        );
    }
}

#[test]
fn results_that_cannot_be_true_are_refused() {
    for (line, part) in [
        (done(11, 11, "{}"), "began 11 operations, and was asked for 10"),
        (
            done(9, 9, "{}"),
            "began 9 operations of the 10 it was asked for, and names no failure",
        ),
        (
            done(10, 9, r#"{"E:x":1}"#),
            "completed 10 operations, and began 9",
        ),
        (done(9, 10, "{}"), "9 were completed and 0 failed"),
        (done(9, 10, r#"{"E:x":2}"#), "9 were completed and 2 failed"),
        (
            done(9, 10, r#"{"E:x":18446744073709551615,"F:y":1}"#),
            "operations, but",
        ),
        (
            done(10, 10, "{}").replace("\"elapsed_ns\":0", "\"elapsed_ns\":3600000000000"),
            "its round took 3600 s, but only",
        ),
        (
            done(10, 10, r#"{},"latency":{"unit":"us","per":"op","hist":[]}"#),
            "its times are in us per op",
        ),
        (
            done(10, 10, r#"{},"latency":{"unit":"ns","per":"op","hist":[[0,11]]}"#),
            "it timed 11 operations, and began 10",
        ),
    ] {
        let (fault, text) = fails_in_its_round(answering(&[&line]), LIMIT);
        assert!(matches!(fault.problem, Problem::Miscounted { .. }), "{text}");
        assert!(text.contains(part), "{text}\nnot: {part}");
    }
}

#[test]
fn fewer_operations_with_failures_are_a_result() {
    let mut workers = start(vec![answering(&[&done(3, 5, r#"{"receive:gone\u001b":2}"#)])]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    let round = workers.round(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(round.dones[0].asked, 5);
    assert_eq!(round.dones[0].errors["receive:gone\\u{1b}"], 2);
}

#[test]
fn another_protocol_and_another_order_are_refused() {
    let (fault, _) = fails_to_start(sh(&format!("echo '{}'", READY.replace("l\":1", "l\":2"))), LIMIT);
    assert_eq!(fault.problem, Problem::WrongProtocol { said: 2 });

    let (fault, _) = fails_to_start(sh(&format!("echo '{}'", done(1, 1, "{}"))), LIMIT);
    assert_eq!(fault.problem, Problem::OutOfOrder { said: "done" });

    let (fault, _) = fails_in_its_round(answering(&[READY]), LIMIT);
    assert_eq!(fault.problem, Problem::OutOfOrder { said: "ready" });

    let (fault, _) = fails_to_start(
        sh(&format!("printf '%s\\n' '{READY}' '{READY}'; sleep 60")),
        LIMIT,
    );
    assert_eq!(fault.problem, Problem::OutOfOrder { said: "ready" });

    // Results that nobody asked for, found when the next round begins.
    let twice = format!("{}'; sleep 0.1; echo '{}", done(10, 10, "{}"), done(10, 10, "{}"));
    let mut workers = start(vec![answering(&[&twice])]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    workers.round(LIMIT, &Interrupt::never()).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let [fault] = faults(workers.round(LIMIT, &Interrupt::never()).unwrap_err())
        .try_into()
        .unwrap();
    assert_eq!(fault.phase, Phase::Idle);
    assert_eq!(fault.problem, Problem::OutOfOrder { said: "done" });
}

#[test]
fn floods_are_bounded() {
    // One endless line, and endless lines.
    for script in ["yes | tr -d '\\n'", "yes"] {
        let (fault, text) = fails_to_start(sh(script), LIMIT);
        assert!(matches!(fault.problem, Problem::TooMuch { .. }), "{text}");
        assert!(text.len() < 1_000, "{text}");
    }
    // A flood on standard error is drained, and stands in nobody's way.
    let Some(noisy) = python(&format!(
        "import sys\n\
         def noise(): sys.stderr.write('n' * 1_000_000 + '\\nend\\n'); sys.stderr.flush()\n\
         noise(); print('{READY}', flush=True)\n\
         sys.stdin.readline(); noise(); print('{}', flush=True)\n\
         noise(); sys.stdin.readline(); noise()",
        done(10, 10, "{}")
    )) else {
        return;
    };
    let mut workers = start(vec![noisy]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    workers.round(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(workers.finish(LIMIT).unwrap().exits, [Exit::Code(0)]);
}

#[test]
fn a_worker_that_will_not_end_is_ended() {
    let stubborn = sh(&format!(
        "trap '' TERM INT HUP; echo '{READY}'; while :; do sleep 1; done"
    ));
    let mut workers = start(vec![stubborn]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    let outcome = workers.finish(Duration::from_millis(300)).unwrap();
    assert_eq!(outcome.exits, [Exit::Signal(9)]);
    assert!(
        outcome.notes.iter().any(|note| note.contains("SIGKILL")),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn a_descendant_that_holds_the_pipes_holds_up_nothing() {
    let begun = Instant::now();
    let script = format!("sleep 30 & echo '{READY}'; read word; exit 0");
    let mut workers = start(vec![sh(&script)]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(workers.finish(LIMIT).unwrap().exits, [Exit::Code(0)]);
    assert!(begun.elapsed() < LIMIT);
}

#[test]
fn one_bad_worker_is_told_from_all() {
    let good = || answering(&[&done(10, 10, "{}")]);
    let error = start(vec![good(), sh("exit 1"), good()])
        .ready(LIMIT, &Interrupt::never())
        .unwrap_err();
    let text = error.to_string();
    let [fault] = faults(error).try_into().unwrap();
    assert_eq!(fault.worker, 1);
    assert!(text.contains("1 of 3 workers failed"), "{text}");

    let refused = r#"{"event":"fail","class":"connect","message":"max number of clients reached"}"#;
    let error = start((0..5).map(|_| sh(&format!("echo '{refused}'; exit 3"))).collect())
        .ready(LIMIT, &Interrupt::never())
        .unwrap_err();
    assert!(error.to_string().contains("5 of 5 workers failed"), "{error}");
}

#[test]
fn many_workers_are_served_by_one_thread() {
    let line = done(10, 10, "{}");
    let mut workers = start((0..100).map(|_| answering(&[&line, &line])).collect());
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    for _ in 0..2 {
        assert_eq!(
            workers.round(LIMIT, &Interrupt::never()).unwrap().dones.len(),
            100
        );
    }
    assert_eq!(workers.finish(LIMIT).unwrap().exits, [Exit::Code(0); 100]);
}

#[test]
fn an_interrupt_ends_the_wait_and_the_workers() {
    let interrupt = Interrupt::install().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let mut workers = start(vec![sh(&format!(
        "echo $$ > {}; echo '{READY}'; sleep 60",
        pid_file.display()
    ))]);
    workers.ready(LIMIT, &interrupt).unwrap();
    let raiser = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(100));
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
    });
    let error = workers.round(LIMIT, &interrupt).unwrap_err();
    raiser.join().unwrap();
    assert!(matches!(error, WorkerError::Interrupted { signal: 1 }), "{error}");
    let pid = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    assert!(nobody_lives(pid));
}

#[test]
fn dropping_the_workers_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let mut workers = start(vec![sh(&format!(
        "echo $$ > {}; echo '{READY}'; sleep 60",
        pid_file.display()
    ))]);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    let pid = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    drop(workers);
    assert!(nobody_lives(pid));
}

#[test]
fn a_password_goes_in_by_stdin_and_never_comes_out() {
    let secret = "hunter2\"'";
    let script = r#"test -z "$SYSTALLY_SPEC" || exit 9
        env | grep -F hunter2 && exit 8
        read -r line
        case $line in *hunter2*) ;; *) exit 7 ;; esac
        echo "warning: $line" >&2
        printf '%s\n' "it was $line"
        printf '%s\n' "{\"event\":\"fail\",\"class\":\"connect\",\"message\":\"hunter2\\\"' is wrong\"}"
        exit 3"#;
    let worker = assign(&["sh", "-c", script], spec(Some(secret)));
    let environment = format!("{:?}{:?}", worker.program.env, worker.spec);
    assert!(!environment.contains("hunter2"), "{environment}");
    let (fault, text) = fails_to_start(worker, LIMIT);
    assert!(
        matches!(&fault.problem, Problem::Failed { message, .. } if message == "*** is wrong"),
        "{text}"
    );
    assert!(!format!("{fault:?}{text}").contains("hunter2"), "{fault:?}");
}

#[test]
fn a_program_that_is_not_there_is_the_engines_error() {
    let nothing = assign(&["/nowhere/at/all"], spec(None));
    let error = Workers::start(&PlainEngine, vec![nothing], &request())
        .err()
        .unwrap();
    assert!(matches!(error, WorkerError::Engine(_)), "{error}");
}
