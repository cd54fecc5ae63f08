//! Writing a record so that a reader finds the old one or the new one, never half of one.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{WireError, to_json};
use crate::record::Record;

/// Writes the record to a file, replacing what was there in one step: a reader meanwhile, and everybody
/// after a full disk or a crash, finds the old record whole.
///
/// A path that exists and is no regular file (a pipe, `/dev/full`) is written to as it is.
///
/// # Errors
/// What writing says, with the path; the old file then stays.
pub fn save(record: &Record, path: &Path) -> Result<(), WireError> {
    let text = to_json(record)?;
    replace(path, |file| file.write_all(text.as_bytes())).map_err(|source| WireError::Io {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

/// Whether a record could be written there now, so that a long run finds out before it begins. What is
/// there stays as it is.
///
/// # Errors
/// What making a file in that folder says, with the path.
pub fn check(path: &Path) -> Result<(), WireError> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let made = match std::fs::metadata(&target) {
        Ok(found) if found.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        // Opening a pipe would wait for its reader.
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) | Err(_) => tempfile::tempfile_in(folder(&target))
            .map(drop)
            .map_err(|e| unnamed(&e)),
    };
    made.map_err(|source| WireError::Io {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    // Through links to the file they lead to: renaming would replace the link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = std::fs::metadata(&target).ok();
    if existing.as_ref().is_some_and(|found| !found.is_file()) {
        return write(&mut File::options().write(true).open(&target)?);
    }
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
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
    fn a_device_is_written_to_and_stays() {
        let error = replace(Path::new("/dev/full"), |file| file.write_all(b"x")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28));
        assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
    }
}
