//! The system calls of the script clients in their window, counted by strace over private servers.
//!
//! The rows are what was measured on Debian 12 with the packages that `tracing-scripts/setup` installs.
//! A client that is not installed, or is there at a version that makes other calls, prints a SKIP line.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod strategy_support;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use strategy_support::{LIMIT, PlainEngine, Redis, calls_in_window, request};
use systally::run::interrupt::Interrupt;
use systally::strategy::contract::{Endpoint, Op, PayloadKind, Serializer, Stop, Store, Transport};
use systally::strategy::worker::Workers;
use systally::strategy::{Presence, Registry, ScriptSource, Strategy, Work};

const OPS: u64 = 1_000;

/// Calls per operation between the markers: the least and the most.
type Calls = &'static [(&'static str, f64, f64)];

/// A strategy, the beginning of the client's version, the operation, and its calls.
type Row = (&'static str, &'static str, Op, Calls);

/// What an interpreter does for its own memory and threads: it follows the time and the allocator, not
/// the operations.
const RUNTIME: &[&str] = &[
    "mmap", "munmap", "mremap", "brk", "madvise", "mprotect", "futex", "prctl",
];

const PHPREDIS: Calls = &[("recvfrom", 3.0, 3.0), ("sendto", 1.0, 1.0), ("poll", 1.0, 1.0)];
const PREDIS: Calls = &[("sendto", 1.0, 1.0), ("poll", 1.0, 1.0), ("recvfrom", 1.0, 1.0)];
const HIREDIS_IN_PREDIS: Calls = &[("sendto", 1.0, 1.0), ("recvfrom", 1.0, 1.0)];
const MEMCACHED: Calls = &[("sendto", 1.0, 1.0), ("recvfrom", 1.0, 2.0), ("poll", 0.0, 1.0)];
const MEMCACHE: Calls = &[
    ("pselect6", 2.0, 2.0),
    ("sendto", 1.0, 1.0),
    ("recvfrom", 1.0, 1.0),
];
const NODE: Calls = &[
    ("epoll_pwait", 0.9, 2.1),
    ("write", 1.0, 1.0),
    ("read", 1.0, 1.02),
];
const INCLUDE: Calls = &[
    ("newfstatat", 1.96, 2.0),
    ("openat", 1.0, 1.0),
    ("read", 1.0, 1.0),
    ("close", 1.0, 1.0),
];
const REDIS_PY: Calls = &[
    ("getpid", 2.0, 2.0),
    ("ioctl", 2.0, 2.0),
    ("recvfrom", 2.0, 2.0),
    ("sendto", 1.0, 1.0),
];

