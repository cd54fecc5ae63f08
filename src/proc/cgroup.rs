//! Control groups, version 1 and 2: where a process stands and what its group and every group above it
//! allow. A limit anywhere on that way binds.

use std::collections::BTreeMap;

use super::process::Who;
use super::sysctl::whole;
use super::{ReadError, Root};

/// The controllers that are read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Number of tasks.
    Pids,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}

/// The interface a hierarchy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// The way from a process's group up to the highest group that can be seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// The interface.
    pub version: Version,
    /// Folders below the root, the process's own group first.
    pub folders: Vec<String>,
}

/// Finds the groups of a process for one controller; `None` when it is in none, or in the topmost one of a
/// hierarchy that is mounted nowhere.
///
/// # Errors
/// Unreadable or odd `cgroup` and `mountinfo` files, or a group outside what is mounted here (a container
/// that shares only a part).
pub fn groups(root: &Root, who: Who, controller: Controller) -> Result<Option<Groups>, ReadError> {
    let path = who.file("cgroup");
    let memberships = root.read(&path)?;
    let mut v1 = None;
    let mut v2 = None;
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ReadError::content(&path, "a control group", line));
        };
        if controllers.is_empty() {
            v2 = Some(group);
        } else if controllers.split(',').any(|name| name == controller.name()) {
            v1 = Some(group);
        }
    }
    const MOUNTS: &str = "proc/self/mountinfo";
    let mounts = root.read(MOUNTS)?;
    let (version, group) = match (v1, v2) {
        (Some(group), _) => (Version::V1, group),
        (None, Some(group)) => (Version::V2, group),
        (None, None) => return Ok(None),
    };
    let Some((mount_root, mount_point)) = mounts.lines().find_map(|line| mount(line, version, controller))
    else {
        return match group {
            "/" => Ok(None),
            // Its limits bind though they cannot be seen.
            _ => Err(ReadError::content(MOUNTS, "the mount of a control group", group)),
        };
    };
    let outside = || ReadError::content(&path, "a group below the mounted one", group);
    let below = if mount_root == "/" {
        group
    } else {
        group.strip_prefix(mount_root).ok_or_else(outside)?
    };
    let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
    if parts.contains(&"..") {
        return Err(outside());
    }
    let folders: Vec<String> = (0..=parts.len())
        .rev()
        .map(|depth| {
            let mut folder = mount_point.trim_matches('/').to_owned();
            for part in &parts[..depth] {
                folder.push('/');
                folder.push_str(part);
            }
            folder
        })
        .collect();
    // Every group has this file. Without it the folder is not there to be read (a recording that was cut,
    // a sandbox that hides it), and "no limit" would be a guess.
    let marker = match version {
        Version::V1 => "notify_on_release",
        Version::V2 => "cgroup.controllers",
    };
    let own = &folders[0];
    root.read(&format!("{own}/{marker}"))?;
    Ok(Some(Groups { version, folders }))
}

/// From a line of `mountinfo`, the root within the hierarchy and the mount point, when it is the mount
/// that is looked for.
fn mount(line: &str, version: Version, controller: Controller) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (mount_root, mount_point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let fits = match version {
        Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == controller.name()),
        Version::V2 => kind == "cgroup2",
    };
    fits.then_some((mount_root, mount_point))
}

/// A limit that one group sets, and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The group's folder.
    pub folder: String,
    /// The file in it that sets the limit.
    pub file: &'static str,
    /// The limit; `None` is unlimited.
    pub max: Option<u64>,
    /// What is used now; `None` when the group does not tell.
    pub current: Option<u64>,
}

/// The `pids` limits on the way up. Groups without the files (the topmost one, or a controller that is
/// not switched on there) limit nothing and are left out.
///
/// # Errors
/// As [`groups`], or a limit file that holds nonsense.
pub fn pids(root: &Root, who: Who) -> Result<Vec<Level>, ReadError> {
    levels(root, who, Controller::Pids, |_| ("pids.max", "pids.current"))
}

/// The memory limits on the way up, in bytes.
///
/// # Errors
/// As [`pids`].
pub fn memory(root: &Root, who: Who) -> Result<Vec<Level>, ReadError> {
    levels(root, who, Controller::Memory, |version| match version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        Version::V2 => ("memory.max", "memory.current"),
    })
}

