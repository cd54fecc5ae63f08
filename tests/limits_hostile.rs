//! A recording may hold anything: nothing in it may end in a panic, in a wrong "ok", or in control
//! characters on a terminal.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "limits_support/recording.rs"]
mod recording;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use assert_cmd::cargo::CommandCargoExt;
use proptest::prelude::*;
use systally::limits::{Load, Witness, check_all, limit};
use systally::proc::{Root, counters, host};
use systally::record::Verdict;
use systally::strategy::contract::Endpoint;

/// Files that limits are read from.
const FILES: &[&str] = &[
    "proc/sys/fs/file-max",
    "proc/sys/fs/file-nr",
    "proc/sys/fs/nr_open",
    "proc/sys/kernel/pid_max",
    "proc/sys/kernel/threads-max",
    "proc/sys/net/core/somaxconn",
    "proc/sys/net/ipv4/ip_local_port_range",
    "proc/sys/net/ipv4/ip_local_reserved_ports",
    "proc/sys/net/ipv4/tcp_tw_reuse",
    "proc/sys/net/ipv4/tcp_timestamps",
    "proc/sys/net/ipv4/tcp_max_orphans",
    "proc/sys/net/ipv4/tcp_mem",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "proc/self/limits",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/net/sockstat",
    "proc/self/net/netstat",
    "proc/self/net/snmp",
    "proc/loadavg",
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/net/softnet_stat",
    "systally/listeners.json",
    "systally/server.json",
    "systally/uid_tasks",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

/// Pieces that kernel files are made of, and some that they never are.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "\n",
        "\t",
        " ",
        ":",
        "-",
        "max",
        "unlimited",
        "Max open files",
        "Max processes",
        "TcpExt: A B",
        "TCP: tw",
        "0::/a",
        "0::/../..",
        "MemAvailable:",
        "kB",
        "Uid:",
        "CapEff:",
        "1/2",
        "18446744073709551616",
        "\u{1b}[2J",
        "\u{202e}",
    ];
    prop_oneof![
        3 => prop::sample::select(known.as_slice().to_vec()).prop_map(str::to_owned),
        1 => any::<u64>().prop_map(|n| n.to_string()),
        1 => any::<i32>().prop_map(|n| n.to_string()),
        1 => "[a-z]{1,8}",
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_survived(
        files in prop::collection::btree_map(prop::sample::select(FILES), content(), 0..FILES.len()),
        processes in any::<u64>(),
        connections in any::<u64>(),
        rate in prop::option::of(any::<u64>()),
        connect_per_op in any::<bool>(),
        tcp in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in &files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let root = Root::recorded(folder.path());
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 6379, user: None, password: None };
        let load = Load {
            processes,
            connections_per_process: connections,
            connects_per_second: rate,
            connect_per_op,
            tcp,
            ..Load::to(&endpoint)
        };
        for reading in check_all(&root, &load) {
            for text in [&reading.effect, &reading.formula, &reading.fix.now] {
                prop_assert!(!text.chars().any(char::is_control), "{}: {text:?}", reading.id);
            }
            if reading.verdict == Verdict::Ok
                && let (Some(demand), Some(capacity)) = (reading.demand.known(), reading.capacity.known())
                // Beyond this one the kernel only frees sooner.
                && reading.id != "tw_buckets"
            {
                prop_assert!(demand <= capacity, "{}: {demand} of {capacity}", reading.id);
            }
        }
        let _ = host(&root);
        let _ = counters(&root, None);
        let _ = counters(&root, Some(1));
    }
}

/// What damage can do to a file of a recording.
const DAMAGES: &[&str] = &[
    "gone", "empty", "cut", "binary", "words", "negative", "huge", "pipe", "folder", "loop", "device",
];

/// A damaged file, which is whole again when this goes.
struct Damaged {
    path: PathBuf,
    before: Vec<u8>,
}

impl Damaged {
    fn file(path: PathBuf, how: &str) -> Damaged {
        let before = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let put = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        let link = |to: &Path| std::os::unix::fs::symlink(to, &path).unwrap();
        match how {
            "gone" => {}
            "empty" => put(b""),
            "cut" => put(&before[..before.len() / 2]),
            "binary" => put(b"\x00\xff\xfe\x80\x1b[2J\n"),
            "words" => put("\u{202e}no number here\n".as_bytes()),
            "negative" => put(b"-5 -5 -5\n"),
            "huge" => put(format!("{0} {0} {0}\n", "9".repeat(30)).as_bytes()),
            "pipe" => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            "folder" => std::fs::create_dir(&path).unwrap(),
            "loop" => link(&path),
            "device" => link(Path::new("/dev/zero")),
            _ => unreachable!("{how}"),
        }
        Damaged { path, before }
    }
}

impl Drop for Damaged {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.path);
        std::fs::write(&self.path, &self.before).unwrap();
    }
}

