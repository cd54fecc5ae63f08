//! One run of a test: what it sets, in a process of its own that sets it up for itself alone.
//!
//! The process (`systally arm`) is given its [`Arm`] as JSON on standard input. It moves into a network
//! namespace of its own before it sets anything below `/proc/sys`, so that no setting of the host can
//! change; then it is a bench with a private server.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::proc::cgroup::{Controller, Version, groups};
use crate::proc::process::{Who, is_alive};
use crate::proc::{Root, sysctl};
use crate::sys::namespace::enter_own_network;

/// What the name of a run's control group begins with; its process id follows.
const GROUP: &str = "systally-arm-";

/// What one run sets. `None` and a missing name leave what is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Settings of its network namespace by dotted name; only `net.` ones are allowed.
    pub sysctls: BTreeMap<String, String>,
    /// `tcp-backlog` of the server.
    pub tcp_backlog: Option<u32>,
    /// `maxclients` of the server.
    pub maxclients: Option<u32>,
    /// Limit of open files that the server is started with, soft and hard.
    pub server_nofile: Option<u64>,
    /// Soft limit of open files that the server is given when it runs.
    pub server_nofile_running: Option<u64>,
    /// Soft limit of open files of the clients.
    pub client_nofile: Option<u64>,
    /// Soft limit of processes of the clients' user.
    pub client_nproc: Option<u64>,
    /// CPU quota of the server in microseconds of each period; 0 is none.
    pub server_cpu: Option<(u64, u64)>,
    /// `pids.max` of a new control group for the whole run, outside of the present one.
    pub pids_max: Option<u64>,
}

impl Setup {
    /// What differs from another one, by the names that the record shows.
    pub(super) fn unlike(&self, other: &Setup) -> BTreeMap<String, String> {
        let (ours, theirs) = (self.named(), other.named());
        let differs = |(name, value): &(String, String)| theirs.get(name) != Some(value);
        ours.into_iter().filter(differs).collect()
    }

    /// Everything it sets, by name.
    pub(super) fn named(&self) -> BTreeMap<String, String> {
        let mut out = self.sysctls.clone();
        let numbers = [
            ("server.tcp-backlog", self.tcp_backlog.map(u64::from)),
            ("server.maxclients", self.maxclients.map(u64::from)),
            ("server.nofile", self.server_nofile.or(self.server_nofile_running)),
            ("client.nofile", self.client_nofile),
            ("client.nproc", self.client_nproc),
            ("pids.max", self.pids_max),
        ];
        let numbers = numbers
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_string())));
        out.extend(numbers);
        if let Some((quota, period)) = self.server_cpu {
            let quota = if quota == 0 {
                "max".to_owned()
            } else {
                quota.to_string()
            };
            out.insert("server.cpu.max".to_owned(), format!("{quota} {period}"));
        }
        out
    }

    fn needs_a_network(&self) -> bool {
        !self.sysctls.is_empty()
    }
}

/// A run to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// What it sets.
    pub setup: Setup,
    /// Arguments of `systally bench`.
    pub bench: Vec<String>,
}

/// Why the surroundings of a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// No right to do so.
    #[error("{what}: {source}")]
    Denied {
        /// What was wanted.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// It would have touched the host.
    #[error("{0} is not a setting of a network namespace, and nothing else is ever set")]
    NotOurs(String),
}

/// Control groups that were made for one run; dropping this removes them.
#[derive(Debug, Default)]
pub struct Groups {
    folders: Vec<PathBuf>,
    /// Where the server is to be put.
    server: Option<PathBuf>,
}

impl Groups {
    /// Puts the server where its setup says.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take_server(&self, pid: i32) -> io::Result<()> {
        match &self.server {
            Some(folder) => std::fs::write(folder.join("cgroup.procs"), pid.to_string()),
            None => Ok(()),
        }
    }
}

