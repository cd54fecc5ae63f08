//! Each limit exceeded on purpose, in a network namespace, control group or child process of its own: the
//! failure comes, is explained, and is proven by raising that limit alone.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;
mod limits_support;

use std::ffi::OsStr;
use std::path::Path;

use bench_support::{Run, codes, evidence, finding, have, have_php, is_root, row};
use limits_support::{Group, Redis, in_own_network, proof, symptoms};
use systally::record::{ProofArm, ProofVerdict, Record, Status, sampled};
use systally::sys::namespace::set_open_files_of;

/// A bench that is timed only, for one round.
fn timed<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    once(Run::bench(args))
}

/// The same of a run that has its arguments.
fn once(run: Run) -> Run {
    // A round takes seconds; on a machine that is busy it may take much longer.
    run.args([
        "--engine",
        "none",
        "--runs",
        "1",
        "--warmup",
        "0",
        "--timeout",
        "60s",
    ])
}

/// A bench that is timed only, and whose suspected limits are put to the test.
fn proving(strategy: &str, clients: u32, operations: u32) -> Run {
    let (clients, operations) = (clients.to_string(), operations.to_string());
    timed([strategy, "-c", &clients, "-n", &operations, "-t", "incr"]).arg("--prove")
}

/// What every proven limit has: the symptom in both A and in neither B.
fn proven<'a>(record: &'a Record, code: &str) -> &'a systally::record::Proof {
    let proof = proof(record, code, ProofVerdict::Proven);
    assert!(symptoms(proof, ProofArm::A).iter().all(|n| *n > 0), "{proof:#?}");
    assert_eq!(symptoms(proof, ProofArm::B), [0, 0], "{proof:#?}");
    assert_eq!(finding(record, code).evidence["proof"], "proven");
    proof
}

fn somaxconn() -> String {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap()
}

#[test]
fn a_unix_queue_with_two_locks() {
    if !have_php() {
        return;
    }
    let before = somaxconn();
    in_own_network(&[("core/somaxconn", "2")], || {
        let Some(redis) = Redis::start(&[], &["--tcp-backlog", "2"]) else {
            return;
        };
        let (ended, record) = proving("phpredis/connect/unix", 40, 2000)
            .args(redis.flags())
            .record();
        ended.code(1);
        let full = finding(&record, "UNIX_BACKLOG_EAGAIN");
        assert_eq!(evidence(full, "backlog"), 2.0);
        assert!(
            full.not_the_cause.iter().any(|one| one.starts_with("file_max")),
            "{full:?}"
        );
        let proof = proven(&record, "UNIX_BACKLOG_EAGAIN");
        // Either lock alone holds the queue at what it was.
        let alone = symptoms(proof, ProofArm::Alone);
        assert!(alone.len() == 2 && alone.iter().all(|n| *n > 0), "{proof:#?}");
        assert!(symptoms(proof, ProofArm::Opposite)[0] > 0, "{proof:#?}");
        assert!(!codes(&record).contains(&"UNEXPLAINED"), "{:?}", codes(&record));
    });
    assert_eq!(somaxconn(), before);
}

/// redis-rs blocks in connect(): no error, only a queue that was seen full.
#[test]
fn a_unix_queue_that_a_client_waits_for() {
    in_own_network(&[("core/somaxconn", "1")], || {
        let Some(redis) = Redis::start(&[], &[]) else {
            return;
        };
        let run = Run::bench([
            "redis-rs/connect/unix",
            "-c",
            "60",
            "--duration",
            "1s",
            "-t",
            "incr",
        ]);
        let run = run.args([
            "--engine",
            "none",
            "--runs",
            "2",
            "--warmup",
            "0",
            "--timeout",
            "60s",
        ]);
        let (ended, record) = run.args(redis.flags()).record();
        let sampled = record.sampled.as_ref().unwrap();
        let peak = sampled.peak(sampled::UNIX_QUEUED, 0).unwrap();
        assert_eq!(peak.of, Some(2), "{sampled:?}");
        if peak.peak >= 2 {
            finding(&record, "UNIX_BACKLOG_WAIT");
        }
        assert!(
            !codes(&record).contains(&"UNIX_BACKLOG_EAGAIN"),
            "{}",
            ended.all()
        );
    });
}

