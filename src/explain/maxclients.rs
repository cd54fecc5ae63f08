//! REDIS_MAXCLIENTS, REDIS_MAXCLIENTS_BY_ULIMIT: the server turned connections away.
//!
//! phpredis reports nothing of it: its call returns false. The server's own counter decides.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::{Mode, Row, round2};
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct Maxclients;

const DOCS: &[Doc] = &[
    Doc {
        code: "REDIS_MAXCLIENTS",
        means: "The server had maxclients connections and turned others away with an error reply.",
        measured: "rejected_connections of INFO grew during the row, or the reply \"max number of clients reached\" \
                   in the client's words.",
        wrong_when: "Somebody else's connections were the rejected ones, or the server denied them for protected mode, \
                     which counts as well.",
        todo: "Set maxclients to the number of connections and those already there; with a connection per operation \
               twice the number of clients, since the server still counts the one just closed.",
    },
    Doc {
        code: "REDIS_MAXCLIENTS_BY_ULIMIT",
        means: "As REDIS_MAXCLIENTS, and the server had lowered maxclients itself because its limit of open files is \
                too small.",
        measured: "As above, and maxclients is the open-file limit of the server's process less 32.",
        wrong_when: "Somebody set exactly that number by hand.",
        todo: "Start the server with LimitNOFILE (ulimit -n) of at least maxclients + 32; CONFIG SET maxclients cannot \
               help before that.",
    },
];

/// Descriptors Redis keeps for itself (CONFIG_MIN_RESERVED_FDS in server.h).
const RESERVED: u64 = 32;

impl Rule for Maxclients {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let rejected = row.result.server_view.known().map_or(0, |view| view.rejected);
    let said = row.symptoms().remove(&Symptom::MaxClients);
    // The counter of the whole run speaks for a row when there is no other, and for one that says itself
    // that it was turned away: rejections before its first round are not in its own view.
    let of_run = match row.record.strategies.len() {
        2.. if said.is_none() || rejected > 0 => 0,
        _ => row
            .record
            .counters
            .grew("redis.rejected_connections")
            .unwrap_or(0),
    };
    let rejected = rejected.max(of_run);
    if rejected == 0 && said.is_none() {
        return None;
    }
    let settings = row.record.server.as_ref().map(|server| &server.settings);
    let maxclients: Option<u64> = settings.and_then(|settings| settings.get("maxclients")?.parse().ok());
    let nofile = row
        .number(Fact::ServerNofile)
        .or_else(|| kernel::reading(row.record, "server.nofile"));
    let by_ulimit = matches!((maxclients, nofile), (Some(max), Some(nofile)) if max.checked_add(RESERVED) == Some(nofile));
    let clients = u64::from(row.result.axes.clients);
    let demand = match row.mode() {
        Mode::Connect => clients.saturating_mul(2),
        Mode::Kept | Mode::Unknown => clients,
    };
    let limit = maxclients.map_or_else(|| "maxclients".to_owned(), |max| format!("maxclients {max}"));
    let (code, says, try_next) = if by_ulimit {
        (
            "REDIS_MAXCLIENTS_BY_ULIMIT",
            format!(
                "the server turned connections away at {limit}, which it had lowered itself to its open-file limit of {} \
                 less {RESERVED}",
                nofile.unwrap_or_default()
            ),
            format!(
                "start the server with LimitNOFILE / ulimit -n >= {}+{RESERVED}, then maxclients; or QUIT before close",
                demand.saturating_add(1)
            ),
        )
    } else {
        (
            "REDIS_MAXCLIENTS",
            format!("the server turned connections away at {limit}"),
            format!(
                "CONFIG SET maxclients {} or more; or persistent connections; or QUIT before close",
                demand.saturating_add(1)
            ),
        )
    };
    Some(
        Finding::about(row, code, Severity::Error)
            .with("rejected_connections", rejected)
            .explains(rejected.max(said.as_ref().map_or(0, |seen| seen.count)))
            .with_known("maxclients", maxclients)
            .with_known("server_nofile", nofile)
            .with("demand", demand)
            .with_known("failed", said.as_ref().map(|seen| seen.count))
            .with_known("client_says", said.map(|seen| seen.text))
            .with_known("lost_share", row.lost_share().map(round2))
            .says(says)
            .try_next(try_next)
            .clears(row.cleared(&["maxclients"])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, failed, row, with_fact};
    use crate::record::ServerView;
    use crate::units::Measured;

    #[test]
    fn rejected_connections_without_an_error() {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/tcp");
        let Measured::Known(view) = &mut strategy.server_view else {
            panic!("no view")
        };
        view.rejected = 229;
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["REDIS_MAXCLIENTS"]);
    }

    #[test]
    fn a_limit_that_the_server_lowered_itself() {
        let mut record = failed(
            "predis/connect/tcp",
            "ServerException",
            "ERR max number of clients reached",
        );
        record
            .server
            .as_mut()
            .unwrap()
            .settings
            .insert("maxclients".into(), "992".into());
        let record = with_fact(record, Fact::ServerNofile, "1024");
        assert_eq!(codes(&record), ["REDIS_MAXCLIENTS_BY_ULIMIT"]);
    }

    #[test]
    fn rejections_of_earlier_runs_do_not_count() {
        let mut record = empty();
        record.strategies.push(row("phpredis/connect/tcp"));
        record
            .counters
            .before
            .insert("redis.rejected_connections".into(), 3);
        record
            .counters
            .after
            .insert("redis.rejected_connections".into(), 3);
        assert_eq!(codes(&record), [] as [&str; 0]);
        let mut view = ServerView::default();
        view.merge(&ServerView::default());
        assert_eq!(view.rejected, 0);
    }
}
