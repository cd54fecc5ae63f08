//! TW_BUCKETS_OVERFLOW in pasted state: more sockets in TIME_WAIT than the kernel keeps.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, plural, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct TimeWaitTable;

impl Rule for TimeWaitTable {
    fn docs(&self) -> &'static [Doc] {
        // Described where the rule for live runs stands.
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| overflow(&trace)).collect()
    }
}

fn overflow(trace: &Trace<'_>) -> Option<Finding> {
    let lines = trace.value("time_wait_overflow_lines");
    let counted = trace.value("time_wait_overflow").filter(|n| *n > 0);
    if lines.is_none() && counted.is_none() {
        return None;
    }
    let buckets = trace.value("tcp_max_tw_buckets");
    let seen = match (counted, lines) {
        (Some(n), _) => format!("{} sockets found no place", Grouped(n)),
        (None, lines) => format!(
            "the kernel's log says so in {}",
            plural(lines.unwrap_or(0), "line")
        ),
    };
    Some(
        trace
            .finding("TW_BUCKETS_OVERFLOW", Severity::Info)
            .with_known("overflows", counted)
            .with_known("lines", lines)
            .with_known("tcp_max_tw_buckets", buckets)
            .with_known("time_wait", trace.value("time_wait"))
            .says(format!(
                "more sockets were in TIME_WAIT than tcp_max_tw_buckets{} allows ({seen}): those left it at once, which frees \
                 their ports sooner and fails no connect",
                buckets.map_or_else(String::new, |n| format!(" ({})", Grouped(n)))
            ))
            .try_next(
                "leave tcp_max_tw_buckets as it is; so many come from a connection for each operation: keep connections \
                 (pconnect, a pool)",
            ),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::has;

    #[test]
    fn the_log_or_the_counter_tells() {
        let code = "TW_BUCKETS_OVERFLOW";
        assert!(has("TCP: time wait bucket table overflow\n", code));
        assert!(has(
            "TcpExtTCPTimeWaitOverflow       301                0.0\n",
            code
        ));
        assert!(!has(
            "TcpExtTCPTimeWaitOverflow       0                  0.0\n",
            code
        ));
        assert!(!has("net.ipv4.tcp_max_tw_buckets = 131072\n", code));
    }
}
