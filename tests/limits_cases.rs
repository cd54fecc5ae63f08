//! Planned loads with known verdicts (`fixtures/proc/limit-cases.json`): each is written as a recording and
//! given to `systally preflight`.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::CommandCargoExt;
use serde_json::{Value, json};

/// The server's process in the recordings.
const SERVER_PID: i64 = 4711;

fn write(folder: &Path, name: &str, text: impl AsRef<str>) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text.as_ref()).unwrap();
}

/// A value as the kernel or the server would write it.
fn plain(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join("\t"),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn limits(nofile: &Value, nproc: Option<&Value>) -> String {
    let mut text =
        String::from("Limit                     Soft Limit           Hard Limit           Units\n");
    if let Some(nproc) = nproc {
        text.push_str(&format!(
            "Max processes             {}   {}   processes\n",
            nproc[0], nproc[1]
        ));
    }
    text.push_str(&format!(
        "Max open files            {}   {}   files\n",
        nofile[0], nofile[1]
    ));
    text
}

/// Writes a control group of version 2 with the limits of a case.
fn group(folder: &Path, who: &str, name: &str, cgroup: &Value) {
    write(folder, &format!("proc/{who}/cgroup"), format!("0::/{name}\n"));
    write(
        folder,
        &format!("sys/fs/cgroup/{name}/cgroup.controllers"),
        "cpu memory pids\n",
    );
    for (file, value) in cgroup.as_object().into_iter().flatten() {
        let text = match (file.as_str(), plain(value).as_str()) {
            ("cpu.max", "max") => "max 100000".to_owned(),
            (_, text) => text.to_owned(),
        };
        write(folder, &format!("sys/fs/cgroup/{name}/{file}"), text + "\n");
    }
}

/// Writes the machine and the server of a case as `--save-state` would have.
fn record(case: &Value, folder: &Path) {
    let (host, server, plan) = (&case["host"], &case["server"], &case["plan"]);
    for (name, value) in host.as_object().unwrap() {
        if ["fs.", "kernel.", "net.", "vm."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            write(
                folder,
                &format!("proc/sys/{}", name.replace('.', "/")),
                plain(value) + "\n",
            );
        }
    }
    write(folder, "proc/sys/kernel/osrelease", plain(&host["kernel"]));
    write(
        folder,
        "proc/loadavg",
        format!("0.00 0.00 0.00 1/{} 4712\n", host["tasks_now"]),
    );
    write(
        folder,
        "proc/meminfo",
        format!("MemAvailable: {} kB\n", host["mem_available_kb"]),
    );
    write(
        folder,
        "proc/self/limits",
        limits(&host["rlimit_nofile"], Some(&host["rlimit_nproc"])),
    );
    let uid = &host["uid"];
    write(
        folder,
        "proc/self/status",
        format!(
            "Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-1\n"
        ),
    );
    write(folder, "systally/uid_tasks", plain(&host["uid_tasks"]));
    write(
        folder,
        "proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    group(folder, "self", "client", &host["cgroup"]);
    let conntrack = &host["nf_conntrack"];
    if conntrack["active"] == json!(true) {
        for name in ["max", "count", "tcp_timeout_time_wait"] {
            write(
                folder,
                &format!("proc/sys/net/netfilter/nf_conntrack_{name}"),
                plain(&conntrack[name]),
            );
        }
    }

    let same_host = plan["same_host"] == json!(true);
    let same_netns = server["same_netns"] != json!(false);
    write(folder, "proc/self/ns/net", "net:[1]");
    if same_host {
        let pid = SERVER_PID;
        write(
            folder,
            &format!("proc/{pid}/limits"),
            limits(&server["process"]["rlimit_nofile"], None),
        );
        write(
            folder,
            &format!("proc/{pid}/fd.count"),
            plain(&server["process"]["fds_open"]),
        );
        write(
            folder,
            &format!("proc/{pid}/ns/net"),
            if same_netns { "net:[1]" } else { "net:[2]" },
        );
        group(folder, &pid.to_string(), "server", &server["cgroup"]);
    } else if let Some((host, _)) = plan["dst"].as_str().and_then(|dst| dst.rsplit_once(':')) {
        write(folder, &format!("systally/address/{host}"), "remote");
    }
    write(
        folder,
        "systally/server.json",
        witness(server, same_host, same_netns).to_string(),
    );
}

fn witness(server: &Value, same_host: bool, same_netns: bool) -> Value {
    let mut named = serde_json::Map::new();
    for part in ["config", "info", "stats"] {
        for (name, value) in server[part].as_object().into_iter().flatten() {
            named.insert(name.clone(), json!(plain(value)));
        }
    }
    let mut witness = json!({
        "kind": server["kind"],
        "version": server["version"],
        "answered": server["reachable"],
        "named": named,
    });
    if same_netns {
        let listeners = server["listeners"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|listener| {
                let address = match listener["path"].as_str() {
                    Some(path) => json!({"unix": path}),
                    None => json!({"tcp": format!("0.0.0.0:{}", listener["port"])}),
                };
                json!({
                    "address": address,
                    "queued": listener["recv_q"],
                    "backlog": listener["send_q"],
                    "drops": null,
                    "inode": 1,
                })
            });
        witness["listeners"] = listeners.collect();
    }
    if same_host {
        witness["pid"] = json!(SERVER_PID);
    } else {
        witness["nofile"] = server["process"]["rlimit_nofile"].clone();
        witness["fds_open"] = server["process"]["fds_open"].clone();
    }
    witness
}

/// The plan of a case as flags.
fn flags(plan: &Value) -> Vec<String> {
    let dst = plan["dst"].as_str().unwrap();
    let mut flags: Vec<String> = if plan["transport"] == json!("unix") {
        vec!["-s".into(), dst.into()]
    } else {
        let (host, port) = dst.rsplit_once(':').unwrap();
        vec!["-h".into(), host.into(), "-p".into(), port.into()]
    };
    let mode = if plan["mode"] == json!("connect_per_op") {
        "connect"
    } else {
        "persistent"
    };
    for (flag, value) in [
        ("-c", &plan["processes"]),
        ("--connections", &plan["conns_per_process"]),
        ("--mode", &json!(mode)),
        ("--rate", &plan["connect_rate_per_s"]),
        ("--client-fds", &plan["client_base_fds"]),
        ("--attempts", &plan["attempts_per_op"]),
        ("--closes-first", &plan["closes_first"]),
    ] {
        if !value.is_null() {
            flags.extend([flag.to_owned(), plain(value)]);
        }
    }
    flags
}

fn preflight(folder: &Path, flags: &[String]) -> (Value, Option<i32>) {
    let output = Command::cargo_bin("systally")
        .unwrap()
        .arg("preflight")
        .args(flags)
        .arg("--state")
        .arg(folder)
        .args(["--format", "json"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
    (record, output.status.code())
}

fn cases() -> Vec<Value> {
    let text = fs::read_to_string("fixtures/proc/limit-cases.json").unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all["cases"].as_array().unwrap().clone()
}

#[test]
fn every_case_gets_its_verdicts_and_no_false_alarm() {
    for case in cases() {
        let id = case["id"].as_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        record(&case, folder.path());
        let (record, code) = preflight(folder.path(), &flags(&case["plan"]));
        let limits = record["limits"].as_array().unwrap();
        let mut expected = Vec::new();
        for wanted in case["expect"]["preflight"].as_array().unwrap() {
            let name = &wanted["limit"];
            expected.push(name);
            let found = limits
                .iter()
                .find(|limit| limit["id"] == *name)
                .unwrap_or_else(|| panic!("{id}: no {name}"));
            for key in ["verdict", "demand", "capacity"] {
                assert_eq!(found[key], wanted[key], "{id}: {key} of {name}: {found:#}");
            }
            let effect = found["effect"].as_str().unwrap();
            if let Some(words) = wanted["effect"].as_str() {
                assert!(effect.contains(words), "{id}: {name}: {effect}");
            }
            if let Some(rate) = wanted["sustainable_rate_per_s"].as_u64() {
                assert!(
                    effect.contains(&format!("{rate} connects/s can last")),
                    "{id}: {effect}"
                );
            }
        }
        for limit in limits.iter().filter(|limit| !expected.contains(&&limit["id"])) {
            let quiet = [json!("ok"), json!("unknown"), json!("not_applicable")];
            assert!(
                quiet.contains(&limit["verdict"]),
                "{id}: a false alarm: {limit:#}"
            );
        }
        let fixes = limits
            .iter()
            .flat_map(|limit| limit["fix"].as_object().unwrap().values());
        let fixes: Vec<&str> = fixes.filter_map(Value::as_str).collect();
        let fixes = fixes.join("\n");
        for words in case["expect"]["fix_must_mention"].as_array().unwrap() {
            assert!(
                fixes.contains(words.as_str().unwrap()),
                "{id}: no fix mentions {words}"
            );
        }
        let fits = case["expect"]["preflight_exit"] == json!(0);
        assert_eq!(code, Some(if fits { 0 } else { 4 }), "{id}");
    }
}

#[test]
fn a_server_in_another_namespace_is_never_ok() {
    let mut case = cases().remove(0);
    case["server"]["same_netns"] = json!(false);
    let folder = tempfile::tempdir().unwrap();
    record(&case, folder.path());
    let (record, _) = preflight(folder.path(), &flags(&case["plan"]));
    for limit in record["limits"].as_array().unwrap() {
        if ["accept_backlog", "somaxconn"].contains(&limit["id"].as_str().unwrap()) {
            assert_eq!(limit["verdict"], json!("unknown"), "{limit:#}");
        }
    }
}
