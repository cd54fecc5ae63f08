//! Which limit of systally's own process is in the way when a call of its own fails, and what to raise.
//!
//! A process that may open no more files cannot read `/proc` either, so nothing here does where it is about
//! open files.

use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

use super::Root;
use super::process::{Who, in_first_user_namespace, status, tasks_of_user};

/// A limit of open files below this is too small for a server beside systally (Redis keeps 32 for itself).
const FEW_FILES: u64 = 64;
/// So many tasks a server starts beside its first one (Redis three, memcached four and more).
const FEW_TASKS: u64 = 8;

/// In words, the limit that a failed call ran into and how to raise it; `None` for an errno that names none.
pub fn of(errno: Errno) -> Option<String> {
    match errno {
        Errno::EMFILE => Some(files()),
        Errno::ENFILE => Some("the machine may have no more files open: sysctl -w fs.file-max=".to_owned()),
        _ => None,
    }
}

/// The same for a call that should have started a process or a thread.
pub fn of_fork(errno: Errno) -> Option<String> {
    match errno {
        Errno::EAGAIN => Some(tasks()),
        Errno::ENOMEM => Some("there is no memory left for another process".to_owned()),
        errno => of(errno),
    }
}

/// The errno of an error of the standard library, when it has one.
pub fn errno_of(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// What of this process's own limits is so tight that a server it starts may fail for it; `None` when
/// nothing is.
pub fn tight() -> Option<String> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    if soft < FEW_FILES {
        return Some(files());
    }
    let root = Root::live();
    let me = status(&root, Who::Me).ok()?;
    let (soft, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    let exempt = me.uid == 0 && in_first_user_namespace(&root).unwrap_or(false);
    let used = tasks_of_user(&root, me.uid).ok()?;
    (!exempt && soft.saturating_sub(used) < FEW_TASKS).then(tasks)
}

/// Refuses to begin what needs more open files than this process may have.
///
/// # Errors
/// The limit, and what to raise.
pub fn need_files(needed: u64) -> Result<(), String> {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) if soft < needed => Err(files()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses to begin what cannot do without `/proc`: systally finds its own program, other processes and the
/// limits of the machine there.
///
/// # Errors
/// That it is not there, and what mounts it.
pub fn need_proc() -> Result<(), String> {
    match std::fs::symlink_metadata("/proc/self") {
        Ok(_) => Ok(()),
        Err(_) => Err(
            "/proc is not mounted here, where systally finds processes and limits: mount it (mount -t proc proc /proc)"
                .to_owned(),
        ),
    }
}

fn files() -> String {
    const ENOUGH: u64 = 1024;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) => {
            let how = if hard >= ENOUGH { "" } else { " as root" };
            format!(
                "systally itself may have only {soft} files open: raise that with ulimit -n {ENOUGH}{how}"
            )
        }
        Err(_) => format!("systally itself may open no more files: raise that with ulimit -n {ENOUGH}"),
    }
}

fn tasks() -> String {
    let soft = getrlimit(Resource::RLIMIT_NPROC).map(|(soft, _)| soft);
    let limit = match soft {
        Ok(soft) if soft < u64::MAX => format!("ulimit -u is {soft}"),
        Ok(_) | Err(_) => "ulimit -u is not set".to_owned(),
    };
    format!(
        "systally's user may start no more processes and threads: raise the limit ({limit}; or pids.max of the control \
         group)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_errno_of_a_limit_names_one() {
        assert!(of(Errno::EMFILE).unwrap().contains("ulimit -n 1024"));
        assert!(of(Errno::ENFILE).unwrap().contains("fs.file-max"));
        assert_eq!(of(Errno::EAGAIN), None);
        assert!(of_fork(Errno::EAGAIN).unwrap().contains("ulimit -u"));
        assert!(of_fork(Errno::EMFILE).unwrap().contains("ulimit -n"));
        assert_eq!(of_fork(Errno::ENOENT), None);
        assert!(need_files(3).is_ok());
        assert!(need_files(u64::MAX).is_err());
    }
}
