//! Settings of the network namespace that are on or off: syncookies, and the reset at a full queue.

use super::{Case, Plan, Provable, Test};

pub(super) struct SynQueue;

const COOKIES: &str = "net.ipv4.tcp_syncookies";
const ABORT: &str = "net.ipv4.tcp_abort_on_overflow";

impl Provable for SynQueue {
    fn codes(&self) -> &'static [&'static str] {
        &["SYNQ_FULL", "SYN_BACKLOG_SYSCTL", "TCP_ACCEPTQ_RST"]
    }

    fn limit(&self) -> &'static str {
        "syn_backlog"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let (name, now, then) = match case.finding.code.as_ref() {
            "TCP_ACCEPTQ_RST" => (ABORT, "1", "0"),
            _ => (COOKIES, "0", "1"),
        };
        let setup = |value: &str| {
            let mut setup = case.base.clone();
            setup.sysctls.insert(name.to_owned(), value.to_owned());
            setup
        };
        Plan::Test(Box::new(Test {
            a: setup(now),
            b: setup(then),
            alone: Vec::new(),
            opposite: None,
            counters: &[
                "TcpExt.ListenDrops",
                "TcpExt.ListenOverflows",
                "TcpExt.TCPReqQFullDrop",
                "TcpExt.TCPReqQFullDoCookies",
                "TcpExt.EmbryonicRsts",
            ],
        }))
    }
}
