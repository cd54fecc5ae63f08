//! Logs of `strace`: one line per call, or two when another thread's line came between.
//!
//! Works on bytes, line by line. What a line is, is found in [`crate::foreign::strace`]; [`Session`] puts halves
//! together, counts, and hands each whole call to the [`super::facts::collect::Collector`].

mod broken;
mod calls;
mod clock;
mod finish;
mod session;

use std::io::BufRead;

use super::model::Imported;
use super::{Head, ImportError, ImportFormat, Importer, Sniff};
use crate::foreign::strace::{self as scan, Event};

pub(super) use session::Session;

/// The importer.
pub(super) struct StraceLog;

impl Importer for StraceLog {
    fn format(&self) -> ImportFormat {
        ImportFormat::StraceLog
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| {
            let (_, body) = scan::prefix(line);
            match scan::event(body) {
                Event::Call(..) | Event::Unfinished(..) | Event::Resumed(..) => true,
                // `epoll_wait(5, ^Cstrace: Process 4711 detached`
                Event::Broken(_) => scan::inner_notice(line).is_some_and(|at| at > 0),
                _ => false,
            }
        })
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut session = Session::default();
        session.read(input, None)?;
        session.finish()
    }
}
