//! The figures of the articles that the scenarios repeat (`fixtures/published`), in the program itself,
//! and which of them belongs to a row.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::blocks::XDEBUG;
use super::{Article, Block, Network};
use crate::record::experiment::PublishedFigure;
use crate::strategy::contract::{PayloadKind, Transport};
use crate::units::escape;

/// Pairs each id with its file.
macro_rules! published {
    ($($id:literal),* $(,)?) => {
        /// The ids of all articles.
        pub const IDS: &[&str] = &[$($id),*];
        const FILES: &[(&str, &str)] =
            &[$(($id, include_str!(concat!("../../../fixtures/published/", $id, ".json")))),*];
    };
}

published![
    "forked-connections-2016",
    "php-cache-clients-2018",
    "sharded-set-2010",
    "socket-vs-tcp-2017",
];

/// Why there are no figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishedError {
    /// No such article.
    #[error("there are no figures of an article {}", escape(.0, 60))]
    Unknown(String),
    /// Its file is wrong.
    #[error("the figures of {id}: {why}")]
    Damaged {
        /// The article.
        id: String,
        /// What is wrong.
        why: String,
    },
}

/// The figures of one article.
#[derive(Debug, Clone)]
pub struct Figures {
    id: String,
    rows: Vec<WireRow>,
    dtruss: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The file; what it says in prose is not read.
#[derive(Debug, Deserialize)]
struct WireFile {
    #[serde(default)]
    rows: Vec<WireRow>,
    #[serde(default)]
    throughput_req_per_s: Vec<WireThroughput>,
    #[serde(default)]
    with_xdebug_loaded: BTreeMap<String, WireXdebug>,
    #[serde(default)]
    dtruss_counts: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct WireRow {
    strategy: String,
    transport: Option<WireTransport>,
    processes: Option<u64>,
    connects_per_process: Option<u64>,
    seconds: Option<f64>,
    counter: Option<u64>,
    expected_counter: Option<u64>,
    error: Option<String>,
    #[serde(rename = "where")]
    place: Option<String>,
    real_s: Option<f64>,
    user_s: Option<f64>,
    sys_s: Option<f64>,
    voluntary_context_switches: Option<u64>,
    involuntary_context_switches: Option<u64>,
    /// Only from [`WireThroughput`] and [`WireXdebug`].
    #[serde(skip)]
    ops_per_s: Option<f64>,
    #[serde(skip)]
    payload: Option<PayloadKind>,
    #[serde(skip)]
    xdebug: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireTransport {
    Tcp,
    Unix,
}

#[derive(Debug, Deserialize)]
struct WireThroughput {
    strategy: String,
    transport: Option<WireTransport>,
    object: Option<f64>,
    array: Option<f64>,
    string: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct WireXdebug {
    with: f64,
}

/// What an article of this id did not see, in sentences for its readers; none for an article that is not known.
pub fn what_really_happened(id: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Prose {
        #[serde(default)]
        what_really_happened: Vec<String>,
    }
    let file = FILES.iter().find(|(known, _)| *known == id);
    file.and_then(|(_, text)| serde_json::from_str::<Prose>(text).ok())
        .map_or_else(Vec::new, |prose| prose.what_really_happened)
}

impl Figures {
    /// The figures of an article by its id.
    ///
    /// # Errors
    /// No such article, or (which a test rules out) a file that cannot be read.
    pub fn find(id: &str) -> Result<Figures, PublishedError> {
        let (id, text) = FILES
            .iter()
            .find(|(known, _)| *known == id)
            .ok_or_else(|| PublishedError::Unknown(id.to_owned()))?;
        let file: WireFile = serde_json::from_str(text).map_err(|e| PublishedError::Damaged {
            id: (*id).to_owned(),
            why: e.to_string(),
        })?;
        let mut rows = file.rows;
        for one in file.throughput_req_per_s {
            let shapes = [
                (PayloadKind::Object, one.object),
                (PayloadKind::Array, one.array),
                (PayloadKind::String, one.string),
            ];
            for (payload, figure) in shapes {
                let Some(figure) = figure else { continue };
                rows.push(WireRow {
                    strategy: one.strategy.clone(),
                    transport: one.transport,
                    payload: Some(payload),
                    ops_per_s: Some(figure),
                    ..WireRow::default()
                });
            }
        }
        for (strategy, one) in file.with_xdebug_loaded {
            rows.push(WireRow {
                strategy,
                ops_per_s: Some(one.with),
                xdebug: true,
                ..WireRow::default()
            });
        }
        Ok(Figures {
            id: (*id).to_owned(),
            rows,
            dtruss: file.dtruss_counts,
        })
    }

    /// What the article printed for a row: those of its rows whose name stands for the strategy in
    /// `article`, and whose transport, processes, shape of values and place are the same.
    pub fn of(&self, article: &Article, block: &Block, row: (&str, Transport)) -> Vec<PublishedFigure> {
        let (name, transport) = row;
        let mut figures: Vec<PublishedFigure> = self
            .rows
            .iter()
            .filter(|printed| {
                let same = article.same.get(&printed.strategy);
                same.is_some_and(|rows| rows.iter().any(|own| is_row(own, name)))
                    && printed.fits(block, transport)
            })
            .map(|printed| self.figure(printed))
            .collect();
        for (label, counts) in &self.dtruss {
            let Some(about) = article.calls.get(label).filter(|about| is_row(&about.row, name)) else {
                continue;
            };
            if block.payload == PayloadKind::String && !is_xdebug(block) {
                figures.push(PublishedFigure {
                    article: self.id.clone(),
                    strategy: label.clone(),
                    calls_per_op: self.per_op(counts, about.ops),
                    ..PublishedFigure::default()
                });
            }
        }
        figures
    }

    /// Calls that were made for each operation. The tables are of whole runs of programs that start alike:
    /// what all of them made, the least of it, is their start-up.
    fn per_op(&self, counts: &BTreeMap<String, u64>, ops: u64) -> BTreeMap<String, f64> {
        /// Below this, a call is still of the start-up, or of a loop that is not the client's.
        const LEAST: f64 = 0.05;
        let start_up = |name: &String| {
            let all = self
                .dtruss
                .values()
                .map(|table| table.get(name).copied().unwrap_or(0));
            all.min().unwrap_or(0)
        };
        counts
            .iter()
            .map(|(name, calls)| {
                let calls = calls.saturating_sub(start_up(name));
                (name.clone(), calls as f64 / ops.max(1) as f64)
            })
            .filter(|(_, rate)| *rate >= LEAST)
            .collect()
    }

    fn figure(&self, printed: &WireRow) -> PublishedFigure {
        let seconds = printed.seconds.or(printed.real_s);
        let ops = match (printed.processes, printed.connects_per_process) {
            (Some(processes), Some(each)) => Some(processes.saturating_mul(each)),
            _ => None,
        };
        let from_seconds = match (ops, seconds) {
            (Some(ops), Some(seconds)) if seconds > 0.0 => Some(ops as f64 / seconds),
            _ => None,
        };
        PublishedFigure {
            article: self.id.clone(),
            strategy: printed.strategy.clone(),
            ops_per_s: printed.ops_per_s.or(from_seconds),
            seconds,
            counter: printed.counter,
            expected: printed.expected_counter,
            error: printed.error.clone(),
            user_s: printed.user_s,
            system_s: printed.sys_s,
            context_switches: match (
                printed.voluntary_context_switches,
                printed.involuntary_context_switches,
            ) {
                (Some(voluntary), Some(involuntary)) => Some(voluntary + involuntary),
                _ => None,
            },
            calls_per_op: BTreeMap::new(),
        }
    }
}

impl WireRow {
    fn fits(&self, block: &Block, transport: Transport) -> bool {
        let container = self
            .place
            .as_deref()
            .is_some_and(|place| place.starts_with("container"));
        let network = if container { Network::Own } else { Network::Shared };
        let transport = match self.transport {
            Some(WireTransport::Tcp) => transport == Transport::Tcp,
            Some(WireTransport::Unix) => transport == Transport::Unix,
            // Where it says nothing there was no choice: TCP, or no server at all.
            None => transport != Transport::Unix,
        };
        transport
            && self
                .processes
                .is_none_or(|n| n == u64::from(block.planned_clients))
            && self.payload.is_none_or(|kind| kind == block.payload)
            && (!self.xdebug || block.payload == PayloadKind::String)
            && self.xdebug == is_xdebug(block)
            && network == block.server.network
    }
}

fn is_xdebug(block: &Block) -> bool {
    block.variant.name == XDEBUG
}

/// Whether `client/mode` or `client/mode/transport` is this row.
fn is_row(own: &str, name: &str) -> bool {
    name.strip_prefix(own)
        .is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && own.contains('/')))
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_known_and_readable() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/published");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| name.trim_end_matches(".json").to_owned())
            .collect();
        files.sort();
        assert_eq!(files, IDS);
        for id in IDS {
            Figures::find(id).unwrap();
        }
    }

