//! Planned loads with known verdicts (`fixtures/proc/limit-cases.json`, `limit-edges.json`): each is written as
//! a recording and given to `systally preflight`.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used)]

#[path = "limits_support/recording.rs"]
mod recording;

use std::fs;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::CommandCargoExt;
use recording::{flags, record};
use serde_json::{Value, json};

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

/// The cases of `fixtures/proc/limit-cases.json`.
fn cases() -> Vec<Value> {
    read("fixtures/proc/limit-cases.json")
}

fn read(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all["cases"].as_array().unwrap().clone()
}

/// The cases of `fixtures/proc/limit-edges.json`: each is one of the others with changes.
fn edges() -> Vec<Value> {
    let bases = cases();
    let edge = |edge: &Value| {
        let base = bases.iter().find(|case| case["id"] == edge["base"]).unwrap();
        let mut case = base.clone();
        merge(&mut case, &edge["change"]);
        case["id"] = edge["id"].clone();
        case["expect"] = edge["expect"].clone();
        case
    };
    read("fixtures/proc/limit-edges.json").iter().map(edge).collect()
}

/// A JSON merge patch (RFC 7386).
fn merge(into: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *into = change.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in change {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}

#[test]
fn every_case_gets_its_verdicts_and_no_false_alarm() {
    cases().iter().for_each(check);
}

/// Close to each limit on either side, and with terms that are missing, absurd or somebody else's.
#[test]
fn every_edge_gets_its_verdicts_and_no_false_alarm() {
    edges().iter().for_each(check);
}

fn check(case: &Value) {
    let id = case["id"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    record(case, folder.path());
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
            if wanted.get(key).is_none() {
                continue;
            }
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
    for words in case["expect"]["fix_must_mention"]
        .as_array()
        .into_iter()
        .flatten()
    {
        assert!(
            fixes.contains(words.as_str().unwrap()),
            "{id}: no fix mentions {words}"
        );
    }
    let fits = case["expect"]["preflight_exit"] == json!(0);
    assert_eq!(code, Some(if fits { 0 } else { 4 }), "{id}");
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
