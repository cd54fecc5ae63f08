//! What `/proc/PID` says of one process.

use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;

use super::sysctl::whole;
use super::{ReadError, Root};
use crate::units::Nanos;

/// Whose `/proc` folder is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// This process.
    Me,
    /// A process by its id.
    Pid(i32),
}

impl Who {
    /// The path of one of its files.
    pub fn file(self, name: &str) -> String {
        match self {
            Who::Me => format!("proc/self/{name}"),
            Who::Pid(pid) => format!("proc/{pid}/{name}"),
        }
    }
}

/// A limit of a process, soft and hard; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// What is enforced.
    pub soft: Option<u64>,
    /// Up to where the process may raise it itself.
    pub hard: Option<u64>,
}

/// The rows of `/proc/PID/limits` that are read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// RLIMIT_NOFILE.
    OpenFiles,
    /// RLIMIT_NPROC.
    Processes,
}

impl Resource {
    /// How the row begins.
    fn row(self) -> &'static str {
        match self {
            Resource::OpenFiles => "Max open files",
            Resource::Processes => "Max processes",
        }
    }
}

/// Reads one limit of a process. A file in which other rows are missing or unknown is fine.
///
/// # Errors
/// An unreadable file, a missing row, or a row without two limits.
pub fn rlimit(root: &Root, who: Who, resource: Resource) -> Result<Rlimit, ReadError> {
    let path = who.file("limits");
    let text = root.read(&path)?;
    let row = text
        .lines()
        .find_map(|line| line.strip_prefix(resource.row()))
        .ok_or_else(|| ReadError::content(&path, resource.row(), &text))?;
    let mut words = row.split_whitespace();
    let mut limit = || match words.next() {
        Some("unlimited") => Ok(None),
        Some(word) => whole(word)
            .map(Some)
            .ok_or_else(|| ReadError::content(&path, "a limit", row)),
        None => Err(ReadError::content(&path, "a soft and a hard limit", row)),
    };
    Ok(Rlimit {
        soft: limit()?,
        hard: limit()?,
    })
}

/// CPU time of a process with all its threads, ended ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// In nanoseconds, from the process's CPU clock.
    pub total: Nanos,
    /// Clock ticks in user mode and in the kernel (`utime` and `stime` of `/proc/PID/stat`): a hundredth of
    /// a second each, so good for a ratio only.
    pub ticks: (u64, u64),
}

/// Reads the CPU time of a live process.
///
/// # Errors
/// A process that is gone, or a `stat` file that is odd.
pub fn cpu_time(root: &Root, pid: i32) -> Result<CpuTime, ReadError> {
    let path = format!("proc/{pid}/stat");
    let text = root.read(&path)?;
    // The name in brackets may hold anything, brackets too.
    let after_name = text
        .rfind(')')
        .and_then(|at| text.get(at + 1..))
        .unwrap_or_default();
    let mut fields = after_name.split_whitespace().skip(11).map(whole);
    let (Some(Some(user)), Some(Some(system))) = (fields.next(), fields.next()) else {
        return Err(ReadError::content(&path, "utime and stime", &text));
    };
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).and_then(|clock| clock.now());
    let total = clock.map_err(|_| ReadError::content(&path, "a process that has not ended", &text))?;
    Ok(CpuTime {
        total: Nanos::from(Duration::from(total)),
        ticks: (user, system),
    })
}

/// Context switches of a process with all threads that it has now, voluntary and involuntary.
///
/// # Errors
/// A process that is gone.
pub fn context_switches(root: &Root, pid: i32) -> Result<(u64, u64), ReadError> {
    let tasks = format!("proc/{pid}/task");
    let (mut voluntary, mut involuntary) = (0_u64, 0_u64);
    for task in root.list(&tasks)? {
        // A thread that has ended meanwhile has none to add.
        let Ok(text) = root.read(&format!("{tasks}/{task}/status")) else {
            continue;
        };
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            whole(value.trim_start_matches(':').trim())
        };
        voluntary += number("voluntary_ctxt_switches").unwrap_or(0);
        involuntary += number("nonvoluntary_ctxt_switches").unwrap_or(0);
    }
    Ok((voluntary, involuntary))
}

