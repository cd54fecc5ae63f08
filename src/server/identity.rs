//! Which server this is, and the settings of it that matter for a load.

use std::collections::BTreeMap;

use redis::Value;

use super::control::Control;
use super::error::Trouble;
use super::own::{CONFIG_GET, INFO};
use super::stats::Info;
use crate::record::{ServerInfo, ServerOrigin};
use crate::strategy::contract::Endpoint;
use crate::units::escape;

/// The settings that are read. Never `CONFIG GET *`: that would fetch passwords.
const SETTINGS: [&str; 15] = [
    "maxclients",
    "tcp-backlog",
    "timeout",
    "tcp-keepalive",
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "save",
    "io-threads",
    "databases",
    "protected-mode",
    "hz",
    "unixsocketperm",
    "client-output-buffer-limit",
];

/// Where `INFO` shows a setting, for servers whose `CONFIG` is renamed or not permitted.
const IN_INFO: [(&str, &str); 5] = [
    ("maxclients", "maxclients"),
    ("maxmemory", "maxmemory"),
    ("maxmemory-policy", "maxmemory_policy"),
    ("appendonly", "aof_enabled"),
    ("hz", "configured_hz"),
];

/// Fields that tell a server apart from Redis, whose `redis_version` they all show for old clients.
const KINDS: [(&str, &str); 6] = [
    ("systally_version", "systally-responder"),
    ("valkey_version", "valkey"),
    ("dragonfly_version", "dragonfly"),
    ("garnet_version", "garnet"),
    ("kvrocks_version", "kvrocks"),
    ("redis_version", "redis"),
];

/// `INFO`, parsed; an empty one when the server does not permit it.
pub(super) fn read_info(control: &mut Control) -> Result<Info, Trouble> {
    match control.ask(INFO, &[]) {
        Ok(value) => Ok(Info::parse(&text(&value).unwrap_or_default())),
        Err(Trouble::Refusal(_)) => Ok(Info::default()),
        Err(other) => Err(other),
    }
}

/// Which server it is, from its `INFO` and its settings.
pub(super) fn identify(
    control: &mut Control,
    info: &Info,
    origin: ServerOrigin,
    endpoints: &[Endpoint],
) -> Result<ServerInfo, Trouble> {
    let (kind, version) = KINDS
        .iter()
        .find_map(|(field, kind)| Some(((*kind).to_owned(), info.text(field)?)))
        .unwrap_or_else(|| {
            (
                "unknown server".to_owned(),
                "of unknown version (INFO is not permitted)".to_owned(),
            )
        });
    Ok(ServerInfo {
        kind,
        version,
        origin,
        addresses: endpoints
            .iter()
            .map(|endpoint| escape(&endpoint.to_string(), 200))
            .collect(),
        settings: settings(control, info)?,
        ..ServerInfo::default()
    })
}

fn settings(control: &mut Control, info: &Info) -> Result<BTreeMap<String, String>, Trouble> {
    let mut settings = BTreeMap::new();
    for name in SETTINGS {
        match control.ask(CONFIG_GET, &[name.as_bytes()]) {
            Ok(value) => {
                if let Some(setting) = pair(&value) {
                    settings.insert(name.to_owned(), escape(&setting, 200));
                }
            }
            // Refused once is refused for all.
            Err(Trouble::Refusal(_)) => break,
            Err(other) => return Err(other),
        }
    }
    for (name, field) in IN_INFO {
        if !settings.contains_key(name)
            && let Some(value) = info.text(field)
        {
            let value = match (name, value.as_str()) {
                ("appendonly", "0") => "no".to_owned(),
                ("appendonly", "1") => "yes".to_owned(),
                _ => value,
            };
            settings.insert(name.to_owned(), value);
        }
    }
    Ok(settings)
}

/// The second of a reply of two: `CONFIG GET` answers with name and value.
fn pair(value: &Value) -> Option<String> {
    match value {
        Value::Array(items) => items.get(1).and_then(text),
        Value::Map(items) => items.first().and_then(|(_, value)| text(value)),
        _ => None,
    }
}

/// A reply that is text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}
