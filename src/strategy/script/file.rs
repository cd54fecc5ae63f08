//! The text of a `clients.toml`, strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::place::{FileError, Place};
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Op, Store, Transport};
use crate::strategy::is_name;
use crate::units::escape;

/// One client, checked.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::strategy) struct Entry {
    pub(in crate::strategy) name: String,
    pub(super) language: String,
    pub(super) description: String,
    pub(super) command: Vec<String>,
    pub(super) detect: Vec<String>,
    pub(super) install: String,
    pub(super) store: Store,
    pub(super) transports: Vec<Transport>,
    pub(super) program: bool,
    pub(super) modes: Vec<Mode>,
    /// Where it is in its file, for messages.
    pub(in crate::strategy) place: Place,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    client: Vec<WireClient>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireClient {
    name: Spanned<String>,
    language: String,
    description: String,
    command: Spanned<Vec<String>>,
    detect: Spanned<Vec<String>>,
    install: String,
    #[serde(default = "redis")]
    server: Store,
    transports: Spanned<Vec<WireTransport>>,
    #[serde(default)]
    program: bool,
    modes: Spanned<BTreeMap<Spanned<String>, WireMode>>,
}

/// What a client speaks to when its table does not say.
fn redis() -> Store {
    Store::Redis
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum WireTransport {
    Tcp,
    Unix,
    Local,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireMode {
    description: String,
    connect: Connect,
    server: Option<Spanned<Store>>,
    #[serde(default)]
    transports: Vec<WireTransport>,
    #[serde(default)]
    pipeline: bool,
    #[serde(default)]
    ops: Vec<Op>,
    #[serde(default)]
    default: bool,
    #[serde(default)]
    forks: bool,
    #[serde(default)]
    demonstration: bool,
    #[serde(default)]
    options: BTreeMap<String, serde_json::Value>,
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(in crate::strategy) fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, FileError> {
    let file: WireFile = toml::from_str(text)
        .map_err(|e| Place::new(path, text, e.span()).error(e.message().replace('\n', " ")))?;
    let at = |span: Range<usize>| Place::new(path, text, Some(span));
    let mut taken = BTreeSet::new();
    file.client
        .into_iter()
        .map(|client| {
            let entry = check(client, &at)?;
            if !taken.insert(entry.name.clone()) {
                return Err(entry
                    .place
                    .error(format!("there are two clients called {}", entry.name)));
            }
            Ok(entry)
        })
        .collect()
}

fn check(client: WireClient, at: &impl Fn(Range<usize>) -> Place) -> Result<Entry, FileError> {
    for (what, command) in [("command", &client.command), ("detect", &client.detect)] {
        if command.get_ref().first().is_none_or(String::is_empty) {
            return Err(at(command.span()).error(format!("{what} names no program")));
        }
        if command.get_ref().iter().any(|arg| arg.contains('\0')) {
            return Err(at(command.span()).error(format!("{what} holds a zero byte")));
        }
    }
    let transports = in_order(client.transports.get_ref());
    let wrong = match client.server {
        _ if transports.is_empty() => Some("transports is empty; it needs \"tcp\" or \"unix\""),
        Store::Redis | Store::Memcached | Store::Cluster | Store::Shards | Store::Twemproxy
            if transports.contains(&Transport::Local) =>
        {
            Some("a server is not reached by \"local\", but by \"tcp\" or \"unix\"")
        }
        Store::None if transports != [Transport::Local] => {
            Some("without a server, transports must be exactly [\"local\"]")
        }
        Store::Redis | Store::Memcached | Store::Cluster | Store::Shards | Store::Twemproxy | Store::None => {
            None
        }
    };
    if let Some(words) = wrong {
        return Err(at(client.transports.span()).error(words));
    }
    if client.modes.get_ref().is_empty() {
        return Err(at(client.modes.span()).error("a client needs at least one mode"));
    }
    let mut modes = client
        .modes
        .into_inner()
        .into_iter()
        .map(|(name, mode)| {
            let store = mode.server.as_ref().map(|server| *server.get_ref());
            if let (Some(server), Some(store)) = (&mode.server, store)
                && (store == Store::None) != (client.server == Store::None)
            {
                return Err(
                    at(server.span()).error("a mode needs a server when its client does, and only then")
                );
            }
            Ok(Mode {
                name: checked_name(&name, at)?,
                connect: mode.connect,
                store,
                transports: in_order(&mode.transports),
                pipeline: mode.pipeline,
                ops: mode.ops,
                default: mode.default,
                depth_when_asked: false,
                forks: mode.forks,
                demonstration: mode.demonstration,
                options: mode.options,
                description: escape(&mode.description, 200),
            })
        })
        .collect::<Result<Vec<Mode>, FileError>>()?;
    modes.sort_by(|a, b| a.rank().cmp(&b.rank()));
    Ok(Entry {
        name: checked_name(&client.name, at)?,
        language: escape(&client.language, 40),
        description: escape(&client.description, 200),
        command: client.command.into_inner(),
        detect: client.detect.into_inner(),
        install: escape(&client.install, 400),
        store: client.server,
        transports,
        program: client.program,
        modes,
        place: at(client.name.span()),
    })
}

/// The transports that are named, each once, in their usual order.
fn in_order(named: &[WireTransport]) -> Vec<Transport> {
    let is_named = |transport: &Transport| {
        named.iter().any(|wire| match wire {
            WireTransport::Tcp => *transport == Transport::Tcp,
            WireTransport::Unix => *transport == Transport::Unix,
            WireTransport::Local => *transport == Transport::Local,
        })
    };
    Transport::ALL.into_iter().filter(is_named).collect()
}

fn checked_name(name: &Spanned<String>, at: &impl Fn(Range<usize>) -> Place) -> Result<String, FileError> {
    if is_name(name.get_ref()) {
        return Ok(name.get_ref().clone());
    }
    Err(at(name.span()).error(format!(
        "the name \"{}\" will not do: up to 40 lower-case letters, digits and -_.+, with a letter or a digit first",
        escape(name.get_ref(), 60)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[client]]
name = "plain"
language = "python"
description = "a bare socket"
command = ["python3", "{dir}/python/plain.py"]
detect = ["python3", "--version"]
install = "sudo apt-get install python3"
transports = ["unix", "tcp"]

[client.modes.pipeline]
description = "many"
connect = "once"
pipeline = true
options = { depth = 3, how = "well" }

[client.modes.again]
description = "asks again"
connect = "persistent_per_op"

[client.modes.connect]
description = "each time"
connect = "per_op"
default = true
"#;

    fn error(text: &str) -> String {
        parse(Path::new("c.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn an_entry_says_all_it_should() {
        let entries = parse(Path::new("c.toml"), GOOD).unwrap();
        let [entry] = entries.as_slice() else { panic!() };
        assert_eq!(entry.name, "plain");
        assert_eq!(entry.transports, Transport::SOCKETS);
        assert_eq!(entry.store, Store::Redis);
        let modes: Vec<&str> = entry.modes.iter().map(|mode| mode.name.as_str()).collect();
        assert_eq!(modes, ["connect", "again", "pipeline"]);
        assert_eq!(entry.modes[2].options["depth"], 3);
        assert!(entry.modes[0].default && !entry.modes[1].default);
    }

    #[test]
    fn errors_have_a_place() {
        let cases = [
            ("[[client]", "c.toml:1:"),
            (
                &GOOD.replace("language", "languag"),
                "c.toml:4:1: unknown field `languag`",
            ),
            (
                &GOOD.replace("\"plain\"", "\"Plain\""),
                "c.toml:3:8: the name \"Plain\"",
            ),
            (&GOOD.replace("\"plain\"", "7"), "c.toml:3:8: invalid type"),
            (
                &GOOD.replace("\"per_op\"", "\"perop\""),
                "c.toml:23:11: unknown variant `perop`",
            ),
            (
                &GOOD.replace("[\"unix\", \"tcp\"]", "[]"),
                "c.toml:9:14: transports is empty",
            ),
            (
                &GOOD.replace("\"tcp\"", "\"udp\""),
                "c.toml:9:23: unknown variant `udp`",
            ),
            (
                &GOOD.replace("[\"python3\", \"--version\"]", "[]"),
                "c.toml:7:10: detect names no program",
            ),
            (
                &GOOD.replace("modes.again", "modes.\"a b\""),
                "c.toml:17:15: the name \"a b\"",
            ),
            (
                &GOOD.replace("default", "defalt"),
                "c.toml:24:1: unknown field `defalt`",
            ),
            (
                &format!("{GOOD}{GOOD}"),
                "c.toml:27:8: there are two clients called plain",
            ),
        ];
        for (text, start) in cases {
            let shown = error(text);
            assert!(shown.starts_with(start), "{shown}\nnot {start}");
            assert!(!shown.contains('\n'), "{shown}");
        }
        let without_modes = GOOD.split("[client.modes").next().unwrap();
        assert!(error(without_modes).contains("missing field `modes`"));
        assert!(error(&format!("{without_modes}[client.modes]\n")).contains("at least one mode"));
    }

    #[test]
    fn a_client_says_what_it_speaks_to() {
        let with = |server: &str, transports: &str| {
            GOOD.replace(
                "transports = [\"unix\", \"tcp\"]",
                &format!("server = \"{server}\"\ntransports = {transports}"),
            )
        };
        let of = |text: &str| {
            let entry = parse(Path::new("c.toml"), text).unwrap().remove(0);
            (entry.store, entry.transports)
        };
        assert_eq!(
            of(&with("memcached", "[\"tcp\"]")),
            (Store::Memcached, vec![Transport::Tcp])
        );
        assert_eq!(
            of(&with("none", "[\"local\"]")),
            (Store::None, vec![Transport::Local])
        );
        assert!(error(&with("none", "[\"tcp\"]")).starts_with("c.toml:10:14: without a server"));
        assert!(error(&with("redis", "[\"local\"]")).starts_with("c.toml:10:14: a server is not"));
        assert!(error(&with("mysql", "[\"tcp\"]")).starts_with("c.toml:9:10: unknown variant"));
    }

    #[test]
    fn an_empty_file_has_no_clients() {
        assert_eq!(parse(Path::new("c.toml"), ""), Ok(Vec::new()));
    }
}
