//! Scenarios: whole experiments as files, so that a published comparison can be run again by its name and
//! anybody can copy one and change it.
//!
//! A file (TOML, see [`file`]) has parts; each is a matrix like that of `systally bench`. A part becomes
//! blocks ([`Scenario::blocks`]), one for each value of the axes that a bench keeps fixed: clients, shape
//! of values, servers, variant. What articles printed is in [`published`].

mod blocks;
mod builtin;
pub mod estimate;
mod file;
mod load;
pub mod published;
mod scale;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::place::FileError;
use crate::strategy::contract::{KeyOrder, Op, PayloadKind, Serializer, Transport};
use crate::units::escape;

pub use blocks::{Block, Variant};
pub use builtin::{BUILT_IN, BuiltIn};
pub use load::{Terms, heaviest};
pub use scale::{Scale, ScaleError};

/// No scenario file is longer.
const LARGEST: u64 = 1 << 20;

/// An experiment as its file describes it, unscaled.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name: that of the built-in one, or of the file without folder and ending.
    pub name: String,
    /// What it shows, in a sentence or two.
    pub about: String,
    /// The article it repeats, and which of its rows are which strategies.
    pub article: Option<Article>,
    /// Longest wait for a worker, when the file sets it.
    pub timeout: Option<Duration>,
    /// The parts, in the order in which they run.
    pub parts: Vec<Part>,
}

/// Which article a scenario repeats.
#[derive(Debug, Clone, PartialEq)]
pub struct Article {
    /// Its id in the list of published figures.
    pub id: String,
    /// The article's names for what it measured, and the strategies that they are.
    pub same: BTreeMap<String, Vec<String>>,
    /// The article's tables of system calls: by their names, the strategy and the operations done.
    pub calls: BTreeMap<String, PublishedCalls>,
}

/// What is known of a published table of system calls.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCalls {
    /// The strategy that it is of.
    pub row: String,
    /// Operations that its run did.
    pub ops: u64,
}

/// One matrix of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it shows; may be empty.
    pub about: String,
    /// Selectors of strategies, as on the command line.
    pub strategies: Vec<String>,
    /// Only these transports; all when empty.
    pub transports: Vec<Transport>,
    /// Operations.
    pub tests: Vec<Op>,
    /// Client processes at once.
    pub clients: Vec<u32>,
    /// Operations of a round.
    pub requests: Amount,
    /// Operations of the counted pass; those of a round when `None`.
    pub counted: Option<Amount>,
    /// Pipeline depths; empty for the default of each mode.
    pub pipeline: Vec<u32>,
    /// Bytes of a value.
    pub data_size: Vec<u64>,
    /// Shapes of values.
    pub payload: Vec<PayloadKind>,
    /// How clients serialise arrays and objects; strings stay as they are.
    pub serializer: Serializer,
    /// Private servers that the keys are spread over.
    pub servers: Vec<u32>,
    /// Ways to run the clients.
    pub variants: Vec<Variant>,
    /// Number of keys.
    pub keyspace: u64,
    /// Their order.
    pub order: KeyOrder,
    /// Start of the random sequence.
    pub seed: u64,
    /// Timed rounds.
    pub runs: u32,
    /// Rounds before them that are not kept.
    pub warmup: u32,
    /// How long a replayed script sleeps before it reads its counter.
    pub pause: Option<Duration>,
    /// Whether CPU time and context switches of both sides are read.
    pub usage: bool,
    /// The private server.
    pub server: ServerSetup,
}

/// Operations of a round or pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// By each client process.
    PerClient(u64),
    /// By all together.
    Total(u64),
}

impl Amount {
    /// Over all of so many clients.
    pub fn total(self, clients: u32) -> u64 {
        match self {
            Amount::PerClient(n) => n.saturating_mul(u64::from(clients)),
            Amount::Total(n) => n,
        }
    }
}

/// How the private server of a part is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerSetup {
    /// Length of the listeners' queues; the server's default when `None`.
    pub tcp_backlog: Option<u32>,
    /// Connections at most; the server's default when `None`.
    pub maxclients: Option<u32>,
    /// Where it listens.
    pub network: Network,
}

/// The network namespace of a private server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Network {
    /// That of the clients.
    #[default]
    Shared,
    /// One of its own, as in a container; folders are shared.
    Own,
}

impl Network {
    /// The word in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Network::Shared => "shared",
            Network::Own => "own",
        }
    }
}

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither a built-in scenario nor a file.
    #[error(
        "there is no scenario {name}{}; `systally list scenarios` shows all, and a file ends in .toml",
        .nearest.map(|near| format!(", did you mean {near}?")).unwrap_or_default()
    )]
    Unknown {
        /// What was asked for, escaped.
        name: String,
        /// The built-in one whose name is nearest.
        nearest: Option<&'static str>,
    },
    /// The file cannot be read.
    #[error("reading the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What reading said.
        source: std::io::Error,
    },
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are no figures of the article it names.
    #[error(transparent)]
    Published(#[from] published::PublishedError),
}

impl Scenario {
    /// The built-in scenario of this name, or the one in this file: whatever ends in `.toml` or has a
    /// slash is a file.
    ///
    /// # Errors
    /// See [`ScenarioError`]; what is wrong in a file is named with line and column.
    pub fn find(name: &str) -> Result<Scenario, ScenarioError> {
        if name.contains('/') || name.ends_with(".toml") {
            let path = Path::new(name);
            return Ok(file::parse(path, &read(path)?)?);
        }
        match BUILT_IN.iter().find(|known| known.name == name) {
            Some(known) => Ok(file::parse(Path::new(&format!("{name}.toml")), known.text)?),
            None => Err(ScenarioError::Unknown {
                name: escape(name, 80),
                nearest: BUILT_IN
                    .iter()
                    .map(|known| (strsim::levenshtein(known.name, name), known.name))
                    .min()
                    .filter(|(distance, near)| *distance <= near.len() / 2)
                    .map(|(_, near)| near),
            }),
        }
    }
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    use std::io::Read;
    let io = |source| ScenarioError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let length = std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(io)?;
    if length as u64 > LARGEST {
        return Err(io(std::io::Error::other("it is too large for a scenario")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_scenario_loads_and_its_article_is_there() {
        for known in BUILT_IN {
            let scenario = Scenario::find(known.name).unwrap_or_else(|e| panic!("{}: {e}", known.name));
            assert_eq!(scenario.name, known.name);
            assert!(
                !scenario.about.is_empty() && !scenario.parts.is_empty(),
                "{}",
                known.name
            );
            if let Some(article) = &scenario.article {
                published::Figures::find(&article.id).unwrap();
            }
        }
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let said = |name: &str| Scenario::find(name).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            said("forked-conections"),
            "there is no scenario forked-conections, did you mean forked-connections?; `systally list scenarios` \
             shows all, and a file ends in .toml"
        );
        assert!(!said("xyz\u{1b}[31m").contains("did you mean"));
        assert!(!said("xyz\u{1b}[31m").contains('\u{1b}'));
        assert!(said("nowhere/x.toml").contains("nowhere/x.toml"));
    }
}
