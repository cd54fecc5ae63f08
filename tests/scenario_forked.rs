//! The scenario `forked-connections`, small: exact ledger and counts, the two readings of the counter, the
//! UNIX queue that overflows on demand, and what the article printed beside it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_support;

use bench_support::{Run, codes, evidence, finding, have_php, may_trace, row};
use systally::record::{Record, Status, StrategyResult};

fn rows(record: &Record, clients: u32) -> impl Iterator<Item = &StrategyResult> {
    record
        .strategies
        .iter()
        .filter(move |row| row.axes.clients == clients)
}

#[test]
fn every_increment_is_accounted_for() {
    if !have_php() || !may_trace() {
        return;
    }
    let (ended, record) = Run::bench([
        "--scenario",
        "forked-connections",
        "--scale",
        "0.0001",
        "--published",
        "phpredis/connect,phpredis/pconnect/unix",
        "forked-script/connect/tcp,forked-script/connect/unix,forked-script/pconnect/tcp",
        // One counted pass for the server to see, wherever a witness may run.
        "--witness",
        "none",
    ])
    .record();
    ended.code(0);
    assert_eq!(record.plan.settings["scenario"], "forked-connections");
    // One client and ten, of 10 operations each.
    assert_eq!((rows(&record, 1).count(), rows(&record, 10).count()), (6, 6));
    for row in &record.strategies {
        let name = (&row.name, row.axes.clients);
        assert_eq!(row.status, Status::Ok, "{name:?}: {:?}", row.reason);
        let asked = u64::from(row.axes.clients) * 10;
        let rounds = &row.timed.known().unwrap().rounds;
        assert_eq!(
            rounds.iter().map(|round| round.ops.0).sum::<u64>(),
            asked,
            "{name:?}"
        );
        let counted = row.counted.known().unwrap();
        assert_eq!(counted.ops.unwrap().0, asked, "{name:?}");
        // One timed round and the counted pass, all seen by the server.
        assert_eq!(
            row.server_view.known().unwrap().served(&["incr"]),
            2 * asked,
            "{name:?}"
        );
        if row.name.starts_with("phpredis/connect") {
            assert_eq!(counted.connects_per_op.known().copied(), Some(1.0), "{name:?}");
            let sends = counted.phases.run_loop.syscalls["sendto"].calls;
            assert_eq!(sends, asked, "{name:?}");
        }
        if row.name.starts_with("forked-script/") {
            let read = row.experiment.counters[0];
            assert_eq!((read.expected, read.ended), (asked, asked), "{name:?}");
            assert!(read.early <= read.ended, "{name:?}");
            if row.name.starts_with("forked-script/connect") {
                // The children's connections, and the script's own three: counter before, early, at the end.
                assert_eq!(
                    counted.phases.run_loop.syscalls["socket"].calls,
                    asked + 3,
                    "{name:?}"
                );
            }
        }
    }
    // The article's figures belong to its hundred and its thousand, whatever the scale.
    let thousand = rows(&record, 10)
        .find(|row| row.name == "phpredis/connect/tcp")
        .unwrap();
    assert_eq!(thousand.experiment.published[0].counter, Some(903_505));
    let refused = rows(&record, 10)
        .find(|row| row.name == "phpredis/connect/unix")
        .unwrap();
    assert_eq!(
        refused.experiment.published[0].error.as_deref(),
        Some("Redis server went away")
    );
    for text in [
        "×published",
        "903505",
        "all ended",
        "published as an error: Redis server went away",
    ] {
        assert!(ended.stdout.contains(text), "no {text}: {}", ended.stdout);
    }
    let early = record
        .strategies
        .iter()
        .any(|row| row.experiment.counters.iter().any(|read| read.early < read.ended));
    assert_eq!(codes(&record).contains(&"COUNTED_TOO_EARLY"), early);
}

#[test]
fn a_short_unix_queue_refuses_at_once() {
    if !have_php() {
        return;
    }
    // 60 clients of 40 connections, and room for 2: whether it overflows is a matter of luck for one
    // connection, not for 2 400. The script itself connects before it forks, when there is room.
    let scenario = r#"
about = "a queue of one"
[[bench]]
strategies = ["forked-script/connect/unix"]
tests = ["incr"]
clients = [60]
requests-per-client = 40
runs = 1
warmup = 0
server = { tcp-backlog = 1 }
"#;
    let run = Run::bench(["--engine", "none", "--scenario"]);
    let path = run.path("short.toml");
    std::fs::write(&path, scenario).unwrap();
    let (ended, record) = run.arg(&path).record();
    ended.code(1);
    let found = finding(&record, "UNIX_BACKLOG_EAGAIN");
    assert_eq!(evidence(found, "backlog") as u64, 1);
    assert_eq!(evidence(found, "clients") as u64, 60);
    let row = row(&record, "forked-script/connect/unix");
    let round = &row.timed.known().unwrap().rounds[0];
    let failed: u64 = round.errors.values().sum();
    assert_eq!(round.ops.0 + failed, 2400);
    assert_eq!(round.server.known().unwrap().served(&["incr"]), round.ops.0);
}

