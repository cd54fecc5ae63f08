//! The hidden command `systally worker NAME`.

use std::process::ExitCode;

/// Runs the worker of a Rust client until its standard input says `exit` or ends. The exit status is 0,
/// or 3 after a `fail` line; nothing is left for the caller to print.
pub fn run(name: &str) -> ExitCode {
    super::rust::run(name)
}
