//! Every read of `/proc` and sysfs, from a root that is the live system or a recorded tree.

use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel's files are read: `/` on the live system, a folder with the same layout
/// (`proc/…`, `sys/…`) for a recording.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// The live system.
    pub fn live() -> Root {
        Root {
            path: PathBuf::from("/"),
        }
    }

    /// A recorded tree.
    pub fn recorded(path: impl Into<PathBuf>) -> Root {
        Root { path: path.into() }
    }

    /// Whether this is the live system.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The real path of a kernel file named without a leading slash (`proc/sys/fs/file-max`).
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a kernel file as text, 16 MiB at most.
    ///
    /// # Errors
    /// What opening or reading says, with the path in the message.
    pub fn read(&self, name: &str) -> io::Result<String> {
        use std::io::Read;
        let path = self.path(name);
        let mut text = String::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(16 << 20).read_to_string(&mut text))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(text)
    }
}
