//! Records as text: the tables people read, the forms that reports and scripts take.
//!
//! A record becomes a [`model::Report`] once (`bench` and `count` build the tables, `prose` the words
//! around them), and each format writes that report in its own syntax. Only `csv` and `json` start from
//! the record itself: they carry the numbers themselves, not the selection that fits a page.
//!
//! A new format is one file, a variant of [`Format`] and a line in [`render`].

mod bench;
mod count;
mod count_columns;
mod count_peers;
mod csv;
mod failures;
mod imports;
mod json;
mod layout;
mod markdown;
pub mod model;
mod moving;
mod noise;
mod number;
pub mod plot;
mod preflight;
mod proofs;
mod prose;
mod scenario;
mod strace;
mod summary;
mod table;

use crate::record::wire::WireError;
use crate::record::{Kind, Record};
use crate::units::escape;

pub use count_columns::{CountColumn, SortBy, TimeKind};
pub use count_peers::{is_connection, on_peers};
pub use imports::FILES_SHOWN_WHOLE;
pub use number::{Number, Style};
pub use prose::{header, several_files};

/// Outside text for a place in a page of this format: in Markdown nothing in it is markup.
pub fn inline(text: &str, format: Format) -> String {
    match format {
        Format::Markdown => markdown::escaped(text),
        Format::Table | Format::Csv | Format::Json | Format::Strace => text.to_owned(),
    }
}

/// The width that is written for when nobody says how wide the reader is: a file or a pipe.
pub const DEFAULT_WIDTH: usize = 120;

/// The formats of `--format` and of the export flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people, folded to the width at hand.
    Table,
    /// GitHub Markdown: the same table, with findings as a list.
    #[value(name = "md", alias = "markdown")]
    Markdown,
    /// Tidy CSV: every number of the record, a row each for strategies, system calls and errnos.
    Csv,
    /// The record itself.
    Json,
    /// The table of `strace -c` to the letter, for what reads that: system calls only.
    Strace,
}

/// How a record is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Columns of the terminal; `None` for a file or a pipe, which get [`DEFAULT_WIDTH`].
    pub width: Option<usize>,
    /// Whether colours may be used. Whoever fills this looks at NO_COLOR, TERM and the kind of output.
    pub colour: bool,
    /// Whether the reader is a terminal, which gets drawn lines; anything else gets plain dashes.
    pub terminal: bool,
    /// Every system call that occurs gets its column, however rare, and every error its place.
    pub all_syscalls: bool,
    /// Whether server, host and plan stand above the tables; false when they were printed already.
    pub header: bool,
    /// The order of the rows of a count.
    pub sort: SortBy,
    /// Which time a count's `% time` and `usecs/call` are of.
    pub time: TimeKind,
    /// The columns of a count; none for the usual ones.
    pub columns: Vec<CountColumn>,
    /// Whether calls are also shown by what their descriptor leads to.
    pub peers: bool,
}

impl Default for View {
    /// For a file: plain, [`DEFAULT_WIDTH`] wide, with the header.
    fn default() -> View {
        View {
            width: None,
            colour: false,
            terminal: false,
            all_syscalls: false,
            header: true,
            sort: SortBy::default(),
            time: TimeKind::default(),
            columns: Vec::new(),
            peers: false,
        }
    }
}

/// Why a record could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The CSV writer refused a row.
    #[error("cannot write the CSV: {0}")]
    Csv(String),
    /// The record has no counts.
    #[error(
        "no system calls were counted here, so there is no table as strace has it; --format table says why"
    )]
    NoCounts,
    /// The record does not become JSON.
    #[error(transparent)]
    Json(#[from] WireError),
}

/// A line of prose in lines of at most the width of the view, each ended; whole where that has none.
pub fn fold(text: &str, view: &View) -> String {
    let lines = match view.width {
        Some(width) => layout::wrap(text, width),
        None => vec![text.to_owned()],
    };
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// The record in a format, ended by a newline.
///
/// # Errors
/// [`RenderError`], which no record made by systally causes.
pub fn render(record: &Record, format: Format, view: &View) -> Result<String, RenderError> {
    match format {
        Format::Table => {
            let mut report = report(record, view);
            if !view.terminal {
                // For awk and its kin, to whom a space ends a number.
                report.tables.iter_mut().for_each(model::Table::ungroup);
            }
            Ok(table::write(&report, view))
        }
        Format::Markdown => Ok(markdown::write(&report(record, view))),
        Format::Csv => csv::write(record),
        Format::Json => json::write(record),
        Format::Strace => strace::write(record, view),
    }
}

/// Only the findings of a record; CSV and JSON are those of the whole record.
///
/// # Errors
/// As [`render`].
pub fn render_findings(record: &Record, format: Format, view: &View) -> Result<String, RenderError> {
    let findings = || model::Report {
        findings: prose::findings(record),
        ..model::Report::default()
    };
    match format {
        Format::Table => Ok(table::write(&findings(), view)),
        Format::Markdown => Ok(markdown::write(&findings())),
        Format::Csv | Format::Json | Format::Strace => render(record, format, view),
    }
}

/// What is shown of a record, whatever the format.
pub fn report(record: &Record, view: &View) -> model::Report {
    let mut notes = model::Notes::default();
    let (tables, mut remarks) = match record.kind {
        Kind::Bench => bench::tables(record, view, &mut notes),
        Kind::Import if !record.imports.is_empty() => imports::tables(record, view, &mut notes),
        Kind::Count | Kind::Import => count::tables(record, view, &mut notes),
        Kind::Preflight => preflight::tables(record, view, &mut notes),
    };
    if record.imports.is_empty() {
        remarks.extend(prose::counted_notes(record));
    }
    model::Report {
        banner: prose::banner(record),
        header: if view.header { header(record) } else { Vec::new() },
        summary: match record.kind {
            Kind::Bench => summary::lines(record),
            Kind::Count | Kind::Import | Kind::Preflight => Vec::new(),
        },
        tables,
        remarks,
        limits: match record.kind {
            Kind::Preflight => preflight::details(record),
            Kind::Bench | Kind::Count | Kind::Import => prose::limits(record),
        },
        findings: prose::findings(record),
        proofs: proofs::lines(record),
        notes: notes.into_texts(),
    }
}

/// Text from outside, made safe to show.
fn shown(text: &str) -> String {
    const LONGEST: usize = 600;
    escape(text, LONGEST)
}
