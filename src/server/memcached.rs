//! A memcached server: the user's own or a private one, and its counters from `stats`.
//!
//! One memcached process listens on TCP or on a UNIX socket, never on both, so a run that needs both has
//! two of them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

use super::error::{OtherProtocol, ServerError, Trouble, Waiting};
use super::health::Health;
use super::link::{Link, REPLY_LIMIT, trouble_of};
use super::locate::{Found, ServerProgram, locate};
use super::own::OwnWork;
use super::private::{self, PORT_TRIES, Private, PrivateOptions, START_LIMIT};
use super::snapshot::{Counters, Snapshot, Source};
use super::stats::CommandCounts;
use crate::folder::{Folder, sweep};
use crate::proc::Root;
use crate::record::{ServerInfo, ServerOrigin};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Endpoint, Transport};
use crate::units::{Measured, escape};

/// The settings that are read, from `stats` and `stats settings`.
const SETTINGS: [&str; 10] = [
    "max_connections",
    "maxconns",
    "tcp_backlog",
    "maxconns_fast",
    "threads",
    "num_threads",
    "maxbytes",
    "evictions",
    "idle_timeout",
    "item_size_max",
];

/// The longest reply that is read.
const REPLY_BYTES: usize = 1 << 20;

/// How much of a strange reply is kept to show.
const SHOWN_BYTES: usize = 60;

/// A memcached server in use. Dropping it ends a private one.
pub(super) struct Memcached {
    private: Option<Private>,
    endpoint: Endpoint,
    /// Connections this value has made.
    connections: u64,
    /// `None` after a failure: what comes next on that connection may answer an older question.
    link: Option<Link>,
    info: ServerInfo,
    /// Its process id as it says.
    told: Option<i32>,
    /// Its process id here.
    pid: Option<i32>,
}

impl Memcached {
    /// Starts a private server that listens on this transport.
    pub(super) fn start(
        transport: Transport,
        options: &PrivateOptions,
        interrupt: &Interrupt,
    ) -> Result<Memcached, ServerError> {
        let found = locate(ServerProgram::Memcached)?;
        sweep();
        let mut tries = 0;
        loop {
            tries += 1;
            let (private, endpoint) = launch(&found, transport, options)?;
            match first_reply(private, endpoint.clone(), interrupt) {
                Err(ServerError::NotStarted { .. })
                    if tries < PORT_TRIES
                        && matches!(endpoint, Endpoint::Tcp { port, .. } if private::is_taken(port)) => {}
                other => return other,
            }
        }
    }

    /// Connects to the user's server.
    pub(super) fn connect(endpoint: Endpoint) -> Result<Memcached, ServerError> {
        Memcached::open(None, endpoint.clone()).map_err(|trouble| super::unusable(&endpoint, trouble))
    }

    fn open(private: Option<Private>, endpoint: Endpoint) -> Result<Memcached, Trouble> {
        let origin = match private {
            Some(_) => ServerOrigin::Private,
            None => ServerOrigin::External,
        };
        let mut server = Memcached {
            private,
            connections: 0,
            link: None,
            info: ServerInfo {
                kind: "memcached".to_owned(),
                version: String::new(),
                origin,
                addresses: vec![escape(&endpoint.to_string(), 200)],
                ..ServerInfo::default()
            },
            told: None,
            pid: None,
            endpoint,
        };
        let stats = server.ask("stats")?;
        // Refused by nobody in practice, and without it only the settings are unknown.
        let settings = server.ask("stats settings").unwrap_or_default();
        server.info.version = stats
            .get("version")
            .map(|version| escape(version, 60))
            .unwrap_or_default();
        server.info.settings = SETTINGS
            .iter()
            .filter_map(|name| {
                let value = stats.get(*name).or_else(|| settings.get(*name))?;
                Some(((*name).to_owned(), escape(value, 200)))
            })
            .collect();
        let told = stats.get("pid").and_then(|pid| pid.parse().ok());
        server.told = told;
        server.pid = match (&server.private, &server.link) {
            (Some(private), _) => Some(private.pid(told)),
            (None, Some(link)) => told.and_then(|told| super::locality::pid_here(&Root::live(), link, told)),
            (None, None) => None,
        };
        Ok(server)
    }

