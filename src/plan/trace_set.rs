//! Sets of system calls as strace's `-e trace=` writes them: names, classes (`%network`), `/regex`, and
//! `!` for all but these.

use regex::Regex;

use super::trace_classes::CLASSES;
use crate::engine::Selection;
use crate::tally::{Abi, Syscall};
use crate::units::escape;

/// Why a set cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TraceSetError {
    /// No ABI knows a call of this name.
    #[error("-e trace: there is no system call {name}{hint}")]
    Unknown {
        /// The name, escaped.
        name: String,
        /// `, did you mean …?`, or empty.
        hint: String,
    },
    /// No class of this name.
    #[error("-e trace: there is no class %{name}; there are {known}")]
    Class {
        /// The name, escaped.
        name: String,
        /// All names.
        known: String,
    },
    /// A pattern that is no regular expression.
    #[error("-e trace: {pattern}: {why}")]
    Pattern {
        /// The pattern, escaped.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// A qualifier other than `trace`.
    #[error("-e {word}: only -e trace=SET is understood here")]
    Qualifier {
        /// The word, escaped.
        word: String,
    },
    /// Nothing is left to count.
    #[error("-e trace: the set is empty, nothing would be counted")]
    Empty,
}

/// Reads a set; several `-e` add up.
///
/// # Errors
/// See [`TraceSetError`].
pub fn parse(expressions: &[String]) -> Result<Selection, TraceSetError> {
    let mut only: Vec<Syscall> = Vec::new();
    let mut except: Vec<Syscall> = Vec::new();
    let mut all = expressions.is_empty();
    for expression in expressions {
        let set = match expression.split_once('=') {
            Some(("trace" | "t", set)) => set,
            Some((word, _)) => {
                return Err(TraceSetError::Qualifier {
                    word: escape(word, 40),
                });
            }
            None => expression,
        };
        let (target, set) = match set.strip_prefix('!') {
            Some(rest) => (&mut except, rest),
            None => (&mut only, set),
        };
        for word in set.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "all" => all = true,
                "none" => {}
                word => target.extend(members(word)?),
            }
        }
    }
    match (all || (only.is_empty() && !except.is_empty()), except.is_empty()) {
        (true, true) => Ok(Selection::All),
        (true, false) => Ok(Selection::Except(except)),
        (false, _) => {
            only.retain(|call| !except.contains(call));
            if only.is_empty() {
                Err(TraceSetError::Empty)
            } else {
                Ok(Selection::Only(only))
            }
        }
    }
}

/// The calls that one word of a set stands for.
fn members(word: &str) -> Result<Vec<Syscall>, TraceSetError> {
    if let Some(pattern) = word.strip_prefix('/') {
        let regex = Regex::new(pattern).map_err(|error| TraceSetError::Pattern {
            pattern: escape(pattern, 80),
            why: escape(&error.to_string(), 200),
        })?;
        return Ok(names()
            .filter(|name| regex.is_match(name))
            .flat_map(Syscall::all_by_name)
            .collect());
    }
    if let Some(class) = word.strip_prefix('%') {
        let class = if class == "net" { "network" } else { class };
        let found = CLASSES
            .iter()
            .find(|known| known.name == class)
            .ok_or_else(|| TraceSetError::Class {
                name: escape(class, 40),
                known: CLASSES
                    .iter()
                    .map(|known| format!("%{}", known.name))
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
        return Ok(found.calls().flat_map(Syscall::all_by_name).collect());
    }
    // A trailing `?` means: no error when this machine does not know it.
    let (optional, name) = match word.strip_prefix('?') {
        Some(name) => (true, name),
        None => (false, word),
    };
    let calls = Syscall::all_by_name(name);
    if calls.is_empty() && !optional {
        let nearest = names().min_by_key(|known| strsim::levenshtein(known, name));
        let hint = nearest
            .filter(|known| strsim::levenshtein(known, name) <= 2)
            .map(|known| format!(", did you mean {known}?"))
            .unwrap_or_default();
        return Err(TraceSetError::Unknown {
            name: escape(name, 40),
            hint,
        });
    }
    Ok(calls)
}

/// All names that the native ABI knows.
fn names() -> impl Iterator<Item = &'static str> {
    (0..1024).filter_map(|number| {
        Syscall {
            abi: Abi::NATIVE,
            number,
        }
        .bare_name()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(expression: &str) -> Result<Selection, TraceSetError> {
        parse(&[expression.to_owned()])
    }

    #[test]
    fn names_classes_and_patterns_add_up() {
        let native = |name| Syscall::by_name(Abi::NATIVE, name).expect("a known name");
        let Ok(Selection::Only(calls)) = set("trace=read,%network,/^epoll_") else {
            panic!("a set")
        };
        for name in ["read", "sendto", "connect", "epoll_wait", "epoll_ctl"] {
            assert!(calls.contains(&native(name)), "{name}");
        }
        assert!(!calls.contains(&native("write")));
        let Ok(Selection::Except(calls)) = set("trace=!futex") else {
            panic!("a negated set")
        };
        assert!(calls.contains(&native("futex")));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        assert_eq!(
            set("trace=recvform").map_err(|e| e.to_string()),
            Err("-e trace: there is no system call recvform, did you mean recvfrom?".to_owned())
        );
        assert!(matches!(set("signal=all"), Err(TraceSetError::Qualifier { .. })));
        assert!(matches!(set("trace=%nope"), Err(TraceSetError::Class { .. })));
        assert!(matches!(set("trace=/("), Err(TraceSetError::Pattern { .. })));
        assert_eq!(set("trace=none"), Err(TraceSetError::Empty));
        assert_eq!(set("trace=all"), Ok(Selection::All));
        assert_eq!(parse(&[]), Ok(Selection::All));
    }
}
