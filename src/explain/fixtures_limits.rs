//! The cases of [`super::fixtures`] for the rules about limits: each code with a record in which it is
//! found, and a look-alike in which it is not.

use super::evidence::Fact;
use super::fixtures::{Case, as_kind, changed, facts, one};
use super::testing::{failed, round, row, set_rounds};
use crate::record::{FailureKind, Latency, Peak, Record, Sampled, Stage, StrategyResult, sampled};
use crate::units::{Measured, Nanos};

const TCP: &str = "phpredis/connect/tcp";
const UNIX: &str = "redis-py/connect/unix";
const KEPT: &str = "redis-rs/persistent/tcp";

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = queue_cases();
    cases.extend(loss_cases());
    cases.extend(process_cases());
    cases.extend(server_cases());
    cases.extend(timeout_cases());
    cases.extend(client_cases());
    cases
}

/// Counters before and after.
fn counted(mut record: Record, counters: &[(&str, u64, u64)]) -> Record {
    for (name, before, after) in counters {
        record.counters.before.insert((*name).to_owned(), *before);
        record.counters.after.insert((*name).to_owned(), *after);
    }
    record
}

fn setting(mut record: Record, name: &str, value: &str) -> Record {
    if let Some(server) = record.server.as_mut() {
        server.settings.insert(name.to_owned(), value.to_owned());
    }
    record
}

/// Peaks of the first row, over ten seconds.
fn peaks(mut record: Record, peaks: &[(&str, u64, Option<u64>)]) -> Record {
    record.sampled = Some(Sampled {
        samples: 500,
        seconds: 10.0,
        cpu_ns: Nanos(40_000_000),
        peaks: peaks
            .iter()
            .map(|(name, peak, of)| Peak {
                name: (*name).to_owned(),
                row: Some(0),
                peak: *peak,
                of: *of,
                at_s: 3.25,
            })
            .collect(),
    });
    record
}

/// A row in which so many operations failed with these words.
fn lossy(name: &str, words: &str, lost: u64) -> Record {
    changed(name, |result| {
        let mut lossy = round(1000 - lost, 1000, 1000 - lost);
        lossy.errors.insert(words.to_owned(), lost);
        set_rounds(result, vec![lossy], 1000.0);
    })
}

/// A row whose slowest operation took so long.
fn slow(name: &str, slowest_ms: u64) -> Record {
    changed(name, |result: &mut StrategyResult| {
        if let Measured::Known(timed) = &mut result.timed {
            timed.latency = Measured::Known(Latency {
                per_batch: false,
                p50: Nanos(100_000),
                p90: Nanos(200_000),
                p99: Nanos(300_000),
                p999: Nanos(400_000),
                max: Nanos(slowest_ms * 1_000_000),
                hdr: String::new(),
            });
        }
    })
}

fn in_a_round(mut record: Record) -> Record {
    if let Some(failure) = record.strategies[0].failure.as_mut() {
        failure.stage = Stage::Round;
    }
    record
}

fn queue_cases() -> Vec<Case> {
    let queue = |name: &str, seen| peaks(one(row(name)), &[(sampled::UNIX_QUEUED, seen, Some(17))]);
    let reset = |policy| {
        let record = lossy(TCP, "RedisException:Connection reset by peer", 3);
        counted(
            record,
            &[
                ("net.ipv4.tcp_abort_on_overflow", policy, policy),
                ("TcpExt.EmbryonicRsts", 0, 3),
                ("TcpExt.ListenOverflows", 0, 27),
                ("TcpExt.ListenDrops", 0, 27),
            ],
        )
    };
    let half_open = |drops, full, cookies, on| {
        counted(
            one(row(TCP)),
            &[
                ("TcpExt.ListenDrops", 0, drops),
                ("TcpExt.ListenOverflows", 0, 0),
                ("TcpExt.TCPReqQFullDrop", 0, full),
                ("TcpExt.TCPReqQFullDoCookies", 0, cookies),
                ("net.ipv4.tcp_syncookies", on, on),
                ("net.ipv4.tcp_max_syn_backlog", 16, 16),
            ],
        )
    };
    let listener = |backlog, somaxconn| {
        let record = setting(one(row(TCP)), "tcp-backlog", "511");
        counted(
            record,
            &[
                ("listener.tcp.backlog", backlog, backlog),
                ("net.core.somaxconn", somaxconn, somaxconn),
            ],
        )
    };
    vec![
        ("UNIX_BACKLOG_WAIT", queue(UNIX, 17), queue(UNIX, 16)),
        ("TCP_ACCEPTQ_RST", reset(1), reset(0)),
        ("SYNQ_FULL", half_open(31, 31, 0, 0), half_open(27, 0, 0, 0)),
        (
            "SYN_BACKLOG_SYSCTL",
            half_open(27, 0, 0, 0),
            half_open(31, 31, 0, 0),
        ),
        ("SYNCOOKIES", half_open(0, 0, 31, 1), half_open(0, 0, 0, 1)),
        ("LISTENER_STALE", listener(128, 4096), listener(128, 128)),
    ]
}

