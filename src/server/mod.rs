//! The servers of a run: the user's own, private ones, or the built-in responder; and what their own
//! counters say, which is one side of the ledger.
//!
//! [`Servers`] is all that a run needs, by [`Place`]; each place is a [`Backend`] of one server or several.
//! A [`Server`] is one of Redis and its kin:
//!
//! ```text
//! address ──→ Server::start ─→ control (one connection, opened before the load)
//!              │ external        ├─→ identity: kind, version, settings
//!              │ private         └─→ snapshot, snapshot … ─→ what was done in between
//!              └ responder (a process of its own)
//! ```

mod address;
mod backend;
mod cluster;
mod control;
mod error;
mod health;
mod identity;
mod keeper;
mod link;
mod locality;
mod locate;
mod memcached;
mod own;
mod private;
pub mod responder;
mod servers;
mod snapshot;
mod stats;
mod twemproxy;

use std::fmt;

pub use address::{AddressError, DEFAULT_PORT, Named, Target, parse_uri};
pub use backend::{Backend, Reading};
pub use error::{OtherProtocol, ServerError, Trouble, Waiting};
pub use health::Health;
pub use locate::{Found, NotFound, ServerProgram, locate};
pub use private::{PrivateOptions, ResponderCommand};
pub use servers::{Absence, CLUSTER_NODES, Place, Servers, Wanted};
pub use snapshot::{Counters, Snapshot};
pub use stats::CommandCounts;

use control::Control;
use own::{DEL, EXISTS, INFO, Own, PING};
use private::{Fresh, Private};
use snapshot::Source;
use stats::Info;

use crate::folder::SUN_PATH_MAX;
use crate::proc::Root;
use crate::record::{ServerInfo, ServerOrigin};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Endpoint, Transport};
use crate::units::{Measured, escape};

/// Keys per `DEL` when a run cleans up behind itself.
const KEYS_PER_DEL: usize = 1000;

/// Which server a run uses.
#[derive(Debug, Clone)]
pub enum ServerChoice {
    /// The user's own, at these addresses; several must lead to the same server.
    External(Vec<Endpoint>),
    /// A private one: the preferred program, or the first in PATH, or else the built-in responder.
    Auto {
        /// The only program that will do; any when `None`.
        prefer: Option<ServerProgram>,
        /// How it is set up.
        options: PrivateOptions,
    },
    /// The built-in responder.
    BuiltIn {
        /// How it is set up.
        options: PrivateOptions,
    },
}

/// A server in use. Dropping it ends a private server and removes its folder.
pub struct Server {
    private: Option<Private>,
    control: Control,
    endpoints: Vec<Endpoint>,
    info: ServerInfo,
    pid: Option<i32>,
}

impl Server {
    /// Connects to the user's server or starts a private one, and opens the control connection.
    ///
    /// No wait in here is without a limit: 5 s to connect, 5 s for a reply, 10 s for a server to start.
    /// A private server ends with this value, with the process (SIGKILL included), and when systally's
    /// thread that watches it ends.
    ///
    /// # Errors
    /// See [`ServerError`]; every message names the cause and the next step. On an error nothing is left
    /// running and no folder is left behind.
    pub fn start(choice: ServerChoice, interrupt: &Interrupt) -> Result<Server, ServerError> {
        match choice {
            ServerChoice::External(endpoints) => Server::connect(endpoints),
            ServerChoice::BuiltIn { options } => Server::adopt(
                private::start_responder(&options, interrupt)?,
                ServerOrigin::BuiltIn,
            ),
            ServerChoice::Auto {
                prefer: Some(program),
                options,
            } => {
                let found = locate(program)?;
                Server::adopt(
                    private::start_program(&found, &options, interrupt)?,
                    ServerOrigin::Private,
                )
            }
            ServerChoice::Auto {
                prefer: None,
                options,
            } => {
                match ServerProgram::REDIS
                    .iter()
                    .find_map(|program| locate(*program).ok())
                {
                    Some(found) => {
                        let fresh = private::start_program(&found, &options, interrupt)?;
                        Server::adopt(fresh, ServerOrigin::Private)
                    }
                    None => Server::start(ServerChoice::BuiltIn { options }, interrupt),
                }
            }
        }
    }

