//! What people reported in public threads, as files in the shape of what they had: `fixtures/imports/reports`.
//! For each, the meaning of what systally has to say, and what it must not say. The letters are those of the
//! collection of cases; those whose evidence is one of the files beside that folder stand in
//! `import_explains.rs`.

#![allow(clippy::unwrap_used)] // A test that cannot read its own files has failed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use systally::explain::{Finding, Severity, explain};
use systally::import::{import, into_record, open};

/// A case: the file, each code that must be found with words it must have, and codes that must not be found.
type Case = (
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
    &'static [&'static str],
);

const CASES: &[Case] = &[
    // Ports and connections.
    (
        "p2",
        &[
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &["after 40 that worked", "TIME_WAIT for 60 s", "28232 ports"],
            ),
            ("CONNECTION_PER_OPERATION", &["1.0 connect"]),
        ],
        &["CLIENT_NOFILE"],
    ),
    (
        "p2_state",
        &[(
            "EPHEMERAL_EXHAUSTED_TW",
            &["of 28232 local ports (100.0 %)", "tcp_tw_reuse=0", "470"],
        )],
        &["NO_LIMIT_REACHED"],
    ),
    // The errno stands beside the client's words.
    (
        "p3",
        &[(
            "EPHEMERAL_EXHAUSTED_TW",
            &["EADDRNOTAVAIL", "after 30 that worked"],
        )],
        &[],
    ),
    (
        "p5",
        &[(
            "CONNECTION_PER_OPERATION",
            &["a new connection for every operation"],
        )],
        &["CONNECTIONS_NEVER_CLOSED"],
    ),
    // Reuse makes most of these ports usable again.
    (
        "p7",
        &[(
            "EPHEMERAL_EXHAUSTED_TW",
            &["27099 of 28232", "96.0 %", "one peer", "reuses them after 1 s"],
        )],
        &[],
    ),
    (
        "p9",
        &[(
            "CONNECTION_PER_OPERATION",
            &["1.0 connect", "no close() after pconnect()"],
        )],
        &[],
    ),
    ("p11", &[("ERRNO_OF_TEXT", &["EADDRNOTAVAIL"])], &[]),
    (
        "p13",
        &[(
            "EPHEMERAL_EXHAUSTED_TW",
            &["consequence", "without an operation in between"],
        )],
        &[],
    ),
    // Descriptors.
    (
        "f2",
        &[("REDIS_MAXCLIENTS_BY_ULIMIT", &["10000", "4064", "(4096) less 32"])],
        &[],
    ),
    (
        "f4",
        &[(
            "REDIS_MAXCLIENTS_BY_ULIMIT",
            &["992", "(1024) less 32", "closed with an error"],
        )],
        &[],
    ),
    (
        "f6",
        &[(
            "OPEN_FILES_LIMIT",
            &["soft limit 1024", "4096", "unit", "shell's ulimit does not count"],
        )],
        &["NO_LIMIT_REACHED"],
    ),
    (
        "f10",
        &[
            ("CLIENT_NOFILE", &["EMFILE"]),
            ("CONNECTIONS_NEVER_CLOSED", &["60 connections", "0 closed"]),
        ],
        &[],
    ),
    (
        "f12",
        &[(
            "ACCEPT_NOFILE",
            &[
                "5 accepts failed with EMFILE",
                "counter of rejected connections",
                "stays 0",
            ],
        )],
        &["CLIENT_NOFILE"],
    ),
    (
        "f14",
        &[(
            "CONNECTIONS_NEVER_CLOSED",
            &["59 connections", "1.0 more each minute", "are reached in"],
        )],
        &[],
    ),
    // Queues.
    (
        "b2",
        &[("ERRNO_OF_TEXT", &["EAGAIN", "listen queue is full", "Linux"])],
        &[],
    ),
    // A connection for each of a hundred workers piles up nowhere.
    (
        "b4",
        &[(
            "UNIX_BACKLOG_EAGAIN",
            &["12 of 100", "listen queue", "somaxconn", "retry after a pause"],
        )],
        &["CONNECTIONS_NEVER_CLOSED", "EXPECTED_ERRORS"],
    ),
    (
        "b8",
        &[(
            "ERRNO_OF_TEXT",
            &["ECONNREFUSED", "BSD or macOS", "full queue of a UNIX socket"],
        )],
        &[],
    ),
    // Nagle and what looks like it.
    (
        "n1",
        &[
            ("NAGLE_DELAYED_ACK", &["20 of 20", "never set", "tcp_nodelay"]),
            ("SENT_IN_PIECES", &["8192 bytes", "PHP stream"]),
        ],
        &["NAGLE_NOT_THE_CAUSE"],
    ),
    (
        "n1_small",
        &[("NAGLE_NOT_THE_CAUSE", &["not the cause"])],
        &["NAGLE_DELAYED_ACK", "SENT_IN_PIECES"],
    ),
    ("n3", &[("NAGLE_DELAYED_ACK", &["11211", "several sends"])], &[]),
    (
        "n3_hits",
        &[("NAGLE_NOT_THE_CAUSE", &["longest wait"])],
        &["NAGLE_DELAYED_ACK"],
    ),
    (
        "n5",
        &[(
            "NAGLE_NOT_THE_CAUSE",
            &["TCP_NODELAY is not set", "not the cause"],
        )],
        &["NAGLE_DELAYED_ACK"],
    ),
    ("n7", &[("NAGLE_DELAYED_ACK", &["3306"])], &[]),
    (
        "n9",
        &[(
            "TIME_SPLIT",
            &["30 sendto, 1.45 s each, 2 500 000 bytes each", "not explained"],
        )],
        &["NAGLE_DELAYED_ACK"],
    ),
    (
        "n11",
        &[
            (
                "OUTSIDE_SYSCALLS",
                &["not in the system calls", "between recvfrom and sendto"],
            ),
            ("ROUND_TRIPS", &["20 operations share a round trip"]),
        ],
        &["NAGLE_DELAYED_ACK", "PIPELINE_NOT_BATCHED"],
    ),
    // Round trips.
    (
        "r3",
        &[
            ("PIPELINE_NOT_BATCHED", &["50 commands", "50 sends"]),
            ("LIVENESS_PROBES", &["50 of them liveness probes"]),
        ],
        &["UNEXPECTED_ERRORS"],
    ),
    (
        "r5",
        &[("ROUND_TRIPS", &["none are batched"])],
        &["PIPELINE_NOT_BATCHED"],
    ),
    (
        "r7",
        &[(
            "ROUND_TRIPS",
            &["100 operations, 100 round trips", "a pipeline would share"],
        )],
        &["CONNECTION_PER_OPERATION"],
    ),
    (
        "r9",
        &[(
            "ROUND_TRIPS",
            &[
                "100 operations, 10 round trips, 22 system calls",
                "10 operations share",
            ],
        )],
        &["PIPELINE_NOT_BATCHED"],
    ),
    (
        "r11",
        &[("PIPELINE_NOT_BATCHED", &["50 commands", "in 50 sends"])],
        &[],
    ),
    // Extra calls.
    (
        "x6",
        &[(
            "SERVER_SIDE",
            &[
                "1.0 write per request",
                "1.0 accept, 2.0 fcntl per new connection",
            ],
        )],
        &[],
    ),
    // Errnos.
    (
        "e1",
        &[(
            "EXPECTED_ERRORS",
            &[
                "all 5 errors",
                "EINPROGRESS",
                "EAGAIN",
                "ENOENT",
                "ECHILD",
                "ERESTARTSYS",
            ],
        )],
        &["UNEXPECTED_ERRORS"],
    ),
    (
        "e3",
        &[(
            "CONNECT_TIMED_OUT",
            &["wait of 500 ms ran out", "timed out, not in progress", "115"],
        )],
        &["EXPECTED_ERRORS", "UNEXPECTED_ERRORS"],
    ),
    (
        "e5",
        &[(
            "UNIX_BACKLOG_EAGAIN",
            &["EAGAIN", "where a TCP socket would wait"],
        )],
        &["EXPECTED_ERRORS"],
    ),
    (
        "e7",
        &[(
            "CONNECTION_REFUSED",
            &["SO_ERROR", "counting errnos per call misses it"],
        )],
        &["UNEXPECTED_ERRORS"],
    ),
    // Spinning.
    (
        "s2",
        &[("ACCEPT_NOFILE", &["closed without a read", "spare descriptor"])],
        &[],
    ),
    (
        "s4",
        &[(
            "EPOLL_STALE_FDS",
            &["EPOLL_CTL_ADD EEXIST", "EPOLL_CTL_DEL ENOENT"],
        )],
        &[],
    ),
    // Names.
    (
        "d1",
        &[(
            "NAME_LOOKUPS",
            &["6 queries", "3 connections", "15.0 s were lost"],
        )],
        &[],
    ),
    (
        "d3",
        &[(
            "NAME_LOOKUPS",
            &["before connect()", "no connect time-out covers it"],
        )],
        &["CONNECT_TIMED_OUT"],
    ),
    // Time-outs, and system calls that are not the cause.
    (
        "t1",
        &[
            ("NO_LIMIT_REACHED", &["3000 of 6599218", "191 of 10000"]),
            ("ERRNO_OF_TEXT", &["went away"]),
        ],
        &[
            "EPHEMERAL_EXHAUSTED_TW",
            "OPEN_FILES_LIMIT",
            "REDIS_MAXCLIENTS_BY_ULIMIT",
        ],
    ),
    (
        "t3",
        &[("WAIT_EQUALS_TIMEOUT", &["60.0 s", "default_socket_timeout"])],
        &["NAGLE_DELAYED_ACK"],
    ),
    (
        "t5",
        &[(
            "LOCK_WAIT",
            &["SETNX lock", "equal sleeps of 500 ms", "not the network"],
        )],
        &["NAGLE_DELAYED_ACK"],
    ),
    (
        "t7",
        &[(
            "WAIT_EQUALS_TIMEOUT",
            &["184 s", "no time-out of the client's own", "tcp_retries2"],
        )],
        &[],
    ),
    (
        "t7c",
        &[(
            "CONNECT_TIMED_OUT",
            &["131 s", "no time-out of the client's own", "tcp_syn_retries"],
        )],
        &[],
    ),
    // Clocks and files.
    (
        "v2",
        &[("CLOCK_SYSCALLS", &["1 000 000 clock calls", "hpet"])],
        &[],
    ),
    (
        "l1",
        &[
            ("FILE_CALLS", &["135 837 of 155 437", "start-up"]),
            ("MISSING_FILES", &["1 020"]),
        ],
        &[],
    ),
    (
        "l3",
        &[("CONNECTION_REFUSED", &["9003", "xdebug", "start_with_request"])],
        &["SERVER_DOWN"],
    ),
    // Tools.
    (
        "o4",
        &[("NO_PTRACE", &["CAP_SYS_PTRACE", "seccomp", "AppArmor", "yama"])],
        &[],
    ),
    ("o4b", &[("NO_PTRACE", &["several causes"])], &[]),
    (
        "o6",
        &[(
            "BLOCKED_IN_ONE_CALL",
            &["no system call finished", "not the same as no work"],
        )],
        &[],
    ),
    (
        "o10",
        &[(
            "UNKNOWN_SYSCALLS",
            &["syscall_0x104", "svr4_read is a name of another ABI"],
        )],
        &[],
    ),
    // States of a system that somebody pasted: what is full, and look-alikes that are fine.
    (
        "state_clients",
        &[(
            "REDIS_MAXCLIENTS",
            &[
                "998 of 1 000 clients",
                "61 were turned away",
                "CONFIG SET maxclients",
            ],
        )],
        &["NO_LIMIT_REACHED"],
    ),
    (
        "state_oom",
        &[(
            "REDIS_OOM",
            &[
                "refused 17 commands",
                "of maxmemory 1 GiB",
                "CONFIG SET maxmemory",
            ],
        )],
        &["REDIS_EVICTS", "NO_LIMIT_REACHED"],
    ),
    (
        "state_evicts",
        &[("REDIS_EVICTS", &["4 200 keys", "no write fails"])],
        &["REDIS_OOM"],
    ),
    (
        "state_cookies",
        &[
            (
                "SYNCOOKIES",
                &["port 6379", "nothing was lost", "tcp_max_syn_backlog"],
            ),
            ("TW_BUCKETS_OVERFLOW", &["tcp_max_tw_buckets", "fails no connect"]),
        ],
        &["SYNQ_FULL"],
    ),
    (
        "state_syn_drop",
        &[("SYNQ_FULL", &["port 6379", "tcp_syncookies=1"])],
        &["SYNCOOKIES"],
    ),
    (
        "state_conntrack",
        &[(
            "CONNTRACK_FULL",
            &["262 144 of 262 144", "2 lines", "nf_conntrack_max=524288"],
        )],
        &[],
    ),
    (
        "state_tcp_mem",
        &[(
            "TCP_MEMORY",
            &["570 000 of 575 796 pages", "1 line", "net.ipv4.tcp_mem="],
        )],
        &["TCP_ORPHANS"],
    ),
    (
        "state_ss_s",
        &[(
            "EPHEMERAL_EXHAUSTED_TW",
            &["28211 of 28232", "if the range is the usual"],
        )],
        &["TCP_ORPHANS"],
    ),
    (
        "state_unix_queue",
        &[(
            "LISTEN_OVERFLOW",
            &["512 of 511", "/run/redis/redis.sock", "EAGAIN from connect"],
        )],
        &[],
    ),
    (
        "state_fine",
        &[],
        &[
            "REDIS_MAXCLIENTS",
            "REDIS_OOM",
            "REDIS_EVICTS",
            "CONNTRACK_FULL",
            "TCP_MEMORY",
            "TCP_ORPHANS",
            "TW_BUCKETS_OVERFLOW",
            "SYNCOOKIES",
            "SYNQ_FULL",
            "LISTEN_OVERFLOW",
            "EPHEMERAL_EXHAUSTED_TW",
        ],
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/imports/reports")
}

