//! Planned loads of `fixtures/proc/limit-cases.json` as recordings for `systally preflight --state`.

// Each test program uses a part of this.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The server's process in the recordings.
pub(crate) const SERVER_PID: i64 = 4711;

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
            plain(&nproc[0]),
            plain(&nproc[1])
        ));
    }
    text.push_str(&format!(
        "Max open files            {}   {}   files\n",
        plain(&nofile[0]),
        plain(&nofile[1])
    ));
    text
}

/// Writes the control groups of a process, the lowest with the limits of a case and those `above` it, in
/// version 2 unless the case says `"version": 1`.
fn groups(folder: &Path, who: &str, name: &str, cgroup: &Value) {
    let empty = Vec::new();
    let above = cgroup["above"].as_array().unwrap_or(&empty);
    // The highest comes first in a path and last in the case.
    let mut parts: Vec<String> = (0..above.len())
        .rev()
        .map(|level| format!("{name}-{level}"))
        .collect();
    parts.push(name.to_owned());
    let path = parts.join("/");
    let first = cgroup["version"] == json!(1);
    let memberships = if first {
        format!("3:pids:/{path}\n2:memory:/{path}\n1:cpu,cpuacct:/{path}\n0::/\n")
    } else {
        format!("0::/{path}\n")
    };
    write(folder, &format!("proc/{who}/cgroup"), memberships);
    for (depth, group) in std::iter::once(cgroup).chain(above).enumerate() {
        let path = parts[..parts.len() - depth].join("/");
        if first {
            for controller in ["pids", "memory", "cpu,cpuacct"] {
                write(
                    folder,
                    &format!("sys/fs/cgroup/{controller}/{path}/notify_on_release"),
                    "0\n",
                );
            }
        } else {
            write(
                folder,
                &format!("sys/fs/cgroup/{path}/cgroup.controllers"),
                "cpu memory pids\n",
            );
        }
        for (file, value) in group.as_object().into_iter().flatten() {
            for (file, text) in group_files(first, file, &plain(value)) {
                let path = match (first, file.split('.').next()) {
                    (false, _) => path.clone(),
                    (true, Some("cpu")) => format!("cpu,cpuacct/{path}"),
                    (true, controller) => format!("{}/{path}", controller.unwrap_or_default()),
                };
                write(folder, &format!("sys/fs/cgroup/{path}/{file}"), text + "\n");
            }
        }
    }
}

/// The files that hold one setting of a group, which cases name as version 2 does.
fn group_files(first: bool, file: &str, text: &str) -> Vec<(String, String)> {
    let one = |file: &str, text: &str| vec![(file.to_owned(), text.to_owned())];
    match (first, file) {
        (_, "version" | "above") => Vec::new(),
        (true, "memory.max") => one(
            "memory.limit_in_bytes",
            // The largest long, rounded down to a page.
            if text == "max" {
                "9223372036854771712"
            } else {
                text
            },
        ),
        (true, "memory.current") => one("memory.usage_in_bytes", text),
        (true, "cpu.max") => {
            let (quota, period) = text.split_once(' ').unwrap_or((text, "100000"));
            let quota = if quota == "max" { "-1" } else { quota };
            [one("cpu.cfs_quota_us", quota), one("cpu.cfs_period_us", period)].concat()
        }
        (false, "cpu.max") if text == "max" => one(file, "max 100000"),
        _ => one(file, text),
    }
}

/// Writes the machine and the server of a case as `--save-state` would have.
pub(crate) fn record(case: &Value, folder: &Path) {
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
    let capabilities = host["capabilities"].as_str().unwrap_or("0000000000000000");
    write(
        folder,
        "proc/self/status",
        format!(
            "Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities}\nCpus_allowed_list:\t0-1\n"
        ),
    );
    write(folder, "systally/uid_tasks", plain(&host["uid_tasks"]));
    write(
        folder,
        "proc/self/mountinfo",
        if host["cgroup"]["version"] == json!(1) {
            "31 23 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             32 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             33 23 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        } else {
            "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        },
    );
    groups(folder, "self", "client", &host["cgroup"]);
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
        if !server["process"]["fds_open"].is_null() {
            write(
                folder,
                &format!("proc/{pid}/fd.count"),
                plain(&server["process"]["fds_open"]),
            );
        }
        write(
            folder,
            &format!("proc/{pid}/ns/net"),
            if same_netns { "net:[1]" } else { "net:[2]" },
        );
        groups(folder, &pid.to_string(), "server", &server["cgroup"]);
    }
    if let (Some((host, _)), false) = (
        plan["dst"].as_str().and_then(|dst| dst.rsplit_once(':')),
        plan["dst_is_loopback"] == json!(true),
    ) {
        let place = if same_host { "local" } else { "remote" };
        write(folder, &format!("systally/address/{host}"), place);
    }
    write(
        folder,
        "systally/server.json",
        witness(server, same_host, same_netns).to_string(),
    );
    for name in case["missing"].as_array().into_iter().flatten() {
        fs::remove_file(folder.join(name.as_str().unwrap())).unwrap();
    }
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
                    None => json!({"tcp": format!("[::]:{}", listener["port"])}),
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
        // The record has no limit as null.
        let limit = |at: usize| json!(server["process"]["rlimit_nofile"][at].as_u64());
        if server["process"]["rlimit_nofile"].is_array() {
            witness["nofile"] = json!([limit(0), limit(1)]);
        }
        witness["fds_open"] = server["process"]["fds_open"].clone();
    }
    witness
}

/// The plan of a case as flags.
pub(crate) fn flags(plan: &Value) -> Vec<String> {
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
        ("--shards", &plan["addresses"]),
    ] {
        if !value.is_null() {
            flags.extend([flag.to_owned(), plain(value)]);
        }
    }
    flags
}