fn levels(
    root: &Root,
    who: Who,
    controller: Controller,
    files: impl Fn(Version) -> (&'static str, &'static str),
) -> Result<Vec<Level>, ReadError> {
    let Some(groups) = groups(root, who, controller)? else {
        return Ok(Vec::new());
    };
    let (max_file, current_file) = files(groups.version);
    let mut out = Vec::new();
    for folder in groups.folders {
        let Some(max) = optional(root, &format!("{folder}/{max_file}"))? else {
            continue;
        };
        let max = limit(&max).ok_or_else(|| ReadError::content(&folder, "a limit", &max))?;
        let current = match optional(root, &format!("{folder}/{current_file}"))? {
            Some(text) => {
                Some(whole(text.trim()).ok_or_else(|| ReadError::content(&folder, "a whole number", &text))?)
            }
            None => None,
        };
        out.push(Level {
            folder,
            file: max_file,
            max,
            current,
        });
    }
    Ok(out)
}

/// A limit as either version writes it. Version 1 writes "unlimited" memory as the largest long rounded
/// down to a page.
fn limit(text: &str) -> Option<Option<u64>> {
    const PRACTICALLY_UNLIMITED: u64 = 1 << 62;
    match text.trim() {
        "max" => Some(None),
        text => whole(text).map(|value| (value < PRACTICALLY_UNLIMITED).then_some(value)),
    }
}

/// CPU time that a group may use: `quota` of every `period`, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuQuota {
    /// The group's folder.
    pub folder: String,
    /// Microseconds per period, over all CPUs.
    pub quota: u64,
    /// Length of a period in microseconds.
    pub period: u64,
    /// The interface, which names the files that set it.
    pub version: Version,
}

/// The CPU quotas on the way up; groups without one are left out.
///
/// # Errors
/// As [`pids`].
pub fn cpu_quotas(root: &Root, who: Who) -> Result<Vec<CpuQuota>, ReadError> {
    let Some(groups) = groups(root, who, Controller::Cpu)? else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    for folder in groups.folders {
        let text = match groups.version {
            Version::V2 => optional(root, &format!("{folder}/cpu.max"))?,
            Version::V1 => {
                let quota = optional(root, &format!("{folder}/cpu.cfs_quota_us"))?;
                let period = optional(root, &format!("{folder}/cpu.cfs_period_us"))?;
                quota
                    .zip(period)
                    .map(|(quota, period)| format!("{} {}", quota.trim(), period.trim()))
            }
        };
        let Some(text) = text else { continue };
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["max" | "-1", _] => {}
            [quota, period] => match (whole(quota), whole(period)) {
                (Some(quota), Some(period)) if period > 0 => out.push(CpuQuota {
                    folder,
                    quota,
                    period,
                    version: groups.version,
                }),
                _ => return Err(ReadError::content(&folder, "a CPU quota and period", &text)),
            },
            _ => return Err(ReadError::content(&folder, "a CPU quota and period", &text)),
        }
    }
    Ok(out)
}

/// Event counters of the groups of a process, summed over the way up: `pids.events.max`,
/// `cpu.stat.nr_throttled`, `cpu.stat.throttled_usec`, `memory.events.oom_kill`. What cannot be read is
/// left out.
pub fn counters(root: &Root, who: Who) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    let mut add = |name: &str, value: u64| {
        let sum: &mut u64 = out.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(value);
    };
    for controller in [Controller::Cpu, Controller::Memory, Controller::Pids] {
        let Ok(Some(groups)) = groups(root, who, controller) else {
            continue;
        };
        // Version 2 adds the events of the groups below, so the own group is enough there except for
        // refused forks, which count at the group that refused.
        for folder in &groups.folders {
            let file = match (controller, groups.version) {
                (Controller::Cpu, _) => "cpu.stat",
                (Controller::Memory, Version::V1) => "memory.oom_control",
                (Controller::Memory, Version::V2) => "memory.events",
                (Controller::Pids, _) => "pids.events",
            };
            let Ok(Some(text)) = optional(root, &format!("{folder}/{file}")) else {
                continue;
            };
            for line in text.lines() {
                let Some((key, value)) = line.split_once(' ') else {
                    continue;
                };
                let Some(value) = whole(value.trim()) else {
                    continue;
                };
                match (controller, key) {
                    (Controller::Cpu, "nr_throttled") => add("cpu.stat.nr_throttled", value),
                    (Controller::Cpu, "throttled_usec") => add("cpu.stat.throttled_usec", value),
                    // Version 1 counts nanoseconds under another name.
                    (Controller::Cpu, "throttled_time") => add("cpu.stat.throttled_usec", value / 1000),
                    (Controller::Memory, "oom_kill") => add("memory.events.oom_kill", value),
                    (Controller::Pids, "max") => add("pids.events.max", value),
                    _ => {}
                }
            }
        }
    }
    out
}

