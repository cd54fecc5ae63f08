//! Writing a result so that a reader finds the old file or the new one, never half of one.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tempfile::NamedTempFile;

use crate::units::escape;

/// How long a named pipe may be without a reader when it is to be written to.
const READER_PATIENCE: Duration = Duration::from_secs(3);
/// How often to look whether a reader has come.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much of a path is shown: all of any sensible one, and what went wrong with the others stays in sight.
const SHOWN: usize = 1_000;
/// The longest name whose temporary file can still be told by it; a name has 255 bytes at most.
const LONGEST_PREFIX: usize = 200;
/// What stands in the name of a temporary file between the name that it will have and some random letters.
const MARK: &str = ".systally-";
/// The random letters.
const RANDOM: usize = 6;
/// What it ends with.
const SUFFIX: &str = ".new";

/// The files whose leftovers have been looked for; once is enough for a process that writes one many times.
static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Why a file cannot be written. Displays as operation, path, cause and next step.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}{}", escape(&path.display().to_string(), SHOWN), next_step(source))]
pub struct WriteError {
    /// The file that the user named.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENXIO) => {
            "; nothing reads from this pipe or socket: start the reader of a pipe first, or name a file"
        }
        Some(libc::ENOSPC | libc::EDQUOT) => "; make room there, or choose another place",
        Some(libc::EFBIG) => "; raise the limit of file sizes (ulimit -f), or make the result smaller",
        Some(libc::EPIPE) => "; the program that reads from it has ended too early",
        // The folder or the rights: the words of the system say it all.
        _ => "",
    }
}

/// Writes a file, replacing what was there in one step: a reader meanwhile, and everybody after a full disk
/// or a crash, finds the old file whole.
///
/// A path that exists and is no regular file (a pipe, `/dev/full`) is written to as it is; a pipe without a
/// reader is waited for a moment, and no longer. What `/dev/stdout` and its kin lead to is appended to.
///
/// # Errors
/// What writing says, with the path; the old file then stays.
pub fn write(path: &Path, text: &str) -> Result<(), WriteError> {
    replace(path, |file| file.write_all(text.as_bytes())).map_err(|source| WriteError {
        path: path.to_owned(),
        source,
    })
}

/// Whether a file could be written there now, so that a long run finds out before it begins. What is there
/// stays as it is, and is not opened: a reader of a pipe would take that for the end.
///
/// # Errors
/// What making a file in that folder says, with the path.
pub fn check(path: &Path) -> Result<(), WriteError> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let made = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(found) if found.file_type().is_socket() => Err(io::Error::from_raw_os_error(libc::ENXIO)),
        Ok(_) if !is_replaced(path) => Ok(()),
        // A name that no file can have, a folder that may not be entered.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Ok(_) | Err(_) => tempfile::tempfile_in(folder(&target))
            .map(drop)
            .map_err(|e| unnamed(&e)),
    };
    made.map_err(|source| WriteError {
        path: path.to_owned(),
        source,
    })
}

/// Whether writing there replaces a file or makes one. Anything else (a pipe, a terminal, a descriptor) shows
/// every write to somebody, so only the final result belongs there.
pub fn is_replaced(path: &Path) -> bool {
    // Links there lead to what is open already: renaming would take the name from under it.
    let descriptor = ["/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc"]
        .iter()
        .any(|root| path.starts_with(root));
    match std::fs::metadata(path) {
        Ok(found) => found.is_file() && !descriptor,
        Err(_) => true,
    }
}

fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    if !is_replaced(path) {
        return write(&mut open_special(path)?);
    }
    // Through links to the file they lead to: renaming would replace the link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = std::fs::metadata(&target).ok();
    let folder = folder(&target);
    let prefix = prefix_for(&target);
    let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if swept.insert(target.clone()) {
        sweep(&folder, &prefix);
    }
    drop(swept);
    let (mut temporary, _locked) = temporary(&folder, &prefix).map_err(|e| unnamed(&e))?;
    if let Some(existing) = existing {
        temporary.as_file().set_permissions(existing.permissions())?;
    }
    write(temporary.as_file_mut())?;
    temporary.persist(&target).map_err(|e| e.error)?;
    Ok(())
}