/// The names of all files below a folder.
fn files_below(folder: &Path) -> BTreeSet<String> {
    let mut folders = vec![folder.to_owned()];
    let mut files = BTreeSet::new();
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap();
                files.insert(name.to_str().unwrap().to_owned());
            }
        }
    }
    files
}

/// A load that every limit bears on, to the server of a recording.
fn load_of(root: &Root, connect_per_op: bool, tcp: bool) -> Load {
    let endpoint = if tcp {
        Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: 6379,
            user: None,
            password: None,
        }
    } else {
        Endpoint::Unix {
            path: "/run/redis/redis.sock".into(),
            user: None,
            password: None,
        }
    };
    let mut load = Load {
        processes: 3,
        connects_per_second: Some(10),
        connect_per_op,
        payload_bytes: 100,
        ..Load::to(&endpoint)
    };
    if let Ok(Some(witness)) = Witness::recorded(root) {
        load.server_pid = witness.pid;
        load.server = witness.facts(root);
    }
    load
}

/// A recording of a machine and a server on which all fits, as `--save-state` writes one.
fn saved_state(folder: &Path) {
    let text = std::fs::read_to_string("fixtures/proc/limit-cases.json").unwrap();
    let cases: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fits = cases["cases"].as_array().unwrap();
    let mut fits = fits.iter().find(|case| case["id"] == "fits").unwrap().clone();
    fits["host"]["uid"] = 1000.into();
    fits["host"]["nf_conntrack"] =
        serde_json::json!({"active": true, "max": 262144, "count": 9, "tcp_timeout_time_wait": 120});
    let group = serde_json::json!({
        "pids.max": 4000, "pids.current": 9, "memory.max": 8_000_000_000_u64, "memory.current": 10_000_000,
        "cpu.max": "200000 100000", "above": [{"pids.max": 30000, "pids.current": 60}],
    });
    fits["host"]["cgroup"] = group.clone();
    fits["server"]["cgroup"] = group;
    fits["server"]["config"]["maxmemory"] = 1_000_000_000.into();
    fits["server"]["config"]["client-output-buffer-limit"] = "normal 1000000 0 0".into();
    fits["server"]["info"]["used_memory"] = 1_000_000.into();
    let made = tempfile::tempdir().unwrap();
    recording::record(&fits, made.path());
    for (name, text) in [
        (
            "proc/self/net/sockstat",
            "TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 3\n",
        ),
        ("proc/sys/net/ipv4/tcp_mem", "94000 125000 188000\n"),
        ("proc/sys/net/ipv4/tcp_max_orphans", "65536\n"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304\n"),
        ("proc/sys/net/core/wmem_default", "212992\n"),
        ("proc/sys/vm/overcommit_memory", "0\n"),
        ("proc/self/ns/user", "user:[4026531837]\n"),
        ("systally/access/run/redis/redis.sock", "yes\n"),
    ] {
        let path = made.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let root = Root::recorded(made.path()).snapshot();
    assert!(Witness::recorded(&root).unwrap().is_some());
    for (connect_per_op, tcp) in [(true, true), (false, true), (false, false)] {
        check_all(&root, &load_of(&root, connect_per_op, tcp));
    }
    root.save(folder).unwrap();
}

/// The files whose content a limit decides on.
fn decides_on(state: &Path, id: &str, connect_per_op: bool, tcp: bool) -> BTreeSet<String> {
    let load = load_of(&Root::recorded(state), connect_per_op, tcp);
    let root = Root::recorded(state).snapshot();
    limit(id).unwrap().check(&root, &load);
    let out = tempfile::tempdir().unwrap();
    root.save(out.path()).unwrap();
    let mut files = files_below(out.path());
    files.remove("systally/absent");
    // Read for the words of a fix, or for what can only make matters better.
    match id {
        "accept_backlog" => _ = files.remove("proc/sys/net/core/somaxconn"),
        "ephemeral_ports" => _ = files.remove("proc/sys/net/ipv4/tcp_max_tw_buckets"),
        _ => {}
    }
    // Without these it is the listener that shows whose namespace it is.
    files.retain(|name| !name.ends_with("/ns/net"));
    // That it is there shows that the group can be seen.
    files.retain(|name| !name.ends_with("/cgroup.controllers"));
    // What is read beforehand and handed over.
    match id {
        "server_nofile" => files.extend(["systally/server.json".into(), "proc/4711/limits".into()]),
        "accept_backlog" | "maxclients" | "maxmemory" | "idle_timeout" | "output_buffer"
        | "server_memory_max" | "overcommit" => _ = files.insert("systally/server.json".into()),
        _ => {}
    }
    files
}

#[test]
fn a_damaged_recording_is_never_ok() {
    let state = tempfile::tempdir().unwrap();
    saved_state(state.path());
    let files = files_below(state.path());
    assert!(files.len() > 40, "{files:?}");
    let (mut decided, mut wrong) = (0, Vec::new());
    for (connect_per_op, tcp) in [(true, true), (false, false)] {
        let root = Root::recorded(state.path());
        let whole = check_all(&root, &load_of(&root, connect_per_op, tcp));
        for reading in &whole {
            assert!(
                !matches!(reading.verdict, Verdict::Fail | Verdict::Warn),
                "{reading:#?}"
            );
        }
        let fine: Vec<_> = whole
            .iter()
            .filter(|reading| reading.verdict == Verdict::Ok)
            .map(|reading| {
                let id = reading.id.as_str();
                (id, decides_on(state.path(), id, connect_per_op, tcp))
            })
            .collect();
        assert!(fine.len() > 15, "{fine:?}");
        for (file, how) in files
            .iter()
            .flat_map(|file| DAMAGES.iter().map(move |how| (file, how)))
        {
            let _damage = Damaged::file(state.path().join(file), how);
            let root = Root::recorded(state.path());
            let readings = check_all(&root, &load_of(&root, connect_per_op, tcp));
            for (id, _) in fine.iter().filter(|(_, files)| files.contains(file)) {
                let reading = readings.iter().find(|reading| reading.id == *id).unwrap();
                if reading.verdict != Verdict::Unknown {
                    wrong.push(format!(
                        "{file} {how}: {id} {:?}: {}",
                        reading.verdict, reading.effect
                    ));
                }
                decided += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "of {decided}: {wrong:#?}");
    assert!(decided > 500, "{decided}");
}

/// A small plan on a recording, whose folder follows.
const PREFLIGHT_OF: [&str; 8] = [
    "preflight",
    "-h",
    "127.0.0.1",
    "-c",
    "3",
    "--format",
    "json",
    "--state",
];

/// The program as a whole: it says what is wrong and ends, whatever the file and the damage.
#[test]
fn the_program_survives_a_damaged_recording() {
    let state = tempfile::tempdir().unwrap();
    saved_state(state.path());
    let preflight = |folder: &Path| {
        Command::cargo_bin("systally")
            .unwrap()
            .args(PREFLIGHT_OF)
            .arg(folder)
            .output()
            .unwrap()
    };
    let verdict = |output: &Output, id: &str| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let record: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
        let limits = record["limits"].as_array().unwrap().clone();
        let limit = limits.into_iter().find(|limit| limit["id"] == id).unwrap();
        limit["verdict"].as_str().unwrap().to_owned()
    };
    let whole = preflight(state.path());
    assert_eq!(
        (verdict(&whole, "maxclients"), whole.status.code()),
        ("ok".to_owned(), Some(0))
    );
    for file in ["systally/server.json", "systally/absent", "proc/self/limits"] {
        for how in DAMAGES {
            let _damage = Damaged::file(state.path().join(file), how);
            let output = preflight(state.path());
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!errors.contains("panicked"), "{file} {how}: {errors}");
            assert!(!errors.contains('\u{1b}'), "{file} {how}: {errors:?}");
            match file {
                "systally/server.json" => {
                    assert_eq!(verdict(&output, "maxclients"), "unknown", "{how}");
                    assert_eq!(output.status.code(), Some(1), "{how}: {errors}");
                    assert_eq!(errors.lines().count(), 1, "{how}: {errors}");
                }
                "proc/self/limits" => assert_eq!(verdict(&output, "client_nofile"), "unknown", "{how}"),
                // Nothing else is the worse for it.
                _ => assert_eq!(verdict(&output, "client_nofile"), "ok", "{how}"),
            }
        }
    }
}

/// A recording that another user made and nobody else may read.
#[test]
fn a_recording_that_may_not_be_read_is_unknown() {
    let state = tempfile::tempdir().unwrap();
    saved_state(state.path());
    let closed = PermissionsExt::from_mode(0o000);
    for name in files_below(state.path()) {
        std::fs::set_permissions(state.path().join(name), Permissions::clone(&closed)).unwrap();
    }
    std::fs::set_permissions(state.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = env!("CARGO_BIN_EXE_systally");
    let mut command = if nix::unistd::getuid().is_root() {
        // Root reads whatever there is.
        let user = ["--reuid=61235", "--regid=61235", "--clear-groups"];
        let may = Command::new("setpriv")
            .args(user)
            .args([program, "--version"])
            .output();
        if !may.is_ok_and(|output| output.status.success()) {
            return println!("SKIP: another user may not run this program, or there is no setpriv");
        }
        let mut command = Command::new("setpriv");
        command.args(user).arg(program);
        command
    } else {
        Command::new(program)
    };
    let output = command.args(PREFLIGHT_OF).arg(state.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let record: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
    for limit in record["limits"].as_array().unwrap() {
        let verdict = limit["verdict"].as_str().unwrap();
        assert!(["unknown", "not_applicable"].contains(&verdict), "{limit:#}");
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
}
