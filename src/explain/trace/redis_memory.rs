//! REDIS_OOM and REDIS_EVICTS in pasted INFO: `maxmemory` is used up.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::state::share;
use super::{Trace, traces};
use crate::record::Record;
use crate::units::{Bytes, Grouped};

pub(super) struct RedisMemory;

// REDIS_OOM is described where the rule for live runs stands.
const DOCS: &[Doc] = &[Doc {
    code: "REDIS_EVICTS",
    means: "Redis is at its maxmemory and throws keys away to make room: no write fails, and reads miss later.",
    measured: "used_memory beside maxmemory, the policy, and evicted_keys of INFO.",
    wrong_when: "It is a cache that is meant to be full: then the hit rate decides (keyspace_hits, keyspace_misses).",
    todo: "Raise maxmemory, shorten the lives of keys, or take a policy that keeps what must stay.",
}];

impl Rule for RedisMemory {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| memory(&trace)).collect()
    }
}

fn memory(trace: &Trace<'_>) -> Option<Finding> {
    let most = trace.value("maxmemory").filter(|most| *most > 0);
    let used = trace.value("used_memory");
    let policy = trace.word("maxmemory_policy");
    let evicted = trace.value("evicted_keys").filter(|n| *n > 0);
    let replies = trace.value("oom_replies");
    let errors = trace.value("oom_errors");
    // The two tell of the same refusals from both sides.
    let refused = errors.max(replies);
    let filled = used.zip(most).map(|(used, most)| share(used, most));
    // A counter of errors that is old says nothing while there is room.
    let refuses = replies > Some(0) || errors > Some(0) && filled.is_none_or(|filled| filled >= 0.8);
    let state = match (used, most) {
        (Some(used), Some(most)) => format!("{} of maxmemory {} are used", Bytes(used), Bytes(most)),
        _ => "how much of maxmemory is used is not shown".to_owned(),
    };
    let with_values = |finding: Finding| {
        finding
            .with_known("used_memory", used)
            .with_known("maxmemory", most)
            .with_known("maxmemory_policy", policy)
            .with_known("evicted_keys", evicted)
    };
    let full = filled.is_some_and(|filled| filled >= 0.95);
    if refuses || full && policy == Some("noeviction") {
        let (severity, says) = if refuses {
            (
                Severity::Error,
                format!(
                    "the server refused {} with \"-OOM command not allowed\": {state}, and its policy evicts nothing that would \
                     make room",
                    super::plural(refused.unwrap_or(0), "command")
                ),
            )
        } else {
            (
                Severity::Warning,
                format!(
                    "{state} and the policy is noeviction: the next writes are refused with \"-OOM command not allowed\""
                ),
            )
        };
        return Some(
            with_values(trace.finding("REDIS_OOM", severity))
                .with_known("refused", refused)
                .says(says)
                .try_next("CONFIG SET maxmemory N, or maxmemory-policy allkeys-lru when it is a cache; or fewer keys"),
        );
    }
    let evicted = evicted.filter(|_| full)?;
    Some(
        with_values(trace.finding("REDIS_EVICTS", Severity::Warning))
            .says(format!(
                "{state}, and {} keys were thrown away to make room since the server started: no write fails, and what was \
                 thrown away is missed later",
                Grouped(evicted)
            ))
            .try_next(
                "CONFIG SET maxmemory N if those keys are needed; for a cache see whether keyspace_misses grows; writes wait \
                 while keys are evicted",
            ),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    fn info(used: u64, policy: &str, evicted: u64) -> String {
        format!(
            "# Memory\nused_memory:{used}\nused_memory_human:x\nmaxmemory:1073741824\nmaxmemory_policy:{policy}\n# Stats\n\
             evicted_keys:{evicted}\n"
        )
    }

    #[test]
    fn a_full_memory_refuses_or_evicts() {
        let full = find(&found(&info(1_073_000_000, "noeviction", 0)), "REDIS_OOM").unwrap();
        assert!(full.says.contains("of maxmemory 1 GiB"), "{}", full.says);
        // INFO without errorstat_OOM does not say that none was refused.
        assert!(!full.evidence.contains_key("refused"));
        let errors = info(1_073_000_000, "noeviction", 0) + "errorstat_OOM:count=17\n";
        let errors = find(&found(&errors), "REDIS_OOM").unwrap();
        assert!(errors.says.contains("refused 17 commands"), "{}", errors.says);
        assert!(has(
            "(error) OOM command not allowed when used memory > 'maxmemory'.\n",
            "REDIS_OOM"
        ));
        let evicts = info(1_073_000_000, "allkeys-lru", 4200);
        assert!(has(&evicts, "REDIS_EVICTS") && !has(&evicts, "REDIS_OOM"));
    }

    #[test]
    fn a_cache_that_is_full_and_evicts_nothing_is_fine() {
        for text in [
            info(1_073_000_000, "allkeys-lru", 0),
            info(400_000_000, "noeviction", 0),
            info(400_000_000, "allkeys-lru", 4200),
            info(400_000_000, "noeviction", 0) + "errorstat_OOM:count=17\n",
            "used_memory:1073000000\nmaxmemory:0\nmaxmemory_policy:noeviction\n".to_owned(),
            clean(2),
        ] {
            for code in ["REDIS_OOM", "REDIS_EVICTS"] {
                assert!(!has(&text, code), "{code}: {text}");
            }
        }
    }
}