/// How many descriptors a process has open. A recording keeps the number as `fd.count`.
///
/// # Errors
/// A process that is gone, or belongs to another user.
pub fn open_files(root: &Root, who: Who) -> Result<u64, ReadError> {
    counted(root, &who.file("fd.count"), || {
        let names = root.list(&who.file("fd"))?;
        Ok(names.iter().filter(|name| whole(name).is_some()).count() as u64)
    })
}

/// A number that is counted on the live system and kept in a recording.
fn counted(
    root: &Root,
    kept: &str,
    count: impl FnOnce() -> Result<u64, ReadError>,
) -> Result<u64, ReadError> {
    if root.is_live() && root.kept(kept).is_none() {
        let count = count()?;
        root.keep(kept, &count.to_string());
        return Ok(count);
    }
    let text = root.read(kept)?;
    whole(text.trim()).ok_or_else(|| ReadError::content(kept, "a count", &text))
}

/// The lines of `/proc/PID/status` that are read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The name the kernel has for it.
    pub name: String,
    /// Real user id.
    pub uid: u32,
    /// Effective capabilities as a bit set.
    pub capabilities: u64,
    /// CPUs it may use.
    pub cpus: u64,
    /// Seccomp mode: 0 none, 1 strict, 2 filter; `None` on kernels without it.
    pub seccomp: Option<u64>,
}

/// CAP_SYS_PTRACE (`include/uapi/linux/capability.h`).
pub const CAP_SYS_PTRACE: u32 = 19;
/// CAP_SYS_ADMIN.
pub const CAP_SYS_ADMIN: u32 = 21;
/// CAP_SYS_RESOURCE.
pub const CAP_SYS_RESOURCE: u32 = 24;

impl Status {
    /// Whether it has a capability, by number.
    pub fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

/// Reads `/proc/PID/status`.
///
/// # Errors
/// An unreadable file, or one of the lines missing or odd.
pub fn status(root: &Root, who: Who) -> Result<Status, ReadError> {
    let path = who.file("status");
    let text = root.read(&path)?;
    let line = |name: &'static str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .ok_or_else(|| ReadError::content(&path, name, &text))
    };
    let odd = |what: &'static str, found: &str| ReadError::content(&path, what, found);
    let uid = line("Uid")?;
    let capabilities = line("CapEff")?;
    let cpus = line("Cpus_allowed_list")?;
    Ok(Status {
        name: line("Name")?.to_owned(),
        uid: uid
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| odd("a user id", uid))?,
        capabilities: u64::from_str_radix(capabilities, 16)
            .map_err(|_| odd("a capability set", capabilities))?,
        cpus: count_cpu_list(cpus).ok_or_else(|| odd("a list of CPUs", cpus))?,
        seccomp: line("Seccomp").ok().and_then(whole),
    })
}

