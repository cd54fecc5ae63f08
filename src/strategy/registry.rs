//! All clients, and how the user picks strategies from them.

use std::path::Path;
use std::sync::Arc;

use super::assignment::Strategy;
use super::client::{Client, Mode};
use super::contract::Transport;
use super::name::transport_named;
use super::script::{self, FileError, Folder, ScriptClient, ScriptSource, SourceError};
use crate::units::escape;

/// The clients that this systally knows, in the order in which rows are listed.
pub struct Registry {
    clients: Vec<Arc<dyn Client>>,
}

/// Why the clients cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A list of clients cannot be found or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A list of clients is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A selector that picks nothing. The message says which part is unknown and what comes nearest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// It is not of the form `client`, `client/mode` or `client/mode/transport`.
    #[error(
        "{selector} selects no strategy: write client, client/mode or client/mode/transport, with * for any"
    )]
    Malformed {
        /// The selector, escaped.
        selector: String,
    },
    /// There is no such client.
    #[error(
        "there is no client {client} (in {selector}){}; `systally list` shows all",
        hint(.nearest.as_deref())
    )]
    Client {
        /// The selector, escaped.
        selector: String,
        /// The part that is unknown, escaped.
        client: String,
        /// The client whose name is nearest.
        nearest: Option<String>,
    },
    /// The client, or none when it is `*`, has no such mode.
    #[error(
        "{} has no mode {mode} (in {selector}){}; it has {}",
        if client == "*" { "no client" } else { client },
        hint(.nearest.as_deref()),
        known.join(", ")
    )]
    Mode {
        /// The selector, escaped.
        selector: String,
        /// The client, or `*`.
        client: String,
        /// The part that is unknown, escaped.
        mode: String,
        /// The mode whose name is nearest.
        nearest: Option<String>,
        /// The modes there are.
        known: Vec<String>,
    },
    /// The transport is not `tcp` or `unix`.
    #[error("there is no transport {transport} (in {selector}); it is tcp or unix")]
    Transport {
        /// The selector, escaped.
        selector: String,
        /// The part that is unknown, escaped.
        transport: String,
    },
    /// All its parts are known, but no strategy has them together.
    #[error("{selector} selects no strategy; `systally list` shows all")]
    Nothing {
        /// The selector, escaped.
        selector: String,
    },
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(", did you mean {name}?")).unwrap_or_default()
}

impl Registry {
    /// The Rust clients, the scripts that come with systally, and the user's own.
    ///
    /// # Errors
    /// A list of clients that cannot be read, is wrong, or uses a name that is taken.
    pub fn load(source: &ScriptSource) -> Result<Registry, LoadError> {
        let mut registry = Registry {
            clients: super::rust::clients(&source.executable).map(Arc::from).collect(),
        };
        registry.add(&source.folder()?, None)?;
        if let Some(file) = source.users_file()? {
            let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
            registry.add(&Folder::at(folder), Some(&file))?;
        }
        Ok(registry)
    }

    /// Adds the clients of a file, by default the list of the folder.
    fn add(&mut self, folder: &Folder, file: Option<&Path>) -> Result<(), LoadError> {
        let path = file.map_or_else(|| folder.list(), Path::to_owned);
        for entry in script::parse(&path, &script::read(&path)?)? {
            if self.client(&entry.name).is_some() {
                let message = format!("the name {} is taken by a client of systally", entry.name);
                return Err(entry.place.error(message).into());
            }
            self.clients.push(Arc::new(ScriptClient::new(entry, folder)));
        }
        Ok(())
    }

    /// All clients.
    pub fn clients(&self) -> &[Arc<dyn Client>] {
        &self.clients
    }

    /// The client with this name.
    pub fn client(&self, name: &str) -> Option<&Arc<dyn Client>> {
        self.clients.iter().find(|client| client.name() == name)
    }

    /// The strategies that the selectors pick, each once, in the order of the selectors and for each of
    /// them in that of the registry. A selector is `client`, `client/mode` or `client/mode/transport`
    /// with `*` for any, or several of these with commas between. Without a mode it picks the default
    /// modes, with `*` all but demonstrations. No selectors at all pick all default modes.
    ///
    /// # Errors
    /// The first selector that picks nothing.
    pub fn select(&self, selectors: &[String]) -> Result<Vec<Strategy>, SelectError> {
        let everything = ["*".to_owned()];
        let selectors = if selectors.is_empty() { &everything } else { selectors };
        let mut picked: Vec<Strategy> = Vec::new();
        for selector in selectors.iter().flat_map(|list| list.split(',')) {
            for strategy in self.expand(selector.trim())? {
                if !picked.iter().any(|other| other.name() == strategy.name()) {
                    picked.push(strategy);
                }
            }
        }
        Ok(picked)
    }

