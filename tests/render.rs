//! Golden tests of everything that is rendered: each record in `fixtures/records` in every format and at
//! several widths, against the files beside it.
//!
//! The folder is the list of tests: a new record is tested by being there. `SYSTALLY_BLESS=1` rewrites the
//! expected files; a missing one fails.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic as a test may")]

use std::path::{Path, PathBuf};

use systally::record::{Record, Status, wire};
use systally::render::{CountColumn, Format, SortBy, TimeKind, View, render};
use unicode_width::UnicodeWidthStr;

const WIDTHS: [usize; 3] = [120, 80, 220];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records")
}

fn records() -> Vec<(String, Record)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 4, "only {} records found", paths.len());
    paths
        .iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, wire::load(path).unwrap_or_else(|e| panic!("{e}")))
        })
        .collect()
}

fn record(name: &str) -> Record {
    wire::load(&folder().join(format!("{name}.json"))).unwrap_or_else(|e| panic!("{e}"))
}

/// Fails unless the text is what the file says; with `SYSTALLY_BLESS` makes it so.
fn golden(file: &str, text: &str) -> Result<(), String> {
    let path = folder().join("expected").join(file);
    if std::env::var_os("SYSTALLY_BLESS").is_some_and(|value| !value.is_empty()) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return Ok(());
    }
    let expected = std::fs::read_to_string(&path)
        .map_err(|e| format!("{file}: {e}; SYSTALLY_BLESS=1 writes it, then look at it"))?;
    let first = expected.lines().zip(text.lines()).position(|(a, b)| a != b);
    if expected == text {
        return Ok(());
    }
    let at = first.unwrap_or_else(|| expected.lines().count().min(text.lines().count()));
    Err(format!(
        "{file}, line {}:\n  expected: {:?}\n  rendered: {:?}",
        at + 1,
        expected.lines().nth(at).unwrap_or("<end>"),
        text.lines().nth(at).unwrap_or("<end>")
    ))
}

