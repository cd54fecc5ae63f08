//! Why a running process may not be traced, in words.

use nix::errno::Errno;
use nix::unistd::Pid;

use super::attach::is_own_thread;
use super::availability::{Rights, field};
use crate::engine::Refusal;
use crate::proc::Root;
use crate::proc::processes::{Standing, standing};
use crate::units::escape;

/// What a thread that could not be seized is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has ended, or is about to be reaped.
    Gone,
    /// This systally traces it already.
    Ours,
    /// There is a reason to look for.
    Other,
}

/// Looks at a thread that could not be seized.
pub(super) fn state(root: &Root, tid: Pid) -> State {
    let Ok(status) = root.read(&format!("proc/{tid}/status")) else {
        return State::Gone;
    };
    if field(&status, "State:").is_some_and(|state| state.starts_with(['Z', 'X', 'x'])) {
        return State::Gone;
    }
    match tracer_of(&status) {
        Some(tracer) if is_own_thread(root, tracer) => State::Ours,
        _ => State::Other,
    }
}

fn tracer_of(status: &str) -> Option<i32> {
    field(status, "TracerPid:")?
        .parse()
        .ok()
        .filter(|tracer| *tracer != 0)
}

/// What bears on whether a process may be traced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Target {
    /// Its id and name.
    who: String,
    /// Who traces it already, with the id.
    tracer: Option<String>,
    /// Whether it is systally itself.
    is_self: bool,
    /// A thread of the kernel, which has no program.
    is_kernel: bool,
    /// Its user, where that is not systally's.
    other_user: Option<u32>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    yama_scope: Option<i32>,
    /// Whether this process has CAP_SYS_PTRACE.
    may_trace_all: bool,
}

impl Target {
    fn read(root: &Root, pid: Pid, tid: Pid) -> Target {
        let status = root.read(&format!("proc/{tid}/status")).unwrap_or_default();
        let name_of = |pid: i32| {
            let name = root.read(&format!("proc/{pid}/comm")).unwrap_or_default();
            format!("{} (pid {pid})", escape(name.trim_end(), 40))
        };
        // Real, effective, saved and file system user: ptrace asks for all but the last to be ours.
        let users: Vec<u32> = field(&status, "Uid:")
            .map(|users| {
                users
                    .split_whitespace()
                    .filter_map(|user| user.parse().ok())
                    .collect()
            })
            .unwrap_or_default();
        let own = nix::unistd::getuid().as_raw();
        Target {
            who: name_of(pid.as_raw()),
            tracer: tracer_of(&status).map(name_of),
            is_self: pid.as_raw() == std::process::id() as i32,
            is_kernel: standing(root, tid.as_raw()) == Standing::Kernel,
            other_user: users.into_iter().take(3).find(|user| *user != own),
            yama_scope: root
                .read("proc/sys/kernel/yama/ptrace_scope")
                .ok()
                .and_then(|scope| scope.trim().parse().ok()),
            may_trace_all: Rights::read(root).may_trace_all,
        }
    }
}

/// Why a thread of a process may not be seized, and what would allow it.
pub(super) fn why_not(errno: Errno, pid: Pid, tid: Pid) -> (String, String) {
    explain(errno, &Target::read(&Root::live(), pid, tid))
}