    fn expand(&self, selector: &str) -> Result<Vec<Strategy>, SelectError> {
        let parts: Vec<&str> = selector.split('/').collect();
        let (client, mode, transport) = match parts.as_slice() {
            [client] => (*client, None, "*"),
            [client, mode] => (*client, Some(*mode), "*"),
            [client, mode, transport] => (*client, Some(*mode), *transport),
            _ => return Err(malformed(selector)),
        };
        if parts.contains(&"") {
            return Err(malformed(selector));
        }
        let clients = self.clients_like(selector, client)?;
        let transport = transport_like(selector, transport)?;
        let mut found = Vec::new();
        for client in &clients {
            for mode in modes_like(client.as_ref(), mode, clients.len() == 1) {
                for transport in client
                    .transports()
                    .into_iter()
                    .filter(|own| transport.is_none_or(|wanted| wanted == *own))
                {
                    found.push(Strategy {
                        client: Arc::clone(client),
                        mode: mode.clone(),
                        transport,
                    });
                }
            }
        }
        match (found.is_empty(), mode) {
            (false, _) => Ok(found),
            (true, Some(mode)) if mode != "*" && !knows_mode(&clients, mode) => {
                Err(unknown_mode(selector, client, mode, &clients))
            }
            (true, _) => Err(SelectError::Nothing {
                selector: escape(selector, 80),
            }),
        }
    }

    fn clients_like(&self, selector: &str, name: &str) -> Result<Vec<Arc<dyn Client>>, SelectError> {
        if name == "*" {
            return Ok(self.clients.clone());
        }
        match self.client(name) {
            Some(client) => Ok(vec![Arc::clone(client)]),
            None => Err(SelectError::Client {
                selector: escape(selector, 80),
                client: escape(name, 80),
                nearest: nearest(name, self.clients.iter().map(|client| client.name().to_owned())),
            }),
        }
    }
}

fn malformed(selector: &str) -> SelectError {
    SelectError::Malformed {
        selector: if selector.is_empty() {
            "an empty name".to_owned()
        } else {
            escape(selector, 80)
        },
    }
}

fn transport_like(selector: &str, name: &str) -> Result<Option<Transport>, SelectError> {
    if name == "*" {
        return Ok(None);
    }
    match transport_named(name) {
        Some(transport) => Ok(Some(transport)),
        None => Err(SelectError::Transport {
            selector: escape(selector, 80),
            transport: escape(name, 80),
        }),
    }
}

/// The modes that a selector means. A client that is named and has no default mode gives all it has.
fn modes_like(client: &dyn Client, wanted: Option<&str>, named: bool) -> Vec<Mode> {
    let all = client.modes();
    let keep = |test: &dyn Fn(&Mode) -> bool| all.iter().filter(|mode| test(mode)).cloned().collect();
    match wanted {
        Some("*") => keep(&|mode| !mode.demonstration),
        Some(name) => keep(&|mode| mode.name == name),
        None if named && !all.iter().any(|mode| mode.default) => all,
        None => keep(&|mode| mode.default && !mode.demonstration),
    }
}

fn knows_mode(clients: &[Arc<dyn Client>], name: &str) -> bool {
    clients
        .iter()
        .any(|client| client.modes().iter().any(|mode| mode.name == name))
}

fn unknown_mode(selector: &str, client: &str, mode: &str, clients: &[Arc<dyn Client>]) -> SelectError {
    let mut known: Vec<String> = Vec::new();
    for mode in clients.iter().flat_map(|client| client.modes()) {
        if !known.contains(&mode.name) {
            known.push(mode.name);
        }
    }
    SelectError::Mode {
        selector: escape(selector, 80),
        client: client.to_owned(),
        mode: escape(mode, 80),
        nearest: nearest(mode, known.iter().cloned()),
        known,
    }
}

/// The name most like `word`, if any is much like it. Jaro-Winkler favours a common beginning, which
/// suits names that are abbreviated (`redis` for `redis-rs`) as well as mistyped.
fn nearest(word: &str, names: impl Iterator<Item = String>) -> Option<String> {
    names
        .map(|name| (strsim::jaro_winkler(word, &name), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