const ROWS: &[Row] = &[
    ("phpredis/persistent/*", "", Op::Get, PHPREDIS),
    ("phpredis/persistent/*", "", Op::Set, PHPREDIS),
    ("phpredis/persistent/*", "", Op::Incr, PHPREDIS),
    ("phpredis/pconnect-once/*", "", Op::Get, PHPREDIS),
    (
        "phpredis/pipeline/*",
        "",
        Op::Get,
        &[
            ("recvfrom", 0.028, 0.09),
            ("sendto", 0.01, 0.01),
            ("poll", 0.009, 0.05),
        ],
    ),
    (
        "phpredis/multi/tcp",
        "",
        Op::Get,
        &[
            ("recvfrom", 3.06, 3.06),
            ("sendto", 1.02, 1.02),
            ("poll", 1.02, 1.02),
        ],
    ),
    (
        "phpredis/connect/tcp,phpredis/pconnect-close/tcp",
        "",
        Op::Incr,
        &[
            ("fcntl", 3.0, 3.0),
            ("recvfrom", 3.0, 3.0),
            ("poll", 2.0, 2.0),
            ("setsockopt", 2.0, 2.0),
            ("socket", 1.0, 1.0),
            ("connect", 1.0, 1.0),
            ("getsockopt", 1.0, 1.0),
            ("sendto", 1.0, 1.0),
            ("close", 1.0, 1.0),
        ],
    ),
    (
        "phpredis/pconnect-pool/*",
        "5.3",
        Op::Incr,
        &[("recvfrom", 7.0, 7.0), ("sendto", 2.0, 2.0), ("poll", 2.0, 2.0)],
    ),
    (
        "phpredis/pconnect-no-echo/*",
        "5.3",
        Op::Incr,
        &[("recvfrom", 4.0, 4.0), ("sendto", 1.0, 1.0), ("poll", 1.0, 1.0)],
    ),
    (
        "phpredis/pconnect-no-pool/tcp",
        "5.3",
        Op::Incr,
        &[
            ("recvfrom", 4.0, 4.0),
            ("setsockopt", 2.0, 2.0),
            ("sendto", 1.0, 1.0),
            ("poll", 1.0, 1.0),
        ],
    ),
    ("predis/persistent/*", "1.", Op::Get, PREDIS),
    ("predis/persistent/*", "1.", Op::Set, PREDIS),
    ("predis/persistent/*", "1.", Op::Incr, PREDIS),
    (
        "predis/pipeline/*",
        "1.",
        Op::Get,
        &[
            ("sendto", 1.0, 1.0),
            ("poll", 0.01, 0.05),
            ("recvfrom", 0.01, 0.05),
        ],
    ),
    (
        "predis/atomic/tcp",
        "1.",
        Op::Set,
        &[
            ("sendto", 1.02, 1.02),
            ("poll", 0.01, 0.09),
            ("recvfrom", 0.01, 0.09),
        ],
    ),
    (
        "predis/connect/unix",
        "1.",
        Op::Incr,
        &[
            ("fcntl", 3.0, 3.0),
            ("socket", 1.0, 1.0),
            ("connect", 1.0, 1.0),
            ("sendto", 1.0, 1.0),
            ("poll", 1.0, 1.0),
            ("recvfrom", 1.0, 1.0),
            ("close", 1.0, 1.0),
        ],
    ),
    (
        "predis/pconnect/tcp",
        "1.",
        Op::Incr,
        &[("recvfrom", 2.0, 2.0), ("sendto", 1.0, 1.0), ("poll", 1.0, 1.0)],
    ),
    ("predis-ffi/persistent/*", "", Op::Get, HIREDIS_IN_PREDIS),
    (
        "predis-ffi/pipeline/*",
        "1.",
        Op::Get,
        &[("sendto", 1.0, 1.0), ("recvfrom", 0.01, 0.05)],
    ),
    ("predis-phpiredis/stream/*", "", Op::Get, HIREDIS_IN_PREDIS),
    (
        "predis-phpiredis/socket/*",
        "",
        Op::Get,
        &[("write", 1.0, 1.0), ("recvfrom", 1.0, 1.0)],
    ),
    ("php-memcached/text/*", "", Op::Get, MEMCACHED),
    ("php-memcached/text/*", "", Op::Set, MEMCACHED),
    ("php-memcached/text/*", "", Op::Incr, MEMCACHED),
    ("php-memcached/pconnect/tcp", "", Op::Get, MEMCACHED),
    (
        "php-memcached/binary/tcp",
        "",
        Op::Get,
        &[("sendto", 2.0, 2.0), ("recvfrom", 1.0, 2.2), ("poll", 0.0, 1.0)],
    ),
    (
        "php-memcached/buffered/tcp",
        "",
        Op::Set,
        &[
            ("sendto", 0.002, 0.01),
            ("recvfrom", 0.0, 0.1),
            ("poll", 0.0, 0.1),
        ],
    ),
    (
        "php-memcached/multi/*",
        "",
        Op::Get,
        &[
            ("sendto", 0.01, 0.01),
            ("recvfrom", 0.01, 0.11),
            ("poll", 0.0, 0.1),
        ],
    ),
    ("php-memcached/multi/*", "", Op::Set, MEMCACHED),
    ("php-memcache/persistent/*", "", Op::Get, MEMCACHE),
    ("php-memcache/persistent/*", "", Op::Set, MEMCACHE),
    ("php-memcache/persistent/*", "", Op::Incr, MEMCACHE),
    (
        "php-memcache/pconnect/tcp",
        "",
        Op::Get,
        &[
            ("recvfrom", 2.0, 2.0),
            ("pselect6", 2.0, 2.0),
            ("sendto", 1.0, 1.0),
        ],
    ),
    (
        "php-memcache/multi/tcp",
        "",
        Op::Get,
        &[
            ("pselect6", 0.01, 0.09),
            ("sendto", 0.02, 0.02),
            ("recvfrom", 0.01, 0.05),
        ],
    ),
    (
        "php-memcache/connect/unix",
        "",
        Op::Get,
        &[
            ("fcntl", 5.0, 5.0),
            ("pselect6", 2.0, 2.0),
            ("socket", 1.0, 1.0),
            ("connect", 1.0, 1.0),
            ("sendto", 1.0, 1.0),
            ("recvfrom", 1.0, 1.0),
            ("close", 1.0, 1.0),
        ],
    ),
    ("apcu/memory/local", "", Op::Get, &[]),
    ("apcu/memory/local", "", Op::Set, &[]),
    ("apcu/memory/local", "", Op::Incr, &[]),
    ("tmpfile/include/local", "", Op::Get, INCLUDE),
    ("tmpfile/opcache-fresh/local", "", Op::Get, INCLUDE),
    ("tmpfile/opcache/local", "", Op::Get, &[]),
    ("tmpfile/opcache-trust/local", "", Op::Get, &[]),
    (
        "tmpfile/opcache-revalidate/local",
        "",
        Op::Get,
        &[("newfstatat", 1.0, 1.0)],
    ),
    ("redis-py/python-parser/*", "4.3", Op::Get, REDIS_PY),
    ("redis-py/hiredis-parser/*", "4.3", Op::Set, REDIS_PY),
    (
        "redis-py/single/tcp",
        "4.3",
        Op::Get,
        &[("sendto", 1.0, 1.0), ("recvfrom", 1.0, 1.0)],
    ),
    (
        "redis-py/pipeline/tcp",
        "4.3",
        Op::Get,
        &[
            ("getpid", 0.02, 0.02),
            ("ioctl", 0.02, 0.02),
            ("recvfrom", 0.02, 0.03),
            ("sendto", 0.01, 0.01),
        ],
    ),
    (
        "redis-py/asyncio/tcp",
        "4.3",
        Op::Get,
        &[
            ("epoll_wait", 2.0, 6.0),
            ("getpid", 3.0, 4.0),
            ("sendto", 1.0, 1.0),
            ("recvfrom", 1.0, 1.0),
        ],
    ),
    (
        "redis-py/hiredis-parser/*",
        "8.1",
        Op::Get,
        &[
            ("poll", 3.0, 3.0),
            ("getpid", 2.0, 2.0),
            ("sendto", 1.0, 1.0),
            ("recvfrom", 1.0, 1.0),
        ],
    ),
    (
        "pymemcache/persistent/*",
        "",
        Op::Get,
        &[("sendto", 1.0, 1.0), ("recvfrom", 1.0, 1.0)],
    ),
    (
        "pymemcache/multi/tcp",
        "",
        Op::Get,
        &[("sendto", 0.01, 0.01), ("recvfrom", 0.01, 0.05)],
    ),
    (
        "node-redis/persistent/*,ioredis/persistent/*",
        "5.",
        Op::Get,
        NODE,
    ),
    (
        "node-redis/one-tick/tcp,node-redis/pipeline/tcp",
        "5.",
        Op::Get,
        &[
            ("writev", 0.01, 0.01),
            ("epoll_pwait", 0.009, 0.06),
            ("read", 0.01, 0.05),
        ],
    ),
    (
        "ioredis/one-tick/tcp",
        "5.",
        Op::Get,
        &[
            ("write", 1.0, 1.0),
            ("epoll_pwait", 0.009, 0.06),
            ("read", 0.01, 0.05),
        ],
    ),
    (
        "ioredis/pipeline/tcp,ioredis/autopipelining/tcp",
        "5.",
        Op::Get,
        &[
            ("write", 0.01, 0.01),
            ("epoll_pwait", 0.009, 0.06),
            ("read", 0.01, 0.05),
        ],
    ),
    (
        "hiredis/persistent/*",
        "",
        Op::Get,
        &[("write", 1.0, 1.0), ("read", 1.0, 1.0)],
    ),
    (
        "hiredis/pipeline/*",
        "",
        Op::Set,
        &[("write", 0.01, 0.01), ("read", 0.01, 0.05)],
    ),
    (
        "hiredis/connect/unix",
        "0.14",
        Op::Incr,
        &[
            ("fcntl", 4.0, 4.0),
            ("socket", 1.0, 1.0),
            ("connect", 1.0, 1.0),
            ("write", 1.0, 1.0),
            ("read", 1.0, 1.0),
            ("close", 1.0, 1.0),
        ],
    ),
];

