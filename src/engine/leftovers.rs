//! What programs leave running outside of their process group: daemons. Nobody follows a program that runs
//! untraced, and a daemon has another session and another parent than the one it descends from. What it keeps
//! is its environment, so each session's programs are given a mark there of their own.
//!
//! A process that has overwritten or cleared its environment is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::Program;
use crate::proc::Root;
use crate::proc::processes::{self, Standing};
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
    /// When it was made, in clock ticks since boot.
    made: u64,
}

/// What the environment of a process tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It has the mark.
    Marked,
    /// It has none.
    Other,
    /// It has no environment for the moment, as in the middle of execve: it has to be looked at again.
    InExec,
}

impl Mark {
    /// A new one: this process, when it started, and a number.
    pub(super) fn new() -> Mark {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let pid = nix::unistd::getpid();
        let start = processes::start_time(&Root::live(), pid.as_raw()).unwrap_or(0);
        let value = format!("{pid}-{start}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let entry = format!("{NAME}={value}").into_bytes();
        let made = uptime_ticks(&Root::live());
        Mark { value, entry, made }
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
        while !self.kill_once(&root, &mut killed) && Instant::now() < give_up {
            std::thread::sleep(LOOK);
        }
        killed.into_values().collect()
    }

    /// Kills what has the mark now; whether nothing had it.
    fn kill_once(&self, root: &Root, killed: &mut BTreeMap<i32, String>) -> bool {
        let mut clear = true;
        let mut looked_at = BTreeSet::new();
        loop {
            // A process that is forked while others are looked at may be the only one left of its kin: what is
            // new in the list is looked at, until nothing is.
            let mut new = processes::all(root);
            new.retain(|pid| looked_at.insert(*pid));
            if new.is_empty() {
                return clear;
            }
            for pid in new {
                let seen = self.look(root, pid);
                clear &= seen == Seen::Other;
                if seen != Seen::Marked {
                    continue;
                }
                // The descriptor is of a process that had the mark before and has it after, and so of no other.
                let Ok(process) = PidFd::open(Pid::from_raw(pid)) else {
                    continue;
                };
                if self.look(root, pid) == Seen::Marked {
                    let name = escape(&processes::name(root, pid), 40);
                    killed.insert(pid, format!("{name} (pid {pid})"));
                    let _ = process.signal(libc::SIGKILL);
                }
            }
        }
    }

    /// Looks for it on a process. One that has ended has no environment, and one of another user shows none.
    fn look(&self, root: &Root, pid: i32) -> Seen {
        let Ok(environment) = std::fs::read(root.path(&format!("proc/{pid}/environ"))) else {
            return Seen::Other;
        };
        if environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == self.entry)
        {
            return Seen::Marked;
        }
        // What runs longer than the programs of the mark may be without an environment for good.
        let is_young = || processes::start_time(root, pid).is_some_and(|start| start >= self.made);
        if environment.is_empty() && is_young() && processes::standing(root, pid) == Standing::Runs {
            return Seen::InExec;
        }
        Seen::Other
    }
}

/// The time since boot in clock ticks, of which Linux shows programs a hundred a second on every machine that
/// systally knows (`USER_HZ`); 0 where it cannot be read, which makes every process a young one.
fn uptime_ticks(root: &Root) -> u64 {
    let uptime = root.read("proc/uptime").unwrap_or_default();
    let seconds: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0);
    (seconds * 100.0) as u64
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

    #[test]
    fn what_is_in_the_middle_of_an_exec_is_looked_at_again() {
        let mark = Mark {
            made: 500,
            ..Mark::new()
        };
        let stat = |state: char, flags: u64, start: u64| {
            let zeros = |n: usize| "0 ".repeat(n);
            format!("7 (sh) {state} {}{flags} {}{start} 0\n", zeros(5), zeros(12))
        };
        let seen = |environment: &[u8], stat: &str| {
            let tree = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(tree.path().join("proc/7")).unwrap();
            std::fs::write(tree.path().join("proc/7/environ"), environment).unwrap();
            std::fs::write(tree.path().join("proc/7/stat"), stat).unwrap();
            mark.look(&Root::recorded(tree.path()), 7)
        };
        let marked = [b"A=1\0".as_slice(), &mark.entry, b"\0"].concat();
        assert_eq!(seen(&marked, &stat('S', 0, 400)), Seen::Marked);
        assert_eq!(seen(b"A=1\0", &stat('S', 0, 600)), Seen::Other);
        assert_eq!(seen(b"", &stat('R', 0, 500)), Seen::InExec);
        assert_eq!(
            seen(b"", &stat('R', 0, 499)),
            Seen::Other,
            "it is older than the mark"
        );
        assert_eq!(seen(b"", &stat('Z', 0, 600)), Seen::Other, "it has ended");
        assert_eq!(
            seen(b"", &stat('S', 0x20_0000, 600)),
            Seen::Other,
            "a thread of the kernel"
        );
    }
}
