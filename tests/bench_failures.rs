//! Failures in mid-run, made on purpose: each ends as a row with its error and a finding with its cause and
//! the numbers behind it, within a bounded time.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;
mod strategy_support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench_support::{
    Ended, Run, Running, codes, evidence, finding, have, have_php, is_root, may_trace, row, row_is,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use strategy_support::Redis;
use systally::explain::Finding;
use systally::record::{FailureKind, Record, Stage, Status};

/// A worker that stops in one of its rounds until the test lets it go on. As a row of a run it gives the
/// test a moment at which no other row is at work.
const GATE: &str = r#"
[ -n "$SYSTALLY_SPEC" ] || read spec
echo '{"event":"ready","protocol":1,"pid":1,"versions":{}}'
i=0
while read word && [ "$word" = go ]; do
    i=$((i+1))
    if [ $i = "$GATE_ROUND" ] && [ $SYSTALLY_SCHEME = tcp ]; then
        : > "$GATE/reached"
        while [ ! -e "$GATE/open" ]; do sleep 0.02; done
    fi
    echo "{\"event\":\"done\",\"ops\":0,\"asked\":$SYSTALLY_OPS,\"elapsed_ns\":1,\"errors\":{\"Gate:closed\":$SYSTALLY_OPS}}"
done
"#;

/// A run with a gate. The gate's own rows fail and are in no one's way.
struct Gated {
    running: Running,
    folder: tempfile::TempDir,
    record: PathBuf,
}

impl Gated {
    /// Runs these strategies for three rounds. The gate is reached in its first round, before any other
    /// row has begun, or in its second, when the others have had two rounds.
    fn start(run: Run, round: u32, strategies: &[&str]) -> Gated {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let record = run.path("record.json");
        let run = run
            .env("GATE", folder.path())
            .env("GATE_ROUND", round.to_string())
            .args(strategies)
            .args([
                "--runs",
                "4",
                "--warmup",
                "0",
                "-n",
                "50",
                "--timeout",
                "10s",
                "-o",
            ])
            .arg(&record)
            .args(["--", "sh", "-c", GATE]);
        let mut running = run.start();
        let reached = folder.path().join("reached");
        running.until("the gate is reached", |_| reached.exists());
        Gated {
            running,
            folder,
            record,
        }
    }

    /// Lets the run go on, to its end.
    fn open(self) -> (Ended, Record) {
        std::fs::write(self.folder.path().join("open"), "").unwrap();
        let ended = self.running.end();
        ended.code(1);
        let record = ended.saved(&self.record);
        assert!(record.complete, "a failed row is no reason to stop");
        (ended, record)
    }
}

fn bench_at(redis: &Redis) -> Run {
    let (port, socket) = (redis.port().to_string(), redis.socket());
    Run::bench(["-h", "127.0.0.1", "-p", &port, "-s"]).arg(socket)
}

/// The finding about one row.
fn about<'a>(record: &'a Record, name: &str) -> &'a Finding {
    let found = record
        .findings
        .iter()
        .find(|f| f.strategy.as_deref() == Some(name) && f.severity == systally::explain::Severity::Error);
    found.unwrap_or_else(|| {
        panic!(
            "nothing about {name}: {:?} in {:#?}",
            row(record, name).failure,
            record.findings
        )
    })
}

/// Asserts that a row has failed and that this finding says why.
fn failed_by<'a>(record: &'a Record, name: &str, code: &str) -> &'a Finding {
    let row = row_is(record, name, Status::Failed);
    assert!(row.reason.as_ref().is_some_and(|why| !why.is_empty()));
    assert!(row.failure.is_some(), "{name}");
    let finding = about(record, name);
    assert_eq!(finding.code, code, "{finding:?} {:?}", row.failure);
    assert!(!finding.says.is_empty() && !finding.try_next.is_empty() && !finding.evidence.is_empty());
    finding
}

fn rounds(record: &Record, name: &str) -> usize {
    row(record, name)
        .timed
        .known()
        .map_or(0, |timed| timed.rounds.len())
}