    /// Which server it is.
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Its address.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its process id, when it runs on this machine for certain.
    pub(super) fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Reads its counters.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, ServerError> {
        let stats = self.ask("stats").map_err(|trouble| ServerError::Lost {
            endpoint: super::shown(&self.endpoint),
            trouble,
            health: self.private.as_ref().map(Private::health_after_loss),
        })?;
        let own = OwnWork {
            connections: self.connections,
            ..OwnWork::default()
        };
        Ok(Snapshot::new(
            Source::Memcached,
            Measured::Known(counters(&stats)),
            own,
        ))
    }

    /// Whether it is alive.
    pub(super) fn health(&mut self) -> Health {
        if let Some(private) = &self.private {
            return private.health();
        }
        match self.ask("version") {
            Ok(_) => Health::Running,
            Err(trouble) => Health::Silent(trouble.to_string()),
        }
    }

    /// Asks for statistics; a connection that an idle time-out closed is opened once more.
    fn ask(&mut self, command: &str) -> Result<BTreeMap<String, String>, Trouble> {
        match self.ask_once(command) {
            Err(Trouble::Closed) => self.ask_once(command),
            other => other,
        }
    }

    fn ask_once(&mut self, command: &str) -> Result<BTreeMap<String, String>, Trouble> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                self.connections += 1;
                Link::connect(&self.endpoint)?
            }
        };
        link.send(format!("{command}\r\n").as_bytes())?;
        let reply = receive(&mut link)?;
        let stats = parse(&reply)?;
        self.link = Some(link);
        Ok(stats)
    }
}

/// Reads a reply up to its last line.
fn receive(link: &mut Link) -> Result<Vec<u8>, Trouble> {
    let deadline = Instant::now() + REPLY_LIMIT;
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    while !is_whole(&reply) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || reply.len() > REPLY_BYTES {
            return Err(Trouble::TimedOut(Waiting::Reply, REPLY_LIMIT));
        }
        match link.receive(&mut chunk, left) {
            Ok(0) if reply.is_empty() => return Err(Trouble::Closed),
            Ok(0) => return Err(strange(&reply)),
            Ok(n) => reply.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(trouble_of(e, Waiting::Reply, REPLY_LIMIT)),
        }
    }
    Ok(reply)
}

/// Whether the last line says that no more comes: `END` after statistics, and any line that is none of
/// them.
fn is_whole(reply: &[u8]) -> bool {
    reply.ends_with(b"\r\n")
        && reply[..reply.len() - 2]
            .rsplit(|byte| *byte == b'\n')
            .next()
            .is_some_and(|line| !line.starts_with(b"STAT "))
}

fn parse(reply: &[u8]) -> Result<BTreeMap<String, String>, Trouble> {
    let text = String::from_utf8_lossy(reply);
    let mut stats = BTreeMap::new();
    for line in text.lines() {
        match line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) {
            Some((name, value)) => {
                stats.insert(name.to_owned(), value.trim_end().to_owned());
            }
            None if line.trim_end() == "END" => return Ok(stats),
            // An empty value is legal (`STAT domain_socket `), and `version` answers in a line of its own.
            None if line.starts_with("STAT ") => {}
            None if line.starts_with("VERSION ") => return Ok(stats),
            None if line.starts_with("ERROR Too many open connections") => return Err(Trouble::MaxClients),
            None => break,
        }
    }
    Err(strange(reply))
}

fn strange(reply: &[u8]) -> Trouble {
    Trouble::NotMemcached {
        begins: escape(&String::from_utf8_lossy(reply), SHOWN_BYTES),
        looks_like: OtherProtocol::guess(reply),
    }
}

/// `stats` in the terms of the ledger: `get` by key asked for, `set` by key stored, `incr` by counter hit
/// or missed. Other commands are there under their own names.
fn counters(stats: &BTreeMap<String, String>) -> Counters {
    let number = |name: &str| stats.get(name).and_then(|text| text.parse::<u64>().ok());
    let sum = |names: &[&str]| -> Option<u64> { names.iter().map(|name| number(name)).sum() };
    let commands = [
        ("get", number("cmd_get")),
        ("set", number("cmd_set")),
        ("incr", sum(&["incr_hits", "incr_misses"])),
        ("decr", sum(&["decr_hits", "decr_misses"])),
        ("delete", sum(&["delete_hits", "delete_misses"])),
        ("touch", number("cmd_touch")),
        ("flush", number("cmd_flush")),
    ];
    let commands = commands
        .into_iter()
        .filter_map(|(name, calls)| {
            let counts = CommandCounts {
                calls: calls?,
                ..CommandCounts::default()
            };
            Some((name.to_owned(), counts))
        })
        .collect();
    Counters {
        // It has no id of its own. Two of them do not share a process id and a second of birth.
        run_id: stats.get("pid").map(|pid| escape(pid, 40)),
        uptime_s: number("uptime"),
        commands,
        connections_received: number("total_connections"),
        connections_rejected: number("rejected_connections"),
        connected_clients: number("curr_connections"),
        used_memory: number("bytes"),
        commands_processed: None,
        output_buffer_closed: None,
        evicted_keys: number("evictions"),
        listen_disabled: number("listen_disabled_num"),
        errors: BTreeMap::new(),
    }
}

