//! `systally bench` given what it cannot use: a clear message, the next step, the exit code of the design,
//! and never a panic or a hang.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;
mod strategy_support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use bench_support::{Ended, Run, codes, finding, have, may_trace, row_is};
use strategy_support::Redis;
use systally::record::{FailureKind, Record, Status};

fn refused(args: &[&str]) -> Ended {
    let ended = Run::bench(args).end();
    ended.code(2);
    assert_eq!(ended.stdout, "", "{args:?}");
    assert!(!ended.stderr.is_empty());
    ended
}

#[test]
fn an_unknown_strategy_is_refused_with_the_nearest_one() {
    for (wrong, near) in [
        ("phpredus", "phpredis"),
        ("redis-rs/persistant/tcp", "persistent"),
        ("raw/persistent/tpc", "tcp"),
        ("RAW", "raw"),
    ] {
        let ended = refused(&[wrong]);
        let error = ended.error();
        assert!(error.contains(wrong) && error.contains(near), "{error}");
    }
    // Among several, the wrong one is named.
    assert!(refused(&["raw", "redis-sr"]).error().contains("redis-sr"));
    // What nothing is near to still has a next step.
    assert!(refused(&["zzzzzzzzzz"]).error().contains("systally list"));
    let ended = refused(&["raw/persistent/tcp", "--baseline", "phpredis"]);
    assert!(ended.error().contains("--baseline phpredis"), "{}", ended.stderr);
}