/// The private server of a run.
fn server_of(running: &Running) -> Pid {
    let family = running.family();
    let found = family
        .iter()
        .find(|(_, command)| command.contains("redis-server 127.0.0.1:"));
    Pid::from_raw(found.unwrap_or_else(|| panic!("no server in {family:?}")).0)
}

fn have_redis() -> bool {
    have("redis-server", &["--version"], "a server to be killed")
}

#[test]
fn a_private_server_that_is_killed_between_rounds() {
    if !have_redis() {
        return;
    }
    let names = [
        "raw/persistent/tcp",
        "redis-rs/connect/tcp",
        "redis-rs/connect/unix",
    ];
    let gated = Gated::start(Run::bench([""; 0]), 2, &names);
    kill(server_of(&gated.running), Signal::SIGKILL).unwrap();
    let (ended, record) = gated.open();
    for name in names {
        let row = row_is(&record, name, Status::Failed);
        assert_eq!(
            row.failure.as_ref().unwrap().kind,
            FailureKind::ServerDied,
            "{name}: {:?}",
            row.failure
        );
        assert_eq!(rounds(&record, name), 2, "{name}: what was measured is kept");
    }
    let told: Vec<_> = codes(&record)
        .into_iter()
        .filter(|code| *code == "SERVER_DIED")
        .collect();
    assert_eq!(told.len(), 1, "once for all: {:?}", record.findings);
    let died = finding(&record, "SERVER_DIED");
    assert!(died.says.contains("SIGKILL"), "{}", died.says);
    assert!(!codes(&record).contains(&"SERVER_DOWN"), "{:?}", record.findings);
    assert!(ended.stdout.contains("SERVER_DIED"), "{}", ended.all());
}

#[test]
fn a_private_server_that_is_killed_inside_a_round() {
    if !have_redis() {
        return;
    }
    let mut names = vec![
        "raw/persistent/tcp",
        "redis-rs/persistent/unix",
        "redis-rs/connect/tcp",
    ];
    if have_php() {
        names.extend([
            "phpredis/persistent/tcp",
            "phpredis/connect/unix",
            "predis/persistent/tcp",
        ]);
    }
    for name in names {
        let run = Run::bench([name]).args(["--runs", "2", "--warmup", "0", "--duration", "30s"]);
        let path = run.path("record.json");
        let running = run.args(["--timeout", "10s", "-o"]).arg(&path).start();
        let server = busy_server(&running);
        kill(server, Signal::SIGKILL).unwrap();
        let ended = running.end();
        ended.code(1);
        assert!(ended.took < Duration::from_secs(120), "{name}: {:?}", ended.took);
        let record = ended.saved(&path);
        row_is(&record, name, Status::Failed);
        let died = finding(&record, "SERVER_DIED");
        assert!(died.says.contains("SIGKILL"), "{name}: {}", died.says);
        assert!(
            !codes(&record).contains(&"UNEXPLAINED"),
            "{name}: {:?}",
            record.findings
        );
    }
}

