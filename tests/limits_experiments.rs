//! Loads that were run against a real kernel and real servers, each with what happened: the verdict has to
//! say beforehand what then came.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use systally::limits::{Load, ServerFacts, ServerKind, check_all};
use systally::proc::Root;
use systally::proc::process::Rlimit;
use systally::proc::sockdiag::{Address, Listener};
use systally::record::Verdict::{self, Fail, NotApplicable, Ok, Warn};
use systally::strategy::contract::Endpoint;

/// A machine with kernel defaults, and changes to it.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(changes: &[(&str, &str)]) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        let defaults = [
            ("proc/sys/fs/file-max", "2466186"),
            ("proc/sys/fs/file-nr", "1500 0 2466186"),
            ("proc/sys/fs/nr_open", "1048576"),
            ("proc/sys/kernel/pid_max", "32768"),
            ("proc/sys/kernel/threads-max", "192730"),
            ("proc/loadavg", "0.00 0.00 0.00 1/220 999"),
            ("proc/sys/net/core/somaxconn", "4096"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768 60999"),
            ("proc/sys/net/ipv4/ip_local_reserved_ports", ""),
            ("proc/sys/net/ipv4/tcp_tw_reuse", "2"),
            ("proc/sys/net/ipv4/tcp_tw_reuse_delay", "1000"),
            ("proc/sys/net/ipv4/tcp_timestamps", "1"),
            ("proc/sys/net/ipv4/tcp_max_tw_buckets", "131072"),
            ("proc/sys/net/ipv4/tcp_fin_timeout", "60"),
            (
                "proc/self/limits",
                "Max processes 96365 96365 processes\nMax open files 1024 524288 files\n",
            ),
            (
                "proc/self/status",
                "Name: x\nUid: 1000 1000 1000 1000\nCapEff: 0000000000000000\nCpus_allowed_list: 0-1\n",
            ),
            ("systally/uid_tasks", "2"),
            ("proc/self/cgroup", "0::/a\n"),
            (
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/a/cgroup.controllers", "pids\n"),
        ];
        for (name, text) in defaults.iter().chain(changes) {
            let path = machine.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            std::fs::write(path, text).unwrap();
        }
        machine
    }

    fn verdict(&self, id: &str, load: &Load) -> Verdict {
        let readings = check_all(&Root::recorded(self.0.path()), load);
        readings.iter().find(|reading| reading.id == id).unwrap().verdict
    }
}

fn tcp(host: &str) -> Load {
    let endpoint = Endpoint::Tcp {
        host: host.into(),
        port: 6379,
        user: None,
        password: None,
    };
    Load {
        same_host: true,
        ..Load::to(&endpoint)
    }
}

fn unix() -> Load {
    Load::to(&Endpoint::Unix {
        path: "/run/r.sock".into(),
        user: None,
        password: None,
    })
}

fn listening(mut load: Load, backlog: u32) -> Load {
    let address = if load.tcp {
        Address::Tcp("0.0.0.0:6379".parse().unwrap())
    } else {
        Address::Unix("/run/r.sock".into())
    };
    load.server.listeners = Some(vec![Listener {
        address,
        queued: 0,
        backlog,
        drops: None,
        inode: 1,
    }]);
    load
}

fn per_op(processes: u64, load: Load) -> Load {
    Load {
        processes,
        connect_per_op: true,
        ..load
    }
}

#[test]
fn thirty_connects_to_a_stopped_server_with_room_for_seventeen() {
    let machine = Machine::new(&[]);
    for load in [tcp("127.0.0.1"), unix()] {
        assert_eq!(
            machine.verdict("accept_backlog", &per_op(30, listening(load.clone(), 16))),
            Fail
        );
        assert_eq!(
            machine.verdict("accept_backlog", &per_op(30, listening(load, 511))),
            Ok
        );
    }
}

#[test]
fn sixty_clients_at_a_barrier_need_a_backlog_of_fifty_nine() {
    let machine = Machine::new(&[]);
    for (backlog, lost) in [(8, true), (30, true), (58, true), (59, false)] {
        let verdict = machine.verdict("accept_backlog", &per_op(60, listening(unix(), backlog)));
        assert_eq!(verdict == Fail, lost, "backlog {backlog}");
    }
}

