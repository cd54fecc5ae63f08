//! `systally responder`: the built-in RESP server in a process of its own.

use crate::cli::ResponderArgs;
use crate::run::interrupt::Interrupt;
use crate::server::responder::{self, Options};

use super::{Code, CommandResult, print};

/// Serves until whoever started it goes away.
///
/// # Errors
/// When a listener cannot be opened.
pub fn run(args: &ResponderArgs) -> CommandResult {
    let mut options = Options::new(args.socket.clone());
    if let Some(backlog) = args.tcp_backlog {
        options.tcp_backlog = backlog;
    }
    if let Some(maxclients) = args.maxclients {
        options.maxclients = maxclients;
    }
    let interrupt = Interrupt::install()?;
    responder::serve(&options, &interrupt, |ready| print(&format!("{ready}\n")))?;
    Ok(Code::Ok)
}
