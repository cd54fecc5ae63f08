//! What programs leave running outside of their process group: daemons. Nobody follows a program that runs
//! untraced, and a daemon has another session and another parent than the one it descends from. What it keeps
//! is its environment, so each session's programs are given a mark there of their own.
//!
//! A process that has overwritten or cleared its environment is not found.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::Program;
use crate::proc::Root;
use crate::proc::processes;
use crate::sys::process::PidFd;
use crate::units::escape;

/// The variable of the mark.
const NAME: &str = "SYSTALLY_SESSION";
/// How long to look for processes that are forked while others are killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// A mark that no other process on this machine has.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    value: String,
    /// As it stands in an environment.
    entry: Vec<u8>,
}

impl Mark {
    /// A new one: this process, when it started, and a number.
    pub(super) fn new() -> Mark {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let pid = nix::unistd::getpid();
        let start = processes::start_time(&Root::live(), pid.as_raw()).unwrap_or(0);
        let value = format!("{pid}-{start}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let entry = format!("{NAME}={value}").into_bytes();
        Mark { value, entry }
    }

    /// Gives it to a program, and so to all that it starts.
    pub(super) fn put_on(&self, program: &mut Program) {
        program.env.insert(NAME.into(), OsString::from(&self.value));
    }

    /// Kills every process that has it, and returns what was killed in words. Once the programs themselves have
    /// ended.
    pub(super) fn end_all(&self) -> Vec<String> {
        let root = Root::live();
        let mut killed = BTreeMap::new();
        let give_up = Instant::now() + PATIENCE;
        loop {
            let marked: Vec<i32> = processes::all(&root)
                .into_iter()
                .filter(|pid| self.is_on(&root, *pid))
                .collect();
            for pid in &marked {
                // The descriptor is of a process that had the mark before and has it after, and so of no other.
                let Ok(process) = PidFd::open(Pid::from_raw(*pid)) else {
                    continue;
                };
                if self.is_on(&root, *pid) {
                    let name = escape(&processes::name(&root, *pid), 40);
                    killed.insert(*pid, format!("{name} (pid {pid})"));
                    let _ = process.signal(libc::SIGKILL);
                }
            }
            if marked.is_empty() || Instant::now() >= give_up {
                return killed.into_values().collect();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether a process has it. One that has ended has no environment, and one of another user shows none.
    fn is_on(&self, root: &Root, pid: i32) -> bool {
        let environment = std::fs::read(root.path(&format!("proc/{pid}/environ"))).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == self.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn only_what_has_the_mark_is_ended() {
        let (ours, other) = (Mark::new(), Mark::new());
        let sleeper = |mark: &Mark| {
            Command::new("sleep")
                .arg("600")
                .env(NAME, &mark.value)
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        let (mut marked, mut spared) = (sleeper(&ours), sleeper(&other));
        let killed = ours.end_all();
        assert_eq!(killed, [format!("sleep (pid {})", marked.id())]);
        assert!(!marked.wait().unwrap().success());
        assert!(spared.try_wait().unwrap().is_none());
        assert_eq!(ours.end_all(), Vec::<String>::new());
        spared.kill().unwrap();
        spared.wait().unwrap();
    }
}
