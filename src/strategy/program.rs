//! Any program that keeps the worker contract, given on the command line after `--`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use super::assignment::Strategy;
use super::client::{Client, Mode, Presence};
use super::contract::{Connect, Transport};
use super::title::title;

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

/// The strategies of a program: its one mode over every transport. Its name is that of its script, or of its own
/// file where it is no interpreter; a number follows where one of `taken` has that name already.
pub fn program_strategies(argv: &[OsString], taken: &[&str]) -> Vec<Strategy> {
    if argv.is_empty() {
        return Vec::new();
    }
    let words: Vec<&str> = argv
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let own = title(&words);
    let numbered = (2..).map(|n| format!("{own}+{n}"));
    let name = std::iter::once(own.clone())
        .chain(numbered)
        .find(|name| !taken.contains(&name.as_str()))
        .unwrap_or(own);
    let client: Arc<dyn Client> = Arc::new(ProgramClient {
        name,
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
    fn the_script_names_the_strategy_over_every_transport() {
        let names = |argv: &[&str], taken: &[&str]| -> Vec<String> {
            let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
            program_strategies(&argv, taken)
                .iter()
                .map(|s| s.name().to_string())
                .collect()
        };
        assert_eq!(
            names(&["/opt/my-client.py", "-x"], &[]),
            ["my-client.py/persistent/tcp", "my-client.py/persistent/unix"]
        );
        assert_eq!(
            names(&["python3", "worker.py"], &["raw"]),
            ["worker.py/persistent/tcp", "worker.py/persistent/unix"]
        );
        // Beside a client of that name it is still told apart.
        assert_eq!(
            names(&["./raw"], &["raw", "raw+2"]),
            ["raw+3/persistent/tcp", "raw+3/persistent/unix"]
        );
        assert_eq!(
            names(&["/opt/a b/c*"], &[]),
            ["program/persistent/tcp", "program/persistent/unix"]
        );
        assert!(program_strategies(&[], &[]).is_empty());
    }
}