fn loss_cases() -> Vec<Case> {
    let stalled = |counters: &[(&str, u64, u64)]| {
        let always = [("TcpExt.TCPSynRetrans", 5, 17)];
        counted(counted(slow(TCP, 1040), &always), counters)
    };
    vec![
        (
            "CONNTRACK_FULL",
            stalled(&[
                ("nf_conntrack.count", 5, 20),
                ("nf_conntrack.max", 20, 20),
                ("nf_conntrack.drop", 0, 4),
                ("TcpExt.ListenOverflows", 0, 0),
            ]),
            stalled(&[
                ("nf_conntrack.count", 5, 20),
                ("nf_conntrack.max", 262_144, 262_144),
                ("nf_conntrack.drop", 0, 0),
                ("TcpExt.ListenOverflows", 0, 12),
                ("TcpExt.ListenDrops", 0, 12),
            ]),
        ),
        (
            "PACKET_LOSS",
            stalled(&[
                ("TcpExt.ListenOverflows", 3, 3),
                ("TcpExt.ListenDrops", 3, 3),
                ("softnet.dropped", 0, 12),
            ]),
            stalled(&[("TcpExt.ListenOverflows", 3, 15), ("TcpExt.ListenDrops", 3, 15)]),
        ),
    ]
}

fn process_cases() -> Vec<Case> {
    let refused = |name: &str, more: &[(Fact, &str)]| {
        let mut record = failed(name, "", "fork (pid 0): EAGAIN: Try again");
        if let Some(failure) = record.strategies[0].failure.as_mut() {
            failure.kind = FailureKind::NotStarted;
            failure.errno = Some("EAGAIN".to_owned());
        }
        record.strategies[0].axes.clients = 40;
        facts(record, more)
    };
    let roomy = [
        (Fact::UidTasks, "3"),
        (Fact::Nproc, "96365"),
        (Fact::NprocExempt, "no"),
        (Fact::GroupTasks, "60"),
        (Fact::GroupPidsMax, "3000"),
        (Fact::Tasks, "241"),
        (Fact::PidMax, "32768"),
        (Fact::ThreadsMax, "192730"),
    ];
    let but = |more: &[(Fact, &str)]| facts(refused(KEPT, &roomy), more);
    let refused_by_group = |before, after| counted(but(&[]), &[("pids.events.max", before, after)]);
    vec![
        (
            "FORK_NPROC",
            but(&[(Fact::Nproc, "20")]),
            but(&[(Fact::Nproc, "20"), (Fact::NprocExempt, "yes")]),
        ),
        ("FORK_PIDS_MAX", refused_by_group(0, 2), refused_by_group(2, 2)),
        (
            "FORK_PID_MAX",
            but(&[(Fact::PidMax, "320")]),
            but(&[(Fact::Nproc, "20")]),
        ),
        ("FORK_THREADS_MAX", but(&[(Fact::ThreadsMax, "250")]), but(&[])),
    ]
}

