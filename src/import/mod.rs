//! Tables and logs of other tools, read into a [`crate::record::Record`].
//!
//! One file per format, listed in [`IMPORTERS`]; the format is found by looking at the content. An
//! importer reads a stream in bounded memory, counts what it does not understand instead of dropping it,
//! and never panics on any input.
//!
//! Counting rules of logs: one call per start line; `<unfinished ...>` and `resumed` are one call; a
//! `resumed` without its start is one call; a start without end is one call and is `unfinished`; a call
//! that a signal interrupted (`= ? ERESTARTSYS`) is an error as in `strace -c`, and benign; lines about
//! signals, exits, attaching and stacks are no calls.

mod bpftrace;
mod dtruss;
mod errnos;
pub mod facts;
mod input;
mod kdump;
mod lines;
mod ltrace;
pub mod model;
mod names;
mod packed;
mod pending;
mod perf_script;
mod perf_stat;
mod perf_trace;
mod perf_trace_log;
mod procsystime;
mod published;
mod record;
mod rows;
mod strace_log;
mod strace_summary;
mod syscount;
mod system;
mod text;
mod truss;
mod truss_log;
mod wrapped;

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign::number;
pub use input::open;
pub use model::{Group, Imported, ImportedTable, ProcessCount, Row, Stated, TimeKind, UnknownLines};
pub use record::into_record;

use crate::units::{Nanos, total};

/// A map with a fast hash whose seed is new for every map, so that no file can be made to collide in it.
type Map<K, V> = std::collections::HashMap<K, V, Hash>;
type Hash = foldhash::fast::RandomState;

/// The formats, by what prints them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ImportFormat {
    /// Table of `strace -c` (any version, `-w`, `-U`, `-S`).
    StraceSummary,
    /// Log of `strace` (`-f`, `-t…`, `-r`, `-T`, `-y…`, `-n`).
    StraceLog,
    /// Table of `perf trace -s`.
    PerfTraceSummary,
    /// Log of `perf trace`.
    PerfTraceLog,
    /// Output of `perf script` on a recording of system call tracepoints.
    PerfScript,
    /// Output of `perf stat` on system call tracepoints (`-x`, `-j`, plain).
    PerfStatCsv,
    /// Table of `dtruss -c` (macOS).
    DtrussC,
    /// Log of `dtruss` (macOS).
    DtrussLog,
    /// Table of `truss -c` on Solaris or illumos.
    TrussCSolaris,
    /// Table of `truss -c` on FreeBSD.
    TrussCFreebsd,
    /// Log of `truss`.
    TrussLog,
    /// Output of `kdump` (ktrace on a BSD).
    Kdump,
    /// Table of `ltrace -c`: library functions.
    LtraceC,
    /// Table of bcc's `syscount`.
    Syscount,
    /// Table of bcc's `syscount -P`: counts per process.
    SyscountByProcess,
    /// Map of counts printed by `bpftrace`.
    BpftraceMap,
    /// Tables of `procsystime` (DTrace toolkit).
    Procsystime,
    /// `/proc/PID/limits`.
    ProcLimits,
    /// Pasted network and descriptor state (sysctls, `ss`, `netstat -s`).
    NetState,
    /// `/sys/devices/system/clocksource`.
    Clocksource,
    /// The project's own transcriptions of published tables (JSON).
    Published,
}

impl ImportFormat {
    /// The name on the command line and in records.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

impl std::fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// Whether an importer takes an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sniff {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// What has been read so far does not tell.
    NeedMore,
}

/// The beginning of an input, as lines freed from what they were wrapped in.
#[derive(Debug)]
pub struct Head<'a> {
    /// The lines, the last one only when it is whole.
    pub lines: Vec<Cow<'a, [u8]>>,
    /// Whether this is all there is.
    pub whole: bool,
}