fn findings(name: &str) -> Vec<Finding> {
    let path = folder().join(format!("{name}.txt"));
    let imported = import(open(&path).unwrap(), None).unwrap_or_else(|e| panic!("{name}: {e}"));
    explain(&into_record(vec![(name.to_owned(), imported)], None))
}

#[test]
fn every_report_is_told_its_cause() {
    let mut faults = Vec::new();
    for (name, wanted, unwanted) in CASES {
        let findings = findings(name);
        for (code, words) in *wanted {
            let of_code: Vec<String> = findings
                .iter()
                .filter(|f| f.code == *code)
                .map(|f| format!("{} {} {}", f.says, f.try_next, f.not_the_cause.join(" ")))
                .collect();
            if !of_code
                .iter()
                .any(|text| words.iter().all(|word| text.contains(word)))
            {
                faults.push(format!("{name}: {code} with {words:?}; said is {of_code:#?}"));
            }
        }
        for finding in &findings {
            if unwanted.contains(&finding.code.as_ref()) {
                faults.push(format!("{name}: must not say {}: {}", finding.code, finding.says));
            }
        }
        // What is said as a warning must be known to be true of the case.
        let known: BTreeSet<&str> = wanted.iter().map(|(code, _)| *code).collect();
        for finding in findings.iter().filter(|f| f.severity == Severity::Error) {
            if !known.contains(finding.code.as_ref()) {
                faults.push(format!(
                    "{name}: {} was not expected: {}",
                    finding.code, finding.says
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn many_files_with_equal_findings_are_one_row_and_the_record_keeps_each() {
    let table = |calls: u32| {
        format!(
            "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.000100           1       {calls}           read\n"
        )
    };
    let of = |text: String| import(Box::new(std::io::Cursor::new(text)), None).unwrap();
    let mut imports: Vec<_> = (1..=240)
        .map(|n| (format!("run-{n:03}.txt"), of(table(100 + n))))
        .collect();
    let odd = "socket(AF_INET, SOCK_STREAM, 0) = -1 EMFILE (Too many open files)\n";
    imports.push(("odd.log".to_owned(), of(odd.to_owned())));
    let mut record = into_record(imports, None);
    record.findings = explain(&record);
    let shown = |record: &systally::record::Record, all| {
        let view = systally::render::View {
            all_syscalls: all,
            ..systally::render::View::default()
        };
        systally::render::render(record, systally::render::Format::Table, &view).unwrap()
    };
    let text = shown(&record, false);
    assert!(text.contains("run-001.txt … run-240.txt (240 files)"), "{text}");
    assert!(
        text.contains("odd.log") && text.contains("CLIENT_NOFILE"),
        "{text}"
    );
    assert!(!text.contains("run-100.txt"), "{text}");
    assert!(text.lines().count() < 80, "{} lines", text.lines().count());
    // Each is there when it is asked for, and in the record.
    assert!(shown(&record, true).contains("run-100.txt"));
    let json = systally::record::wire::to_json(&record).unwrap();
    assert!(json.contains("run-100.txt"));
    // A few files are shown whole.
    record.imports.truncate(3);
    assert!(!shown(&record, false).contains("files)"));
}

#[test]
fn every_file_has_a_case() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let cases: BTreeSet<String> = CASES.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(files, cases);
}