fn launch(
    found: &Found,
    transport: Transport,
    options: &PrivateOptions,
) -> Result<(Private, Endpoint), ServerError> {
    let program = escape(&found.path.to_string_lossy(), 200);
    let folder = Folder::create()?;
    let mut command = Command::new(&found.path);
    let endpoint = match transport {
        Transport::Unix => {
            let path = folder.file("server.sock");
            command.args(["-s", &path, "-a", "0700"]);
            Endpoint::Unix {
                path,
                user: None,
                password: None,
            }
        }
        Transport::Tcp | Transport::Local => {
            let port = private::free_port().map_err(|source| ServerError::Spawn {
                program: program.clone(),
                source,
            })?;
            let host = Ipv4Addr::LOCALHOST.to_string();
            command.args(["-l", &host, "-p", &port.to_string(), "-U", "0"]);
            Endpoint::Tcp {
                host,
                port,
                user: None,
                password: None,
            }
        }
    };
    // It refuses to run as root without being told to.
    if Uid::effective().is_root()
        && let Ok(Some(user)) = User::from_uid(Uid::effective())
    {
        command.args(["-u", &user.name]);
    }
    if let Some(backlog) = options.tcp_backlog {
        command.args(["-b", &backlog.to_string()]);
    }
    if let Some(maxclients) = options.maxclients {
        command.args(["-c", &maxclients.to_string()]);
    }
    command.current_dir(folder.path()).stdin(Stdio::null());
    Ok((private::launch(command, folder, &program)?, endpoint))
}

/// Waits until it answers, and makes sure that it is the one that was started: somebody else's may have
/// taken the port.
fn first_reply(
    private: Private,
    endpoint: Endpoint,
    interrupt: &Interrupt,
) -> Result<Memcached, ServerError> {
    let deadline = Instant::now() + START_LIMIT;
    let program = ServerProgram::Memcached.program();
    while let Err(trouble) = Link::connect(&endpoint) {
        if interrupt.requested() {
            return Err(ServerError::Interrupted);
        }
        let ended = !matches!(private.health(), Health::Running);
        if ended || Instant::now() > deadline || matches!(trouble, Trouble::NotPermitted) {
            return Err(private::not_ready(&private, program));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let server = Memcached::open(Some(private), endpoint.clone())
        .map_err(|trouble| super::unusable(&endpoint, trouble))?;
    if server.told != server.pid {
        return Err(ServerError::TwoServers {
            first: super::shown(&endpoint),
            second: format!("the {program} that was started"),
        });
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_to_their_end() {
        let reply = b"STAT pid 7\r\nSTAT cmd_get 12\r\nSTAT domain_socket \r\nSTAT incr_hits 3\r\nSTAT incr_misses 1\r\nEND\r\n";
        assert!(is_whole(reply));
        assert!(!is_whole(&reply[..reply.len() - 5]));
        assert!(!is_whole(&reply[..reply.len() - 1]));
        let counters = counters(&parse(reply).unwrap());
        assert_eq!(counters.run_id.as_deref(), Some("7"));
        assert_eq!(counters.commands["get"].calls, 12);
        assert_eq!(counters.commands["incr"].calls, 4);
        assert!(!counters.commands.contains_key("set"), "not told is not zero");
    }

    #[test]
    fn what_is_no_memcached_is_told() {
        let shown = |reply: &[u8]| {
            assert!(is_whole(reply));
            parse(reply).unwrap_err().to_string()
        };
        let redis = shown(b"-ERR unknown command 'stats'\r\n");
        assert!(redis.contains("does not speak memcached's protocol"), "{redis}");
        assert!(shown(b"HTTP/1.1 400 Bad Request\r\n").contains("an HTTP server"));
        assert!(shown(b"ERROR Too many open connections\r\n").contains("no room"));
    }
}
