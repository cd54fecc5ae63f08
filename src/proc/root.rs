//! Where kernel files are read, and the recorder that keeps what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Files larger than this are read up to here: `/proc/net/tcp` with 100,000 sockets has 15 MB.
const READ_LIMIT: u64 = 32 << 20;

/// Where the kernel's files are read: `/` on the live system, a folder with the same layout
/// (`proc/…`, `sys/…`) for a recording.
///
/// In a recording a symbolic link of the kernel (`proc/self/ns/net`) is a plain file that holds the link's
/// target, and the folder `systally/` holds what was learnt without a file: the answers
/// of the kernel's socket query and of the server.
///
/// Much is decided by a file that is not there (a group without `pids.max` limits nothing). So that a file
/// which got lost on the way does not pass for one that never was, [`Root::save`] lists the latter in
/// `systally/absent`, and ends every file with a line feed. Where a recording has that list, any other file
/// that is not there is an error, and so is one that was cut.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    recorder: Option<Recorder>,
    /// Of a recording, the names that were not there when it was made; `None` when it has no list.
    absent: Option<Arc<BTreeSet<String>>>,
}

/// What was read so far, by name below the root; `None` is a file that was not there.
type Recorder = Arc<Mutex<BTreeMap<String, Option<String>>>>;

/// Where a recording lists what was not there, a name to a line.
const ABSENT: &str = "systally/absent";

impl Root {
    /// The live system.
    pub fn live() -> Root {
        Root {
            path: PathBuf::from("/"),
            recorder: None,
            absent: None,
        }
    }

