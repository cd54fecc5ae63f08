//! From the flags of a plan to loads in the terms of the limits: one, or one for each way to connect that
//! the named strategies have.

use std::collections::BTreeSet;
use std::net::{ToSocketAddrs, UdpSocket};

use crate::cli::ServerArgs;
use crate::limits::{Load, is_loopback};
use crate::plan::scenario::{self, Scenario, Terms};
use crate::proc::Root;
use crate::proc::process::{Who, private_memory};
use crate::server::ServerChoice;
use crate::strategy::contract::{Connect, Endpoint, Store, Transport};
use crate::strategy::{Registry, ScriptSource, Strategy};

use super::args::{BASE_FDS, PlanArgs, PlanClient, PlanCloser, PlanTransport, PreflightArgs};
use crate::cmd::{Code, CommandError, WithCode, servers, warn};
use crate::units::escape;

/// The load in the terms of the limits, without what the server says.
pub(super) fn load(args: &PreflightArgs, root: &Root, endpoint: Option<&Endpoint>) -> Load {
    let plan = &args.plan;
    let mut load = endpoint.map_or_else(Load::default, Load::to);
    if endpoint.is_none() {
        load.tcp = plan.transport != Some(PlanTransport::Unix);
    }
    if let Some(Endpoint::Tcp { host, .. }) = endpoint {
        (load.loopback, load.same_host) = place(root, host);
    }
    let most = |values: &[u64], default| values.iter().max().copied().unwrap_or(default);
    load.processes = most(&plan.clients, 1);
    load.connects_in_all = plan.requests.map(|requests| {
        // The counted pass is one round more.
        let rounds = plan.runs.saturating_add(plan.warmup).saturating_add(1);
        requests.saturating_mul(rounds)
    });
    load.connections_per_process = plan.connections.unwrap_or(1);
    load.connect_per_op = plan.connects_per_op();
    load.connects_per_second = plan.rate;
    load.server_closes_first = plan.closes_first == PlanCloser::Server;
    load.client_base_fds = plan
        .client_fds
        .or(plan.client.map(PlanClient::base_fds))
        .unwrap_or(BASE_FDS);
    load.attempts_per_op = plan.attempts;
    load.destinations = plan.shards;
    load.pipeline = most(&plan.pipeline, 1);
    load.payload_bytes = most(&plan.data_size, 0);
    load
}

/// What the scenario asks for at its heaviest, when one is named.
pub(super) fn scenario_terms(plan: &PlanArgs) -> Result<Option<Terms>, CommandError> {
    let Some(name) = &plan.scenario else {
        return Ok(None);
    };
    let scenario = Scenario::find(name).code(Code::Usage)?;
    let source = ScriptSource::from_env(None).code(Code::Usage)?;
    let registry = Registry::load(&source).code(Code::Usage)?;
    let terms = scenario::heaviest(&scenario, plan.scale.unwrap_or_default(), &registry).code(Code::Usage)?;
    Ok(Some(terms))
}

/// The terms of a scenario in place of those of the flags; over both transports TCP asks for more.
pub(super) fn add_scenario(load: &mut Load, terms: &Terms, any_transport: bool) {
    load.processes = terms.processes.max(1);
    load.connections_per_process = terms.connections_per_process.max(1);
    load.connect_per_op = terms.connect_per_op;
    load.destinations = terms.servers.max(1);
    load.pipeline = terms.pipeline.max(1);
    load.payload_bytes = terms.payload_bytes;
    load.connects_in_all = Some(terms.requests);
    if any_transport {
        load.tcp = terms.tcp || !terms.unix;
    }
}

/// Whether a host is loopback, and whether it is this machine; kept with the other readings.
fn place(root: &Root, host: &str) -> (bool, bool) {
    if is_loopback(host) {
        return (true, true);
    }
    let kept = format!("systally/address/{}", host.replace('/', "_"));
    let words = if root.is_live() {
        let address = (host, 0)
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next());
        match address.map(|address| address.ip()) {
            Some(ip) if ip.to_canonical().is_loopback() => "loopback",
            // Only an address of this machine can be bound; nothing is sent.
            Some(ip) if UdpSocket::bind((ip, 0)).is_ok() => "local",
            Some(_) | None => "remote",
        }
        .to_owned()
    } else {
        root.read(&kept).unwrap_or_default()
    };
    if !["loopback", "local", "remote"].contains(&words.trim_end()) {
        warn(&format!(
            "systally: the recording does not say where {} is; taken to be another machine",
            escape(host, 200)
        ));
    }
    root.keep(&kept, &words);
    match words.trim_end() {
        "loopback" => (true, true),
        "local" => (false, true),
        _ => (false, false),
    }
}