/// A SYN that finds the queue full is dropped: clients stall and no error tells of it.
#[test]
fn a_tcp_queue_that_drops() {
    in_own_network(&[("core/somaxconn", "2")], || {
        let Some(redis) = Redis::start(&[], &[]) else {
            return;
        };
        let (_, record) = proving("redis-rs/connect/tcp", 24, 240)
            .args(redis.flags())
            .record();
        let dropped = finding(&record, "TCP_ACCEPTQ_SYNDROP");
        assert!(evidence(dropped, "listen_overflows") >= 1.0);
        assert!(evidence(dropped, "drops_of_this_listener") >= 1.0);
        for code in ["TCP_ACCEPTQ_RST", "PACKET_LOSS", "CONNTRACK_FULL"] {
            assert!(!codes(&record).contains(&code), "{:?}", codes(&record));
        }
        let proof = proven(&record, "TCP_ACCEPTQ_SYNDROP");
        let a = proof.runs.iter().find(|run| run.arm == ProofArm::A).unwrap();
        assert!(a.counters["TcpExt.ListenOverflows"] > 0, "{proof:#?}");
    });
}

/// With tcp_abort_on_overflow=1 only a handshake whose last packet finds the queue full is reset, which a
/// burst over loopback may or may not bring about. What was not reset is not to be blamed on it.
#[test]
fn a_tcp_queue_that_may_reset() {
    let policy = ("ipv4/tcp_abort_on_overflow", "1");
    in_own_network(&[("core/somaxconn", "1"), policy], || {
        let Some(redis) = Redis::start(&[], &[]) else {
            return;
        };
        let run = timed(["redis-rs/connect/tcp", "-c", "24", "-n", "96", "-t", "incr"]);
        let (ended, record) = run.args(redis.flags()).record();
        assert_eq!(record.counters.after["net.ipv4.tcp_abort_on_overflow"], 1);
        let reset = record.counters.grew("TcpExt.EmbryonicRsts").unwrap() > 0;
        if codes(&record).contains(&"TCP_ACCEPTQ_RST") {
            assert!(reset, "{}", ended.all());
            assert!(evidence(finding(&record, "TCP_ACCEPTQ_RST"), "listen_overflows") >= 1.0);
        }
        assert!(!codes(&record).contains(&"UNEXPLAINED"), "{}", ended.all());
    });
}

#[test]
fn ports_with_and_without_reuse() {
    let few = ("ipv4/ip_local_port_range", "40000 40030");
    let quick = ("ipv4/tcp_tw_reuse_delay", "1");
    for (reuse, fits) in [("0", false), ("1", true), ("2", true)] {
        in_own_network(&[few, quick, ("ipv4/tcp_tw_reuse", reuse)], || {
            let (ended, record) = proving("redis-rs/connect/tcp", 1, 200).record();
            if fits {
                ended.code(0);
                assert!(record.proofs.is_empty(), "{:?}", record.proofs);
                assert!(record.counters.grew("TcpExt.TWRecycled").unwrap() > 0);
                return;
            }
            ended.code(1);
            let ports = finding(&record, "EPHEMERAL_EXHAUSTED_TW");
            assert_eq!(evidence(ports, "ports_usable"), 31.0);
            let proof = proven(&record, "EPHEMERAL_EXHAUSTED_TW");
            assert!(symptoms(proof, ProofArm::Opposite)[0] > 0, "{proof:#?}");
            for run in &proof.runs {
                assert!(run.set.contains_key("net.ipv4.ip_local_port_range"), "{run:?}");
            }
        });
    }
}

/// Opens as many connections as it is told before it is ready.
const MANY: &str = r#"
import json, os, socket, sys
spec = json.loads(os.environ.get("SYSTALLY_SPEC") or sys.stdin.readline())
server = spec["servers"][0]
def connect():
    if server["scheme"] == "unix":
        s = socket.socket(socket.AF_UNIX)
        s.connect(server["path"])
    else:
        s = socket.socket()
        s.connect((server["host"], server["port"]))
    return s
try:
    held = [connect() for _ in range(70)]
except OSError as e:
    print(json.dumps({"event": "fail", "class": "connect", "message": str(e)}), flush=True)
    sys.exit(3)
