//! Where the results of a bench go: the lines above a table, the progress, and the files.

use std::io;
use std::path::Path;

use crate::cli::{BenchArgs, OutputArgs};
use crate::files;
use crate::record::{Record, wire};
use crate::render::{self, Format, View};

use super::{Code, CommandError, WithCode, describe, print, terminal, warn};

/// The form of what is printed.
pub(super) fn form(output: &OutputArgs) -> Format {
    if output.output.as_deref() == Some(Path::new("-")) {
        Format::Json
    } else if output.csv {
        Format::Csv
    } else {
        output.format
    }
}

/// A path that is not standard output.
pub(super) fn file(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| *path != Path::new("-"))
}

/// Makes sure that results can be written where they shall go, before minutes are spent on them.
pub(super) fn places(output: &OutputArgs) -> Result<(), CommandError> {
    let all = [
        &output.output,
        &output.export_markdown,
        &output.export_csv,
        &output.export_json,
        &output.export_svg,
    ];
    all.into_iter()
        .filter_map(|path| file(path.as_deref()))
        .try_for_each(files::check)
        .code(Code::Usage)
}

/// Where the lines above the table go: standard output with a table, standard error with a form that
/// programs read.
pub(super) struct Header {
    pub(super) format: Format,
    pub(super) quiet: bool,
}

impl Header {
    /// Words, which may be folded; the addresses and flags of other lines are to be copied whole.
    pub(super) fn prose(&self, text: &str) -> io::Result<()> {
        self.line(render::fold(text, &terminal::view()).trim_end())
    }

    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        match self.format {
            Format::Table => print(&format!("{text}\n")),
            Format::Markdown | Format::Csv | Format::Json | Format::Strace => {
                warn(text);
                Ok(())
            }
        }
    }
}

/// Prints the results and writes the files. One file that cannot be written does not cost the others.
///
/// # Errors
/// The first of what went wrong; the others are told on standard error.
pub(super) fn write_outputs(args: &BenchArgs, format: Format, record: &Record) -> Result<(), CommandError> {
    let view = View {
        all_syscalls: args.output.all,
        peers: args.output.peers,
        header: false,
        ..terminal::view()
    };
    let mut done = vec![print(&render::render(record, format, &view)?).map_err(CommandError::from)];
    if let Some(path) = file(args.output.output.as_deref()) {
        done.push(wire::save(record, path).map_err(CommandError::from));
    }
    for (path, format) in [
        (&args.output.export_markdown, Format::Markdown),
        (&args.output.export_csv, Format::Csv),
        (&args.output.export_json, Format::Json),
    ] {
        let Some(path) = path else { continue };
        let text = render::render(
            record,
            format,
            &View {
                all_syscalls: args.output.all,
                peers: args.output.peers,
                ..View::default()
            },
        )?;
        done.push(write(path, &text));
    }
    if let Some(path) = &args.output.export_svg {
        match render::plot::svg(record) {
            Some(picture) => done.push(write(path, &picture)),
            None => warn(
                "systally: --export-svg: no row has a speed (none was timed, or those that were failed), so there is nothing to draw",
            ),
        }
    }
    let mut errors = done.into_iter().filter_map(Result::err);
    let first = errors.next();
    for other in errors {
        warn(&format!("systally: {}", describe(&other.error)));
    }
    first.map_or(Ok(()), Err)
}

/// Writes a file, or standard output for `-`.
fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    if path == Path::new("-") {
        print(text)?;
    } else {
        files::write(path, text)?;
    }
    Ok(())
}
