//! `systally import`: tables and logs of other tools, as a record; and a record of a run of systally's own, shown
//! again.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::cli::ImportArgs;
use crate::explain::explain;
use crate::import::{self, ImportFormat, Imported};
use crate::record::{Record, wire};
use crate::render::{Format, View, render};
use crate::units::{Ops, escape};

use super::{Code, CommandError, CommandResult, WithCode, print, terminal};

/// Reads the files and prints or writes the record. Ends with [`Code::Incomplete`] when a file is only a part
/// of what it should be.
///
/// # Errors
/// A file that cannot be read or is of no known format (exit code 2), or output that cannot be written.
pub fn run(args: &ImportArgs) -> CommandResult {
    let record = match own_run(args)? {
        Some(record) => record,
        None => {
            let mut record = read(&args.files, args.from, args.ops)?;
            record.findings = explain(&record);
            record
        }
    };
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout {
        print(&wire::to_json(&record)?)?;
    } else {
        let view = View {
            all_syscalls: args.all,
            peers: args.peers,
            ..match args.format {
                Format::Table => terminal::view(),
                Format::Markdown | Format::Csv | Format::Json | Format::Strace => View::default(),
            }
        };
        print(&render(&record, args.format, &view)?)?;
        // Last, so that what cannot be kept has been shown.
        if let Some(path) = &args.output {
            wire::save(&record, path)?;
        }
    }
    Ok(if record.complete {
        Code::Ok
    } else {
        Code::Incomplete
    })
}

/// The record of a run of systally's own, as it was written: its findings are those that the run printed.
///
/// # Errors
/// Such a record beside other files, or with flags for foreign ones.
fn own_run(args: &ImportArgs) -> Result<Option<Record>, CommandError> {
    for path in &args.files {
        if !is_record(path) {
            continue;
        }
        let record = wire::load(path).code(Code::Usage)?;
        if !record.imports.is_empty() {
            continue;
        }
        let alone = match (args.files.len(), args.from, args.ops) {
            (1, None, None) => return Ok(Some(record)),
            (1, ..) => "--from and --ops are for files of other tools",
            _ => "give it alone, so that its table is shown again",
        };
        return Err(anyhow!(
            "{}: this is the record of a run of systally's own; {alone}",
            escape(&path.display().to_string(), 200)
        ))
        .code(Code::Usage);
    }
    Ok(None)
}

/// Reads foreign files into one record.
///
/// # Errors
/// As [`run`].
pub(super) fn read(
    files: &[PathBuf],
    from: Option<ImportFormat>,
    ops: Option<u64>,
) -> Result<Record, CommandError> {
    let mut imports = Vec::new();
    let split = split_logs(files, from);
    let mut done: Vec<&Path> = Vec::new();
    for path in files {
        if done.contains(&path.as_path()) {
            continue;
        }
        let stem = stem_and_pid(path).map(|(stem, _)| stem);
        match stem.and_then(|stem| split.get(&stem)) {
            Some(parts) => {
                done.extend(parts.iter().map(|(_, path)| *path));
                imports.push((named(&path.with_extension("*")), read_split(parts)?));
            }
            None if from.is_none() && is_record(path) => imports.extend(of_record(path)?),
            None => imports.push((named(path), read_one(path, from)?)),
        }
    }
    Ok(import::into_record(imports, ops.map(Ops)))
}

/// Whether a file is a record: JSON with a schema of systally's. Pipes are never looked into.
pub(super) fn is_record(path: &Path) -> bool {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    if !is_file {
        return false;
    }
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(4096).read_to_end(&mut head));
    let head = String::from_utf8_lossy(&head);
    read.is_ok() && head.trim_start().starts_with('{') && head.contains("\"schema\"")
}

/// The foreign files that a record was made of.
fn of_record(path: &Path) -> Result<Vec<(String, Imported)>, CommandError> {
    let record = wire::load(path).code(Code::Usage)?;
    let shown = || escape(&path.display().to_string(), 200);
    if record.imports.is_empty() {
        return Err(anyhow!(
            "{}: this is a record of systally itself that holds no foreign file; systally import shows it, and systally \
             explain reads it",
            shown()
        ))
        .code(Code::Usage);
    }
    let imports = record.imports.into_iter();
    Ok(imports.map(|import| (import.file, import.imported)).collect())
}

fn named(path: &Path) -> String {
    if path == Path::new("-") {
        return "stdin".to_owned();
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    escape(&name.to_string_lossy(), 100)
}

fn read_one(path: &Path, from: Option<ImportFormat>) -> Result<Imported, CommandError> {
    let input = import::open(path).code(Code::Usage)?;
    import::import(input, from)
        .with_context(|| escape(&path.display().to_string(), 200))
        .code(Code::Usage)
}

/// `trace.1234` of `strace -ff -o trace`.
fn stem_and_pid(path: &Path) -> Option<(PathBuf, u32)> {
    let pid = path.extension().and_then(OsStr::to_str)?.parse().ok()?;
    Some((path.with_extension(""), pid))
}

/// The files that `strace -ff` wrote in one run: two or more with one stem, the first a log of strace.
fn split_logs(files: &[PathBuf], from: Option<ImportFormat>) -> BTreeMap<PathBuf, Vec<(u32, &Path)>> {
    let mut groups: BTreeMap<PathBuf, Vec<(u32, &Path)>> = BTreeMap::new();
    if from.is_some_and(|format| format != ImportFormat::StraceLog) {
        return groups;
    }
    for path in files {
        if let Some((stem, pid)) = stem_and_pid(path) {
            groups.entry(stem).or_default().push((pid, path));
        }
    }
    groups.retain(|_, parts| {
        let is_log = || {
            parts.iter().any(|(_, path)| {
                import::open(path)
                    .is_ok_and(|input| import::format_of(input) == Some(ImportFormat::StraceLog))
            })
        };
        parts.len() > 1 && is_log()
    });
    groups
}

fn read_split(parts: &[(u32, &Path)]) -> Result<Imported, CommandError> {
    let mut files: Vec<(u32, Box<dyn Read>)> = Vec::new();
    for (pid, path) in parts {
        files.push((*pid, import::open(path).code(Code::Usage)?));
    }
    import::import_split_log(files)
        .with_context(|| format!("{} files of strace -ff", parts.len()))
        .code(Code::Usage)
}