impl<'a> Head<'a> {
    /// Splits the first bytes of an input.
    pub fn new(bytes: &'a [u8], whole: bool) -> Head<'a> {
        let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
        let last = lines.pop();
        // A line longer than the whole look-ahead is judged by its beginning.
        if let Some(last) = last.filter(|last| !last.is_empty() && (whole || lines.is_empty())) {
            lines.push(last);
        }
        Head {
            lines: lines.into_iter().map(text::unwrap_line).collect(),
            whole,
        }
    }

    /// `Yes` when a line satisfies the test, else `No` or `NeedMore`.
    fn any(&self, test: impl Fn(&[u8]) -> bool) -> Sniff {
        if self.lines.iter().any(|line| test(line)) {
            Sniff::Yes
        } else if self.whole {
            Sniff::No
        } else {
            Sniff::NeedMore
        }
    }
}

/// A reader of one format. What it promises:
///
/// 1. `sniff` decides by the content alone and answers `Yes` to nothing that an importer before it in
///    [`IMPORTERS`] should have taken.
/// 2. `import` reads to the end in bounded memory, whatever the size of the input or of a line.
/// 3. Every line is part of the format, known noise, or counted in [`Imported::unknown_lines`].
/// 4. An input without a single line of the format is [`ImportError::NotThisFormat`].
pub trait Importer: Sync {
    /// Which format.
    fn format(&self) -> ImportFormat;
    /// Whether the input looks like it.
    fn sniff(&self, head: &Head<'_>) -> Sniff;
    /// Reads it.
    ///
    /// # Errors
    /// When the input cannot be read, or holds nothing of the format.
    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError>;
}

/// All importers. Those that go by a heading come before those that go by the shape of a line.
pub const IMPORTERS: &[&dyn Importer] = &[
    &published::Published,
    &perf_trace::PerfTraceSummary,
    &ltrace::LtraceC,
    &dtruss::DtrussC,
    &dtruss::DtrussLog,
    &truss::TrussCSolaris,
    &truss::TrussCFreebsd,
    // Its table of counts has syscount's heading; its titles tell it apart.
    &procsystime::Procsystime,
    &syscount::SyscountByProcess,
    &syscount::Syscount,
    // A sampled event has a number before its name, as a counter of perf stat has.
    &perf_script::PerfScript,
    &perf_stat::PerfStat,
    &kdump::Kdump,
    &perf_trace_log::PerfTraceLog,
    &truss_log::TrussLog,
    &strace_log::StraceLog,
    &strace_summary::StraceSummary,
    &bpftrace::BpftraceMap,
    &system::ProcLimits,
    &system::Clocksource,
    &system::NetState,
];

/// The importer of a format.
pub fn importer(format: ImportFormat) -> Option<&'static dyn Importer> {
    IMPORTERS
        .iter()
        .copied()
        .find(|importer| importer.format() == format)
}

/// Finds the importer of an input by its first bytes; `whole` says that there are no more.
///
/// The first importer in the list that says yes wins, once no earlier one still needs more.
pub fn sniff(bytes: &[u8], whole: bool) -> Option<(Sniff, Option<&'static dyn Importer>)> {
    let head = Head::new(bytes, whole);
    let mut wanting = false;
    for importer in IMPORTERS {
        match importer.sniff(&head) {
            Sniff::Yes if !wanting || whole => return Some((Sniff::Yes, Some(*importer))),
            Sniff::Yes => return Some((Sniff::NeedMore, Some(*importer))),
            Sniff::NeedMore => wanting = true,
            Sniff::No => {}
        }
    }
    wanting.then_some((Sniff::NeedMore, None))
}

/// Why an input could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Nothing in it.
    #[error("the input is empty: was the trace written to another file (strace -o), or is it still running?")]
    Empty,
    /// Not text.
    #[error(
        "this is not text: there is a zero byte at offset {offset}; perf.data, ktrace.out and recordings must be \
         printed first (perf trace -i, perf script, kdump)"
    )]
    Binary {
        /// Where the first zero byte is.
        offset: usize,
    },
    /// Text in two-byte units.
    #[error("this is UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8 FILE)")]
    Utf16,
    /// No importer takes it.
    #[error(
        "line {line} is of no format that systally knows: “{text}”; --from FORMAT names the format, and \
         systally import --help lists them"
    )]
    Unrecognised {
        /// The first line with text.
        line: u64,
        /// That line, escaped.
        text: String,
    },
    /// The importer that was asked for finds nothing of its format.
    #[error("nothing here is of the format {format}; the first line that is not: line {line}, “{text}”")]
    NotThisFormat {
        /// The format.
        format: ImportFormat,
        /// The first line that does not fit.
        line: u64,
        /// That line, escaped.
        text: String,
    },
    /// The input is damaged in a way that makes its counts worthless.
    #[error("line {line}: {what}: “{text}”")]
    Damaged {
        /// Where.
        line: u64,
        /// What is wrong.
        what: &'static str,
        /// The line, escaped.
        text: String,
    },
    /// Reading failed.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

