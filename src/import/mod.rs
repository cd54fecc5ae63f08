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
mod error;
pub mod facts;
mod format;
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
mod read;
mod record;
mod returns;
mod rows;
mod sniff;
mod strace_log;
mod strace_summary;
mod syscount;
mod system;
mod text;
mod truss;
mod truss_log;
mod wrapped;

use std::io::BufRead;

use crate::foreign::number;
pub use error::ImportError;
use error::nothing_of;
pub use format::ImportFormat;
pub use input::open;
pub use model::{Group, Imported, ImportedTable, ProcessCount, Row, Stated, TimeKind, UnknownLines};
pub use read::{format_of, import, import_split_log};
pub use record::into_record;
pub use sniff::{Head, Sniff, sniff};

/// A map with a fast hash whose seed is new for every map, so that no file can be made to collide in it.
type Map<K, V> = std::collections::HashMap<K, V, Hash>;

type Hash = foldhash::fast::RandomState;

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
