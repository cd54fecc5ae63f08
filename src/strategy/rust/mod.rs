//! The Rust clients. Each runs in a process of its own, `systally worker NAME`, so that every language
//! meets the same tracer.
//!
//! To add one: a file here with a [`RustClient`], and a line in [`CLIENTS`].

mod deadpool;
mod failure;
mod fred;
mod harness;
mod job;
mod ketama;
mod noop;
mod r2d2;
mod raw;
mod redis_common;
mod redis_rs;
mod redis_rs_async;
mod redis_rs_many;
mod resp;
mod round;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::client::{Client, Mode, Presence};
use super::contract::{Spec, Transport};
use failure::Fail;
use harness::Worker;

/// All Rust clients, in the order in which rows are listed.
const CLIENTS: &[&RustClient] = &[
    &raw::CLIENT,
    &redis_rs::CLIENT,
    &redis_rs_async::CLIENT,
    &r2d2::CLIENT,
    &deadpool::CLIENT,
    &fred::CLIENT,
    &noop::CLIENT,
];

/// A client as its file declares it.
struct RustClient {
    name: &'static str,
    description: &'static str,
    /// Of the library, not of systally.
    version: &'static str,
    /// For a client that is only there when systally is built with a cargo feature: its name, and whether
    /// it was.
    built_by: Option<(&'static str, bool)>,
    /// How it can reach its server; [`Transport::Local`] alone where it has none.
    transports: &'static [Transport],
    modes: fn() -> Vec<Mode>,
    /// Connects, and stores what the operations will read.
    set_up: fn(&Spec) -> Result<Box<dyn Worker>, Fail>,
}

/// A Rust client and the systally program that runs it.
struct Hosted {
    client: &'static RustClient,
    executable: PathBuf,
}

impl Client for Hosted {
    fn name(&self) -> &str {
        self.client.name
    }

    fn language(&self) -> &str {
        "rust"
    }

    fn description(&self) -> &str {
        self.client.description
    }

    fn modes(&self) -> Vec<Mode> {
        (self.client.modes)()
    }

    fn transports(&self) -> Vec<Transport> {
        self.client.transports.to_vec()
    }

    fn presence(&self) -> Presence {
        match self.client.built_by {
            Some((feature, false)) => Presence::Missing {
                why: "this systally was built without it".to_owned(),
                install: format!("build systally with cargo build --release --features {feature}"),
            },
            Some((_, true)) | None => Presence::Ready {
                version: self.client.version.to_owned(),
            },
        }
    }

    fn command(&self) -> Vec<OsString> {
        vec![
            self.executable.clone().into_os_string(),
            "worker".into(),
            self.client.name.into(),
        ]
    }
}

/// The Rust clients, run by the systally program at `executable`.
pub(super) fn clients(executable: &Path) -> impl Iterator<Item = Box<dyn Client>> {
    CLIENTS.iter().map(move |client| {
        Box::new(Hosted {
            client,
            executable: executable.to_owned(),
        }) as Box<dyn Client>
    })
}

/// Is the worker of a Rust client: the whole of `systally worker NAME`. It reads its specification,
/// speaks the worker contract on standard input and output, and says itself what goes wrong.
pub(super) fn run(name: &str) -> ExitCode {
    match CLIENTS.iter().find(|client| client.name == name) {
        Some(client) => harness::serve(client.name, client.version, client.set_up),
        None => harness::refuse(&Fail::spec(format!(
            "there is no worker called {}",
            crate::units::escape(name, 40)
        ))),
    }
}
