//! Readings of a server's counters, and what was added between two of them.

use std::collections::BTreeMap;

use super::own::OwnWork;
use super::stats::{CommandCounts, Info};
use crate::record::ServerView;
use crate::units::{Measured, Nanos};

/// What the counters are of; their names in the record begin with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// `INFO` of Redis and its kin.
    Redis,
    /// `stats` of memcached.
    Memcached,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Source::Redis => "redis",
            Source::Memcached => "memcached",
        }
    }
}

/// The server's cumulative counters at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    source: Source,
    counters: Measured<Counters>,
    /// What the control connection had done when the server counted.
    own: OwnWork,
}

/// What the server counts itself, since its start or the last `CONFIG RESETSTAT`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Changes with every start of the server.
    pub run_id: Option<String>,
    /// Seconds since its start.
    pub uptime_s: Option<u64>,
    /// By command in lower case; a subcommand as `config|get`.
    pub commands: BTreeMap<String, CommandCounts>,
    /// Connections accepted.
    pub connections_received: Option<u64>,
    /// Connections refused because of `maxclients`.
    pub connections_rejected: Option<u64>,
    /// Connections open now, the control connection included.
    pub connected_clients: Option<u64>,
    /// Memory its data takes, in bytes.
    pub used_memory: Option<u64>,
    /// Commands executed.
    pub commands_processed: Option<u64>,
    /// Keys evicted for lack of memory.
    pub evicted_keys: Option<u64>,
    /// Clients closed for replies that they did not read; since Redis 7.2.
    pub output_buffer_closed: Option<u64>,
    /// How often memcached stopped accepting because it had no room for connections.
    pub listen_disabled: Option<u64>,
    /// Error replies by code.
    pub errors: BTreeMap<String, u64>,
}

impl Counters {
    pub(super) fn read(info: &Info) -> Counters {
        Counters {
            run_id: info.text("run_id"),
            uptime_s: info.number("uptime_in_seconds"),
            commands: info.commands(),
            connections_received: info.number("total_connections_received"),
            connections_rejected: info.number("rejected_connections"),
            connected_clients: info.number("connected_clients"),
            used_memory: info.number("used_memory"),
            commands_processed: info.number("total_commands_processed"),
            evicted_keys: info.number("evicted_keys"),
            output_buffer_closed: info.number("client_output_buffer_limit_disconnections"),
            listen_disabled: None,
            errors: info.errors(),
        }
    }
}

impl Snapshot {
    pub(super) fn new(source: Source, counters: Measured<Counters>, own: OwnWork) -> Snapshot {
        Snapshot {
            source,
            counters,
            own,
        }
    }

    /// The counters, or why the server does not tell them.
    pub fn counters(&self) -> &Measured<Counters> {
        &self.counters
    }

    /// The single counters by dotted name (`redis.rejected_connections`, `redis.error.NOAUTH`), for the
    /// record. The control connection is included.
    pub fn named(&self) -> BTreeMap<String, u64> {
        let Some(counters) = self.counters.known() else {
            return BTreeMap::new();
        };
        let single = [
            ("total_connections_received", counters.connections_received),
            ("rejected_connections", counters.connections_rejected),
            ("connected_clients", counters.connected_clients),
            ("total_commands_processed", counters.commands_processed),
            ("evicted_keys", counters.evicted_keys),
            ("uptime_in_seconds", counters.uptime_s),
            (
                "client_output_buffer_limit_disconnections",
                counters.output_buffer_closed,
            ),
            ("listen_disabled_num", counters.listen_disabled),
        ];
        let source = self.source.name();
        let single = single
            .into_iter()
            .filter_map(|(name, value)| Some((format!("{source}.{name}"), value?)));
        let errors = counters
            .errors
            .iter()
            .map(|(code, count)| (format!("{source}.error.{code}"), *count));
        single.chain(errors).collect()
    }

