//! The numbers of tracepoints. Only root can read them, in tracefs; so a privileged `systally setup`
//! keeps them once in a file that everybody can read, and every use of them is tried first.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::proc::Root;
use crate::sys::perf::private_tracefs;
use crate::tally::Syscall;
use crate::units::escape;

/// Where `systally setup` keeps the numbers.
pub const CACHE: &str = "/var/lib/systally/tracepoints.json";
/// Where tracefs is usually mounted.
const MOUNTS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
/// A cache of a kernel has some 360 numbers; a longer file is none of ours.
const LONGEST: u64 = 4 << 20;

/// Tracepoints that are named after the function in the kernel and not after the call.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("sendfile", "sendfile64"),
    ("stat", "newstat"),
    ("umount2", "umount"),
    ("uname", "newuname"),
];

/// Why the numbers are not known.
#[derive(Debug, thiserror::Error)]
pub enum IdsError {
    /// tracefs cannot be read and nobody has kept the numbers.
    #[error("the numbers of the kernel's tracepoints are not known: {0}")]
    Unknown(String),
    /// They were kept under another kernel.
    #[error("{path} was written under another kernel than {kernel}")]
    OtherKernel {
        /// The file.
        path: String,
        /// The running kernel.
        kernel: String,
    },
    /// tracefs may not be read.
    #[error("tracefs cannot be read: {0}")]
    Tracefs(#[source] Errno),
    /// The file cannot be written.
    #[error("{path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// What was said.
        source: io::Error,
    },
}

/// The kept numbers of all kernels that `setup` was run under.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    /// By kernel, then by name of the call: the tracepoint at its return.
    kernels: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A source of numbers.
#[derive(Debug)]
pub(super) struct Ids {
    found: Found,
}

#[derive(Debug)]
enum Found {
    /// Files of a mounted tracefs.
    Tracefs(PathBuf),
    /// Kept by `setup`.
    Kept(BTreeMap<String, u64>),
}

