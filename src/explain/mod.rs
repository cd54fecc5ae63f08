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
mod cgroup_oom;
mod client_nofile;
mod clock;
mod connection_per_operation;
mod conntrack_full;
mod counted_too_early;
mod cpu_throttle;
mod diminishing_returns;
mod ephemeral_ports;
mod errors;
pub mod evidence;
mod finding;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod fixtures_limits;
mod forks;
mod handover;
mod idle_close;
mod kernel;
mod known_waits;
mod ledger;
mod listener_stale;
mod liveness_probes;
mod lookups;
mod maxclients;
mod memcached_limit;
mod nagle;
mod no_ptrace;
mod noisy_rounds;
mod opcache_off;
mod options_per_operation;
mod output_buffer_close;
mod packet_loss;
mod php_pool;
mod pieces;
mod pipeline_not_batched;
mod rank;
mod retry_duplicates;
mod row;
mod server_died;
mod server_down;
mod server_emfile;
mod server_refusal;
mod sleeps;
mod slow_server;
mod socket_missing;
mod socket_perm;
mod socket_stale;
mod spin;
mod startup;
mod symptom;
mod syn_queue;
mod system_file_max;
mod tcp_accept_queue;
mod tcp_accept_reset;
#[cfg(test)]
pub(crate) mod testing;
mod time_split;
mod time_wait_buckets;
mod trace;
mod tracer_changed;
mod unexplained;
mod unix_backlog;
mod unix_backlog_wait;
mod uring;
mod worker;
mod worker_refused;
mod xdebug;

use crate::record::Record;

pub use finding::{Doc, EXPLAINS, Finding, Rule, Severity};
pub use symptom::Symptom;
pub use time_split::{Bound, Split, splits};

/// All rules, in the order in which their findings are listed when they matter equally.
pub const RULES: &[&dyn Rule] = &[
    &server_died::ServerDied,
    &cgroup_oom::CgroupOom,
    &server_down::ServerDown,
    &socket_missing::SocketMissing,
    &socket_stale::SocketStale,
    &socket_perm::SocketPerm,
    &unix_backlog::UnixBacklog,
    &unix_backlog_wait::UnixBacklogWait,
    &tcp_accept_queue::TcpAcceptQueue,
    &tcp_accept_reset::TcpAcceptReset,
    &syn_queue::SynQueue,
    &listener_stale::ListenerStale,
    &conntrack_full::ConntrackFull,
    &packet_loss::PacketLoss,
    &ephemeral_ports::EphemeralPorts,
    &client_nofile::ClientNofile,
    &system_file_max::SystemFileMax,
    &forks::Forks,
    &auth::Auth,
    &server_refusal::ServerRefusal,
    &maxclients::Maxclients,
    &memcached_limit::MemcachedLimit,
    &server_emfile::ServerEmfile,
    &cpu_throttle::CpuThrottle,
    &slow_server::SlowServer,
    &idle_close::IdleClose,
    &output_buffer_close::OutputBufferClose,
    &php_pool::PhpPool,
    &worker_refused::WorkerRefused,
    &worker::Worker,
    &no_ptrace::NoPtrace,
    &ledger::Ledger,
    &retry_duplicates::RetryDuplicates,
    &counted_too_early::CountedTooEarly,
    &noisy_rounds::NoisyRounds,
    &pipeline_not_batched::PipelineNotBatched,
    &connection_per_operation::ConnectionPerOperation,
    &liveness_probes::LivenessProbes,
    &options_per_operation::OptionsPerOperation,
    &diminishing_returns::DiminishingReturns,
    &nagle::Nagle,
    &spin::Spin,
    &sleeps::Sleeps,
    &known_waits::KnownWaits,
    &lookups::Lookups,
    &errors::Errors,
    &pieces::Pieces,
    &handover::Handover,
    &clock::Clock,
    &uring::Uring,
    &xdebug::Xdebug,
    &opcache_off::OpcacheOff,
    &tracer_changed::TracerChanged,
    &time_wait_buckets::TimeWaitBuckets,
    &startup::StartupShare,
    &time_split::TimeSplit,
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
    rank::rank(record, &mut findings);
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