/// The first line that an importer could not use, for [`ImportError::NotThisFormat`].
fn nothing_of(format: ImportFormat, unknown: &UnknownLines) -> ImportError {
    match unknown.first.first() {
        Some((line, text)) => ImportError::NotThisFormat {
            format,
            line: *line,
            text: text.clone(),
        },
        None => ImportError::Empty,
    }
}

/// How much of an input is read ahead to find its format.
const LOOK_AHEAD: usize = 256 << 10;
/// How much of it shows what it is wrapped in.
const WRAPPING: u64 = 16 << 10;

/// Reads an input of any format; `from` names the format, else it is found by the content.
///
/// # Errors
/// See [`ImportError`].
pub fn import(input: Box<dyn Read>, from: Option<ImportFormat>) -> Result<Imported, ImportError> {
    let (input, torn) = packed::decompressed(input)?;
    let mut imported = plain(input, from).map_err(|error| torn.explain(error))?;
    torn.note(&mut imported);
    finish(&mut imported);
    Ok(imported)
}

/// Takes off what stands before every line, when the rest is of a format.
fn unwrapped(mut input: Box<dyn Read>, from: Option<ImportFormat>) -> Result<Box<dyn Read>, ImportError> {
    let mut head = Vec::new();
    input.by_ref().take(WRAPPING).read_to_end(&mut head)?;
    let wrapping = wrapped::of(&head).filter(|kind| {
        let mut bare = Vec::new();
        // The numbers of lines pass for process ids, so they are looked for first.
        wrapped::Unwrapped::new(&*head, *kind)
            .read_to_end(&mut bare)
            .is_ok()
            && (from.is_some() || sniff(&bare, true).is_some())
    });
    let input = io::Cursor::new(head).chain(input);
    Ok(match wrapping {
        Some(kind) => Box::new(wrapped::Unwrapped::new(input, kind)),
        None => Box::new(input),
    })
}

