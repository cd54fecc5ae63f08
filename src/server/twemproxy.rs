//! twemproxy (`nutcracker`) in front of private Redis servers.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::error::ServerError;
use super::health::Health;
use super::link::Link;
use super::locate::{ServerProgram, locate};
use super::private::{self, Private, START_LIMIT};
use super::{SUN_PATH_MAX, Server};
use crate::folder::{Folder, NoFolder};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Endpoint, Transport};
use crate::units::{Measured, escape};

/// A proxy that runs.
pub(super) struct Proxy {
    pub(super) private: Private,
    /// Where clients reach it.
    pub(super) endpoints: Vec<Endpoint>,
    /// Its version as it says.
    pub(super) version: Measured<String>,
}

/// Starts the proxy over these servers: one pool on TCP and one on a UNIX socket, keys spread by ketama.
pub(super) fn start(servers: &[Server], interrupt: &Interrupt) -> Result<Proxy, ServerError> {
    let found = locate(ServerProgram::Twemproxy)?;
    let program = escape(&found.path.to_string_lossy(), 200);
    let folder = Folder::create()?;
    let no_port = |source| ServerError::Spawn {
        program: program.clone(),
        source,
    };
    let port = private::free_port().map_err(no_port)?;
    let statistics = private::free_port().map_err(no_port)?;
    let socket = folder.file("server.sock");
    debug_assert!(socket.len() <= SUN_PATH_MAX);
    let config = folder.file("nutcracker.yml");
    let text = configuration(servers, port, &socket);
    fs::write(&config, text).map_err(|source| {
        ServerError::Folder(NoFolder {
            path: folder.path().to_owned(),
            source,
        })
    })?;
    let mut command = Command::new(&found.path);
    // Its statistics would listen on all addresses, at a port that is always the same.
    command
        .args(["-c", &config, "-v", "4"])
        .args([
            "-a",
            &Ipv4Addr::LOCALHOST.to_string(),
            "-s",
            &statistics.to_string(),
        ])
        .args(["-p", &folder.file("nutcracker.pid")])
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let private = private::launch(command, folder, &program)?;
    let endpoints = private::endpoints(port, socket);
    wait(&private, &program, &endpoints, interrupt)?;
    Ok(Proxy {
        private,
        endpoints,
        version: found.version,
    })
}

fn configuration(servers: &[Server], port: u16, socket: &str) -> String {
    let behind: String = servers
        .iter()
        .filter_map(|server| server.endpoint(Transport::Tcp))
        .map(|endpoint| format!("    - {endpoint}:1\n"))
        .collect();
    let pool = |name: &str, listen: &str| {
        format!(
            "{name}:\n  listen: {listen}\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  \
             auto_eject_hosts: false\n  preconnect: true\n  servers:\n{behind}"
        )
    };
    pool("tcp", &format!("{}:{port}", Ipv4Addr::LOCALHOST)) + &pool("unix", &format!("{socket} 0700"))
}

/// Waits until both of its listeners accept.
fn wait(
    private: &Private,
    program: &str,
    endpoints: &[Endpoint],
    interrupt: &Interrupt,
) -> Result<(), ServerError> {
    let deadline = Instant::now() + START_LIMIT;
    for endpoint in endpoints {
        while Link::connect(endpoint).is_err() {
            if interrupt.requested() {
                return Err(ServerError::Interrupted);
            }
            if !matches!(private.health(), Health::Running) || Instant::now() > deadline {
                return Err(private::not_ready(private, program));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}
