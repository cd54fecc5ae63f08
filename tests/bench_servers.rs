//! The servers that `systally bench` starts beside the one of Redis, and their side of the ledger.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench_support::{Run, have, may_trace, row, row_is};
use nix::sys::signal::Signal;
use systally::record::{Record, ServerOrigin, Status};

const OPS: u64 = 300;

fn quick(strategies: &str) -> Run {
    Run::bench([strategies])
        .args(["-n", "300", "--runs", "2", "--warmup", "0"])
        .args(["--engine", "none", "--timeout", "100s"])
}

/// Operations that the server says it served for a row.
fn served(record: &Record, name: &str, commands: &[&str]) -> u64 {
    row_is(record, name, Status::Ok)
        .server_view
        .known()
        .unwrap()
        .served(commands)
}

#[test]
fn memcached_confirms_what_its_clients_claim() {
    if !have("memcached", &["-V"], "memcached's ledger") || !have_extension("memcached", "its clients") {
        return;
    }
    let (ended, record) = quick("php-memcached/text").args(["-t", "set,incr"]).record();
    ended.code(0);
    // One that listens on TCP and one on a UNIX socket, and no Redis server.
    let servers: Vec<_> = record.server.iter().chain(&record.more_servers).collect();
    assert_eq!(servers.len(), 2, "{servers:?}");
    for server in servers {
        assert_eq!(
            (server.kind.as_str(), server.origin),
            ("memcached", ServerOrigin::Private)
        );
        assert!(server.settings.contains_key("max_connections"), "{server:?}");
    }
    for found in &record.strategies {
        assert_eq!(found.status, Status::Ok, "{:?}", found.reason);
        let view = found.server_view.known().unwrap();
        assert_eq!(view.served(&[&found.axes.op]), 2 * OPS, "{view:?}");
        let server = record.server_of(found).unwrap();
        assert_eq!(
            server.addresses[0].starts_with("unix:"),
            found.axes.transport == "unix"
        );
    }
    assert!(
        record
            .counters
            .after
            .contains_key("memcached.listen_disabled_num")
    );
}

#[test]
fn what_a_buffer_keeps_memcached_does_not_see() {
    if !have("memcached", &["-V"], "memcached's ledger") || !have_extension("memcached", "its clients") {
        return;
    }
    // The worker sends the rest after the round, whose window is then over.
    let (ended, record) = quick("php-memcached/buffered/tcp").args(["-t", "set"]).record();
    ended.code(5);
    let found = row_is(&record, "php-memcached/buffered/tcp", Status::Unverified);
    assert!(
        found.reason.as_ref().unwrap().contains("claims"),
        "{:?}",
        found.reason
    );
}