/// The strategies that were named; none when none was.
///
/// # Errors
/// A name that selects nothing, or a list of clients that cannot be read (exit code 2).
pub(super) fn strategies(args: &PreflightArgs) -> Result<Vec<Strategy>, CommandError> {
    if args.strategies.is_empty() {
        return Ok(Vec::new());
    }
    let source = ScriptSource::from_env(args.clients_file.clone()).code(Code::Usage)?;
    let registry = Registry::load(&source).code(Code::Usage)?;
    registry.select(&args.strategies).code(Code::Usage)
}

/// A load for each way to connect that the strategies have, each with the client that needs most; `base`
/// where none was named.
pub(super) fn loads(
    root: &Root,
    strategies: &[Strategy],
    server: &ServerArgs,
    base: &Load,
) -> Result<Vec<Load>, CommandError> {
    if strategies.is_empty() {
        return Ok(vec![base.clone()]);
    }
    let endpoints = match servers::server_choice(server)? {
        ServerChoice::External(endpoints) => endpoints,
        ServerChoice::Auto { .. } | ServerChoice::BuiltIn { .. } => Vec::new(),
    };
    let mut seen = BTreeSet::new();
    let mut loads: Vec<Load> = Vec::new();
    for strategy in strategies {
        if strategy.client.store() == Store::None || strategy.transport == Transport::Local {
            continue;
        }
        let per_op = strategy.mode.connect == Connect::PerOp;
        let client = Footprint::of(strategy, root);
        if !seen.insert((strategy.transport, per_op)) {
            let known = loads.iter_mut().find(|load| {
                load.tcp == (strategy.transport == Transport::Tcp) && load.connect_per_op == per_op
            });
            if let Some(load) = known {
                client.add_to(load);
            }
            continue;
        }
        // A bench has the addresses it was given and leaves other rows out.
        let endpoint = endpoints.iter().find(|one| one.transport() == strategy.transport);
        if endpoint.is_none() && !endpoints.is_empty() {
            continue;
        }
        let place = place_of(endpoint, base);
        let mut load = Load {
            tcp: strategy.transport == Transport::Tcp,
            connect_per_op: per_op,
            endpoint: endpoint.cloned(),
            client_base_fds: 0,
            client_bytes: 0,
            ..place
        };
        client.add_to(&mut load);
        loads.push(load);
    }
    if loads.is_empty() {
        return Ok(vec![base.clone()]);
    }
    Ok(loads)
}

/// The base with the place of this address.
fn place_of(endpoint: Option<&Endpoint>, base: &Load) -> Load {
    let mut load = base.clone();
    match endpoint {
        Some(Endpoint::Unix { .. }) | None => (load.loopback, load.same_host) = (true, true),
        // The base was made for the TCP address where there is one.
        Some(Endpoint::Tcp { .. }) if base.tcp => {}
        Some(endpoint @ Endpoint::Tcp { .. }) => {
            let of_address = Load::to(endpoint);
            (load.loopback, load.same_host) = (of_address.loopback, of_address.same_host);
        }
    }
    load
}

/// What one process of a client takes before it does anything.
pub(super) struct Footprint {
    fds: u64,
    bytes: u64,
    measured: bool,
}

impl Footprint {
    /// As counted in scripts before their first connection, and as such a process takes of its own beside
    /// what it shares; of the Rust clients, which are this very program, it is measured.
    fn of(strategy: &Strategy, root: &Root) -> Footprint {
        let assumed = |fds, megabytes: u64| Footprint {
            fds,
            bytes: megabytes << 20,
            measured: false,
        };
        match strategy.client.language().to_lowercase().as_str() {
            "php" => assumed(5, 5),
            "python" => assumed(4, 7),
            "javascript" | "node" | "node.js" => assumed(20, 25),
            "rust" => match private_memory(root, Who::Me) {
                Ok(bytes) => Footprint {
                    fds: 3,
                    bytes,
                    measured: true,
                },
                Err(_) => assumed(3, 3),
            },
            _ => assumed(5, 5),
        }
    }

    fn add_to(&self, load: &mut Load) {
        load.client_base_fds = load.client_base_fds.max(self.fds);
        if self.bytes >= load.client_bytes {
            load.client_bytes = self.bytes;
            load.client_bytes_measured = self.measured;
        }
    }
}