#[test]
fn the_window_of_each_script_client_holds_its_own_calls_only() {
    let Some(bench) = Bench::start() else { return };
    for (selectors, version, op, expected) in ROWS {
        for strategy in bench.strategies(selectors) {
            if !bench.can_run(&strategy, version) {
                continue;
            }
            let work = Work {
                op: *op,
                stop: Stop::Ops(OPS),
                batch: 100,
                ..Work::default()
            };
            let name = format!("{} {}", strategy.name(), op.name());
            compare(&name, expected, bench.count(&strategy, &work));
        }
    }
}

#[test]
fn a_payload_of_any_kind_is_one_exchange() {
    let Some(bench) = Bench::start() else { return };
    let rows = [
        ("phpredis/persistent/tcp", PHPREDIS),
        ("predis/persistent/tcp", PREDIS),
        ("php-memcached/text/tcp", MEMCACHED),
    ];
    for (selector, expected) in rows {
        for strategy in bench.strategies(selector) {
            if !bench.can_run(&strategy, "") {
                continue;
            }
            for serializer in [Serializer::Php, Serializer::Json] {
                for kind in [PayloadKind::Array, PayloadKind::Object] {
                    let mut work = Work {
                        op: Op::Setget,
                        stop: Stop::Ops(OPS),
                        ..Work::default()
                    };
                    work.payload.kind = kind;
                    work.payload.serializer = serializer;
                    compare(
                        &format!("{} {:?}", strategy.name(), work.payload),
                        expected,
                        bench.count(&strategy, &work),
                    );
                }
            }
        }
    }
}

