//! The ledger of `systally bench`: what clients claim against what the server says it got.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;
mod strategy_support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bench_support::{Run, codes, evidence, have_php, row_is};
use strategy_support::Redis;
use systally::explain::Severity;
use systally::record::{Record, ServerOrigin, ServerView, Status, StrategyResult};
use systally::units::Measured;

/// Rounds that take no time to speak of.
/// Without a witness, whose pass the server would count as well where one may run.
const QUICK: [&str; 8] = [
    "--runs",
    "2",
    "--warmup",
    "1",
    "--timeout",
    "100s",
    "--witness",
    "none",
];

fn view(row: &StrategyResult) -> &ServerView {
    row.server_view.known().unwrap()
}

/// Operations that a row claims in the rounds that are kept.
fn claimed(row: &StrategyResult) -> u64 {
    row.timed
        .known()
        .unwrap()
        .rounds
        .iter()
        .map(|round| round.ops.0)
        .sum()
}

#[test]
fn a_private_server_confirms_every_operation_and_connection() {
    let names = [
        "raw/persistent/tcp",
        "redis-rs/connect/unix",
        "redis-rs/pipeline/tcp",
    ];
    let (ended, record) = Run::bench(names)
        .args(QUICK)
        .args(["-n", "300", "-t", "set"])
        .record();
    ended.code(0);
    let connections = |name: &str| {
        let row = row_is(&record, name, Status::Ok);
        let timed = row.timed.known().unwrap();
        for round in &timed.rounds {
            let seen = round.server.known().unwrap();
            assert_eq!(
                (round.ops.0, round.asked.0, seen.served(&["set"])),
                (300, 300, 300),
                "{name}"
            );
        }
        // One round of warm-up, two that are kept, one that is counted.
        assert_eq!(view(row).served(&["set"]), 4 * 300, "{name}");
        assert!(view(row).failed.is_empty(), "{name}");
        view(row).connections
    };
    assert_eq!(connections("raw/persistent/tcp"), 0, "none is made in a round");
    assert_eq!(connections("redis-rs/pipeline/tcp"), 0);
    assert_eq!(connections("redis-rs/connect/unix"), 4 * 300);
}

#[test]
fn several_clients_are_added_up() {
    let (ended, record) = Run::bench(["raw/persistent/unix"])
        .args(QUICK)
        .args(["-n", "301", "-c", "3", "-t", "get"])
        .record();
    ended.code(0);
    let row = row_is(&record, "raw/persistent/unix", Status::Ok);
    assert_eq!(claimed(row), 2 * 301);
    assert_eq!(view(row).served(&["get"]), 4 * 301);
    assert_eq!(row.counted.known().unwrap().ops.unwrap().0, 301);
}

/// The pipeline of the note of 2018: commands are queued, and `exec()` is never called.
#[test]
fn a_pipeline_that_is_never_sent_claims_what_no_server_saw() {
    if !have_php() {
        return;
    }
    let names = [
        "phpredis/unsent/tcp",
        "phpredis/unsent/unix",
        "phpredis/persistent/tcp",
    ];
    let (ended, record) = Run::bench(names).args(QUICK).args(["-n", "20000"]).record();
    ended.code(5);
    for name in &names[..2] {
        let row = row_is(&record, name, Status::Unverified);
        let claims = row.timed.known().unwrap().ops_per_s.median;
        assert_eq!(claimed(row), 2 * 20_000);
        assert_eq!(view(row).served(&["get", "set"]), 0);
        let reason = row.reason.as_deref().unwrap();
        assert!(
            reason.contains(
                "claims 80 000 operations in all (warm-up, timed rounds and counting), the server served 0"
            ),
            "{reason}"
        );
        let said = record
            .findings
            .iter()
            .find(|f| f.strategy.as_deref() == Some(name))
            .unwrap();
        assert_eq!(
            (said.code.as_ref(), said.severity),
            ("CLAIMED_NOT_SERVED", Severity::Error)
        );
        assert_eq!(evidence(said, "claimed_ops"), 40_000.0);
        assert_eq!(evidence(said, "served_ops"), 0.0);
        assert_eq!(evidence(said, "claimed_ops_per_s"), claims.round());
        for words in [
            "; of the 40 000 operations that it claims in 2 timed rounds the server saw none within them, ",
            "sends anything",
            "never executed (in PHP, exec() is missing)",
        ] {
            assert!(said.says.contains(words), "{}", said.says);
        }
        assert_eq!(
            row.counted.known().unwrap().round_trips_per_op,
            Measured::Known(0.0)
        );
    }
    // The mistake is its row's alone.
    row_is(&record, "phpredis/persistent/tcp", Status::Ok);
    assert!(ended.stdout.contains("CLAIMED_NOT_SERVED"), "{}", ended.all());
    assert!(ended.stdout.contains("unverified"), "{}", ended.all());
}

