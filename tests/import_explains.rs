//! What `systally explain` has to say about the fixtures, and what it must not claim.
//!
//! The `must_note` sentences of the `.expected.json` files are about meaning; here each is a finding with
//! the words that carry it. A fixture with a new sentence and no entry here fails.

#![allow(clippy::unwrap_used)] // A test that cannot read its own files has failed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use systally::explain::{Finding, explain};
use systally::import::{import, into_record, open};
use systally::record::Record;
use systally::units::Ops;

/// Fixture, then for each of its `must_note` sentences, in order: code, and words of the finding.
type Said = (&'static str, &'static [&'static str]);
const NOTES: &[(&str, &[Said])] = &[
    (
        "a01_plain_new_total",
        &[
            (
                "WAITS_NOT_IN_TIMES",
                &["-c and -c -w print the same heading", "CPU or wall"],
            ),
            (
                "LIVENESS_PROBES",
                &["400 of 600", "2.0 per operation", "EAGAIN probes", "not failures"],
            ),
        ],
    ),
    (
        "a03_old_attach_md_rule",
        &[(
            "EXPECTED_ERRORS",
            &[
                "connect 680 of 680",
                "EINPROGRESS of non-blocking connects is possible",
                "ask for the errno",
            ],
        )],
    ),
    (
        "a04_wall_nagle_40ms",
        &[
            (
                "NAGLE_DELAYED_ACK",
                &["poll takes 40.4 ms a call", "shortest delayed ACK", "suspected"],
            ),
            (
                "NAGLE_DELAYED_ACK",
                &["2.0 sendto per operation", "header and body are sent apart"],
            ),
            ("NAGLE_DELAYED_ACK", &["TCP_NODELAY was not set on the socket"]),
        ],
    ),
    (
        "a05_cpu_nagle_same_run",
        &[(
            "WAITS_NOT_IN_TIMES",
            &[
                "2.16 ms",
                "waits are not contained",
                "-w or strace -T before naming the slow call",
            ],
        )],
    ),
    (
        "a10_all_zero_times",
        &[("NO_TIMES", &["no time information in this table"])],
    ),
    (
        "a13_U_min_max",
        &[("WAIT_EQUALS_TIMEOUT", &["longest poll 41 ms"])],
    ),
    (
        "a17_ctrlc_glued_header",
        &[(
            "EXPECTED_ERRORS",
            &[
                "read 3 of 188",
                "may be ERESTARTSYS",
                "as an error and counts the restart as a call",
            ],
        )],
    ),
    (
        "a23_grep_fragment",
        &[(
            "PIPELINE_NOT_BATCHED",
            &["101 sendto", "against 2", "the first does not batch its pipeline"],
        )],
    ),
    (
        "a27_quoted_mail",
        &[
            (
                "SERVER_SIDE",
                &["server side", "1.0 read and 1.0 write per request"],
            ),
            ("SERVER_SIDE", &["20 088 read errors are 0.01 per request"]),
        ],
    ),
    (
        "a29_empty_attach_only",
        &[(
            "BLOCKED_IN_ONE_CALL",
            &[
                "no system call finished",
                "blocked",
                "not the same as no work",
                "/proc/PID/syscall",
            ],
        )],
    ),
    (
        "a31_connect_per_op",
        &[
            (
                "CONNECTION_PER_OPERATION",
                &[
                    "1.0 connect, 1.0 socket, 2.0 setsockopt",
                    "a new connection for every operation",
                ],
            ),
            (
                "EXPECTED_ERRORS",
                &["connect 50 of 50", "EINPROGRESS", "expected"],
            ),
        ],
    ),
    (
        "b03_tt_T_phpredis_get",
        &[
            (
                "LIVENESS_PROBES",
                &[
                    "5 system calls for 1 operation",
                    "2 of them liveness probes",
                    "MSG_PEEK",
                ],
            ),
            ("EXPECTED_ERRORS", &["EAGAIN", "not failures"]),
        ],
    ),
    (
        "b09_ERESTARTSYS",
        &[(
            "INTERRUPTED_AND_RESTARTED",
            &["2 of 3 reads", "SIGUSR1", "no failure"],
        )],
    ),
    (
        "b11_unknown_number",
        &[(
            "UNKNOWN_SYSCALLS",
            &["strace -c drops calls", "would miss 3 of 4 calls", "mseal (462)"],
        )],
    ),
    (
        "b12_port_range_used_up",
        &[
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &["EADDRNOTAVAIL", "no free local port towards 127.0.0.1:6379"],
            ),
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &["closes the connection after each operation", "TIME_WAIT for 60 s"],
            ),
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &[
                    "ip_local_port_range and tcp_tw_reuse",
                    "28232 ports",
                    "470 new connections per second",
                    "tcp_tw_reuse=2",
                    "the rate must have been far higher or the range is small",
                ],
            ),
        ],
    ),
    (
        "b14_unix_backlog_eagain",
        &[(
            "UNIX_BACKLOG_EAGAIN",
            &[
                "EAGAIN",
                "listen queue of the server is full",
                "min(backlog, somaxconn)",
                "TCP socket would wait",
            ],
        )],
    ),
    (
        "b16_maxclients_on_wire",
        &[(
            "REDIS_MAXCLIENTS",
            &[
                "no call failed",
                "-ERR max number of clients",
                "hung up",
                "raise maxclients",
                "close idle clients",
            ],
        )],
    ),
    (
        "b18_idle_close_reconnect",
        &[(
            "SERVER_CLOSED_IDLE",
            &[
                "recv returned 0",
                "closed the idle connection",
                "timeout",
                "reconnected by itself",
            ],
        )],
    ),
    (
        "b20_epollerr_spin",
        &[(
            "EVENT_LOOP_SPIN",
            &[
                "descriptor 10",
                "again and again (EPOLLERR)",
                "EAGAIN each time",
                "busy loop",
                "SO_ERROR",
            ],
        )],
    ),
    (
        "b24_cut_file",
        &[("INCOMPLETE_TRACE", &["the log is cut at both ends"])],
    ),
    (
        "b26_epoll_create_per_command",
        &[
            (
                "READINESS_CHECK",
                &["4 extra calls per command", "readable", "needs a free descriptor"],
            ),
            ("SELECT_FD_LIMIT", &["above 1024 select() does not work"]),
        ],
    ),
    (
        "c01_perf_threads",
        &[("SUMMED_OVER_THREADS", &["wall time, summed over 2 threads"])],
    ),
    (
        "c03_perf_errno_summary",
        &[(
            "EXPECTED_ERRORS",
            &[
                "all 33 errors are expected",
                "path search",
                "EAGAIN",
                "EINPROGRESS",
            ],
        )],
    ),
    (
        "c05_perf_bpf_total",
        &[("WHOLE_MACHINE", &["system-wide", "not one program"])],
    ),
    (
        "d07_ltrace_c",
        &[(
            "LIBRARY_CALLS",
            &["library calls, not system calls", "do not belong in one table"],
        )],
    ),
    (
        "d09_syscount_L",
        &[
            ("PARTIAL_COUNTS", &["top 10 only", "other calls may be missing"]),
            ("WHOLE_MACHINE", &["system-wide unless syscount was given -p"]),
        ],
    ),
    (
        "d13_bpftrace_numbers",
        &[("NUMBERS_ASSUMED", &["x86_64", "another CPU has other numbers"])],
    ),
    (
        "e01_proc_limits_1024",
        &[
            (
                "OPEN_FILES_LIMIT",
                &["soft limit 1024", "raise itself to 4096, no further without root"],
            ),
            (
                "OPEN_FILES_LIMIT",
                &["10032 (maxclients 10000 + 32)", "4064 or 992 clients"],
            ),
        ],
    ),
    (
        "e03_ports_timewait",
        &[
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &[
                    "28189 of 28232 local ports (99.8 %)",
                    "TIME_WAIT towards one peer",
                ],
            ),
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &[
                    "only for loopback",
                    "peer is not loopback",
                    "blocked for 60 s",
                    "about 470",
                ],
            ),
            (
                "EPHEMERAL_EXHAUSTED_TW",
                &["first keep connections (pconnect, a pool); then tcp_tw_reuse=1; then a wider"],
            ),
        ],
    ),
    (
        "e05_listen_overflow",
        &[
            ("LISTEN_OVERFLOW", &["accept queue 129 of 128: full now"]),
            (
                "LISTEN_OVERFLOW",
                &["1 s, 3 s, 7 s (SYN retries) or time out, not \"connection refused\""],
            ),
            (
                "LISTEN_OVERFLOW",
                &["somaxconn AND the server's backlog (tcp-backlog), then restart"],
            ),
        ],
    ),
    (
        "e07_clocksource",
        &[(
            "CLOCK_SYSCALLS",
            &[
                "hpet",
                "real system calls",
                "tsc",
                "do not compare the counts of these two calls",
            ],
        )],
    ),
    (
        "e10_nofile_vs_file_max",
        &[(
            "SYSTEM_FILE_MAX",
            &[
                "ENFILE (\"... in system\")",
                "9984 of 10000",
                "311 of 65536",
                "is not the cause",
            ],
        )],
    ),
];