/// The servers and the clients of these tests.
struct Bench {
    registry: Registry,
    redis: Redis,
    memcached: Option<Memcached>,
    folder: tempfile::TempDir,
}

impl Bench {
    /// `None`, with a SKIP line, where nothing can be counted.
    fn start() -> Option<Bench> {
        if Command::new("strace").arg("-V").output().is_err() {
            println!("SKIP: strace is not installed");
            return None;
        }
        let source = ScriptSource {
            executable: env!("CARGO_BIN_EXE_systally").into(),
            scripts: None,
            clients: None,
        };
        Some(Bench {
            registry: Registry::load(&source).unwrap(),
            redis: Redis::start(None)?,
            memcached: Memcached::start(),
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn strategies(&self, selectors: &str) -> Vec<Strategy> {
        self.registry.select(&[selectors.to_owned()]).unwrap()
    }

    /// Says with a SKIP line when it cannot.
    fn can_run(&self, strategy: &Strategy, version: &str) -> bool {
        let name = strategy.name();
        match strategy.client.presence() {
            Presence::Missing { why, .. } => {
                println!("SKIP: {name}: {why}");
                false
            }
            Presence::Ready { version: found } if !found.starts_with(version) => {
                println!("SKIP: {name}: this is {found}, the row is for {version}");
                false
            }
            Presence::Ready { .. } if self.servers(strategy).is_none() => {
                println!("SKIP: {name}: memcached is not installed");
                false
            }
            Presence::Ready { .. } => true,
        }
    }

    fn servers(&self, strategy: &Strategy) -> Option<Vec<Endpoint>> {
        let server = match (strategy.store(), strategy.transport) {
            (Store::None, _) | (_, Transport::Local) => return Some(Vec::new()),
            (Store::Redis, Transport::Tcp) => self.redis.tcp(),
            (Store::Redis, Transport::Unix) => self.redis.unix(),
            (Store::Memcached, Transport::Tcp) => self.memcached.as_ref()?.tcp(),
            (Store::Memcached, Transport::Unix) => self.memcached.as_ref()?.unix(),
            (Store::Cluster | Store::Shards | Store::Twemproxy, _) => return None,
        };
        Some(vec![server])
    }

    fn count(&self, strategy: &Strategy, work: &Work) -> BTreeMap<String, u64> {
        let log = self.folder.path().join("log");
        let mut assignment = strategy.assign(work, &self.servers(strategy).unwrap(), 0);
        let strace = ["strace", "-f", "-qq", "-o", log.to_str().unwrap()].map(Into::into);
        assignment.program.argv.splice(0..0, strace);
        let mut workers = Workers::start(&PlainEngine, vec![assignment], &request()).unwrap();
        workers
            .ready(LIMIT, &Interrupt::never())
            .unwrap_or_else(|e| panic!("{}: {e}", strategy.name()));
        let outcome = workers.round(LIMIT, &Interrupt::never()).unwrap();
        let done = &outcome.dones[0];
        assert_eq!(done.ops, OPS, "{}: {:?}", strategy.name(), done.errors);
        workers.finish(LIMIT).unwrap();
        calls_in_window(&log)
    }
}

/// A value is off by at most 0.02 for whole calls and 0.005 for parts of one, as the table of truths says.
fn compare(name: &str, expected: Calls, mut counts: BTreeMap<String, u64>) {
    let shown = format!("{name}: {counts:?}");
    for (call, least, most) in expected {
        let seen = counts.remove(*call).unwrap_or(0) as f64 / OPS as f64;
        let slack = if *least >= 0.5 { 0.02 } else { 0.005 };
        assert!(
            (least - slack..=most + slack).contains(&seen),
            "{call} {seen} in {shown}"
        );
    }
    counts.retain(|call, n| !RUNTIME.contains(&call.as_str()) && *n as f64 / OPS as f64 > 0.005);
    assert!(counts.is_empty(), "{shown}");
}

/// Two memcached servers of these tests alone: one program listens on one kind of socket only.
struct Memcached {
    tcp: Child,
    unix: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Memcached {
    /// `None` when there is none to start.
    fn start() -> Option<Memcached> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let socket = folder.path().join("m.sock");
        let spawn = |args: &[&str]| {
            Command::new("memcached")
                .args([
                    "-u",
                    &nix::unistd::User::from_uid(nix::unistd::geteuid())
                        .unwrap()
                        .unwrap()
                        .name,
                ])
                .args(args)
                .stdin(Stdio::null())
                .spawn()
        };
        let tcp = spawn(&["-l", "127.0.0.1", "-U", "0", "-p", &port.to_string()]).ok()?;
        let unix = spawn(&["-s", socket.to_str().unwrap()]).unwrap();
        let servers = Memcached {
            tcp,
            unix,
            folder,
            port,
        };
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() || UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "memcached does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Some(servers)
    }

    fn tcp(&self) -> Endpoint {
        Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: self.port,
            user: None,
            password: None,
        }
    }

    fn unix(&self) -> Endpoint {
        let socket: &Path = &self.folder.path().join("m.sock");
        Endpoint::Unix {
            path: socket.to_str().unwrap().into(),
            user: None,
            password: None,
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        for child in [&mut self.tcp, &mut self.unix] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