/// The private server of a run, when it has served some hundred commands: a round is under way.
fn busy_server(running: &Running) -> Pid {
    let server = loop {
        let family = running.family();
        if let Some((pid, _)) = family
            .iter()
            .find(|(_, command)| command.contains("redis-server 127.0.0.1:"))
        {
            break Pid::from_raw(*pid);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    // It goes to sleep after each command that it has answered, and ten times a second by itself.
    let sleeps = || {
        let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap_or_default();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count
            .and_then(|count| count.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    let limit = std::time::Instant::now() + bench_support::HUNG;
    let before = sleeps();
    while sleeps() < before + 100 {
        assert!(std::time::Instant::now() < limit, "the server never worked");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
fn an_external_server_that_is_killed_between_and_inside_rounds() {
    let Some(redis) = Redis::start(None) else { return };
    let names = [
        "raw/persistent/tcp",
        "redis-rs/connect/tcp",
        "redis-rs/persistent/unix",
    ];
    let gated = Gated::start(bench_at(&redis), 2, &names);
    kill(Pid::from_raw(redis.pid()), Signal::SIGKILL).unwrap();
    let (ended, record) = gated.open();
    for name in names {
        row_is(&record, name, Status::Failed);
        assert_eq!(rounds(&record, name), 2, "{name}");
    }
    finding(&record, "SERVER_DIED");
    assert!(
        ended
            .stderr
            .contains("the keys of this run are still on the server"),
        "{}",
        ended.stderr
    );

    let Some(redis) = Redis::start(None) else { return };
    let run = bench_at(&redis).args(["redis-rs/persistent/tcp", "--runs", "1", "--duration", "60s"]);
    let path = run.path("record.json");
    let mut running = run.args(["--timeout", "10s", "-o"]).arg(&path).start();
    running.until("the round is under way", |_| redis.calls("set") > 200);
    kill(Pid::from_raw(redis.pid()), Signal::SIGKILL).unwrap();
    let ended = running.end();
    ended.code(1);
    let record = ended.saved(&path);
    row_is(&record, "redis-rs/persistent/tcp", Status::Failed);
    finding(&record, "SERVER_DIED");
}

#[test]
fn a_server_that_is_stopped_hangs_nobody() {
    let Some(redis) = Redis::start(None) else { return };
    let names = ["raw/persistent/tcp", "redis-rs/connect/unix"];
    let gated = Gated::start(bench_at(&redis), 2, &names);
    kill(Pid::from_raw(redis.pid()), Signal::SIGSTOP).unwrap();
    let (ended, record) = gated.open();
    for name in names {
        let row = row_is(&record, name, Status::Failed);
        let kind = row.failure.as_ref().unwrap().kind;
        assert!(
            matches!(kind, FailureKind::Hung | FailureKind::ServerUnreachable),
            "{kind:?}"
        );
        assert_eq!(rounds(&record, name), 2, "{name}");
    }
    assert!(ended.took < Duration::from_secs(150), "{:?}", ended.took);
}

#[test]
fn a_worker_that_is_killed_is_one_row() {
    let Some(redis) = Redis::start(None) else { return };
    let run = bench_at(&redis).args(["raw/persistent/tcp", "redis-rs/persistent/tcp", "-t", "incr"]);
    let run = run.args([
        "--runs",
        "2",
        "--warmup",
        "0",
        "--duration",
        "2s",
        "--engine",
        "none",
    ]);
    let path = run.path("record.json");
    let mut running = run.arg("-o").arg(&path).start();
    running.until("the first round is under way", |_| redis.calls("incr") > 200);
    let family = running.family();
    let (worker, _) = family
        .iter()
        .find(|(_, command)| command.contains("worker raw"))
        .unwrap();
    kill(Pid::from_raw(*worker), Signal::SIGKILL).unwrap();
    let ended = running.end();
    ended.code(1);
    let record = ended.saved(&path);
    let died = failed_by(&record, "raw/persistent/tcp", "WORKER_DIED");
    assert!(died.says.contains("killed by SIGKILL"), "{}", died.says);
    assert_eq!(
        row(&record, "raw/persistent/tcp").failure.as_ref().unwrap().stage,
        Stage::Round
    );
    row_is(&record, "redis-rs/persistent/tcp", Status::Ok);
}

#[test]
fn a_socket_that_goes_away() {
    let Some(redis) = Redis::start(None) else { return };
    let names = ["redis-rs/connect/unix", "raw/persistent/tcp"];
    let gated = Gated::start(bench_at(&redis), 2, &names);
    std::fs::remove_file(redis.socket()).unwrap();
    let (_, record) = gated.open();
    let missing = failed_or_lossy(&record, names[0], "SOCKET_MISSING");
    assert!(
        missing.says.contains(redis.socket().to_str().unwrap()),
        "{}",
        missing.says
    );
    row_is(&record, "raw/persistent/tcp", Status::Ok);
}

#[test]
fn a_socket_that_nobody_listens_on_any_more() {
    let Some(redis) = Redis::start(None) else { return };
    let names = ["redis-rs/connect/unix", "raw/persistent/tcp"];
    let gated = Gated::start(bench_at(&redis), 2, &names);
    std::fs::remove_file(redis.socket()).unwrap();
    drop(UnixListener::bind(redis.socket()).unwrap());
    let (_, record) = gated.open();
    failed_or_lossy(&record, names[0], "SOCKET_STALE");
    row_is(&record, "raw/persistent/tcp", Status::Ok);
}

/// A row that lost operations, or all of it, for the reason that this finding gives.
fn failed_or_lossy<'a>(record: &'a Record, name: &str, code: &str) -> &'a Finding {
    let row = row(record, name);
    assert!(row.reason.is_some() && row.failure.is_some(), "{row:?}");
    let finding = about(record, name);
    assert_eq!(finding.code, code, "{finding:?} {:?}", row.failure);
    finding
}

fn nobody() -> Option<Vec<&'static str>> {
    let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    if !is_root() {
        println!("SKIP: being nobody: only root can become somebody else");
        return None;
    }
    let program = env!("CARGO_BIN_EXE_systally");
    have(
        "setpriv",
        &[&wrapper[1..], &[program, "--version"]].concat(),
        "being nobody",
    )
    .then(|| wrapper.to_vec())
}

#[test]
fn a_socket_that_is_closed_to_us() {
    let Some(wrapper) = nobody() else { return };
    let Some(redis) = Redis::with(None, &["--unixsocketperm", "777"]) else {
        return;
    };
    std::fs::set_permissions(redis.socket().parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    let port = redis.port().to_string();
    let run = Run::wrapped(&wrapper, ["bench", "-h", "127.0.0.1", "-p", &port, "-s"]).arg(redis.socket());
    run.open_to_all();
    let names = ["redis-rs/connect/unix", "raw/persistent/tcp"];
    let gated = Gated::start(run, 2, &names);
    std::fs::set_permissions(redis.socket(), PermissionsExt::from_mode(0o700)).unwrap();
    let (_, record) = gated.open();
    let closed = failed_or_lossy(&record, names[0], "SOCKET_PERM");
    assert!(
        closed.says.contains(redis.socket().to_str().unwrap()),
        "{}",
        closed.says
    );
    row_is(&record, "raw/persistent/tcp", Status::Ok);
}

#[test]
fn a_password_that_is_set_or_changed_in_mid_run() {
    for (given, now, words) in [(None, "n3w", "NOAUTH"), (Some("0ld"), "n3w", "WRONGPASS")] {
        let Some(redis) = Redis::start(given) else { return };
        let mut names = vec!["redis-rs/connect/tcp", "raw/persistent/unix"];
        if have_php() {
            names.extend(["predis/connect/tcp", "phpredis/connect/tcp"]);
        }
        let mut run = bench_at(&redis);
        if let Some(password) = given {
            run = run.args(["-a", password]);
        }
        let gated = Gated::start(run, 2, &names);
        redis.ask(&format!("CONFIG SET requirepass {now}")).unwrap();
        let (ended, record) = gated.open();
        for name in names.iter().filter(|name| name.contains("/connect/")) {
            let finding = failed_or_lossy(&record, name, "AUTH");
            let said = finding.evidence["server_says"].as_str().unwrap();
            // redis-rs has words of its own for it.
            let refused = said.contains(words) || said.contains("AuthenticationFailed");
            assert!(refused, "{name}: {said}");
        }
        assert!(
            !ended.all().contains("0ld") && !ended.all().contains("n3w"),
            "{}",
            ended.all()
        );
    }
}

#[test]
fn a_password_that_is_missing_or_wrong_from_the_start() {
    let Some(redis) = Redis::start(Some("s3cret")) else {
        return;
    };
    for (args, words) in [(&[][..], "NOAUTH"), (&["-a", "hunter2"][..], "WRONGPASS")] {
        let ended = bench_at(&redis).arg("raw").args(args).end();
        ended.code(1);
        let error = ended.error();
        assert!(
            error.contains(words) && error.contains("REDISCLI_AUTH"),
            "{error}"
        );
        assert!(
            !ended.all().contains("hunter2") && !ended.all().contains("s3cret"),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_is_full() {
    let Some(redis) = Redis::with(None, &["--maxclients", "4"]) else {
        return;
    };
    let mut names = vec!["raw/persistent/tcp", "redis-rs/persistent/unix"];
    if have_php() {
        names.extend([
            "phpredis/persistent/tcp",
            "predis/persistent/tcp",
            "predis/connect/unix",
        ]);
    }
    for name in names {
        let run = bench_at(&redis).args([name, "-c", "8", "-n", "400", "--runs", "1", "--warmup", "0"]);
        let (ended, record) = run.args(["--timeout", "60s", "--engine", "none"]).record();
        ended.code(1);
        let full = failed_or_lossy(&record, name, "REDIS_MAXCLIENTS");
        assert_eq!(evidence(full, "maxclients"), 4.0);
        assert!(evidence(full, "rejected_connections") >= 1.0, "{full:?}");
        assert!(evidence(full, "demand") >= 8.0);
    }
}

/// phpredis says nothing of a full server: its call returns false.
#[test]
fn a_server_that_is_full_and_a_client_that_is_silent() {
    if !have_php() {
        return;
    }
    let Some(redis) = Redis::with(None, &["--maxclients", "3"]) else {
        return;
    };
    let run = bench_at(&redis).args(["phpredis/connect/tcp", "raw/persistent/tcp", "-c", "1,6"]);
    let run = run.args([
        "-n",
        "300",
        "--runs",
        "2",
        "--warmup",
        "0",
        "--timeout",
        "60s",
        "--engine",
        "none",
    ]);
    let (ended, record) = run.record();
    ended.code(1);
    let lossy = record
        .strategies
        .iter()
        .find(|row| row.name == "phpredis/connect/tcp" && row.axes.clients == 6)
        .unwrap();
    assert!(lossy.reason.is_some(), "{lossy:?}");
    let full = finding(&record, "REDIS_MAXCLIENTS");
    assert!(evidence(full, "rejected_connections") >= 1.0, "{full:?}");
}

/// The queue of a UNIX socket while the server is away for moments.
#[test]
fn a_full_queue_of_a_unix_socket() {
    if !have_php() {
        return;
    }
    let Some(redis) = Redis::with(None, &["--tcp-backlog", "1"]) else {
        return;
    };
    let server = Pid::from_raw(redis.pid());
    let stop = AtomicBool::new(false);
    let (ended, record) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
                    let _ = kill(server, signal);
                    std::thread::sleep(Duration::from_millis(60));
                }
            }
        });
        let run = bench_at(&redis).args(["phpredis/connect/unix", "-c", "8", "--duration", "1s"]);
        let run = run.args([
            "--runs",
            "2",
            "--warmup",
            "0",
            "--timeout",
            "60s",
            "--engine",
            "none",
        ]);
        let path = run.path("record.json");
        let ended = run.arg("-o").arg(&path).end();
        stop.store(true, Ordering::Relaxed);
        let record = ended.saved(&path);
        (ended, record)
    });
    ended.code(1);
    let full = failed_or_lossy(&record, "phpredis/connect/unix", "UNIX_BACKLOG_EAGAIN");
    assert_eq!(evidence(full, "backlog"), 1.0);
    assert_eq!(evidence(full, "clients"), 8.0);
    assert!(evidence(full, "failed_connects") >= 1.0);
    assert!(full.says.contains("2 connections can wait"), "{}", full.says);
}

/// A network namespace with hardly any ports, which wait out their whole time.
#[test]
fn no_port_is_left() {
    const NAMESPACE: &str = "ip link set lo up && echo 40000 40030 > /proc/sys/net/ipv4/ip_local_port_range \
         && echo 0 > /proc/sys/net/ipv4/tcp_tw_reuse && exec \"$@\"";
    if !have(
        "unshare",
        &["-n", "sh", "-c", NAMESPACE, "sh", "true"],
        "a network namespace",
    ) {
        return;
    }
    let wrapper = ["unshare", "-n", "sh", "-c", NAMESPACE, "sh"];
    let mut names = vec!["redis-rs/connect/tcp", "redis-rs/connect/unix"];
    if have_php() {
        names.extend(["phpredis/connect/tcp", "predis/connect/tcp"]);
    }
    for name in names {
        let run = Run::wrapped(
            &wrapper,
            ["bench", name, "-n", "200", "--runs", "1", "--warmup", "0"],
        );
        let (ended, record) = run.args(["--timeout", "30s", "--engine", "none"]).record();
        if name.ends_with("/unix") {
            ended.code(0);
            continue;
        }
        ended.code(1);
        let ports = failed_or_lossy(&record, name, "EPHEMERAL_EXHAUSTED_TW");
        assert_eq!(evidence(ports, "ports_usable"), 31.0);
        assert!(evidence(ports, "time_wait") >= 25.0, "{ports:?}");
        assert_eq!(evidence(ports, "tcp_tw_reuse"), 0.0);
        assert!(ports.says.contains("TIME_WAIT"), "{}", ports.says);
    }
}

/// A worker in Python that may open nothing once it has started.
#[test]
fn a_client_without_descriptors() {
    if !have(
        "python3",
        &["-c", "import socket, resource"],
        "a client without descriptors",
    ) {
        return;
    }
    let manual = include_str!("../tracing-scripts/README.md");
    let (_, code) = manual.split_once("```python\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let limited = code.replacen(
        "try:\n    unix =",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\ntry:\n    unix =",
        1,
    );
    assert_ne!(code, limited);
    let folder = tempfile::tempdir().unwrap();
    let worker = folder.path().join("poor.py");
    std::fs::write(&worker, limited).unwrap();
    let run = Run::bench(["-n", "50", "--runs", "1", "-t", "set"]);
    let path = run.path("record.json");
    let ended = run
        .arg("-o")
        .arg(&path)
        .args(["--", "python3"])
        .arg(&worker)
        .end();
    ended.code(1);
    let record = ended.saved(&path);
    for transport in ["tcp", "unix"] {
        let files = failed_by(
            &record,
            &format!("poor.py/persistent/{transport}"),
            "CLIENT_NOFILE",
        );
        assert!(
            files.evidence["client_says"]
                .as_str()
                .unwrap()
                .contains("Too many open files"),
            "{files:?}"
        );
    }
}

/// Clients whose descriptors run out in mid-run; PHP's have no words for it, or empty ones.
#[test]
fn clients_whose_descriptors_run_out() {
    if !(have_php() && have("prlimit", &["--version"], "limits of a running client")) {
        return;
    }
    let Some(redis) = Redis::start(None) else { return };
    let names = [
        "phpredis/connect/tcp",
        "predis/connect/unix",
        "redis-rs/connect/tcp",
    ];
    let gated = Gated::start(bench_at(&redis), 2, &names);
    let mut limited = 0;
    for (pid, command) in gated.running.family() {
        if command.starts_with("php ") || command.contains("worker redis-rs") {
            // The next one to open would be this one.
            let next = (0..)
                .find(|fd| !Path::new(&format!("/proc/{pid}/fd/{fd}")).exists())
                .unwrap();
            let limit = format!("--nofile={next}:{next}");
            limited += u32::from(have("prlimit", &["--pid", &pid.to_string(), &limit], "limits"));
        }
    }
    assert_eq!(limited, 3);
    let (_, record) = gated.open();
    for name in names {
        let files = failed_or_lossy(&record, name, "CLIENT_NOFILE");
        let (soft, open) = (evidence(files, "soft_limit"), evidence(files, "descriptors_open"));
        assert!(soft < 20.0 && open >= soft, "{name}: {files:?}");
    }
}

/// A runtime that cannot even open its own files dies with the cause on standard error only.
#[test]
fn a_runtime_without_descriptors() {
    if !have_php() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracing-scripts/php/phpredis.php");
    let run = Run::bench(["-n", "50", "--runs", "1", "-t", "set"]);
    let path = run.path("record.json");
    // The script itself is descriptor 3.
    let limited = "ulimit -n 4; exec php -d display_errors=stderr \"$1\"";
    let run = run.arg("-o").arg(&path).args(["--", "sh", "-c", limited, "sh"]);
    let ended = run.arg(&script).end();
    ended.code(1);
    let record = ended.saved(&path);
    let found = codes(&record);
    assert!(
        found.contains(&"CLIENT_NOFILE") && found.contains(&"WORKER_DIED"),
        "{:?}",
        record.findings
    );
}

/// systally needs descriptors for its workers as well.
#[test]
fn systally_without_descriptors() {
    if !have("prlimit", &["--nofile=64:64", "true"], "a limit of open files") {
        return;
    }
    let run = Run::wrapped(
        &["prlimit", "--nofile=64:64"],
        ["bench", "raw/persistent/tcp", "-c", "40"],
    );
    let (ended, record) = run
        .args(["-n", "400", "--runs", "1", "--timeout", "60s"])
        .record();
    ended.code(1);
    let files = failed_by(&record, "raw/persistent/tcp", "CLIENT_NOFILE");
    assert_eq!(evidence(files, "soft_limit"), 64.0, "{files:?}");
    // Others may still fit.
    let run = Run::wrapped(
        &["prlimit", "--nofile=64:64"],
        ["bench", "raw/persistent/tcp", "-c", "1,40"],
    );
    let (ended, record) = run
        .args(["-n", "400", "--runs", "1", "--timeout", "60s"])
        .record();
    ended.code(1);
    assert_eq!(
        record.strategies[0].status,
        Status::Ok,
        "{:?}",
        record.strategies[0].reason
    );
}

#[test]
fn a_failure_in_the_counted_pass_alone() {
    if !may_trace() {
        return;
    }
    // The first three rounds are untraced; the fourth time a worker is started, it is for the count.
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let script = format!(
        "if [ -e {0}.$SYSTALLY_SCHEME ]; then echo not again >&2; exit 9; fi; : > {0}.$SYSTALLY_SCHEME; exec {1} worker raw",
        started.display(),
        env!("CARGO_BIN_EXE_systally")
    );
    let run = Run::bench(["-n", "50", "--runs", "2", "--warmup", "1"]);
    let path = run.path("record.json");
    let ended = run.arg("-o").arg(&path).args(["--", "sh", "-c", &script]).end();
    ended.code(1);
    let record = ended.saved(&path);
    for transport in ["tcp", "unix"] {
        let name = format!("systally/persistent/{transport}");
        failed_by(&record, &name, "WORKER_DIED");
        assert_eq!(rounds(&record, &name), 2);
        let why = row(&record, &name).counted.reason().unwrap().to_owned();
        assert!(why.contains("failed"), "{why}");
    }
    assert!(ended.stdout.contains("not again"), "{}", ended.all());
}

/// With hardly any descriptors systally itself is in its own way. It says so once, with what to raise.
#[test]
fn a_limit_of_its_own_is_named_with_its_cure() {
    if !have("prlimit", &["--nofile=64:4096", "true"], "a limit of open files") {
        return;
    }
    let bench = [
        "bench",
        "raw/persistent/unix",
        "-c",
        "2",
        "-n",
        "100",
        "--runs",
        "1",
        "--builtin-server",
    ];
    let commands: [&[&str]; 4] = [
        &bench,
        &["count", "--", "true"],
        &["list"],
        &["preflight", "-c", "2"],
    ];
    for files in [4, 5, 7, 12, 20] {
        let limit = format!("--nofile={files}:4096");
        for command in commands {
            let ended = Run::wrapped(&["prlimit", &limit], command).end();
            // Wherever its lines are broken.
            let all = ended.all();
            let words: Vec<&str> = all.split_whitespace().collect();
            let said = words.join(" ").matches("raise that with ulimit -n 1024").count();
            match (command[0], ended.status.code()) {
                // What it takes is there.
                (_, Some(0)) => {}
                // It is this very limit that the load does not fit.
                ("preflight", Some(4)) => assert!(ended.stdout.contains("client_nofile"), "{}", ended.all()),
                (_, Some(1 | 6)) => assert_eq!(said, 1, "{files}: {command:?}: {}", ended.all()),
                (_, code) => panic!("{files}: {command:?}: {code:?}: {}", ended.all()),
            }
        }
    }
}
