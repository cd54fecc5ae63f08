//! Whether a server is still alive, and if not, how it ended and what it said last.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ExitStatus;

use crate::units::escape;

/// How many lines of a server's output are quoted.
const LINES: usize = 6;
/// How many characters of each.
const WIDTH: usize = 200;

/// Whether a server is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It is running, as far as can be seen.
    Running,
    /// The private server has ended.
    Ended {
        /// How; `None` when somebody else took its exit status.
        status: Option<ExitStatus>,
        /// The last lines of its output, escaped.
        last_words: Vec<String>,
    },
    /// A server that systally did not start does not answer; why, in one clause.
    Silent(String),
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Health::Running => write!(f, "it is running"),
            Health::Silent(why) => write!(f, "it does not answer: {why}"),
            Health::Ended { status, last_words } => {
                match status {
                    // ExitStatus writes `exit status: 1` and `signal: 9 (SIGKILL)`.
                    Some(status) => write!(f, "it ended ({status})")?,
                    None => write!(f, "it ended")?,
                }
                match last_words.as_slice() {
                    [] => write!(f, " and said nothing"),
                    lines => write!(f, " and said last: {}", lines.join(" | ")),
                }
            }
        }
    }
}

/// The last lines of a log, escaped; empty when it cannot be read, since this only ever adds to another
/// message.
pub(super) fn last_words(log: &Path) -> Vec<String> {
    let mut tail = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let start = file.metadata()?.len().saturating_sub(16 << 10);
        file.seek(SeekFrom::Start(start))?;
        file.take(16 << 10).read_to_end(&mut tail)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&tail);
    let mut lines: Vec<String> = text
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(LINES)
        .map(|line| escape(line, WIDTH))
        .collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn last_words_are_few_and_harmless() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text: String = (0..2000).map(|i| format!("line {i}\n\n")).collect();
        std::fs::write(&log, text + "bad \u{1b}[31m\u{0}").unwrap();
        let words = last_words(&log);
        assert_eq!(words.len(), LINES);
        assert_eq!(words[0], "line 1995");
        assert!(!words.concat().chars().any(char::is_control), "{words:?}");
        assert!(last_words(&folder.path().join("missing")).is_empty());
    }

    #[test]
    fn an_end_is_told_in_one_line() {
        let ended = Health::Ended {
            status: Some(ExitStatus::from_raw(9)),
            last_words: vec!["a".into(), "b".into()],
        };
        assert_eq!(
            ended.to_string(),
            "it ended (signal: 9 (SIGKILL)) and said last: a | b"
        );
    }
}