print(json.dumps({"event": "ready", "protocol": 1, "pid": os.getpid(), "versions": {}}), flush=True)
for line in sys.stdin:
    if line.strip() != "go":
        break
    n = spec["stop"]["ops"]
    for i in range(n):
        held[i % 70].sendall(b"*2\r\n$4\r\nINCR\r\n$1\r\nx\r\n")
        held[i % 70].recv(64)
    print(json.dumps({"event": "done", "ops": n, "asked": n, "elapsed_ns": 1000000, "errors": {}}), flush=True)
"#;

#[test]
fn seventy_connections_with_sixty_four_descriptors() {
    if !(have("python3", &["-c", "import json"], "a client in Python")
        && have("prlimit", &["--nofile=64:4096", "true"], "a limit of open files"))
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let worker = folder.path().join("many.py");
    std::fs::write(&worker, MANY).unwrap();
    let run = Run::wrapped(
        &["prlimit", "--nofile=64:4096"],
        ["bench", "-n", "70", "-t", "incr"],
    );
    let path = run.path("record.json");
    let ended = once(run)
        .args(["--prove", "-o"])
        .arg(&path)
        .args(["--", "python3"])
        .arg(&worker)
        .end();
    ended.code(1);
    let record = ended.saved(&path);
    let files = finding(&record, "CLIENT_NOFILE");
    assert_eq!(evidence(files, "soft_limit"), 64.0);
    proven(&record, "CLIENT_NOFILE");
}

#[test]
fn a_maxclients_that_ulimit_lowered() {
    if !have("prlimit", &["--nofile=64:64", "true"], "a limit of open files") {
        return;
    }
    let Some(redis) = Redis::start(&["prlimit", "--nofile=64:64"], &[]) else {
        return;
    };
    let (ended, record) = proving("redis-rs/persistent/tcp", 40, 400)
        .args(redis.flags())
        .record();
    ended.code(1);
    let full = finding(&record, "REDIS_MAXCLIENTS_BY_ULIMIT");
    assert_eq!(
        (evidence(full, "maxclients"), evidence(full, "server_nofile")),
        (32.0, 64.0)
    );
    let proof = proven(&record, "REDIS_MAXCLIENTS_BY_ULIMIT");
    assert_eq!(proof.limit, "server_nofile");
}

#[test]
fn a_server_without_descriptors() {
    let Some(redis) = Redis::start(&[], &[]) else {
        return;
    };
    let open = std::fs::read_dir(format!("/proc/{}/fd", redis.pid()))
        .unwrap()
        .count();
    // Room for systally's own connections and few others.
    set_open_files_of(redis.pid(), open as u64 + 4).unwrap();
    let (ended, record) = proving("redis-rs/persistent/tcp", 10, 100)
        .args(redis.flags())
        .record();
    ended.code(1);
    let silent = finding(&record, "SERVER_EMFILE");
    assert_eq!(evidence(silent, "rejected_connections"), 0.0);
    assert!(evidence(silent, "server_fds_open") >= evidence(silent, "server_nofile"));
    proven(&record, "SERVER_EMFILE");
}

#[test]
fn a_server_with_room_for_eight() {
    let Some(redis) = Redis::start(&[], &["--maxclients", "8"]) else {
        return;
    };
    let (ended, record) = proving("redis-rs/persistent/tcp", 20, 400)
        .args(redis.flags())
        .record();
    ended.code(1);
    assert_eq!(evidence(finding(&record, "REDIS_MAXCLIENTS"), "maxclients"), 8.0);
    let proof = proven(&record, "REDIS_MAXCLIENTS");
    let a = proof.runs.iter().find(|run| run.arm == ProofArm::A).unwrap();
    assert!(a.counters["redis.rejected_connections"] > 0, "{proof:#?}");
    assert!(symptoms(proof, ProofArm::Opposite)[0] > 0, "{proof:#?}");
}

/// A user of this test process's own, so that nobody else's processes count, nor those of the same test run
/// elsewhere at the same time.
fn a_user() -> u32 {
    2_000_000 + std::process::id()
}