fn finish(failures: Vec<String>) {
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn wide(width: usize) -> View {
    View {
        width: Some(width),
        ..View::default()
    }
}

#[test]
fn every_record_looks_as_expected_in_every_format() {
    let mut failures = Vec::new();
    for (name, record) in records() {
        for width in WIDTHS {
            let text = render(&record, Format::Table, &wide(width)).unwrap();
            failures.extend(golden(&format!("{name}.{width}.txt"), &text).err());
        }
        // A record without counts has no such table.
        if let Ok(text) = render(&record, Format::Strace, &View::default()) {
            failures.extend(golden(&format!("{name}.strace"), &text).err());
        }
        let text = render(&record, Format::Markdown, &View::default()).unwrap();
        failures.extend(golden(&format!("{name}.md"), &text).err());
        let text = render(&record, Format::Csv, &View::default()).unwrap();
        failures.extend(golden(&format!("{name}.csv"), &text).err());
    }
    finish(failures);
}

#[test]
fn views_change_what_they_say_they_change() {
    let all = View {
        all_syscalls: true,
        header: false,
        ..View::default()
    };
    let terminal = View {
        colour: true,
        terminal: true,
        ..wide(100)
    };
    let by_errors = View {
        sort: SortBy::Errors,
        time: TimeKind::Wall,
        columns: vec![
            CountColumn::Name,
            CountColumn::Errors,
            CountColumn::Errnos,
            CountColumn::AvgTime,
            CountColumn::Unfinished,
            CountColumn::Bytes,
        ],
        ..View::default()
    };
    let peers = View {
        peers: true,
        header: false,
        ..View::default()
    };
    let mut failures = Vec::new();
    for (name, file, view) in [
        ("bench-mixed", "bench-mixed.peers.txt", &peers),
        ("count-ops", "count-ops.peers.txt", &peers),
        ("bench-mixed", "bench-mixed.all.txt", &all),
        ("bench-mixed", "bench-mixed.colour.txt", &terminal),
        ("count", "count.by-errors.txt", &by_errors),
    ] {
        let text = render(&record(name), Format::Table, view).unwrap();
        failures.extend(golden(file, &text).err());
    }
    finish(failures);
}

#[test]
fn a_record_file_is_what_would_be_written() {
    for (name, record) in records() {
        let file = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        assert_eq!(wire::to_json(&record).unwrap(), file, "{name}");
        assert_eq!(
            render(&record, Format::Json, &View::default()).unwrap(),
            file,
            "{name}"
        );
    }
}

#[test]
fn no_table_line_is_wider_than_the_reader() {
    for (name, record) in records() {
        for width in (80..=240).step_by(4) {
            let text = render(&record, Format::Table, &wide(width)).unwrap();
            for line in text.lines() {
                assert!(
                    line.width() <= width,
                    "{name} at {width}: {} columns: {line}",
                    line.width()
                );
            }
        }
    }
}

#[test]
fn nothing_from_a_record_reaches_the_terminal_as_a_control_character() {
    for (name, record) in records() {
        for format in [
            Format::Table,
            Format::Markdown,
            Format::Csv,
            Format::Json,
            Format::Strace,
        ] {
            let text = match render(&record, format, &View::default()) {
                Err(_) if format == Format::Strace => continue,
                text => text.unwrap(),
            };
            let bad = text.chars().find(|c| {
                (c.is_control() && *c != '\n')
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            });
            // JSON escapes control characters itself and keeps the others: a record is data, not a page.
            if format != Format::Json {
                assert_eq!(bad, None, "{name} as {format:?}");
            }
        }
    }
}

#[test]
fn plain_output_has_no_colour_and_no_trailing_blanks() {
    for (name, record) in records() {
        let text = render(&record, Format::Table, &View::default()).unwrap();
        assert!(!text.contains('\u{1b}'), "{name}");
        assert!(!text.contains('─'), "{name}");
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
        for line in text.lines() {
            assert_eq!(line, line.trim_end(), "{name}");
        }
    }
}

#[test]
fn every_markdown_row_has_as_many_cells_as_its_head() {
    for (name, record) in records() {
        let text = render(&record, Format::Markdown, &View::default()).unwrap();
        let mut cells = None;
        for line in text.lines() {
            if !line.starts_with('|') {
                cells = None;
                continue;
            }
            // Bars that are not escaped.
            let bars = line
                .char_indices()
                .filter(|(i, c)| *c == '|' && !line[..*i].ends_with('\\'))
                .count();
            assert_eq!(*cells.get_or_insert(bars), bars, "{name}: {line}");
        }
    }
}

#[test]
fn counts_of_chosen_calls_are_no_total_and_no_multiple_of_the_floor() {
    use systally::units::Measured;
    const WHY: &str = "the perf engine counts chosen calls only";
    let mut record = record("bench-full");
    for row in &mut record.strategies {
        if let Measured::Known(counted) = &mut row.counted {
            counted.floor_ratio = Measured::NotMeasured(WHY.to_owned());
            counted
                .phases
                .run_loop
                .syscalls
                .retain(|name, _| name == "sendto");
        }
    }
    let text = render(&record, Format::Csv, &View::default()).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    let at = |column: &str| head.iter().position(|name| name == column).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    let of_strategies = || rows.iter().filter(|row| &row[at("row")] == "strategy");
    assert!(of_strategies().count() > 0);
    for row in of_strategies() {
        assert_eq!(
            (&row[at("total_per_op")], &row[at("floor_ratio")]),
            ("", ""),
            "{row:?}"
        );
    }
    let table = render(&record, Format::Table, &wide(220)).unwrap();
    assert!(table.contains(WHY), "{table}");
}

#[test]
fn an_engine_that_sees_no_errors_does_not_say_that_none_failed() {
    use systally::units::Measured;
    let mut record = record("bench-full");
    record.strategies.truncate(1);
    let said = |record: &Record| render(record, Format::Table, &wide(220)).unwrap();
    let mut with = |errors: Measured<std::collections::BTreeMap<String, u64>>| {
        let row = &mut record.strategies[0];
        row.witness = Measured::NotMeasured("none".to_owned());
        let Measured::Known(counted) = &mut row.counted else {
            panic!("not counted");
        };
        for call in counted.phases.run_loop.syscalls.values_mut() {
            call.errors = errors.clone();
        }
        said(&record)
    };
    let none = "No call that was counted failed.";
    assert!(with(Measured::Known(Default::default())).contains(none));
    let unseen = with(Measured::NotMeasured("it sees entries only".to_owned()));
    assert!(
        !unseen.contains(none) && unseen.contains("did not see which calls failed"),
        "{unseen}"
    );
}

#[test]
fn the_speed_of_a_row_that_is_no_result_never_stands_like_a_good_one() {
    let record = record("bench-mixed");
    let (claimed, failed) = ("phpredis-2018/pipeline/tcp", "predis/connect/tcp");
    let row = |name: &str| record.strategies.iter().find(|row| row.name == name).unwrap();
    assert_eq!(row(claimed).status, Status::Unverified);
    assert_eq!(row(failed).status, Status::Failed);
    let median = |name: &str| row(name).timed.known().unwrap().ops_per_s.median;
    assert!(median(failed) > 60_000.0);

    let line = |text: &str, name: &str| {
        let begins = |line: &&str| line.trim_start_matches("| ").starts_with(name);
        text.lines().find(begins).unwrap().to_owned()
    };
    let table = render(&record, Format::Table, &wide(220)).unwrap();
    let markdown = render(&record, Format::Markdown, &View::default()).unwrap();
    for (text, mark) in [(&table, "1204113["), (&markdown, "1 204 113\\[")] {
        assert!(line(text, claimed).contains(mark), "{text}");
        let failed = line(text, failed);
        assert!(!failed.contains("65"), "{failed}");
        for why in [
            "the row failed, so what it reached before that is no result",
            "unverified: the server does not confirm",
        ] {
            assert_eq!(text.matches(why).count(), 1, "{text}");
        }
    }

    let csv = render(&record, Format::Csv, &View::default()).unwrap();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let head = reader.headers().unwrap().clone();
    let at = |column: &str| head.iter().position(|name| name == column).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    let of = |name: &str| {
        let mut rows = rows.iter();
        let is_it = |row: &&csv::StringRecord| &row[at("row")] == "strategy" && &row[at("strategy")] == name;
        rows.find(is_it).unwrap()
    };
    for column in [
        "ops_per_s",
        "ops_per_s_low",
        "vs_baseline",
        "p50_ns",
        "max_ns",
        "slowdown",
    ] {
        assert_eq!(&of(failed)[at(column)], "", "{column}");
    }
    assert!(of(failed)[at("not_measured")].contains("ops_per_s: the row failed"));
    assert!(of(claimed)[at("noise")].contains("unverified"));

    let picture = systally::render::plot::svg(&record).unwrap();
    assert!(
        !picture.contains(failed) && picture.contains("not drawn"),
        "{picture}"
    );
}

#[test]
fn csv_is_tidy() {
    for (name, record) in records() {
        let text = render(&record, Format::Csv, &View::default()).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().unwrap().clone();
        let at = |column: &str| head.iter().position(|name| name == column).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        // No cell is a formula, and no two rows are about the same thing.
        let mut keys = Vec::new();
        for row in &rows {
            for field in row {
                let number = field.parse::<f64>().is_ok();
                assert!(
                    number || !field.starts_with(['=', '+', '-', '@']),
                    "{name}: {field}"
                );
            }
            let key: Vec<&str> = [
                "row",
                "strategy",
                "op",
                "pipeline",
                "payload_bytes",
                "clients",
                "phase",
                "syscall",
                "errno",
                "reason",
            ]
            .iter()
            .map(|column| &row[at(column)])
            .collect();
            assert!(!keys.contains(&key), "{name}: {key:?} twice");
            keys.push(key);
        }
        // Calls of the record are found again, once each.
        let sum: u64 = rows
            .iter()
            .filter(|row| &row[at("row")] == "syscall" && &row[at("phase")] == "loop")
            .map(|row| row[at("calls")].parse::<u64>().unwrap())
            .sum();
        let counted = record.strategies.iter().filter_map(|row| row.counted.known());
        let expected: u64 = counted.map(|counted| counted.phases.run_loop.total()).sum();
        assert_eq!(sum, expected, "{name}");
        let strategies = rows.iter().filter(|row| &row[at("row")] == "strategy").count();
        assert_eq!(strategies, record.strategies.len(), "{name}");
    }
}

#[test]
fn the_schema_describes_the_records() {
    let schema = wire::schema();
    for (name, record) in records() {
        let value: serde_json::Value = serde_json::from_str(&wire::to_json(&record).unwrap()).unwrap();
        let mut misfits = Vec::new();
        fit(&value, &schema, &schema, &name, &mut misfits);
        assert!(misfits.is_empty(), "{}", misfits.join("\n"));
    }
    // The check itself finds what does not fit.
    let mut wrong: serde_json::Value =
        serde_json::from_str(&wire::to_json(&record("count")).unwrap()).unwrap();
    wrong["host"]["cores"] = "two".into();
    wrong["kind"] = "guess".into();
    wrong["strategies"][0]["colour"] = 1.into();
    wrong["schema"] = "systally/2".into();
    wrong["strategies"][0]["counted"]["phases"]["loop"]["syscalls"]["read"]["calls"] = (-1).into();
    let mut misfits = Vec::new();
    fit(&wrong, &schema, &schema, "wrong", &mut misfits);
    assert_eq!(misfits.len(), 5, "{misfits:#?}");
}

/// Checks a value against the part of JSON Schema that the published schema uses; an unknown keyword fails,
/// so that nothing is left unchecked.
fn fit(
    value: &serde_json::Value,
    schema: &serde_json::Value,
    root: &serde_json::Value,
    path: &str,
    misfits: &mut Vec<String>,
) {
    let rules = match schema {
        serde_json::Value::Bool(true) => return,
        serde_json::Value::Object(rules) => rules,
        other => return misfits.push(format!("{path}: the schema is {other}")),
    };
    for (rule, wanted) in rules {
        let holds = match rule.as_str() {
            "$schema" | "title" | "description" | "$defs" | "default" | "format" => true,
            "$ref" => {
                let target = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                fit(value, root.pointer(target).unwrap(), root, path, misfits);
                true
            }
            "type" => match wanted {
                serde_json::Value::Array(types) => types.iter().any(|one| is(value, one)),
                one => is(value, one),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|n| n <= wanted.as_f64().unwrap()),
            "anyOf" | "oneOf" => wanted.as_array().unwrap().iter().any(|option| {
                let mut inner = Vec::new();
                fit(value, option, root, path, &mut inner);
                inner.is_empty()
            }),
            "required" => wanted
                .as_array()
                .unwrap()
                .iter()
                .all(|key| value.get(key.as_str().unwrap()).is_some()),
            "properties" => {
                for (key, inner) in wanted.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        fit(value, inner, root, &format!("{path}.{key}"), misfits);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = rules.get("properties").and_then(serde_json::Value::as_object);
                for (key, inner) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(key)) {
                        continue;
                    }
                    if *wanted == serde_json::Value::Bool(false) {
                        misfits.push(format!("{path}.{key}: not allowed"));
                    } else {
                        fit(inner, wanted, root, &format!("{path}.{key}"), misfits);
                    }
                }
                true
            }
            "items" => {
                for (i, inner) in value.as_array().into_iter().flatten().enumerate() {
                    fit(inner, wanted, root, &format!("{path}.{i}"), misfits);
                }
                true
            }
            _ => false,
        };
        if !holds {
            misfits.push(format!("{path}: {rule} {wanted} does not hold for {value}"));
        }
    }
}