fn server_cases() -> Vec<Case> {
    let silent = |open, rejected| {
        let record = lossy(
            TCP,
            "RedisException:read error on connection to 127.0.0.1:6379",
            5,
        );
        counted(
            record,
            &[
                ("server.fds_open", 8, open),
                ("server.nofile", 12, 12),
                ("redis.rejected_connections", 0, rejected),
            ],
        )
    };
    let throttled = |periods: u64, us| {
        let record = counted(
            one(row(TCP)),
            &[
                ("server.cpu.stat.nr_throttled", 4, 4 + periods),
                ("server.cpu.stat.throttled_usec", 0, us),
            ],
        );
        peaks(record, &[])
    };
    let killed = |kills: u64| {
        let record = as_kind(
            failed(KEPT, "io", "unexpected end of file"),
            FailureKind::ServerDied,
        );
        counted(record, &[("memory.events.oom_kill", 1, 1 + kills)])
    };
    let oom = "ServerException:OOM command not allowed when used memory > 'maxmemory'.";
    let denied =
        "ServerException:DENIED Redis is running in protected mode because protected mode is enabled";
    vec![
        ("SERVER_EMFILE", silent(12, 0), silent(12, 4)),
        ("CPU_THROTTLE", throttled(40, 3_600_000), throttled(1, 90_000)),
        ("CGROUP_OOM", killed(1), killed(0)),
        ("REDIS_OOM", lossy(KEPT, oom, 9), lossy(KEPT, denied, 9)),
        ("PROTECTED_MODE", lossy(KEPT, denied, 9), lossy(KEPT, oom, 9)),
    ]
}

fn timeout_cases() -> Vec<Case> {
    let late = |name: &str, words: &str| in_a_round(failed(name, "io", words));
    let closed = |timeout: &str| {
        let record = in_a_round(failed(KEPT, "io", "unexpected end of file"));
        setting(facts(record, &[(Fact::ServerAlive, "yes")]), "timeout", timeout)
    };
    let unread = |after| {
        counted(
            late("predis/pipeline/tcp", "Error while reading line from the server."),
            &[("redis.client_output_buffer_limit_disconnections", 0, after)],
        )
    };
    let given_up = |served| {
        changed(TCP, |result| {
            let mut lossy = round(243, 2000, served);
            lossy.errors.insert(
                "RedisException:read error on connection to 127.0.0.1:6379".to_owned(),
                519,
            );
            set_rounds(result, vec![lossy], 243.0);
        })
    };
    vec![
        (
            "SLOW_SERVER_READ_TIMEOUT",
            late(
                "redis-rs/persistent/unix",
                "Resource temporarily unavailable (os error 11)",
            ),
            late(
                "redis-rs/connect/unix",
                "Resource temporarily unavailable (os error 11)",
            ),
        ),
        ("IDLE_TIMEOUT_CLOSE", closed("1"), closed("0")),
        ("OUTPUT_BUFFER_CLOSE", unread(2), unread(0)),
        ("RETRY_DUPLICATES", given_up(762), given_up(243)),
    ]
}

fn client_cases() -> Vec<Case> {
    let memcached = |name: &str, after| counted(one(row("php-memcached/connect/tcp")), &[(name, 3, after)]);
    let (rejected, disabled) = ("memcached.rejected_connections", "memcached.listen_disabled_num");
    let pconnect = |connections| {
        changed("phpredis/pconnect/tcp", |result| {
            result.client.name = "phpredis".to_owned();
            let mut played = round(1000, 1000, 1000);
            if let Measured::Known(view) = &mut played.server {
                view.connections = connections;
            }
            set_rounds(result, vec![played], 5000.0);
        })
    };
    let said = |class: &str, words: &str| failed("mine/persistent/tcp", class, words);
    vec![
        (
            "MEMCACHED_CONNLIMIT_FAST",
            memcached(rejected, 8),
            memcached(disabled, 8),
        ),
        (
            "MEMCACHED_LISTEN_DISABLED",
            memcached(disabled, 8),
            memcached(rejected, 8),
        ),
        (
            "PHP_POOL_LIMIT",
            lossy(
                "phpredis/pconnect/tcp",
                "RedisException:Connection limit reached",
                2,
            ),
            lossy("phpredis/pconnect/tcp", "RedisException:Connection refused", 2),
        ),
        ("PHP_PCONNECT_CLOSED", pconnect(1000), pconnect(1)),
        (
            "TW_BUCKETS_OVERFLOW",
            counted(one(row(TCP)), &[("TcpExt.TCPTimeWaitOverflow", 0, 301)]),
            counted(one(row(TCP)), &[("TcpExt.TCPTimeWaitOverflow", 301, 301)]),
        ),
        (
            "WORKER_REFUSED",
            said("spec", "this client stores strings only: it has no serializer"),
            said(
                "config",
                "every operation of the warm-up failed: connect:ECONNREFUSED Connection refused",
            ),
        ),
    ]
}
