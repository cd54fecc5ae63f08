//! What the tests of strategies share: an engine that only runs programs, and a private Redis server.

// Each test program uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use systally::engine::{
    Availability, Capabilities, Engine, EngineError, EngineKind, Exit, Failures, Order, Outcome, Pipes,
    Program, Request, Selection, Session, Window,
};
use systally::strategy::contract::Endpoint;
use systally::units::Measured;

/// How long anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Runs programs and counts nothing.
pub(crate) struct PlainEngine;

pub(crate) fn request() -> Request {
    Request {
        window: Window::Markers,
        selection: Selection::All,
        pin: false,
        cpu_time: false,
        failures: Failures::All,
    }
}

impl Engine for PlainEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn availability(&self) -> Availability {
        Availability::Ready
    }

    fn launch(&self, programs: Vec<Program>, _: &Request) -> Result<Box<dyn Session>, EngineError> {
        let mut session = PlainSession {
            children: Vec::new(),
            pids: Vec::new(),
            pipes: Vec::new(),
        };
        for program in programs {
            let mut child = Command::new(&program.argv[0])
                .args(&program.argv[1..])
                .envs(&program.env)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .process_group(0)
                .spawn()
                .map_err(|e| EngineError::Exec {
                    program: program.argv[0].to_string_lossy().into_owned(),
                    source: nix::errno::Errno::from_raw(e.raw_os_error().unwrap_or(0)),
                    hint: String::new(),
                })?;
            session.pipes.push(Pipes {
                stdin: OwnedFd::from(child.stdin.take().unwrap()),
                stdout: OwnedFd::from(child.stdout.take().unwrap()),
                stderr: OwnedFd::from(child.stderr.take().unwrap()),
            });
            session.pids.push(child.id().cast_signed());
            session.children.push(child);
        }
        Ok(Box::new(session))
    }
}

struct PlainSession {
    children: Vec<Child>,
    pids: Vec<i32>,
    pipes: Vec<Pipes>,
}

impl Session for PlainSession {
    fn pids(&self) -> &[i32] {
        &self.pids
    }

    fn pipes(&mut self) -> Vec<Pipes> {
        std::mem::take(&mut self.pipes)
    }

    fn signal(&self, signal: i32) {
        for pid in &self.pids {
            let _ = killpg(Pid::from_raw(*pid), Signal::try_from(signal).unwrap());
        }
    }

    fn order(&self) -> Order {
        let pids = self.pids.clone();
        Order::new(move |signal| {
            for pid in &pids {
                let _ = killpg(Pid::from_raw(*pid), Signal::try_from(signal).unwrap());
            }
        })
    }

    fn finish(mut self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let deadline = Instant::now() + limit.unwrap_or(LIMIT);
        let mut exits = Vec::new();
        for child in &mut self.children {
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    use std::os::unix::process::ExitStatusExt;
                    exits.push(match (status.code(), status.signal()) {
                        (Some(code), _) => Exit::Code(code),
                        (None, signal) => Exit::Signal(signal.unwrap()),
                    });
                    break;
                }
                if Instant::now() >= deadline {
                    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(Outcome {
            exits,
            tallies: Measured::NotMeasured("no engine".into()),
            windows: Vec::new(),
            cpu: Measured::NotMeasured("no engine".into()),
            tracees: 0,
            left: Vec::new(),
            notes: Vec::new(),
        })
    }
}

impl Drop for PlainSession {
    fn drop(&mut self) {
        self.signal(9);
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// A Redis server of this test alone.
pub(crate) struct Redis {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    password: Option<String>,
}

impl Redis {
    /// Starts one; `None`, with a SKIP line, when there is none to start.
    pub(crate) fn start(password: Option<&str>) -> Option<Redis> {
        Redis::with(password, &[])
    }

    pub(crate) fn with(password: Option<&str>, more: &[&str]) -> Option<Redis> {
        // The port is free when it is chosen, and may be taken when the server wants it.
        for _ in 0..5 {
            let mut redis = Redis::spawn(password, more)?;
            let deadline = Instant::now() + LIMIT;
            while redis.child.try_wait().unwrap().is_none() {
                if redis.ask("PING").is_ok() {
                    return Some(redis);
                }
                assert!(Instant::now() < deadline, "redis-server does not answer");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("redis-server does not stay up");
    }

    fn spawn(password: Option<&str>, more: &[&str]) -> Option<Redis> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--unixsocket", folder.path().join("redis.sock").to_str().unwrap()])
            .args(["--dir", folder.path().to_str().unwrap()])
            .args(more)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null());
        if let Some(password) = password {
            command.args(["--requirepass", password]);
        }
        match command.spawn() {
            Ok(child) => Some(Redis {
                child,
                folder,
                port,
                password: password.map(str::to_owned),
            }),
            Err(e) => {
                println!("SKIP: redis-server cannot be started: {e}");
                None
            }
        }
    }

    pub(crate) fn tcp(&self) -> Endpoint {
        Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: self.port,
            user: None,
            password: self.password.clone(),
        }
    }

    pub(crate) fn unix(&self) -> Endpoint {
        Endpoint::Unix {
            path: self.socket().to_str().unwrap().into(),
            user: None,
            password: self.password.clone(),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Sends an inline command and returns all that comes back before the connection is closed.
    pub(crate) fn ask(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        if let Some(password) = &self.password {
            write!(
                stream,
                "*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n",
                password.len()
            )?;
        }
        write!(stream, "{command}\r\nQUIT\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// How often the server has run a command, by its own count.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.ask("INFO commandstats").unwrap();
        let prefix = format!("cmdstat_{command}:calls=");
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok())
            .unwrap_or(0)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls, by the log of `strace -f -o`, between the return of the read that brought `go` and the write of
/// the result.
pub(crate) fn calls_in_window(log: &Path) -> BTreeMap<String, u64> {
    let log = std::fs::read_to_string(log).unwrap();
    // The read is on two lines when another thread made a call while it waited.
    let begin = ["read(0, \"go\\n\"", "read resumed>\"go\\n\""]
        .iter()
        .find_map(|marker| log.find(marker))
        .unwrap();
    let window = &log[begin..];
    let end = window.find("write(1, \"{\\\"event\\\":\\\"done\\\"").unwrap();
    let mut counts = BTreeMap::new();
    for line in window[..end].lines().skip(1) {
        let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        match call.split_once('(') {
            Some((name, _)) if !name.starts_with(['<', '+', '-']) => {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
    counts
}
