//! Which processes there are: by name, by descent, by control group.

use std::collections::BTreeMap;

use regex::Regex;

use super::sysctl::whole;
use super::{ReadError, Root};

/// The ids of all processes that can be seen from here, ascending.
pub fn all(root: &Root) -> Vec<i32> {
    let names = root.list("proc").unwrap_or_default();
    let mut pids: Vec<i32> = names.iter().filter_map(|name| number(name)).collect();
    pids.sort_unstable();
    pids
}

fn number(text: &str) -> Option<i32> {
    whole(text)
        .and_then(|pid| i32::try_from(pid).ok())
        .filter(|pid| *pid > 0)
}

/// The process that a process or thread id belongs to; `None` when there is no such thread.
pub fn process_of(root: &Root, tid: i32) -> Option<i32> {
    number(field(&root.read(&format!("proc/{tid}/status")).ok()?, "Tgid:")?)
}

/// What there is of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It runs a program.
    Runs,
    /// It has ended, or all that is left is the status that its parent has not fetched yet.
    Ended,
    /// A thread of the kernel, which makes no system calls.
    Kernel,
}

/// What there is of a process. One whose first thread has ended runs as long as another one does.
pub fn standing(root: &Root, pid: i32) -> Standing {
    let stat = |path: &str| root.read(path).ok().and_then(|text| state_and_flags(&text));
    let Some((state, flags)) = stat(&format!("proc/{pid}/stat")) else {
        return Standing::Ended;
    };
    if flags & PF_KTHREAD != 0 {
        return Standing::Kernel;
    }
    let has_ended = |state: char| matches!(state, 'Z' | 'X' | 'x');
    if !has_ended(state) {
        return Standing::Runs;
    }
    let threads = root.list(&format!("proc/{pid}/task")).unwrap_or_default();
    let runs = threads
        .iter()
        .any(|tid| stat(&format!("proc/{pid}/task/{tid}/stat")).is_some_and(|(state, _)| !has_ended(state)));
    if runs { Standing::Runs } else { Standing::Ended }
}

/// When a process started, in clock ticks since boot: field 22 of `/proc/PID/stat`. With its id it tells a
/// process from every other one of this boot.
pub fn start_time(root: &Root, pid: i32) -> Option<u64> {
    let stat = root.read(&format!("proc/{pid}/stat")).ok()?;
    // The name, the second field, may hold anything, so fields are counted after the last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether a thread is on its way out, or gone: it makes no more system calls then.
pub fn is_ending(root: &Root, pid: i32, tid: i32) -> bool {
    let stat = root.read(&format!("proc/{pid}/task/{tid}/stat")).ok();
    stat.and_then(|text| state_and_flags(&text))
        .is_none_or(|(_, flags)| flags & PF_EXITING != 0)
}

/// Flags of a task, the seventh field after its name (`include/linux/sched.h`, proc(5)).
const PF_EXITING: u64 = 0x0000_0004;
const PF_KTHREAD: u64 = 0x0020_0000;

/// State and flags of a task from its `stat`. The name in parentheses may hold anything, so fields are counted
/// from the last one.
fn state_and_flags(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(5)?.parse().ok()?))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// These processes and all that descend from them, as far as their parents still live.
pub fn with_descendants(root: &Root, of: &[i32]) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in all(root) {
        let status = root.read(&format!("proc/{pid}/status")).unwrap_or_default();
        if let Some(parent) = field(&status, "PPid:").and_then(number) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = of.to_vec();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for child in children.remove(&pid).unwrap_or_default() {
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// The name that the kernel has for a process, which is cut at 15 bytes and may have been set by the
/// process itself; empty when it has ended.
pub fn name(root: &Root, pid: i32) -> String {
    let comm = root.read(&format!("proc/{pid}/comm")).unwrap_or_default();
    comm.trim_end_matches('\n').to_owned()
}

/// A name or a pattern of names as shells have them: `*`, `?`, `[a-z]`.
#[derive(Debug, Clone)]
pub struct NamePattern(Regex);

impl NamePattern {
    /// Reads one; `None` when brackets hold something impossible.
    pub fn new(glob: &str) -> Option<NamePattern> {
        let mut pattern = String::from("(?s)^");
        let mut rest = glob.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' => pattern.push_str(".*"),
                '?' => pattern.push('.'),
                '[' if rest.as_str().contains(']') => {
                    pattern.push('[');
                    for (i, c) in rest.by_ref().enumerate() {
                        match (i, c) {
                            (0, '!') => pattern.push('^'),
                            (_, ']') if i > 0 => break,
                            (_, '\\' | '[' | '&' | '~') => pattern.extend(['\\', c]),
                            _ => pattern.push(c),
                        }
                    }
                    pattern.push(']');
                }
                c => pattern.push_str(&regex::escape(&c.to_string())),
            }
        }
        pattern.push('$');
        Regex::new(&pattern).ok().map(NamePattern)
    }

    /// Whether a process has such a name, or its program's file has.
    pub fn fits(&self, root: &Root, pid: i32) -> bool {
        let file = || {
            let link = root.link(&format!("proc/{pid}/exe")).ok()?;
            let path = link.strip_suffix(" (deleted)").unwrap_or(&link);
            path.rsplit('/').next().map(str::to_owned)
        };
        self.0.is_match(&name(root, pid)) || file().is_some_and(|file| self.0.is_match(&file))
    }
}

