//! The built-in responder, set beside a real Redis server and driven by real clients.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod server_support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::Value;
use server_support::{
    LIMIT, ROLE, Raw, be_responder, built_in, eventually, have, is_running, options, port, private,
    responder_command, socket,
};
use systally::run::interrupt::Interrupt;
use systally::server::{PrivateOptions, Server, ServerChoice};

/// What this binary does as a child of one of its own tests.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_some() {
        be_responder();
    }
}

/// Requests whose replies must be those of Redis, byte by byte, in one connection each.
const SCRIPTS: [&[&str]; 13] = [
    &[
        "PING",
        "ping hello",
        "PING a b",
        "ECHO x",
        "ECHO",
        "echo \"a\\r\\nb\"",
        "NOSUCH",
        "nosuch a \"b c\" d",
        "GET",
    ],
    &[
        "SET k v",
        "GET k",
        "GET none",
        "SET k v2 NX",
        "SET n v NX",
        "SET none v XX",
        "SET k v3 XX",
        "GET k",
    ],
    &[
        "SET k old",
        "SET k new GET",
        "GET k",
        "SET new v GET",
        "SET k v NX GET",
        "SET k v XX GET",
        "GET k",
    ],
    &[
        "SET k v EX",
        "SET k v EX 0",
        "SET k v EX -1",
        "SET k v EX x",
        "SET k v EX 10 PX 10",
        "SET k v NX XX",
        "SET k v EX 10 KEEPTTL",
        "SET k v KEEPTTL EX 10",
        "SET k v nonsense",
        "SET k v EX 9223372036854775807",
        "SET k v PX 9223372036854775807",
        "SETEX k 0 v",
        "SETEX k x v",
        "PSETEX k -5 v",
        "SETNX k v",
        "SETNX k v",
    ],
    &[
        "SET k v EX 100",
        "TTL k",
        "SET k w KEEPTTL",
        "TTL k",
        "SET k x",
        "TTL k",
        "TTL none",
        "EXPIRE k 200",
        "TTL k",
        "EXPIRE none 5",
        "EXPIRE k x",
        "EXPIRE k 9223372036854775807",
        "EXPIRE k 100 NX",
        "EXPIRE k 100 GT",
        "EXPIRE k 300 GT",
        "TTL k",
        "EXPIRE k 400 LT",
        "EXPIRE k 50 LT",
        "TTL k",
        "EXPIRE k 9 XX",
        "EXPIRE k 9 NX GT",
        "EXPIRE k 9 GT LT",
        "EXPIRE k 9 FOO",
        "EXPIRE k -1",
        "EXISTS k",
        "PTTL k",
        "SET k v PXAT 1",
        "GET k",
        "SET k v",
        "PEXPIRE k 100000",
        "TTL k",
        "SET k v EXAT 99999999999",
        "EXISTS k",
    ],
    &[
        "INCR n",
        "INCR n",
        "DECR n",
        "INCRBY n 40",
        "DECRBY n 2",
        "GET n",
        "SET s abc",
        "INCR s",
        "INCRBY n x",
        "SET n 9223372036854775807",
        "INCR n",
        "DECRBY n -9223372036854775808",
        "SET n -9223372036854775808",
        "DECR n",
        "SET n 01",
        "INCR n",
        "SET n \" 1\"",
        "INCR n",
        "SET n +1",
        "INCR n",
        "SET n \"\"",
        "INCR n",
    ],
    &[
        "MSET a 1 b 2",
        "MGET a none b",
        "MSET a",
        "MSET a 1 b",
        "DEL a b none",
        "EXISTS a b",
        "MSET a 1 b 2",
        "EXISTS a a b none",
        "UNLINK a",
        "DBSIZE",
        "SELECT 1",
        "DBSIZE",
        "SET x y",
        "SELECT 0",
        "GET x",
        "SELECT 16",
        "SELECT -1",
        "SELECT x",
        "FLUSHDB",
        "DBSIZE",
        "SELECT 1",
        "DBSIZE",
        "FLUSHALL ASYNC",
        "DBSIZE",
        "FLUSHALL now",
        "FLUSHDB SYNC x",
    ],
    &[
        "MULTI",
        "SET k 1",
        "INCR k",
        "GET k",
        "EXEC",
        "EXEC",
        "DISCARD",
        "MULTI",
        "MULTI",
        "DISCARD",
        "MULTI",
        "NOSUCH",
        "SET k 5",
        "EXEC",
        "GET k",
        "MULTI",
        "GET",
        "EXEC",
        "MULTI",
        "SET s abc",
        "INCR s",
        "PING",
        "EXEC",
        "MULTI",
        "EXEC",
        "MULTI",
        "ECHO hi",
        "DISCARD",
        "GET k",
    ],
    &[
        "CLIENT GETNAME",
        "CLIENT SETNAME joe",
        "CLIENT GETNAME",
        "CLIENT SETNAME \"a b\"",
        "CLIENT SETNAME \"\"",
        "CLIENT GETNAME",
        "CLIENT",
        "CLIENT NOSUCH x",
        "CLIENT NO-EVICT on",
        "CLIENT NO-EVICT maybe",
        "CLIENT REPLY maybe",
        "CLIENT SETNAME",
        "CLIENT LIST TYPE nothing",
        "CLIENT LIST ID x",
        "CLIENT ID x",
        "CLIENT LIST foo",
    ],
    &[
        "CLIENT REPLY OFF",
        "PING",
        "SET k v",
        "CLIENT REPLY SKIP",
        "PING",
        "CLIENT REPLY ON",
        "CLIENT REPLY SKIP",
        "PING",
        "GET k",
    ],
    &[
        "AUTH x",
        "AUTH default x",
        "AUTH joe x",
        "AUTH a b c",
        "CONFIG SET requirepass pw",
        "RESET",
        "PING",
        "GET k",
        "NOSUCH",
        "GET",
        "AUTH no",
        "AUTH default no",
        "HELLO 3",
        "AUTH pw",
        "PING",
        "RESET",
        "AUTH default pw",
        "PING",
        "CONFIG SET requirepass \"\"",
        "RESET",
        "PING",
    ],
    &[
        "CONFIG GET save",
        "CONFIG GET appendonly",
        "CONFIG GET maxmemory nosuch",
        "CONFIG GET",
        "CONFIG GET nosuch*",
        "CONFIG SET nosuch 1",
        "CONFIG SET maxclients x",
        "CONFIG SET maxclients 0",
        "CONFIG SET maxclients",
        "CONFIG SET maxclients 100 save",
        "CONFIG SET tcp-backlog 5",
        "CONFIG SET save \"\" appendonly no",
        "CONFIG SET maxclients 5000",
        "CONFIG GET maxclients",
        "CONFIG NOSUCH",
        "CONFIG RESETSTAT x",
        "CONFIG",
        "CONFIG RESETSTAT",
        "COMMAND NOSUCH",
        "COMMAND COUNT x",
        "INFO nosuch",
    ],
    &[
        "HELLO 4",
        "HELLO x",
        "HELLO 3 FOO",
        "HELLO 3 AUTH a",
        "HELLO 3 AUTH a b",
        "HELLO 3 SETNAME \"a b\"",
        "QUIT now",
    ],
];