fn plain(input: Box<dyn Read>, from: Option<ImportFormat>) -> Result<Imported, ImportError> {
    let mut input = unwrapped(input, from)?;
    let mut head = Vec::new();
    let mut whole = false;
    let mut found = from.and_then(importer);
    // A pipe may hand over a few bytes at a time: looked at again only when twice as much is there.
    let mut look_at = 64;
    loop {
        if whole || head.len() >= look_at {
            look_at = (head.len() * 2).min(LOOK_AHEAD);
            check_encoding(&head)?;
            if found.is_none()
                && let Some((answer, importer)) = sniff(&head, whole)
                && (answer == Sniff::Yes || whole || head.len() >= LOOK_AHEAD)
            {
                found = importer;
            }
        }
        // Enough for a heading; a trickling pipe is not waited for any longer than needed.
        if found.is_some() || whole || head.len() >= LOOK_AHEAD {
            break;
        }
        let mut chunk = vec![0; 64 << 10];
        match input.read(&mut chunk) {
            Ok(0) => whole = true,
            Ok(n) => head.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    if found.is_none() {
        // Only short of the end: decide with what there is.
        found = sniff(&head, true).and_then(|(_, importer)| importer);
    }
    let Some(importer) = found else {
        return Err(
            first_line(&head).map_or(ImportError::Empty, |(line, text)| ImportError::Unrecognised {
                line,
                text,
            }),
        );
    };
    let mut input = io::BufReader::with_capacity(256 << 10, io::Cursor::new(head).chain(input));
    if from.is_some() {
        let first = loop {
            match input.fill_buf() {
                Ok(first) => break first,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        };
        check_encoding(first)?;
        if first.is_empty() {
            return Err(ImportError::Empty);
        }
    }
    importer.import(&mut input)
}

/// What an input is, by its first bytes.
pub fn format_of(input: Box<dyn Read>) -> Option<ImportFormat> {
    let mut head = Vec::new();
    let mut input = unwrapped(packed::decompressed(input).ok()?.0, None)
        .ok()?
        .take(64 << 10);
    input.read_to_end(&mut head).ok()?;
    let (_, importer) = sniff(&head, true)?;
    importer.map(Importer::format)
}

/// Reads the files of one `strace -ff` run as the one run they are. Each comes with the process id in its
/// name.
///
/// # Errors
/// See [`ImportError`].
pub fn import_split_log(files: Vec<(u32, Box<dyn Read>)>) -> Result<Imported, ImportError> {
    let mut session = strace_log::Session::default();
    let mut torn = Vec::new();
    for (pid, file) in files {
        let of = |error: ImportError| match error {
            ImportError::Io(e) => ImportError::Io(io::Error::new(
                e.kind(),
                format!("the file of process {pid}: {e}"),
            )),
            error => error,
        };
        let (input, one) = packed::decompressed(file).map_err(of)?;
        torn.push(one);
        let mut input = io::BufReader::with_capacity(256 << 10, input);
        session.read(&mut input, Some(pid)).map_err(of)?;
    }
    let mut imported = session
        .finish()
        .map_err(|error| match torn.iter().find(|torn| torn.is_set()) {
            Some(torn) => torn.explain(error),
            None => error,
        })?;
    torn.iter().for_each(|torn| torn.note(&mut imported));
    finish(&mut imported);
    Ok(imported)
}

/// What holds for every format.
fn finish(imported: &mut Imported) {
    for table in &mut imported.tables {
        let Some(stated) = table.stated else { continue };
        let sum = table.sum_calls();
        if stated.calls > sum {
            let missing = stated.calls - sum;
            imported.incomplete = true;
            imported.incomplete_because.push(format!(
                "{}: the total line states {} calls and the rows sum up to {sum}: rows with {missing} calls are missing",
                table.label, stated.calls
            ));
        } else if stated.calls < sum {
            imported.notes.push(format!(
                "{}: the rows sum up to {sum} calls and the total line states only {}",
                table.label, stated.calls
            ));
        }
    }
    if imported.unfinished == 0 {
        imported.unfinished = total(imported.tables.iter().flat_map(|t| &t.rows).map(|r| r.unfinished));
    }
    let zero_time = |t: &ImportedTable| t.sum_time() == Some(Nanos(0)) && t.sum_calls() > 0;
    if imported.time_kind != TimeKind::None && imported.tables.iter().any(zero_time) {
        imported
            .notes
            .push("every time is zero: there is no time information in this table, and no shares can be taken from it".to_owned());
    }
}

fn check_encoding(head: &[u8]) -> Result<(), ImportError> {
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return Err(ImportError::Utf16);
    }
    // Without a mark: every other byte of the first ones is zero.
    let pairs = &head[..head.len().min(64)];
    let zeros = |offset: usize| pairs.iter().skip(offset).step_by(2).filter(|b| **b == 0).count();
    if pairs.len() >= 16
        && (zeros(0) * 2 >= pairs.len() - 2 || zeros(1) * 2 >= pairs.len() - 2)
        && zeros(0) != zeros(1)
    {
        return Err(ImportError::Utf16);
    }
    match memchr::memchr(0, &head[..head.len().min(LOOK_AHEAD)]) {
        Some(offset) => Err(ImportError::Binary { offset }),
        None => Ok(()),
    }
}

fn first_line(head: &[u8]) -> Option<(u64, String)> {
    let mut number = 0;
    for line in head.split(|b| *b == b'\n') {
        number += 1;
        if !text::trim(line).is_empty() {
            return Some((number, text::shown(line, UnknownLines::WIDTH)));
        }
    }
    None
}
