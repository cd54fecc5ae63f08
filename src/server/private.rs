//! A server that systally starts for one run: `redis-server` or `valkey-server` from PATH, or the built-in
//! responder as a process of its own.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpgid};

use super::control::Control;
use super::error::ServerError;
use super::health::{Health, last_words};
use super::keeper::{Ended, Keeper};
use super::locate::Found;
use super::responder::Ready;
use crate::folder::{Folder, NoFolder, sweep};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Endpoint, Transport};
use crate::sys::namespace::start_with_open_files;
use crate::units::escape;

/// How long a server may take from its start to its first reply.
pub(super) const START_LIMIT: Duration = Duration::from_secs(10);
/// How often a port may turn out to be taken between finding it free and the server's bind.
pub(super) const PORT_TRIES: usize = 5;

/// Settings of a server that systally starts.
#[derive(Debug, Clone, Default)]
pub struct PrivateOptions {
    /// Length of the listeners' queues; the server's default when `None`.
    pub tcp_backlog: Option<u32>,
    /// Connections at most; the server's default when `None`.
    pub maxclients: Option<u32>,
    /// Whether it runs in a network namespace of its own, where only its UNIX socket can be reached, by its
    /// path: what a server in a container is to clients that share a folder with it.
    pub own_network: bool,
    /// Limit of open files that the server is started with, soft and hard; systally's own when `None`.
    pub nofile: Option<u64>,
    /// Whether it is a node of a Redis Cluster that is yet to be formed.
    pub cluster: bool,
    /// How the built-in responder is started.
    pub responder: ResponderCommand,
}

/// The program that serves as the built-in responder; by default this program's hidden subcommand
/// `responder`. `--socket PATH` and what [`PrivateOptions`] asks for are appended to its arguments.
#[derive(Debug, Clone, Default)]
pub struct ResponderCommand {
    /// The program; this one when `None`.
    pub program: Option<PathBuf>,
    /// What goes before the appended arguments; `responder` when empty.
    pub args: Vec<OsString>,
    /// Variables for its environment.
    pub env: Vec<(OsString, OsString)>,
}

/// A running server and what belongs to it. Dropping it kills the server, then removes its folder.
#[derive(Debug)]
pub(super) struct Private {
    // Fields are dropped in this order.
    keeper: Keeper,
    /// The responder ends when this closes; a second tie beside the keeper's.
    _stdin: Option<ChildStdin>,
    log: PathBuf,
    _folder: Folder,
}

/// A server that has just begun to answer.
pub(super) struct Fresh {
    pub(super) private: Private,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) control: Control,
}

impl Private {
    /// Whether it runs, and how it ended.
    pub(super) fn health(&self) -> Health {
        match self.keeper.ended() {
            None => Health::Running,
            Some(Ended(status)) => Health::Ended {
                status,
                last_words: last_words(&self.log),
            },
        }
    }

    /// The same when its connection has just been lost: a dying process closes its sockets a moment before
    /// it can be waited for.
    pub(super) fn health_after_loss(&self) -> Health {
        self.keeper.wait(Duration::from_millis(200));
        self.health()
    }

    /// Its process id, given the one that it tells of itself: they differ when the program in PATH is a
    /// script around the server.
    pub(super) fn pid(&self, told: Option<i32>) -> i32 {
        let leader = self.keeper.pid();
        told.filter(|told| *told > 0 && getpgid(Some(Pid::from_raw(*told))) == Ok(leader))
            .unwrap_or(leader.as_raw())
    }
}