/// The code behind each `verdict` of the fixtures.
const VERDICTS: &[(&str, &str)] = &[
    ("ephemeral-ports-exhausted", "EPHEMERAL_EXHAUSTED_TW"),
    ("unix-listen-backlog-full", "UNIX_BACKLOG_EAGAIN"),
    ("server-maxclients", "REDIS_MAXCLIENTS"),
    ("server-closed-idle-connection", "SERVER_CLOSED_IDLE"),
    ("event-loop-spin", "EVENT_LOOP_SPIN"),
    ("fd-limit", "CLIENT_NOFILE"),
    ("listen-backlog-overflow", "LISTEN_OVERFLOW"),
    ("system-file-table-full", "SYSTEM_FILE_MAX"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/imports")
}

fn expected(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(format!("{name}.expected.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn record(name: &str) -> Record {
    let path = folder().join(format!("{name}.txt"));
    let imported = import(open(&path).unwrap(), None).unwrap();
    let ops = expected(name)["ops"].as_u64().map(Ops);
    into_record(vec![(name.to_owned(), imported)], ops)
}

fn whole(finding: &Finding) -> String {
    format!(
        "{} {} {}",
        finding.says,
        finding.try_next,
        finding.not_the_cause.join(" ")
    )
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()?
                .strip_suffix(".txt")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

#[test]
fn everything_that_must_be_said_is_said() {
    let mut faults = Vec::new();
    for name in names() {
        let sentences = expected(&name)["must_note"].as_array().map_or(0, Vec::len);
        let wanted = NOTES
            .iter()
            .find(|(fixture, _)| *fixture == name)
            .map_or(&[][..], |(_, w)| *w);
        if wanted.len() != sentences {
            faults.push(format!(
                "{name}: {sentences} sentences to say and {} checked here",
                wanted.len()
            ));
        }
        let findings = explain(&record(&name));
        for (code, words) in wanted {
            let of_code: Vec<String> = findings.iter().filter(|f| f.code == *code).map(whole).collect();
            if !of_code
                .iter()
                .any(|text| words.iter().all(|word| text.contains(word)))
            {
                faults.push(format!("{name}: {code} with {words:?}; said is {of_code:#?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn verdicts_are_errors_and_what_must_not_be_said_is_not() {
    let mut faults = Vec::new();
    for name in names() {
        let expected = expected(&name);
        let findings = explain(&record(&name));
        if let Some(verdict) = expected["verdict"].as_str() {
            match VERDICTS.iter().find(|(known, _)| *known == verdict) {
                Some((_, code)) if findings.iter().any(|f| f.code == *code) => {}
                Some((_, code)) => faults.push(format!("{name}: {verdict} is {code}, which was not found")),
                None => faults.push(format!("{name}: no code for {verdict}")),
            }
        }
        for forbidden in expected["must_not_say"].as_array().into_iter().flatten() {
            let forbidden = forbidden.as_str().unwrap().to_lowercase();
            for finding in &findings {
                let said = format!("{} {}", finding.says, finding.try_next).to_lowercase();
                if said.contains(&forbidden) {
                    faults.push(format!("{name}: {} says {forbidden}: {said}", finding.code));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_full_unix_queue_is_never_called_harmless() {
    for finding in explain(&record("b14_unix_backlog_eagain")) {
        assert_ne!(finding.code, "EXPECTED_ERRORS", "{}", finding.says);
    }
}

#[test]
fn findings_survive_a_record() {
    for name in names() {
        let mut record = record(&name);
        record.findings = explain(&record);
        let text = systally::record::wire::to_json(&record).unwrap();
        let back = systally::record::wire::from_json(&text).unwrap();
        assert_eq!(explain(&back), record.findings, "{name}");
    }
}
