//! `systally responder`: the built-in RESP server in a process of its own.

use crate::cli::ResponderArgs;
use crate::server::responder;

use super::{Code, CommandResult, print};

/// Serves until the parent goes away.
///
/// # Errors
/// When a listener cannot be opened.
pub fn run(args: &ResponderArgs) -> CommandResult {
    responder::serve(&args.socket, |ready| print(&format!("{ready}\n")))?;
    Ok(Code::Ok)
}