/// Starts a server program.
pub(super) fn start_program(
    found: &Found,
    options: &PrivateOptions,
    interrupt: &Interrupt,
) -> Result<Fresh, ServerError> {
    sweep();
    let program = escape(&found.path.to_string_lossy(), 200);
    let mut tries = 0;
    loop {
        tries += 1;
        let folder = Folder::create()?;
        let port = if options.cluster {
            free_port_for_cluster()
        } else {
            free_port()
        };
        let port = port.map_err(|source| ServerError::Spawn {
            program: program.clone(),
            source,
        })?;
        let socket = folder.file("server.sock");
        let config = folder.file("server.conf");
        let written = fs::write(&config, configuration(&folder, port, options));
        written.map_err(|source| {
            ServerError::Folder(NoFolder {
                path: folder.path().to_owned(),
                source,
            })
        })?;
        let mut command = if options.own_network {
            in_own_network(&found.path)
        } else {
            Command::new(&found.path)
        };
        command
            .arg(&config)
            .current_dir(folder.path())
            .stdin(Stdio::null());
        if let Some(limit) = options.nofile {
            start_with_open_files(&mut command, limit);
        }
        let private = launch(command, folder, &program)?;
        let mut endpoints = endpoints(port, socket);
        if options.own_network {
            endpoints.retain(|endpoint| endpoint.transport() == Transport::Unix);
        }
        match first_reply(&private, &program, &endpoints, interrupt) {
            Ok(control) => {
                return Ok(Fresh {
                    private,
                    endpoints,
                    control,
                });
            }
            Err(ServerError::NotStarted { .. }) if tries < PORT_TRIES && is_taken(port) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The program in a network namespace of its own; whoever may not make one makes a user namespace as well.
/// unshare(1) replaces itself by the program, so the process id stays.
fn in_own_network(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-current-user"]);
    }
    command.args(["--net", "--"]).arg(program);
    command
}

/// Starts a server's command, with both its streams in a log in its folder.
pub(super) fn launch(mut command: Command, folder: Folder, program: &str) -> Result<Private, ServerError> {
    let log = open_log(&folder, &mut command, Stream::Both)?;
    let (keeper, _) = Keeper::spawn(command).map_err(|source| ServerError::Spawn {
        program: program.to_owned(),
        source,
    })?;
    Ok(Private {
        keeper,
        _stdin: None,
        log,
        _folder: folder,
    })
}

/// Starts the built-in responder in a process of its own.
pub(super) fn start_responder(options: &PrivateOptions, interrupt: &Interrupt) -> Result<Fresh, ServerError> {
    if options.own_network {
        return Err(ServerError::NoOwnNetwork {
            why: "the built-in server has none; install redis-server",
        });
    }
    sweep();
    let (mut command, program) = responder_command(&options.responder)?;
    let folder = Folder::create()?;
    let socket = folder.file("server.sock");
    command.arg("--socket").arg(&socket);
    if let Some(backlog) = options.tcp_backlog {
        command.arg("--tcp-backlog").arg(backlog.to_string());
    }
    if let Some(maxclients) = options.maxclients {
        command.arg("--maxclients").arg(maxclients.to_string());
    }
    if let Some(limit) = options.nofile {
        start_with_open_files(&mut command, limit);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let log = open_log(&folder, &mut command, Stream::Errors)?;
    let (keeper, ends) = Keeper::spawn(command).map_err(|source| ServerError::Spawn {
        program: program.clone(),
        source,
    })?;
    let private = Private {
        keeper,
        _stdin: ends.stdin,
        log,
        _folder: folder,
    };
    let ready = match ends.stdout {
        Some(stdout) => read_ready(stdout, interrupt)?,
        None => None,
    };
    let Some(ready) = ready else {
        // It closed its output without the line, or took too long over it.
        private.keeper.wait(Duration::from_millis(200));
        return Err(not_ready(&private, &program));
    };
    let endpoints = endpoints(ready.tcp.port(), socket);
    let control = first_reply(&private, &program, &endpoints, interrupt)?;
    Ok(Fresh {
        private,
        endpoints,
        control,
    })
}

fn responder_command(responder: &ResponderCommand) -> Result<(Command, String), ServerError> {
    let program = match &responder.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|source| ServerError::Spawn {
            program: "this program".to_owned(),
            source,
        })?,
    };
    let mut command = Command::new(&program);
    if responder.args.is_empty() {
        command.arg("responder");
    }
    command.args(&responder.args).envs(responder.env.iter().cloned());
    Ok((command, escape(&program.to_string_lossy(), 200)))
}

pub(super) fn endpoints(port: u16, socket: String) -> Vec<Endpoint> {
    let host = Ipv4Addr::LOCALHOST.to_string();
    vec![
        Endpoint::Tcp {
            host,
            port,
            user: None,
            password: None,
        },
        Endpoint::Unix {
            path: socket,
            user: None,
            password: None,
        },
    ]
}

/// Everything is set in a file of our own, so no file of the user's is read. The folder's path holds no
/// quotes or backslashes ([`Folder::path`]).
fn configuration(folder: &Folder, port: u16, options: &PrivateOptions) -> String {
    let mut lines = vec![
        format!("bind {}", Ipv4Addr::LOCALHOST),
        format!("port {}", if options.own_network { 0 } else { port }),
        "protected-mode yes".to_owned(),
        format!("unixsocket \"{}\"", folder.file("server.sock")),
        "unixsocketperm 700".to_owned(),
        format!("dir \"{}\"", folder.path().display()),
        "daemonize no".to_owned(),
        "save \"\"".to_owned(),
        "appendonly no".to_owned(),
        // To standard output: Redis opens a log file anew for each line, which fails just when it has run
        // out of descriptors and has something to say.
        "logfile \"\"".to_owned(),
        "loglevel notice".to_owned(),
    ];
    lines.extend(options.tcp_backlog.map(|n| format!("tcp-backlog {n}")));
    lines.extend(options.maxclients.map(|n| format!("maxclients {n}")));
    if options.cluster {
        lines.push("cluster-enabled yes".to_owned());
        lines.push("cluster-config-file nodes.conf".to_owned());
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Which of a server's streams go to its log.
#[derive(Clone, Copy)]
enum Stream {
    Both,
    Errors,
}

fn open_log(folder: &Folder, command: &mut Command, streams: Stream) -> Result<PathBuf, ServerError> {
    let path = PathBuf::from(folder.file("server.log"));
    // Appended to, since both streams may write.
    let file = fs::OpenOptions::new().create_new(true).append(true).open(&path);
    let connected = file.and_then(|file| {
        if let Stream::Both = streams {
            command.stdout(file.try_clone()?);
        }
        command.stderr(file);
        Ok(())
    });
    match connected {
        Ok(()) => Ok(path),
        Err(source) => Err(ServerError::Folder(NoFolder { path, source })),
    }
}

/// A port of the loopback address that is free now. Another process may take it before the server binds
/// it; then the server ends and the start is tried again.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The same with 10,000 more free as well: there a node of a cluster listens to the others (before Redis 7
/// that cannot be set apart).
fn free_port_for_cluster() -> io::Result<u16> {
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let port = free_port()?;
        if port
            .checked_add(10_000)
            .is_some_and(|bus| TcpListener::bind((Ipv4Addr::LOCALHOST, bus)).is_ok())
        {
            return Ok(port);
        }
    }
    Err(io::Error::other(
        "no port below 55536 is free together with the one 10000 above it",
    ))
}

pub(super) fn is_taken(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse)
}

/// Waits until the server answers on its UNIX socket, which only this user can have put there, and makes
/// sure that its TCP port leads to the same server.
fn first_reply(
    private: &Private,
    program: &str,
    endpoints: &[Endpoint],
    interrupt: &Interrupt,
) -> Result<Control, ServerError> {
    let deadline = Instant::now() + START_LIMIT;
    let Some((unix, others)) = endpoints.split_last() else {
        return Err(ServerError::NoEndpoint);
    };
    let mut control = loop {
        if interrupt.requested() {
            return Err(ServerError::Interrupted);
        }
        if private.keeper.ended().is_some() {
            return Err(not_ready(private, program));
        }
        match Control::open(unix) {
            Ok(control) => break control,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return Err(not_ready(private, program)),
        }
    };
    super::same_server(&mut control, others)?;
    Ok(control)
}

pub(super) fn not_ready(private: &Private, program: &str) -> ServerError {
    let program = program.to_owned();
    match private.health() {
        health @ Health::Ended { .. } => ServerError::NotStarted { program, health },
        health => ServerError::NotReady {
            program,
            limit: START_LIMIT,
            health,
        },
    }
}

/// Reads the responder's output until its ready line; `None` when it ends or takes too long before.
fn read_ready(mut stdout: ChildStdout, interrupt: &Interrupt) -> Result<Option<Ready>, ServerError> {
    /// More output than any ready line needs.
    const OUTPUT: usize = 64 << 10;
    let deadline = Instant::now() + START_LIMIT;
    let mut text = Vec::new();
    while Instant::now() < deadline && text.len() < OUTPUT {
        if interrupt.requested() {
            return Err(ServerError::Interrupted);
        }
        let slice = PollTimeout::from(50u8);
        match poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], slice) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
        let mut chunk = [0; 1024];
        match stdout.read(&mut chunk) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(n) => text.extend_from_slice(&chunk[..n]),
        }
        let complete = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let lines = String::from_utf8_lossy(&text[..complete]);
        if let Some(ready) = lines.lines().find_map(Ready::parse) {
            return Ok(Some(ready));
        }
    }
    Ok(None)
}