    #[test]
    fn the_figures_of_a_row_are_those_of_its_processes_and_transport() {
        let scenario = Scenario::find("forked-connections").unwrap();
        let article = scenario.article.clone().unwrap();
        let figures = Figures::find(&article.id).unwrap();
        // Scaled down, it is still the article's thousand.
        let blocks = scenario.blocks("0.001".parse().unwrap());
        let of = |processes: u32, name: &str, transport| {
            let block = blocks.iter().find(|b| b.planned_clients == processes).unwrap();
            figures.of(&article, block, (name, transport))
        };
        let hundred = of(100, "phpredis/connect/tcp", Transport::Tcp);
        assert_eq!(
            hundred.iter().map(|f| f.seconds).collect::<Vec<_>>(),
            [Some(8.666), Some(9.1)]
        );
        assert!(
            hundred[0]
                .ops_per_s
                .is_some_and(|rate| (rate - 11_539.3).abs() < 0.1)
        );
        let thousand = of(1000, "forked-script/connect/tcp", Transport::Tcp);
        assert_eq!(
            (thousand[0].counter, thousand[0].expected),
            (Some(903_505), Some(1_000_000))
        );
        let error = of(1000, "phpredis/connect/unix", Transport::Unix);
        assert_eq!(error[0].error.as_deref(), Some("Redis server went away"));
        assert!(of(100, "raw/persistent/tcp", Transport::Tcp).is_empty());
    }

