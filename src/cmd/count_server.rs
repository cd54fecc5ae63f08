//! The server that `systally count --server` names: what it counted meanwhile is the number of operations.

use std::net::{IpAddr, ToSocketAddrs};

use crate::record::{ServerInfo, ServerView};
use crate::run::interrupt::Interrupt;
use crate::server::{Backend, Named, Place, Reading, ServerChoice, ServerError, Servers, Target, Wanted};
use crate::strategy::contract::Endpoint;
use crate::units::{Grouped, Measured, Ops, total};

use super::servers::failed;
use super::{Code, CommandError, WithCode};

/// A server whose counters are watched.
pub(super) struct Watch {
    servers: Servers,
    place: Place,
    info: ServerInfo,
    endpoint: Endpoint,
    before: Option<Reading>,
}

/// What it counted.
pub(super) struct Served {
    /// Which server it is.
    pub(super) info: ServerInfo,
    /// Its commands, without systally's own.
    pub(super) view: Measured<ServerView>,
    /// All its commands together, failed ones too: each was asked for and answered.
    pub(super) ops: Option<Ops>,
    /// What a reader of the counts must know.
    pub(super) notes: Vec<String>,
    /// The names that an engine may have for it as a peer.
    pub(super) peers: Vec<String>,
}

impl Watch {
    /// Connects to it.
    ///
    /// # Errors
    /// A URI that cannot be read (usage), a server that does not answer.
    pub(super) fn open(uri: &str) -> Result<Watch, CommandError> {
        let target = Target {
            uri: Some(uri.to_owned()),
            password: std::env::var("REDISCLI_AUTH")
                .ok()
                .filter(|pass| !pass.is_empty()),
            ..Target::default()
        };
        let Named { redis, memcached } = target.named().code(Code::Usage)?;
        let (endpoint, place) = match (redis.first(), memcached.first()) {
            (_, Some(endpoint)) => (endpoint.clone(), Place::Memcached(endpoint.transport())),
            (Some(endpoint), None) => (endpoint.clone(), Place::Redis),
            (None, None) => return Err(failed(ServerError::NoEndpoint)),
        };
        let wanted = Wanted {
            redis: ServerChoice::External(redis),
            memcached,
        };
        let servers = Servers::start(&wanted, [(place, 1)], &Interrupt::never()).map_err(failed)?;
        let found = servers.get(place).ok_or(ServerError::NoEndpoint);
        let info = found.map_err(failed)?.info().clone();
        Ok(Watch {
            servers,
            info,
            place,
            endpoint,
            before: None,
        })
    }

    /// The count begins.
    ///
    /// # Errors
    /// When the server does not answer any more.
    pub(super) fn begin(&mut self) -> Result<(), CommandError> {
        let before = self.server().and_then(|server| server.snapshot(1));
        self.before = Some(before.map_err(failed)?);
        Ok(())
    }

    fn server(&mut self) -> Result<&mut Backend, ServerError> {
        self.servers.get_mut(self.place).ok_or(ServerError::NoEndpoint)
    }

    /// The count ends.
    pub(super) fn end(mut self) -> Served {
        let after = self.server().and_then(|server| server.snapshot(1));
        let view = match (&after, &self.before) {
            (Ok(after), Some(before)) => after.since(before),
            (Err(error), _) => Measured::NotMeasured(error.to_string()),
            (_, None) => Measured::NotMeasured("the server was not asked before".to_owned()),
        };
        // systally's own connection is one of them.
        let connections = after
            .ok()
            .and_then(|after| after.connected_clients())
            .map(|all| all.saturating_sub(1));
        let (ops, note) = said(&view, connections);
        Served {
            info: self.info,
            view,
            ops,
            notes: vec![note],
            peers: peers(&self.endpoint),
        }
    }
}

/// The operations, and where they come from in words.
fn said(view: &Measured<ServerView>, connections: Option<u64>) -> (Option<Ops>, String) {
    let view = match view {
        Measured::Known(view) => view,
        Measured::NotMeasured(why) => {
            return (None, format!("the operations are not known: {why}"));
        }
    };
    let ops = total(view.commands.values().chain(view.failed.values()).copied());
    if ops == 0 {
        return (
            None,
            "the server got no command meanwhile, so nothing is per operation".to_owned(),
        );
    }
    let mut commands: Vec<(&String, &u64)> = view.commands.iter().collect();
    commands.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let mut parts: Vec<String> = commands
        .iter()
        .take(6)
        .map(|(name, n)| format!("{name} {}", Grouped(**n)))
        .collect();
    if commands.len() > parts.len() {
        parts.push("others".to_owned());
    }
    let failed = total(view.failed.values().copied());
    if failed > 0 {
        parts.push(format!("failed {}", Grouped(failed)));
    }
    let others = match connections {
        Some(1) => "one connection was open at the end beside systally's".to_owned(),
        Some(n) => format!(
            "{} connections were open at the end beside systally's",
            Grouped(n)
        ),
        None => "it does not say how many are connected".to_owned(),
    };
    let note = format!(
        "operations are the commands that the server counted meanwhile ({}), of all its clients: {others}; where clients \
         use it that are not counted here, the figures per operation are too low",
        parts.join(", ")
    );
    (Some(Ops(ops)), note)
}

/// The names that connections to an endpoint have as peers. A server on this machine may be called by any
/// of its loopback addresses.
fn peers(endpoint: &Endpoint) -> Vec<String> {
    match endpoint {
        Endpoint::Tcp { host, port, .. } => {
            let addresses: Vec<_> = (host.as_str(), *port)
                .to_socket_addrs()
                .map(Iterator::collect)
                .unwrap_or_default();
            let mut names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            if addresses.iter().any(|address| address.ip().is_loopback()) {
                let loopback = ["127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>());
                names.extend(
                    loopback
                        .into_iter()
                        .flatten()
                        .map(|ip| std::net::SocketAddr::new(ip, *port).to_string()),
                );
            }
            names.push(endpoint.to_string());
            names
        }
        Endpoint::Unix { .. } => vec![endpoint.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_all_commands_and_the_caveat_is_said() {
        let view = ServerView {
            commands: [("get".to_owned(), 700), ("set".to_owned(), 1_300)].into(),
            failed: [("incr".to_owned(), 3)].into(),
            ..ServerView::default()
        };
        let (ops, note) = said(&Measured::Known(view), Some(4));
        assert_eq!(ops, Some(Ops(2_003)));
        assert!(note.contains("(set 1 300, get 700, failed 3)"), "{note}");
        assert!(
            note.contains("4 connections") && note.contains("too low"),
            "{note}"
        );
        let (ops, note) = said(&Measured::Known(ServerView::default()), Some(1));
        assert!(ops.is_none() && note.contains("no command"), "{note}");
        let (ops, note) = said(&Measured::NotMeasured("INFO is denied".to_owned()), None);
        assert!(ops.is_none() && note.contains("INFO is denied"), "{note}");
    }

    #[test]
    fn a_server_has_the_names_that_sockets_have_for_it() {
        let tcp = crate::server::parse_uri("redis://localhost:7000").unwrap();
        let names = peers(&tcp);
        assert!(names.contains(&"127.0.0.1:7000".to_owned()), "{names:?}");
        assert!(names.contains(&"[::1]:7000".to_owned()), "{names:?}");
        let unix = crate::server::parse_uri("unix:///run/r.sock").unwrap();
        assert_eq!(peers(&unix), ["unix:/run/r.sock"]);
    }
}
