//! Where the scripts are.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

/// The list of clients in a folder of scripts.
pub(in crate::strategy) const LIST: &str = "clients.toml";

/// Pairs each name with the text of that file in the folder of scripts.
macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../tracing-scripts/", $name)))),*]
    };
}

/// The scripts as they were when systally was built: the last resort, so that the program alone is
/// enough. A test holds this list against the folder.
const BUILT_IN: &[(&str, &str)] = built_in![
    "clients.toml",
    "c/hiredis.c",
    "c/run",
    "c/systally.c",
    "c/systally.h",
    "node/ioredis.js",
    "node/node-redis.js",
    "node/package-lock.json",
    "node/package.json",
    "node/systally.js",
    "php/apcu.php",
    "php/detect.php",
    "php/forked_connections.php",
    "php/hiredis_ffi.php",
    "php/memcache.php",
    "php/memcached.php",
    "php/noop.php",
    "php/phpredis.php",
    "php/predis.php",
    "php/redis.php",
    "php/spec.php",
    "php/store.php",
    "php/systally.php",
    "php/tmpfile.php",
    "programs/benchmark.py",
    "python/pymemcache_worker.py",
    "python/redis_worker.py",
    "python/requirements.txt",
    "python/run",
    "python/systally.py",
];

/// Where to look for clients.
#[derive(Debug, Clone)]
pub struct ScriptSource {
    /// The systally program, which runs the workers of Rust clients.
    pub executable: PathBuf,
    /// A folder with a `clients.toml` to use for the scripts that come with systally.
    pub scripts: Option<PathBuf>,
    /// A `clients.toml` of the user, added to them.
    pub clients: Option<PathBuf>,
}

/// Why the scripts cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The path of the running program is not known.
    #[error("finding systally's own program to run as a worker: {0}")]
    Executable(io::Error),
    /// A file that should be there cannot be read.
    #[error("reading the list of clients {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What reading said.
        source: io::Error,
    },
    /// The scripts could not be written to a temporary folder.
    #[error("unpacking the client scripts below {}: {source}; SYSTALLY_SCRIPTS can name a folder that holds them", path.display())]
    Unpack {
        /// The folder of temporary files.
        path: PathBuf,
        /// What writing said.
        source: io::Error,
    },
}

impl ScriptSource {
    /// The running program, `SYSTALLY_SCRIPTS`, and the user's file: the one given, else
    /// `SYSTALLY_CLIENTS`.
    ///
    /// # Errors
    /// When the path of the running program is not known.
    pub fn from_env(clients: Option<PathBuf>) -> Result<ScriptSource, SourceError> {
        let variable = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        Ok(ScriptSource {
            executable: std::env::current_exe().map_err(SourceError::Executable)?,
            scripts: variable("SYSTALLY_SCRIPTS"),
            clients: clients.or_else(|| variable("SYSTALLY_CLIENTS")),
        })
    }

    /// The folder of the scripts that come with systally.
    pub(in crate::strategy) fn folder(&self) -> Result<Folder, SourceError> {
        if let Some(path) = &self.scripts {
            return Ok(Folder::at(absolute(path)?));
        }
        match candidates(&self.executable).find(|path| trusted(&path.join(LIST))) {
            Some(path) => Ok(Folder::at(path)),
            None => unpack(),
        }
    }

    /// The user's file, by its absolute path.
    pub(in crate::strategy) fn users_file(&self) -> Result<Option<PathBuf>, SourceError> {
        self.clients.as_deref().map(absolute).transpose()
    }
}

fn absolute(path: &Path) -> Result<PathBuf, SourceError> {
    std::path::absolute(path).map_err(|source| SourceError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads a list of clients, a megabyte at most. Anything but a file is refused: opening a FIFO would wait
/// for a writer.
pub(in crate::strategy) fn read(path: &Path) -> Result<String, SourceError> {
    use io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let mut text = String::new();
    fs::OpenOptions::new()
        .read(true)
        // A FIFO opens at once then, and shows what it is.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .and_then(|file| {
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is not a file"));
            }
            file.take(1 << 20).read_to_string(&mut text)
        })
        .map(|_| text)
        .map_err(|source| SourceError::Read {
            path: path.to_owned(),
            source,
        })
}

