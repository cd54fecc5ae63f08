//! Whether counters may be used here, tried, and in words what stands in the way.

use nix::errno::Errno;

use super::calls::{CallsError, choose};
use super::ids::IdsError;
use crate::engine::rights::{Capability, Rights};
use crate::engine::{Availability, Engine, EngineError, EngineKind, Ptrace, Selection};
use crate::proc::Root;
use crate::tally::Syscall;

const OTHER_ENGINE: &str = "or use the ptrace engine";

/// Tries one counter, on a call that clients make.
pub(super) fn availability() -> Availability {
    let tried = choose(&Selection::Only(vec![Syscall::native(libc::SYS_recvfrom)]));
    match tried {
        Ok(_) => match Ptrace.availability() {
            Availability::Ready => Availability::Ready,
            Availability::Unavailable { why, fix } => Availability::Unavailable {
                why: format!("programs are followed by ptrace, and {why}"),
                fix,
            },
        },
        Err(error) => {
            let (why, fix) = why(&error, &Root::live());
            Availability::Unavailable { why, fix }
        }
    }
}

/// The error of a session that could not begin.
pub(super) fn engine_error(error: &CallsError) -> EngineError {
    let (why, fix) = why(error, &Root::live());
    match error {
        CallsError::Ids(_)
        | CallsError::TooMany(_)
        | CallsError::NoCounter { .. }
        | CallsError::Wrong { .. } => EngineError::Denied { why, fix },
        CallsError::Refused {
            source: Errno::EACCES | Errno::EPERM | Errno::ENOSYS,
            ..
        } => EngineError::Denied { why, fix },
        CallsError::Refused { .. } => EngineError::Broken {
            engine: EngineKind::Perf,
            what: error.to_string(),
        },
    }
}

fn why(error: &CallsError, root: &Root) -> (String, String) {
    let setup = || format!("run once: sudo systally setup, {OTHER_ENGINE}");
    match error {
        CallsError::Ids(IdsError::Unknown(_) | IdsError::OtherKernel { .. } | IdsError::Tracefs(_)) => {
            (error.to_string(), setup())
        }
        CallsError::Ids(IdsError::Write { .. }) | CallsError::Wrong { .. } => (error.to_string(), setup()),
        CallsError::TooMany(_) => (error.to_string(), format!("choose fewer with -e, {OTHER_ENGINE}")),
        CallsError::NoCounter { .. } => (error.to_string(), format!("leave it out, {OTHER_ENGINE}")),
        CallsError::Refused {
            source: Errno::EACCES | Errno::EPERM,
            ..
        } => denied(&Rights::read(root), root),
        CallsError::Refused {
            source: Errno::ENOSYS,
            ..
        } => (
            "this kernel was built without perf_event_open(2) (CONFIG_PERF_EVENTS), or a filter hides it"
                .to_owned(),
            OTHER_ENGINE.trim_start_matches("or ").to_owned(),
        ),
        // A number that is no tracepoint of this kernel.
        CallsError::Refused {
            source: Errno::ENOENT | Errno::EINVAL,
            ..
        } => (error.to_string(), setup()),
        CallsError::Refused { .. } => (
            error.to_string(),
            OTHER_ENGINE.trim_start_matches("or ").to_owned(),
        ),
    }
}

/// Who said no.
fn denied(rights: &Rights, root: &Root) -> (String, String) {
    let paranoid = root
        .read("proc/sys/kernel/perf_event_paranoid")
        .unwrap_or_default();
    // 3 and 4 are Debian's and Ubuntu's: nobody without CAP_PERFMON may count anything.
    if let Ok(level @ 3..) = paranoid.trim().parse::<i32>()
        && !rights.has(Capability::Perfmon)
    {
        return (
            format!("kernel.perf_event_paranoid is {level}"),
            format!("sudo sysctl kernel.perf_event_paranoid=2, or give systally CAP_PERFMON, {OTHER_ENGINE}"),
        );
    }
    if rights.filtered {
        return (
            "a seccomp filter, as container runtimes install, forbids perf_event_open(2)".to_owned(),
            format!("start the container with --cap-add PERFMON, {OTHER_ENGINE}"),
        );
    }
    if let Some(mode) = &rights.lockdown {
        return (
            format!("kernel lockdown is in {mode} mode"),
            format!("boot without lockdown, {OTHER_ENGINE}"),
        );
    }
    (
        format!(
            "the kernel forbids counters (kernel.perf_event_paranoid is {})",
            paranoid.trim()
        ),
        format!("give systally CAP_PERFMON, {OTHER_ENGINE}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(files: &[(&str, &str)]) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let error = CallsError::Refused {
            name: "read".to_owned(),
            source: Errno::EACCES,
        };
        why(&error, &Root::recorded(folder.path()))
    }

    #[test]
    fn a_refusal_names_the_setting_or_the_filter() {
        let paranoid = ("proc/sys/kernel/perf_event_paranoid", "4\n");
        let (why, fix) = explained(&[paranoid]);
        assert!(
            why.contains("paranoid is 4") && fix.contains("paranoid=2"),
            "{why} {fix}"
        );
        let filtered = ("proc/self/status", "CapEff:\t0000004000000000\nSeccomp:\t2\n");
        let (why, fix) = explained(&[paranoid, filtered]);
        assert!(
            why.contains("seccomp") && fix.contains("--cap-add PERFMON"),
            "{why} {fix}"
        );
    }
}