/// The length of a list like `0-3,8,10-11`.
fn count_cpu_list(list: &str) -> Option<u64> {
    let mut count = 0_u64;
    for item in list.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (whole(first)?, whole(last)?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Memory that a process has of its own, in bytes: what one more of its like would take. Pages of files
/// are not in it, though they may be this process's alone at the moment: the next one shares them.
///
/// # Errors
/// An unreadable file (another user's process, a kernel before 4.14), or one without these lines.
pub fn private_memory(root: &Root, who: Who) -> Result<u64, ReadError> {
    let path = who.file("smaps_rollup");
    let text = root.read(&path)?;
    let line = |name: &'static str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| whole(rest.trim().strip_suffix("kB")?.trim_end())?.checked_mul(1024))
            .ok_or_else(|| ReadError::content(&path, name, &text))
    };
    line("Private_Dirty")
}

/// Whether a process still runs: it exists and is not a zombie.
///
/// # Errors
/// `stat` unreadable for another reason than that the process is gone.
pub fn is_alive(root: &Root, pid: i32) -> Result<bool, ReadError> {
    let path = Who::Pid(pid).file("stat");
    match root.read(&path).map_err(ReadError::from) {
        // The command name may hold anything, so the state is what follows the last parenthesis.
        Ok(text) => match text
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next())
        {
            Some(state) => Ok(!matches!(state, 'Z' | 'X' | 'x')),
            None => Err(ReadError::content(&path, "a process state", &text)),
        },
        Err(e) if e.is_absent() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether a process shares the network namespace of this one.
///
/// # Errors
/// The link of another user's process is denied; then nobody can say.
pub fn same_netns(root: &Root, pid: i32) -> Result<bool, ReadError> {
    Ok(root.link(&Who::Me.file("ns/net"))? == root.link(&Who::Pid(pid).file("ns/net"))?)
}

/// Whether this process is in the machine's first user namespace, so that its capabilities and its being
/// user 0 mean what they say. A kernel without such namespaces has no link, and only the first.
///
/// # Errors
/// A link that cannot be read, or is none of a user namespace.
pub fn in_first_user_namespace(root: &Root) -> Result<bool, ReadError> {
    /// `USER_NS_INIT_INO`, the same on every machine (`include/uapi/linux/nsfs.h`).
    const FIRST: &str = "4026531837";
    let path = Who::Me.file("ns/user");
    let link = match root.link(&path).map_err(ReadError::from) {
        Ok(link) => link,
        Err(e) if e.is_absent() => return Ok(true),
        Err(e) => return Err(e),
    };
    let inode = link
        .strip_prefix("user:[")
        .and_then(|rest| rest.strip_suffix(']'));
    match inode.filter(|inode| whole(inode).is_some()) {
        Some(inode) => Ok(inode == FIRST),
        None => Err(ReadError::content(&path, "a user namespace", &link)),
    }
}

/// How many tasks (threads included) a user has, as far as `/proc` shows them.
///
/// # Errors
/// `/proc` itself unreadable; in a recording, a missing `proc/uid_tasks`.
pub fn tasks_of_user(root: &Root, uid: u32) -> Result<u64, ReadError> {
    counted(root, "systally/uid_tasks", || {
        let mut tasks = 0_u64;
        for name in root.list("proc")?.iter().filter(|name| whole(name).is_some()) {
            // Processes end while the list is read; those no longer count.
            let Ok(text) = std::fs::read_to_string(root.path(&format!("proc/{name}/status"))) else {
                continue;
            };
            let field = |key: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
                    .and_then(whole)
            };
            if field("Uid:") == Some(u64::from(uid)) {
                tasks += field("Threads:").unwrap_or(1);
            }
        }
        Ok(tasks)
    })
}

/// The process that holds a socket, by its inode, as far as this user may look.
///
/// # Errors
/// Nobody who can be seen from here holds it: another user, another pid namespace.
pub fn owner_of_socket(root: &Root, inode: u32) -> Result<i32, ReadError> {
    let kept = format!("systally/socket_owner/{inode}");
    let pid = counted(root, &kept, || {
        let wanted = format!("socket:[{inode}]");
        for pid in root.list("proc")?.iter().filter(|name| whole(name).is_some()) {
            let Ok(names) = root.list(&format!("proc/{pid}/fd")) else {
                continue;
            };
            let holds = |name: &String| {
                std::fs::read_link(root.path(&format!("proc/{pid}/fd/{name}")))
                    .is_ok_and(|target| target.as_os_str() == wanted.as_str())
            };
            if names.iter().any(holds) {
                return Ok(whole(pid).unwrap_or(0));
            }
        }
        Err(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no process that can be seen from here holds the socket: it is another user's, or in another pid \
             namespace",
        )
        .into())
    })?;
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 0)
        .ok_or_else(|| ReadError::content(&kept, "a process id", &pid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn limits_are_read_row_by_row() {
        let root = Tree::defaults();
        let open = rlimit(&root.root(), Who::Me, Resource::OpenFiles).unwrap();
        assert_eq!((open.soft, open.hard), (Some(1024), Some(524_288)));
        let one_row = Tree::new().with("proc/7/limits", "Max open files unlimited 4096 files\n");
        let open = rlimit(&one_row.root(), Who::Pid(7), Resource::OpenFiles).unwrap();
        assert_eq!((open.soft, open.hard), (None, Some(4096)));
        assert!(rlimit(&one_row.root(), Who::Pid(7), Resource::Processes).is_err());
    }

    #[test]
    fn damaged_limits_are_errors() {
        for text in [
            "",
            "\n\n",
            "Max open files",
            "Max open files 1024",
            "Max open files -5 10 files",
            "Max open files 1e9 2 f",
        ] {
            let tree = Tree::new().with("proc/self/limits", text);
            assert!(
                rlimit(&tree.root(), Who::Me, Resource::OpenFiles).is_err(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn this_process_has_a_status() {
        let root = Root::live();
        let status = status(&root, Who::Me).unwrap();
        assert_eq!(status.uid, nix::unistd::getuid().as_raw());
        assert!(status.cpus >= 1);
        assert!(open_files(&root, Who::Me).unwrap() >= 3);
        assert!(same_netns(&root, std::process::id() as i32).unwrap());
        assert!(tasks_of_user(&root, status.uid).unwrap() >= 1);
    }

    #[test]
    fn own_memory_is_what_is_not_shared() {
        let tree = Tree::new().with(
            "proc/self/smaps_rollup",
            "00400000-7ffe [rollup]\nRss: 9000 kB\nShared_Clean: 7000 kB\nPrivate_Clean: 500 kB\nPrivate_Dirty: 1500 kB\n",
        );
        assert_eq!(private_memory(&tree.root(), Who::Me).unwrap(), 1500 << 10);
        for text in [
            "",
            "Private_Clean: 5 kB\n",
            "Private_Clean: 5 kB\nPrivate_Dirty: -1 kB\n",
        ] {
            let tree = Tree::new().with("proc/self/smaps_rollup", text);
            assert!(private_memory(&tree.root(), Who::Me).is_err(), "{text:?}");
        }
        assert!(private_memory(&Root::live(), Who::Me).is_ok_and(|bytes| bytes > 4096));
    }

    #[test]
    fn the_holder_of_a_listener_is_found_and_kept() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = super::super::sockdiag::Address::Tcp(listener.local_addr().unwrap());
        let root = Root::live().snapshot();
        let Ok(listeners) = super::super::sockdiag::listeners(&root) else {
            return println!("SKIP: the kernel does not answer socket queries here");
        };
        let inode = listeners.iter().find(|l| l.address == address).unwrap().inode;
        let me = std::process::id() as i32;
        assert_eq!(owner_of_socket(&root, inode).unwrap(), me);
        let folder = tempfile::tempdir().unwrap();
        root.save(folder.path()).unwrap();
        let recorded = Root::recorded(folder.path());
        assert_eq!(owner_of_socket(&recorded, inode).unwrap(), me);
        assert!(owner_of_socket(&recorded, 1).is_err());
    }

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_cpu_list("0-3,8,10-11"), Some(7));
        for odd in ["", "3-1", "a", "0-18446744073709551615,1", "1-"] {
            assert_eq!(count_cpu_list(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_zombie_and_a_missing_process_are_not_alive() {
        let tree = Tree::new()
            .with("proc/5/stat", "5 (a) Z) Z 1 5 5")
            .with("proc/6/stat", "6 (redis-server) S 1 6 6")
            .with("proc/7/stat", "7 no state");
        assert!(!is_alive(&tree.root(), 5).unwrap());
        assert!(is_alive(&tree.root(), 6).unwrap());
        assert!(is_alive(&tree.root(), 7).is_err());
        assert!(!is_alive(&tree.root(), 8).unwrap());
    }
}
