//! The server that a load is for: which one is meant, and what it says of itself.

use anyhow::{Context, anyhow};

use crate::limits::{self, Load, ServerKind, Witness};
use crate::proc::{Root, process, sockdiag};
use crate::record::{ServerInfo, ServerOrigin};
use crate::run::interrupt::Interrupt;
use crate::server::{Server, ServerChoice};
use crate::strategy::contract::Endpoint;
use crate::units::escape;

use super::args::{PlanServer, PlanTransport, PreflightArgs};
use crate::cmd::{Code, CommandError, WithCode, servers};

/// The planned address: of several the one of the chosen transport, else the first.
pub(super) fn endpoint(args: &PreflightArgs) -> Result<Option<Endpoint>, CommandError> {
    let ServerChoice::External(endpoints) = servers::server_choice(&args.server)? else {
        return Ok(None);
    };
    let wanted = |endpoint: &&Endpoint| match args.plan.transport {
        None => true,
        Some(PlanTransport::Tcp) => matches!(endpoint, Endpoint::Tcp { .. }),
        Some(PlanTransport::Unix) => matches!(endpoint, Endpoint::Unix { .. }),
    };
    match endpoints.iter().find(wanted) {
        Some(endpoint) => Ok(Some(endpoint.clone())),
        None => Err(anyhow!(
            "--transport: no address of that transport is given (-h and -p, or -s)"
        ))
        .code(Code::Usage),
    }
}

/// Asks the server what it is and how it is set up.
pub(super) fn ask(endpoint: &Endpoint, kind: Option<PlanServer>) -> Result<Witness, anyhow::Error> {
    match kind {
        Some(PlanServer::Other) => Ok(Witness {
            kind: ServerKind::Other,
            ..Witness::default()
        }),
        Some(PlanServer::Memcached) => ask_memcached(endpoint),
        Some(PlanServer::Redis) | None => match Server::start(
            ServerChoice::External(vec![endpoint.clone()]),
            &Interrupt::never(),
        ) {
            Ok(server) => Ok(redis_witness(server)),
            // Perhaps it is memcached; if not, what was said first is the better message.
            Err(error) if kind.is_none() => ask_memcached(endpoint).map_err(|_| error.into()),
            Err(error) => Err(error.into()),
        },
    }
}

fn redis_witness(mut server: Server) -> Witness {
    let info = server.info().clone();
    let mut named = info.settings;
    if let Ok(snapshot) = server.snapshot()
        && let Some(counters) = snapshot.counters().known()
    {
        let told = [
            ("connected_clients", counters.connected_clients),
            ("used_memory", counters.used_memory),
        ];
        named.extend(
            told.into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))),
        );
    }
    let pid = server.pid();
    server.stop();
    Witness {
        kind: ServerKind::Redis,
        version: info.version,
        answered: true,
        named,
        pid,
        ..Witness::default()
    }
}

fn ask_memcached(endpoint: &Endpoint) -> Result<Witness, anyhow::Error> {
    servers::reach_memcached(endpoint)?;
    let named = limits::memcached::stats(endpoint)
        .with_context(|| format!("cannot ask memcached at {}", escape(&endpoint.to_string(), 200)))?;
    Ok(Witness {
        kind: ServerKind::Memcached,
        version: named
            .get("version")
            .map(|version| escape(version, 60))
            .unwrap_or_default(),
        answered: true,
        named,
        ..Witness::default()
    })
}

/// The process that holds the listener of the planned address.
pub(super) fn owner(root: &Root, load: &Load) -> Option<i32> {
    let listeners = sockdiag::listeners(root).ok()?;
    process::owner_of_socket(root, load.listener(&listeners)?.inode).ok()
}

pub(super) fn info(witness: &Witness, endpoint: Option<&Endpoint>) -> ServerInfo {
    ServerInfo {
        kind: match witness.kind {
            ServerKind::Redis => "redis",
            ServerKind::Memcached => "memcached",
            ServerKind::Other => "other",
        }
        .to_owned(),
        version: escape(&witness.version, 60),
        origin: ServerOrigin::External,
        addresses: endpoint
            .iter()
            .map(|endpoint| escape(&endpoint.to_string(), 200))
            .collect(),
        settings: witness
            .named
            .iter()
            .map(|(name, value)| (escape(name, 60), escape(value, 120)))
            .collect(),
        ..ServerInfo::default()
    }
}