fn is(value: &serde_json::Value, name: &serde_json::Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}

/// What is written as strace's table is read as one, with the same counts.
#[test]
fn the_table_of_strace_is_read_back_to_the_same_counts() {
    use systally::import::{ImportFormat, import};
    for name in ["count", "count-ops", "bench-full", "bench-witness"] {
        let record = record(name);
        let text = render(&record, Format::Strace, &View::default()).unwrap();
        let imported = import(Box::new(std::io::Cursor::new(text.clone())), None).unwrap();
        assert_eq!(imported.format, ImportFormat::StraceSummary, "{text}");
        assert!(!imported.incomplete, "{name}: {:?}", imported.incomplete_because);
        let bench = record.kind == systally::record::Kind::Bench;
        let counted = record.strategies.iter().filter_map(|row| row.counted.known());
        let phases: Vec<_> = counted
            .flat_map(|counted| {
                let phases = &counted.phases;
                let around = |phase: &&systally::record::PhaseCounts| !bench && !phase.syscalls.is_empty();
                let startup = Some(&phases.startup).filter(around);
                let shutdown = Some(&phases.shutdown).filter(around);
                startup.into_iter().chain([&phases.run_loop]).chain(shutdown)
            })
            .collect();
        assert_eq!(imported.tables.len(), phases.len(), "{text}");
        for (table, phase) in imported.tables.iter().zip(phases) {
            let mut read: Vec<_> = table
                .rows
                .iter()
                .map(|row| (row.syscall.clone(), row.calls.unwrap(), row.errors.unwrap_or(0)))
                .collect();
            read.sort();
            let made: Vec<_> = phase
                .syscalls
                .iter()
                .filter(|(_, counts)| counts.calls > 0)
                .map(|(name, counts)| (name.clone(), counts.calls, counts.failed().unwrap_or(0)))
                .collect();
            assert_eq!(read, made, "{name}");
        }
    }
}