    fn connect(endpoints: Vec<Endpoint>) -> Result<Server, ServerError> {
        let Some((first, others)) = endpoints.split_first() else {
            return Err(ServerError::NoEndpoint);
        };
        let mut control = open(first)?;
        same_server(&mut control, others)?;
        Server::describe_new(None, control, endpoints, ServerOrigin::External)
    }

    fn adopt(fresh: Fresh, origin: ServerOrigin) -> Result<Server, ServerError> {
        Server::describe_new(Some(fresh.private), fresh.control, fresh.endpoints, origin)
    }

    fn describe_new(
        private: Option<Private>,
        mut control: Control,
        endpoints: Vec<Endpoint>,
        origin: ServerOrigin,
    ) -> Result<Server, ServerError> {
        let read = identity::read_info(&mut control).and_then(|info| {
            let server = identity::identify(&mut control, &info, origin, &endpoints)?;
            Ok((info, server))
        });
        let (info, server) = match read {
            Ok(read) => read,
            Err(trouble) => return Err(unusable(control.endpoint(), trouble)),
        };
        let told = info.number("process_id").and_then(|pid| i32::try_from(pid).ok());
        let pid = match &private {
            Some(private) => Some(private.pid(told)),
            None => told.and_then(|told| locality::pid_here(&Root::live(), control.link(), told)),
        };
        Ok(Server {
            private,
            control,
            endpoints,
            info: server,
            pid,
        })
    }

