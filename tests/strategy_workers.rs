//! The Rust workers as processes, against a private Redis server and against servers that misbehave.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod strategy_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use strategy_support::{LIMIT, PlainEngine, Redis, request};
use systally::run::interrupt::Interrupt;
use systally::strategy::contract::{Endpoint, KeyOrder, LatencyMode, Op, Stop, Store, Transport};
use systally::strategy::worker::{Problem, RoundOutcome, WorkerError, Workers};
use systally::strategy::{Presence, Registry, ScriptSource, Strategy, Work};

/// Those of the selected strategies that talk to one Redis server.
fn strategies(selector: &str) -> Vec<Strategy> {
    let source = ScriptSource {
        executable: env!("CARGO_BIN_EXE_systally").into(),
        scripts: None,
        clients: None,
    };
    let registry = Registry::load(&source).unwrap();
    let mut selected = registry.select(&[selector.to_owned()]).unwrap();
    selected.retain(|strategy| strategy.store() == Store::Redis);
    selected
}

/// Every mode of the Rust clients over both transports.
fn all() -> Vec<Strategy> {
    strategies("raw/*,redis-rs/*,redis-rs-async/*")
}

fn work(op: Op) -> Work {
    Work {
        op,
        stop: Stop::Ops(101),
        batch: 7,
        ..Work::default()
    }
}

fn start(strategy: &Strategy, work: &Work, server: Endpoint) -> Workers {
    let assignment = strategy.assign(work, &[server], 0);
    Workers::start(&PlainEngine, vec![assignment], &request()).unwrap()
}

fn endpoint(redis: &Redis, strategy: &Strategy) -> Endpoint {
    match strategy.transport {
        Transport::Tcp => redis.tcp(),
        Transport::Unix => redis.unix(),
        Transport::Local => panic!("{} needs no server", strategy.name()),
    }
}

fn round(workers: &mut Workers) -> RoundOutcome {
    workers.round(LIMIT, &Interrupt::never()).unwrap()
}

/// The class and the words of the `fail` line of a worker that must fail.
fn refusal(strategy: &Strategy, work: &Work, server: Endpoint) -> (String, String) {
    let error = start(strategy, work, server)
        .ready(LIMIT, &Interrupt::never())
        .unwrap_err();
    let text = error.to_string();
    match error {
        WorkerError::Workers { faults, .. } => match &faults[0].problem {
            Problem::Failed { class, message } => (class.clone(), message.clone()),
            _ => panic!("{} {text}", strategy.name()),
        },
        _ => panic!("{} {text}", strategy.name()),
    }
}

#[test]
fn every_operation_arrives_as_often_as_it_is_claimed() {
    let Some(redis) = Redis::start(None) else { return };
    for strategy in all() {
        for op in [Op::Get, Op::Set, Op::Setget, Op::Incr, Op::Ping] {
            let name = format!("{} {}", strategy.name(), op.name());
            let mut workers = start(&strategy, &work(op), endpoint(&redis, &strategy));
            let ready = workers.ready(LIMIT, &Interrupt::never()).unwrap();
            assert!(ready[0].versions.contains_key(strategy.client.name()), "{name}");
            for _ in 0..2 {
                let before: Vec<u64> = op.commands().iter().map(|command| redis.calls(command)).collect();
                let outcome = round(&mut workers);
                let done = &outcome.dones[0];
                assert_eq!((done.ops, done.asked), (101, 101), "{name}: {:?}", done.errors);
                let batches = if strategy.mode.pipeline {
                    101u64.div_ceil(7)
                } else {
                    101
                };
                let latency = done.latency.as_ref().unwrap();
                assert_eq!(
                    latency.hist.iter().map(|(_, n)| n).sum::<u64>(),
                    batches,
                    "{name}"
                );
                let seen: Vec<u64> = op
                    .commands()
                    .iter()
                    .zip(before)
                    .map(|(command, before)| redis.calls(command) - before)
                    .collect();
                let expected: &[u64] = match op {
                    Op::Setget => &[51, 50],
                    // Some clients send INCRBY for it; these do not.
                    Op::Incr => &[101, 0],
                    Op::Get | Op::Set | Op::Ping => &[101],
                    Op::Suite => panic!("no client of one command at a time offers it"),
                };
                assert_eq!(seen, expected, "{name}");
            }
            let outcome = workers.finish(LIMIT).unwrap();
            assert!(outcome.notes.is_empty(), "{name}: {:?}", outcome.notes);
        }
    }
}

