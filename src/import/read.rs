//! An input read to its end: unpacked, unwrapped, its format found, and what holds for every format applied.

use std::io::{self, BufRead, Read};

use super::sniff::{LOOK_AHEAD, check_encoding, first_line, sniff};
use super::{
    ImportError, ImportFormat, Imported, ImportedTable, Importer, Sniff, TimeKind, importer, packed, returns,
    strace_log, wrapped,
};
use crate::units::{Nanos, total};

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
fn unwrapped(input: Box<dyn Read>, from: Option<ImportFormat>) -> Result<Box<dyn Read>, ImportError> {
    let mut input = returns::as_line_feeds(input)?;
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
        let input = returns::as_line_feeds(input).map_err(|e| of(e.into()))?;
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