/// The likeliest cause, the certain ones first.
fn explain(errno: Errno, found: &Target) -> (String, String) {
    let who = &found.who;
    let root = "run systally with sudo";
    match found {
        Target { is_self: true, .. } => (
            format!("{who} is systally itself"),
            "name another process".to_owned(),
        ),
        Target {
            tracer: Some(tracer), ..
        } => (
            format!("{who} is traced by {tracer} already, and a process has one tracer"),
            format!("end {tracer} first, or count with --engine bpf, which does not trace"),
        ),
        Target { is_kernel: true, .. } => Refusal::of_kernel(who),
        Target {
            yama_scope: Some(3), ..
        } => (
            format!("{who} may not be traced: kernel.yama.ptrace_scope is 3, which forbids all tracing"),
            "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d and reboot (3 cannot be lowered while the \
             system runs)"
                .to_owned(),
        ),
        Target {
            other_user: Some(user),
            may_trace_all: false,
            ..
        } => (
            format!("{who} runs as another user (uid {user}), and tracing it needs CAP_SYS_PTRACE"),
            format!("{root}, or as that user"),
        ),
        Target {
            yama_scope: Some(2),
            may_trace_all: false,
            ..
        } => (
            format!("{who} may not be traced: kernel.yama.ptrace_scope is 2, which allows it with CAP_SYS_PTRACE only"),
            format!("{root}, or sysctl kernel.yama.ptrace_scope=0"),
        ),
        Target {
            yama_scope: Some(1),
            may_trace_all: false,
            ..
        } => (
            format!(
                "{who} may not be traced: kernel.yama.ptrace_scope is 1, which allows attaching to own children only"
            ),
            format!("{root}, sysctl kernel.yama.ptrace_scope=0, or let systally start the program: systally count -- CMD"),
        ),
        Target {
            may_trace_all: false,
            ..
        } => (
            format!(
                "{who} may not be traced ({errno}): it has rights that systally has not (set-user-ID, capabilities, or \
                 PR_SET_DUMPABLE off), or a security module forbids it"
            ),
            format!("{root}; in a container, run it with --cap-add SYS_PTRACE"),
        ),
        Target { .. } => (
            format!("{who} may not be traced: {errno}"),
            "look at the security modules in /sys/kernel/security/lsm; in a container, at its seccomp profile".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::recorded(tree.path());
        (tree, root)
    }

    #[test]
    fn each_cause_has_its_own_words() {
        let plain = Target {
            who: "php-fpm (pid 9)".to_owned(),
            ..Target::default()
        };
        let yama = |scope| Target {
            yama_scope: Some(scope),
            ..plain.clone()
        };
        let cases = [
            (
                Target {
                    is_self: true,
                    ..plain.clone()
                },
                "systally itself",
            ),
            (
                Target {
                    tracer: Some("strace (pid 7)".to_owned()),
                    may_trace_all: true,
                    ..plain.clone()
                },
                "traced by strace (pid 7) already",
            ),
            (
                Target {
                    is_kernel: true,
                    ..plain.clone()
                },
                "thread of the kernel",
            ),
            (
                Target {
                    other_user: Some(33),
                    ..yama(1)
                },
                "another user (uid 33)",
            ),
            (yama(3), "ptrace_scope is 3"),
            (yama(2), "ptrace_scope is 2"),
            (yama(1), "ptrace_scope is 1"),
            (plain.clone(), "PR_SET_DUMPABLE"),
            (
                Target {
                    may_trace_all: true,
                    ..yama(1)
                },
                "may not be traced: EPERM",
            ),
        ];
        for (target, part) in cases {
            let (why, fix) = explain(Errno::EPERM, &target);
            assert!(why.contains(part) && why.starts_with("php-fpm (pid 9)"), "{why}");
            assert!(!fix.is_empty());
        }
    }

    #[test]
    fn a_thread_that_cannot_be_seized_is_looked_at() {
        let (_tree, root) = tree(&[
            ("proc/5/status", "Name:\tx\nState:\tZ (zombie)\nTracerPid:\t0\n"),
            ("proc/6/status", "State:\tS (sleeping)\nTracerPid:\t77\n"),
            ("proc/7/status", "State:\tS (sleeping)\nTracerPid:\t78\n"),
            ("proc/self/task/77/comm", "systally\n"),
        ]);
        let of = |tid| state(&root, Pid::from_raw(tid));
        assert_eq!(
            (of(4), of(5), of(6), of(7)),
            (State::Gone, State::Gone, State::Ours, State::Other)
        );
    }

    #[test]
    fn targets_are_read_from_the_kernel_s_files() {
        let own = nix::unistd::getuid().as_raw();
        let (_tree, root) = tree(&[
            ("proc/self/status", "CapEff:\t0000000000000000\n"),
            (
                "proc/9/status",
                &format!(
                    "State:\tS\nUid:\t{own}\t{}\t{own}\t{own}\nTracerPid:\t12\n",
                    own + 1
                ),
            ),
            ("proc/9/comm", "ph\u{1b}p\n"),
            ("proc/9/stat", "9 (a) b) S 2 0 0 0 -1 2129984 0"),
            ("proc/12/comm", "gdb\n"),
            ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
        ]);
        let found = Target::read(&root, Pid::from_raw(9), Pid::from_raw(9));
        assert_eq!(found.tracer.as_deref(), Some("gdb (pid 12)"));
        assert_eq!((found.other_user, found.yama_scope), (Some(own + 1), Some(1)));
        assert!(found.is_kernel && !found.may_trace_all && !found.who.contains('\u{1b}'));
    }
}
