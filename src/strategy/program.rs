//! Any program that keeps the worker contract, given on the command line after `--`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::assignment::Strategy;
use super::client::{Client, Mode, Presence};
use super::contract::{Connect, Transport};
use super::name::is_name;

struct ProgramClient {
    name: String,
    argv: Vec<OsString>,
}

impl Client for ProgramClient {
    fn name(&self) -> &str {
        &self.name
    }

    fn language(&self) -> &str {
        "any"
    }

    fn description(&self) -> &str {
        "the program given after --"
    }

    fn modes(&self) -> Vec<Mode> {
        vec![Mode {
            name: "persistent".to_owned(),
            connect: Connect::Once,
            store: None,
            transports: Vec::new(),
            pipeline: false,
            depth_when_asked: true,
            forks: false,
            default: true,
            ops: Vec::new(),
            demonstration: false,
            options: BTreeMap::new(),
            description: "as its worker does it".to_owned(),
        }]
    }

    fn transports(&self) -> Vec<Transport> {
        Transport::SOCKETS.to_vec()
    }

    /// Whether it can run shows when it is started: the error then names the program.
    fn presence(&self) -> Presence {
        Presence::Ready {
            version: String::new(),
        }
    }

    fn command(&self) -> Vec<OsString> {
        self.argv.clone()
    }
}

/// The strategies of a program: its one mode over every transport. Its name is that of the file without
/// folder and ending, or `program` where that cannot be a name.
pub fn program_strategies(argv: &[OsString]) -> Vec<Strategy> {
    let Some(first) = argv.first() else {
        return Vec::new();
    };
    let stem = Path::new(first)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let name = if is_name(stem) { stem } else { "program" };
    let client: Arc<dyn Client> = Arc::new(ProgramClient {
        name: name.to_owned(),
        argv: argv.to_vec(),
    });
    client
        .modes()
        .into_iter()
        .flat_map(|mode| {
            let client = Arc::clone(&client);
            Transport::SOCKETS.into_iter().map(move |transport| Strategy {
                client: Arc::clone(&client),
                mode: mode.clone(),
                transport,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_the_strategy() {
        let names = |program: &str| -> Vec<String> {
            program_strategies(&[program.into(), "-x".into()])
                .iter()
                .map(|s| s.name().to_string())
                .collect()
        };
        assert_eq!(
            names("/opt/my-client.py"),
            ["my-client/persistent/tcp", "my-client/persistent/unix"]
        );
        assert_eq!(
            names("/opt/a b/c*"),
            ["program/persistent/tcp", "program/persistent/unix"]
        );
        assert!(program_strategies(&[]).is_empty());
    }
}
