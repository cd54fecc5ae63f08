//! `systally loop N`: makes one system call over and over, for measuring what an engine costs.

use std::time::Instant;

use crate::cli::LoopArgs;

use super::{Code, CommandResult, print};

/// Makes the calls and prints how many nanoseconds they took.
///
/// # Errors
/// When the result cannot be written.
pub fn run(args: &LoopArgs) -> CommandResult {
    let begun = Instant::now();
    for _ in 0..args.calls {
        nix::unistd::getppid();
    }
    print(&format!("{}\n", begun.elapsed().as_nanos()))?;
    Ok(Code::Ok)
}