#[test]
fn scripts_are_driven_like_rust_clients() {
    let Some(redis) = Redis::start(Some("hunter2")) else {
        return;
    };
    for strategy in strategies("phpredis/*,predis/*") {
        let name = strategy.name().to_string();
        if let Presence::Missing { why, .. } = strategy.client.presence() {
            println!("SKIP: {name}: {why}");
            continue;
        }
        let mut workers = start(&strategy, &work(Op::Setget), endpoint(&redis, &strategy));
        let ready = workers.ready(LIMIT, &Interrupt::never()).unwrap();
        assert!(ready[0].versions.contains_key(strategy.client.name()), "{name}");
        for _ in 0..2 {
            let before = (redis.calls("set"), redis.calls("get"));
            let outcome = round(&mut workers);
            assert_eq!(outcome.dones[0].ops, 101, "{name} {:?}", outcome.dones[0].errors);
            let after = (redis.calls("set"), redis.calls("get"));
            assert_eq!((after.0 - before.0, after.1 - before.1), (51, 50), "{name}");
        }
        workers.finish(LIMIT).unwrap();
    }
}

#[test]
fn keys_and_values_are_those_of_the_contract() {
    let Some(redis) = Redis::start(None) else { return };
    for strategy in strategies("raw/*/tcp,redis-rs/*/tcp,redis-rs-async/*/tcp") {
        redis.ask("FLUSHALL").unwrap();
        let mut work = work(Op::Set);
        work.keys.order = KeyOrder::Random;
        work.keys.count = 50;
        work.payload.bytes = 10;
        work.warmup = 0;
        let expected: std::collections::BTreeSet<u64> = work.keys.sequence(0).into_iter().collect();
        let mut workers = start(&strategy, &work, redis.tcp());
        workers.ready(LIMIT, &Interrupt::never()).unwrap();
        round(&mut workers);
        workers.finish(LIMIT).unwrap();
        let size = redis.ask("DBSIZE").unwrap();
        assert!(
            size.contains(&format!(":{}\r\n", expected.len())),
            "{} {size}",
            strategy.name()
        );
        for index in expected {
            let value = redis.ask(&format!("GET {}", work.keys.key(index))).unwrap();
            assert!(
                value.contains("xxxxxxxxxx"),
                "{} {index} {value}",
                strategy.name()
            );
        }
    }
}

#[test]
fn large_values_come_and_go_whole() {
    let Some(redis) = Redis::start(None) else { return };
    for strategy in all() {
        let mut work = work(Op::Setget);
        work.stop = Stop::Ops(21);
        work.keys.count = 3;
        work.payload.bytes = 300_000;
        let mut workers = start(&strategy, &work, endpoint(&redis, &strategy));
        workers.ready(LIMIT, &Interrupt::never()).unwrap();
        let outcome = round(&mut workers);
        assert_eq!(
            outcome.dones[0].ops,
            21,
            "{} {:?}",
            strategy.name(),
            outcome.dones[0].errors
        );
        workers.finish(LIMIT).unwrap();
    }
}

#[test]
fn a_round_of_seconds_ends_in_time() {
    let Some(redis) = Redis::start(None) else { return };
    for strategy in strategies("raw/persistent/tcp,redis-rs-async/persistent/unix") {
        let work = Work {
            stop: Stop::Seconds(0.2),
            latency: LatencyMode::None,
            ..work(Op::Get)
        };
        let mut workers = start(&strategy, &work, endpoint(&redis, &strategy));
        workers.ready(LIMIT, &Interrupt::never()).unwrap();
        let outcome = round(&mut workers);
        let done = &outcome.dones[0];
        assert!(done.ops > 0 && done.latency.is_none() && done.errors.is_empty());
        assert!(done.elapsed_ns.0 >= 200_000_000, "{}", done.elapsed_ns);
        workers.finish(LIMIT).unwrap();
    }
}

#[test]
fn noop_claims_what_it_is_asked_for() {
    let work = Work {
        stop: Stop::Ops(1_000_000),
        ..work(Op::Get)
    };
    let nowhere = Endpoint::Unix {
        path: "/nowhere".into(),
        user: None,
        password: None,
    };
    let mut workers = start(&strategies("noop/loop/unix")[0], &work, nowhere);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    assert_eq!(round(&mut workers).dones[0].ops, 1_000_000);
    workers.finish(LIMIT).unwrap();
}

