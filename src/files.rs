//! Writing a result so that a reader finds the old file or the new one, never half of one.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::units::escape;

/// How long a named pipe may be without a reader when it is to be written to.
const READER_PATIENCE: Duration = Duration::from_secs(3);
/// How often to look whether a reader has come.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much of a path is shown: all of any sensible one, and what went wrong with the others stays in sight.
const SHOWN: usize = 1_000;
/// The longest name whose temporary file can still be told by it; a name has 255 bytes at most.
const LONGEST_PREFIX: usize = 200;

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
    let mut prefix = OsString::from(".");
    match target.file_name() {
        Some(name) if name.len() <= LONGEST_PREFIX => prefix.push(name),
        Some(_) | None => prefix.push("systally"),
    }
    let mut temporary = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".new")
        // Less the umask: what any program gives a new file. Temporary files are private otherwise.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder(&target))
        .map_err(|e| unnamed(&e))?;
    if let Some(existing) = existing {
        temporary.as_file().set_permissions(existing.permissions())?;
    }
    write(temporary.as_file_mut())?;
    temporary.persist(&target).map_err(|e| e.error)?;
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