/// The same in RESP3.
const SCRIPTS_3: [&[&str]; 1] = [&[
    "GET none",
    "MGET a b",
    "CONFIG GET save",
    "INFO nosuch",
    "CLIENT GETNAME",
    "MULTI",
    "GET none",
    "EXEC",
    "SET k v GET",
    "RESET",
    "GET none",
]];

/// Bytes after which Redis closes the connection.
const BREAKING: [&[u8]; 10] = [
    b"*x\r\n",
    b"*1\r\nGET\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n\r\n\r\n",
    b"set \"a\r\n",
    b"PING\r\nQUIT\r\nPING\r\n",
    b"*-1\r\n*0\r\n\r\nPING\r\n*99999999999\r\n",
    b"*2\r\n$4\r\nECHO\r\n$3\r\nabcxx*1\r\n$4\r\nPING\r\n*a\r\n",
];

/// Sends each command by itself and ends with one whose reply is known, then returns all bytes.
fn replies(server: &Server, greeting: &str, script: &[&str]) -> String {
    let mut raw = Raw::tcp(server);
    if !greeting.is_empty() {
        raw.send(format!("{greeting}\r\n").as_bytes());
        read_until(&mut raw, b"modules\r\n*0\r\n");
    }
    let mut text = script.join("\r\n");
    text.push_str("\r\nRESET\r\nECHO the-end-of-it\r\n");
    raw.send(text.as_bytes());
    let text = String::from_utf8_lossy(&read_until(&mut raw, b"$13\r\nthe-end-of-it\r\n")).into_owned();
    // The one message here that Redis 7.2 worded anew.
    text.replace("HELLO <proto> AUTH", "HELLO AUTH")
}

