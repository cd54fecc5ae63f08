//! For every code a record in which it is found and a look-alike in which it is not, kept as JSON in
//! `fixtures/records/findings/` so that they are read back as any record is. `SYSTALLY_BLESS=1` rewrites
//! the files.

use std::path::PathBuf;

use super::evidence::Fact;
use super::testing::{
    empty, failed, round, row, set_call, set_counted, set_errno, set_latency, set_peers, set_rounds,
    set_startup, set_talk, with_fact,
};
use super::{RULES, explain, unexplained};
use crate::record::{
    CounterReading, FailureKind, LimitReading, Record, Stage, StrategyResult, Verdict, wire,
};
use crate::tally::{LongWait, Talk};
use crate::units::{Measured, Nanos};

/// A code, a record in which it is found, and one in which it is not.
pub(super) type Case = (&'static str, Record, Record);

pub(super) fn one(result: StrategyResult) -> Record {
    let mut record = empty();
    record.strategies.push(result);
    record
}

/// A row changed by a function, alone in its record.
pub(super) fn changed(name: &str, change: impl FnOnce(&mut StrategyResult)) -> Record {
    let mut result = row(name);
    change(&mut result);
    one(result)
}

/// The record with another kind of failure.
pub(super) fn as_kind(mut record: Record, kind: FailureKind) -> Record {
    if let Some(failure) = record.strategies[0].failure.as_mut() {
        failure.kind = kind;
    }
    record
}

pub(super) fn facts(record: Record, facts: &[(Fact, &str)]) -> Record {
    facts
        .iter()
        .fold(record, |record, (fact, value)| with_fact(record, *fact, value))
}

const TCP: &str = "predis/connect/tcp";
const UNIX: &str = "phpredis/connect/unix";

fn connection_cases() -> Vec<Case> {
    let refused = || {
        failed(
            TCP,
            "ConnectionException",
            "Connection refused [tcp://127.0.0.1:6379]",
        )
    };
    let stale = || failed(UNIX, "RedisException", "Connection refused");
    let no_address = || failed(TCP, "ConnectionException", "Cannot assign requested address");
    let ports = |time_wait, open| {
        let readings = [
            (Fact::PortsUsable, "28232"),
            (Fact::TcpTimeWait, time_wait),
            (Fact::TcpEstablished, open),
            (Fact::TwReuse, "2"),
            (Fact::Loopback, "no"),
        ];
        facts(no_address(), &readings)
    };
    let late = {
        let mut record = failed(
            "redis-rs/persistent/unix",
            "io",
            "Resource temporarily unavailable (os error 11)",
        );
        if let Some(failure) = record.strategies[0].failure.as_mut() {
            failure.stage = Stage::Round;
        }
        record
    };
    let died = |alive| {
        let record = failed("redis-rs/persistent/tcp", "io", "unexpected end of file");
        with_fact(record, Fact::ServerAlive, alive)
    };
    vec![
        ("SERVER_DIED", died("no"), died("yes")),
        (
            "SERVER_DOWN",
            with_fact(refused(), Fact::TcpListener, "no"),
            with_fact(refused(), Fact::TcpListener, "yes"),
        ),
        (
            "CONNECTION_REFUSED",
            with_fact(refused(), Fact::TcpListener, "yes"),
            failed(TCP, "ConnectionException", "Connection timed out"),
        ),
        (
            "SOCKET_MISSING",
            with_fact(
                failed(UNIX, "RedisException", "No such file or directory"),
                Fact::SocketExists,
                "no",
            ),
            stale(),
        ),
        (
            "SOCKET_STALE",
            facts(
                stale(),
                &[(Fact::SocketListener, "no"), (Fact::SocketKind, "socket")],
            ),
            refused(),
        ),
        (
            "SOCKET_PERM",
            facts(
                failed(UNIX, "RedisException", "Permission denied"),
                &[
                    (Fact::SocketMode, "0755"),
                    (Fact::SocketOwner, "104"),
                    (Fact::Uid, "1000"),
                ],
            ),
            stale(),
        ),
        (
            "UNIX_BACKLOG_EAGAIN",
            changed(UNIX, |result| set_errno(result, "connect", 37_214, "EAGAIN")),
            late,
        ),
        ("EPHEMERAL_EXHAUSTED_TW", ports("28189", "12"), ports("7", "3")),
        (
            "EPHEMERAL_EXHAUSTED_OPEN",
            ports("0", "28232"),
            ports("28189", "12"),
        ),
        ("EADDRNOTAVAIL_NO_SOURCE", ports("7", "3"), ports("28189", "12")),
        (
            "CLIENT_NOFILE",
            facts(
                failed(
                    "phpredis/persistent/unix",
                    "RedisException",
                    "Redis server went away",
                ),
                &[
                    (Fact::NofileSoft, "64"),
                    (Fact::NofileHard, "524288"),
                    (Fact::FdsOpen, "64"),
                ],
            ),
            facts(
                failed(
                    "phpredis/persistent/unix",
                    "RedisException",
                    "Redis server went away",
                ),
                &[(Fact::NofileSoft, "1024"), (Fact::FdsOpen, "9")],
            ),
        ),
        (
            "SYSTEM_FILE_MAX",
            facts(
                failed(TCP, "io", "Too many open files in system (os error 23)"),
                &[
                    (Fact::FileNr, "9984"),
                    (Fact::FileMax, "10000"),
                    (Fact::FdsOpen, "311"),
                    (Fact::NofileSoft, "65536"),
                ],
            ),
            failed(TCP, "io", "Too many open files (os error 24)"),
        ),
        (
            "AUTH",
            failed(TCP, "ServerException", "NOAUTH Authentication required."),
            failed(UNIX, "RedisException", "Permission denied"),
        ),
        ("TCP_ACCEPTQ_SYNDROP", overflowed(7, 23_669), overflowed(7, 7)),
    ]
}

fn overflowed(before: u64, after: u64) -> Record {
    let mut record = one(row("phpredis/connect/tcp"));
    for name in [
        "TcpExt.ListenOverflows",
        "TcpExt.ListenDrops",
        "TcpExt.TCPSynRetrans",
    ] {
        record.counters.before.insert(name.to_owned(), before);
        record.counters.after.insert(name.to_owned(), after);
    }
    record
}

fn server_cases() -> Vec<Case> {
    let maxclients = |maxclients: &str, nofile| {
        let mut record = failed(TCP, "ServerException", "ERR max number of clients reached");
        if let Some(server) = record.server.as_mut() {
            server
                .settings
                .insert("maxclients".to_owned(), maxclients.to_owned());
        }
        with_fact(record, Fact::ServerNofile, nofile)
    };
    let mut earlier = one(row("phpredis/connect/tcp"));
    for counters in [&mut earlier.counters.before, &mut earlier.counters.after] {
        counters.insert("redis.rejected_connections".to_owned(), 3);
    }
    let claims = |ops, asked, served, rate| {
        changed("phpredis/pipeline/tcp", |result| {
            set_rounds(result, vec![round(ops, asked, served)], rate)
        })
    };
    vec![
        ("REDIS_MAXCLIENTS", maxclients("12", "4096"), earlier),
        (
            "REDIS_MAXCLIENTS_BY_ULIMIT",
            maxclients("992", "1024"),
            maxclients("12", "4096"),
        ),
        (
            "CLAIMED_NOT_SERVED",
            claims(10_000, 10_000, 0, 1_621_555.0),
            claims(100, 100, 100, 100.0),
        ),
        (
            "TIMED_BEFORE_FLUSH",
            {
                let mut record = claims(10_000, 10_000, 0, 765_286.0);
                record.strategies[0].experiment.served_late = 10_000;
                record
            },
            claims(10_000, 10_000, 0, 765_286.0),
        ),
        (
            "SERVED_MORE_THAN_CLAIMED",
            claims(243, 2000, 762, 243.0),
            claims(100, 100, 100, 100.0),
        ),
    ]
}

fn worker_cases() -> Vec<Case> {
    let failed = |kind| as_kind(failed("mine/persistent/tcp", "", "Warning: something"), kind);
    let said = || failed(FailureKind::Said);
    vec![
        ("WORKER_DIED", failed(FailureKind::Died), said()),
        ("WORKER_HUNG", failed(FailureKind::Hung), said()),
        ("WORKER_GARBAGE", failed(FailureKind::Garbage), said()),
        ("WORKER_MISCOUNTED", failed(FailureKind::Miscounted), said()),
        ("WORKER_NOT_STARTED", failed(FailureKind::NotStarted), said()),
        (
            "NO_PTRACE",
            facts(
                failed(FailureKind::NoPtrace),
                &[(Fact::PtraceScope, "3"), (Fact::CapPtrace, "no")],
            ),
            said(),
        ),
        ("UNEXPLAINED", said(), one(row("mine/persistent/tcp"))),
    ]
}

fn cost_cases() -> Vec<Case> {
    let pipeline = |sends: f64| {
        changed("predis/pipeline/tcp", |result| {
            result.axes.pipeline = 100;
            set_counted(result, |counted| {
                counted.sends_per_batch = Measured::Known(sends);
                counted.round_trips_per_op = Measured::Known(0.01);
            });
        })
    };
    let connects = |name: &str| {
        changed(name, |result| {
            set_counted(result, |counted| counted.connects_per_op = Measured::Known(1.0))
        })
    };
    let receives = |calls, eagain, waits| {
        changed("phpredis/persistent/tcp", |result| {
            set_call(result, "recvfrom", calls, &[("EAGAIN", eagain)]);
            set_call(result, "poll", waits, &[]);
        })
    };
    let options = |connects| {
        changed("phpredis/connect/tcp", |result| {
            set_call(result, "setsockopt", 2000, &[]);
            set_counted(result, |counted| {
                counted.connects_per_op = Measured::Known(connects)
            });
        })
    };
    let opcache = |on: &str| {
        changed("tmpfile/include/local", |result| {
            set_call(result, "openat", 1_000, &[]);
            result
                .client
                .environment
                .insert("opcache_cli".to_owned(), on.to_owned());
        })
    };
    let xdebug = |version: &str| {
        changed("phpredis/persistent/tcp", |result| {
            result
                .client
                .environment
                .insert("xdebug".to_owned(), version.to_owned());
        })
    };
    vec![
        ("PIPELINE_NOT_BATCHED", pipeline(100.0), pipeline(1.0)),
        (
            "CONNECTION_PER_OPERATION",
            connects("phpredis/pconnect/tcp"),
            connects("phpredis/connect/tcp"),
        ),
        (
            "LIVENESS_PROBES",
            receives(3000, 2000, 1000),
            receives(1660, 660, 660),
        ),
        ("OPTIONS_PER_OPERATION", options(0.0), options(1.0)),
        ("XDEBUG_LOADED", xdebug("3.2.0"), xdebug("")),
        ("OPCACHE_OFF", opcache("false"), opcache("true")),
        (
            "TRACER_CHANGED",
            receives(1660, 660, 660),
            receives(1000, 0, 1000),
        ),
    ]
}

/// How turns and waits look; these rules share their codes with those for foreign traces.
fn shape_cases() -> Vec<Case> {
    let talk = |change: fn(&mut Talk)| {
        changed("predis/persistent/tcp", |result| {
            set_talk(result, |talk| {
                talk.waits = [(15, 1000)].into();
                change(talk);
            })
        })
    };
    let calls = |name: &'static str, calls| {
        changed("predis/persistent/tcp", |result| {
            set_call(result, name, calls, &[])
        })
    };
    // Operations per second at the upper end, where the median is 100.
    let rounds = |high: f64| {
        changed("predis/persistent/tcp", |result| {
            set_rounds(result, vec![round(100, 100, 100); 5], 100.0);
            if let Measured::Known(timed) = &mut result.timed {
                timed.ops_per_s.high = high;
            }
        })
    };
    let connects = |queries, opens| {
        changed("phpredis/connect/tcp", |result| {
            set_call(result, "connect", 1000, &[]);
            set_peers(result, "connect", &[("10.0.0.9:6379", 1000)]);
            set_peers(
                result,
                "sendto",
                &[("10.0.0.9:6379", 1000), ("10.0.0.2:53", queries)],
            );
            set_call(result, "openat", opens, &[]);
        })
    };
    let latency = |ms: u64| {
        changed("predis/persistent/tcp", |result| {
            set_latency(result, Nanos(ms * 1_000_000))
        })
    };
    let wait = |call: &str, ms: u64| {
        changed("predis/persistent/tcp", |result| {
            set_talk(result, |talk| {
                talk.long_waits = vec![LongWait {
                    call: call.to_owned(),
                    took: Nanos(ms * 1_000_000),
                    count: 1,
                    timed_out: 1,
                }];
            })
        })
    };
    let error = |call: &'static str, errno: &'static str| {
        changed("phpredis/connect/tcp", |result| {
            set_errno(result, call, 10, errno)
        })
    };
    let startup = |n| {
        changed("phpredis/persistent/tcp", |result| {
            set_startup(result, "newfstatat", n)
        })
    };
    let split = |ms: u64| {
        changed("redis-py/persistent/tcp", |result| {
            let mut one = round(1000, 1000, 1000);
            one.elapsed = Nanos(ms * 1_000_000);
            one.cpu = Some((Nanos(ms * 700_000), Nanos(ms * 100_000)));
            set_rounds(result, vec![one], 1000.0);
        })
    };
    vec![
        (
            "NAGLE_DELAYED_ACK",
            talk(|talk| {
                talk.ack_waits_after_several = 900;
                talk.turns_without_nodelay = 1000;
            }),
            talk(|talk| {
                talk.ack_waits_otherwise = 900;
                talk.turns_with_nodelay = 1000;
            }),
        ),
        (
            "NAGLE_NOT_THE_CAUSE",
            talk(|talk| talk.turns_without_nodelay = 1000),
            talk(|talk| talk.turns_with_nodelay = 1000),
        ),
        ("NAGLE_UNDECIDED", latency(41), latency(60)),
        (
            "SENT_IN_PIECES",
            talk(|talk| talk.turns_with_several_sends = 1000),
            talk(|talk| talk.turns_with_several_sends = 10),
        ),
        (
            "REPLY_IN_PIECES",
            talk(|talk| {
                talk.full_receives = 12_000;
                talk.full_buffer = 8192;
            }),
            talk(|talk| talk.full_receives = 1),
        ),
        (
            "EVENT_LOOP_SPIN",
            talk(|talk| talk.longest_poll_streak = 400),
            talk(|talk| talk.longest_poll_streak = 2),
        ),
        (
            "POLL_STORM",
            calls("epoll_wait", 20_000),
            calls("epoll_wait", 2_000),
        ),
        (
            "SLEEP_LOOP",
            calls("clock_nanosleep", 1000),
            calls("clock_nanosleep", 10),
        ),
        ("THREAD_HANDOVER", calls("futex", 2000), calls("futex", 40)),
        (
            "CLOCK_SYSCALLS",
            calls("clock_gettime", 3000),
            calls("clock_gettime", 3),
        ),
        (
            "IO_URING",
            calls("io_uring_enter", 1000),
            calls("epoll_wait", 1000),
        ),
        (
            "WAIT_EQUALS_TIMEOUT",
            wait("poll", 60_002),
            wait("clock_nanosleep", 60_002),
        ),
        ("NAME_LOOKUPS", connects(2000, 0), connects(1, 0)),
        ("FILES_PER_CONNECTION", connects(0, 2000), connects(0, 2)),
        (
            "EXPECTED_ERRORS",
            error("connect", "EINPROGRESS"),
            error("sendto", "EPIPE"),
        ),
        (
            "UNEXPECTED_ERRORS",
            error("sendto", "EPIPE"),
            error("connect", "EINPROGRESS"),
        ),
        ("NOISY_ROUNDS", rounds(140.0), rounds(110.0)),
        ("STARTUP_SHARE", startup(2000), startup(20)),
        ("TIME_SPLIT", split(1000), split(10)),
    ]
}