/// A folder of scripts.
#[derive(Debug, Clone)]
pub(in crate::strategy) struct Folder {
    pub(super) path: PathBuf,
    pub(super) unpacked: Option<Arc<TempDir>>,
}

impl Folder {
    pub(in crate::strategy) fn at(path: PathBuf) -> Folder {
        Folder { path, unpacked: None }
    }

    pub(in crate::strategy) fn list(&self) -> PathBuf {
        self.path.join(LIST)
    }
}

/// Where the scripts lie beside the program: the checkout whose `target` folder holds it, the folder it lies
/// in, an installation (`bin/systally` and `share/systally`), and the checkout it was built from.
fn candidates(executable: &Path) -> impl Iterator<Item = PathBuf> {
    const FOLDER: &str = "tracing-scripts";
    let checkout = executable
        .ancestors()
        .find(|path| path.file_name().is_some_and(|name| name == "target"))
        .and_then(Path::parent)
        .map(|path| path.join(FOLDER));
    let beside = executable.parent().map(|folder| folder.join(FOLDER));
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let installed = executable
        .parent()
        .and_then(Path::parent)
        .map(|prefix| prefix.join("share/systally").join(FOLDER));
    [checkout, beside, installed, Some(built_from)]
        .into_iter()
        .flatten()
}

/// Whether a list that nobody named may say which programs to run: it must be the user's own or root's,
/// and not for everybody to write. Otherwise whoever can create such a folder could plant commands.
fn trusted(list: &Path) -> bool {
    fs::metadata(list).is_ok_and(|file| {
        let owner = file.uid();
        file.is_file() && (owner == 0 || owner == nix::unistd::geteuid().as_raw()) && file.mode() & 0o002 == 0
    })
}

/// Writes the built-in scripts to a private temporary folder, which goes away with the registry.
fn unpack() -> Result<Folder, SourceError> {
    let failed = |source| SourceError::Unpack {
        path: std::env::temp_dir(),
        source,
    };
    let folder = tempfile::Builder::new()
        .prefix("systally-scripts-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .map_err(failed)?;
    for (name, text) in BUILT_IN {
        let path = folder.path().join(name);
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(failed)?;
        }
        fs::write(path, text).map_err(failed)?;
    }
    Ok(Folder {
        path: folder.path().to_owned(),
        unpacked: Some(Arc::new(folder)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn scripts() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tracing-scripts")
    }

    #[test]
    fn every_script_is_built_in() {
        let mut found = BTreeSet::from([LIST.to_owned()]);
        for folder in fs::read_dir(scripts()).unwrap().map(Result::unwrap) {
            if folder.file_type().unwrap().is_dir() {
                for script in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
                    // Folders hold the modules that setup installed.
                    if !script.file_type().unwrap().is_file() {
                        continue;
                    }
                    found.insert(format!(
                        "{}/{}",
                        folder.file_name().to_str().unwrap(),
                        script.file_name().to_str().unwrap()
                    ));
                }
            }
        }
        let listed: BTreeSet<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, found, "BUILT_IN in {} is not the folder", file!());
    }

    #[test]
    fn unpacked_scripts_are_private_and_go_away() {
        let folder = unpack().unwrap();
        assert_eq!(fs::metadata(&folder.path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(
            fs::read_to_string(folder.path.join("php/noop.php")).unwrap(),
            fs::read_to_string(scripts().join("php/noop.php")).unwrap()
        );
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn the_checkout_comes_first_then_the_installation() {
        let found: Vec<PathBuf> =
            candidates(Path::new("/home/u/systally/target/debug/deps/systally")).collect();
        assert_eq!(found[0], Path::new("/home/u/systally/tracing-scripts"));
        let found: Vec<PathBuf> = candidates(Path::new("/usr/local/bin/systally")).collect();
        assert_eq!(
            found,
            [
                PathBuf::from("/usr/local/bin/tracing-scripts"),
                PathBuf::from("/usr/local/share/systally/tracing-scripts"),
                scripts(),
            ]
        );
    }

    #[test]
    fn a_list_that_others_can_write_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join(LIST);
        assert!(!trusted(&list));
        fs::write(&list, "").unwrap();
        fs::set_permissions(&list, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(trusted(&list));
        fs::set_permissions(&list, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!trusted(&list));
    }
}