    /// What the server did between `earlier` and this reading, without systally's control connection.
    pub fn since(&self, earlier: &Snapshot) -> Measured<ServerView> {
        let (now, then) = match (&self.counters, &earlier.counters) {
            (Measured::Known(now), Measured::Known(then)) => (now, then),
            (Measured::NotMeasured(why), _) | (_, Measured::NotMeasured(why)) => {
                return Measured::NotMeasured(why.clone());
            }
        };
        if let (Some(a), Some(b)) = (&now.run_id, &then.run_id)
            && a != b
        {
            return Measured::NotMeasured("the server was restarted in between".to_owned());
        }
        if now.commands.is_empty() {
            return Measured::NotMeasured("the server keeps no command statistics".to_owned());
        }
        match self.difference(now, earlier, then) {
            Some(view) => Measured::Known(view),
            None => Measured::NotMeasured(
                "the server's counters went back in between (CONFIG RESETSTAT, or another server)".to_owned(),
            ),
        }
    }

    fn difference(&self, now: &Counters, earlier: &Snapshot, then: &Counters) -> Option<ServerView> {
        let mut view = ServerView::default();
        // A command that was counted before and is not any more has been reset.
        if then.commands.keys().any(|name| !now.commands.contains_key(name)) {
            return None;
        }
        let own = own_since(&self.own, &earlier.own);
        for (name, counts) in &now.commands {
            let zero = CommandCounts::default();
            let added = counts.since(then.commands.get(name).unwrap_or(&zero))?;
            let (own_good, own_failed) = own_of(&own, name, &now.commands);
            let failed = added.failed.unwrap_or(0);
            let refused = added.rejected.unwrap_or(0);
            // Less than systally itself asked for: somebody reset the counters in between.
            let good = added.calls.checked_sub(failed)?.checked_sub(own_good)?;
            let failures = match (added.failed, added.rejected) {
                (None, None) => 0,
                _ => (failed + refused).checked_sub(own_failed)?,
            };
            if good > 0 {
                view.commands.insert(name.clone(), good);
            }
            if failures > 0 {
                view.failed.insert(name.clone(), failures);
            }
            if let Some(busy) = added.busy.filter(|_| good > 0 || failures > 0) {
                // Time is not told apart by connection, so systally's own calls leave with their share.
                let executed = added.calls.max(1);
                let share = u128::from(executed - own_good.min(executed));
                let ns = u128::from(busy.0) * share / u128::from(executed);
                let busy = Nanos(u64::try_from(ns).unwrap_or(u64::MAX));
                view.busy = Some(view.busy.unwrap_or_default() + busy);
            }
        }
        let added = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        view.connections = added(now.connections_received, then.connections_received)?
            .checked_sub(self.own.connections.checked_sub(earlier.own.connections)?)?;
        view.rejected = added(now.connections_rejected, then.connections_rejected)?;
        Some(view)
    }
}

fn own_since(now: &OwnWork, then: &OwnWork) -> OwnWork {
    let minus = |now: &BTreeMap<&'static str, u64>, then: &BTreeMap<&'static str, u64>| {
        now.iter()
            .map(|(name, n)| (*name, n.saturating_sub(then.get(name).copied().unwrap_or(0))))
            .collect()
    };
    OwnWork {
        calls: minus(&now.calls, &then.calls),
        failed: minus(&now.failed, &then.failed),
        connections: now.connections.saturating_sub(then.connections),
    }
}