#[test]
fn passwords_and_users_log_in() {
    let Some(redis) = Redis::start(Some("s3cret\"'")) else {
        return;
    };
    let answer = redis.ask("ACL SETUSER someone on >other ~* +@all").unwrap();
    assert!(answer.contains("+OK\r\n+OK"), "{answer}");
    let with = |server: Endpoint, name: Option<&str>, word: Option<&str>| match server {
        Endpoint::Tcp { host, port, .. } => Endpoint::Tcp {
            host,
            port,
            user: name.map(str::to_owned),
            password: word.map(str::to_owned),
        },
        Endpoint::Unix { path, .. } => Endpoint::Unix {
            path,
            user: name.map(str::to_owned),
            password: word.map(str::to_owned),
        },
    };
    for strategy in all() {
        let server = endpoint(&redis, &strategy);
        for (name, word) in [(None, "s3cret\"'"), (Some("someone"), "other")] {
            let mut workers = start(&strategy, &work(Op::Get), with(server.clone(), name, Some(word)));
            workers.ready(LIMIT, &Interrupt::never()).unwrap();
            assert_eq!(round(&mut workers).dones[0].ops, 101, "{}", strategy.name());
            workers.finish(LIMIT).unwrap();
        }
        let (class, message) = refusal(
            &strategy,
            &work(Op::Get),
            with(server.clone(), None, Some("wr0ng")),
        );
        assert_eq!(class, "connect", "{} {message}", strategy.name());
        assert!(!message.contains("wr0ng"), "{} {message}", strategy.name());
        let (class, message) = refusal(&strategy, &work(Op::Get), with(server, None, None));
        assert_eq!(class, "connect", "{} {message}", strategy.name());
        assert!(message.contains("NOAUTH"), "{} {message}", strategy.name());
    }
}

#[test]
fn a_server_that_is_not_there_is_named_with_the_errno() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let tcp = Endpoint::Tcp {
        host: "127.0.0.1".into(),
        port,
        user: None,
        password: None,
    };
    let unix = Endpoint::Unix {
        path: "/nowhere/redis.sock".into(),
        user: None,
        password: None,
    };
    for strategy in all() {
        let (server, part) = match strategy.transport {
            Transport::Tcp => (tcp.clone(), format!("127.0.0.1:{port}: ECONNREFUSED")),
            Transport::Unix => (unix.clone(), "unix:/nowhere/redis.sock: ENOENT".to_owned()),
            Transport::Local => continue,
        };
        let (class, message) = refusal(&strategy, &work(Op::Get), server);
        assert_eq!(class, "connect");
        assert!(message.starts_with(&part), "{} {message}", strategy.name());
    }
}

#[test]
fn a_full_server_is_a_refusal() {
    let Some(redis) = Redis::with(None, &["--maxclients", "1"]) else {
        return;
    };
    let mut held = hold(&redis);
    for strategy in all() {
        let (class, message) = refusal(&strategy, &work(Op::Get), endpoint(&redis, &strategy));
        assert_eq!(class, "connect", "{} {message}", strategy.name());
        // Which of the refusal and the closed connection a client sees first is a race.
        assert!(
            [
                "max number of clients",
                "closed",
                "EPIPE",
                "ECONNRESET",
                "broken pipe",
                "terminated"
            ]
            .iter()
            .any(|part| message.contains(part)),
            "{} {message}",
            strategy.name()
        );
    }
    held.flush().unwrap();
}