/// How the temporary files of this one begin.
fn prefix_for(target: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    match target.file_name() {
        Some(name) if name.len() <= LONGEST_PREFIX => prefix.push(name),
        Some(_) | None => prefix.push("systally"),
    }
    prefix.push(MARK);
    prefix
}

/// A temporary file, and the lock on it that tells others that its writer lives: the kernel lets go of it in
/// every way that a process can end. `None` where the file system has no locks; then no one sweeps either.
fn temporary(folder: &Path, prefix: &OsStr) -> io::Result<(NamedTempFile, Option<Flock<File>>)> {
    loop {
        let file = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(RANDOM)
            .suffix(SUFFIX)
            // Less the umask: what any program gives a new file. Temporary files are private otherwise.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        match Flock::lock(file.as_file().try_clone()?, FlockArg::LockExclusiveNonblock) {
            // Somebody swept it between the two calls, and it has no name any more.
            Ok(lock) if lock.metadata()?.nlink() == 0 => {}
            Err((_, Errno::EWOULDBLOCK)) => {}
            Ok(lock) => return Ok((file, Some(lock))),
            Err(_) => return Ok((file, None)),
        }
    }
}

/// Removes the temporary files that writers of the same file have left behind when they were killed. What
/// cannot be looked at stays.
fn sweep(folder: &Path, prefix: &OsStr) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if is_temporary(&entry.file_name(), prefix) {
            // Nobody waits for this one, and the next write tries again.
            let _ = remove_if_left(&folder.join(entry.file_name()));
        }
    }
}

/// Whether a name is one that [`temporary`] gives.
fn is_temporary(name: &OsStr, prefix: &OsStr) -> bool {
    name.as_bytes()
        .strip_prefix(prefix.as_bytes())
        .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()))
        .is_some_and(|random| random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric))
}

/// Removes a temporary file of this user that nobody has locked: its writer has ended.
fn remove_if_left(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 || found.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    let Ok(_locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return Ok(());
    };
    // Its writer may have finished meanwhile and given it its name.
    let now = std::fs::symlink_metadata(path)?;
    if (now.dev(), now.ino()) == (found.dev(), found.ino()) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Opens what is no regular file. Without O_NONBLOCK a pipe would wait for its reader for ever.
fn open_special(path: &Path) -> io::Result<File> {
    let deadline = Instant::now() + READER_PATIENCE;
    let file = loop {
        let opened = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path);
        match opened {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) && Instant::now() < deadline => {
                thread::sleep(LOOK_EVERY);
            }
            other => break other?,
        }
    };
    // Only opening must not wait: a slow reader gets all of it.
    let flags = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFL)?;
    let blocking = nix::fcntl::OFlag::from_bits_truncate(flags) - nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETFL(blocking))?;
    Ok(file)
}

/// The error of a temporary file without that file's name, which nobody asked for.
fn unnamed(error: &io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::ENOENT),
        io::ErrorKind::PermissionDenied => io::Error::from_raw_os_error(libc::EACCES),
        io::ErrorKind::NotADirectory => io::Error::from_raw_os_error(libc::ENOTDIR),
        io::ErrorKind::ReadOnlyFilesystem => io::Error::from_raw_os_error(libc::EROFS),
        io::ErrorKind::StorageFull => io::Error::from_raw_os_error(libc::ENOSPC),
        io::ErrorKind::QuotaExceeded => io::Error::from_raw_os_error(libc::EDQUOT),
        other => io::Error::from(other),
    }
}