#[test]
fn more_children_than_a_socket_holds_words_of_all_report() {
    if !have_php() {
        return;
    }
    // A socket holds what some 280 of them say; those beyond it would wait for their parent, and it for them.
    let scenario = r#"
about = "many children with little to do"
[[bench]]
strategies = ["forked-script/connect/tcp"]
tests = ["incr"]
clients = [400]
requests-per-client = 1
runs = 1
warmup = 0
pause = "1ms"
"#;
    let run = Run::bench(["--engine", "none", "--scenario"]);
    let path = run.path("many.toml");
    std::fs::write(&path, scenario).unwrap();
    let (ended, record) = run.arg(&path).record();
    ended.code(0);
    let row = row(&record, "forked-script/connect/tcp");
    let round = &row.timed.known().unwrap().rounds[0];
    assert_eq!(round.ops.0, 400, "{:?}", round.errors);
    let read = row.experiment.counters[0];
    assert_eq!((read.expected, read.ended), (400, 400));
}

#[test]
fn what_cannot_be_run_is_said_and_costs_nothing() {
    let error = |args: &[&str]| {
        let mut all = vec!["--scenario"];
        all.extend(args);
        let ended = Run::bench(all).end();
        ended.code(2);
        assert!(ended.stdout.is_empty(), "{}", ended.all());
        ended.stderr.clone()
    };
    assert!(error(&["forked-conections"]).contains("did you mean forked-connections?"));
    assert!(error(&["nowhere.toml"]).contains("nowhere.toml"));
    for scale in ["0", "-1", "NaN", "1e9", "x"] {
        let said = error(&["forked-connections", &format!("--scale={scale}")]);
        assert!(said.contains("a scale is a number from 0.000001 to 10"), "{said}");
    }
    assert!(error(&["forked-connections", "-c", "5"]).contains("--scenario"));
    assert!(error(&["forked-connections", "predis/connect"]).contains("has no row predis/connect"));

    let run = Run::bench(["--scenario"]);
    let path = run.path("bad.toml");
    std::fs::write(
        &path,
        "about = \"x\"\n[[bench]]\nstrategies = [\"raw\"]\nrequests = 0\n",
    )
    .unwrap();
    let ended = run.arg(&path).end();
    ended.code(2);
    assert!(
        ended
            .error()
            .contains("bad.toml:4:12: requests must lie between 1"),
        "{}",
        ended.all()
    );
}

#[test]
fn a_file_of_ones_own_runs_what_is_there_and_skips_the_rest() {
    let scenario = r#"
about = "one client that is there and one that is not"
[[bench]]
strategies = ["raw/persistent/tcp", "absent/persistent/tcp"]
tests = ["set", "get"]
requests = 50
runs = 2
"#;
    let clients = r#"
[[client]]
name = "absent"
language = "python"
description = ""
command = ["/nowhere/absent"]
detect = ["/nowhere/absent"]
install = "make absent"
transports = ["tcp"]
[client.modes.persistent]
description = ""
connect = "once"
"#;
    let run = Run::bench(["--engine", "none", "--builtin-server", "--clients-file"]);
    let (path, list) = (run.path("own.toml"), run.path("clients.toml"));
    std::fs::write(&path, scenario).unwrap();
    std::fs::write(&list, clients).unwrap();
    let (ended, record) = run.arg(&list).arg("--scenario").arg(&path).record();
    ended.code(0);
    let status: Vec<Status> = record.strategies.iter().map(|row| row.status).collect();
    assert_eq!(status, [Status::Ok, Status::Ok, Status::Skipped, Status::Skipped]);
    assert!(
        record.strategies[3]
            .reason
            .as_ref()
            .unwrap()
            .contains("make absent")
    );
    for row in &record.strategies[..2] {
        // A warm-up and two rounds.
        assert_eq!(
            row.server_view.known().unwrap().served(&[row.axes.op.as_str()]),
            150
        );
    }
}

#[test]
fn a_built_in_file_can_be_copied_and_run() {
    let shown = Run::of(["list", "scenarios", "--show", "forked-connections"]).end();
    shown.code(0);
    assert!(shown.stdout.contains("[[bench]]"), "{}", shown.stdout);
    let listed = Run::of(["list", "scenarios"]).end();
    listed.code(0);
    assert!(listed.stdout.contains("forked-connections"), "{}", listed.stdout);
    let unknown = Run::of(["list", "scenarios", "--show", "nothing"]).end();
    unknown.code(2);
}
