//! Every file of `fixtures/imports` is read as its `.expected.json` says.

#![allow(clippy::unwrap_used)] // A test that cannot read its own files has failed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use systally::import::{self, Imported, ImportedTable, TimeKind};

#[derive(Debug, Deserialize)]
struct Expected {
    format: String,
    time_kind: String,
    rows: Option<Vec<ExpectedRow>>,
    total_calls: u64,
    total_calls_from: String,
    total_errors: Option<u64>,
    total_seconds: Option<f64>,
    elapsed_seconds: Option<f64>,
    tables: Option<Vec<ExpectedTable>>,
    #[serde(default)]
    incomplete: bool,
    unfinished: Option<u64>,
    ops: Option<u64>,
    processes: Option<u64>,
    groups: Option<Value>,
    by_process: Option<Value>,
    #[serde(default)]
    not_counted: Vec<String>,
    #[serde(default)]
    scaled: Vec<String>,
    abi_assumed: Option<String>,
    errors_from_log: Option<Value>,
    errnos: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    #[serde(default)]
    values: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct ExpectedRow {
    syscall: String,
    calls: u64,
    errors: Option<u64>,
    seconds: Option<f64>,
    abi: Option<String>,
    errnos: Option<BTreeMap<String, u64>>,
}

#[derive(Debug, Deserialize)]
struct ExpectedTable {
    label: String,
    rows: Vec<ExpectedRow>,
    total_calls: u64,
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/imports");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    cases.sort();
    assert!(cases.len() >= 47, "only {} cases", cases.len());
    cases
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b.abs().max(1.0)
}

struct Check<'a> {
    name: &'a str,
    faults: Vec<String>,
}