/// The text of a file that need not be there.
fn optional(root: &Root, name: &str) -> Result<Option<String>, ReadError> {
    match root.read(name).map_err(ReadError::from) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.is_absent() => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    const V2_MOUNT: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";
    const V1_MOUNT: &str = "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

    #[test]
    fn version_2_limits_bind_on_every_level() {
        let tree = Tree::new()
            .with("proc/self/cgroup", "0::/a/b\n")
            .with("proc/self/mountinfo", V2_MOUNT)
            .with("sys/fs/cgroup/a/b/cgroup.controllers", "cpu pids\n")
            .with("sys/fs/cgroup/a/b/pids.max", "max\n")
            .with("sys/fs/cgroup/a/b/pids.current", "3\n")
            .with("sys/fs/cgroup/a/pids.max", "20\n")
            .with("sys/fs/cgroup/a/pids.current", "18\n")
            .with("sys/fs/cgroup/a/pids.events", "max 2\n")
            .with("sys/fs/cgroup/a/b/cpu.max", "20000 100000\n")
            .with("sys/fs/cgroup/a/cpu.max", "max 100000\n");
        let levels = pids(&tree.root(), Who::Me).unwrap();
        assert_eq!(levels.len(), 2);
        assert_eq!((levels[1].max, levels[1].current), (Some(20), Some(18)));
        assert_eq!(cpu_quotas(&tree.root(), Who::Me).unwrap().len(), 1);
        assert_eq!(counters(&tree.root(), Who::Me)["pids.events.max"], 2);
    }

    #[test]
    fn version_1_has_a_tree_per_controller() {
        let tree = Tree::new()
            .with("proc/self/cgroup", "8:pids:/docker/x\n1:cpu,cpuacct:/\n0::/\n")
            .with(
                "proc/self/mountinfo",
                "39 31 0:36 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
            )
            .with("sys/fs/cgroup/pids/notify_on_release", "0\n")
            .with("sys/fs/cgroup/pids/pids.max", "100\n")
            .with("sys/fs/cgroup/pids/pids.current", "7\n");
        let levels = pids(&tree.root(), Who::Me).unwrap();
        assert_eq!(
            (levels.len(), levels[0].max, levels[0].current),
            (1, Some(100), Some(7))
        );
        assert!(cpu_quotas(&tree.root(), Who::Me).unwrap().is_empty());
    }

    #[test]
    fn the_topmost_group_has_no_limit_files() {
        let tree = Tree::new()
            .with("proc/self/cgroup", "8:pids:/\n")
            .with("proc/self/mountinfo", V1_MOUNT);
        assert!(
            pids(&tree.root(), Who::Me).is_err(),
            "a folder that is not there is no absence of limits"
        );
        let tree = tree.with("sys/fs/cgroup/pids/notify_on_release", "0\n");
        assert!(pids(&tree.root(), Who::Me).unwrap().is_empty());
    }

    #[test]
    fn hostile_groups_are_errors() {
        let tree = Tree::new().with("proc/self/mountinfo", V2_MOUNT);
        let tree = tree.with("proc/self/cgroup", "0::/../../etc\n");
        assert!(pids(&tree.root(), Who::Me).is_err());
        let tree = tree.with("proc/self/cgroup", "nonsense\n");
        assert!(pids(&tree.root(), Who::Me).is_err());
        let unseen = Tree::new()
            .with("proc/self/cgroup", "0::/a\n")
            .with("proc/self/mountinfo", "\n");
        assert!(pids(&unseen.root(), Who::Me).is_err());
        let tree = tree
            .with("proc/self/cgroup", "0::/a\n")
            .with("sys/fs/cgroup/a/cgroup.controllers", "pids\n")
            .with("sys/fs/cgroup/a/pids.max", "-3\n")
            .with("sys/fs/cgroup/a/pids.current", "1\n");
        assert!(pids(&tree.root(), Who::Me).is_err());
        let tree = tree.with("sys/fs/cgroup/a/cpu.max", "100 0\n");
        assert!(cpu_quotas(&tree.root(), Who::Me).is_err());
    }
}
