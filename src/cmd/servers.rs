//! From the flags that name a server to the servers of a run.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::cli::ServerArgs;
use crate::plan::rows::Row;
use crate::run::interrupt::Interrupt;
use crate::server::{Named, PrivateOptions, ServerChoice, ServerError, Servers, Target, Wanted};
use crate::strategy::Presence;
use crate::strategy::contract::Endpoint;

use super::{Code, CommandError, WithCode};

/// Connects to the servers that the rows need, or starts them.
pub(super) fn start(wanted: &Wanted, rows: &[Row], interrupt: &Interrupt) -> Result<Servers, CommandError> {
    servers_of(wanted, rows, interrupt).map_err(|error| {
        let code = if matches!(error, ServerError::Interrupted) {
            Code::Incomplete
        } else {
            Code::Failed
        };
        CommandError {
            code,
            error: error.into(),
        }
    })
}

/// The servers that the rows need, running.
pub(super) fn servers_of(
    wanted: &Wanted,
    rows: &[Row],
    interrupt: &Interrupt,
) -> Result<Servers, ServerError> {
    let needs = rows
        .iter()
        .filter(|row| matches!(row.strategy.client.presence(), Presence::Ready { .. }))
        .filter_map(|row| Some((row.place()?, row.servers)));
    Servers::start(wanted, needs, interrupt)
}

/// The servers that the command line asks for; private ones are set up by `options`.
pub(super) fn wanted(args: &ServerArgs, options: PrivateOptions) -> Result<Wanted, CommandError> {
    let Named { redis, memcached } = target(args)?.named().code(Code::Usage)?;
    let redis = if args.builtin_server {
        ServerChoice::BuiltIn { options }
    } else {
        choice(redis, options)
    };
    Ok(Wanted { redis, memcached })
}

/// The one server that the command line asks for, whatever it is.
pub(super) fn server_choice(args: &ServerArgs) -> Result<ServerChoice, CommandError> {
    let options = PrivateOptions::default();
    if args.builtin_server {
        return Ok(ServerChoice::BuiltIn { options });
    }
    let Named { redis, memcached } = target(args)?.named().code(Code::Usage)?;
    let endpoints = if memcached.is_empty() { redis } else { memcached };
    Ok(choice(endpoints, options))
}

/// The user's own server, or a private one where none is named.
fn choice(endpoints: Vec<Endpoint>, options: PrivateOptions) -> ServerChoice {
    if endpoints.is_empty() {
        ServerChoice::Auto {
            prefer: None,
            options,
        }
    } else {
        ServerChoice::External(endpoints)
    }
}

/// What the command line says of the user's server.
fn target(args: &ServerArgs) -> Result<Target, CommandError> {
    let socket = match &args.socket {
        Some(path) => Some(
            absolute(path)
                .to_str()
                .map(str::to_owned)
                .ok_or_else(|| anyhow!("--socket: the path is not valid UTF-8"))
                .code(Code::Usage)?,
        ),
        None => None,
    };
    Ok(Target {
        host: args.host.clone(),
        port: args.port,
        socket,
        uri: args.uri.clone(),
        user: args.user.clone(),
        password: args.pass.clone(),
    })
}

/// A path that still leads to the socket from another folder, as a worker's, and that the kernel's table of
/// sockets has; the path as it is where that would be too long for a socket's address.
fn absolute(path: &Path) -> PathBuf {
    const SUN_PATH_MAX: usize = 107;
    if path.is_absolute() || path.as_os_str().as_bytes().starts_with(b"@") {
        return path.to_owned();
    }
    let found = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    match found {
        Ok(found) if found.as_os_str().len() <= SUN_PATH_MAX => found,
        Ok(_) | Err(_) => path.to_owned(),
    }
}
