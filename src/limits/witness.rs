//! What a server said when it was asked, kept with the other readings so that a recording holds it too.
//!
//! Only the values that limits need are kept, by name; a password cannot be among them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::facts::{ServerFacts, ServerKind};
use crate::proc::process::{Resource, Rlimit, Who, open_files, rlimit};
use crate::proc::sockdiag::Listener;
use crate::proc::{ReadError, Root};

/// Where a recording keeps it.
const KEPT: &str = "systally/server.json";

/// The values of `CONFIG`, `INFO` and `stats` that are kept.
const NAMES: &[&str] = &[
    "maxclients",
    "max_connections",
    "maxconns",
    "connected_clients",
    "curr_connections",
    "tcp-backlog",
    "timeout",
    "maxmemory",
    "maxmemory-policy",
    "maxmemory_policy",
    "used_memory",
    "protected-mode",
    "client-output-buffer-limit",
];

/// The answers of a server, and what is known of its process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// What it is.
    #[serde(default)]
    pub kind: ServerKind,
    /// Its version as it says.
    #[serde(default)]
    pub version: String,
    /// Whether it answered over the planned address.
    #[serde(default)]
    pub answered: bool,
    /// Settings and fields by their own names.
    #[serde(default)]
    pub named: BTreeMap<String, String>,
    /// Its process on this machine, when that is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its limit of open files, soft and hard, when it was read on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nofile: Option<(Option<u64>, Option<u64>)>,
    /// Its open descriptors, when they were counted on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fds_open: Option<u64>,
    /// Its listeners, when they were read on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Vec<Listener>>,
}

impl Witness {
    /// The witness of a recording; `None` when the recording has none.
    ///
    /// # Errors
    /// An unreadable file, or one that does not hold a witness.
    pub fn recorded(root: &Root) -> Result<Option<Witness>, ReadError> {
        match root.read(KEPT).map_err(ReadError::from) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|_| ReadError::content(KEPT, "what a server said", &text)),
            Err(e) if e.is_absent() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Puts it among the readings of a snapshot, without any value that no limit needs.
    pub fn keep(&mut self, root: &Root) {
        self.named.retain(|name, _| NAMES.contains(&name.as_str()));
        if let Ok(text) = serde_json::to_string_pretty(self) {
            root.keep(KEPT, &text);
        }
    }

    /// Notes among the readings of a snapshot that no server was asked.
    pub fn keep_none(root: &Root) {
        root.keep_absent(KEPT);
    }

    /// The facts that limits use: what was said, and what can be read of the process.
    pub fn facts(&self, root: &Root) -> ServerFacts {
        let process = self.pid.map(Who::Pid);
        let told = self.nofile.map(|(soft, hard)| Rlimit { soft, hard });
        let mut facts = ServerFacts {
            kind: self.kind,
            answered: self.answered,
            nofile: process
                .and_then(|who| rlimit(root, who, Resource::OpenFiles).ok())
                .or(told),
            fds_open: process
                .and_then(|who| open_files(root, who).ok())
                .or(self.fds_open),
            listeners: self.listeners.clone(),
            ..ServerFacts::default()
        };
        facts.learn(&self.named);
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn only_values_that_limits_need_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::recorded(folder.path()).snapshot();
        let mut witness = Witness::default();
        witness.named.insert("maxclients".into(), "10000".into());
        witness.named.insert("requirepass".into(), "hunter2".into());
        witness.keep(&root);
        root.save(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join(KEPT)).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let back = Witness::recorded(&Root::recorded(folder.path()))
            .unwrap()
            .unwrap();
        assert_eq!(back.facts(&root).maxclients, Some(10_000));
    }

    #[test]
    fn a_damaged_witness_is_an_error_and_a_missing_one_is_none() {
        assert_eq!(Witness::recorded(&Tree::new().root()).unwrap(), None);
        for text in [
            "",
            "[1]",
            "{\"kind\":\"oracle\"}",
            "{\"pid\":\"x\"}",
            "{\"unknown\":1}",
        ] {
            assert!(
                Witness::recorded(&Tree::new().with(KEPT, text).root()).is_err(),
                "{text}"
            );
        }
    }
}
