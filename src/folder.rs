//! A private folder, for the sockets and files of a server that systally starts and for the logs of strace:
//! mode 0700, named after its owner, removed when dropped, and swept by a later run when its owner was killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{geteuid, getpid};

use crate::proc::processes::start_time;
use crate::proc::{Root, own};

/// The longest path that fits into a socket address: `sun_path` less its NUL (unix(7)).
pub(crate) const SUN_PATH_MAX: usize = 107;

/// What the name of every private folder begins with; process id and start time of its owner follow.
const PREFIX: &str = "systally-";
/// Locked by the owner for as long as it lives. It tells a live owner in another pid namespace, whose id
/// means nothing here, from a dead one.
const LOCK: &str = "owner.lock";
/// The longest name of a file in the folder, with its slash.
const LONGEST_FILE: usize = "/server.sock".len();
/// A folder without a lock may belong to an owner that is just about to lock it.
const UNLOCKED_AGE: Duration = Duration::from_secs(60);

/// Why there is no private folder.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a private folder in {}: {source}{}", path.display(), other_folder(source))]
pub struct NoFolder {
    /// Where it was tried last.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// Another folder does not help against a limit on open files.
fn other_folder(source: &io::Error) -> &'static str {
    if own::errno_of(source).and_then(own::of).is_some() {
        ""
    } else {
        "; set TMPDIR to a folder that you can write to"
    }
}

/// A private folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Dropping it unlocks; `None` where the file system has no locks.
    lock: Option<Flock<File>>,
}

impl Folder {
    /// Makes one below the temporary folder (`TMPDIR`), or below `/tmp` when that path is too long for a
    /// UNIX socket or holds characters that a configuration file cannot.
    ///
    /// # Errors
    /// The last folder in which none could be made.
    pub(crate) fn create() -> Result<Folder, NoFolder> {
        let mut failure = None;
        for base in bases() {
            match Folder::create_in(&base) {
                Ok(folder) => return Ok(folder),
                Err(source) => failure = Some(NoFolder { path: base, source }),
            }
        }
        Err(failure.unwrap_or_else(|| NoFolder {
            path: std::env::temp_dir(),
            source: io::Error::from(io::ErrorKind::InvalidFilename),
        }))
    }

    fn create_in(base: &Path) -> io::Result<Folder> {
        let pid = getpid();
        let start = start_time(&Root::live(), pid.as_raw()).unwrap_or(0);
        // The last part only tells several servers of one owner apart; a folder that is there already,
        // whoever made it, is never used.
        for number in 0..1000 {
            let path = base.join(format!("{PREFIX}{pid}-{start}-{number}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let file = File::create_new(path.join(LOCK)).inspect_err(|_| {
                        let _ = fs::remove_dir(&path);
                    })?;
                    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok();
                    return Ok(Folder { path, lock });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Its path; valid UTF-8 without quotes, backslashes and control characters.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it, as text.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Looking into a folder takes a descriptor, and under a tiny limit that of the lock may be the last. A
        // folder whose owner lives is not swept, locked or not.
        drop(self.lock.take());
        // What cannot be removed now is swept by a later run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folders in which a private folder can stand, best first.
fn bases() -> Vec<PathBuf> {
    let mut bases = vec![std::env::temp_dir(), PathBuf::from("/tmp")];
    bases.dedup();
    bases.retain(|base| usable(base));
    bases
}

fn usable(base: &Path) -> bool {
    // Process id and start time have at most 7 and 20 digits, the number 3.
    let longest = PREFIX.len() + "/--".len() + 7 + 20 + 3 + LONGEST_FILE;
    base.is_absolute()
        && base.to_str().is_some_and(|text| {
            text.len() + longest <= SUN_PATH_MAX
                && !text
                    .chars()
                    .any(|c| c.is_control() || matches!(c, '"' | '\'' | '\\'))
        })
}

/// Removes the folders of owners that were killed, this user's only. Whatever cannot be judged or removed
/// stays.
pub(crate) fn sweep() {
    for base in bases() {
        sweep_in(&base);
    }
}

fn sweep_in(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        if let Some(owner) = name.to_str().and_then(Owner::parse)
            && !owner.is_alive(&Root::live())
            && is_abandoned(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a folder is this user's and nobody holds its lock.
fn is_abandoned(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return false;
    };
    if !meta.is_dir() || meta.uid() != geteuid().as_raw() || meta.permissions().mode() & 0o077 != 0 {
        return false;
    }
    match File::open(path.join(LOCK)) {
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
        Err(_) => meta
            .modified()
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNLOCKED_AGE)),
    }
}

/// The owner as a folder's name tells it.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: i32,
    start: u64,
}

impl Owner {
    fn parse(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let owner = Owner {
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
        };
        let number: Option<u32> = parts.next()?.parse().ok();
        (number.is_some() && parts.next().is_none() && owner.pid > 0).then_some(owner)
    }

    /// Whether the process that made the folder lives: the same id, started at the same moment.
    fn is_alive(&self, root: &Root) -> bool {
        start_time(root, self.pid) == Some(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_owner() {
        let folder = Folder::create().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let owner = Owner::parse(&name).unwrap();
        assert_eq!(owner.pid, getpid().as_raw());
        assert!(owner.is_alive(&Root::live()));
        assert_eq!(
            fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(folder.file("server.sock").len() <= SUN_PATH_MAX);
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
        for other in [
            "systally-",
            "systally-1",
            "systally-1-2",
            "systally-x-2-3",
            "systally-1-2-3-4",
            "x-1-2-3",
        ] {
            assert_eq!(Owner::parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_folders_of_dead_owners_are_swept() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = base.path().join(name);
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            fs::write(path.join(LOCK), "").unwrap();
            path
        };
        let mine = Folder::create_in(base.path()).unwrap();
        // No process has this start time, so these owners are dead.
        let dead = make("systally-1-18446744073709551615-0");
        let elsewhere = make("systally-1-18446744073709551615-1");
        let held = Flock::lock(File::open(elsewhere.join(LOCK)).unwrap(), FlockArg::LockExclusive).unwrap();
        let fresh = make("systally-1-18446744073709551615-2");
        fs::remove_file(fresh.join(LOCK)).unwrap();
        let open = make("systally-1-18446744073709551615-3");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let other = make("systally-notes");
        std::os::unix::fs::symlink(&other, base.path().join("systally-1-18446744073709551615-4")).unwrap();
        sweep_in(base.path());
        assert!(!dead.exists());
        for kept in [mine.path(), &elsewhere, &fresh, &open, &other] {
            assert!(kept.exists(), "{}", kept.display());
        }
        drop(held);
        sweep_in(base.path());
        assert!(!elsewhere.exists());
    }

    #[test]
    fn a_base_must_be_short_and_plain() {
        assert!(usable(Path::new("/tmp")));
        assert!(usable(Path::new("/var/folders of/x")));
        for bad in ["tmp", "/a\"b", "/a\nb", "/a\\b"] {
            assert!(!usable(Path::new(bad)), "{bad}");
        }
        assert!(!usable(Path::new(&format!("/{}", "x".repeat(80)))));
    }
}
