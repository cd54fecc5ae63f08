//! Where kernel files are read, and the recorder that keeps what was read.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Files larger than this are read up to here: `/proc/net/tcp` with 100,000 sockets has 15 MB.
const READ_LIMIT: u64 = 32 << 20;

/// Where the kernel's files are read: `/` on the live system, a folder with the same layout
/// (`proc/…`, `sys/…`) for a recording.
///
/// In a recording a symbolic link of the kernel (`proc/self/ns/net`, `proc/1/fd/3`) is a plain file that
/// holds the link's target, and the folder `systally/` holds what was learnt without a file: the answers
/// of the kernel's socket query and of the server.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    recorder: Option<Recorder>,
}

/// What was read so far, by name below the root.
type Recorder = Arc<Mutex<BTreeMap<String, String>>>;

impl Root {
    /// The live system.
    pub fn live() -> Root {
        Root {
            path: PathBuf::from("/"),
            recorder: None,
        }
    }

    /// A recorded tree.
    pub fn recorded(path: impl Into<PathBuf>) -> Root {
        Root {
            path: path.into(),
            recorder: None,
        }
    }

    /// The same root, keeping a copy of everything that is read from now on, for [`Root::save`].
    pub fn recording(mut self) -> Root {
        self.recorder = Some(Recorder::default());
        self
    }

    /// Whether this is the live system.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The real path of a kernel file named without a leading slash (`proc/sys/fs/file-max`).
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name.trim_start_matches('/'))
    }

    /// Reads a kernel file as text, 32 MiB at most.
    ///
    /// # Errors
    /// What opening or reading says, with the path in the message; content that is not UTF-8.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let path = self.path(name);
        let mut text = String::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(READ_LIMIT).read_to_string(&mut text))
            .map_err(|e| at(&path, &e))?;
        self.keep(name, &text);
        Ok(text)
    }

    /// Reads what a kernel link points to (`proc/self/ns/net` → `net:[4026531840]`).
    ///
    /// # Errors
    /// What readlink says, with the path in the message.
    pub fn link(&self, name: &str) -> io::Result<String> {
        if !self.is_live() {
            return self.read(name).map(|target| target.trim_end().to_owned());
        }
        let path = self.path(name);
        let target = std::fs::read_link(&path)
            .map_err(|e| at(&path, &e))?
            .to_string_lossy()
            .into_owned();
        // Descriptors lead to files whose names are nobody's business; what counts is which are sockets.
        let is_private = name.contains("/fd/") && !target.starts_with("socket:");
        self.keep(name, if is_private { "other" } else { &target });
        Ok(target)
    }

    /// The names in a folder of the kernel, in no particular order.
    ///
    /// # Errors
    /// What opening or reading says, with the path in the message.
    pub fn list(&self, name: &str) -> io::Result<Vec<String>> {
        let path = self.path(name);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(|e| at(&path, &e))? {
            names.push(
                entry
                    .map_err(|e| at(&path, &e))?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        Ok(names)
    }

    /// Puts text that was learnt in another way (`systally/sock_diag`) into the recording.
    pub fn keep(&self, name: &str, text: &str) {
        if let Some(recorder) = &self.recorder {
            recorder
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name.trim_start_matches('/').to_owned(), text.to_owned());
        }
    }

    /// Writes everything read since [`Root::recording`] below `folder`, which is made if needed.
    ///
    /// # Errors
    /// What making the folder or writing says, with the path in the message.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let Some(recorder) = &self.recorder else {
            return Ok(());
        };
        for (name, text) in recorder.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A name with `..` could only come from a hostile cgroup path; it must not leave the folder.
            if Path::new(name)
                .components()
                .any(|part| !matches!(part, std::path::Component::Normal(_)))
            {
                continue;
            }
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(|e| at(parent, &e))?;
            }
            std::fs::write(&path, text).map_err(|e| at(&path, &e))?;
        }
        Ok(())
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_path() {
        let error = Root::live().read("proc/no-such-file").unwrap_err();
        assert!(error.to_string().starts_with("/proc/no-such-file: "), "{error}");
    }

    #[test]
    fn a_recording_reads_like_the_live_system() {
        let live = Root::live().recording();
        let file_max = live.read("proc/sys/fs/file-max").unwrap();
        let netns = live.link("proc/self/ns/net").unwrap();
        let folder = tempfile::tempdir().unwrap();
        live.save(folder.path()).unwrap();
        let recorded = Root::recorded(folder.path());
        assert!(!recorded.is_live());
        assert_eq!(recorded.read("proc/sys/fs/file-max").unwrap(), file_max);
        assert_eq!(recorded.link("proc/self/ns/net").unwrap(), netns);
        assert!(
            recorded.read("proc/sys/fs/nr_open").is_err(),
            "only what was read is there"
        );
    }

    #[test]
    fn a_hostile_name_stays_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let root = Root::recorded(folder.path()).recording();
        root.keep("../escaped", "x");
        root.keep("fine", "y");
        root.save(&inner).unwrap();
        assert!(inner.join("fine").exists());
        assert!(!folder.path().join("escaped").exists());
    }
}