/// What only the runs of scenarios can show.
fn scenario_cases() -> Vec<Case> {
    let counter = |early| {
        changed("forked-script/connect/tcp", |result| {
            result.experiment.counters = vec![CounterReading {
                expected: 100_000,
                early,
                ended: 100_000,
                running: 9,
                early_ns: 4_000_000_000,
            }];
        })
    };
    // Throughput with two and with three servers.
    let servers = |rates: [f64; 2]| {
        let mut record = empty();
        for (number, rate) in (2..).zip(rates) {
            let mut result = row("predis/shards/tcp");
            result.axes.servers = number;
            set_rounds(&mut result, vec![round(1000, 1000, 1000)], rate);
            record.strategies.push(result);
        }
        record
    };
    vec![
        ("COUNTED_TOO_EARLY", counter(90_000), counter(100_000)),
        (
            "DIMINISHING_RETURNS",
            servers([70_000.0, 66_000.0]),
            servers([50_000.0, 70_000.0]),
        ),
    ]
}

/// The usual suspects, read and fine: what findings may then clear.
fn suspects() -> Vec<LimitReading> {
    use crate::limits::{Load, check_all};
    use crate::proc::testing::Tree;
    let endpoint = crate::strategy::contract::Endpoint::Tcp {
        host: "127.0.0.1".to_owned(),
        port: 6379,
        user: None,
        password: None,
    };
    check_all(&Tree::defaults().root(), &Load::to(&endpoint))
        .into_iter()
        .filter(|reading| reading.verdict == Verdict::Ok)
        .collect()
}