/// The other pipeline of that note: the clock is read before the queue is flushed, so that the work
/// arrives when its round is over.
#[test]
fn late_commands_are_told_and_poison_no_other_row() {
    if !have_php() {
        return;
    }
    let late = ["predis/timed-before-flush/tcp", "predis/timed-before-flush/unix"];
    let others = [
        "predis/pipeline/tcp",
        "raw/persistent/unix",
        "phpredis/persistent/tcp",
    ];
    let names = [late[0], others[0], others[1], late[1], others[2]];
    let (ended, record) = Run::bench(names).args(QUICK).args(["-n", "4000"]).record();
    ended.code(5);
    for name in late {
        let row = row_is(&record, name, Status::Unverified);
        let reason = row.reason.as_deref().unwrap();
        assert!(
            reason.contains("after the client had stopped its clock"),
            "{reason}"
        );
        let said = record
            .findings
            .iter()
            .find(|f| f.strategy.as_deref() == Some(name))
            .unwrap();
        assert_eq!(said.code, "CLAIMED_NOT_SERVED", "{said:?}");
        // What came late is told of the same operations: those of the timed rounds, not of the warm-up and the count.
        let missing = evidence(said, "claimed_ops") - evidence(said, "served_ops");
        assert_eq!(evidence(said, "claimed_ops"), 2.0 * 4000.0);
        assert!(
            row.experiment.served_late as f64 <= missing,
            "{} of {missing}",
            row.experiment.served_late
        );
    }
    for name in others {
        let row = row_is(&record, name, Status::Ok);
        assert_eq!(view(row).served(&["get", "set"]), 4 * 4000, "{name}");
        assert!(
            !record
                .findings
                .iter()
                .any(|f| f.strategy.as_deref() == Some(name) && f.code.contains("SERVED"))
        );
    }
}