#[test]
fn every_node_of_a_cluster_and_every_shard_is_counted() {
    if !have("redis-server", &["--version"], "the cluster") {
        return;
    }
    let (ended, record) = quick("redis-rs/cluster/tcp,redis-rs/shards/tcp,raw/persistent/tcp")
        .args(["-t", "set", "--shards", "2,5"])
        .record();
    ended.code(0);
    assert!(
        ended.stdout.contains("server: cluster of 3 x redis"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("server: 5 shards, each redis"),
        "{}",
        ended.stdout
    );
    assert_eq!(served(&record, "redis-rs/cluster/tcp", &["set"]), 2 * OPS);
    for found in &record.strategies {
        let view = found.server_view.known().unwrap();
        if found.axes.store == "redis" {
            assert!(view.nodes.is_empty(), "one server is no sum: {view:?}");
            continue;
        }
        assert_eq!(view.nodes.len(), found.axes.servers as usize, "{view:?}");
        let of_each: Vec<u64> = view.nodes.values().map(|node| node.commands["set"]).collect();
        assert_eq!(of_each.iter().sum::<u64>(), 2 * OPS, "{view:?}");
        assert!(of_each.iter().all(|n| *n > 0), "{view:?}");
    }
    let places: Vec<&str> = record
        .more_servers
        .iter()
        .map(|server| server.place.as_str())
        .collect();
    assert_eq!(places, ["cluster", "shards"]);
    assert_eq!(record.more_servers[1].servers, 5);
}

#[test]
fn twemproxy_stands_before_its_servers() {
    if !have("redis-server", &["--version"], "twemproxy")
        || !have("nutcracker", &["-V"], "twemproxy")
        || !have_extension("redis", "its client")
    {
        return;
    }
    let (ended, record) = quick("phpredis/twemproxy").args(["-t", "get"]).record();
    ended.code(0);
    assert!(
        ended.stdout.contains("server: twemproxy before 3 x redis"),
        "{}",
        ended.stdout
    );
    assert_eq!(served(&record, "phpredis/twemproxy/tcp", &["get"]), 2 * OPS);
    assert_eq!(served(&record, "phpredis/twemproxy/unix", &["get"]), 2 * OPS);
}

#[test]
fn a_client_without_a_server_needs_none() {
    let (ended, record) = quick("noop/loop/local").record();
    ended.code(0);
    assert!(!ended.stdout.contains("server:"), "{}", ended.stdout);
    assert_eq!(record.server, None);
    let found = row_is(&record, "noop/loop/local", Status::Ok);
    assert!(found.server_view.reason().unwrap().contains("no server"));
}

#[test]
fn a_missing_server_is_a_skipped_row_and_the_rest_goes_on() {
    if !have_extension("memcached", "a client of memcached") {
        return;
    }
    let run = quick("php-memcached/text/tcp,redis-rs/cluster/tcp,raw/persistent/tcp").args(["-t", "set"]);
    let bin = run.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let php = which("php").unwrap();
    std::os::unix::fs::symlink(php, bin.join("php")).unwrap();
    let (ended, record) = run.env("PATH", &bin).record();
    ended.code(0);
    let found = row_is(&record, "php-memcached/text/tcp", Status::Skipped);
    assert!(
        found
            .reason
            .as_ref()
            .unwrap()
            .contains("memcached is not in PATH"),
        "{:?}",
        found.reason
    );
    let found = row_is(&record, "redis-rs/cluster/tcp", Status::Skipped);
    assert!(
        found.reason.as_ref().unwrap().contains("built-in server cannot"),
        "{:?}",
        found.reason
    );
    row_is(&record, "raw/persistent/tcp", Status::Ok);
}

#[test]
fn a_server_that_does_not_start_is_a_failed_row_and_the_rest_goes_on() {
    if !have_extension("memcached", "a client of memcached") {
        return;
    }
    let run = quick("php-memcached/text/tcp,noop/loop/local").args(["-t", "set"]);
    let bin = run.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(which("php").unwrap(), bin.join("php")).unwrap();
    let broken = bin.join("memcached");
    std::fs::write(&broken, "#!/bin/sh\necho no room here >&2\nexit 71\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (ended, record) = run.env("PATH", &bin).record();
    ended.code(1);
    let found = row_is(&record, "php-memcached/text/tcp", Status::Failed);
    let reason = found.reason.as_ref().unwrap();
    assert!(
        reason.contains("did not start") && reason.contains("no room here"),
        "{reason}"
    );
    row_is(&record, "noop/loop/local", Status::Ok);
}

#[test]
fn a_memcached_of_the_users_by_its_uri() {
    if !have_extension("memcached", "a client of memcached") {
        return;
    }
    let Some(server) = Memcached::start() else { return };
    let (ended, record) = quick("php-memcached/text")
        .args([
            "-t",
            "set",
            "-u",
            &format!("memcached://127.0.0.1:{}", server.port),
        ])
        .record();
    ended.code(0);
    assert!(
        ended.stdout.contains(", yours (tcp 127.0.0.1:"),
        "{}",
        ended.stdout
    );
    assert_eq!(record.server.as_ref().unwrap().origin, ServerOrigin::External);
    // Over UNIX there is none of the user's, so that is a private one.
    assert_eq!(served(&record, "php-memcached/text/tcp", &["set"]), 2 * OPS);
    assert_eq!(row(&record, "php-memcached/text/unix").status, Status::Ok);

    drop(server);
    let ended = quick("php-memcached/text/tcp")
        .args(["-u", "memcached://127.0.0.1:1"])
        .end();
    ended.code(1);
    assert!(
        ended.error().contains("cannot use the server at 127.0.0.1:1"),
        "{}",
        ended.all()
    );
    let ended = quick("php-memcached/text/tcp")
        .args(["-u", "memcached://joe:hunter2@127.0.0.1:1"])
        .end();
    ended.code(2);
    assert!(!ended.all().contains("hunter2"), "{}", ended.all());
}

#[test]
fn rows_without_an_address_are_one_line() {
    if !have("redis-server", &["--version"], "a server of the user's") {
        return;
    }
    let mut server = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(format!("/tmp/systally-test-{}.sock", std::process::id()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let socket = format!("/tmp/systally-test-{}.sock", std::process::id());
    let until = Instant::now() + Duration::from_secs(20);
    while !Path::new(&socket).exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (ended, record) = quick("raw/persistent,redis-rs/connect")
        .args(["-s", &socket])
        .record();
    let _ = server.kill();
    let _ = server.wait();
    ended.code(0);
    assert!(
        ended
            .stdout
            .contains("note: 2 rows over tcp are left out: the server was named by its UNIX socket only"),
        "{}",
        ended.stdout
    );
    assert_eq!(record.strategies.len(), 2);
}

/// redis-benchmark does not keep the contract, and is counted all the same: its 5 epoll_ctl, its send and its
/// receive, without the thousand calls of its start.
#[test]
fn a_program_is_counted_without_its_start() {
    if !have("redis-benchmark", &["--version"], "redis-benchmark")
        || !have("redis-server", &["--version"], "its server")
        || !have("python3", &["-c", "import csv"], "its worker")
        || !may_trace()
    {
        return;
    }
    let (ended, record) =
        Run::bench(["redis-benchmark/persistent,redis-benchmark/pipeline/tcp,redis-cli/pipe/unix"])
            .args([
                "-t", "set", "-n", "1600", "-P", "16", "--runs", "1", "--warmup", "0",
            ])
            .args(["--engine", "ptrace", "--timeout", "100s"])
            .record();
    ended.code(0);
    for (name, expected) in [
        (
            "redis-benchmark/persistent/tcp",
            [("epoll_ctl", 5.0), ("sendto", 1.0), ("recvfrom", 1.0)],
        ),
        (
            "redis-benchmark/persistent/unix",
            [("epoll_ctl", 5.0), ("sendto", 1.0), ("recvfrom", 1.0)],
        ),
        (
            "redis-benchmark/pipeline/tcp",
            [("epoll_ctl", 0.3125), ("sendto", 0.0625), ("recvfrom", 0.0625)],
        ),
        (
            "redis-cli/pipe/unix",
            [("epoll_ctl", 0.0), ("sendto", 0.0), ("recvfrom", 1.0)],
        ),
    ] {
        let counted = row_is(&record, name, Status::Ok).counted.known().unwrap();
        assert_eq!(counted.ops.unwrap().0, 1600, "{name}");
        assert!(
            counted.notes.iter().any(|note| note.contains("counted twice")),
            "{:?}",
            counted.notes
        );
        let calls = &counted.phases.run_loop.syscalls;
        for (call, per_op) in expected {
            let seen = calls.get(call).map_or(0, |call| call.calls) as f64 / 1600.0;
            assert!((seen - per_op).abs() < 0.02, "{name}: {call} {seen}");
        }
        assert!(!calls.contains_key("execve"), "{name}: {:?}", calls.keys());
    }
}

#[test]
fn an_extension_that_is_switched_off_is_one_row() {
    if !have_extension("apcu", "APCu") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tracing-scripts/php/apcu.php");
    let run = quick("noop/loop/local");
    let path = run.path("record.json");
    let ended = run
        .arg("-o")
        .arg(&path)
        .args([
            "--",
            "php",
            "-d",
            "display_errors=stderr",
            "-d",
            "apc.enable_cli=0",
            script,
        ])
        .end();
    ended.code(1);
    let record = ended.saved(&path);
    for transport in ["tcp", "unix"] {
        let found = row_is(
            &record,
            &format!("apcu.php/persistent/{transport}"),
            Status::Failed,
        );
        let reason = found.reason.as_ref().unwrap();
        assert!(reason.contains("apc.enable_cli"), "{reason}");
    }
    row_is(&record, "noop/loop/local", Status::Ok);
}

#[test]
fn nothing_is_left_of_any_server_however_the_run_ends() {
    if !have("redis-server", &["--version"], "the servers") || !have("memcached", &["-V"], "the servers") {
        return;
    }
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let run = Run::bench(["redis-rs/cluster/tcp,redis-rs/shards/tcp,pymemcache/persistent/tcp"]).args([
            "--duration",
            "60s",
            "--runs",
            "3",
        ]);
        let mut running = run.start();
        running.until("a worker runs", |run| {
            run.family()
                .iter()
                .any(|(_, command)| command.contains("worker redis-rs"))
        });
        running.signal(signal);
        // Its end looks for whatever is left.
        running.end();
    }
}

fn have_extension(name: &str, what: &str) -> bool {
    let asked = format!("exit(extension_loaded('{name}') ? 0 : 1);");
    have("php", &["-r", &asked], what)
}

fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A memcached of this test alone, as a user's.
struct Memcached {
    child: Child,
    port: u16,
}

impl Memcached {
    fn start() -> Option<Memcached> {
        if !have("memcached", &["-V"], "a memcached of the user's") {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let me = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .unwrap()
            .unwrap();
        let child = Command::new("memcached")
            .args([
                "-u",
                &me.name,
                "-l",
                "127.0.0.1",
                "-U",
                "0",
                "-p",
                &port.to_string(),
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Memcached { child, port })
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
