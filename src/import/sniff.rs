//! Which format an input is of, by its first bytes.

use std::borrow::Cow;

use super::{IMPORTERS, ImportError, Importer, UnknownLines, text};

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
    pub(super) fn any(&self, test: impl Fn(&[u8]) -> bool) -> Sniff {
        if self.lines.iter().any(|line| test(line)) {
            Sniff::Yes
        } else if self.whole {
            Sniff::No
        } else {
            Sniff::NeedMore
        }
    }
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

/// How much of an input is read ahead to find its format.
pub(super) const LOOK_AHEAD: usize = 256 << 10;

pub(super) fn check_encoding(head: &[u8]) -> Result<(), ImportError> {
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

pub(super) fn first_line(head: &[u8]) -> Option<(u64, String)> {
    let mut number = 0;
    for line in head.split(|b| *b == b'\n') {
        number += 1;
        if !text::trim(line).is_empty() {
            return Some((number, text::shown(line, UnknownLines::WIDTH)));
        }
    }
    None
}
