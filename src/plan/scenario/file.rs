//! The text of a scenario file, strictly: an unknown key, a wrong type or an impossible value is an error
//! with its line and column. The keys are named as the flags of `systally bench`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::blocks::Variant;
use super::{Amount, Article, Network, Part, PublishedCalls, Scenario, ServerSetup};
use crate::place::{FileError, Place};
use crate::plan::{DEFAULT_KEYS, DEFAULT_RUNS};
use crate::strategy::contract::{KeyOrder, Op, PayloadKind, Serializer, Transport};
use crate::strategy::is_name;
use crate::units::escape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireScenario {
    about: String,
    timeout: Option<Spanned<String>>,
    published: Option<WireArticle>,
    bench: Spanned<Vec<WirePart>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireArticle {
    article: Spanned<String>,
    #[serde(default)]
    same: BTreeMap<String, OneOrMore<String>>,
    #[serde(default)]
    calls: BTreeMap<String, WireCalls>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCalls {
    row: String,
    ops: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WirePart {
    #[serde(default)]
    about: String,
    strategies: Spanned<Vec<String>>,
    transports: Option<Spanned<Vec<WireTransport>>>,
    tests: Option<Spanned<Vec<Op>>>,
    clients: Option<Spanned<Vec<u32>>>,
    requests: Option<Spanned<u64>>,
    requests_per_client: Option<Spanned<u64>>,
    counted_requests: Option<Spanned<u64>>,
    counted_requests_per_client: Option<Spanned<u64>>,
    pipeline: Option<Spanned<Vec<u32>>>,
    data_size: Option<Spanned<Vec<u64>>>,
    payload: Option<Spanned<Vec<PayloadKind>>>,
    serializer: Option<Serializer>,
    servers: Option<Spanned<Vec<u32>>>,
    variant: Option<Spanned<Vec<WireVariant>>>,
    keyspace: Option<Spanned<u64>>,
    order: Option<KeyOrder>,
    seed: Option<u64>,
    runs: Option<Spanned<u32>>,
    warmup: Option<Spanned<u32>>,
    pause: Option<Spanned<String>>,
    #[serde(default)]
    usage: bool,
    server: Option<WireServer>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum WireTransport {
    Tcp,
    Unix,
    Local,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireVariant {
    name: Spanned<String>,
    php_ini: Option<Spanned<Vec<String>>>,
    needs_extension: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireServer {
    tcp_backlog: Option<Spanned<u32>>,
    maxclients: Option<Spanned<u32>>,
    network: Option<WireNetwork>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireNetwork {
    Shared,
    Own,
}

/// A file being read.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Option<Range<usize>>, message: impl Into<String>) -> FileError {
        Place::new(self.path, self.text, span).error(message)
    }

    fn at<T>(&self, spanned: &Spanned<T>, message: impl Into<String>) -> FileError {
        self.error(Some(spanned.span()), message)
    }

    /// A number within a range.
    fn number<T: Copy + PartialOrd + std::fmt::Display>(
        &self,
        name: &str,
        number: &Spanned<T>,
        least: T,
        most: T,
    ) -> Result<T, FileError> {
        let value = *number.get_ref();
        if value < least || value > most {
            return Err(self.at(number, format!("{name} must lie between {least} and {most}")));
        }
        Ok(value)
    }

    /// A list of numbers within a range, not empty.
    fn numbers<T: Copy + PartialOrd + std::fmt::Display>(
        &self,
        name: &str,
        list: Option<&Spanned<Vec<T>>>,
        default: &[T],
        (least, most): (T, T),
    ) -> Result<Vec<T>, FileError> {
        let Some(list) = list else {
            return Ok(default.to_vec());
        };
        self.filled(name, list)?;
        match list.get_ref().iter().find(|n| **n < least || **n > most) {
            Some(_) => Err(self.at(list, format!("{name} must lie between {least} and {most}"))),
            None => Ok(list.get_ref().clone()),
        }
    }

    fn filled<T>(&self, name: &str, list: &Spanned<Vec<T>>) -> Result<(), FileError> {
        if list.get_ref().is_empty() {
            return Err(self.at(list, format!("{name} is empty; leave it out for the default")));
        }
        Ok(())
    }

    fn list<T: Clone>(
        &self,
        name: &str,
        list: Option<&Spanned<Vec<T>>>,
        default: &[T],
    ) -> Result<Vec<T>, FileError> {
        let Some(list) = list else {
            return Ok(default.to_vec());
        };
        self.filled(name, list)?;
        Ok(list.get_ref().clone())
    }

    fn span(&self, name: &str, text: Option<&Spanned<String>>) -> Result<Option<Duration>, FileError> {
        let Some(text) = text else { return Ok(None) };
        match crate::units::parse_span(text.get_ref()) {
            Ok(span) => Ok(Some(span)),
            Err(why) => Err(self.at(text, format!("{name}: {why}"))),
        }
    }
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(super) fn parse(path: &Path, text: &str) -> Result<Scenario, FileError> {
    let source = Source { path, text };
    let file: WireScenario = toml::from_str(text)
        .map_err(|e| source.error(e.span(), escape(&e.message().replace('\n', " "), 400)))?;
    if file.bench.get_ref().is_empty() {
        return Err(source.at(&file.bench, "a scenario needs at least one [[bench]]"));
    }
    let timeout = source.span("timeout", file.timeout.as_ref())?;
    let parts = file
        .bench
        .into_inner()
        .into_iter()
        .map(|part| self::part(&source, part))
        .collect::<Result<Vec<Part>, FileError>>()?;
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    Ok(Scenario {
        name: escape(stem, 80),
        about: escape(file.about.trim(), 1000),
        article: file.published.map(|wire| article(&source, wire)).transpose()?,
        timeout,
        parts,
    })
}

fn article(source: &Source<'_>, wire: WireArticle) -> Result<Article, FileError> {
    let id = wire.article.get_ref().clone();
    if super::published::Figures::find(&id).is_err() {
        return Err(source.at(
            &wire.article,
            format!(
                "there are no figures of an article {}; there are {}",
                escape(&id, 60),
                super::published::IDS.join(", ")
            ),
        ));
    }
    let mut calls = BTreeMap::new();
    for (name, one) in wire.calls {
        let ops = source.number("ops", &one.ops, 1, 1_000_000_000)?;
        calls.insert(name, PublishedCalls { row: one.row, ops });
    }
    Ok(Article {
        id,
        same: wire
            .same
            .into_iter()
            .map(|(name, rows)| match rows {
                OneOrMore::One(row) => (name, vec![row]),
                OneOrMore::More(rows) => (name, rows),
            })
            .collect(),
        calls,
    })
}

fn part(source: &Source<'_>, part: WirePart) -> Result<Part, FileError> {
    source.filled("strategies", &part.strategies)?;
    let transports = part.transports.as_ref().map(|list| {
        source.filled("transports", list)?;
        Ok(list.get_ref().iter().map(|wire| transport(*wire)).collect())
    });
    let most_ops = 1_000_000_000;
    let requests = amount(
        source,
        "requests",
        part.requests.as_ref(),
        part.requests_per_client.as_ref(),
    )?
    .ok_or_else(|| {
        source.at(
            &part.strategies,
            "this [[bench]] has neither requests nor requests-per-client",
        )
    })?;
    let counted = amount(
        source,
        "counted-requests",
        part.counted_requests.as_ref(),
        part.counted_requests_per_client.as_ref(),
    )?;
    let clients = source.numbers("clients", part.clients.as_ref(), &[1], (1, 10_000))?;
    if let Some(most) = clients.iter().max()
        && requests.total(*most) > most_ops
    {
        return Err(source.at(
            &part.strategies,
            format!("more than {most_ops} operations a round"),
        ));
    }
    let runs = part
        .runs
        .as_ref()
        .map_or(Ok(DEFAULT_RUNS), |n| source.number("runs", n, 1, 10_000))?;
    let warmup = part
        .warmup
        .as_ref()
        .map_or(Ok(1), |n| source.number("warmup", n, 0, 1_000))?;
    let keyspace = part
        .keyspace
        .as_ref()
        .map_or(Ok(DEFAULT_KEYS), |n| source.number("keyspace", n, 1, 10_000_000))?;
    let random = part.keyspace.is_some();
    Ok(Part {
        about: escape(part.about.trim(), 400),
        transports: transports.transpose()?.unwrap_or_default(),
        strategies: part.strategies.into_inner(),
        tests: source.list("tests", part.tests.as_ref(), &[Op::Setget])?,
        clients,
        requests,
        counted,
        pipeline: source.numbers("pipeline", part.pipeline.as_ref(), &[], (1, 100_000))?,
        data_size: source.numbers("data-size", part.data_size.as_ref(), &[4], (1, 104_857_600))?,
        payload: source.list("payload", part.payload.as_ref(), &[PayloadKind::String])?,
        serializer: part.serializer.unwrap_or(Serializer::None),
        servers: source.numbers("servers", part.servers.as_ref(), &[1], (1, 64))?,
        variants: variants(source, part.variant)?,
        keyspace,
        order: part
            .order
            .unwrap_or(if random { KeyOrder::Random } else { KeyOrder::Seq }),
        seed: part.seed.unwrap_or(1),
        runs,
        warmup,
        pause: source.span("pause", part.pause.as_ref())?,
        usage: part.usage,
        server: server(source, part.server)?,
    })
}

fn amount(
    source: &Source<'_>,
    name: &str,
    total: Option<&Spanned<u64>>,
    per_client: Option<&Spanned<u64>>,
) -> Result<Option<Amount>, FileError> {
    let most = 1_000_000_000;
    Ok(match (total, per_client) {
        (None, None) => None,
        (Some(total), None) => Some(Amount::Total(source.number(name, total, 1, most)?)),
        (None, Some(each)) => Some(Amount::PerClient(source.number(name, each, 1, most)?)),
        (Some(_), Some(each)) => {
            return Err(source.at(each, format!("both {name} and {name}-per-client; give one")));
        }
    })
}

fn transport(wire: WireTransport) -> Transport {
    match wire {
        WireTransport::Tcp => Transport::Tcp,
        WireTransport::Unix => Transport::Unix,
        WireTransport::Local => Transport::Local,
    }
}

fn server(source: &Source<'_>, wire: Option<WireServer>) -> Result<ServerSetup, FileError> {
    let Some(wire) = wire else {
        return Ok(ServerSetup::default());
    };
    let number = |name, value: Option<&Spanned<u32>>| {
        value
            .map(|value| source.number(name, value, 1, 65_535))
            .transpose()
    };
    Ok(ServerSetup {
        tcp_backlog: number("tcp-backlog", wire.tcp_backlog.as_ref())?,
        maxclients: number("maxclients", wire.maxclients.as_ref())?,
        network: match wire.network {
            None | Some(WireNetwork::Shared) => Network::Shared,
            Some(WireNetwork::Own) => Network::Own,
        },
    })
}

fn variants(source: &Source<'_>, list: Option<Spanned<Vec<WireVariant>>>) -> Result<Vec<Variant>, FileError> {
    let Some(list) = list else {
        return Ok(vec![Variant::default()]);
    };
    source.filled("variant", &list)?;
    let mut variants: Vec<Variant> = Vec::new();
    for wire in list.into_inner() {
        let name = wire.name.get_ref();
        if !is_name(name) {
            return Err(source.at(
                &wire.name,
                "a variant's name is up to 40 lower-case letters, digits and -_.+",
            ));
        }
        if variants.iter().any(|other| other.name == *name) {
            return Err(source.at(&wire.name, format!("there are two variants called {name}")));
        }
        if let Some(lines) = &wire.php_ini
            && lines
                .get_ref()
                .iter()
                .any(|line| line.contains('\0') || !line.contains('='))
        {
            return Err(source.at(
                lines,
                "php-ini is a list of settings such as \"opcache.enable_cli=1\"",
            ));
        }
        if let Some(extension) = &wire.needs_extension
            && !extension
                .get_ref()
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ' ')
        {
            return Err(source.at(extension, "not the name of a PHP extension"));
        }
        variants.push(Variant {
            name: name.clone(),
            php_ini: wire.php_ini.map(Spanned::into_inner).unwrap_or_default(),
            needs_extension: wire.needs_extension.map(Spanned::into_inner),
        });
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"about = "a test"
timeout = "2m"

[published]
article = "forked-connections-2016"
same = { "phpredis connect" = "phpredis/connect" }

[[bench]]
strategies = ["phpredis/connect", "raw"]
transports = ["unix"]
tests = ["incr"]
clients = [100, 1000]
requests-per-client = 1000
runs = 2
pause = "3s"
variant = [{ name = "plain" }, { name = "opcache", php-ini = ["opcache.enable_cli=1"] }]
server = { tcp-backlog = 16, network = "own" }
"#;

    fn error(text: &str) -> String {
        parse(Path::new("s.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_says_what_it_says() {
        let scenario = parse(Path::new("dir/s.toml"), GOOD).unwrap();
        assert_eq!(scenario.name, "s");
        assert_eq!(scenario.timeout, Some(Duration::from_secs(120)));
        let part = &scenario.parts[0];
        assert_eq!(part.clients, [100, 1000]);
        assert_eq!(part.requests, Amount::PerClient(1000));
        assert_eq!(part.server.tcp_backlog, Some(16));
        assert_eq!(part.server.network, Network::Own);
        assert_eq!((part.runs, part.warmup, part.order), (2, 1, KeyOrder::Seq));
        assert_eq!(part.variants[1].php_ini, ["opcache.enable_cli=1"]);
    }

    #[test]
    fn errors_have_a_place() {
        let change = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            GOOD.replace(from, to)
        };
        for (text, start) in [
            (change("[[bench]]", "[[bench]"), "s.toml:8:"),
            (
                change("runs = 2", "rnus = 2"),
                "s.toml:14:1: unknown field `rnus`",
            ),
            (
                change("runs = 2", "runs = 0"),
                "s.toml:14:8: runs must lie between 1 and 10000",
            ),
            (change("runs = 2", "runs = -1"), "s.toml:14:8: invalid value"),
            (change("runs = 2", "runs = nan"), "s.toml:14:8: invalid type"),
            (change("[100, 1000]", "[]"), "s.toml:12:11: clients is empty"),
            (
                change("[100, 1000]", "[100, 99999]"),
                "s.toml:12:11: clients must lie",
            ),
            (
                change("\"incr\"", "\"append\""),
                "s.toml:11:10: unknown variant `append`",
            ),
            (
                change("\"unix\"", "\"udp\""),
                "s.toml:10:15: unknown variant `udp`",
            ),
            (change("\"3s\"", "\"3\""), "s.toml:15:9: pause: a unit is needed"),
            (
                change("-per-client = 1000", " = 9\nrequests-per-client = 9"),
                "s.toml:14:23: both requests",
            ),
            (
                change("requests-per-client = 1000\n", ""),
                "s.toml:9:14: this [[bench]] has neither",
            ),
            (
                change("2016", "2061"),
                "s.toml:5:11: there are no figures of an article forked-connections-2061",
            ),
            (
                change("\"opcache\",", "\"plain\","),
                "s.toml:16:41: there are two variants",
            ),
            (
                change("enable_cli=1", "enable_cli"),
                "s.toml:16:62: php-ini is a list",
            ),
            ("about = \"x\"\n".to_owned(), "s.toml:1:1: missing field `bench`"),
            (
                "about = \"x\"\nbench = []\n".to_owned(),
                "s.toml:2:9: a scenario needs",
            ),
            (String::new(), "s.toml:1:1: missing field"),
        ] {
            let shown = error(&text);
            assert!(shown.starts_with(start), "{shown}\nnot {start}");
            assert!(!shown.contains('\n'), "{shown}");
        }
    }
}