impl Check<'_> {
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, got: T, want: T) {
        if got != want {
            self.faults
                .push(format!("{}: {what}: got {got:?}, want {want:?}", self.name));
        }
    }

    fn rows(&mut self, what: &str, got: &ImportedTable, want: &[ExpectedRow]) {
        let mut got_names: Vec<_> = got
            .rows
            .iter()
            .map(|r| (r.syscall.clone(), r.abi.clone()))
            .collect();
        let mut want_names: Vec<_> = want.iter().map(|r| (r.syscall.clone(), r.abi.clone())).collect();
        got_names.sort();
        want_names.sort();
        self.same(&format!("{what}: names"), got_names, want_names);
        for row in want {
            let Some(have) = got
                .rows
                .iter()
                .find(|r| r.syscall == row.syscall && r.abi == row.abi)
            else {
                continue;
            };
            let at = format!("{what}: {}", row.syscall);
            self.same(&format!("{at}: calls"), have.calls, Some(row.calls));
            self.same(&format!("{at}: errors"), have.errors, row.errors);
            let seconds = have.time.map(|t| t.as_secs_f64());
            let same = match (seconds, row.seconds) {
                (Some(a), Some(b)) => close(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            if !same {
                self.faults.push(format!(
                    "{}: {at}: seconds: got {seconds:?}, want {:?}",
                    self.name, row.seconds
                ));
            }
            if let Some(errnos) = &row.errnos {
                self.same(&format!("{at}: errnos"), &have.errnos, errnos);
            }
        }
    }
}

fn check(name: &str, imported: &Imported, expected: &Expected) -> Vec<String> {
    let mut check = Check {
        name,
        faults: Vec::new(),
    };
    check.same("format", imported.format.name(), expected.format.clone());
    // What only the command line could tell is not in the file.
    let kind = if expected.time_kind.contains("known only from the command line") {
        TimeKind::Unknown.name()
    } else {
        expected.time_kind.split(' ').next().unwrap()
    };
    check.same("time kind", imported.time_kind.name(), kind);
    check.same("incomplete", imported.incomplete, expected.incomplete);
    if let Some(rows) = &expected.rows {
        let empty = ImportedTable::default();
        check.same("tables", imported.tables.len(), usize::from(!rows.is_empty()));
        let table = imported.tables.first().unwrap_or(&empty);
        check.rows("rows", table, rows);
        check.same("total calls", table.total_calls(), expected.total_calls);
        check.same(
            "stated total",
            table.stated.is_some(),
            expected.total_calls_from.contains("total line") || expected.total_calls_from == "total-line",
        );
        if expected
            .rows
            .as_ref()
            .is_some_and(|rows| rows.iter().any(|row| row.errors.is_some()))
        {
            let errors = table.stated.and_then(|s| s.errors).or(table.sum_errors());
            if let Some(want) = expected.total_errors {
                check.same("total errors", errors, Some(want));
            }
        }
        if let (Some(want), false) = (expected.total_seconds, rows.is_empty()) {
            let seconds = table
                .stated
                .and_then(|s| s.time)
                .map_or(-1.0, |t| t.as_secs_f64());
            if !close(seconds, want) {
                check
                    .faults
                    .push(format!("{name}: total seconds: got {seconds}, want {want}"));
            }
        }
    }
    if let Some(tables) = &expected.tables {
        let labels: Vec<&str> = imported.tables.iter().map(|t| t.label.as_str()).collect();
        let want: Vec<&str> = tables.iter().map(|t| t.label.as_str()).collect();
        check.same("table labels", labels, want);
        for (have, want) in imported.tables.iter().zip(tables) {
            check.rows(&want.label, have, &want.rows);
            check.same("total calls of a table", have.total_calls(), want.total_calls);
        }
        let all: u64 = imported.tables.iter().map(ImportedTable::total_calls).sum();
        check.same("total calls", all, expected.total_calls);
    }
    if let Some(errnos) = &expected.errnos {
        for (call, errnos) in errnos {
            let have = imported.tables[0].row(call).map(|row| &row.errnos);
            check.same("errnos", have, Some(errnos));
        }
    }
    if let Some(unfinished) = expected.unfinished {
        check.same("unfinished", imported.unfinished, unfinished);
    }
    if expected.processes.is_some() {
        check.same("processes", imported.processes, expected.processes);
    }
    if let Some(want) = expected.elapsed_seconds {
        check.same("elapsed", imported.elapsed.map(|t| t.as_secs_f64()), Some(want));
    }
    if imported.facts.is_some() && expected.ops.is_some() {
        check.same("operations counted in the log", imported.ops, expected.ops);
    }
    let json = serde_json::to_value(imported).unwrap();
    if let Some(groups) = &expected.groups {
        check.same("groups", &json["groups"], groups);
    }
    if let Some(by_process) = &expected.by_process {
        check.same("by process", &json["by_process"], by_process);
    }
    if let Some(errors) = &expected.errors_from_log {
        check.same("errors from the log", &json["errors_from_log"], errors);
    }
    check.same("not counted", &imported.not_counted, &expected.not_counted);
    check.same("scaled", &imported.scaled, &expected.scaled);
    check.same("abi", &imported.abi_assumed, &expected.abi_assumed);
    for (key, want) in &expected.values {
        check.same(&format!("value {key}"), imported.values.get(key), Some(want));
    }
    check.faults
}

#[test]
fn every_case_is_read_as_expected() {
    let mut faults = Vec::new();
    for path in cases() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let expected = fs::read_to_string(path.with_extension("expected.json")).unwrap();
        let expected: Expected = serde_json::from_str(&expected).unwrap();
        match import::import(import::open(&path).unwrap(), None) {
            Ok(imported) => faults.extend(check(&name, &imported, &expected)),
            Err(e) => faults.push(format!("{name}: {e}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_import_survives_json() {
    for path in cases() {
        let imported = import::import(import::open(&path).unwrap(), None).unwrap();
        let text = serde_json::to_string(&imported).unwrap();
        let back: Imported = serde_json::from_str(&text).unwrap();
        assert_eq!(imported, back, "{}", path.display());
    }
}
