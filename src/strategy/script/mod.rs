//! Clients in any language: small programs that keep the worker contract, listed in `clients.toml`
//! files. The head of `tracing-scripts/clients.toml` explains every field.

mod detect;
mod file;
mod source;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use super::client::{Client, Mode, Presence};
use super::contract::{Store, Transport};

pub use source::{ScriptSource, SourceError};

pub(super) use file::{Entry, parse};
pub(super) use source::{Folder, read};

/// A client of a `clients.toml`.
pub(super) struct ScriptClient {
    entry: Entry,
    folder: PathBuf,
    /// Keeps unpacked scripts for as long as something may run them.
    _unpacked: Option<Arc<TempDir>>,
    presence: OnceLock<Presence>,
}

impl ScriptClient {
    pub(super) fn new(entry: Entry, folder: &Folder) -> ScriptClient {
        ScriptClient {
            entry,
            folder: folder.path.clone(),
            _unpacked: folder.unpacked.clone(),
            presence: OnceLock::new(),
        }
    }

    /// Fills in the folder of the file for `{dir}`.
    fn resolve(&self, args: &[String]) -> Vec<OsString> {
        args.iter()
            .map(|arg| {
                let mut parts = arg.split("{dir}");
                let mut out = OsString::from(parts.next().unwrap_or_default());
                for part in parts {
                    out.push(&self.folder);
                    out.push(part);
                }
                out
            })
            .collect()
    }
}

impl Client for ScriptClient {
    fn name(&self) -> &str {
        &self.entry.name
    }

    fn language(&self) -> &str {
        &self.entry.language
    }

    fn description(&self) -> &str {
        &self.entry.description
    }

    fn modes(&self) -> Vec<Mode> {
        self.entry.modes.clone()
    }

    fn store(&self) -> Store {
        self.entry.store
    }

    fn is_program(&self) -> bool {
        self.entry.program
    }

    fn transports(&self) -> Vec<Transport> {
        self.entry.transports.clone()
    }

    fn presence(&self) -> Presence {
        self.presence
            .get_or_init(|| match detect::version(&self.resolve(&self.entry.detect)) {
                Ok(version) => Presence::Ready { version },
                Err(why) => Presence::Missing {
                    // To install what is there would not help against a limit of this process.
                    install: why.own_limit().unwrap_or_else(|| self.entry.install.clone()),
                    why: why.to_string(),
                },
            })
            .clone()
    }

    fn command(&self) -> Vec<OsString> {
        self.resolve(&self.entry.command)
    }
}
