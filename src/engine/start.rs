//! From a [`Program`] to what can be executed: the path searched for, the environment, the pipes. Shared
//! by the engines that start programs themselves.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::Pid;

use super::{EngineError, Pipes, Program, Stdio};
use crate::proc::own;
use crate::sys::process::PidFd;
use crate::sys::spawn::{Image, StartError, Step};
use crate::units::escape;

/// Where execvp(3) looks when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Makes a program ready to be executed.
///
/// The search in PATH is done here and not by trying one execve(2) after another, so that a traced
/// program shows the one execve that succeeds, as under strace.
///
/// # Errors
/// [`EngineError::Exec`] when there is no such program, or no permission to run it.
pub(super) fn image(program: &Program) -> Result<Image, EngineError> {
    let Some(name) = program.argv.first() else {
        return Err(exec_error(OsStr::new(""), Errno::ENOENT));
    };
    let path_variable = program
        .env
        .get(OsStr::new("PATH"))
        .cloned()
        .or_else(|| std::env::var_os("PATH"));
    let path = search(name, path_variable.as_deref()).map_err(|errno| exec_error(name, errno))?;
    // A string with a NUL cannot be handed to execve; the kernel would have said EINVAL too.
    let invalid = |_| exec_error(name, Errno::EINVAL);
    let argv = program
        .argv
        .iter()
        .map(|arg| CString::new(arg.as_bytes()))
        .collect::<Result<_, _>>();
    let envp = environment(&program.env)
        .into_iter()
        .map(CString::new)
        .collect::<Result<_, _>>();
    Ok(Image {
        path: CString::new(path.into_os_string().into_vec()).map_err(invalid)?,
        argv: argv.map_err(invalid)?,
        envp: envp.map_err(invalid)?,
    })
}

/// Makes sure that a program can be executed, as far as that can be seen before it is tried.
///
/// # Errors
/// As [`image`].
pub(super) fn check(program: &Program) -> Result<(), EngineError> {
    let image = image(program)?;
    let path = Path::new(OsStr::from_bytes(image.path.as_bytes()));
    let refused = |errno| exec_error(path.as_os_str(), errno);
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).map_err(refused)?;
    if path.is_dir() {
        return Err(refused(Errno::EACCES));
    }
    Ok(())
}

/// The inherited environment with a program's own variables on top, as `NAME=value`.
fn environment(own: &BTreeMap<OsString, OsString>) -> Vec<Vec<u8>> {
    let inherited = std::env::vars_os().filter(|(name, _)| !own.contains_key(name));
    let own = own.iter().map(|(name, value)| (name.clone(), value.clone()));
    inherited
        .chain(own)
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// Finds a program as execvp(3) does: a name with a slash is a path; otherwise the first executable file
/// of that name in PATH, and EACCES when there are only files that may not be executed.
pub(super) fn search(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Errno> {
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let mut found = Errno::ENOENT;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // An empty element means the current folder.
        let candidate = Path::new(".").join(folder).join(name);
        if !candidate.is_file() {
            continue;
        }
        match nix::unistd::access(&candidate, nix::unistd::AccessFlags::X_OK) {
            Ok(()) => return Ok(candidate),
            Err(_) => found = Errno::EACCES,
        }
    }
    Err(found)
}

/// The error of a program that did not start.
pub(super) fn start_error(program: &Program, error: StartError) -> EngineError {
    let name = program.argv.first().map(OsString::as_os_str).unwrap_or_default();
    match error.step {
        Step::Exec => exec_error(name, error.errno),
        Step::Filter => EngineError::System {
            operation: "install the seccomp filter for the chosen calls; without a choice of calls none is needed",
            pid: 0,
            source: error.errno,
        },
        Step::Setup => EngineError::System {
            operation: "set up the program's streams and process group",
            pid: 0,
            source: error.errno,
        },
    }
}

fn exec_error(name: &OsStr, errno: Errno) -> EngineError {
    let has_slash = name.as_bytes().contains(&b'/');
    let hint = match errno {
        Errno::ENOENT if name.is_empty() => "; its name is empty",
        Errno::ENOENT if !has_slash => "; it is not in PATH",
        Errno::ENOENT if Path::new(name).exists() => "; the interpreter named in its first line is missing",
        Errno::EACCES if Path::new(name).is_dir() => "; it is a folder",
        Errno::EACCES => "; it is not executable (chmod +x), or lies on a file system mounted noexec",
        Errno::ENOEXEC => {
            "; it is no program for this machine, or a script without a #! line (run it through sh)"
        }
        Errno::E2BIG => "; its arguments and environment are too long",
        Errno::EPERM => "; under a tracer a program may not gain rights (set-user-ID)",
        _ => "",
    };
    EngineError::Exec {
        program: if name.is_empty() {
            "''".to_owned()
        } else {
            escape(&name.to_string_lossy(), 200)
        },
        source: errno,
        hint: hint.to_owned(),
    }
}

/// The child's ends of the pipes of one program.
pub(super) struct ChildEnds([OwnedFd; 3]);

impl ChildEnds {
    /// As descriptors 0, 1 and 2.
    pub(super) fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        [self.0[0].as_fd(), self.0[1].as_fd(), self.0[2].as_fd()]
    }
}