#[test]
fn retries_after_a_timeout_wait_beside_the_first_attempt() {
    let machine = Machine::new(&[]);
    let load = per_op(60, listening(tcp("127.0.0.1"), 59));
    assert_ne!(machine.verdict("accept_backlog", &load), Fail);
    assert_eq!(
        machine.verdict(
            "accept_backlog",
            &Load {
                attempts_per_op: 5,
                ..load
            }
        ),
        Fail
    );
}

#[test]
fn held_connections_take_a_port_each() {
    let range = ("proc/sys/net/ipv4/ip_local_port_range", "40000 40050");
    let held = |n, destinations| Load {
        connections_per_process: n,
        destinations,
        ..tcp("127.0.0.1")
    };
    let machine = Machine::new(&[range]);
    assert_eq!(machine.verdict("ephemeral_ports", &held(60, 1)), Fail);
    assert_eq!(machine.verdict("ephemeral_ports", &held(51, 1)), Warn);
    assert_eq!(machine.verdict("ephemeral_ports", &held(60, 2)), Ok);
    let reserved = Machine::new(&[
        range,
        ("proc/sys/net/ipv4/ip_local_reserved_ports", "40000-40024"),
    ]);
    assert_eq!(reserved.verdict("ephemeral_ports", &held(27, 1)), Fail);
    assert_eq!(reserved.verdict("ephemeral_ports", &held(26, 1)), Warn);
}

#[test]
fn a_hundred_connects_a_second_over_fifty_one_ports() {
    let range = ("proc/sys/net/ipv4/ip_local_port_range", "40000 40050");
    let quick = ("proc/sys/net/ipv4/tcp_tw_reuse_delay", "10");
    let reuse = |mode| ("proc/sys/net/ipv4/tcp_tw_reuse", mode);
    let load = |host| Load {
        connects_per_second: Some(100),
        ..per_op(1, tcp(host))
    };
    for (changes, host, fits) in [
        (vec![range, quick, reuse("0")], "127.0.0.1", false),
        (vec![range, quick, reuse("2")], "127.0.0.1", true),
        (vec![range, quick, reuse("2")], "10.0.0.1", false),
        (vec![range, quick, reuse("1")], "10.0.0.1", true),
        (
            vec![
                range,
                quick,
                reuse("2"),
                ("proc/sys/net/ipv4/tcp_timestamps", "0"),
            ],
            "127.0.0.1",
            false,
        ),
        // Few places for TIME_WAIT free the ports at once.
        (
            vec![range, reuse("0"), ("proc/sys/net/ipv4/tcp_max_tw_buckets", "5")],
            "10.0.0.1",
            true,
        ),
        // tcp_fin_timeout is not TIME_WAIT.
        (
            vec![range, reuse("0"), ("proc/sys/net/ipv4/tcp_fin_timeout", "5")],
            "10.0.0.1",
            false,
        ),
    ] {
        let verdict = Machine::new(&changes).verdict("ephemeral_ports", &load(host));
        assert_eq!(verdict != Fail, fits, "{changes:?} to {host}");
    }
    let quits = Load {
        server_closes_first: true,
        ..load("10.0.0.1")
    };
    assert_eq!(
        Machine::new(&[range, reuse("0")]).verdict("ephemeral_ports", &quits),
        Ok
    );
}

#[test]
fn ten_clients_that_reconnect_need_twenty_places() {
    let machine = Machine::new(&[]);
    let with = |maxclients, closes_first| {
        let mut load = per_op(10, tcp("127.0.0.1"));
        load.server_closes_first = closes_first;
        load.server = ServerFacts {
            maxclients: Some(maxclients),
            connected_clients: Some(0),
            ..load.server
        };
        machine.verdict("maxclients", &load)
    };
    for (maxclients, lost) in [(10, true), (12, true), (15, true), (20, false)] {
        assert_eq!(with(maxclients, false) == Fail, lost, "maxclients {maxclients}");
    }
    assert_ne!(with(10, true), Fail, "QUIT before close");
}