/// Removes the groups of runs that were killed before they could do so themselves.
pub fn sweep() {
    let root = Root::live();
    for controller in [Controller::Pids, Controller::Cpu] {
        let Ok(Some(found)) = groups(&root, Who::Me, controller) else {
            continue;
        };
        let Some(top) = found.folders.last() else { continue };
        for name in root.list(top).unwrap_or_default() {
            let of = name.strip_prefix(GROUP).and_then(|pid| pid.parse::<i32>().ok());
            if of.is_some_and(|pid| matches!(is_alive(&root, pid), Ok(false))) {
                // One that still holds somebody cannot be removed, and is not.
                let _ = std::fs::remove_dir(root.path(top).join(name));
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in self.folders.iter().rev() {
            // A group with a process that is just ending is busy for a moment.
            for _ in 0..50 {
                let own = folder.parent().map(|parent| parent.join("cgroup.procs"));
                if let Some(procs) = own {
                    let _ = std::fs::write(procs, "0");
                }
                match std::fs::remove_dir(folder) {
                    Err(e) if e.raw_os_error() == Some(nix::libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    }
                    Ok(()) | Err(_) => break,
                }
            }
        }
    }
}

/// Sets this process up as `setup` says. It must have one thread.
///
/// # Errors
/// See [`ArmError`]; nothing of the host has been changed then.
pub fn set_up(setup: &Setup) -> Result<Groups, ArmError> {
    let root = Root::live();
    let denied = |what: &str| {
        let what = what.to_owned();
        move |source: io::Error| ArmError::Denied { what, source }
    };
    if let Some(name) = setup
        .sysctls
        .keys()
        .find(|name| !name.starts_with("net.") || name.contains(".."))
    {
        return Err(ArmError::NotOurs(name.clone()));
    }
    let groups = make_groups(&root, setup)?;
    if setup.needs_a_network() {
        let place = || {
            root.link("proc/self/ns/net")
                .map_err(denied("cannot tell the network namespace"))
        };
        let before = place()?;
        enter_own_network().map_err(denied(
            "cannot make a network namespace (CAP_SYS_ADMIN, or user namespaces)",
        ))?;
        if before == place()? {
            return Err(ArmError::NotOurs("the host's network namespace".to_owned()));
        }
        for (name, value) in &setup.sysctls {
            write_sysctl(&root, name, value)
                .map_err(denied(&format!("cannot set {name}={value} in the namespace")))?;
        }
    }
    for (resource, soft, name) in [
        (Resource::RLIMIT_NOFILE, setup.client_nofile, "open files"),
        (Resource::RLIMIT_NPROC, setup.client_nproc, "processes"),
    ] {
        if let Some(soft) = soft {
            let set = getrlimit(resource).and_then(|(_, hard)| setrlimit(resource, soft, hard.max(soft)));
            set.map_err(io::Error::from)
                .map_err(denied(&format!("cannot set the limit of {name} to {soft}")))?;
        }
    }
    Ok(groups)
}

/// Writes a setting unless it has that value already.
fn write_sysctl(root: &Root, name: &str, value: &str) -> io::Result<()> {
    let path = sysctl::path(name);
    let same = |text: &str| text.split_whitespace().eq(value.split_whitespace());
    match root.read(&path) {
        Ok(text) if same(&text) => Ok(()),
        Ok(_) | Err(_) => std::fs::write(root.path(&path), value),
    }
}

fn make_groups(root: &Root, setup: &Setup) -> Result<Groups, ArmError> {
    let mut made = Groups::default();
    let name = format!("{GROUP}{}", std::process::id());
    let wanted = [
        (Controller::Pids, setup.pids_max.is_some()),
        (Controller::Cpu, setup.server_cpu.is_some()),
    ];
    for (controller, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
        let what = match controller {
            Controller::Pids => "cannot make a control group for processes",
            Controller::Cpu | Controller::Memory => "cannot make a control group for CPU time",
        };
        let failed = |source: io::Error| ArmError::Denied {
            what: what.to_owned(),
            source,
        };
        let found = groups(root, Who::Me, controller).map_err(|e| failed(io::Error::other(e.to_string())))?;
        let found = found.ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
        // Beside the present group, not in it: the limit in question may be that of the present one.
        let top = found.folders.last().map(|top| root.path(top));
        let top = top.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let folder = top.join(&name);
        if !made.folders.contains(&folder) {
            std::fs::create_dir(&folder).map_err(failed)?;
            made.folders.push(folder.clone());
        }
        let write = |file: &str, text: String| write_into(&folder, file, &text).map_err(failed);
        match (controller, found.version) {
            (Controller::Pids, _) => {
                write("pids.max", setup.pids_max.unwrap_or_default().to_string())?;
                write("cgroup.procs", "0".to_owned())?;
            }
            (_, version) => {
                let (quota, period) = setup.server_cpu.unwrap_or_default();
                match version {
                    Version::V1 => {
                        write("cpu.cfs_period_us", period.to_string())?;
                        let quota = if quota == 0 {
                            "-1".to_owned()
                        } else {
                            quota.to_string()
                        };
                        write("cpu.cfs_quota_us", quota)?;
                    }
                    Version::V2 => {
                        let quota = if quota == 0 {
                            "max".to_owned()
                        } else {
                            quota.to_string()
                        };
                        write("cpu.max", format!("{quota} {period}"))?;
                    }
                }
                made.server = Some(folder.clone());
            }
        }
    }
    Ok(made)
}

fn write_into(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    std::fs::write(folder.join(file), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_network_of_one_s_own_is_ever_set() {
        for name in [
            "fs.file-max",
            "kernel.pid_max",
            "vm.overcommit_memory",
            "net../../fs/file-max",
        ] {
            let setup = Setup {
                sysctls: [(name.to_owned(), "1".to_owned())].into(),
                ..Setup::default()
            };
            assert!(matches!(set_up(&setup), Err(ArmError::NotOurs(_))), "{name}");
        }
    }

    #[test]
    fn a_setup_is_shown_by_what_differs() {
        let a = Setup {
            tcp_backlog: Some(8),
            maxclients: Some(100),
            ..Setup::default()
        };
        let b = Setup {
            tcp_backlog: Some(75),
            server_cpu: Some((0, 100_000)),
            ..a.clone()
        };
        let shown: Vec<_> = b.unlike(&a).into_iter().collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            shown,
            [
                pair("server.cpu.max", "max 100000"),
                pair("server.tcp-backlog", "75")
            ]
        );
    }
}
