//! `systally preflight` on this machine, with real servers where they are installed.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

/// A server program, ended with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts a program and waits until it listens; `None` when it is not installed.
fn start(program: &str, args: &[String], port: u16) -> Option<Server> {
    let started = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let server = match started {
        Ok(child) => Server(child),
        Err(e) => {
            println!("SKIP: {program} cannot be started here: {e}");
            return None;
        }
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "{program} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

fn redis(folder: &Path, more: &[&str]) -> Option<(Server, u16)> {
    let port = free_port();
    let socket = folder.join("r.sock");
    let fixed = [
        "--port",
        &port.to_string(),
        "--save",
        "",
        "--dir",
        folder.to_str().unwrap(),
        "--unixsocket",
        socket.to_str().unwrap(),
    ];
    let args: Vec<String> = fixed.iter().chain(more).map(|arg| (*arg).to_owned()).collect();
    Some((start("redis-server", &args, port)?, port))
}

fn preflight(args: &[&str]) -> Output {
    Command::cargo_bin("systally")
        .unwrap()
        .arg("preflight")
        .args(args)
        .env_remove("REDISCLI_AUTH")
        .output()
        .unwrap()
}

fn limit<'a>(record: &'a Value, id: &str) -> &'a Value {
    record["limits"]
        .as_array()
        .unwrap()
        .iter()
        .find(|limit| limit["id"] == id)
        .unwrap()
}

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"))
}

#[test]
fn a_real_redis_is_asked_and_its_listener_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, port)) = redis(folder.path(), &["--tcp-backlog", "7", "--maxclients", "100"]) else {
        return;
    };
    let port = port.to_string();
    let socket = folder.path().join("r.sock");
    let saved = folder.path().join("state");
    let tcp = [
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-c",
        "60",
        "--mode",
        "connect",
        "--rate",
        "100",
        "--format",
        "json",
    ];
    let live = preflight(&[&tcp[..], &["--save-state", saved.to_str().unwrap()]].concat());
    let record = json(&live);
    assert_eq!(limit(&record, "accept_backlog")["capacity"], 8);
    assert_eq!(limit(&record, "accept_backlog")["verdict"], "fail");
    assert_eq!(limit(&record, "maxclients")["verdict"], "fail");
    assert_eq!(live.status.code(), Some(4));

    // The recording decides alike, also when the server is gone.
    drop(_server);
    let recorded = preflight(&[&tcp[..], &["--state", saved.to_str().unwrap()]].concat());
    assert_eq!(json(&recorded)["limits"], record["limits"]);
    assert_eq!(recorded.status.code(), Some(4));

    // A server that does not answer is never a load that fits.
    let gone = preflight(&["-s", socket.to_str().unwrap(), "-c", "2", "--format", "json"]);
    assert_eq!(limit(&json(&gone), "maxclients")["verdict"], "unknown");
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("its limits are unknown here"));
}

#[test]
fn a_password_is_in_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, port)) = redis(folder.path(), &["--requirepass", "hunter2"]) else {
        return;
    };
    let saved = folder.path().join("state");
    let output = Command::cargo_bin("systally")
        .unwrap()
        .args([
            "preflight",
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-c",
            "2",
            "--save-state",
        ])
        .arg(&saved)
        .env("REDISCLI_AUTH", "hunter2")
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains("hunter2"));
    let mut folders = vec![saved];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                assert!(
                    !String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains("hunter2"),
                    "{path:?}"
                );
            }
        }
    }
    assert!(files > 20, "{files} files");
}