/// Takes the only place of a server.
fn hold(redis: &Redis) -> TcpStream {
    let Endpoint::Tcp { port, .. } = redis.tcp() else {
        panic!()
    };
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut answer = [0; 7];
        if stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"+PONG\r\n"
        {
            return stream;
        }
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn wrong_answers_are_failures_and_no_operations() {
    let Some(redis) = Redis::start(None) else { return };
    for strategy in all() {
        let name = strategy.name().to_string();
        redis.ask("FLUSHALL").unwrap();
        let mut work = work(Op::Get);
        work.keys.count = 101;
        let mut workers = start(&strategy, &work, endpoint(&redis, &strategy));
        workers.ready(LIMIT, &Interrupt::never()).unwrap();
        redis.ask(&format!("SET {} y", work.keys.key(3))).unwrap();
        redis.ask(&format!("DEL {}", work.keys.key(5))).unwrap();
        redis.ask(&format!("DEL {}", work.keys.key(8))).unwrap();
        redis.ask(&format!("LPUSH {} y", work.keys.key(8))).unwrap();
        for _ in 0..2 {
            let outcome = round(&mut workers);
            let done = &outcome.dones[0];
            assert_eq!((done.ops, done.asked), (98, 101), "{name} {:?}", done.errors);
            assert_eq!(done.errors["WrongReply:GET returned another value"], 2, "{name}");
            let refused: Vec<&String> = done
                .errors
                .keys()
                .filter(|kind| kind.starts_with("ServerError:WRONGTYPE"))
                .collect();
            assert_eq!(refused.len(), 1, "{name} {:?}", done.errors);
        }
        workers.finish(LIMIT).unwrap();
    }
}

#[test]
fn failures_end_a_round_when_there_are_too_many() {
    let Some(redis) = Redis::start(None) else { return };
    for strategy in all() {
        redis.ask("FLUSHALL").unwrap();
        let mut work = work(Op::Get);
        work.max_errors = 14;
        let mut workers = start(&strategy, &work, endpoint(&redis, &strategy));
        workers.ready(LIMIT, &Interrupt::never()).unwrap();
        redis.ask("FLUSHALL").unwrap();
        let outcome = round(&mut workers);
        let done = &outcome.dones[0];
        assert_eq!(
            (done.ops, done.asked),
            (0, 14),
            "{} {:?}",
            strategy.name(),
            done.errors
        );
        workers.finish(LIMIT).unwrap();
    }
}

#[test]
fn a_server_that_dies_ends_the_round() {
    for strategy in all() {
        let name = strategy.name().to_string();
        let Some(redis) = Redis::start(None) else { return };
        let server = endpoint(&redis, &strategy);
        let work = Work {
            stop: Stop::Seconds(30.0),
            ..work(Op::Get)
        };
        let mut workers = start(&strategy, &work, server);
        workers.ready(LIMIT, &Interrupt::never()).unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(redis);
        });
        let outcome = round(&mut workers);
        killer.join().unwrap();
        let done = &outcome.dones[0];
        assert!(
            !done.errors.is_empty() && done.elapsed_ns.0 < 20_000_000_000,
            "{name} {done:?}"
        );
        // Another round finds it dead as well, at once.
        let outcome = round(&mut workers);
        assert_eq!(outcome.dones[0].ops, 0, "{name}");
        assert!(!outcome.dones[0].errors.is_empty(), "{name}");
        workers.finish(LIMIT).unwrap();
    }
}

/// A server that serves one connection after another with `serve`.
fn serving(serve: impl Fn(TcpStream) + Send + 'static) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_nodelay(true).unwrap();
            serve(stream);
        }
    });
    Endpoint::Tcp {
        host: "127.0.0.1".into(),
        port,
        user: None,
        password: None,
    }
}

/// Answers PINGs: the first with `+PONG`, the others with `answer`, byte by byte.
fn dribbling(answer: &'static [u8]) -> Endpoint {
    serving(move |mut stream| {
        let mut block = [0; 4096];
        let mut pings = 0;
        loop {
            let n = match stream.read(&mut block) {
                Ok(0) | Err(_) => return,
                Ok(n) => n,
            };
            for _ in block[..n].windows(4).filter(|word| word == b"PING") {
                let reply: &[u8] = if pings == 0 { b"+PONG\r\n" } else { answer };
                pings += 1;
                for byte in reply {
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                }
            }
        }
    })
}

fn ping_once(server: Endpoint) -> (u64, u64, std::collections::BTreeMap<String, u64>) {
    let work = Work {
        stop: Stop::Ops(7),
        warmup: 0,
        ..work(Op::Ping)
    };
    let mut workers = start(&strategies("raw/pipeline/tcp")[0], &work, server);
    workers.ready(LIMIT, &Interrupt::never()).unwrap();
    let done = round(&mut workers).dones.remove(0);
    workers.finish(LIMIT).unwrap();
    (done.ops, done.asked, done.errors)
}

