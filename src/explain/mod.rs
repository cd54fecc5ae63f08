//! Findings: what made a client slow or made it fail, in words and with the numbers behind them.
//!
//! A rule is a pure function over a [`Record`], one file each, listed in [`RULES`]. It works the same on
//! a run that has just ended, a record read from a file, and an imported log. What a rule needs must
//! therefore be in the record. Whoever fills one puts there:
//!
//! * the errors of clients in `rounds[].errors` and `counted.client_errors`, as `class:message`;
//! * errnos per call in the counted phases, start-up included;
//! * [`crate::record::Failure`] with the [`evidence::Fact`]s read when it happened;
//! * `counters` before and after, with `redis.*` names from `INFO` (`redis.rejected_connections`);
//! * `server.settings` (`maxclients`, `tcp-backlog`), `client.environment` (`xdebug`), `limits`.

mod auth;
mod client_nofile;
mod connection_per_operation;
mod counted_too_early;
mod diminishing_returns;
mod ephemeral_ports;
pub mod evidence;
mod finding;
#[cfg(test)]
mod fixtures;
mod ledger;
mod liveness_probes;
mod maxclients;
mod no_ptrace;
mod options_per_operation;
mod pipeline_not_batched;
mod row;
mod server_died;
mod server_down;
mod socket_missing;
mod socket_perm;
mod socket_stale;
mod symptom;
mod system_file_max;
mod tcp_accept_queue;
#[cfg(test)]
pub(crate) mod testing;
mod trace;
mod tracer_changed;
mod unexplained;
mod unix_backlog;
mod worker;
mod xdebug;

use crate::record::Record;

pub use finding::{Doc, Finding, Rule, Severity};
pub use symptom::Symptom;

/// All rules, in the order in which their findings are listed when they matter equally.
pub const RULES: &[&dyn Rule] = &[
    &server_died::ServerDied,
    &server_down::ServerDown,
    &socket_missing::SocketMissing,
    &socket_stale::SocketStale,
    &socket_perm::SocketPerm,
    &unix_backlog::UnixBacklog,
    &tcp_accept_queue::TcpAcceptQueue,
    &ephemeral_ports::EphemeralPorts,
    &client_nofile::ClientNofile,
    &system_file_max::SystemFileMax,
    &auth::Auth,
    &maxclients::Maxclients,
    &worker::Worker,
    &no_ptrace::NoPtrace,
    &ledger::Ledger,
    &counted_too_early::CountedTooEarly,
    &pipeline_not_batched::PipelineNotBatched,
    &connection_per_operation::ConnectionPerOperation,
    &liveness_probes::LivenessProbes,
    &options_per_operation::OptionsPerOperation,
    &diminishing_returns::DiminishingReturns,
    &xdebug::Xdebug,
    &tracer_changed::TracerChanged,
];

/// What all rules find in a record, the gravest first; failures that no rule explains are said to be so.
///
/// Foreign traces have rules of their own: what holds for a worker that systally ran (its name, its window,
/// its server) does not hold for them.
pub fn explain(record: &Record) -> Vec<Finding> {
    let rules = if record.imports.is_empty() {
        RULES
    } else {
        trace::RULES
    };
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule.check(record)).collect();
    findings.extend(unexplained::check(record, &findings));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// The description of every code, in the order of the rules.
pub fn docs() -> impl Iterator<Item = &'static Doc> {
    let live = RULES.iter().flat_map(|rule| rule.docs()).chain(unexplained::DOCS);
    live.chain(trace::RULES.iter().flat_map(|rule| rule.docs()))
}

/// The description of one code.
pub fn doc(code: &str) -> Option<&'static Doc> {
    docs().find(|doc| doc.code.eq_ignore_ascii_case(code))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::testing::{empty, row};
    use super::*;

    #[test]
    fn every_code_is_described_once() {
        let codes: Vec<_> = docs().map(|doc| doc.code).collect();
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
        for doc in docs() {
            assert!(
                doc.code.chars().all(|c| c.is_ascii_uppercase() || c == '_'),
                "{}",
                doc.code
            );
            for text in [doc.means, doc.measured, doc.wrong_when, doc.todo] {
                assert!(text.ends_with('.'), "{}: {text:?}", doc.code);
            }
        }
        assert_eq!(doc("server_down").map(|doc| doc.code), Some("SERVER_DOWN"));
    }

    #[test]
    fn a_rule_gives_only_codes_it_describes() {
        // Every firing test below goes through this as well; here the clean record.
        assert!(explain(&empty()).is_empty());
    }

    #[test]
    fn a_clean_client_has_no_findings() {
        let mut record = empty();
        record.strategies.push(row("raw/persistent/tcp"));
        record.strategies.push(row("redis-rs/connect/unix"));
        assert_eq!(explain(&record), []);
    }
}
