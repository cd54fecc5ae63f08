//! Sets of system calls as strace's `-e trace=` writes them: names, classes (`%network`, and `network` as
//! strace still takes it), `/regex`, and `!` for all but these.

use regex::Regex;

use super::trace_classes::{CLASSES, Class};
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

/// The calls that one word of a set stands for. A `?` before it means: no error when this machine does not
/// know it.
fn members(word: &str) -> Result<Vec<Syscall>, TraceSetError> {
    let known = word.trim_start_matches('?');
    match calls_of(known) {
        Err(_) if known.len() < word.len() => Ok(Vec::new()),
        result => result,
    }
}

fn calls_of(word: &str) -> Result<Vec<Syscall>, TraceSetError> {
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
    if let Some(name) = word.strip_prefix('%') {
        let name = if name == "net" { "network" } else { name };
        return class(name).map(calls_in).ok_or_else(|| TraceSetError::Class {
            name: escape(name, 40),
            known: CLASSES
                .iter()
                .map(|known| format!("%{}", known.name))
                .collect::<Vec<_>>()
                .join(", "),
        });
    }
    // Before the calls, as strace has it: `ipc` and `signal` are calls of 32-bit programs too.
    if let Some(class) = class(word).filter(|class| class.bare) {
        return Ok(calls_in(class));
    }
    let calls = Syscall::all_by_name(word);
    if !calls.is_empty() {
        return Ok(calls);
    }
    Err(TraceSetError::Unknown {
        name: escape(word, 40),
        hint: hint(word),
    })
}

fn class(name: &str) -> Option<&'static Class> {
    CLASSES.iter().find(|known| known.name == name)
}

fn calls_in(class: &Class) -> Vec<Syscall> {
    class.calls().flat_map(Syscall::all_by_name).collect()
}

/// The call or class that an unknown word may have been meant to be: `, did you mean …?`, or empty. A class
/// wins where both are as near: what is half of a name is rarely mistyped by two letters.
fn hint(word: &str) -> String {
    let classes = CLASSES.iter().map(|class| (class.name, "%"));
    classes
        .chain(names().map(|name| (name, "")))
        .map(|(name, sign)| (strsim::levenshtein(name, word), sign, name))
        .min_by_key(|(distance, ..)| *distance)
        .filter(|(distance, ..)| *distance <= 2)
        .map(|(_, sign, name)| format!(", did you mean {sign}{name}?"))
        .unwrap_or_default()
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

    /// strace takes the names of its older classes without the sign too, in every form of a set.
    #[test]
    fn older_classes_need_no_sign() {
        for name in ["network", "file", "process", "signal", "ipc", "desc", "memory"] {
            let signed = set(&format!("%{name}"));
            assert!(matches!(&signed, Ok(Selection::Only(calls)) if !calls.is_empty()));
            for form in ["", "trace=", "t=", "?"] {
                assert_eq!(set(&format!("{form}{name}")), signed, "{form}{name}");
            }
            let Ok(Selection::Except(calls)) = set(&format!("!{name}")) else {
                panic!("a negated class")
            };
            assert_eq!(Ok(Selection::Only(calls)), signed);
        }
        // Those that strace knows with the sign alone.
        assert_eq!(
            set("clock").map_err(|e| e.to_string()),
            Err("-e trace: there is no system call clock, did you mean %clock?".to_owned())
        );
        assert!(set("networ").is_err_and(|e| e.to_string().ends_with(", did you mean %network?")));
    }

    #[test]
    fn what_need_not_be_known_is_no_error() {
        let read = set("read");
        for word in ["?nosuch", "?%nosuch", "??nosuch"] {
            assert_eq!(set(&format!("{word},read")), read, "{word}");
        }
        assert_eq!(set("?read"), read);
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