/// The control connection's calls of a command, good and failed. Before Redis 7 a subcommand is counted
/// with its command, so `config|get` falls to `config` where there is no such entry.
fn own_of(own: &OwnWork, name: &str, all: &BTreeMap<String, CommandCounts>) -> (u64, u64) {
    let sum = |calls: &BTreeMap<&'static str, u64>| {
        calls
            .iter()
            .filter(|(stat, _)| {
                let whole = stat.split('|').next().unwrap_or(stat);
                **stat == name || (whole == name && !all.contains_key(**stat))
            })
            .map(|(_, n)| *n)
            .sum()
    };
    (sum(&own.calls), sum(&own.failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(gets: u64, infos: u64, connections: u64) -> Counters {
        let text = format!(
            "run_id:r\ntotal_connections_received:{connections}\nrejected_connections:0\n\
             cmdstat_get:calls={gets},usec={},rejected_calls=1,failed_calls=2\n\
             cmdstat_info:calls={infos},usec=100,rejected_calls=0,failed_calls=0\n",
            gets * 2
        );
        Counters::read(&Info::parse(&text))
    }

    fn own(infos: u64) -> OwnWork {
        OwnWork {
            calls: [("info", infos)].into(),
            connections: 1,
            ..OwnWork::default()
        }
    }

    fn snapshot(gets: u64, infos: u64, connections: u64) -> Snapshot {
        Snapshot::new(
            Source::Redis,
            Measured::Known(counters(gets, infos, connections)),
            own(infos),
        )
    }

    fn reason(view: Measured<ServerView>) -> String {
        view.reason().unwrap_or("known").to_owned()
    }

    #[test]
    fn own_commands_are_left_out() {
        let view = snapshot(110, 8, 5)
            .since(&snapshot(10, 7, 2))
            .known()
            .cloned()
            .unwrap();
        assert_eq!(view.commands, [("get".to_owned(), 100)].into());
        assert_eq!(view.connections, 3);
        assert_eq!(view.busy, Some(Nanos(200_000)));
    }

    #[test]
    fn others_that_ask_info_stay_in() {
        let now = Snapshot::new(Source::Redis, Measured::Known(counters(0, 12, 1)), own(8));
        let view = now.since(&snapshot(0, 7, 1)).known().cloned().unwrap();
        assert_eq!(view.commands, [("info".to_owned(), 4)].into());
    }

    #[test]
    fn a_restart_or_a_reset_is_not_a_number() {
        let mut other = counters(100, 8, 2);
        other.run_id = Some("s".into());
        let restarted =
            Snapshot::new(Source::Redis, Measured::Known(other), own(8)).since(&snapshot(10, 7, 2));
        assert!(reason(restarted).contains("restarted"));
        assert!(reason(snapshot(3, 8, 2).since(&snapshot(10, 7, 2))).contains("went back"));
        let mut gone = counters(0, 8, 2);
        gone.commands.remove("get");
        let gone = Snapshot::new(Source::Redis, Measured::Known(gone), own(8)).since(&snapshot(10, 7, 2));
        assert!(reason(gone).contains("went back"));
        // Every counter grew since the reset, but INFO shows fewer calls than systally made.
        let hidden = Snapshot::new(Source::Redis, Measured::Known(counters(500, 7, 9)), own(8));
        assert!(reason(hidden.since(&snapshot(10, 7, 2))).contains("went back"));
        let denied = Snapshot::new(
            Source::Redis,
            Measured::NotMeasured("INFO is denied".into()),
            own(0),
        );
        assert_eq!(reason(denied.since(&snapshot(1, 1, 1))), "INFO is denied");
    }

    #[test]
    fn subcommands_fall_to_their_command_before_redis_7() {
        let text = |config: u64| {
            format!(
                "run_id:r\ntotal_connections_received:1\nrejected_connections:0\ncmdstat_config:calls={config},usec=1\n"
            )
        };
        let read = |config, own_calls| {
            let own = OwnWork {
                calls: [("config|get", own_calls)].into(),
                ..OwnWork::default()
            };
            Snapshot::new(
                Source::Redis,
                Measured::Known(Counters::read(&Info::parse(&text(config)))),
                own,
            )
        };
        let view = read(9, 4).since(&read(2, 0)).known().cloned().unwrap();
        assert_eq!(view.commands, [("config".to_owned(), 3)].into());
    }

    #[test]
    fn named_counters_for_the_record() {
        let named = snapshot(1, 1, 7).named();
        assert_eq!(named["redis.total_connections_received"], 7);
        assert!(!named.contains_key("redis.evicted_keys"));
    }
}
