//! What the tests of limits share: a Redis server in chosen surroundings, a network namespace for one test,
//! and a control group that goes away with its value.

// Each test program uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use systally::record::{Proof, ProofArm, ProofVerdict, Record};
use systally::sys::namespace::enter_own_network;

/// A Redis server, killed with this value.
pub(crate) struct Redis {
    child: Child,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Redis {
    /// Starts `WRAPPER… redis-server OPTIONS…`; `None`, with a SKIP line, when it cannot be started.
    pub(crate) fn start(wrapper: &[&str], options: &[&str]) -> Option<Redis> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let socket = folder.path().join("r.sock");
        let port_text = port.to_string();
        let fixed = [
            "redis-server",
            "--port",
            &port_text,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            folder.path().to_str().unwrap(),
            "--unixsocket",
            socket.to_str().unwrap(),
        ];
        let words: Vec<&str> = wrapper.iter().chain(&fixed).chain(options).copied().collect();
        let started = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match started {
            Ok(child) => child,
            Err(e) => {
                println!("SKIP: {} cannot be started here: {e}", words[0]);
                return None;
            }
        };
        let redis = Redis { child, folder, port };
        wait_for(port);
        // It listens on TCP first.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !socket.exists() {
            assert!(Instant::now() < deadline, "redis-server makes no socket");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("r.sock")
    }

    /// `-h 127.0.0.1 -p PORT -s SOCKET`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let socket = self.socket().to_str().unwrap().to_owned();
        let port = self.port.to_string();
        ["-h", "127.0.0.1", "-p", &port, "-s", &socket]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that is killed with this value.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something listens on a port of 127.0.0.1.
pub(crate) fn wait_for(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a test in a network namespace of its own, with these settings; what it starts is in it as well.
/// Says so and does nothing where that is not allowed.
pub(crate) fn in_own_network(settings: &[(&str, &str)], test: impl FnOnce() + Send) {
    let host = network();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // Only this thread moves; it ends with the test.
            if let Err(e) = enter_own_network() {
                return println!("SKIP: no network namespace may be made here: {e}");
            }
            assert_ne!(network(), host);
            for (name, value) in settings {
                std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
            }
            test();
        });
        if let Err(panic) = inside.join() {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(network(), host);
}

fn network() -> PathBuf {
    std::fs::read_link("/proc/thread-self/ns/net").unwrap()
}

/// A control group of version 1 at the top of its hierarchy, removed with this value.
pub(crate) struct Group(PathBuf);

impl Group {
    /// `None`, with a SKIP line, where it cannot be made.
    pub(crate) fn make(controller: &str, files: &[(&str, &str)]) -> Option<Group> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let top = Path::new("/sys/fs/cgroup").join(controller);
        let group = Group(top.join(format!("systally-test-{}-{number}", std::process::id())));
        let made = std::fs::create_dir(&group.0);
        let set = made.and_then(|()| {
            let mut files = files.iter();
            files.try_for_each(|(file, text)| std::fs::write(group.0.join(file), text))
        });
        match set {
            Ok(()) => Some(group),
            Err(e) => {
                println!("SKIP: no control group can be made at {}: {e}", top.display());
                None
            }
        }
    }

    pub(crate) fn take(&self, pid: i32) {
        std::fs::write(self.procs(), pid.to_string()).unwrap();
    }

    pub(crate) fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            match std::fs::remove_dir(&self.0) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(()) | Err(_) => return,
            }
        }
    }
}

/// The proof of a finding, which must have this verdict.
pub(crate) fn proof<'a>(record: &'a Record, code: &str, verdict: ProofVerdict) -> &'a Proof {
    let found = record.proofs.iter().find(|proof| proof.code == code);
    let proof = found.unwrap_or_else(|| panic!("no proof of {code}: {:#?}", record.proofs));
    assert_eq!(proof.verdict, verdict, "{proof:#?}");
    proof
}

/// The symptoms of the runs of one side.
pub(crate) fn symptoms(proof: &Proof, arm: ProofArm) -> Vec<u64> {
    let runs = proof.runs.iter().filter(|run| run.arm == arm);
    runs.map(|run| run.symptom).collect()
}