#[test]
fn replies_in_pieces_are_put_together() {
    let (ops, asked, errors) = ping_once(dribbling(b"+PONG\r\n"));
    assert_eq!((ops, asked), (7, 7), "{errors:?}");
    let (ops, asked, errors) = ping_once(dribbling(b"-ERR busy\r\n"));
    assert_eq!((ops, asked, errors["ServerError:ERR busy"]), (0, 7, 7));
    let (ops, asked, errors) = ping_once(dribbling(b"$4\r\nPONG\r\n"));
    assert_eq!(
        (ops, asked, errors["WrongReply:PING returned another reply"]),
        (0, 7, 7)
    );
}

#[test]
fn what_is_no_reply_ends_the_round() {
    let (ops, asked, errors) = ping_once(dribbling(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    assert_eq!((ops, asked), (0, 7));
    assert_eq!(errors["receive:the reply is not one of a Redis server"], 7);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let silent = || {
        serving(|stream| {
            std::thread::sleep(LIMIT);
            drop(stream);
        })
    };
    let waits: Vec<_> =
        strategies("raw/persistent/tcp,redis-rs/persistent/tcp,redis-rs-async/persistent/tcp")
            .into_iter()
            .map(|strategy| {
                let server = silent();
                std::thread::spawn(move || refusal(&strategy, &work(Op::Ping), server))
            })
            .collect();
    for wait in waits {
        let (class, message) = wait.join().unwrap();
        assert_eq!(class, "connect", "{message}");
    }
}

/// What a worker without a driver says to a specification, and its exit status.
fn by_hand(name: &str, spec: &str, stdin: &str) -> (String, i32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["worker", name])
        .env("SYSTALLY_SPEC", spec)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A worker that has already refused does not read.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        output.status.code().unwrap(),
    )
}

#[test]
fn a_wrong_specification_is_refused_without_repeating_it() {
    let good = strategies("noop/loop/tcp")[0].assign(
        &work(Op::Get),
        &[Endpoint::Tcp {
            host: "h".into(),
            port: 1,
            user: None,
            password: Some("hunter2".into()),
        }],
        0,
    );
    let good = good.first_line().unwrap();
    for (name, text) in [
        ("raw", ""),
        ("raw", "hunter2"),
        ("raw", "{\"hunter2\":1}"),
        ("noop", &good.replace("\"op\":\"get\"", "\"op\":\"hunter2\"")),
        ("noop", &good.replace("\"protocol\":1", "\"protocol\":2")),
        ("noop", &good.replace("\"forks\":0", "\"forks\":2")),
        ("noop", &good.replace("\"batch\":1", "\"batch\":0")),
        ("noop", &good.replace("{\"ops\":101}", "{\"seconds\":-1.0}")),
        ("raw", &good.replace("\"options\":{}", "\"options\":{\"x\":1}")),
        (
            "raw",
            &good.replace("\"connect\":\"once\"", "\"connect\":\"persistent\""),
        ),
        ("raw", &good.replace("\"kind\":\"string\"", "\"kind\":\"array\"")),
        ("raw", &good.replace("\"count\":1000", "\"count\":0")),
        ("raw", &good.replace("\"bytes\":4", "\"bytes\":99999999999")),
        ("nobody", &good),
    ] {
        // By both ways in.
        for (env, stdin) in [(text, ""), ("", text)] {
            let (said, status) = by_hand(name, env.trim_end(), stdin);
            assert!(
                said.starts_with("{\"event\":\"fail\",\"class\":\"spec\","),
                "{text}: {said}"
            );
            assert_eq!((status, said.lines().count()), (3, 1), "{text}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}

#[test]
fn a_worker_ends_with_its_input() {
    let spec = strategies("noop/loop/tcp")[0].assign(&work(Op::Get), &[], 0).spec;
    let spec = serde_json::to_string(&spec).unwrap();
    let (said, status) = by_hand("noop", &spec, "go\n\ngo\n");
    assert_eq!((said.lines().count(), status), (3, 0), "{said}");
    assert!(
        said.lines().nth(1).unwrap().starts_with("{\"event\":\"done\""),
        "{said}"
    );
    let (said, status) = by_hand("noop", &spec, "go\nexit\ngo\n");
    assert_eq!((said.lines().count(), status), (2, 0), "{said}");
    let (said, status) = by_hand("noop", &spec, "run\n");
    assert!(
        said.lines().last().unwrap().contains("expected go or exit"),
        "{said}"
    );
    assert_eq!(status, 3);
}
