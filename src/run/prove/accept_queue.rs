//! The accept queue: somaxconn and the server's tcp-backlog are two locks, and the smaller one counts.

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct AcceptQueue;

const SOMAXCONN: &str = "net.core.somaxconn";

impl Provable for AcceptQueue {
    fn codes(&self) -> &'static [&'static str] {
        &[
            "UNIX_BACKLOG_EAGAIN",
            "UNIX_BACKLOG_WAIT",
            "TCP_ACCEPTQ_SYNDROP",
            "LISTENER_STALE",
        ]
    }

    fn limit(&self) -> &'static str {
        "accept_backlog"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let listener = match case.row.axes.transport.as_str() {
            "unix" => "listener.unix.backlog",
            _ => "listener.tcp.backlog",
        };
        let somaxconn = case.reading(SOMAXCONN);
        let asked = case.base.tcp_backlog.map(u64::from);
        let effective = case
            .evidence("backlog")
            .or_else(|| case.reading(listener))
            .or_else(|| Some(asked?.min(somaxconn?)));
        let Some(effective) = effective else {
            return Plan::NotPossible("the queue that the server has is not known".to_owned());
        };
        // A listener may have less than both say, when somaxconn was raised after it began to listen.
        let asked = asked.unwrap_or(effective);
        let somaxconn = match somaxconn {
            Some(somaxconn) if somaxconn.min(asked) <= effective => somaxconn,
            Some(_) | None => effective,
        };
        let demand = case
            .demand("accept_backlog")
            .unwrap_or(case.clients())
            .max(case.clients());
        let wanted = ample(demand).max(asked).max(effective);
        let setup = |somaxconn: u64, backlog: u64| {
            let mut setup = case.base.clone();
            setup.sysctls.insert(SOMAXCONN.to_owned(), somaxconn.to_string());
            setup.tcp_backlog = u32::try_from(backlog).ok();
            setup
        };
        let raised = somaxconn.max(wanted);
        // Each lock alone is worth a run only where both bind.
        let alone = if somaxconn < wanted && asked < wanted && asked.min(somaxconn) == effective {
            vec![setup(raised, asked), setup(somaxconn, wanted)]
        } else {
            Vec::new()
        };
        Plan::Test(Box::new(Test {
            a: setup(somaxconn, asked),
            b: setup(raised, wanted),
            alone,
            opposite: (effective > 1).then(|| setup(somaxconn, effective / 2)),
            counters: &[
                "TcpExt.ListenOverflows",
                "TcpExt.ListenDrops",
                "TcpExt.TCPSynRetrans",
                "listener.tcp.drops",
            ],
        }))
    }
}
