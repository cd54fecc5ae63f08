//! A Redis Cluster of private nodes: masters only, each with its share of the slots.

use std::time::{Duration, Instant};

use super::error::{ServerError, Trouble};
use super::identity;
use super::own::{ADD_SLOTS, CLUSTER_INFO, MEET, SET_EPOCH};
use super::private::{PrivateOptions, START_LIMIT};
use super::{Server, ServerChoice};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Endpoint, Transport};
use crate::units::escape;

/// Hash slots of a cluster (the specification of Redis Cluster).
const SLOTS: u32 = 16_384;

/// Starts the nodes and brings them together. They are ready when each of them says that all slots are
/// served and knows all the others: a master waits two seconds after its start before it says so.
pub(super) fn start(
    nodes: u32,
    options: &PrivateOptions,
    interrupt: &Interrupt,
) -> Result<Vec<Server>, ServerError> {
    let options = PrivateOptions {
        cluster: true,
        ..options.clone()
    };
    let mut servers = (0..nodes)
        .map(|_| {
            let choice = ServerChoice::Auto {
                prefer: None,
                options: options.clone(),
            };
            Server::start(choice, interrupt)
        })
        .collect::<Result<Vec<Server>, ServerError>>()?;
    for (node, server) in (0..).zip(&mut servers) {
        let slots: Vec<String> = share_of_slots(node, nodes).map(|slot| slot.to_string()).collect();
        let words: Vec<&[u8]> = slots.iter().map(String::as_bytes).collect();
        // Apart from each other from the start, so that no election has to sort them out.
        let epoch = (node + 1).to_string();
        told(server, SET_EPOCH, &[epoch.as_bytes()])?;
        told(server, ADD_SLOTS, &words)?;
    }
    let addresses: Vec<(String, String)> = servers.iter().filter_map(address).collect();
    if let Some(first) = servers.first_mut() {
        for (host, port) in addresses.iter().skip(1) {
            told(first, MEET, &[host.as_bytes(), port.as_bytes()])?;
        }
    }
    wait(&mut servers, interrupt)?;
    Ok(servers)
}

/// The slots of a node: the same number for each, give or take one.
fn share_of_slots(node: u32, nodes: u32) -> std::ops::Range<u32> {
    node * SLOTS / nodes..(node + 1) * SLOTS / nodes
}

fn address(server: &Server) -> Option<(String, String)> {
    match server.endpoint(Transport::Tcp)? {
        Endpoint::Tcp { host, port, .. } => Some((host.clone(), port.to_string())),
        Endpoint::Unix { .. } => None,
    }
}

fn told(server: &mut Server, command: super::own::Own, args: &[&[u8]]) -> Result<redis::Value, ServerError> {
    match server.control.ask(command, args) {
        Ok(value) => Ok(value),
        Err(trouble @ Trouble::Refusal(_)) => Err(super::unusable(server.control.endpoint(), trouble)),
        Err(trouble) => Err(server.lost(trouble)),
    }
}

fn wait(servers: &mut [Server], interrupt: &Interrupt) -> Result<(), ServerError> {
    let deadline = Instant::now() + START_LIMIT;
    let all = servers.len().to_string();
    for server in servers {
        loop {
            if interrupt.requested() {
                return Err(ServerError::Interrupted);
            }
            let said = identity::text(&told(server, CLUSTER_INFO, &[])?).unwrap_or_default();
            let field = |name: &str| {
                said.lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::trim)
            };
            let state = field("cluster_state:").unwrap_or("unknown");
            let known = field("cluster_known_nodes:").unwrap_or("0");
            if state == "ok" && known == all {
                break;
            }
            if Instant::now() > deadline {
                return Err(ServerError::NoCluster {
                    limit: START_LIMIT,
                    state: escape(
                        &format!("cluster_state {state}, {known} of {all} nodes known"),
                        80,
                    ),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_node() {
        for nodes in [1, 2, 3, 5, 7] {
            let mut next = 0;
            for node in 0..nodes {
                let slots = share_of_slots(node, nodes);
                assert_eq!(slots.start, next);
                assert!(!slots.is_empty());
                next = slots.end;
            }
            assert_eq!(next, SLOTS);
        }
    }
}
