//! How the user picks strategies: `client`, `client/mode`, `client/mode/transport`, with `*` for any.

use std::sync::Arc;

use super::assignment::Strategy;
use super::client::{Client, Mode};
use super::contract::Transport;
use super::name::transport_named;
use super::registry::Registry;
use crate::units::escape;

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
    /// It is a URI. It is not repeated: a password may be in it.
    #[error("a URI is no strategy: the server is given by -u URI, or by -h and -p or -s")]
    Uri,
    /// There is no such client.
    #[error(
        "there is no client {client} (in {selector}){} `systally list` shows all",
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
        "{} mode {mode} (in {selector}){} There are {}",
        if client == "*" { "no client has a".to_owned() } else { format!("{client} has no") },
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
    /// The transport is not `tcp`, `unix` or `local`.
    #[error("there is no transport {transport} (in {selector}); it is tcp, unix or local")]
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
    nearest.map_or_else(|| ".".to_owned(), |name| format!(", did you mean {name}?"))
}

impl Registry {
    /// The strategies that the selectors pick, each once, in the order of the selectors and for each of
    /// them in that of the registry. A selector is `client`, `client/mode` or `client/mode/transport`
    /// with `*` for any, or several of these with commas between. Without a mode it picks the default
    /// modes, with `*` all but demonstrations. No selectors at all pick all default modes.
    ///
    /// # Errors
    /// The first selector that picks nothing.
    pub fn select(&self, selectors: &[String]) -> Result<Vec<Strategy>, SelectError> {
        let everything = ["*".to_owned()];
        let selectors = if selectors.is_empty() {
            &everything
        } else {
            selectors
        };
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
        if selector.contains("://") {
            return Err(SelectError::Uri);
        }
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
                for transport in mode
                    .transports(client.as_ref())
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
            return Ok(self.clients().to_vec());
        }
        match self.client(name) {
            Some(client) => Ok(vec![Arc::clone(client)]),
            None => Err(SelectError::Client {
                selector: escape(selector, 80),
                client: escape(name, 80),
                nearest: nearest(name, self.clients().iter().map(|client| client.name().to_owned())),
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
    // Names are in lower case, and whoever shouts means the same.
    let word = word.to_lowercase();
    names
        .map(|name| (strsim::jaro_winkler(&word, &name), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::registry::tests::registry;

    fn select(selectors: &[&str]) -> Result<Vec<String>, SelectError> {
        let selectors: Vec<String> = selectors.iter().map(|s| (*s).to_owned()).collect();
        let picked = registry().1.select(&selectors)?;
        Ok(picked
            .iter()
            .map(|strategy| strategy.name().to_string())
            .collect())
    }

    #[test]
    fn nothing_named_means_all_defaults_in_a_stable_order() {
        assert_eq!(
            select(&[]).unwrap(),
            [
                "raw/persistent/tcp",
                "raw/persistent/unix",
                "redis-rs/connect/tcp",
                "redis-rs/connect/unix",
                "redis-rs/persistent/tcp",
                "redis-rs/persistent/unix",
                "redis-rs/pipeline/tcp",
                "redis-rs/pipeline/unix",
                "redis-rs-async/persistent/tcp",
                "redis-rs-async/persistent/unix",
                "phpredis/persistent/tcp",
                "phpredis/persistent/unix",
                "phpredis/pipeline/tcp",
                "phpredis/pipeline/unix",
            ]
        );
    }

    #[test]
    fn each_form_of_a_selector() {
        let cases: [(&[&str], &[&str]); 9] = [
            (
                &["phpredis/*/unix"],
                &[
                    "phpredis/pconnect/unix",
                    "phpredis/persistent/unix",
                    "phpredis/pipeline/unix",
                ],
            ),
            (
                &["phpredis/persistent"],
                &["phpredis/persistent/tcp", "phpredis/persistent/unix"],
            ),
            (&["phpredis/pconnect/unix"], &["phpredis/pconnect/unix"]),
            (
                &["*/persistent/unix"],
                &[
                    "raw/persistent/unix",
                    "redis-rs/persistent/unix",
                    "redis-rs-async/persistent/unix",
                    "fred/persistent/unix",
                    "phpredis/persistent/unix",
                ],
            ),
            // A demonstration runs when it is named.
            (&["*/unsent/tcp"], &["phpredis/unsent/tcp"]),
            // No default mode: the name alone means all it has.
            (&["tool"], &["tool/persistent/tcp"]),
            (&["noop/loop/tcp"], &["noop/loop/tcp"]),
            (
                &["tool , raw/persistent/tcp", "tool"],
                &["tool/persistent/tcp", "raw/persistent/tcp"],
            ),
            (&["raw/*/tcp"], &["raw/persistent/tcp", "raw/pipeline/tcp"]),
        ];
        for (selectors, names) in cases {
            assert_eq!(select(selectors).unwrap(), names, "{selectors:?}");
        }
        assert_eq!(select(&["*"]), select(&[]));
        assert_eq!(select(&["phpredis"]).unwrap().len(), 4);
    }

    #[test]
    fn what_is_unknown_is_named_with_the_nearest() {
        let cases = [
            (
                "phpreds",
                "there is no client phpreds (in phpreds), did you mean phpredis? `systally list`",
            ),
            (
                "redis/persistent",
                "no client redis (in redis/persistent), did you mean redis-rs?",
            ),
            (
                "zzz",
                "there is no client zzz (in zzz). `systally list` shows all",
            ),
            (
                "phpredis/persistant",
                "phpredis has no mode persistant (in phpredis/persistant), did you mean persistent? \
                 There are pconnect, persistent, pipeline, unsent",
            ),
            (
                "*/zzz",
                "no client has a mode zzz (in */zzz). There are persistent,",
            ),
            (
                "raw/persistent/udp",
                "no transport udp (in raw/persistent/udp); it is tcp, unix or local",
            ),
            ("tool/persistent/unix", "tool/persistent/unix selects no strategy"),
            ("noop/*", "noop/* selects no strategy"),
            ("raw//tcp", "raw//tcp selects no strategy: write client,"),
            ("a/b/c/d", "selects no strategy: write client,"),
            ("", "an empty name selects no strategy"),
            ("raw,,tool", "an empty name selects no strategy"),
            ("\u{1b}[2J", "there is no client \\u{1b}[2J"),
        ];
        for (selector, part) in cases {
            let text = select(&[selector]).unwrap_err().to_string();
            assert!(text.contains(part), "{text}\nnot: {part}");
        }
    }
}
