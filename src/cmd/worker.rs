//! `systally worker NAME`: a Rust client in a process of its own, so that every language meets the same
//! tracer.

use crate::cli::WorkerArgs;
use crate::strategy::worker_main;

use super::{Code, CommandResult};

/// Is the worker until its standard input ends.
///
/// # Errors
/// An unknown name. What goes wrong later is told by the contract (`fail`, exit status 3).
pub fn run(args: &WorkerArgs) -> CommandResult {
    let status = worker_main::run(&args.name)?;
    Ok(if status == 0 { Code::Ok } else { Code::Child(status) })
}