/// Nothing is left to run: the option that dropped it is named, and what can be done.
#[test]
fn an_option_that_leaves_nothing_is_named() {
    for (args, parts) in [
        (
            &["-k", "0", "raw/persistent"][..],
            &[
                "--keep-alive 0",
                "raw/persistent/tcp, raw/persistent/unix",
                "'*/connect'",
            ][..],
        ),
        (
            &["--keep-alive", "1", "redis-rs/connect/tcp"],
            &["--keep-alive 1", "(redis-rs/connect/tcp)", "'*/persistent'"],
        ),
        (
            &["-k", "0", "--", "true"],
            &["--keep-alive 0", "a program behind --", "leave --keep-alive out"],
        ),
    ] {
        let ended = refused(args);
        let error = ended.error();
        for part in parts {
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }
}

#[test]
fn control_characters_in_arguments_are_not_shown_as_they_are() {
    let long = "x".repeat(65_536);
    for args in [
        &["raw\u{1b}[31m/x"][..],
        &["--clients", "a\u{1b}[31m"],
        &["--a\u{1b}[31m"],
        &["--clients", &long],
        &["--duration", &long],
        &[&format!("--{long}")],
    ] {
        let ended = refused(args);
        assert!(!ended.stderr.contains('\u{1b}'), "{:?}", ended.stderr);
        assert!(ended.stderr.len() < 2_000, "{} bytes", ended.stderr.len());
    }
}

/// Where there is no `/proc` nothing can be measured, and each command says so in the same words.
#[test]
fn without_proc_the_next_step_is_told() {
    const UNMOUNT: &str = "umount -l /proc && exec \"$0\" \"$@\"";
    let within = |args: &[&str]| {
        std::process::Command::new("unshare")
            .args(["-m", "sh", "-c", UNMOUNT])
            .args(args)
            .output()
    };
    if !within(&["true"]).is_ok_and(|output| output.status.success()) {
        println!("SKIP: /proc cannot be unmounted in a namespace here");
        return;
    }
    for args in [
        &["bench", "raw", "--builtin-server", "-n", "10"][..],
        &["count", "-p", "1"],
        &["preflight"],
        &["list"],
    ] {
        let output = within(&[&[env!("CARGO_BIN_EXE_systally")], args].concat()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
        assert!(said.contains("mount -t proc proc /proc"), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn absurd_numbers_are_refused_by_the_flag_that_has_them() {
    for (flag, value) in [
        ("--requests", "0"),
        ("--requests", "-5"),
        ("--requests", "99999999999999999999"),
        ("--requests", "1e6"),
        ("--clients", "0"),
        ("--clients", "100000"),
        ("--clients", "1,0"),
        ("--clients", ""),
        ("--pipeline", "0"),
        ("--pipeline", "1000000000"),
        ("--data-size", "0"),
        ("--data-size", "99999999999"),
        ("--keyspace", "0"),
        ("--runs", "0"),
        ("--warmup", "-1"),
        ("--port", "0"),
        ("--port", "70000"),
        ("--duration", "0s"),
        ("--duration", "5"),
        ("--timeout", "nans"),
        ("--timeout", "infs"),
        ("--counted-requests", "0"),
        ("--keep-alive", "2"),
        ("--tests", "flushall"),
        ("--format", "yaml"),
        ("--engine", "dtrace"),
    ] {
        let ended = refused(&["raw", &format!("{flag}={value}")]);
        assert!(ended.stderr.contains(flag), "{flag}={value}: {}", ended.stderr);
    }
    refused(&["raw", "-n", "10", "--duration", "1s"]);
    refused(&["raw", "--builtin-server", "-p", "1"]);
    refused(&["raw/persistent/tcp", "-k", "0"]);
}

#[test]
fn a_uri_that_leads_nowhere_is_refused() {
    for uri in [
        "http://127.0.0.1:6379",
        "rediss://127.0.0.1",
        "127.0.0.1:6379",
        "redis://host:port",
        "redis://host:99999",
        "unix:",
        "",
    ] {
        let ended = refused(&["raw", "-u", uri]);
        let error = ended.error();
        let names = ["redis://", "rediss://", "unix://", "-u"];
        assert!(names.iter().any(|name| error.contains(name)), "{uri}: {error}");
    }
    // A password in a URI that cannot be used is not repeated.
    let ended = refused(&["raw", "-u", "http://:hunter2@127.0.0.1"]);
    assert!(!ended.all().contains("hunter2"), "{}", ended.all());
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let ended = Run::bench(["raw", "-p", &port.to_string()]).end();
    ended.code(1);
    let error = ended.error();
    assert!(
        error.contains("refused") && error.contains(&port.to_string()),
        "{error}"
    );
    let ended = Run::bench(["raw", "-h", "no-such-host.invalid"]).end();
    ended.code(1);
    assert!(ended.error().contains("no-such-host.invalid"), "{}", ended.stderr);
}

#[test]
fn each_way_a_socket_cannot_be_used_has_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    drop(UnixListener::bind(at("stale")).unwrap());
    for (path, words) in [
        (at("missing"), "no such socket"),
        (at("file"), "not a socket"),
        (folder.path().to_owned(), "not a socket"),
        (at("stale"), "no server listens on it any more"),
        (at("file").join("below"), "no such socket"),
        (PathBuf::from(format!("/{}", "x".repeat(300))), "long"),
    ] {
        let ended = Run::bench(["raw", "-s"]).arg(&path).end();
        let error = ended.error();
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{error}");
        assert!(error.contains(words), "{}: {error}", path.display());
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_server_of_another_kind_is_named() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let web = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 100]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let ended = Run::bench(["raw", "-p", &port]).end();
    ended.code(1);
    assert!(ended.error().contains("HTTP"), "{}", ended.stderr);
    web.join().unwrap();
}

/// Runs a shell script as a worker.
fn script(text: &str, more: &[&str]) -> (Ended, Record) {
    let run = Run::bench(["--runs", "1", "--warmup", "0", "-n", "10", "--engine", "none"]).args(more);
    let path = run.path("record.json");
    let ended = run.arg("-o").arg(&path).args(["--", "sh", "-c", text]).end();
    let record = ended.saved(&path);
    (ended, record)
}

const READY: &str = r#"echo '{"event":"ready","protocol":1,"pid":1,"versions":{}}'; read go; "#;

fn fails(text: &str, kind: FailureKind, code: &str, words: &str) {
    fails_within("2s", text, kind, code, words);
}

fn fails_within(limit: &str, text: &str, kind: FailureKind, code: &str, words: &str) {
    let (ended, record) = script(text, &["--timeout", limit]);
    ended.code(1);
    for transport in ["tcp", "unix"] {
        // The only command of a line names the row (`yes`), else the shell does.
        let name = text.strip_prefix("yes ").map_or("sh", |_| "yes");
        let row = row_is(&record, &format!("{name}/persistent/{transport}"), Status::Failed);
        let failure = row.failure.as_ref().unwrap();
        assert_eq!(failure.kind, kind, "{text}: {failure:?}");
        assert!(
            row.reason.as_ref().unwrap().contains(words),
            "{text}: {:?}",
            row.reason
        );
    }
    assert_eq!(codes(&record), [code, code], "{text}: {:?}", record.findings);
    assert!(ended.stdout.contains(code), "{}", ended.all());
    assert!(!finding(&record, code).try_next.is_empty());
}

/// A worker that starts a daemon in its timed round does not leave it behind, and one that nobody is to end stays.
#[test]
fn a_daemon_of_a_worker_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("pids");
    let daemon = format!(
        "(setsid sh -c 'echo $$ >> {list}; exec sleep 600' >/dev/null 2>&1 </dev/null &) ; \
         while [ ! -s {list} ]; do sleep 0.01; done; ",
        list = list.display()
    );
    let mut bystander = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    script(&format!("{daemon}{READY} exit 0"), &["--timeout", "30s"]);
    let pids = std::fs::read_to_string(&list).unwrap();
    assert!(pids.lines().count() >= 1);
    for pid in pids.lines() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn a_program_that_is_no_worker_is_a_row_that_says_what_it_did() {
    let said = FailureKind::Said;
    let garbage = FailureKind::Garbage;
    let died = FailureKind::Died;
    let hung = FailureKind::Hung;
    fails("exit 7", died, "WORKER_DIED", "exit status 7");
    fails("echo oops >&2; kill -9 $$", died, "WORKER_DIED", "oops");
    fails(
        "printf 'x\\000\\001y\\n'; sleep 60",
        garbage,
        "WORKER_GARBAGE",
        "control characters",
    );
    fails(
        "echo '{\"event\":\"banana\"}'; sleep 60",
        garbage,
        "WORKER_GARBAGE",
        "no event",
    );
    fails("echo hello; sleep 60", hung, "WORKER_HUNG", "no answer");
    fails("sleep 60", hung, "WORKER_HUNG", "no answer before it was ready");
    fails(
        &format!("{READY} sleep 60"),
        hung,
        "WORKER_HUNG",
        "no answer in its round",
    );
    fails(&format!("{READY} exit 0"), died, "WORKER_DIED", "in its round");
    fails_within("60s", "yes spam", garbage, "WORKER_GARBAGE", "KiB");
    fails(
        "exec >&-; sleep 60",
        garbage,
        "WORKER_GARBAGE",
        "closed its standard output",
    );
    fails(
        "trap '' TERM INT; while :; do :; done",
        hung,
        "WORKER_HUNG",
        "no answer",
    );
    fails("sleep 60 & exit 1", died, "WORKER_DIED", "exit status 1");
    let fail = r#"echo '{"event":"fail","class":"config","message":"the flux is low"}'; exit 3"#;
    fails(fail, said, "WORKER_REFUSED", "the flux is low");
}

#[test]
fn a_result_that_cannot_be_true_is_none() {
    let done = |ops: u64, asked: u64, elapsed: u64| {
        format!(
            "{READY} echo '{{\"event\":\"done\",\"ops\":{ops},\"asked\":{asked},\"elapsed_ns\":{elapsed},\"errors\":{{}}}}'; read exit"
        )
    };
    let miscounted = FailureKind::Miscounted;
    fails(&done(11, 11, 1), miscounted, "WORKER_MISCOUNTED", "asked for 10");
    fails(
        &done(10, 10, u64::MAX),
        miscounted,
        "WORKER_MISCOUNTED",
        "went by",
    );
    fails(&done(20, 10, 1), miscounted, "WORKER_MISCOUNTED", "completed 20");
    fails(&done(9, 10, 1), miscounted, "WORKER_MISCOUNTED", "failed");
    fails(
        &done(u64::MAX, u64::MAX, 1),
        miscounted,
        "WORKER_MISCOUNTED",
        "asked for 10",
    );
}

/// Opening a FIFO would wait for whoever writes to it.
#[test]
fn a_list_of_clients_that_is_no_file_is_refused() {
    let run = Run::bench(["raw/persistent/tcp", "--clients-file"]);
    let fifo = run.path("clients.toml");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let ended = run.arg(&fifo).end();
    ended.code(2);
    assert!(ended.error().contains("not a file"), "{}", ended.all());
}

/// Numbers that no machine reaches add up without an accident.
#[test]
fn absurd_claims_add_up() {
    let done = format!(
        "while :; do echo '{{\"event\":\"done\",\"ops\":{0},\"asked\":{0},\"elapsed_ns\":1,\"errors\":{{}}}}'; read go || exit 0; done",
        u64::MAX - 1
    );
    let run = Run::bench([
        "--runs",
        "2",
        "--warmup",
        "1",
        "--duration",
        "10ms",
        "-c",
        "2",
        "--engine",
        "none",
    ]);
    let path = run.path("record.json");
    let ended = run
        .arg("-o")
        .arg(&path)
        .args(["--", "sh", "-c", &format!("{READY} {done}")])
        .end();
    ended.code(5);
    let record = ended.saved(&path);
    row_is(&record, "sh/persistent/tcp", Status::Unverified);
}

#[test]
fn a_claim_without_work_is_unverified() {
    let done = r#"echo '{"event":"done","ops":10,"asked":10,"elapsed_ns":1,"errors":{}}'; read exit"#;
    let (ended, record) = script(&format!("{READY} {done}"), &[]);
    ended.code(5);
    row_is(&record, "sh/persistent/tcp", Status::Unverified);
    assert!(
        codes(&record).contains(&"CLAIMED_NOT_SERVED"),
        "{:?}",
        record.findings
    );
}

#[test]
fn a_flood_on_standard_error_harms_nobody() {
    let flood = "i=0; while [ $i -lt 3000 ]; do echo 'all work and no play makes jack a dull boy all work and no play' >&2; i=$((i+1)); done;";
    fails(
        &format!("{flood} echo the end >&2; exit 1"),
        FailureKind::Died,
        "WORKER_DIED",
        "the end",
    );
    let done = r#"echo '{"event":"done","ops":0,"asked":10,"elapsed_ns":1,"errors":{"x:y":10}}'; read exit"#;
    let (ended, record) = script(&format!("{flood} {READY} {flood} {done}"), &["--timeout", "60s"]);
    ended.code(1);
    let row = row_is(&record, "sh/persistent/tcp", Status::Failed);
    assert!(
        row.reason.as_ref().unwrap().contains("10 operations failed: x:y"),
        "{:?}",
        row.reason
    );
}

#[test]
fn a_program_that_does_not_exist_is_said_to_be_missing() {
    let run = Run::bench(["-n", "10", "--runs", "1"]);
    let path = run.path("record.json");
    let ended = run.arg("-o").arg(&path).args(["--", "/no/such/program"]).end();
    ended.code(1);
    let record = ended.saved(&path);
    assert_eq!(
        record.strategies[0].failure.as_ref().unwrap().kind,
        FailureKind::NotStarted
    );
    assert!(
        codes(&record).contains(&"WORKER_NOT_STARTED"),
        "{:?}",
        record.findings
    );
    assert!(ended.stdout.contains("/no/such/program"), "{}", ended.stdout);
}

/// The guide to a client of one's own, followed to the letter.
#[test]
fn the_guide_of_the_manual_works_as_it_stands() {
    if !have("python3", &["-c", "import socket"], "a worker in Python") {
        return;
    }
    let manual = include_str!("../tracing-scripts/README.md");
    let block = |mark: &str| {
        let (_, text) = manual.split_once(mark).unwrap();
        text.split_once("```").unwrap().0
    };
    let toml = block("```toml\n");
    // It stands in a list, three columns to the right.
    let toml: Vec<&str> = toml
        .lines()
        .map(|line| line.strip_prefix("   ").unwrap_or(line))
        .collect();
    let run = Run::bench(["plain,raw/persistent,redis-rs/persistent", "-t", "get"])
        .args(["-n", "100", "--runs", "1", "--warmup", "0", "--engine", "none"]);
    let list = run.path("clients.toml");
    std::fs::write(&list, toml.join("\n")).unwrap();
    std::fs::write(run.path("plain.py"), block("```python\n")).unwrap();
    let (ended, record) = run.arg("--clients-file").arg(&list).record();
    ended.code(0);
    assert_eq!(record.strategies.len(), 6);
    row_is(&record, "plain/persistent/tcp", Status::Ok);
    row_is(&record, "plain/persistent/unix", Status::Ok);
}

#[test]
fn the_worker_of_the_manual_works_as_it_stands() {
    if !have("python3", &["-c", "import socket"], "a worker in Python") {
        return;
    }
    let manual = include_str!("../tracing-scripts/README.md");
    let (_, code) = manual.split_once("```python\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let worker = folder.path().join("plain.py");
    std::fs::write(&worker, code).unwrap();
    std::fs::set_permissions(&worker, PermissionsExt::from_mode(0o755)).unwrap();
    let count = may_trace();
    for (op, depth, batch) in [("set", None, 1), ("get", None, 1), ("get", Some("10"), 10)] {
        let mut run = Run::bench(["-n", "200", "--runs", "2", "--warmup", "0", "-t", op]);
        if let Some(depth) = depth {
            run = run.args(["-P", depth]);
        }
        if !count {
            run = run.args(["--engine", "none"]);
        }
        let path = run.path("record.json");
        // Beside a strategy of systally's own, on the same server.
        let ended = run
            .arg("-o")
            .arg(&path)
            .arg("raw/persistent/tcp")
            .arg("--")
            .arg(&worker)
            .end();
        ended.code(0);
        let record = ended.saved(&path);
        assert_eq!(record.strategies.len(), 3);
        for transport in ["tcp", "unix"] {
            let row = row_is(&record, &format!("plain.py/persistent/{transport}"), Status::Ok);
            assert!(row.client.environment.contains_key("python"), "{:?}", row.client);
            let latency = row.timed.known().unwrap().latency.known();
            assert!(latency.is_some());
            if !count {
                continue;
            }
            let counted = row.counted.known().unwrap();
            let calls = |name: &str| {
                counted
                    .phases
                    .run_loop
                    .syscalls
                    .get(name)
                    .map_or(0, |call| call.calls)
            };
            assert_eq!(calls("sendto"), 200 / batch, "{op} {depth:?}");
            assert!(calls("recvfrom") >= 200 / batch, "{op} {depth:?}");
            if batch == 1 {
                assert_eq!(calls("recvfrom"), 200);
                assert_eq!(counted.round_trips_per_op.known(), Some(&1.0));
            }
        }
    }
}

/// Python that takes the right to trace from itself and then becomes another program, as a container
/// without SYS_PTRACE does.
const WITHOUT_PTRACE: &str = r#"
import ctypes, os, struct, sys
number = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HL", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn without_the_right_to_trace_it_says_so_and_can_still_time() {
    let seccomp = ["-c", WITHOUT_PTRACE, "/bin/true"];
    if !have("python3", &seccomp, "a machine that forbids ptrace") {
        return;
    }
    let wrapper = ["python3", "-c", WITHOUT_PTRACE];
    let quick = [
        "bench",
        "raw/persistent/tcp",
        "-n",
        "50",
        "--runs",
        "1",
        "--warmup",
        "0",
    ];
    let ended = Run::wrapped(&wrapper, quick).args(["--engine", "ptrace"]).end();
    ended.code(6);
    let error = ended.error();
    assert!(error.contains("seccomp"), "{error}");
    assert!(
        error.contains("--cap-add SYS_PTRACE") && error.contains("--engine none"),
        "{error}"
    );
    assert_eq!(ended.stdout, "", "no round was wasted");
    let (ended, record) = Run::wrapped(&wrapper, quick).args(["--engine", "none"]).record();
    ended.code(0);
    let row = row_is(&record, "raw/persistent/tcp", Status::Ok);
    assert!(
        row.counted.reason().unwrap().contains("--engine none"),
        "{:?}",
        row.counted
    );
}

#[test]
fn under_another_tracer_it_says_whose() {
    if !have(
        "strace",
        &["-f", "-o", "/dev/null", "true"],
        "being traced by another",
    ) {
        return;
    }
    let wrapper = ["strace", "-f", "-o", "/dev/null"];
    let ended = Run::wrapped(
        &wrapper,
        ["bench", "raw/persistent/tcp", "-n", "50", "--engine", "ptrace"],
    )
    .end();
    ended.code(6);
    assert!(ended.error().contains("strace"), "{}", ended.stderr);
}

/// A user without any right to the server's socket.
#[test]
fn a_socket_that_is_not_ours_to_use_is_said_to_be_forbidden() {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let program = env!("CARGO_BIN_EXE_systally");
    if !bench_support::is_root() {
        println!("SKIP: being nobody: only root can become somebody else");
        return;
    }
    if !have(
        "setpriv",
        &[&nobody[..], &[program, "--version"]].concat(),
        "being nobody",
    ) {
        return;
    }
    let Some(redis) = Redis::with(None, &["--unixsocketperm", "700"]) else {
        return;
    };
    std::fs::set_permissions(redis.socket().parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    let wrapper = [&["setpriv"][..], &nobody].concat();
    let run = Run::wrapped(&wrapper, ["bench", "raw", "-s"]).arg(redis.socket());
    run.open_to_all();
    let ended = run.end();
    ended.code(1);
    let error = ended.error();
    assert!(
        error.contains("not permitted") && error.contains("unixsocketperm"),
        "{error}"
    );
    assert!(ended.took < Duration::from_secs(60));
}

/// A server that is not there, or lets nobody in, fails every command in the same way: code 1, one message with
/// what to do next, and no password in it. What is written wrongly is code 2.
#[test]
fn a_server_that_cannot_be_used_ends_every_command_alike() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").display().to_string();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let mut servers = vec![
        (format!("redis://{closed}"), 1, "connection refused"),
        (format!("redis://:hunter2@{closed}"), 1, "connection refused"),
        (format!("unix://{missing}"), 1, "no such socket"),
        (format!("memcached://{closed}"), 1, "connection refused"),
        (format!("memcached+unix://{missing}"), 1, "no such socket"),
        (format!("unix:{missing}"), 2, "unix:///path/of/socket"),
        ("redis://:hun/ter2@h".to_owned(), 2, "%2F"),
        ("redis://:hun%ter2@h".to_owned(), 2, "%25"),
        ("memcached://:hunter2@h".to_owned(), 2, "no login"),
    ];
    let redis = Redis::start(Some("s3cret"));
    if let Some(redis) = &redis {
        let (port, socket) = (redis.port(), redis.socket().display().to_string());
        servers.push((format!("redis://127.0.0.1:{port}"), 1, "REDISCLI_AUTH"));
        servers.push((format!("redis://:hunter2@127.0.0.1:{port}"), 1, "REDISCLI_AUTH"));
        servers.push((format!("unix://:hunter2@{socket}"), 1, "REDISCLI_AUTH"));
        servers.push((format!("unix://{socket}?password=hunter2"), 1, "REDISCLI_AUTH"));
    }
    // A bench asks a memcached only when it has a client for one.
    let memcached_client = std::process::Command::new("php").arg("-m").output();
    let memcached_client =
        memcached_client.is_ok_and(|all| String::from_utf8_lossy(&all.stdout).contains("memcached"));
    for (uri, code, words) in &servers {
        let memcached = uri.starts_with("memcached");
        let client = if memcached { "php-memcached" } else { "raw" };
        for args in [
            ["bench", client, "--server", uri].as_slice(),
            &["bench", client, "-u", uri],
            &["count", "--server", uri, "--", "true"],
            &["preflight", "--server", uri],
            &["preflight", "-u", uri],
        ] {
            if memcached && args[0] == "bench" && *code == 1 && !memcached_client {
                continue;
            }
            let ended = Run::of(args).end();
            ended.code(*code);
            let said = ended.stderr.lines().next().unwrap_or_default();
            assert!(said.contains(words), "{args:?}: {}", ended.all());
            for secret in ["hunter2", "hun/ter2", "hun%ter2", "ter2"] {
                assert!(!ended.all().contains(secret), "{args:?}: {}", ended.all());
            }
        }
    }
}