    /// Which server it is, with the settings that matter for a load.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// The address for a transport, if the server has one that is known.
    pub fn endpoint(&self, transport: Transport) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| endpoint.transport() == transport)
    }

    /// The server's process id, when it runs on this machine for certain.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Reads the server's counters over the control connection.
    ///
    /// A server that does not permit `INFO` gives a snapshot without counters; the ledger then says so.
    ///
    /// # Errors
    /// When the server does not answer any more.
    pub fn snapshot(&mut self) -> Result<Snapshot, ServerError> {
        match self.control.ask(INFO, &[]) {
            Ok(value) => {
                let text = identity::text(&value).ok_or_else(|| self.strange("INFO", &value))?;
                let mut own = self.control.own().clone();
                // The server counts a command when it is done, so this INFO is not in its own reply.
                if let Some(calls) = own.calls.get_mut(INFO.stat) {
                    *calls = calls.saturating_sub(1);
                }
                Ok(Snapshot::new(
                    Source::Redis,
                    Measured::Known(Counters::read(&Info::parse(&text))),
                    own,
                ))
            }
            Err(Trouble::Refusal(said)) => {
                let why = format!("the server does not permit INFO ({said})");
                Ok(Snapshot::new(
                    Source::Redis,
                    Measured::NotMeasured(why),
                    self.control.own().clone(),
                ))
            }
            Err(trouble) => Err(self.lost(trouble)),
        }
    }

    /// Deletes what a run wrote, and returns how many of the keys existed.
    ///
    /// # Errors
    /// When the server does not answer any more or does not permit `DEL`.
    pub fn delete_keys(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<u64, ServerError> {
        self.over_keys(DEL, "DEL", keys)
    }

    /// How many of these keys there are, so that a run need not overwrite what is not its own.
    ///
    /// # Errors
    /// When the server does not answer any more or does not permit `EXISTS`.
    pub fn existing_keys(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<u64, ServerError> {
        self.over_keys(EXISTS, "EXISTS", keys)
    }

    /// The sum of what a command that counts keys says of all of them.
    fn over_keys(
        &mut self,
        command: Own,
        name: &'static str,
        keys: &[impl AsRef<[u8]>],
    ) -> Result<u64, ServerError> {
        let mut sum = 0;
        for chunk in keys.chunks(KEYS_PER_DEL) {
            let words: Vec<&[u8]> = chunk.iter().map(AsRef::as_ref).collect();
            match self.control.ask(command, &words) {
                Ok(redis::Value::Int(n)) => sum += u64::try_from(n).unwrap_or(0),
                Ok(other) => return Err(self.strange(name, &other)),
                Err(trouble @ Trouble::Refusal(_)) => return Err(unusable(self.control.endpoint(), trouble)),
                Err(trouble) => return Err(self.lost(trouble)),
            }
        }
        Ok(sum)
    }

    /// Whether the server is alive; for a private one that is not, how it ended and what it said last.
    pub fn describe_alive(&mut self) -> Health {
        if let Some(private) = &self.private {
            return private.health();
        }
        match self.control.ask(PING, &[]) {
            Ok(_) | Err(Trouble::Refusal(_)) => Health::Running,
            Err(trouble) => Health::Silent(trouble.to_string()),
        }
    }

    /// Ends a private server and removes its folder; a server of the user's is only left alone. The same
    /// happens on drop.
    pub fn stop(self) {}

    fn lost(&mut self, trouble: Trouble) -> ServerError {
        let health = self.private.as_ref().map(Private::health_after_loss);
        ServerError::Lost {
            endpoint: shown(self.control.endpoint()),
            trouble,
            health,
        }
    }

    fn strange(&self, command: &'static str, value: &redis::Value) -> ServerError {
        ServerError::Answer {
            endpoint: shown(self.control.endpoint()),
            command,
            reply: escape(&format!("{value:?}"), 100),
        }
    }
}

/// The first line of a run: `redis 7.0.15, private (127.0.0.1:40123, unix:/tmp/…/server.sock)`.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = &self.info;
        write!(f, "{} {}, ", info.kind, info.version)?;
        match info.origin {
            ServerOrigin::External => write!(f, "yours")?,
            ServerOrigin::Private => write!(f, "private")?,
            ServerOrigin::BuiltIn => write!(f, "built in: it serves this run, it is not Redis")?,
        }
        let addresses: Vec<String> = self
            .endpoints
            .iter()
            .map(|e| format!("{} {}", e.transport().name(), place(e)))
            .collect();
        write!(f, " ({})", addresses.join(", "))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("info", &self.info)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// An address without the word for its transport.
fn place(endpoint: &Endpoint) -> String {
    let address = shown(endpoint);
    match endpoint.transport() {
        Transport::Tcp | Transport::Local => address,
        Transport::Unix => address.strip_prefix("unix:").unwrap_or(&address).to_owned(),
    }
}

fn shown(endpoint: &Endpoint) -> String {
    escape(&endpoint.to_string(), 200)
}

fn unusable(endpoint: &Endpoint, trouble: Trouble) -> ServerError {
    ServerError::Unusable {
        endpoint: shown(endpoint),
        trouble,
    }
}

fn open(endpoint: &Endpoint) -> Result<Control, ServerError> {
    Control::open(endpoint).map_err(|trouble| unusable(endpoint, trouble))
}

/// Makes sure that the other endpoints work and lead to the server of the control connection, as far as
/// its `run_id` can tell.
fn same_server(control: &mut Control, others: &[Endpoint]) -> Result<(), ServerError> {
    if others.is_empty() {
        return Ok(());
    }
    let run_id = |control: &mut Control| match identity::read_info(control) {
        Ok(info) => Ok(info.text("run_id")),
        Err(trouble) => Err(unusable(control.endpoint(), trouble)),
    };
    let ours = run_id(control)?;
    for endpoint in others {
        let theirs = run_id(&mut open(endpoint)?)?;
        if let (Some(ours), Some(theirs)) = (&ours, &theirs)
            && ours != theirs
        {
            return Err(ServerError::TwoServers {
                first: shown(control.endpoint()),
                second: shown(endpoint),
            });
        }
    }
    Ok(())
}