#[test]
fn a_user_with_few_processes() {
    if !is_root() {
        return println!("SKIP: only root can become a user without processes");
    }
    let program = env!("CARGO_BIN_EXE_systally");
    let user = format!("--reuid={}", a_user());
    let group = format!("--regid={}", a_user());
    let wrapper = [
        "setpriv",
        &user,
        &group,
        "--clear-groups",
        "prlimit",
        "--nproc=25:2000",
    ];
    if !have(
        "setpriv",
        &[&wrapper[1..], &[program, "--version"]].concat(),
        "another user",
    ) {
        return;
    }
    let run = Run::wrapped(
        &wrapper,
        ["bench", "redis-rs/persistent/tcp", "-c", "40", "-n", "400"],
    );
    run.open_to_all();
    let run = once(run).args(["-t", "incr", "--prove"]);
    let (ended, record) = run.record();
    ended.code(1);
    let refused = finding(&record, "FORK_NPROC");
    assert_eq!(evidence(refused, "has"), 25.0);
    assert!(!codes(&record).contains(&"UNIX_BACKLOG_EAGAIN"));
    proven(&record, "FORK_NPROC");
}

/// A run whose processes are all in the group.
fn inside<const N: usize>(group: &Group, command: [&str; N]) -> Run {
    let enter = format!("echo $$ > {} && exec \"$@\"", group.procs().display());
    Run::wrapped(&["sh", "-c", &enter, "sh"], command)
}

#[test]
fn a_group_with_few_processes() {
    let Some(group) = Group::make("pids", &[("pids.max", "30")]) else {
        return;
    };
    let run = inside(
        &group,
        [
            "bench",
            "redis-rs/persistent/unix",
            "-c",
            "60",
            "-n",
            "600",
            "-t",
            "incr",
        ],
    );
    let run = once(run).arg("--prove");
    let (ended, record) = run.record();
    ended.code(1);
    let refused = finding(&record, "FORK_PIDS_MAX");
    assert_eq!(evidence(refused, "has"), 30.0);
    assert!(evidence(refused, "pids_events_max") >= 1.0);
    assert!(!codes(&record).contains(&"FORK_NPROC"), "{:?}", codes(&record));
    proven(&record, "FORK_PIDS_MAX");
    drop(group);
    // A group is named after the process that made it; one that still runs is of another test.
    let left = std::fs::read_dir("/sys/fs/cgroup/pids").unwrap().flatten();
    let names = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let abandoned: Vec<_> = names
        .filter(|name| {
            name.strip_prefix("systally-arm-")
                .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        })
        .collect();
    assert!(abandoned.is_empty(), "{abandoned:?}");
}

/// The finding of this code about the row with so many clients, which must be the only one.
fn about_clients(record: &Record, code: &str, clients: u32) {
    let about: Vec<u32> = record
        .findings
        .iter()
        .filter(|finding| finding.code == code)
        .map(|finding| record.strategies[finding.row.unwrap()].axes.clients)
        .collect();
    assert_eq!(about, [clients], "{code}: {:#?}", record.findings);
}

#[test]
fn forks_that_are_refused_cost_their_row_and_no_other() {
    let Some(group) = Group::make("pids", &[("pids.max", "40")]) else {
        return;
    };
    let run = inside(
        &group,
        [
            "bench",
            "redis-rs/persistent/unix",
            "-c",
            "60,2",
            "-n",
            "600",
            "-t",
            "incr",
        ],
    );
    let run = run.args(["--engine", "none", "--runs", "2", "--warmup", "0"]);
    let (ended, record) = run.record();
    ended.code(1);
    let [refused, other] = record.strategies.as_slice() else {
        panic!("{:?}", record.strategies);
    };
    assert_eq!((refused.axes.clients, refused.status), (60, Status::Failed));
    assert_eq!(
        (other.axes.clients, other.status),
        (2, Status::Ok),
        "{:?}",
        other.reason
    );
    assert_eq!(other.timed.known().unwrap().rounds.len(), 2);
    assert_eq!(other.server_view.known().unwrap().served(&["incr"]), 1200);
    about_clients(&record, "FORK_PIDS_MAX", 60);
    let told = "in: redis-rs/persistent/unix (clients=60)";
    assert!(ended.stdout.contains(told), "{}", ended.stdout);
}

