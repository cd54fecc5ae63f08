//! Finding a server program in PATH, as a shell would, and asking it for its version.

use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};

use super::keeper::{Ended, Keeper};
use crate::units::{Measured, escape};

/// Longest wait for `--version`.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// A server program that systally can start for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerProgram {
    /// `redis-server`.
    Redis,
    /// `valkey-server`.
    Valkey,
    /// `memcached`.
    Memcached,
    /// `nutcracker`, which is the program of twemproxy.
    Twemproxy,
}

impl ServerProgram {
    /// Those that serve Redis commands, in the order in which they are tried.
    pub const REDIS: [ServerProgram; 2] = [ServerProgram::Redis, ServerProgram::Valkey];

    /// Name of the program.
    pub fn program(self) -> &'static str {
        match self {
            ServerProgram::Redis => "redis-server",
            ServerProgram::Valkey => "valkey-server",
            ServerProgram::Memcached => "memcached",
            ServerProgram::Twemproxy => "nutcracker",
        }
    }

    /// What to do where it is missing.
    fn advice(self) -> &'static str {
        match self {
            ServerProgram::Redis | ServerProgram::Valkey => {
                "install it, or name a server with -h and -p, -s or -u"
            }
            ServerProgram::Memcached => {
                "install it (sudo apt-get install memcached), or name one with -u memcached://host:port"
            }
            ServerProgram::Twemproxy => "install it (sudo apt-get install nutcracker)",
        }
    }
}

/// A program that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Which one.
    pub program: ServerProgram,
    /// Where.
    pub path: PathBuf,
    /// Its version as `--version` tells it.
    pub version: Measured<String>,
}

/// No server program to start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NotFound {
    /// The program that was looked for.
    pub program: ServerProgram,
    /// Files of that name that cannot be executed.
    pub unusable: Vec<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.program();
        match self.unusable.first() {
            None => write!(f, "{name} is not in PATH; {}", self.program.advice()),
            Some(path) => write!(
                f,
                "{} is not executable, and no other {name} is in PATH; correct its permissions, or {}",
                escape(&path.to_string_lossy(), 200),
                self.program.advice()
            ),
        }
    }
}

/// Looks for a program in PATH and asks for its version.
///
/// # Errors
/// When no file of that name in PATH can be executed.
pub fn locate(program: ServerProgram) -> Result<Found, NotFound> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = which(program, &path)?;
    let version = version(program, &path);
    Ok(Found {
        program,
        path,
        version,
    })
}

/// The first executable file of the name. Entries of PATH that are empty mean the current folder, as in
/// every shell; folders and files without the right to execute are passed over.
fn which(program: ServerProgram, path: &OsStr) -> Result<PathBuf, NotFound> {
    let mut unusable = Vec::new();
    for folder in std::env::split_paths(path) {
        let folder = if folder.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            folder
        };
        let file = folder.join(program.program());
        if !file.is_file() {
            continue;
        }
        if access(&file, AccessFlags::X_OK).is_ok() {
            return Ok(file);
        }
        unusable.push(file);
    }
    Err(NotFound { program, unusable })
}

fn version(program: ServerProgram, path: &Path) -> Measured<String> {
    let unknown = |why: &str| Measured::NotMeasured(why.to_owned());
    let mut command = Command::new(path);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(match program {
            // It tells its version there.
            ServerProgram::Twemproxy => Stdio::piped(),
            ServerProgram::Redis | ServerProgram::Valkey | ServerProgram::Memcached => Stdio::null(),
        });
    let (keeper, ends) = match Keeper::spawn(command) {
        Ok(started) => started,
        Err(e) => return Measured::NotMeasured(format!("--version does not run: {e}")),
    };
    match keeper.wait(VERSION_LIMIT) {
        None => return unknown("--version does not end"),
        Some(Ended(Some(status))) if !status.success() => return unknown("--version fails"),
        Some(Ended(_)) => {}
    }
    // A descendant could still hold the pipe and keep a read waiting; with the group gone none does.
    drop(keeper);
    let mut text = Vec::new();
    let out = ends.stdout.map(|pipe| pipe.take(4096).read_to_end(&mut text));
    let errors = ends.stderr.map(|pipe| pipe.take(4096).read_to_end(&mut text));
    match out.or(errors) {
        Some(Ok(_)) => Measured::from_option(
            parse_version(&String::from_utf8_lossy(&text)),
            "--version tells none in a form that systally knows",
        ),
        _ => unknown("--version says nothing"),
    }
}

/// `7.0.15` from `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=…`, `1.6.18` from
/// `memcached 1.6.18`, `0.5.0` from `This is nutcracker-0.5.0`.
fn parse_version(text: &str) -> Option<String> {
    let version = text
        .split_whitespace()
        .find_map(|word| {
            word.strip_prefix("v=")
                .or_else(|| word.strip_prefix("nutcracker-"))
        })
        .or_else(|| text.trim().strip_prefix("memcached "))?;
    (!version.is_empty()).then(|| escape(version, 40))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Path, text: &str, mode: u32) -> PathBuf {
        let path = folder.join("redis-server");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn path_is_searched_as_a_shell_does() {
        let (a, b, c) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let dull = program(a.path(), "", 0o644);
        fs::create_dir(b.path().join("redis-server")).unwrap();
        let good = program(c.path(), "#!/bin/sh\n", 0o755);
        let join = |folders: &[&Path]| std::env::join_paths(folders).unwrap();
        let missing = Path::new("/nonexistent");
        let all = join(&[missing, a.path(), b.path(), c.path()]);
        assert_eq!(which(ServerProgram::Redis, &all), Ok(good));
        let error = which(ServerProgram::Redis, &join(&[a.path(), b.path()])).unwrap_err();
        assert_eq!(error.unusable, [dull]);
        assert!(error.to_string().contains("not executable"), "{error}");
        let error = which(ServerProgram::Valkey, &all).unwrap_err().to_string();
        assert!(error.starts_with("valkey-server is not in PATH"), "{error}");
    }

    #[test]
    fn versions_are_read_from_what_the_program_prints() {
        let folder = tempfile::tempdir().unwrap();
        let says = |script: &str| {
            let path = program(folder.path(), &format!("#!/bin/sh\n{script}\n"), 0o755);
            version(ServerProgram::Redis, &path)
        };
        let redis = says("echo 'Redis server v=7.0.15 sha=0:0 malloc=libc bits=64 build=1'");
        assert_eq!(redis, Measured::Known("7.0.15".into()));
        assert!(says("exit 3").reason().is_some());
        assert!(says("echo hello").reason().is_some());
        // A descendant that keeps the pipe open must not keep us waiting.
        assert_eq!(says("echo v=1; sleep 600 &"), Measured::Known("1".into()));
        assert_eq!(says("echo memcached 1.6.18"), Measured::Known("1.6.18".into()));
        let garbage = program(folder.path(), "\u{0}garbage", 0o755);
        assert!(version(ServerProgram::Redis, &garbage).reason().is_some());
        let proxy = program(
            folder.path(),
            "#!/bin/sh\necho This is nutcracker-0.5.0 >&2\n",
            0o755,
        );
        assert_eq!(
            version(ServerProgram::Twemproxy, &proxy),
            Measured::Known("0.5.0".into())
        );
    }
}