    /// A recorded tree.
    pub fn recorded(path: impl Into<PathBuf>) -> Root {
        let mut root = Root {
            path: path.into(),
            recorder: None,
            absent: None,
        };
        root.absent = match root.read(ABSENT) {
            Ok(text) => Some(Arc::new(text.lines().map(str::to_owned).collect())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            // One that cannot be read vouches for nothing.
            Err(_) => Some(Arc::default()),
        };
        root
    }

    /// The same root as a snapshot: what is read from now on is kept, a second reading gives the same, and
    /// [`Root::save`] writes it all.
    pub fn snapshot(mut self) -> Root {
        self.recorder = Some(Recorder::default());
        self
    }

    /// This root when it is a snapshot already, else a snapshot of its own: for whoever reads much at once
    /// and wants one consistent picture.
    pub fn at_one_moment(&self) -> Root {
        match &self.recorder {
            Some(_) => self.clone(),
            None => self.clone().snapshot(),
        }
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
        if let Some(text) = self.kept(name) {
            return Ok(text);
        }
        let path = self.path(name);
        let read = || {
            // In a recording from somebody else, a pipe or device would never end, and a link could lead
            // out of it.
            if !self.is_live() && !std::fs::symlink_metadata(&path)?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
            }
            let mut text = String::new();
            let file = std::fs::File::open(&path)?;
            file.take(READ_LIMIT).read_to_string(&mut text)?;
            if self.absent.is_some() && !text.ends_with('\n') {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it was cut"));
            }
            Ok(text)
        };
        match read() {
            Ok(text) => {
                self.keep(name, &text);
                Ok(text)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(at(&path, &self.missing(name, e))),
            Err(e) => Err(at(&path, &e)),
        }
    }

    /// What it means that a file is not there: on the live system, and where the recording says so, just
    /// that.
    fn missing(&self, name: &str, error: io::Error) -> io::Error {
        let name = name.trim_start_matches('/');
        if let Some(absent) = &self.absent
            && !absent.contains(name)
        {
            return io::Error::new(io::ErrorKind::InvalidData, "it is missing from the recording");
        }
        self.keep_absent(name);
        error
    }

    /// Notes in the snapshot that there is nothing by this name.
    pub fn keep_absent(&self, name: &str) {
        if let Some(recorder) = &self.recorder {
            let mut kept = recorder.lock().unwrap_or_else(PoisonError::into_inner);
            kept.entry(name.trim_start_matches('/').to_owned())
                .or_insert(None);
        }
    }

    /// Reads what a kernel link points to (`proc/self/ns/net` → `net:[4026531840]`).
    ///
    /// # Errors
    /// What readlink says, with the path in the message.
    pub fn link(&self, name: &str) -> io::Result<String> {
        if !self.is_live() {
            return self.read(name).map(|target| target.trim_end().to_owned());
        }
        if let Some(target) = self.kept(name) {
            return Ok(target);
        }
        let path = self.path(name);
        match std::fs::read_link(&path) {
            Ok(target) => {
                let target = target.to_string_lossy().into_owned();
                self.keep(name, &target);
                Ok(target)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(at(&path, &self.missing(name, e))),
            Err(e) => Err(at(&path, &e)),
        }
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

    /// What a snapshot holds of a name.
    pub fn kept(&self, name: &str) -> Option<String> {
        let recorder = self.recorder.as_ref()?;
        let kept = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(name.trim_start_matches('/')).cloned().flatten()
    }

    /// Puts text that was learnt in another way (`systally/listeners.json`) into the snapshot.
    pub fn keep(&self, name: &str, text: &str) {
        if let Some(recorder) = &self.recorder {
            recorder
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name.trim_start_matches('/').to_owned(), Some(text.to_owned()));
        }
    }

    /// Whether this user may write to a path, as connecting to a socket needs; kept like any reading.
    ///
    /// # Errors
    /// What access(2) says for any reason but a missing right; in a recording, that it was not kept.
    pub fn may_write(&self, path: &str) -> io::Result<bool> {
        let name = format!("systally/access/{}", path.trim_start_matches('/'));
        if !self.is_live() {
            return match self.read(&name)?.trim_end() {
                "yes" => Ok(true),
                "no" => Ok(false),
                _ => {
                    let what = io::Error::new(io::ErrorKind::InvalidData, "it says neither yes nor no");
                    Err(at(&self.path(&name), &what))
                }
            };
        }
        let answer = match nix::unistd::access(path, nix::unistd::AccessFlags::W_OK) {
            Ok(()) => true,
            Err(nix::errno::Errno::EACCES) => false,
            Err(errno) => return Err(at(Path::new(path), &errno.into())),
        };
        self.keep(&name, if answer { "yes" } else { "no" });
        Ok(answer)
    }

    /// Writes everything read since [`Root::snapshot`] below `folder`, which is made if needed.
    ///
    /// # Errors
    /// What making the folder or writing says, with the path in the message.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let Some(recorder) = &self.recorder else {
            return Ok(());
        };
        let kept = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let absent = kept.iter().filter(|(_, text)| text.is_none());
        let absent: String = absent
            .filter(|(name, _)| !name.contains('\n'))
            .map(|(name, _)| format!("{name}\n"))
            .collect();
        let list = (ABSENT, absent.as_str());
        let there = kept
            .iter()
            .filter_map(|(name, text)| Some((name.as_str(), text.as_deref()?)));
        for (name, text) in there.chain([list]) {
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
            let end = if text.ends_with('\n') { "" } else { "\n" };
            std::fs::write(&path, [text, end].concat()).map_err(|e| at(&path, &e))?;
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
        let live = Root::live().snapshot();
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

    /// A file that is not there may mean "no limit", so one that was lost must not look like it.
    #[test]
    fn a_recording_knows_what_was_not_there() {
        let live = Root::live().snapshot();
        live.read("proc/sys/fs/file-max").unwrap();
        assert!(live.read("proc/no-such-file").is_err());
        assert!(live.link("proc/self/ns/no-such-link").is_err());
        let folder = tempfile::tempdir().unwrap();
        live.save(folder.path()).unwrap();
        let kind = |name| Root::recorded(folder.path()).read(name).unwrap_err().kind();
        assert_eq!(kind("proc/no-such-file"), io::ErrorKind::NotFound);
        assert_eq!(kind("proc/self/ns/no-such-link"), io::ErrorKind::NotFound);
        std::fs::remove_file(folder.path().join("proc/sys/fs/file-max")).unwrap();
        assert_eq!(kind("proc/sys/fs/file-max"), io::ErrorKind::InvalidData);
        std::fs::write(folder.path().join("proc/sys/fs/file-max"), "24").unwrap();
        assert_eq!(kind("proc/sys/fs/file-max"), io::ErrorKind::InvalidData, "cut");
        // A list that cannot be read vouches for nothing; a recording without one is believed.
        std::fs::write(folder.path().join(ABSENT), [0xff]).unwrap();
        assert_eq!(kind("proc/no-such-file"), io::ErrorKind::InvalidData);
        std::fs::remove_file(folder.path().join(ABSENT)).unwrap();
        assert_eq!(kind("proc/no-such-file"), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_would_never_end_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero")).unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let root = Root::recorded(folder.path());
        for name in ["pipe", "zero", "folder"] {
            let error = root.read(name).unwrap_err().to_string();
            assert!(error.contains("no plain file"), "{error}");
        }
    }

    #[test]
    fn a_hostile_name_stays_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let root = Root::recorded(folder.path()).snapshot();
        root.keep("../escaped", "x");
        root.keep("fine", "y");
        root.save(&inner).unwrap();
        assert!(inner.join("fine").exists());
        assert!(!folder.path().join("escaped").exists());
    }
}
