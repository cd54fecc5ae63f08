//! NAME_LOOKUPS: names resolved, and resolver files read, for every connection.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::{is_resolver, round2};
use super::{Trace, traces};
use crate::record::Record;
use crate::units::total;

pub(super) struct Dns;

const DOCS: &[Doc] = &[Doc {
    code: "NAME_LOOKUPS",
    means: "The client resolves a name for its connections: queries to a name server, and reads of resolv.conf, hosts and \
            the like. A client's connect time-out does not cover this.",
    measured: "Sends to port 53 and opens of the resolver's files in the log, beside the connections begun; waits on port \
               53 that ran into their time-out (5 s by default); in a counted pass sends to port 53, as many as connections.",
    wrong_when: "Other parts of the program resolve names.",
    todo: "Connect to an address, run a local cache, or end the name with a dot so that the search list is not tried; \
           resolve once and keep the connection.",
}];

impl Rule for Dns {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| lookups(&trace)).collect()
    }
}

fn lookups(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    let resolvers = || facts.peers.iter().filter(|(name, _)| is_resolver(name));
    let queries = total(resolvers().map(|(_, peer)| peer.sends));
    let files = facts.files.resolver_opens;
    let connects = total(trace.peers().map(|(_, peer)| peer.connect_attempts()));
    // One connection may resolve once; a program's start reads the files once.
    let per_connection = connects.max(1);
    if queries < 2 && files < 4 || queries < per_connection && files < 2 * per_connection {
        return None;
    }
    let lost_ms: u64 = resolvers()
        .flat_map(|(_, peer)| &peer.timed_out)
        .fold(0, |sum: u64, (ms, n)| sum.saturating_add(ms.saturating_mul(*n)));
    let lost = if lost_ms > 0 {
        format!(
            "; {:.1} s were lost in queries that nobody answered",
            lost_ms as f64 / 1e3
        )
    } else {
        String::new()
    };
    Some(
        trace
            .finding("NAME_LOOKUPS", Severity::Warning)
            .with("queries", queries)
            .with("resolver_files_opened", files)
            .with("connections", connects)
            .with("lost_s", round2(lost_ms as f64 / 1e3))
            .says(format!(
                "{queries} queries to port 53 and {files} reads of resolver files (resolv.conf, hosts …) for {connects} \
                 connections{lost}; this time comes before connect() and no connect time-out covers it"
            ))
            .try_next("an address in place of the name, a name that ends with a dot, a local cache, or a connection that is kept"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    #[test]
    fn a_name_resolved_for_every_connection() {
        let query = "socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, IPPROTO_IP) = 5\n\
                     connect(5, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr(\"10.0.0.2\")}, 16) = 0\n\
                     sendmmsg(5, [{msg_hdr={msg_name=NULL}}, {msg_hdr={msg_name=NULL}}], 2, MSG_NOSIGNAL) = 2\n\
                     poll([{fd=5, events=POLLIN}], 1, 5000) = 0 (Timeout)\nclose(5) = 0\n\
                     openat(AT_FDCWD, \"/etc/hosts\", O_RDONLY|O_CLOEXEC) = 5\nclose(5) = 0\n\
                     openat(AT_FDCWD, \"/etc/resolv.conf\", O_RDONLY|O_CLOEXEC) = 5\nclose(5) = 0\n\
                     socket(AF_INET, SOCK_STREAM, 0) = 5\n\
                     connect(5, {sa_family=AF_INET, sin_port=htons(6379), sin_addr=inet_addr(\"10.0.0.9\")}, 16) = 0\nclose(5) = 0\n";
        let finding = find(&found(&query.repeat(3)), "NAME_LOOKUPS").unwrap();
        assert_eq!(finding.evidence["queries"], 6);
        assert_eq!(finding.evidence["connections"], 3);
        assert!(finding.says.contains("15.0 s"), "{}", finding.says);
    }

    #[test]
    fn an_address_needs_no_lookup() {
        assert!(!has(&clean(5), "NAME_LOOKUPS"));
    }
}