#[test]
fn a_script_that_may_not_fork_all_its_clients_says_so() {
    if !have_php() {
        return;
    }
    let Some(group) = Group::make("pids", &[("pids.max", "40")]) else {
        return;
    };
    let scenario = r#"
about = "more children than may be forked, and few enough"
[[bench]]
strategies = ["forked-script/connect/unix"]
tests = ["incr"]
clients = [80, 3]
requests-per-client = 20
runs = 1
warmup = 0
pause = "1ms"
"#;
    let run = inside(&group, ["bench", "--engine", "none", "--scenario"]);
    let path = run.path("forks.toml");
    std::fs::write(&path, scenario).unwrap();
    let (ended, record) = run.arg(&path).record();
    ended.code(1);
    let [refused, other] = record.strategies.as_slice() else {
        panic!("{:?}", record.strategies);
    };
    let round = &refused.timed.known().unwrap().rounds[0];
    let failed: u64 = round.errors.values().sum();
    assert_eq!(
        (round.asked.0, round.ops.0 + failed),
        (1600, 1600),
        "{:?}",
        round.errors
    );
    assert!(
        round.errors.keys().all(|key| key.starts_with("not-forked:")),
        "{:?}",
        round.errors
    );
    assert_eq!(round.server.known().unwrap().served(&["incr"]), round.ops.0);
    assert_eq!(
        (other.status, other.timed.known().unwrap().rounds[0].ops.0),
        (Status::Ok, 60)
    );
    about_clients(&record, "FORK_PIDS_MAX", 80);
    // The errno and its words are those of a full queue, which it is not.
    assert!(
        !codes(&record).contains(&"UNIX_BACKLOG_EAGAIN"),
        "{:?}",
        codes(&record)
    );
}

#[test]
fn a_server_with_a_hundredth_of_a_cpu() {
    let quota = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "1000")];
    let Some(group) = Group::make("cpu", &quota) else {
        return;
    };
    let Some(redis) = Redis::start(&[], &[]) else {
        return;
    };
    group.take(redis.pid());
    let run = || {
        let load = ["-c", "4", "-P", "100", "--duration", "1s", "-t", "incr"];
        let run = timed(["raw/pipeline/unix"]).args(load).arg("--prove");
        let (_, record) = run.args(redis.flags()).record();
        assert_eq!(row(&record, "raw/pipeline/unix").status, Status::Ok);
        record
    };
    // On a machine that is busy enough the server does not get even its hundredth, and nothing throttles it.
    let mut record = run();
    for _ in 0..3 {
        if record.findings.iter().any(|found| found.code == "CPU_THROTTLE") {
            break;
        }
        record = run();
    }
    let throttled = finding(&record, "CPU_THROTTLE");
    assert_eq!(throttled.evidence["whose"], "the server");
    let proof = proven(&record, "CPU_THROTTLE");
    let a = proof.runs.iter().find(|run| run.arm == ProofArm::A).unwrap();
    assert!(a.counters["server.cpu.stat.nr_throttled"] > 0, "{proof:#?}");
    drop((redis, group));
}

/// php-memcached says "ERROR was returned by server", and the server counts what it turned away.
#[test]
fn a_memcached_with_few_connections() {
    let extension = "exit(extension_loaded('memcached') ? 0 : 1);";
    if !(have("memcached", &["-V"], "a full memcached") && have("php", &["-r", extension], "its client")) {
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let port_text = port.to_string();
    let mut command = std::process::Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-p", &port_text, "-U", "0", "-c", "60"]);
    if is_root() {
        command.args(["-u", "root"]);
    }
    let _server = limits_support::Ended(command.spawn().unwrap());
    limits_support::wait_for(port);
    let uri = format!("memcached://127.0.0.1:{port}");
    let run = timed([
        "php-memcached/text/tcp",
        "-u",
        &uri,
        "-c",
        "50",
        "-n",
        "500",
        "-t",
        "set",
    ])
    .arg("--prove");
    let (_, record) = run.record();
    let full = finding(&record, "MEMCACHED_CONNLIMIT_FAST");
    assert_eq!(full.evidence["max_connections"], "60");
    assert!(evidence(full, "connections") >= 1.0);
    proven(&record, "MEMCACHED_CONNLIMIT_FAST");
}

/// Its table is one for the whole machine, so the maximum is only ever read.
#[test]
fn a_table_of_followed_connections() {
    println!(
        "SKIP: nf_conntrack_max holds for the whole machine, which no test changes; the rule has its recorded cases"
    );
}
