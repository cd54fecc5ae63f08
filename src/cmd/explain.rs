//! `systally explain`: what the rules find in records and foreign files, and what each finding means.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::cli::ExplainArgs;
use crate::explain::{Doc, doc, docs, explain};
use crate::import::{Imported, UnknownLines};
use crate::record::{Import, Record, wire};
use crate::render::{FILES_SHOWN_WHOLE, Format, View, inline, render_findings, several_files};
use crate::units::{Grouped, escape, total};

use super::import::is_record;
use super::{Code, CommandError, CommandResult, WithCode, print, terminal};

/// Prints findings, or descriptions of findings.
///
/// # Errors
/// A file that cannot be read or is of no known format (exit code 2).
pub fn run(args: &ExplainArgs) -> CommandResult {
    if args.list {
        let mut text = String::new();
        for doc in docs() {
            describe(&mut text, doc)?;
        }
        print(&text)?;
        return Ok(Code::Ok);
    }
    let (codes, files): (Vec<&PathBuf>, Vec<&PathBuf>) = args
        .what
        .iter()
        .partition(|what| !what.exists() && code_of(what).is_some());
    let mut text = String::new();
    for code in codes {
        if let Some(doc) = code_of(code) {
            describe(&mut text, doc)?;
        }
    }
    print(&text)?;
    let mut foreign: Vec<PathBuf> = Vec::new();
    for file in files {
        if let Some(error) = unknown_code(file) {
            return Err(error).code(Code::Usage);
        }
        if is_record(file) {
            let record = wire::load(file).code(Code::Usage)?;
            show(record, file, args)?;
        } else {
            foreign.push(file.clone());
        }
    }
    if !foreign.is_empty() {
        let record = super::import::read(&foreign, args.from, args.ops)?;
        let name = foreign.first().cloned().unwrap_or_default();
        show(record, &name, args)?;
    }
    Ok(Code::Ok)
}

fn code_of(what: &Path) -> Option<&'static Doc> {
    doc(what.to_str()?)
}

/// What is neither a file nor a code, when it looks like a code.
fn unknown_code(what: &Path) -> Option<anyhow::Error> {
    let name = what.to_str()?;
    let is_code = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    if !is_code || what.symlink_metadata().is_ok() {
        return None;
    }
    let wanted = name.to_ascii_uppercase();
    let nearest = docs()
        .map(|doc| (strsim::jaro_winkler(&wanted, doc.code), doc.code))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.8)
        .map(|(_, code)| format!("; did you mean {code}?"))
        .unwrap_or_default();
    Some(anyhow!(
        "{}: there is no such file, and no finding of that name{nearest}; systally explain --list describes all of them",
        escape(name, 80)
    ))
}

/// Runs the rules anew: a newer systally may know more than the one that wrote the record.
fn show(mut record: Record, file: &Path, args: &ExplainArgs) -> Result<(), CommandError> {
    record.findings = explain(&record);
    let view = match args.format {
        Format::Table => terminal::view(),
        Format::Markdown | Format::Csv | Format::Json | Format::Strace => View::default(),
    };
    let mut text = render_findings(&record, args.format, &view)?;
    let people = matches!(args.format, Format::Table | Format::Markdown);
    if people && record.findings.is_empty() {
        let calls: u64 = record
            .strategies
            .iter()
            .filter_map(|row| row.counted.known())
            .map(|counted| counted.phases.run_loop.total())
            .fold(0, u64::saturating_add);
        writeln!(
            text,
            "{}: no rule finds anything here ({} rows, {} calls)",
            inline(&escape(&file.display().to_string(), 200), args.format),
            record.strategies.len(),
            Grouped(calls)
        )?;
    }
    if people {
        left_out(&mut text, &record, args.format)?;
    }
    print(&text)?;
    Ok(())
}

/// What was not understood of the files, the same of many files in one line.
fn left_out(text: &mut String, record: &Record, format: Format) -> std::fmt::Result {
    type Pick = fn(&Imported) -> &UnknownLines;
    let kinds: [(Pick, [&str; 3]); 2] = [
        (
            |imported| &imported.unknown_lines,
            ["line is", "lines are", "not understood and not counted"],
        ),
        (
            |imported| &imported.unusable_values,
            [
                "value is",
                "values are",
                "not used, because no run can have such a one",
            ],
        ),
    ];
    let each = record.imports.len() <= FILES_SHOWN_WHOLE;
    for (pick, [one, more, why]) in kinds {
        let concerned: Vec<&Import> = record
            .imports
            .iter()
            .filter(|import| !pick(&import.imported).is_empty())
            .collect();
        let groups: Vec<&[&Import]> = if each {
            concerned.chunks(1).collect()
        } else {
            concerned.chunks(concerned.len().max(1)).collect()
        };
        for group in groups {
            let count = total(group.iter().map(|import| pick(&import.imported).count));
            let names: Vec<&str> = group.iter().map(|import| import.file.as_str()).collect();
            let first = group
                .first()
                .and_then(|import| pick(&import.imported).first.first());
            let (line, first) = first.cloned().unwrap_or_default();
            writeln!(
                text,
                "\n{}: {} {} {why}, the first: line {line} “{first}”",
                inline(&several_files(&names), format),
                Grouped(count),
                if count == 1 { one } else { more },
                first = inline(&first, format)
            )?;
        }
    }
    Ok(())
}

fn describe(out: &mut String, doc: &Doc) -> std::fmt::Result {
    writeln!(out, "{}", doc.code)?;
    writeln!(out, "  means:      {}", doc.means)?;
    writeln!(out, "  measured:   {}", doc.measured)?;
    writeln!(out, "  wrong when: {}", doc.wrong_when)?;
    writeln!(out, "  to do:      {}\n", doc.todo)
}
