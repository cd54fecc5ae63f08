//! The name of a strategy: `client/mode/transport`.

use std::fmt;
use std::str::FromStr;

use super::contract::Transport;
use crate::units::escape;

/// What identifies a row: `phpredis/persistent/unix`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrategyName {
    /// The client.
    pub client: String,
    /// Its mode.
    pub mode: String,
    /// How it reaches the server.
    pub transport: Transport,
}

impl fmt::Display for StrategyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!(
            "{}/{}/{}",
            self.client,
            self.mode,
            self.transport.name()
        ))
    }
}

/// A text that is not the name of a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a strategy; one looks like client/mode/tcp, client/mode/unix or client/mode/local")]
pub struct NameError(String);

impl FromStr for StrategyName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut parts = text.split('/');
        let (Some(client), Some(mode), Some(transport), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NameError(escape(text, 80)));
        };
        let transport = transport_named(transport).ok_or_else(|| NameError(escape(text, 80)))?;
        if !is_name(client) || !is_name(mode) {
            return Err(NameError(escape(text, 80)));
        }
        Ok(StrategyName {
            client: client.to_owned(),
            mode: mode.to_owned(),
            transport,
        })
    }
}

/// The transport with this name.
pub(super) fn transport_named(name: &str) -> Option<Transport> {
    Transport::ALL
        .into_iter()
        .find(|transport| transport.name() == name)
}

/// Whether a client or a mode may be called so: up to 40 lower-case letters, digits and `-_.+`, with a
/// letter or a digit first. Such a name needs no quoting in a shell, a table or a file name.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 40
        && text.starts_with(plain)
        && text
            .chars()
            .all(|c| plain(c) || matches!(c, '-' | '_' | '.' | '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_it_prints() {
        for text in ["phpredis/pconnect/unix", "redis-rs/pipeline/tcp", "a/b.2+c/tcp"] {
            assert_eq!(text.parse::<StrategyName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "a",
            "a/b",
            "a/b/c",
            "a/b/tcp/d",
            "/b/tcp",
            "a//tcp",
            "A/b/tcp",
            "a b/c/tcp",
            "../b/tcp",
            "*/b/tcp",
        ] {
            assert!(text.parse::<StrategyName>().is_err(), "{text}");
        }
        let shown = "\u{1b}[31m/x/tcp"
            .parse::<StrategyName>()
            .unwrap_err()
            .to_string();
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
