//! `systally worker NAME`: a Rust client in a process of its own, so that every language meets the same
//! tracer.

use std::process::ExitCode;

use crate::cli::WorkerArgs;
use crate::strategy::worker_main;

/// Is the worker until its standard input ends. What goes wrong is told by the contract (`fail`, exit
/// status 3), so there is nothing left to print.
pub fn run(args: &WorkerArgs) -> ExitCode {
    worker_main::run(&args.name)
}