#[test]
fn a_renamed_config_leaves_unknown_and_info_speaks() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, port)) = redis(folder.path(), &["--rename-command", "CONFIG", ""]) else {
        return;
    };
    let output = preflight(&[
        "-h",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-c",
        "2",
        "--format",
        "json",
    ]);
    let record = json(&output);
    assert_eq!(
        limit(&record, "maxclients")["verdict"],
        "ok",
        "INFO clients has it"
    );
    assert_eq!(limit(&record, "idle_timeout")["verdict"], "unknown");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn memcached_is_recognised() {
    let port = free_port();
    let mut args: Vec<String> = ["-U", "0", "-l", "127.0.0.1", "-c", "60", "-t", "1", "-p"]
        .map(str::to_owned)
        .to_vec();
    args.push(port.to_string());
    if nix::unistd::getuid().is_root() {
        args.extend(["-u".to_owned(), "root".to_owned()]);
    }
    let Some(_server) = start("memcached", &args, port) else {
        return;
    };
    let port = port.to_string();
    let base = [
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "--format",
        "json",
        "--connections",
    ];
    let few = json(&preflight(&[&base[..], &["10"]].concat()));
    let limit_of = |record: &Value| limit(record, "memcached_conns").clone();
    assert_eq!(few["server"]["kind"], "memcached");
    assert_eq!(limit_of(&few)["verdict"], "ok", "{:#}", limit_of(&few));
    let usable = limit_of(&few)["capacity"].as_u64().unwrap();
    assert!(usable < 59, "its own descriptors count: {usable}");
    let many = json(&preflight(&[&base[..], &["60"]].concat()));
    assert_eq!(limit_of(&many)["verdict"], "fail");
}

#[test]
fn a_server_that_is_neither_is_unknown_and_ends_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = [0_u8; 64];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let begun = Instant::now();
    let output = preflight(&["-h", "127.0.0.1", "-p", &port, "-c", "2", "--format", "json"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(limit(&json(&output), "maxclients")["verdict"], "unknown");
    assert_eq!(output.status.code(), Some(1));
}

/// A server that lets this user read neither its settings nor its counters.
#[test]
fn a_server_that_denies_what_is_asked_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    for (rights, told) in [("-config", "ok"), ("-config -info", "unknown")] {
        let user = ["--user", "default", "on", "nopass", "~*", "&*", "+@all"];
        let denied: Vec<&str> = rights.split(' ').collect();
        let Some((_server, port)) = redis(folder.path(), &[&user[..], &denied].concat()) else {
            return;
        };
        let output = preflight(&[
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-c",
            "10",
            "--format",
            "json",
        ]);
        let record = json(&output);
        assert_eq!(limit(&record, "maxclients")["verdict"], told, "{rights}");
        for id in ["tcp_backlog", "idle_timeout", "output_buffer"] {
            assert_ne!(limit(&record, id)["verdict"], "ok", "{rights}: {id}");
        }
        std::fs::remove_file(folder.path().join("r.sock")).unwrap();
    }
}

/// The command line of a bench is a plan as it stands.
#[test]
fn the_flags_of_a_bench_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, port)) = redis(folder.path(), &["--tcp-backlog", "7"]) else {
        return;
    };
    let port = port.to_string();
    let socket = folder.path().join("r.sock");
    let both = ["-h", "127.0.0.1", "-p", &port, "-s", socket.to_str().unwrap()];
    let plan = [
        "-c", "1,60", "-n", "1000", "-P", "1,16", "-d", "4,4096", "-r", "500", "-t", "get,incr", "--runs",
        "3",
    ];
    let more = [
        "--warmup", "0", "--seed", "7", "--engine", "none", "--format", "json",
    ];
    let check = |strategies: &[&str]| {
        let output = preflight(&[strategies, &both, &plan, &more].concat());
        (output.status.code(), json(&output))
    };
    let (code, record) = check(&["redis-rs/connect", "predis/persistent/unix"]);
    assert_eq!(code, Some(4), "{record:#}");
    assert_eq!(limit(&record, "accept_backlog")["demand"], 60);
    assert_eq!(limit(&record, "accept_backlog")["verdict"], "fail");
    // 1,000 connections in each of 3 rounds and a counted one, however fast they come.
    assert_eq!(limit(&record, "ephemeral_ports")["demand"], 60 + 4000);
    assert_eq!(limit(&record, "maxclients")["demand"], 121);
    let (_, unix) = check(&["redis-rs/connect/unix"]);
    assert_eq!(limit(&unix, "ephemeral_ports")["verdict"], "not_applicable");
    let wrong = preflight(&["no-such-client", "-c", "2"]);
    assert_eq!(wrong.status.code(), Some(2));
}

