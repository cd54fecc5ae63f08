//! Whether tracing is permitted here, and in words, who forbids it.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::engine::Availability;
use crate::proc::{Root, own};
use crate::sys::process::wait4;
use crate::sys::ptrace::{Options, Tracer};
use crate::units::escape;

/// Tries it on a child that does nothing.
pub(super) fn availability() -> Availability {
    // SEIZE ties the child to the calling thread, so the probe has one of its own that ends with it.
    let probe = std::thread::Builder::new()
        .name("systally-probe".to_owned())
        .spawn(probe);
    match probe.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => Availability::Ready,
        Ok(Ok(Err((why, fix)))) => Availability::Unavailable { why, fix },
        Ok(Err(_)) | Err(_) => Availability::Unavailable {
            why: "a thread and a process to try it on could not be started".to_owned(),
            fix: own::of_fork(Errno::EAGAIN).unwrap_or_default(),
        },
    }
}

fn probe() -> Result<(), (String, String)> {
    let image = crate::sys::spawn::Image {
        path: c"/".into(),
        argv: Vec::new(),
        envp: Vec::new(),
    };
    let setup = crate::sys::spawn::Setup {
        stdio: None,
        own_group: false,
        die_with_thread: true,
        mask: nix::sys::signal::SigSet::empty(),
        hold: true,
        filter: &[],
        no_new_privs: false,
    };
    let child = crate::sys::spawn::spawn(&image, &setup).map_err(|error| {
        let limit = own::errno_of(&error).and_then(own::of_fork);
        (
            format!("no process could be forked to try it on ({error})"),
            limit.unwrap_or_else(|| "try again, or on another machine".to_owned()),
        )
    })?;
    let pid = child.pid();
    let seized = Tracer::new().seize(
        pid,
        Options {
            follow: true,
            seccomp: true,
            kill_with_tracer: true,
        },
    );
    let result = match seized {
        Ok(_) if !has_syscall_info(&Root::live()) => Err((
            "this kernel is older than Linux 5.3 and has no PTRACE_GET_SYSCALL_INFO".to_owned(),
            "use a newer kernel".to_owned(),
        )),
        Ok(_) => Ok(()),
        Err(errno) => Err(why_denied(errno, pid)),
    };
    let _ = kill(pid, Signal::SIGKILL);
    let _ = wait4(pid.as_raw(), libc::__WALL, None);
    result
}

fn has_syscall_info(root: &Root) -> bool {
    let Ok(release) = root.read("proc/sys/kernel/osrelease") else {
        return true;
    };
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= (5, 3),
        _ => true,
    }
}

/// What bears on whether a process may trace its child.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Surroundings {
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    yama_scope: Option<i32>,
    /// Whether a seccomp filter is in force, as in a container.
    filtered: bool,
    /// The AppArmor profile in force.
    apparmor: Option<String>,
    /// CAP_SYS_PTRACE.
    may_trace_all: bool,
    /// Who traces the child already, by number and name.
    tracer: Option<(i32, String)>,
}

impl Surroundings {
    fn read(root: &Root, child: Pid) -> Surroundings {
        let own = root.read("proc/self/status").unwrap_or_default();
        let of_child = root.read(&format!("proc/{child}/status")).unwrap_or_default();
        let tracer = field(&of_child, "TracerPid:")
            .and_then(|pid| pid.parse().ok())
            .filter(|pid| *pid != 0);
        let text = |name: &str| {
            root.read(name)
                .ok()
                .map(|text| text.trim_end_matches(['\n', '\0']).to_owned())
        };
        let profile = text("proc/self/attr/apparmor/current").or_else(|| text("proc/self/attr/current"));
        Surroundings {
            yama_scope: text("proc/sys/kernel/yama/ptrace_scope").and_then(|scope| scope.parse().ok()),
            filtered: field(&own, "Seccomp:").is_some_and(|mode| mode == "2"),
            apparmor: profile.filter(|profile| profile.contains("(enforce)")),
            may_trace_all: Rights::read(root).may_trace_all,
            tracer: tracer.map(|pid| {
                let name = text(&format!("proc/{pid}/comm")).unwrap_or_default();
                (pid, escape(&name, 40))
            }),
        }
    }
}

/// A line of `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// The capabilities of this process that matter to a tracer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    /// CAP_SYS_PTRACE: set-user-ID programs keep their effect.
    pub(super) may_trace_all: bool,
    /// CAP_SYS_ADMIN: a seccomp filter needs no `no_new_privs`.
    pub(super) may_filter: bool,
}

