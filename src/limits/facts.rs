//! What a server says of itself, in the terms of the limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::proc::process::Rlimit;
use crate::proc::sockdiag::Listener;

/// The kind of a server, as far as limits differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// Redis, Valkey, and what has their settings.
    #[default]
    #[serde(alias = "valkey")]
    Redis,
    /// memcached.
    Memcached,
    /// Another one: nothing is known of its own limits.
    Other,
}

/// What is known of the server from the server itself and from its process; `None` is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// What it is.
    pub kind: ServerKind,
    /// Whether it answered over the planned address, from this machine.
    pub answered: bool,
    /// `CONFIG GET maxclients`, or `INFO clients`; of memcached `max_connections`.
    pub maxclients: Option<u64>,
    /// Connections it has now, systally's own included.
    pub connected_clients: Option<u64>,
    /// `CONFIG GET tcp-backlog`: what was asked for, not what it got.
    pub tcp_backlog: Option<u64>,
    /// `CONFIG GET timeout`: seconds after which an idle client is closed; 0 never.
    pub idle_timeout_s: Option<u64>,
    /// `CONFIG GET maxmemory` in bytes; 0 is none.
    pub maxmemory: Option<u64>,
    /// Whether `maxmemory-policy` evicts keys instead of refusing writes.
    pub evicts: Option<bool>,
    /// `INFO memory` used_memory in bytes.
    pub used_memory: Option<u64>,
    /// `CONFIG GET protected-mode`.
    pub protected_mode: Option<bool>,
    /// Hard limit of `client-output-buffer-limit` for normal clients in bytes; 0 is none.
    pub output_buffer_limit: Option<u64>,
    /// Open-file limit of its process.
    pub nofile: Option<Rlimit>,
    /// Descriptors its process has open.
    pub fds_open: Option<u64>,
    /// Its listening sockets as told from its own machine; `None`: ask this kernel.
    pub listeners: Option<Vec<Listener>>,
}

impl ServerFacts {
    /// Takes over settings by the names of `CONFIG GET`, and fields of `INFO` or `stats`. What is missing,
    /// negative or no number stays unknown, and what is there already is not unlearnt.
    pub fn learn(&mut self, named: &BTreeMap<String, String>) {
        let number = |name: &str| named.get(name).and_then(|text| text.trim().parse::<u64>().ok());
        let learn = |slot: &mut Option<u64>, names: &[&str]| {
            if let Some(value) = names.iter().find_map(|name| number(name)) {
                *slot = Some(value);
            }
        };
        learn(
            &mut self.maxclients,
            &["maxclients", "max_connections", "maxconns"],
        );
        learn(
            &mut self.connected_clients,
            &["connected_clients", "curr_connections"],
        );
        learn(&mut self.tcp_backlog, &["tcp-backlog"]);
        learn(&mut self.idle_timeout_s, &["timeout"]);
        learn(&mut self.maxmemory, &["maxmemory"]);
        learn(&mut self.used_memory, &["used_memory"]);
        if let Some(policy) = named
            .get("maxmemory-policy")
            .or_else(|| named.get("maxmemory_policy"))
        {
            self.evicts = Some(policy != "noeviction");
        }
        if let Some(mode) = named.get("protected-mode") {
            self.protected_mode = match mode.as_str() {
                "yes" => Some(true),
                "no" => Some(false),
                _ => self.protected_mode,
            };
        }
        if let Some(text) = named.get("client-output-buffer-limit") {
            // Classes with three numbers each: normal 0 0 0 slave 268435456 67108864 60 …
            let mut words = text.split_whitespace();
            if words.any(|word| word == "normal")
                && let Some(hard) = words.next().and_then(|word| word.parse().ok())
            {
                self.output_buffer_limit = Some(hard);
            }
        }
    }

    /// Whether the server lowered `maxclients` itself to fit its open-file limit.
    pub fn lowered_by_ulimit(&self) -> bool {
        let soft = self.nofile.and_then(|limit| limit.soft);
        matches!(
            (self.kind, self.maxclients, soft),
            (ServerKind::Redis, Some(max), Some(soft)) if max.checked_add(REDIS_RESERVED_FDS) == Some(soft)
        )
    }
}

/// Descriptors Redis keeps for itself (CONFIG_MIN_RESERVED_FDS in server.h).
pub const REDIS_RESERVED_FDS: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn settings_and_info_are_understood() {
        let mut facts = ServerFacts::default();
        facts.learn(&named(&[
            ("maxclients", "10000"),
            ("connected_clients", "3"),
            ("timeout", "0"),
            ("protected-mode", "yes"),
            ("maxmemory-policy", "noeviction"),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            ),
        ]));
        assert_eq!(facts.maxclients, Some(10_000));
        assert_eq!(facts.protected_mode, Some(true));
        assert_eq!(facts.output_buffer_limit, Some(0));
        assert_eq!(facts.evicts, Some(false));
    }

    #[test]
    fn hostile_values_stay_unknown() {
        let mut facts = ServerFacts::default();
        facts.learn(&named(&[
            ("maxclients", "-1"),
            ("tcp-backlog", "99999999999999999999"),
            ("protected-mode", "maybe"),
            ("client-output-buffer-limit", "normal"),
            ("used_memory", ""),
        ]));
        assert_eq!(
            facts,
            ServerFacts {
                kind: ServerKind::Redis,
                ..ServerFacts::default()
            }
        );
    }

    #[test]
    fn a_lowered_maxclients_is_recognised() {
        let nofile = |soft| {
            Some(Rlimit {
                soft: Some(soft),
                hard: Some(soft),
            })
        };
        let facts = |max, soft| ServerFacts {
            maxclients: Some(max),
            nofile: nofile(soft),
            ..ServerFacts::default()
        };
        assert!(facts(992, 1024).lowered_by_ulimit());
        assert!(!facts(10_000, 65_536).lowered_by_ulimit());
        assert!(!facts(u64::MAX, 31).lowered_by_ulimit());
    }
}