impl Ids {
    /// From tracefs where it can be read, else from the cache.
    ///
    /// # Errors
    /// When neither knows them, with what would help.
    pub(super) fn find(root: &Root, cache: &Path) -> Result<Ids, IdsError> {
        let mut why = "tracefs is not mounted (mount -t tracefs none /sys/kernel/tracing)";
        for mount in MOUNTS {
            let folder = root.path(mount);
            match std::fs::read_to_string(event_file(&folder, "read")) {
                Ok(_) => {
                    return Ok(Ids {
                        found: Found::Tracefs(folder),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    why = "tracefs is for root only";
                }
                Err(_) => {}
            }
        }
        let kernel = kernel(root);
        let kept = read_cache(cache)
            .map_err(|error| IdsError::Unknown(format!("{why}, and {}: {error}", cache.display())))?;
        match kept.kernels.into_iter().find(|(name, _)| *name == kernel) {
            Some((_, numbers)) => Ok(Ids {
                found: Found::Kept(numbers),
            }),
            None => Err(IdsError::OtherKernel {
                path: cache.display().to_string(),
                kernel: escape(&kernel, 200),
            }),
        }
    }

    /// The number of the tracepoint at the return of a native call; `None` when it has none.
    pub(super) fn of(&self, call: Syscall) -> Option<u64> {
        let name = call.bare_name()?;
        match &self.found {
            Found::Tracefs(folder) => read_id(folder, name),
            Found::Kept(numbers) => numbers.get(name).copied(),
        }
    }

    /// Whether the numbers are the running kernel's own, read now.
    pub(super) fn are_live(&self) -> bool {
        matches!(self.found, Found::Tracefs(_))
    }
}

/// Reads the numbers of all native calls and keeps them for everybody. Returns how many there are.
///
/// # Errors
/// When tracefs may not be read or the file may not be written: both take root.
pub fn keep(root: &Root, cache: &Path) -> Result<usize, IdsError> {
    // What is mounted may belong to a container's view; a mount of our own is seen by nobody else.
    let (_mount, folder) = match private_tracefs() {
        Ok(mount) => {
            let folder = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
            (Some(mount), folder)
        }
        Err(errno) => {
            let mounted = MOUNTS.map(|mount| root.path(mount));
            let readable = mounted
                .into_iter()
                .find(|folder| read_id(folder, "read").is_some());
            (None, readable.ok_or(IdsError::Tracefs(errno))?)
        }
    };
    let numbers: BTreeMap<String, u64> = (0..1024)
        .filter_map(|number| Syscall::native(number).bare_name())
        .filter_map(|name| Some((name.to_owned(), read_id(&folder, name)?)))
        .collect();
    if numbers.is_empty() {
        return Err(IdsError::Unknown(
            "this kernel has no system call tracepoints (CONFIG_FTRACE_SYSCALLS)".to_owned(),
        ));
    }
    let count = numbers.len();
    // Numbers of other kernels stay: a machine may boot one or the other.
    let mut kept = read_cache(cache).unwrap_or_default();
    kept.kernels.insert(kernel(root), numbers);
    write_cache(cache, &kept).map_err(|source| IdsError::Write {
        path: cache.display().to_string(),
        source,
    })?;
    Ok(count)
}

/// Which kernel this is: release, build and machine.
fn kernel(root: &Root) -> String {
    let part = |name: &str| {
        root.read(&format!("proc/sys/kernel/{name}"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    format!(
        "{} {} {}",
        part("osrelease"),
        part("version"),
        std::env::consts::ARCH
    )
}

fn event_file(folder: &Path, name: &str) -> PathBuf {
    let name = OTHER_NAMES
        .iter()
        .find(|(call, _)| *call == name)
        .map_or(name, |(_, other)| other);
    folder.join(format!("events/syscalls/sys_exit_{name}/id"))
}

fn read_id(folder: &Path, name: &str) -> Option<u64> {
    std::fs::read_to_string(event_file(folder, name))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn read_cache(path: &Path) -> io::Result<Cache> {
    use io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(LONGEST)
        .read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

/// Whole or not at all, and readable by all.
fn write_cache(path: &Path, cache: &Cache) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, cache).map_err(io::Error::other)?;
    file.write_all(b"\n")?;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded machine whose tracefs holds one tracepoint.
    fn machine(version: &str, readable: bool) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write("proc/sys/kernel/version", version);
        if readable {
            write("sys/kernel/tracing/events/syscalls/sys_exit_read/id", "77\n");
            write("sys/kernel/tracing/events/syscalls/sys_exit_newfstat/id", "78\n");
        }
        let root = Root::recorded(folder.path());
        (folder, root)
    }

    #[test]
    fn tracefs_comes_before_the_cache() {
        let (folder, root) = machine("#1", true);
        let ids = Ids::find(&root, &folder.path().join("none")).unwrap();
        assert!(ids.are_live());
        assert_eq!(ids.of(Syscall::native(libc::SYS_read)), Some(77));
        assert_eq!(ids.of(Syscall::native(libc::SYS_fstat)), Some(78));
        assert_eq!(ids.of(Syscall::native(libc::SYS_write)), None);
    }

    #[test]
    fn kept_numbers_are_for_the_kernel_they_were_read_under() {
        let (folder, root) = machine("#1", false);
        let cache = folder.path().join("lib/tracepoints.json");
        let why = Ids::find(&root, &cache).unwrap_err().to_string();
        assert!(why.contains("not mounted (mount -t tracefs"), "{why}");
        let mut kept = Cache::default();
        kept.kernels
            .insert(kernel(&root), BTreeMap::from([("read".to_owned(), 5)]));
        write_cache(&cache, &kept).unwrap();
        assert_eq!(
            std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777,
            0o644
        );
        let ids = Ids::find(&root, &cache).unwrap();
        assert!(!ids.are_live());
        assert_eq!(ids.of(Syscall::native(libc::SYS_read)), Some(5));
        let (_other_folder, other) = machine("#2", false);
        assert!(matches!(
            Ids::find(&other, &cache),
            Err(IdsError::OtherKernel { .. })
        ));
    }

    #[test]
    fn a_file_that_is_no_cache_is_an_error() {
        let (folder, root) = machine("#1", false);
        let cache = folder.path().join("cache.json");
        for text in ["", "[]", "{\"kernels\":{\"x\":{\"read\":-1}}}", "{\"other\":1}"] {
            std::fs::write(&cache, text).unwrap();
            assert!(
                matches!(Ids::find(&root, &cache), Err(IdsError::Unknown(_))),
                "{text}"
            );
        }
    }
}