impl Rights {
    /// Reads them.
    pub(super) fn read(root: &Root) -> Rights {
        const CAP_SYS_PTRACE: u64 = 19;
        const CAP_SYS_ADMIN: u64 = 21;
        let status = root.read("proc/self/status").unwrap_or_default();
        let effective = field(&status, "CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        let has = |capability: u64| effective.is_some_and(|mask| mask >> capability & 1 == 1);
        Rights {
            may_trace_all: has(CAP_SYS_PTRACE),
            may_filter: has(CAP_SYS_ADMIN),
        }
    }
}

/// Why attaching to a child failed, and what would allow it.
pub(super) fn why_denied(errno: Errno, child: Pid) -> (String, String) {
    explain(errno, &Surroundings::read(&Root::live(), child))
}

/// The likeliest cause, the certain ones first.
fn explain(errno: Errno, found: &Surroundings) -> (String, String) {
    let (why, fix) = match (found, errno) {
        (Surroundings { tracer: Some((pid, name)), .. }, _) => (
            format!("{name} (pid {pid}) traces systally's children already, and a process has one tracer"),
            "run systally outside of it (strace without -f leaves children alone)".to_owned(),
        ),
        (Surroundings { yama_scope: Some(3), .. }, _) => (
            "kernel.yama.ptrace_scope is 3, which forbids all tracing".to_owned(),
            "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d and reboot (3 cannot be lowered while the \
             system runs)"
                .to_owned(),
        ),
        (Surroundings { yama_scope: Some(2), may_trace_all: false, .. }, _) => (
            "kernel.yama.ptrace_scope is 2, which allows tracing with CAP_SYS_PTRACE only".to_owned(),
            "run systally with sudo, or sysctl kernel.yama.ptrace_scope=1".to_owned(),
        ),
        (Surroundings { apparmor: Some(profile), .. }, Errno::EACCES) => (
            format!("the AppArmor profile {} forbids ptrace", escape(profile, 80)),
            "add \"ptrace (trace) peer=@{profile_name},\" to the profile; in Docker, run with --security-opt \
             apparmor=unconfined"
                .to_owned(),
        ),
        (Surroundings { filtered: true, .. }, _) => (
            format!("a seccomp profile forbids ptrace ({errno})"),
            "in a container, run it with --cap-add SYS_PTRACE or with --security-opt seccomp=unconfined".to_owned(),
        ),
        (Surroundings { apparmor: Some(profile), .. }, _) => (
            format!("ptrace is forbidden ({errno}), perhaps by the AppArmor profile {}", escape(profile, 80)),
            "in Docker, run with --security-opt apparmor=unconfined".to_owned(),
        ),
        (Surroundings { may_trace_all: false, .. }, Errno::EPERM) => (
            "ptrace needs CAP_SYS_PTRACE here (EPERM): systally's own file has capabilities or another owner's \
             rights, or a security module forbids it"
                .to_owned(),
            "run systally with sudo; in a container, run it with --cap-add SYS_PTRACE".to_owned(),
        ),
        (_, Errno::EIO | Errno::EINVAL) => (
            format!("this kernel does not know PTRACE_SEIZE with the options needed ({errno})"),
            "use Linux 5.3 or newer".to_owned(),
        ),
        (_, Errno::ENOSYS) => (
            "ptrace does not exist here (ENOSYS); some sandboxes and emulators have none".to_owned(),
            "run systally on a full Linux kernel".to_owned(),
        ),
        (_, other) => (
            format!("ptrace failed: {other}"),
            "look at the kernel log and at the security modules in /sys/kernel/security/lsm".to_owned(),
        ),
    };
    (why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_can_be_traced_here_or_it_is_said_why_not() {
        match availability() {
            Availability::Ready => {}
            Availability::Unavailable { why, fix } => println!("SKIP: {why}; {fix}"),
        }
    }

    #[test]
    fn each_cause_has_its_own_words() {
        let none = Surroundings::default();
        let cases = [
            (
                Errno::EPERM,
                Surroundings {
                    yama_scope: Some(3),
                    ..none.clone()
                },
                "ptrace_scope is 3",
            ),
            (
                Errno::EPERM,
                Surroundings {
                    yama_scope: Some(2),
                    ..none.clone()
                },
                "ptrace_scope is 2",
            ),
            (
                Errno::EPERM,
                Surroundings {
                    filtered: true,
                    yama_scope: Some(1),
                    ..none.clone()
                },
                "seccomp",
            ),
            (
                Errno::EACCES,
                Surroundings {
                    filtered: true,
                    apparmor: Some("docker-default (enforce)".into()),
                    ..none.clone()
                },
                "AppArmor",
            ),
            (Errno::EPERM, none.clone(), "CAP_SYS_PTRACE"),
            (
                Errno::EPERM,
                Surroundings {
                    tracer: Some((7, "strace".into())),
                    ..none.clone()
                },
                "strace (pid 7)",
            ),
            (
                Errno::ENOSYS,
                Surroundings {
                    may_trace_all: true,
                    ..none.clone()
                },
                "ENOSYS",
            ),
            (
                Errno::EIO,
                Surroundings {
                    may_trace_all: true,
                    ..none
                },
                "does not know",
            ),
        ];
        let mut fixes = std::collections::BTreeSet::new();
        for (errno, surroundings, part) in cases {
            let (why, fix) = explain(errno, &surroundings);
            assert!(why.contains(part), "{why}");
            assert!(!fix.is_empty());
            fixes.insert(fix);
        }
        assert!(fixes.len() >= 7);
    }

    #[test]
    fn surroundings_are_read_from_the_kernel_s_files() {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "proc/self/status",
                "Name:\tx\nCapEff:\t0000000000080000\nSeccomp:\t2\n",
            ),
            ("proc/9/status", "Name:\ty\nTracerPid:\t12\n"),
            ("proc/12/comm", "str\u{1b}ace\n"),
            ("proc/self/attr/current", "docker-default (enforce)\n"),
            ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
            ("proc/sys/kernel/osrelease", "4.19.0-17-amd64\n"),
        ] {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::recorded(tree.path());
        let found = Surroundings::read(&root, Pid::from_raw(9));
        assert!(found.filtered && found.may_trace_all);
        assert_eq!(found.yama_scope, Some(1));
        assert_eq!(found.apparmor.as_deref(), Some("docker-default (enforce)"));
        let (pid, name) = found.tracer.unwrap();
        assert_eq!(pid, 12);
        assert!(!name.contains('\u{1b}'));
        assert!(!Rights::read(&root).may_filter);
        assert!(!has_syscall_info(&root));
    }
}
