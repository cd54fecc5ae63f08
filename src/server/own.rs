//! The commands that systally itself sends, and the account of them.

use std::collections::BTreeMap;

/// What the control connection did, in the server's terms: calls by command, `config|get` for a
/// subcommand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OwnWork {
    /// Calls that went well.
    pub(super) calls: BTreeMap<&'static str, u64>,
    /// Calls that were refused or failed.
    pub(super) failed: BTreeMap<&'static str, u64>,
    /// Connections made.
    pub(super) connections: u64,
}

/// One command of the control connection; the names are those of `INFO commandstats`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// How the server's statistics name it.
    pub(super) stat: &'static str,
    /// The words that make it.
    pub(super) words: &'static [&'static str],
}

/// `PING`.
pub(super) const PING: Own = Own {
    stat: "ping",
    words: &["PING"],
};

/// `AUTH`; its arguments never appear in a message.
pub(super) const AUTH: Own = Own {
    stat: "auth",
    words: &["AUTH"],
};

/// `INFO all`: `server`, `clients`, `stats` and `commandstats` in one reply, hence of one moment.
pub(super) const INFO: Own = Own {
    stat: "info",
    words: &["INFO", "all"],
};

/// `CONFIG GET`.
pub(super) const CONFIG_GET: Own = Own {
    stat: "config|get",
    words: &["CONFIG", "GET"],
};

/// `DEL`.
pub(super) const DEL: Own = Own {
    stat: "del",
    words: &["DEL"],
};

/// `CLUSTER ADDSLOTS`.
pub(super) const ADD_SLOTS: Own = Own {
    stat: "cluster|addslots",
    words: &["CLUSTER", "ADDSLOTS"],
};

/// `CLUSTER SET-CONFIG-EPOCH`.
pub(super) const SET_EPOCH: Own = Own {
    stat: "cluster|set-config-epoch",
    words: &["CLUSTER", "SET-CONFIG-EPOCH"],
};

/// `CLUSTER MEET`.
pub(super) const MEET: Own = Own {
    stat: "cluster|meet",
    words: &["CLUSTER", "MEET"],
};

/// `CLUSTER INFO`.
pub(super) const CLUSTER_INFO: Own = Own {
    stat: "cluster|info",
    words: &["CLUSTER", "INFO"],
};

/// `EXISTS`.
pub(super) const EXISTS: Own = Own {
    stat: "exists",
    words: &["EXISTS"],
};
