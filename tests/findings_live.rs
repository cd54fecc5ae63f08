//! What systally says of its own runs: programs whose trouble is known must be told of it and of nothing
//! else, and clean clients of nothing at all.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;
mod common;
#[path = "common/counting.rs"]
mod counting;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bench_support::{Run, codes, evidence, finding, have_php, may_trace};
use common::guest;
use counting::can_trace;
use systally::explain::{Finding, Severity};
use systally::record::{Record, wire};

/// A server that answers every 8 bytes with so many; it ends when this is dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(program: &Path, reply: usize) -> Server {
        let mut child = Command::new(program)
            .args(["serve", "0", &reply.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        Server {
            child,
            port: port.trim().to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// `systally count --ops TURNS -- shapes MODE PORT TURNS`, as a record; `None` when it cannot run here.
fn shape(mode: &str, turns: u32) -> Option<Record> {
    let program = guest("shapes")?;
    if !can_trace() {
        return None;
    }
    let server = Server::start(&program, if mode == "large" { 65536 } else { 8 });
    let run = Run::of(["count", "--ops", &turns.to_string(), "-o"]);
    let path = run.path("record.json");
    let run = run.arg(&path).arg("--").arg(&program).arg(mode).arg(&server.port);
    let run = run.arg(turns.to_string());
    let end = run.end();
    if end.status.code() == Some(77) {
        println!("SKIP: this kernel or container forbids what mode {mode} needs");
        return None;
    }
    assert!(end.status.success(), "{mode}: {}", end.stderr);
    Some(wire::load(&path).unwrap())
}

/// Codes of findings that say something is wrong.
fn troubles(record: &Record) -> Vec<&str> {
    let bad = record.findings.iter().filter(|f| f.severity >= Severity::Warning);
    bad.map(|f| f.code.as_ref()).collect()
}

#[test]
fn two_small_sends_without_nodelay_wait_for_the_delayed_ack() {
    // On a machine that is busy enough every wait of 40 ms becomes a longer one.
    let mut record = None;
    for _ in 0..5 {
        record = shape("pieces", 30);
        match &record {
            None => return,
            Some(found) if codes(found).contains(&"NAGLE_DELAYED_ACK") => break,
            Some(_) => {}
        }
    }
    let record = record.unwrap();
    let talk = record.strategies[0]
        .counted
        .known()
        .unwrap()
        .phases
        .run_loop
        .talk
        .clone();
    let talk = talk.unwrap();
    assert_eq!(
        (talk.turns_with_several_sends, talk.turns_without_nodelay),
        (30, 30)
    );
    assert!(talk.waited.0 >= 15 * 35_000_000, "{talk:?}");
    if talk.ack_waits_after_several < 2 {
        println!("SKIP: this machine is too busy for a wait of 40 ms: {talk:?}");
        return;
    }
    let nagle = finding(&record, "NAGLE_DELAYED_ACK");
    assert!(nagle.says.contains("TCP_NODELAY was never set"), "{}", nagle.says);
    assert!(evidence(nagle, "waits_near_40_ms") >= 2.0);
    assert_eq!(evidence(nagle, "most_sends_before_a_reply"), 2.0);
    assert!(codes(&record).contains(&"SENT_IN_PIECES"));
    assert!(!codes(&record).contains(&"NAGLE_NOT_THE_CAUSE"));
}

#[test]
fn one_send_without_nodelay_is_cleared_and_nodelay_needs_no_word() {
    let Some(record) = shape("whole", 200) else { return };
    let no = finding(&record, "NAGLE_NOT_THE_CAUSE");
    assert_eq!(no.severity, Severity::Info);
    assert_eq!(evidence(no, "turns_without_nodelay"), 200.0);
    assert_eq!(troubles(&record), [] as [&str; 0], "{:?}", record.findings);
    let Some(record) = shape("nodelay", 200) else {
        return;
    };
    assert_eq!(troubles(&record), [] as [&str; 0], "{:?}", record.findings);
    assert!(!codes(&record).iter().any(|code| code.starts_with("NAGLE")));
    assert!(codes(&record).contains(&"SENT_IN_PIECES"));
}

#[test]
fn each_known_trouble_is_named_and_nothing_else() {
    // The mode, how many turns, the finding, its severity.
    let cases = [
        ("poll", 20, "EVENT_LOOP_SPIN", Severity::Warning),
        ("try", 20, "EVENT_LOOP_SPIN", Severity::Warning),
        ("sleep", 30, "SLEEP_LOOP", Severity::Warning),
        ("options", 100, "OPTIONS_PER_OPERATION", Severity::Warning),
        ("names", 10, "NAME_LOOKUPS", Severity::Warning),
        ("clock", 2000, "CLOCK_SYSCALLS", Severity::Warning),
        ("ring", 50, "IO_URING", Severity::Warning),
        ("large", 50, "REPLY_IN_PIECES", Severity::Info),
        ("threads", 300, "THREAD_HANDOVER", Severity::Info),
        ("timeout", 2, "WAIT_EQUALS_TIMEOUT", Severity::Info),
    ];
    for (mode, turns, code, severity) in cases {
        let Some(record) = shape(mode, turns) else {
            continue;
        };
        let found = finding(&record, code);
        assert_eq!(found.severity, severity, "{mode}: {found:?}");
        // A busy poll is a storm of polls as well.
        let allowed = [code, "POLL_STORM"];
        let others: Vec<_> = troubles(&record)
            .into_iter()
            .filter(|other| !allowed.contains(other))
            .collect();
        assert_eq!(others, [] as [&str; 0], "{mode}: {:?}", record.findings);
    }
}

#[test]
fn the_time_of_a_sleeper_is_not_the_servers() {
    let Some(record) = shape("sleep", 150) else { return };
    let split = finding(&record, "TIME_SPLIT");
    assert!(split.says.contains("of it in sleeps"), "{}", split.says);
    assert!(evidence(split, "waiting_for_else_ms") >= 300.0, "{split:?}");
}

#[test]
fn a_plain_program_is_told_nothing() {
    if !can_trace() {
        return;
    }
    let run = Run::of(["count", "-o"]);
    let path = run.path("record.json");
    let _end = run.arg(&path).arg("--").arg("true").end();
    let record = wire::load(&path).unwrap();
    assert_eq!(troubles(&record), [] as [&str; 0], "{:?}", record.findings);
}

#[test]
fn clean_clients_have_only_their_true_findings() {
    if !may_trace() || !have_php() {
        return;
    }
    // Over TCP and UNIX sockets; a client that is not installed is a skipped row.
    let names = [
        "raw/persistent/tcp",
        "raw/persistent/unix",
        "redis-rs/persistent/tcp",
        "redis-rs/persistent/unix",
        "phpredis/persistent/tcp",
        "phpredis/persistent/unix",
        "redis-py/persistent/tcp",
        "redis-py/persistent/unix",
        "hiredis/persistent/tcp",
        "hiredis/persistent/unix",
    ];
    let (_, record) = Run::bench(names)
        .arg("-n")
        .arg("2000")
        .arg("--runs")
        .arg("2")
        .record();
    // redis-py makes its socket non-blocking and blocking again around every read (two ioctl FIONBIO), and
    // the debugger may really be loaded here.
    let is_true = |f: &Finding| match f.code.as_ref() {
        "OPTIONS_PER_OPERATION" => f
            .strategy
            .as_deref()
            .is_some_and(|row| row.starts_with("redis-py/")),
        code => code == "XDEBUG_LOADED",
    };
    let unwanted: Vec<_> = record
        .findings
        .iter()
        .filter(|f| f.severity >= Severity::Warning && !is_true(f))
        .collect();
    assert!(unwanted.is_empty(), "{unwanted:#?}");
    // Every row that ran has its place in the split, once the run was long enough for one.
    if let Some(split) = record.findings.iter().find(|f| f.code == "TIME_SPLIT") {
        assert!(
            split.evidence.keys().all(|row| row.contains("/persistent/")),
            "{split:?}"
        );
    }
}

/// What a report of 2020 put down to a new version of phpredis (github.com/phpredis/phpredis/issues/1742): its
/// ECHO for each pconnect costs one send and one receive per operation.
#[test]
fn the_check_of_a_pool_costs_a_round_trip_and_is_named() {
    if !may_trace() || !have_php() {
        return;
    }
    let names = ["phpredis/pconnect-no-echo/tcp", "phpredis/pconnect-pool/tcp"];
    let run = Run::bench(names).arg("-n").arg("500").arg("--runs").arg("1");
    let (_, record) = run.arg("--witness").arg("none").record();
    let calls = |row: usize, call: &str| {
        let counted = record.strategies[row].counted.known().unwrap();
        counted.phases.run_loop.syscalls[call].calls
    };
    assert_eq!((calls(0, "sendto"), calls(1, "sendto")), (500, 1_000));
    assert_eq!((calls(0, "poll"), calls(1, "poll")), (500, 1_000));
    let probes = |name: &str| {
        let mut found = record.findings.iter();
        let of_row = |f: &&Finding| f.code == "LIVENESS_PROBES" && f.strategy.as_deref() == Some(name);
        found.find(of_row).unwrap().says.clone()
    };
    assert!(probes(names[1]).contains("1.0 ECHO or PING per operation, each a round trip"));
    assert!(!probes(names[0]).contains("ECHO"));
}

#[test]
fn a_run_long_enough_says_where_the_time_goes() {
    if !may_trace() {
        return;
    }
    let run = Run::bench(["raw/persistent/tcp", "noop/loop/tcp"]);
    let run = run
        .arg("-t")
        .arg("get")
        .arg("--runs")
        .arg("2")
        .arg("--duration")
        .arg("300ms");
    let (_, record) = run.record();
    let rounds = record.strategies.iter().filter_map(|row| row.timed.known());
    if rounds
        .flat_map(|timed| &timed.rounds)
        .any(|round| round.cpu.is_none())
    {
        println!("SKIP: a worker got less CPU time than one tick on this busy machine");
        return;
    }
    let split = finding(&record, "TIME_SPLIT");
    let part = &split.evidence["raw/persistent/tcp"];
    let number = |name: &str| part[name].as_f64().unwrap();
    // User and kernel time have only the digits of their clock; the sum of both is exact.
    let parts = ["cpu_us", "waiting_for_server_us", "waiting_for_else_us"].map(number);
    let sum: f64 = parts.iter().sum();
    assert!(parts.iter().all(|part| *part >= 0.0), "{part}");
    // CPU time is read around the round, so the parts may be a little more than the whole.
    assert!(sum >= number("wall_us") * 0.99, "{part}");
    assert!(
        number("server_command_us") > 0.0 && part["bound"].is_string(),
        "{part}"
    );
}