/// Whether the name of a control group leads to the root of the hierarchy, or out of it.
pub fn is_root_group(group: &str) -> bool {
    let path = group.trim_matches('/');
    let path = path
        .strip_prefix("sys/fs/cgroup")
        .unwrap_or(path)
        .trim_matches('/');
    let path = path.strip_prefix("unified").unwrap_or(path);
    let mut parts = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .peekable();
    parts.peek().is_none() || parts.any(|part| part == "..")
}

/// The processes in a control group, not those in groups below it. The group is its folder, or the path that
/// `/proc/PID/cgroup` shows for the unified hierarchy.
///
/// # Errors
/// No such group, or one whose processes cannot be listed (a threaded one).
pub fn in_cgroup(root: &Root, group: &str) -> Result<Vec<i32>, ReadError> {
    let group = group.trim_matches('/');
    // Mounted alone, or beside hierarchies of version 1 (cgroups(7)).
    let places = ["", "sys/fs/cgroup/", "sys/fs/cgroup/unified/"];
    let mut first = None;
    for place in places {
        match root.read(&format!("{place}{group}/cgroup.procs")) {
            Ok(text) => return Ok(text.lines().filter_map(number).collect()),
            Err(error) => first = first.or(Some(error)),
        }
    }
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    Err(first.unwrap_or_else(missing).into())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    fn tree() -> Tree {
        let process = |pid: i32, parent: i32| format!("Name:\tx\nTgid:\t{pid}\nPPid:\t{parent}\n");
        Tree::new()
            .with("proc/1/status", process(1, 0))
            .with("proc/10/status", process(10, 1))
            .with("proc/11/status", process(11, 10))
            .with("proc/12/status", process(12, 11))
            .with("proc/13/status", process(13, 1))
            .with("proc/10/comm", "php-fpm8.2\n")
            .with("proc/11/comm", "php-fpm8.2\n")
            .with("proc/12/comm", "MainThread\n")
            .with("proc/12/exe", "/usr/bin/node (deleted)")
            .with("proc/13/comm", "[x]\n")
            .with("sys/fs/cgroup/a/b/cgroup.procs", "10\n13\n")
            .with("sys/fs/cgroup/unified/c/cgroup.procs", "12\n")
    }

    #[test]
    fn descendants_are_found_to_any_depth() {
        let tree = tree();
        assert_eq!(with_descendants(&tree.root(), &[10]), [10, 11, 12]);
        assert_eq!(with_descendants(&tree.root(), &[12, 99]), [12, 99]);
        assert_eq!(with_descendants(&tree.root(), &[11, 10]), [11, 10, 12]);
    }

    #[test]
    fn names_are_those_of_processes_and_of_their_files() {
        let tree = tree();
        let root = tree.root();
        let named = |glob: &str| {
            let pattern = NamePattern::new(glob).unwrap();
            all(&root)
                .into_iter()
                .filter(|pid| pattern.fits(&root, *pid))
                .collect::<Vec<_>>()
        };
        assert_eq!(named("php-fpm*"), [10, 11]);
        assert_eq!(named("php-fpm"), [0; 0]);
        assert_eq!(named("php-fpm8?2"), [10, 11]);
        assert_eq!(named("[a-p]hp-fpm[!7].2"), [10, 11]);
        assert_eq!(named("node"), [12]);
        assert_eq!(named("MainThread"), [12]);
        assert_eq!(named("[[]x[]]"), [13]);
        assert!(NamePattern::new("[z-a]").is_none());
        assert!(NamePattern::new("[x").is_some());
    }

    #[test]
    fn groups_are_named_by_folder_or_by_path() {
        let tree = tree();
        for group in [
            "",
            "/",
            ".",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified/",
            "a/../..",
        ] {
            assert!(is_root_group(group), "{group}");
        }
        assert!(!is_root_group("/a") && !is_root_group("/sys/fs/cgroup/system.slice"));
        for group in ["/a/b", "a/b/", "/sys/fs/cgroup/a/b"] {
            assert_eq!(in_cgroup(&tree.root(), group).unwrap(), [10, 13], "{group}");
        }
        assert_eq!(in_cgroup(&tree.root(), "/c").unwrap(), [12]);
        let said = in_cgroup(&tree.root(), "/a").unwrap_err().to_string();
        assert!(said.contains("a/cgroup.procs"), "{said}");
    }

    #[test]
    fn what_has_ended_and_what_is_the_kernel_s_is_told_apart() {
        let stat = |state: char, flags: u64| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0");
        let tree = Tree::new()
            .with("proc/2/stat", stat('S', 0x0020_8040))
            .with("proc/7/stat", stat('S', 0x40_0000))
            .with("proc/7/task/9/stat", stat('R', 0x40_0004))
            .with("proc/7/task/7/stat", stat('S', 0x40_0000))
            .with("proc/8/stat", stat('Z', 0x40_000c))
            .with("proc/8/task/8/stat", stat('Z', 0x40_000c))
            .with("proc/9/stat", stat('Z', 0x40_000c))
            .with("proc/9/task/9/stat", stat('Z', 0x40_000c))
            .with("proc/9/task/10/stat", stat('S', 0x40_0000));
        let root = tree.root();
        let all = [2, 7, 8, 9, 11].map(|pid| standing(&root, pid));
        let expected = [
            Standing::Kernel,
            Standing::Runs,
            Standing::Ended,
            Standing::Runs,
            Standing::Ended,
        ];
        assert_eq!(all, expected);
        assert_eq!(standing(&Root::live(), std::process::id() as i32), Standing::Runs);
        assert!(!is_ending(&root, 7, 7) && is_ending(&root, 7, 9) && is_ending(&root, 7, 10));
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_start() {
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        let tree = Tree::new().with("proc/5/stat", format!("5 (a) b) c) {}", fields.join(" ")));
        assert_eq!(start_time(&tree.root(), 5), Some(22));
        assert_eq!(start_time(&tree.root(), 6), None);
    }

    #[test]
    fn a_thread_belongs_to_its_process() {
        let root = Root::live();
        let tid = nix::unistd::gettid().as_raw();
        assert_eq!(process_of(&root, tid), Some(std::process::id() as i32));
        assert_eq!(process_of(&root, i32::MAX), None);
        assert!(all(&root).contains(&(std::process::id() as i32)));
    }
}