/// A descriptor that leads nowhere.
fn nothing() -> Result<OwnedFd, EngineError> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map(OwnedFd::from)
        .map_err(|error| system("open /dev/null", &error))
}

/// A second descriptor of one of systally's own streams, or of nothing where that stream is closed.
fn own(stream: BorrowedFd<'_>) -> Result<OwnedFd, EngineError> {
    stream.try_clone_to_owned().or_else(|_| nothing())
}

/// Makes the pipes of a program that wants them.
///
/// # Errors
/// When the descriptors of this process are used up.
pub(super) fn pipes(program: &Program) -> Result<Option<(Pipes, ChildEnds)>, EngineError> {
    let pipe = || {
        nix::unistd::pipe2(OFlag::O_CLOEXEC)
            .map_err(|errno| no_process("make a pipe for the program's streams", &errno.into()))
    };
    match program.stdio {
        Stdio::Inherit => Ok(None),
        Stdio::PipedOutput => {
            let (stdout, child_out) = pipe()?;
            let ours = Pipes {
                stdin: nothing()?,
                stdout,
                stderr: nothing()?,
            };
            let ends = [
                own(std::io::stdin().as_fd())?,
                child_out,
                own(std::io::stderr().as_fd())?,
            ];
            Ok(Some((ours, ChildEnds(ends))))
        }
        Stdio::Piped => {
            let (child_in, stdin) = pipe()?;
            let (stdout, child_out) = pipe()?;
            let (stderr, child_err) = pipe()?;
            let ours = Pipes {
                stdin,
                stdout,
                stderr,
            };
            Ok(Some((ours, ChildEnds([child_in, child_out, child_err]))))
        }
    }
}

/// A launched program as the target of signals.
#[derive(Debug)]
pub(super) struct Target {
    pid: Pid,
    pidfd: Option<PidFd>,
    own_group: bool,
}

impl Target {
    /// `pidfd` is of `pid`; without one (kernels before 5.3) signals go by number.
    pub(super) fn new(pid: Pid, pidfd: Option<PidFd>, own_group: bool) -> Target {
        Target {
            pid,
            pidfd,
            own_group,
        }
    }

    /// Sends a signal, to the group when the program leads one. A program that has ended gets none.
    pub(super) fn signal(&self, signal: i32) {
        let alive = match &self.pidfd {
            Some(pidfd) if self.own_group => match pidfd.signal_group(signal) {
                Err(Errno::EINVAL) => pidfd.signal(0).is_ok(),
                Ok(()) | Err(_) => return,
            },
            Some(pidfd) => {
                // ESRCH is no error here.
                let _ = pidfd.signal(signal);
                return;
            }
            None => true,
        };
        if alive {
            let target = if self.own_group {
                -self.pid.as_raw()
            } else {
                self.pid.as_raw()
            };
            crate::sys::process::send_signal(target, signal);
        }
    }
}

/// An error of one of the engine's own calls, from what the standard library reports.
pub(super) fn system(operation: &'static str, error: &std::io::Error) -> EngineError {
    EngineError::System {
        operation,
        pid: 0,
        source: Errno::from_raw(error.raw_os_error().unwrap_or(0)),
    }
}

/// What it means that a process, a thread or a pipe for one could not be made.
pub(super) fn no_process(operation: &'static str, error: &std::io::Error) -> EngineError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    EngineError::NoProcess {
        operation,
        errno,
        next: own::of_fork(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_by_path_and_permission() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tool"), "").unwrap();
        let path = std::env::join_paths([folder.path(), other.path()]).unwrap();
        let find = |name: &str| search(OsStr::new(name), Some(&path));
        assert_eq!(find("tool"), Err(Errno::EACCES));
        assert_eq!(find("nothing"), Err(Errno::ENOENT));
        assert_eq!(find(""), Err(Errno::ENOENT));
        assert_eq!(find("./tool"), Ok(PathBuf::from("./tool")));
        // A folder of the program's name is passed over, as is a file that may not be executed.
        std::fs::create_dir(other.path().join("folder")).unwrap();
        assert_eq!(find("folder"), Err(Errno::ENOENT));
        let good = other.path().join("tool");
        std::fs::write(&good, "").unwrap();
        std::fs::set_permissions(&good, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(find("tool"), Ok(good));
    }

    #[test]
    fn own_variables_replace_inherited_ones() {
        let own = BTreeMap::from([(OsString::from("PATH"), OsString::from("/nowhere"))]);
        let environment = environment(&own);
        let paths: Vec<_> = environment
            .iter()
            .filter(|entry| entry.starts_with(b"PATH="))
            .collect();
        assert_eq!(paths, [b"PATH=/nowhere"]);
    }

    #[test]
    fn errors_name_the_next_step() {
        let text = exec_error(OsStr::new("no\u{1b}thing"), Errno::ENOENT).to_string();
        assert!(text.contains("not in PATH"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
