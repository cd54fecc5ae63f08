//! Errors that the server answered in its own protocol: no call fails, and no errno shows them.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, plural, traces};
use crate::record::Record;

pub(super) struct ErrorReplies;

const DOCS: &[Doc] = &[Doc {
    code: "SERVER_ERROR_REPLY",
    means: "The server answered with errors. No system call fails in that case, and some clients hide it.",
    measured: "Replies in the log that begin with - (RESP) or ERROR (memcached).",
    wrong_when: "The log cuts payloads so early (strace -s) that a value looks like a reply.",
    todo: "Read the server's words; WRONGTYPE and the like are the program's own.",
}];

impl Rule for ErrorReplies {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).flat_map(|trace| replies(&trace)).collect()
    }
}

fn replies(trace: &Trace<'_>) -> Vec<Finding> {
    let Some(facts) = trace.facts() else {
        return Vec::new();
    };
    let mut others = Vec::new();
    let mut out = Vec::new();
    let mut count: u64 = 0;
    for (reply, n) in &facts.error_replies {
        let lower = reply.to_lowercase();
        if lower.contains("max number of clients") || lower.contains("too many open connections") {
            out.push(
                trace
                    .finding("REDIS_MAXCLIENTS", Severity::Error)
                    .with("replies", *n)
                    .with("reply", reply.as_str())
                    .says(format!(
                        "no call failed, but the server answered “{reply}” and hung up: it has all the clients that \
                         maxclients allows"
                    ))
                    .try_next(
                        "raise maxclients (and the server's open-file limit with it), or close idle clients; INFO's \
                         rejected_connections counts these",
                    ),
            );
        } else if lower.starts_with("-noauth")
            || lower.starts_with("-wrongpass")
            || lower.starts_with("-noperm")
        {
            out.push(
                trace
                    .finding("AUTH", Severity::Error)
                    .with("replies", *n)
                    .with("reply", reply.as_str())
                    .says(format!("the server wants other credentials: “{reply}”"))
                    .try_next("the password or the ACL user of the client"),
            );
        } else if lower.starts_with("-oom") {
            out.push(
                trace
                    .finding("REDIS_OOM", Severity::Error)
                    .with("replies", *n)
                    .with("reply", reply.as_str())
                    .says(format!(
                        "no call failed, but the server answered “{reply}”: maxmemory is used up and its policy evicts nothing"
                    ))
                    .try_next("CONFIG SET maxmemory N, or maxmemory-policy allkeys-lru when it is a cache"),
            );
        } else {
            count = count.saturating_add(*n);
            others.push(format!("{n} x {reply}"));
        }
    }
    if !others.is_empty() {
        let moved = others
            .iter()
            .filter(|text| text.contains("-MOVED") || text.contains("-ASK"))
            .count();
        let next = if moved > 0 {
            "MOVED and ASK: the client asks the wrong node of a cluster again and again; it should learn the slots"
        } else {
            "the server's log and the command that each reply is to"
        };
        out.push(
            trace
                .finding("SERVER_ERROR_REPLY", Severity::Warning)
                .with("replies", count)
                .says(format!(
                    "no call failed, but the server answered with {}: {}",
                    plural(count, "error"),
                    others.join("; ")
                ))
                .try_next(next),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    fn reply(text: &str) -> String {
        format!(
            "sendto(7, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, 0, NULL, 0) = 14\nrecvfrom(7, \"{text}\\r\\n\", 8192, 0, NULL, NULL) = 36\n"
        )
    }

    #[test]
    fn each_reply_has_its_code() {
        assert!(has(
            &reply("-ERR max number of clients reached"),
            "REDIS_MAXCLIENTS"
        ));
        assert!(has(&reply("-NOAUTH Authentication required."), "AUTH"));
        assert!(has(
            &reply("-OOM command not allowed when used memory > 'maxmemory'."),
            "REDIS_OOM"
        ));
        assert!(has(&reply("-MOVED 3999 127.0.0.1:6381"), "SERVER_ERROR_REPLY"));
        assert!(!has(&reply("+PONG"), "SERVER_ERROR_REPLY"));
        assert!(!has(&clean(2), "SERVER_ERROR_REPLY"));
    }
}
