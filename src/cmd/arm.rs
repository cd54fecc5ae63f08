//! `systally arm`: one run of a test of a limit, in surroundings that it makes for itself.

use std::io::Read;

use anyhow::{Context, anyhow};
use clap::Parser;

use crate::cli::{Cli, Command};
use crate::run::prove::arm::{Arm, set_up};
use crate::server::PrivateOptions;

use super::bench::{Within, run_within};
use super::{Code, CommandResult, WithCode};

/// The largest description of a run.
const LARGEST: u64 = 1 << 20;

/// Reads what to set and what to run, and is that bench.
///
/// # Errors
/// Code 6 when the surroundings may not be made here; else as `bench`.
pub fn run() -> CommandResult {
    let mut text = String::new();
    std::io::stdin()
        .take(LARGEST)
        .read_to_string(&mut text)
        .context("cannot read what to run from standard input")
        .code(Code::Usage)?;
    let arm: Arm = serde_json::from_str(&text)
        .context("standard input does not say what to run")
        .code(Code::Usage)?;
    let words = ["systally".to_owned(), "bench".to_owned()]
        .into_iter()
        .chain(arm.bench);
    let mut cli = Cli::try_parse_from(words)
        .map_err(|e| anyhow!("cannot run that bench: {}", e.kind()))
        .code(Code::Usage)?;
    let Command::Bench(args) = &mut cli.command else {
        return Err(anyhow!("only a bench can be run so")).code(Code::Usage);
    };
    // Before there is a second thread, which would stay behind in the host's namespace.
    let groups = set_up(&arm.setup).code(Code::CannotMeasure)?;
    let within = Within {
        options: PrivateOptions {
            tcp_backlog: arm.setup.tcp_backlog,
            maxclients: arm.setup.maxclients,
            nofile: arm.setup.server_nofile,
            ..PrivateOptions::default()
        },
        server_nofile: arm.setup.server_nofile_running,
        groups,
    };
    run_within(args, &within)
}
