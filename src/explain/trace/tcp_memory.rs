//! TCP_MEMORY in pasted state: sockets use all the memory that `tcp_mem` allows them.

use serde_json::Value;

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::state::share;
use super::{Trace, plural, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct TcpMemory;

const DOCS: &[Doc] = &[Doc {
    code: "TCP_MEMORY",
    means: "The TCP sockets of the machine use as much memory as tcp_mem allows, or nearly: the kernel shrinks windows, then \
            drops packets and resets connections.",
    measured: "mem of TCP in /proc/net/sockstat beside the second and third number of tcp_mem (all in pages), or \"TCP: out \
               of memory\" in the kernel's log.",
    wrong_when: "The log line is old, or a limit of another kind was short (\"too many orphaned sockets\").",
    todo: "Find the sockets that hold it (ss -tm, large Recv-Q or Send-Q: someone does not read), then raise tcp_mem on the host.",
}];

impl Rule for TcpMemory {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| memory(&trace)).collect()
    }
}

/// The three numbers of `tcp_mem`: from where on nothing is done, windows shrink, and nothing more is given.
fn tcp_mem(trace: &Trace<'_>) -> Option<(u64, u64)> {
    let list = trace.imported.values.get("tcp_mem").and_then(Value::as_array)?;
    match list.as_slice() {
        [_, pressure, most] => Some((pressure.as_u64()?, most.as_u64().filter(|most| *most > 0)?)),
        _ => None,
    }
}

fn memory(trace: &Trace<'_>) -> Option<Finding> {
    let lines = trace.value("tcp_out_of_memory_lines");
    let used = trace.value("tcp_memory_pages");
    let allowed = tcp_mem(trace);
    let state = used.zip(allowed);
    let (near, full) = state.map_or((false, false), |(used, (pressure, most))| {
        (
            used >= pressure || share(used, most) >= 0.8,
            share(used, most) >= 0.95,
        )
    });
    if lines.is_none() && !near {
        return None;
    }
    let mut parts = Vec::new();
    if let Some((used, (pressure, most))) = state {
        parts.push(format!(
            "TCP sockets hold {} of {} pages that tcp_mem allows (windows shrink from {} on)",
            Grouped(used),
            Grouped(most),
            Grouped(pressure)
        ));
    }
    if let Some(lines) = lines {
        parts.push(format!(
            "the kernel's log says \"TCP: out of memory\" ({})",
            plural(lines, "line")
        ));
    }
    let severity = if full || lines.is_some() {
        Severity::Error
    } else {
        Severity::Warning
    };
    let target = allowed.map_or_else(
        || "net.ipv4.tcp_mem=\"LOW PRESSURE MAX\"".to_owned(),
        |(pressure, most)| {
            format!(
                "net.ipv4.tcp_mem=\"{pressure} {most} {}\"",
                most.saturating_mul(2)
            )
        },
    );
    Some(
        trace
            .finding("TCP_MEMORY", severity)
            .with_known("pages", used)
            .with_known("tcp_mem_pressure", allowed.map(|(pressure, _)| pressure))
            .with_known("tcp_mem_most", allowed.map(|(_, most)| most))
            .with_known("memory_pressures", trace.value("tcp_memory_pressures"))
            .with_known("lines", lines)
            .says(format!(
                "{}: connections stall, are reset, or fail with ENOBUFS",
                parts.join("; ")
            ))
            .try_next(format!(
                "find who holds it (ss -tm: sockets with a large Recv-Q or Send-Q, whose program does not read); then sysctl -w \
                 {target} on the host (in pages, for the whole machine)"
            )),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::Severity;
    use crate::explain::trace::testing::{find, found, has};

    fn state(pages: u64) -> String {
        format!(
            "$ cat /proc/net/sockstat\nsockets: used 285\nTCP: inuse 12 orphan 0 tw 3 alloc 20 mem {pages}\nUDP: inuse 4 mem 2\n\
             UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n$ cat /proc/sys/net/ipv4/tcp_mem\n287898\t383864\t575796\n"
        )
    }

    #[test]
    fn full_near_and_far() {
        let severity = |pages| find(&found(&state(pages)), "TCP_MEMORY").map(|finding| finding.severity);
        assert_eq!(severity(575_000), Some(Severity::Error));
        assert_eq!(severity(400_000), Some(Severity::Warning));
        assert_eq!(severity(300_000), None);
        assert_eq!(severity(5), None);
        assert!(has(
            "[99.1] TCP: out of memory -- consider tuning tcp_mem\n",
            "TCP_MEMORY"
        ));
    }

    #[test]
    fn memory_of_others_is_not_that_of_tcp() {
        let text =
            "Out of memory: Killed process 4242 (redis-server) total-vm:1kB\nnet.core.somaxconn = 4096\n";
        assert!(!has(text, "TCP_MEMORY"));
    }
}