    #[test]
    fn a_prefix_is_not_a_row() {
        assert!(is_row("phpredis/connect", "phpredis/connect/tcp"));
        assert!(is_row("phpredis/connect/tcp", "phpredis/connect/tcp"));
        assert!(!is_row("phpredis/p", "phpredis/persistent/tcp"));
        assert!(!is_row("phpredis/pconnect", "phpredis/pconnect-once/tcp"));
    }

    #[test]
    fn the_tables_of_2018_are_per_operation_and_without_start_up() {
        let scenario = Scenario::find("php-cache-clients").unwrap();
        let article = scenario.article.clone().unwrap();
        let figures = Figures::find(&article.id).unwrap();
        let blocks = scenario.blocks(crate::plan::scenario::Scale::ONE);
        let of = |name: &str| {
            let figures = figures.of(&article, &blocks[0], (name, Transport::Tcp));
            let found = figures.into_iter().find(|figure| !figure.calls_per_op.is_empty());
            let rates = found.unwrap().calls_per_op.into_iter();
            rates
                .map(|(name, rate)| (name, rate.round() as u64))
                .collect::<Vec<_>>()
        };
        let call = |name: &str, n: u64| (name.to_owned(), n);
        assert_eq!(
            of("predis/persistent/tcp"),
            [call("poll", 1), call("recvfrom", 1), call("sendto", 1)]
        );
        assert_eq!(
            of("phpredis/pconnect-no-pool/tcp"),
            [
                call("poll", 4),
                call("recvfrom", 1),
                call("sendto", 1),
                call("setsockopt", 1)
            ]
        );
        assert_eq!(
            of("php-memcached/text/tcp"),
            [call("poll", 1), call("recvfrom", 2), call("sendto", 1)]
        );
    }

    #[test]
    fn the_figures_of_2018_are_those_of_the_shape_and_of_xdebug() {
        let scenario = Scenario::find("php-cache-clients").unwrap();
        let article = scenario.article.clone().unwrap();
        let figures = Figures::find(&article.id).unwrap();
        let blocks = scenario.blocks(crate::plan::scenario::Scale::ONE);
        let rates = |payload: PayloadKind, variant: &str, name: &str, transport| {
            let block = blocks
                .iter()
                .find(|block| block.payload == payload && block.variant.name == variant);
            let all = figures
                .of(&article, block.unwrap(), (name, transport))
                .into_iter();
            all.filter_map(|figure| figure.ops_per_s).collect::<Vec<_>>()
        };
        let phpredis = "phpredis/persistent/unix";
        assert_eq!(
            rates(PayloadKind::Array, "plain", phpredis, Transport::Unix),
            [44764.79]
        );
        let phpredis = "phpredis/persistent/tcp";
        assert_eq!(
            rates(PayloadKind::String, "opcache", phpredis, Transport::Tcp),
            [25462.75]
        );
        assert_eq!(
            rates(PayloadKind::String, "xdebug", phpredis, Transport::Tcp),
            [9733.0]
        );
        let unsent = "phpredis/unsent/tcp";
        assert_eq!(
            rates(PayloadKind::Object, "", unsent, Transport::Tcp),
            [1621555.16]
        );
    }
}
