//! TW_BUCKETS_OVERFLOW: TIME_WAIT was cut short, which frees ports sooner and harms nobody here.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use crate::record::Record;

pub(super) struct TimeWaitBuckets;

const DOCS: &[Doc] = &[Doc {
    code: "TW_BUCKETS_OVERFLOW",
    means: "More sockets were in TIME_WAIT than tcp_max_tw_buckets, so the kernel freed some at once; ports come free sooner for it.",
    measured: "TcpExt.TCPTimeWaitOverflow grew over the run.",
    wrong_when: "Another process of the same network namespace closed the connections.",
    todo: "Nothing: no operation fails for it.",
}];

impl Rule for TimeWaitBuckets {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record).into_iter().collect()
    }
}

fn check(record: &Record) -> Option<Finding> {
    let cut = kernel::grown(record, "TcpExt.TCPTimeWaitOverflow");
    (cut > 0).then(|| {
        Finding::about_all("TW_BUCKETS_OVERFLOW", Severity::Info)
            .with("cut_short", cut)
            .says(format!(
                "{cut} sockets did not stay in TIME_WAIT, because tcp_max_tw_buckets was reached: their ports were free at once"
            ))
            .try_next("nothing; no operation fails for it")
    })
}
