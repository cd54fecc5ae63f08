//! The command line of strace.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::super::start::search;
use crate::engine::{Program, Selection, Window};
use crate::tally::Syscall;

/// Bytes of strings that are printed: enough for the line that closes the window.
const STRINGS: &str = "24";

/// Calls that are always traced: what tells that the program has begun.
const ALWAYS: [&str; 2] = ["execve", "execveat"];
/// Calls that may be markers.
const MARKERS: [&str; 4] = ["read", "write", "writev", "sendto"];

/// strace in PATH.
pub(super) fn find() -> Option<PathBuf> {
    search(OsStr::new("strace"), std::env::var_os("PATH").as_deref()).ok()
}

/// The program as strace is told to start it: with streams, group and environment as they are, and a log
/// to this file.
pub(super) fn under_strace(
    strace: &Path,
    program: &Program,
    log: &Path,
    selection: &Selection,
    window: Window,
) -> Program {
    let mut argv: Vec<OsString> = vec![
        strace.into(),
        // Not the program's parent, and in no group or session whose signals are meant for the program:
        // strace 6.1 stays in its group with `pgroup`.
        "--daemonize=session".into(),
        "--follow-forks".into(),
        "--syscall-number".into(),
        "--absolute-timestamps=format:unix,precision:ns".into(),
        "--syscall-times=ns".into(),
        // Everything else would hide which ABI a process calls by.
        "--quiet=attach,path-resolution".into(),
        "--string-limit".into(),
        STRINGS.into(),
    ];
    if let Some(set) = trace_set(selection, window) {
        argv.push(format!("--trace={set}").into());
    }
    argv.extend(["--output".into(), log.into(), "--".into()]);
    argv.extend(program.argv.iter().cloned());
    Program {
        argv,
        ..program.clone()
    }
}

/// What strace traces; `None` for everything. A superset of the selection: the rest is left out when the
/// log is read.
fn trace_set(selection: &Selection, window: Window) -> Option<String> {
    let needed = |name: &&str| match window {
        Window::Markers => ALWAYS.contains(name) || MARKERS.contains(name),
        Window::Whole => ALWAYS.contains(name),
    };
    let name = |call: &Syscall| call.bare_name();
    match selection {
        Selection::All => None,
        Selection::Only(calls) => {
            // A number without a name cannot be asked for.
            let mut names = calls.iter().map(name).collect::<Option<BTreeSet<_>>>()?;
            names.extend(ALWAYS.iter().chain(&MARKERS).copied().filter(|one| needed(one)));
            // A name that this strace does not know is no error.
            let names: Vec<String> = names.into_iter().map(|name| format!("?{name}")).collect();
            Some(names.join(","))
        }
        Selection::Except(calls) => {
            // A name stands for the call in every ABI, so it is only left out where all of them are.
            let is_left_out = |name: &&str| {
                !needed(name) && Syscall::all_by_name(name).iter().all(|call| calls.contains(call))
            };
            let names: BTreeSet<&str> = calls.iter().filter_map(name).filter(is_left_out).collect();
            let names: Vec<String> = names.into_iter().map(|name| format!("?{name}")).collect();
            (!names.is_empty()).then(|| format!("!{}", names.join(",")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_traced_is_what_is_counted_and_the_markers() {
        let only = |name| Selection::Only(Syscall::all_by_name(name));
        assert_eq!(trace_set(&Selection::All, Window::Markers), None);
        assert_eq!(
            trace_set(&only("poll"), Window::Whole).as_deref(),
            Some("?execve,?execveat,?poll")
        );
        assert_eq!(
            trace_set(&only("poll"), Window::Markers).as_deref(),
            Some("?execve,?execveat,?poll,?read,?sendto,?write,?writev")
        );
        let except = Selection::Except([Syscall::all_by_name("poll"), Syscall::all_by_name("read")].concat());
        assert_eq!(trace_set(&except, Window::Whole).as_deref(), Some("!?poll,?read"));
        assert_eq!(trace_set(&except, Window::Markers).as_deref(), Some("!?poll"));
        let native_only = Selection::Except(vec![Syscall::native(libc::SYS_brk)]);
        assert_eq!(trace_set(&native_only, Window::Whole), None);
        let unknown = Selection::Only(vec![Syscall::native(400_000)]);
        assert_eq!(trace_set(&unknown, Window::Whole), None);
    }
}