/// The kernel knows a socket by the name under which the server bound it.
#[test]
fn a_relative_path_of_a_socket_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_server) = redis(folder.path(), &["--tcp-backlog", "9"]) else {
        return;
    };
    std::os::unix::fs::symlink(folder.path(), folder.path().join("here")).unwrap();
    for path in ["r.sock", "./r.sock", "here/r.sock"] {
        let output = Command::cargo_bin("systally")
            .unwrap()
            .current_dir(folder.path())
            .args(["preflight", "-s", path, "-c", "3", "--format", "json"])
            .output()
            .unwrap();
        assert_eq!(limit(&json(&output), "accept_backlog")["capacity"], 10, "{path}");
    }
}

#[test]
fn without_a_server_that_is_said_once() {
    let output = preflight(&["-c", "2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("no server is named").count(), 1, "{text}");
    assert!(!text.contains("unknown"), "{text}");
}

#[test]
fn sizes_have_units_and_needs_their_formula() {
    for format in ["table", "markdown"] {
        let output = preflight(&["-c", "2000", "--format", format]);
        let text = String::from_utf8_lossy(&output.stdout);
        let row = |id: &str| {
            let found = text
                .lines()
                .find(|line| line.trim_start_matches("| ").starts_with(&format!("{id} ")));
            found.unwrap_or_else(|| panic!("{id}: {text}")).to_owned()
        };
        // 2000 processes of 5 MiB.
        assert!(row("fork_memory").contains("9.77"), "{text}");
        assert!(
            row("fork_memory").contains("GiB") && row("fork_memory").contains("memory"),
            "{text}"
        );
        assert!(row("file_max").contains("open files"), "{text}");
        // Lines are folded to the width of a terminal.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains("open now + 2000 client ends"), "{text}");
        let few = preflight(&["-c", "2", "--format", format]);
        let few = words(&String::from_utf8_lossy(&few.stdout));
        assert!(few.contains("not known without a server: the backlog"), "{few}");
    }
    let record = json(&preflight(&["-c", "2000", "--format", "json"]));
    assert_eq!(limit(&record, "fork_memory")["demand"], 10_485_760_000_u64);
    assert_eq!(limit(&record, "accept_backlog")["demand"], 2000);
}

#[test]
fn without_a_plan_it_says_what_can_be_carried() {
    let output = preflight(&["--format", "json"]);
    let record = json(&output);
    let finding = &record["findings"][0];
    assert_eq!(finding["code"], "CAPACITY");
    assert!(
        finding["evidence"]["connects_per_second_most"].as_u64().is_some(),
        "{finding:#}"
    );
    if Path::new("/proc/sys/net/netfilter/nf_conntrack_max").exists() {
        assert!(
            finding["evidence"]["conntrack_connects_per_second_most"].is_u64(),
            "{finding:#}"
        );
    }
    let reuse = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").unwrap_or_default();
    if reuse.trim() == "2" {
        assert!(
            finding["says"].as_str().unwrap().contains("loopback only"),
            "{finding:#}"
        );
    }
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn wrong_usage_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for args in [
        &["--state", empty][..],
        &["--state", "/no/such/folder"],
        &["-c", "0"],
        &["-c", "-1"],
        &["-c", "99999999999999999999"],
        &["-u", "http://localhost"],
        &["-s", "/x", "--transport", "tcp"],
        &["--mode", "sometimes"],
    ] {
        let output = preflight(args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let absurd = preflight(&[
        "-c",
        "18446744073709551615",
        "--connections",
        "18446744073709551615",
        "--format",
        "json",
    ]);
    assert_eq!(absurd.status.code(), Some(4));
}
