//! SYNQ_FULL and SYNCOOKIES in the kernel's log: "possible SYN flooding".

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, traces};
use crate::record::Record;

pub(super) struct SynFlood;

impl Rule for SynFlood {
    fn docs(&self) -> &'static [Doc] {
        // Described where the rule for live runs stands.
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| flood(&trace)).collect()
    }
}

fn flood(trace: &Trace<'_>) -> Option<Finding> {
    let dropped = trace.value("syn_dropped_lines");
    let cookies = trace.value("syn_cookies_lines");
    let port = trace.word("syn_flooding_port")?;
    let seldom =
        "the kernel says it once per listener, so the number of lines tells nothing of how often it happened";
    Some(match (dropped, cookies) {
        (Some(lines), _) => trace
            .finding("SYNQ_FULL", Severity::Error)
            .with("lines", lines)
            .with("port", port)
            .says(format!(
                "the queue of half-open connections of port {port} was full and the kernel dropped connection requests, since \
                 syncookies are off: connects then take 1 s and more, or time out; {seldom}"
            ))
            .try_next(
                "sysctl -w net.ipv4.tcp_syncookies=1; then a larger backlog for the server (tcp-backlog and net.core.somaxconn, \
                 applied when it starts), which bounds this queue as well",
            ),
        (None, lines) => trace
            .finding("SYNCOOKIES", Severity::Info)
            .with_known("lines", lines)
            .with("port", port)
            .says(format!(
                "the queue of half-open connections of port {port} was full and the kernel answered with cookies: nothing was \
                 lost; a burst of honest clients does that too; {seldom}"
            ))
            .try_next(
                "a larger backlog for the server (tcp-backlog and net.core.somaxconn, applied when it starts): it bounds this \
                 queue as well; see whether ListenOverflows grows (nstat), which is what loses connections",
            )
            .clears(vec![
                "tcp_max_syn_backlog: it counts only while tcp_syncookies is 0".to_owned(),
            ]),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{find, found, has};

    #[test]
    fn cookies_lose_nothing_and_drops_do() {
        let text =
            "[ 12.3] TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:6379. Sending cookies.\n";
        let finding = find(&found(text), "SYNCOOKIES").unwrap();
        assert!(finding.says.contains("port 6379"), "{}", finding.says);
        let old = "kernel: possible SYN flooding on port 80. Dropping request.  Check SNMP counters.\n";
        let finding = find(&found(old), "SYNQ_FULL").unwrap();
        assert!(finding.says.contains("port 80 "), "{}", finding.says);
        assert!(!has(old, "SYNCOOKIES"));
    }

    #[test]
    fn settings_are_no_flood() {
        let text = "net.ipv4.tcp_syncookies = 1\nnet.ipv4.tcp_max_syn_backlog = 2048\n";
        assert!(!has(text, "SYNCOOKIES") && !has(text, "SYNQ_FULL"));
    }
}