/// Somebody else who writes to the server all the time, until dropped.
struct Neighbour {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Neighbour {
    fn start(redis: &Redis) -> Neighbour {
        let stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
        stream.set_read_timeout(Some(strategy_support::LIMIT)).unwrap();
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let mut answers = BufReader::new(stream.try_clone().unwrap());
            let mut stream = stream;
            while !stopped.load(Ordering::Relaxed) {
                stream.write_all(b"SET mine:1 x\r\nGET mine:2\r\n").unwrap();
                for _ in 0..2 {
                    let mut line = String::new();
                    answers.read_line(&mut line).unwrap();
                }
                count.fetch_add(1, Ordering::Relaxed);
                // It shall be there, not take the machine for itself.
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Neighbour {
            stop,
            done,
            thread: Some(thread),
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn at(redis: &Redis) -> [String; 6] {
    [
        "-h",
        "127.0.0.1",
        "-p",
        &redis.port().to_string(),
        "-s",
        redis.socket().to_str().unwrap(),
    ]
    .map(str::to_owned)
}

fn keys(redis: &Redis) -> String {
    let mut all: Vec<String> = redis.ask("KEYS *").unwrap().lines().map(str::to_owned).collect();
    all.retain(|line| !line.starts_with(['*', '$', '+']));
    all.sort();
    all.join(" ")
}

#[test]
fn somebody_else_s_work_on_an_external_server_is_no_difference_and_their_keys_stay() {
    let Some(redis) = Redis::start(None) else { return };
    redis.ask("SET mine:2 dear").unwrap();
    let (ended, record, busy) = {
        let neighbour = Neighbour::start(&redis);
        let names = [
            "raw/persistent/tcp",
            "redis-rs/persistent/unix",
            "redis-rs/connect/tcp",
        ];
        let run = Run::bench(names)
            .args(QUICK)
            .args(["-n", "300", "-t", "setget,incr"])
            .args(at(&redis));
        let (ended, record) = run.record();
        (ended, record, neighbour.done.load(Ordering::Relaxed))
    };
    assert!(busy > 0);
    ended.code(0);
    assert!(ended.stdout.starts_with("server: redis "), "{}", ended.all());
    assert!(
        ended.stdout.lines().next().unwrap().contains("yours"),
        "{}",
        ended.all()
    );
    assert_eq!(record.server.as_ref().unwrap().origin, ServerOrigin::External);
    for row in &record.strategies {
        assert_eq!(row.status, Status::Ok, "{}: {:?}", row.name, row.reason);
    }
    assert!(
        record.findings.iter().all(|f| f.severity != Severity::Error),
        "{:?}",
        record.findings
    );
    assert_eq!(keys(&redis), "mine:1 mine:2");
    assert_eq!(redis.ask("GET mine:2").unwrap().lines().nth(1), Some("dear"));
}

#[test]
fn a_run_that_is_cut_short_also_removes_its_keys_from_an_external_server() {
    let Some(redis) = Redis::start(None) else { return };
    redis.ask("SET mine x").unwrap();
    let run = Run::bench(["raw/persistent/tcp"])
        .args(["--duration", "60s", "--runs", "1"])
        .args(at(&redis));
    let mut running = run.start();
    running.until("keys are there", |_| redis.calls("set") > 100);
    running.signal(nix::sys::signal::Signal::SIGINT);
    running.end().code(5);
    assert_eq!(keys(&redis), "mine");
}

#[test]
fn keys_that_are_there_already_are_neither_overwritten_nor_deleted() {
    let Some(redis) = Redis::start(None) else { return };
    redis.ask("SET st:0000000001 dear").unwrap();
    let quick = |more: &[&str]| {
        let run = Run::bench(["raw/persistent/tcp"])
            .args(QUICK)
            .args(["-n", "50", "-t", "get"]);
        run.args(more).args(at(&redis)).end()
    };
    let refused = quick(&[]);
    refused.code(2);
    assert!(refused.all().contains("--key-prefix"), "{}", refused.all());
    quick(&["--key-prefix", "mine:"]).code(0);
    assert_eq!(keys(&redis), "st:0000000001");
    assert!(redis.ask("GET st:0000000001").unwrap().contains("dear"));
}

#[test]
fn a_server_that_does_not_show_its_counters_leaves_rows_unverified() {
    let user = [
        "--user", "app", "on", ">s3cret", "~*", "+@all", "-info", "-config",
    ];
    let Some(redis) = Redis::with(None, &user) else {
        return;
    };
    let run = Run::bench(["raw/persistent/tcp", "redis-rs/persistent/unix"])
        .args(QUICK)
        .args(["-n", "100", "--user", "app", "-a", "s3cret"])
        .args(at(&redis));
    let (ended, record) = run.record();
    ended.code(5);
    for row in &record.strategies {
        assert_eq!(row.status, Status::Unverified, "{}", row.name);
        let reason = row.reason.as_deref().unwrap();
        assert!(reason.contains("does not permit INFO"), "{reason}");
        assert!(
            row.timed.known().is_some() && row.counted.known().is_some(),
            "what was measured is kept"
        );
        assert!(row.server_view.reason().unwrap().contains("INFO"));
    }
    assert!(
        !codes(&record).contains(&"CLAIMED_NOT_SERVED"),
        "{:?}",
        record.findings
    );
    assert!(ended.stdout.contains("does not permit INFO"), "{}", ended.all());
}

#[test]
fn a_transport_that_was_not_named_is_a_row_with_its_reason() {
    let Some(redis) = Redis::start(None) else { return };
    let run = Run::bench(["raw/persistent/tcp", "raw/persistent/unix"])
        .args(QUICK)
        .args(["-n", "50", "-p"]);
    let (ended, record) = run.arg(redis.port().to_string()).record();
    ended.code(0);
    row_is(&record, "raw/persistent/tcp", Status::Ok);
    let reason = row_is(&record, "raw/persistent/unix", Status::Skipped)
        .reason
        .clone()
        .unwrap();
    assert!(reason.contains("-s SOCKET"), "{reason}");
}

#[test]
fn the_built_in_server_confirms_as_well() {
    let names = [
        "raw/persistent/tcp",
        "redis-rs/connect/unix",
        "redis-rs-async/persistent/tcp",
    ];
    let run = Run::bench(names)
        .args(QUICK)
        .args(["-n", "300", "-t", "setget,incr", "--builtin-server"]);
    let (ended, record) = run.record();
    ended.code(0);
    let first = ended.stdout.lines().next().unwrap();
    assert!(
        first.contains("built in: it serves this run, it is not Redis"),
        "{first}"
    );
    assert_eq!(served_in_all(&record), 6 * 4 * 300);
}

fn served_in_all(record: &Record) -> u64 {
    let rows = record.strategies.iter();
    rows.map(|row| view(row).served(&["get", "set", "incr"])).sum()
}

/// Rows take turns on one server, and each reads its own values there.
#[test]
fn values_of_another_size_or_form_are_not_mixed_up() {
    let sizes = Run::bench(["raw/persistent/tcp"])
        .args(QUICK)
        .args(["-n", "200", "-t", "get"]);
    let (ended, record) = sizes.args(["-d", "4,1024"]).record();
    ended.code(0);
    assert_eq!(record.strategies.len(), 2);
    assert!(
        record.strategies.iter().all(|row| row.status == Status::Ok),
        "{}",
        ended.all()
    );
    if !have_php() {
        return;
    }
    let forms = Run::bench(["php-memcached/text/tcp", "php-memcache/persistent/tcp"]).args(QUICK);
    let forms = forms.args([
        "-n",
        "200",
        "-t",
        "get",
        "--payload",
        "array",
        "--serializer",
        "php",
    ]);
    let (ended, record) = forms.record();
    if record.strategies.iter().any(|row| row.status == Status::Skipped) {
        println!("SKIP: {}", ended.all());
        return;
    }
    assert!(
        record.strategies.iter().all(|row| row.status == Status::Ok),
        "{}",
        ended.all()
    );
}