/// A private Redis 7: other versions word some errors in another way.
fn redis_7() -> Option<Server> {
    let server = private()?;
    let info = server.info();
    if info.kind == "redis" && info.version.starts_with("7.") {
        return Some(server);
    }
    println!(
        "SKIP: the server here is {} {}, and these are compared with Redis 7",
        info.kind, info.version
    );
    None
}

/// Everything up to these bytes, or to the end.
fn read_until(raw: &mut Raw, end: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while !all.ends_with(end) {
        match raw.stream().read(&mut buffer).unwrap() {
            0 => break,
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
    all
}

#[test]
fn replies_are_those_of_redis() {
    let Some(redis) = redis_7() else { return };
    let ours = built_in();
    for (greeting, scripts) in [("", &SCRIPTS[..]), ("HELLO 3", &SCRIPTS_3[..])] {
        for script in scripts {
            for server in [&redis, &ours] {
                assert_eq!(Raw::tcp(server).ask("FLUSHALL"), "+OK");
            }
            let (wanted, got) = (
                replies(&redis, greeting, script),
                replies(&ours, greeting, script),
            );
            assert_eq!(got, wanted, "{script:?}");
        }
    }
}

#[test]
fn what_breaks_the_protocol_ends_as_with_redis() {
    let Some(redis) = redis_7() else { return };
    let ours = built_in();
    for bytes in BREAKING {
        let answer = |server: &Server| {
            let mut raw = Raw::unix(server);
            raw.send(bytes);
            String::from_utf8_lossy(&raw.rest()).into_owned()
        };
        assert_eq!(
            answer(&ours),
            answer(&redis),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn statistics_are_those_of_redis() {
    let Some(redis) = redis_7() else { return };
    let ours = built_in();
    let counts = |server: &Server| {
        let mut raw = Raw::tcp(server);
        raw.send(b"CONFIG RESETSTAT\r\n");
        for command in [
            "SET s x", "GET s", "GET s", "GET none", "INCR s", "GET", "NOSUCH", "MULTI", "SET a 1", "INCR s",
            "EXEC",
        ] {
            raw.send(format!("{command}\r\n").as_bytes());
        }
        raw.send(b"INFO everything\r\nQUIT\r\n");
        let text = String::from_utf8_lossy(&raw.rest()).into_owned();
        // Times are not the same twice.
        let usec = regex::Regex::new("usec=[0-9]+,usec_per_call=[0-9.]+,").unwrap();
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| {
                [
                    "cmdstat_",
                    "errorstat_",
                    "keyspace_",
                    "total_error",
                    "rejected_conn",
                    "total_connections",
                    "connected_clients",
                    "db0:",
                ]
                .iter()
                .any(|start| line.starts_with(start))
            })
            .map(|line| usec.replace(line, "").into_owned())
            .collect();
        lines.sort();
        lines
    };
    let (wanted, got) = (counts(&redis), counts(&ours));
    assert!(
        wanted.iter().any(|line| line.starts_with("cmdstat_get:calls=3")),
        "{wanted:?}"
    );
    assert_eq!(got, wanted);
}

#[test]
fn keys_really_expire() {
    let server = built_in();
    let mut raw = Raw::tcp(&server);
    assert_eq!(raw.ask("SET short v PX 1"), "+OK");
    assert_eq!(raw.ask("SET long v EX 1000"), "+OK");
    eventually("the key does not expire", || {
        Raw::tcp(&server).ask("GET short") == "$-1"
    });
    assert_eq!(raw.ask("EXISTS short long"), ":1");
}

#[test]
fn the_redis_crate_speaks_both_protocols_over_both_transports() {
    let server = built_in();
    for version in ["", "?protocol=resp3"] {
        let unix = if version.is_empty() { "" } else { "?protocol=resp3" };
        for url in [
            format!("redis://127.0.0.1:{}/{version}", port(&server)),
            format!("unix://{}{unix}", socket(&server)),
        ] {
            let client = redis::Client::open(url.as_str()).unwrap();
            let mut connection = client.get_connection_with_timeout(LIMIT).unwrap();
            let binary: Vec<u8> = (0..=255).collect();
            let () = redis::cmd("SET")
                .arg("bin")
                .arg(&binary)
                .query(&mut connection)
                .unwrap();
            let back: Vec<u8> = redis::cmd("GET").arg("bin").query(&mut connection).unwrap();
            assert_eq!(back, binary);
            let mut pipeline = redis::pipe();
            for i in 0..500 {
                pipeline
                    .cmd("SET")
                    .arg(format!("p{i}"))
                    .arg(i)
                    .ignore()
                    .cmd("GET")
                    .arg(format!("p{i}"));
            }
            let numbers: Vec<i64> = pipeline.query(&mut connection).unwrap();
            assert_eq!(numbers, (0..500).collect::<Vec<i64>>());
            let (a, b): (i64, i64) = redis::pipe()
                .atomic()
                .cmd("INCRBY")
                .arg("count")
                .arg(2)
                .cmd("INCR")
                .arg("count")
                .query(&mut connection)
                .unwrap();
            assert_eq!(b, a + 1);
            let settings: std::collections::HashMap<String, String> = redis::cmd("CONFIG")
                .arg("GET")
                .arg("max*")
                .query(&mut connection)
                .unwrap();
            assert_eq!(settings["maxmemory"], "0");
            let info: redis::InfoDict = redis::cmd("INFO").query(&mut connection).unwrap();
            assert_eq!(
                info.get::<String>("server_name").as_deref(),
                Some("systally-responder")
            );
            let commands: Value = redis::cmd("COMMAND").query(&mut connection).unwrap();
            assert!(matches!(commands, Value::Array(all) if all.len() > 30));
            let me: Value = redis::cmd("CLIENT").arg("INFO").query(&mut connection).unwrap();
            assert!(format!("{me:?}").contains("lib-name=redis-rs"), "{me:?}");
        }
    }
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn redis_cli_works() {
    if !have("redis-cli") {
        return;
    }
    let server = built_in();
    let tcp = [
        "-h".to_owned(),
        "127.0.0.1".to_owned(),
        "-p".to_owned(),
        port(&server).to_string(),
    ];
    let unix = ["-s".to_owned(), socket(&server)];
    for address in [&tcp[..], &unix[..]] {
        let cli = |args: &[&str]| output(Command::new("redis-cli").args(address).args(args));
        assert_eq!(cli(&["PING"]), "PONG\n");
        assert_eq!(cli(&["SET", "k", "v"]), "OK\n");
        assert_eq!(cli(&["-3", "GET", "k"]), "v\n");
        assert_eq!(cli(&["-n", "3", "GET", "k"]), "\n");
        assert_eq!(cli(&["-r", "3", "INCR", "n"]).lines().count(), 3);
        assert!(cli(&["INFO"]).contains("redis_version:"));
        assert!(cli(&["-3", "CONFIG", "GET", "save"]).contains("save"));
        assert!(cli(&["COMMAND", "DOCS", "get"]).contains("summary"));
        assert!(cli(&["CLIENT", "LIST"]).contains("cmd=client|list"));
        cli(&["FLUSHALL"]);
    }
    // Bulk loading: every reply must come, and the count of them with it.
    let mut pipe = Command::new("redis-cli")
        .args(&unix)
        .arg("--pipe")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = pipe.stdin.take().unwrap();
    for i in 0..1000 {
        use std::io::Write;
        write!(input, "*3\r\n$3\r\nSET\r\n$5\r\np{i:04}\r\n$1\r\nx\r\n").unwrap();
    }
    drop(input);
    let said = String::from_utf8_lossy(&pipe.wait_with_output().unwrap().stdout).into_owned();
    assert!(said.contains("errors: 0, replies: 1000"), "{said}");
}

#[test]
fn redis_benchmark_works() {
    if !have("redis-benchmark") {
        return;
    }
    let server = built_in();
    let mut raw = Raw::tcp(&server);
    assert_eq!(raw.ask("CONFIG RESETSTAT"), "+OK");
    for (depth, keep) in [("1", "1"), ("16", "1"), ("1", "0")] {
        let port = port(&server).to_string();
        let csv = output(
            Command::new("redis-benchmark")
                .args([
                    "-h",
                    "127.0.0.1",
                    "-p",
                    &port,
                    "-n",
                    "2000",
                    "-c",
                    "20",
                    "-P",
                    depth,
                    "-k",
                    keep,
                ])
                .args(["-t", "ping,set,get,incr,mset", "-r", "1000", "--csv"]),
        );
        // A head, and a line for each of PING_INLINE, PING_MBULK, SET, GET, INCR and MSET.
        assert_eq!(csv.lines().count(), 7, "{csv}");
    }
    raw.send(b"INFO commandstats\r\nQUIT\r\n");
    let stats = String::from_utf8_lossy(&raw.rest()).into_owned();
    for command in ["set", "get", "incr", "mset"] {
        assert!(
            stats.contains(&format!("cmdstat_{command}:calls=6000,")),
            "{command}: {stats}"
        );
    }
    assert!(stats.contains("cmdstat_ping:calls=12000,"), "{stats}");
}

#[test]
fn phpredis_works() {
    if !have("php") {
        return;
    }
    let loaded = output(Command::new("php").args(["-r", "echo extension_loaded('redis') ? 'yes' : 'no';"]));
    if loaded != "yes" {
        println!("SKIP: PHP has no redis extension");
        return;
    }
    let server = built_in();
    let script = r#"
        foreach ([[$argv[1], 0], ['127.0.0.1', (int) $argv[2]]] as [$host, $port]) {
            foreach (['connect', 'pconnect'] as $connect) {
                $r = new Redis();
                $r->$connect($host, $port, 5.0);
                $r->setOption(Redis::OPT_READ_TIMEOUT, 5);
                assert($r->ping() === true);
                assert($r->set('k', "a\r\n\0b") === true);
                assert($r->get('k') === "a\r\n\0b");
                assert($r->get('none') === false);
                assert($r->setex('t', 100, 'v') && $r->ttl('t') === 100);
                assert($r->mset(['a' => '1', 'b' => '2']) && $r->mget(['a', 'x', 'b']) === ['1', false, '2']);
                assert($r->del('a', 'b') === 2);
                assert($r->multi()->set('n', 1)->incr('n')->exec() === [true, 2]);
                $p = $r->pipeline();
                for ($i = 0; $i < 300; $i++) { $p->set("p$i", $i)->get("p$i"); }
                assert(count($p->exec()) === 600);
                assert($r->info()['redis_version'] !== '');
                assert($r->config('GET', 'save') === ['save' => '']);
                assert($r->select(2) && $r->dbSize() === 0);
                assert($r->client('setname', 'php') && $r->client('getname') === 'php');
                assert($r->getLastError() === null);
                $r->close();
            }
        }
        echo 'fine';
    "#;
    let said = output(
        Command::new("php")
            .args([
                "-d",
                "zend.assertions=1",
                "-d",
                "assert.exception=1",
                "-d",
                "display_errors=stderr",
                "-r",
                script,
                "--",
            ])
            .args([&socket(&server), &port(&server).to_string()]),
    );
    assert_eq!(said, "fine");
}

#[test]
fn large_values_and_long_pipelines_pass() {
    let server = built_in();
    let mut raw = Raw::unix(&server);
    let size = 20 << 20;
    raw.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${size}\r\n").as_bytes());
    raw.send(&vec![b'x'; size]);
    raw.send(b"\r\n");
    assert_eq!(read_until(&mut raw, b"\r\n"), b"+OK\r\n");
    raw.send(b"GET big\r\nECHO the-end-of-it\r\n");
    assert_eq!(
        read_until(&mut raw, b"the-end-of-it\r\n").len(),
        size + format!("${size}\r\n\r\n").len() + 20
    );
    // In pieces of one byte.
    for byte in b"*2\r\n$4\r\nECHO\r\n$13\r\nthe-end-of-it\r\n" {
        raw.send(&[*byte]);
    }
    assert_eq!(
        read_until(&mut raw, b"the-end-of-it\r\n"),
        b"$13\r\nthe-end-of-it\r\n"
    );
}

/// Peak memory of a process in bytes.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_client_that_does_not_read_costs_little_memory() {
    let server = built_in();
    let pid = server.pid().unwrap();
    let mut raw = Raw::tcp(&server);
    assert_eq!(raw.ask(&format!("SET k {}", "x".repeat(60_000))), "+OK");
    let before = peak(pid);
    // Some 360 MB of replies are asked for. The server must stop reading when they are not fetched.
    let mut lazy = Raw::tcp(&server);
    let requests = "GET k\r\n".repeat(6_000);
    lazy.send(requests.as_bytes());
    for _ in 0..20 {
        assert_eq!(raw.ask("PING"), "+PONG", "others are served");
    }
    assert!(peak(pid) - before < 64 << 20, "{} bytes", peak(pid) - before);
    // And everything comes when it is fetched after all.
    let one = "$60000\r\n\r\n".len() + 60_000;
    let mut got = 0;
    let mut buffer = vec![0; 1 << 20];
    while got < one * 6_000 {
        match lazy.stream().read(&mut buffer).unwrap() {
            0 => panic!("closed after {got} bytes"),
            n => got += n,
        }
    }
    assert_eq!(got, one * 6_000);
    assert!(peak(pid) - before < 64 << 20, "{} bytes", peak(pid) - before);
}

#[test]
fn announced_sizes_take_no_memory() {
    let server = built_in();
    let pid = server.pid().unwrap();
    let before = peak(pid);
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut raw = Raw::unix(&server);
        raw.send(b"*1048576\r\n$536870912\r\nx");
        held.push(raw);
    }
    assert_eq!(Raw::unix(&server).ask("PING"), "+PONG");
    assert!(peak(pid) - before < 32 << 20, "{} bytes", peak(pid) - before);
}

#[test]
fn strangers_may_send_little() {
    let server = built_in();
    assert_eq!(Raw::tcp(&server).ask("CONFIG SET requirepass pw"), "+OK");
    for (bytes, expected) in [
        (
            &b"*11\r\n"[..],
            "-ERR Protocol error: unauthenticated multibulk length\r\n",
        ),
        (
            b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
            "-ERR Protocol error: unauthenticated bulk length\r\n",
        ),
    ] {
        let mut raw = Raw::tcp(&server);
        raw.send(bytes);
        assert_eq!(String::from_utf8_lossy(&raw.rest()), expected);
    }
}

#[test]
fn a_full_house_is_told_at_the_door() {
    // Two for the control connection and the look at the other address.
    let wanted = PrivateOptions {
        maxclients: Some(3),
        ..options()
    };
    let server = Server::start(ServerChoice::BuiltIn { options: wanted }, &Interrupt::never()).unwrap();
    let mut first = Raw::tcp(&server);
    assert_eq!(first.ask("PING"), "+PONG");
    let mut second = Raw::unix(&server);
    assert_eq!(second.ask("PING"), "+PONG");
    let turned_away = || {
        let mut third = Raw::unix(&server);
        String::from_utf8_lossy(&third.rest()).into_owned()
    };
    assert_eq!(turned_away(), "-ERR max number of clients reached\r\n");
    drop(second);
    eventually("the place of one that left is not given away", || {
        Raw::unix(&server).ask("PING") == "+PONG"
    });
}

#[test]
fn it_ends_with_its_standard_input_or_a_signal_and_removes_its_socket() {
    let command = responder_command();
    for by_signal in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let mut child = Command::new(command.program.as_ref().unwrap())
            .args(&command.args)
            .arg("--socket")
            .arg(&socket)
            .env(ROLE, "responder")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("it does not listen", || socket.exists());
        if by_signal {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        } else {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + LIMIT;
        while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = child.try_wait().unwrap();
        let _ = child.kill();
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        assert!(!socket.exists());
    }
}

#[test]
fn a_storm_of_connections_is_served() {
    let server = built_in();
    for _ in 0..5 {
        let connect = |i| {
            if i % 2 == 0 {
                Raw::tcp(&server)
            } else {
                Raw::unix(&server)
            }
        };
        let mut held: Vec<Raw> = (0..200).map(connect).collect();
        for raw in &mut held {
            assert!(raw.ask("INCR storm").starts_with(':'));
        }
    }
    assert_eq!(Raw::tcp(&server).ask("INCR storm"), ":1001");
    assert!(is_running(server.pid().unwrap()));
}