/// Fails unless the file holds the record; with `SYSTALLY_BLESS` makes it so. Gives what was read back.
fn kept(name: &str, record: &Record) -> Record {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/records/findings/{name}.json"));
    let json = wire::to_json(record).unwrap();
    if std::env::var_os("SYSTALLY_BLESS").is_some_and(|value| !value.is_empty()) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &json).unwrap();
    }
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}; SYSTALLY_BLESS=1 writes it"));
    assert_eq!(
        text, json,
        "{name} differs from its file; SYSTALLY_BLESS=1 rewrites it, then look at it"
    );
    wire::from_json(&text).unwrap()
}

#[test]
fn every_code_is_found_where_it_should_and_not_in_its_look_alike() {
    let mut cases = connection_cases();
    cases.extend(server_cases());
    cases.extend(worker_cases());
    cases.extend(cost_cases());
    cases.extend(super::fixtures_limits::cases());
    cases.extend(shape_cases());
    cases.extend(scenario_cases());
    // The rules for foreign traces have their fixtures in `fixtures/imports`.
    let live = RULES.iter().flat_map(|rule| rule.docs()).chain(unexplained::DOCS);
    for doc in live {
        let found = cases.iter().filter(|(code, ..)| *code == doc.code).count();
        assert_eq!(found, 1, "cases of {}", doc.code);
    }
    for (code, mut fires, silent) in cases {
        fires.limits = suspects();
        let has = |record: &Record| explain(record).iter().any(|finding| finding.code == code);
        let name = code.to_lowercase();
        assert!(
            has(&kept(&format!("{name}.fires"), &fires)),
            "{code} is not found"
        );
        assert!(
            !has(&kept(&format!("{name}.silent"), &silent)),
            "{code} is found in its look-alike"
        );
    }
}
