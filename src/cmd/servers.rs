//! From the flags that name a server to the servers of a run.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::ValueEnum;

use crate::cli::ServerArgs;
use crate::plan::rows::Row;
use crate::run::interrupt::Interrupt;
use crate::server::{
    AddressError, Named, Place, PrivateOptions, ServerChoice, ServerError, Servers, Target, Wanted,
};
use crate::strategy::Presence;
use crate::strategy::contract::Endpoint;

use super::preflight::PlanServer;
use super::{Code, CommandError, WithCode};

/// Connects to the servers that the rows need, or starts them.
pub(super) fn start(wanted: &Wanted, rows: &[Row], interrupt: &Interrupt) -> Result<Servers, CommandError> {
    servers_of(wanted, rows, interrupt).map_err(failed)
}

/// A server's error with the code that it ends every command with: one that is not there, or lets nobody in, makes
/// a run fail; only what the command line says wrongly by itself is wrong usage.
pub(super) fn failed(error: ServerError) -> CommandError {
    let code = match &error {
        ServerError::Interrupted => Code::Incomplete,
        ServerError::TwoServers { .. } | ServerError::NoEndpoint => Code::Usage,
        _ => Code::Failed,
    };
    CommandError {
        code,
        error: error.into(),
    }
}

/// What `preflight --server` says: the kind of a server that cannot be asked, or the URI of one that can. A URI of
/// memcached says its kind as well.
///
/// # Errors
/// A word that is neither, and a URI beside another address.
pub(super) fn kind_or_uri(
    server: &mut ServerArgs,
    word: Option<String>,
) -> Result<Option<PlanServer>, CommandError> {
    if let Some(word) = word {
        match PlanServer::from_str(&word, true) {
            Ok(kind) => return Ok(Some(kind)),
            Err(_) if !word.contains([':', '/']) => {
                return Err(anyhow!(
                    "--server takes the URI of a server (redis://host:port, unix:///path, memcached://host:port), or \
                     the kind of one that cannot be asked: redis, memcached or other"
                ))
                .code(Code::Usage);
            }
            Err(_) if server.uri.is_some() => return Err(AddressError::Twice).code(Code::Usage),
            Err(_) => server.uri = Some(word),
        }
    }
    let memcached = server
        .uri
        .as_deref()
        .and_then(|uri| uri.split_once("://"))
        .is_some_and(|(scheme, _)| ["memcached", "memcached+unix"].contains(&&*scheme.to_ascii_lowercase()));
    Ok(memcached.then_some(PlanServer::Memcached))
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

/// Makes sure that a memcached of the user's answers; what is wrong is said as every command says it.
pub(super) fn reach_memcached(endpoint: &Endpoint) -> Result<(), ServerError> {
    let wanted = Wanted {
        redis: ServerChoice::External(Vec::new()),
        memcached: vec![endpoint.clone()],
    };
    let place = Place::Memcached(endpoint.transport());
    Servers::start(&wanted, [(place, 1)], &Interrupt::never()).map(Servers::stop)
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