#[test]
fn two_hundred_clients_and_a_maxclients_lowered_by_ulimit() {
    let machine = Machine::new(&[]);
    let with = |nofile: u64| {
        let mut load = per_op(200, tcp("127.0.0.1"));
        load.server.maxclients = Some(nofile - 32);
        load.server.connected_clients = Some(0);
        load.server.nofile = Some(Rlimit {
            soft: Some(nofile),
            hard: Some(nofile),
        });
        machine.verdict("maxclients", &load)
    };
    assert_eq!(with(232), Fail);
    assert_ne!(with(464), Fail);
}

#[test]
fn forks_over_the_limits_of_user_group_and_namespace() {
    let forks = |n| Load {
        processes: n,
        ..unix()
    };
    let by_user = Machine::new(&[(
        "proc/self/limits",
        "Max processes 20 20 processes\nMax open files 64 64 files\n",
    )]);
    assert_eq!(by_user.verdict("nproc", &forks(40)), Fail);
    let by_group = Machine::new(&[
        ("sys/fs/cgroup/a/pids.max", "20\n"),
        ("sys/fs/cgroup/a/pids.current", "2\n"),
    ]);
    assert_eq!(by_group.verdict("pids_max", &forks(40)), Fail);
    assert_eq!(by_group.verdict("pids_max", &forks(10)), Ok);
    let by_ids = Machine::new(&[("proc/sys/kernel/pid_max", "320")]);
    assert_eq!(by_ids.verdict("pid_max", &forks(400)), Fail);
    let free = Machine::new(&[]);
    for id in ["nproc", "pids_max", "pid_max", "threads_max"] {
        assert_eq!(free.verdict(id, &forks(400)), Ok, "{id}");
    }
}

#[test]
fn a_table_of_twenty_followed_connections() {
    let table = |max| {
        Machine::new(&[
            ("proc/sys/net/netfilter/nf_conntrack_max", max),
            ("proc/sys/net/netfilter/nf_conntrack_count", "5"),
            ("proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait", "120"),
        ])
    };
    let held = Load {
        connections_per_process: 101,
        ..tcp("127.0.0.1")
    };
    assert_eq!(table("20").verdict("conntrack", &held), Fail);
    assert_eq!(table("1000").verdict("conntrack", &held), Ok);
    let over_unix = Load {
        connections_per_process: 101,
        ..unix()
    };
    assert_eq!(table("20").verdict("conntrack", &over_unix), NotApplicable);
}

#[test]
fn seventy_connections_and_sixty_four_descriptors() {
    let with = |limit| Machine::new(&[("proc/self/limits", limit)]);
    let load = Load {
        connections_per_process: 70,
        ..unix()
    };
    assert_eq!(
        with("Max open files 64 524288 files\n").verdict("client_nofile", &load),
        Fail
    );
    assert_eq!(
        with("Max open files 128 524288 files\n").verdict("client_nofile", &load),
        Ok
    );
}

#[test]
fn what_memcached_can_serve() {
    let machine = Machine::new(&[]);
    for (max, fds, usable) in [(30, 12, 17), (60, 24, 35), (1024, 25, 998)] {
        let with = |n| {
            let mut load = Load {
                connections_per_process: n,
                ..tcp("127.0.0.1")
            };
            load.server = ServerFacts {
                kind: ServerKind::Memcached,
                maxclients: Some(max),
                fds_open: Some(fds),
                ..load.server
            };
            machine.verdict("memcached_conns", &load)
        };
        assert_ne!(with(usable), Fail, "-c {max}");
        assert_eq!(with(usable + 1), Fail, "-c {max}");
    }
}

#[test]
fn the_machine_of_2016_had_files_enough() {
    let machine = Machine::new(&[
        ("proc/sys/fs/file-max", "100000"),
        ("proc/sys/fs/file-nr", "1500 0 100000"),
    ]);
    for load in [tcp("127.0.0.1"), unix()] {
        assert_eq!(machine.verdict("file_max", &per_op(1000, load)), Ok);
    }
}