/// The folder of a file, in a form that can be opened.
fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn names(folder: &Path) -> Vec<OsString> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        std::fs::write(&path, "old").unwrap();
        let full = |file: &mut File| {
            file.write_all(b"half of")?;
            Err(io::Error::from_raw_os_error(28))
        };
        assert!(replace(&path, full).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["run.json"]);
    }

    #[test]
    fn it_replaces_through_a_link_and_keeps_the_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("run.json"), folder.path().join("last.json"));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("run.json", &link).unwrap();
        replace(&link, |file| file.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn what_killed_writers_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name);
        let path = inside("run.json");
        let prefix = prefix_for(&path);
        // A writer that was killed, and one that lives.
        let (dead, lock) = temporary(folder.path(), &prefix).unwrap();
        drop(lock);
        let (_, dead) = dead.keep().unwrap();
        let (live, _lock) = temporary(folder.path(), &prefix).unwrap();
        // What only looks like it.
        let others = [
            ".run.json.systally-abc.new",
            ".run.json.systally-abc-ef.new",
            ".run.json.systally-abcdef.old",
            ".run.jsonabcdef.new",
            ".other.json.systally-abcdef.new",
            "run.json.systally-abcdef.new",
        ];
        for name in others {
            std::fs::write(inside(name), "mine").unwrap();
        }
        std::fs::write(inside("target"), "mine").unwrap();
        std::os::unix::fs::symlink("target", inside(".run.json.systally-aaaaaa.new")).unwrap();
        std::fs::create_dir(inside(".run.json.systally-bbbbbb.new")).unwrap();
        std::fs::hard_link(inside("target"), inside(".run.json.systally-cccccc.new")).unwrap();
        nix::unistd::mkfifo(
            &inside(".run.json.systally-dddddd.new"),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        let before: BTreeSet<OsString> = names(folder.path()).into_iter().collect();
        write(&path, "new").unwrap();
        let after: BTreeSet<OsString> = names(folder.path()).into_iter().collect();
        let gone: Vec<&OsString> = before.difference(&after).collect();
        assert_eq!(gone, [dead.file_name().unwrap()]);
        let came: Vec<&OsString> = after.difference(&before).collect();
        assert_eq!(came, ["run.json"]);
        assert!(live.path().exists());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn writers_of_one_file_do_not_sweep_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = prefix_for(Path::new("run.json"));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    sweep(folder.path(), &prefix);
                }
            });
            for round in 0..500 {
                let (file, _lock) = temporary(folder.path(), &prefix).unwrap();
                file.persist(folder.path().join("run.json"))
                    .unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
            done.store(true, Ordering::Relaxed);
            sweeper.join().unwrap();
        });
        assert_eq!(names(folder.path()), ["run.json"]);
    }

    #[test]
    fn a_place_is_checked_without_touching_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        check(&path).unwrap();
        assert!(names(folder.path()).is_empty());
        std::fs::write(&path, "old").unwrap();
        check(&path).unwrap();
        check(Path::new("/dev/full")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        for bad in [folder.path().to_owned(), folder.path().join("none/run.json")] {
            let said = check(&bad).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("cannot write {}: ", bad.display())),
                "{said}"
            );
            assert!(!said.contains("at path"), "{said}");
        }
    }

    #[test]
    fn names_may_be_as_long_as_the_system_allows() {
        let folder = tempfile::tempdir().unwrap();
        let longest = folder.path().join("x".repeat(255));
        check(&longest).unwrap();
        write(&longest, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&longest).unwrap(), "new");
        for length in [256, 70_000] {
            let said = check(&folder.path().join("x".repeat(length)))
                .unwrap_err()
                .to_string();
            assert!(
                said.ends_with(&format!("(os error {})", libc::ENAMETOOLONG)),
                "{said}"
            );
            assert!(said.len() < 1_200);
        }
    }

    #[test]
    fn only_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("run.json"), folder.path().join("pipe"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(is_replaced(&file), "one that is not there yet");
        std::fs::write(&file, "old").unwrap();
        assert!(is_replaced(&file));
        for other in ["/dev/null", "/dev/stdout", "/proc/self/fd/1"] {
            assert!(!is_replaced(Path::new(other)), "{other}");
        }
        assert!(!is_replaced(&pipe));
        check(&pipe).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        assert!(check(&folder.path().join("s")).is_err());
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_one_with_a_slow_reader_gets_all() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let said = write(&pipe, "x").unwrap_err().to_string();
        assert!(said.contains("nothing reads from this pipe"), "{said}");
        let text = "x".repeat(300_000);
        let reader = {
            let pipe = pipe.clone();
            thread::spawn(move || std::fs::read_to_string(pipe).unwrap())
        };
        write(&pipe, &text).unwrap();
        assert_eq!(reader.join().unwrap(), text);
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        let error = replace(Path::new("/dev/full"), |file| file.write_all(b"x")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28));
        assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
    }
}
