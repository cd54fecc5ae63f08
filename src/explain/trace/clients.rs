//! REDIS_MAXCLIENTS in pasted INFO: the server has all the clients it allows, or nearly.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::state::share;
use super::{Trace, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct ClientsFull;

impl Rule for ClientsFull {
    fn docs(&self) -> &'static [Doc] {
        // Described where the rule for live runs stands.
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| full(&trace)).collect()
    }
}

fn full(trace: &Trace<'_>) -> Option<Finding> {
    let now = trace.value("connected_clients")?;
    let most = trace.value("maxclients").filter(|most| *most > 0)?;
    let rejected = trace.value("rejected_connections").filter(|n| *n > 0);
    // A counter of rejections that is old says nothing while there is room.
    let (severity, state) = match (share(now, most), rejected) {
        (used, _) if used >= 1.0 => (Severity::Error, "full"),
        (used, Some(_)) if used >= 0.8 => (Severity::Error, "nearly full, and it was full before"),
        (used, None) if used >= 0.95 => (Severity::Warning, "nearly full"),
        _ => return None,
    };
    let rejections = rejected.map_or_else(
        || "none was turned away so far".to_owned(),
        |n| {
            format!(
                "{} were turned away since it started (rejected_connections)",
                Grouped(n)
            )
        },
    );
    Some(
        trace
            .finding("REDIS_MAXCLIENTS", severity)
            .with("connected_clients", now)
            .with("maxclients", most)
            .with_known("rejected_connections", rejected)
            .says(format!(
                "the server has {} of {} clients that maxclients allows: {state}; {rejections}. Who comes then is answered \
                 \"-ERR max number of clients reached\", which some clients hide (phpredis returns false)",
                Grouped(now),
                Grouped(most)
            ))
            .try_next(format!(
                "CONFIG SET maxclients {} (its process needs ulimit -n of 32 more); keep connections or close idle ones \
                 (CLIENT LIST, timeout); a connection per operation needs twice the clients",
                now.max(most).saturating_mul(2)
            ))
            .clears(vec![
                "the accept queue (somaxconn, tcp-backlog): these connections were accepted before they were turned away"
                    .to_owned(),
            ]),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::Severity;
    use crate::explain::trace::testing::{find, found, has};

    fn info(now: u64, rejected: u64) -> String {
        format!(
            "# Clients\nconnected_clients:{now}\nmaxclients:1000\n# Stats\nrejected_connections:{rejected}\n"
        )
    }

    #[test]
    fn a_full_server_and_a_nearly_full_one() {
        let severity =
            |now, rejected| find(&found(&info(now, rejected)), "REDIS_MAXCLIENTS").map(|f| f.severity);
        assert_eq!(severity(1000, 0), Some(Severity::Error));
        assert_eq!(severity(990, 12), Some(Severity::Error));
        assert_eq!(severity(960, 0), Some(Severity::Warning));
        // Room enough; the counter is of an earlier day.
        assert_eq!(severity(190, 12), None);
        assert_eq!(severity(900, 0), None);
    }

    #[test]
    fn the_limit_may_come_from_config_get() {
        for limit in ["1) \"maxclients\"\n2) \"100\"\n", "maxclients\n100\n"] {
            assert!(has(
                &format!("connected_clients:100\n# redis-cli config get maxclients\n{limit}"),
                "REDIS_MAXCLIENTS"
            ));
        }
        assert!(!has("connected_clients:100\n", "REDIS_MAXCLIENTS"));
    }
}
