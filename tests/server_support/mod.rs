//! What the tests of servers share: programs that may be missing, raw connections, and a child process
//! that is this test binary itself.

// Each test file uses a part of it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use systally::run::interrupt::Interrupt;
use systally::server::responder::{Options, Ready, serve};
use systally::server::{PrivateOptions, ResponderCommand, Server, ServerChoice};
use systally::strategy::contract::{Endpoint, Transport};

/// Longer than any of these tests should wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Names the part that a child process plays.
pub(crate) const ROLE: &str = "SYSTALLY_TEST_ROLE";

/// Whether a program is in PATH; otherwise says `SKIP:` with the reason.
pub(crate) fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        println!("SKIP: {program} is not installed");
    }
    found
}

/// This test binary, told to run only its test `child`; what follows becomes a filter that matches nothing.
pub(crate) fn responder_command() -> ResponderCommand {
    ResponderCommand {
        program: Some(std::env::current_exe().unwrap()),
        args: ["child", "--exact", "--nocapture", "--"]
            .map(OsString::from)
            .to_vec(),
        env: vec![(ROLE.into(), "responder".into())],
    }
}

/// Settings with [`responder_command`].
pub(crate) fn options() -> PrivateOptions {
    PrivateOptions {
        responder: responder_command(),
        ..PrivateOptions::default()
    }
}

/// The role `responder`: serves until its parent has gone.
pub(crate) fn be_responder() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let mut options = Options::new(value("--socket").expect("--socket").into());
    if let Some(n) = value("--tcp-backlog") {
        options.tcp_backlog = n.parse().unwrap();
    }
    if let Some(n) = value("--maxclients") {
        options.maxclients = n.parse().unwrap();
    }
    let interrupt = Interrupt::install().unwrap();
    // The test harness may have begun a line of its own.
    let tell = |ready: &Ready| std::io::stdout().write_all(format!("\n{ready}\n").as_bytes());
    serve(&options, &interrupt, tell).unwrap();
}

/// The built-in responder.
pub(crate) fn built_in() -> Server {
    Server::start(ServerChoice::BuiltIn { options: options() }, &Interrupt::never()).unwrap()
}

/// A private `redis-server` or `valkey-server`; says `SKIP:` when there is none.
pub(crate) fn private() -> Option<Server> {
    private_with(options())
}

/// The same with settings.
pub(crate) fn private_with(options: PrivateOptions) -> Option<Server> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !there("redis-server") && !there("valkey-server") {
        println!("SKIP: neither redis-server nor valkey-server is installed");
        return None;
    }
    let choice = ServerChoice::Auto {
        prefer: None,
        options,
    };
    Some(Server::start(choice, &Interrupt::never()).unwrap())
}

/// Host and port of a server.
pub(crate) fn port(server: &Server) -> u16 {
    match server.endpoint(Transport::Tcp) {
        Some(Endpoint::Tcp { port, .. }) => *port,
        other => panic!("no TCP endpoint: {other:?}"),
    }
}

/// Path of a server's socket.
pub(crate) fn socket(server: &Server) -> String {
    match server.endpoint(Transport::Unix) {
        Some(Endpoint::Unix { path, .. }) => path.clone(),
        other => panic!("no UNIX endpoint: {other:?}"),
    }
}

/// A connection that sends and receives bytes as they are.
pub(crate) enum Raw {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Raw {
    pub(crate) fn tcp(server: &Server) -> Raw {
        let stream = TcpStream::connect(("127.0.0.1", port(server))).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Raw::Tcp(stream)
    }

    pub(crate) fn unix(server: &Server) -> Raw {
        let stream = UnixStream::connect(socket(server)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Raw::Unix(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self {
            Raw::Tcp(stream) => stream.write_all(bytes).unwrap(),
            Raw::Unix(stream) => stream.write_all(bytes).unwrap(),
        }
    }

    pub(crate) fn stream(&mut self) -> &mut dyn Read {
        match self {
            Raw::Tcp(stream) => stream,
            Raw::Unix(stream) => stream,
        }
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        // A reset after the last byte is an end, too.
        let _ = self.stream().read_to_end(&mut all);
        all
    }

    /// Sends an inline command and returns the reply's first line.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && self.stream().read(&mut byte).unwrap() > 0 {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

/// Waits until `done` is true, [`LIMIT`] at most.
pub(crate) fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process exists and is no zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A child process that plays a role of this test binary; killed when dropped.
pub(crate) struct Role {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
}

impl Role {
    pub(crate) fn start(role: &str, env: &[(&str, &str)]) -> Role {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture"]).env(ROLE, role);
        command
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Role { child, stdin, lines }
    }

    /// The rest of the next line that begins with `word`.
    pub(crate) fn line(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "the child ended without '{word}'"
            );
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the child does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes an executable script.
pub(crate) fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
