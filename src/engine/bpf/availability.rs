//! Whether the kernel takes the programs, tried, and in words what stands in the way.

use nix::errno::Errno;

use super::kernel::KernelError;
use super::tracer::{Tracer, TracerError};
use crate::engine::rights::{Capability, Rights};
use crate::engine::{Availability, EngineError, EngineKind};
use crate::proc::Root;

const SETCAP: &str =
    "run as root, or give systally the two capabilities once: sudo setcap cap_bpf,cap_perfmon+ep systally";

/// Loads the programs without putting them to work.
pub(super) fn availability() -> Availability {
    match Tracer::try_out() {
        Ok(()) => Availability::Ready,
        Err(error) => {
            let (why, fix) = why(&error, &Root::live());
            Availability::Unavailable { why, fix }
        }
    }
}

/// The error of a session that could not begin.
pub(super) fn engine_error(error: &TracerError) -> EngineError {
    if let Some(Errno::EPERM | Errno::EACCES | Errno::EMFILE | Errno::ENFILE) = error.errno() {
        let (why, fix) = why(error, &Root::live());
        return EngineError::Denied { why, fix };
    }
    EngineError::Broken {
        engine: EngineKind::Bpf,
        what: error.to_string(),
    }
}

fn why(error: &TracerError, root: &Root) -> (String, String) {
    match error {
        TracerError::Kernel(KernelError::Unreadable(_)) => (
            format!("{error}; the kernel was built without type information (CONFIG_DEBUG_INFO_BTF)"),
            "use a kernel with it, as most distributions ship since 2021, or the ptrace engine".to_owned(),
        ),
        TracerError::Kernel(KernelError::Btf(_)) => (
            format!(
                "{error}; this kernel is older than Linux 5.11, or changed in a way systally does not know"
            ),
            "use the ptrace engine".to_owned(),
        ),
        TracerError::Kernel(KernelError::Machine) => (error.to_string(), "use the ptrace engine".to_owned()),
        TracerError::System { .. } | TracerError::Refused { .. } => match error.errno() {
            Some(Errno::EPERM | Errno::EACCES) => denied(&Rights::read(root), root),
            Some(Errno::ENOSYS) => (
                "this kernel was built without bpf(2) (CONFIG_BPF_SYSCALL), or a filter hides it".to_owned(),
                "use the ptrace engine, or another kernel".to_owned(),
            ),
            Some(Errno::EMFILE | Errno::ENFILE) => (
                error.to_string(),
                "raise the limit of open files (ulimit -n), of which this engine needs about twenty"
                    .to_owned(),
            ),
            _ => (
                error.to_string(),
                "use the ptrace engine; BPF task storage for tracing needs Linux 5.11".to_owned(),
            ),
        },
    }
}

/// Who said no.
fn denied(rights: &Rights, root: &Root) -> (String, String) {
    if rights.in_user_namespace {
        return (
            "in a user namespace of its own nobody may load BPF programs that trace".to_owned(),
            "run systally outside of the rootless container, or use the ptrace engine".to_owned(),
        );
    }
    if !rights.has(Capability::Bpf) || !rights.has(Capability::Perfmon) {
        let setting = root
            .read("proc/sys/kernel/unprivileged_bpf_disabled")
            .unwrap_or_default();
        let setting = match setting.trim() {
            "" => String::new(),
            value => format!(" (kernel.unprivileged_bpf_disabled is {value})"),
        };
        let why = format!("counting in the kernel needs CAP_BPF and CAP_PERFMON{setting}");
        return (why, SETCAP.to_owned());
    }
    if let Some(mode) = &rights.lockdown {
        return (
            format!("kernel lockdown is in {mode} mode"),
            "boot without lockdown (it comes with Secure Boot), or use the ptrace engine".to_owned(),
        );
    }
    if rights.filtered {
        return (
            "a seccomp filter, as container runtimes install, forbids bpf(2)".to_owned(),
            "start the container with --cap-add BPF --cap-add PERFMON, or use the ptrace engine".to_owned(),
        );
    }
    (
        "the kernel or a security module forbids BPF programs that trace".to_owned(),
        "use the ptrace engine".to_owned(),
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
        let error = TracerError::System {
            operation: "load",
            source: Errno::EPERM,
        };
        why(&error, &Root::recorded(folder.path()))
    }

    #[test]
    fn a_refusal_names_what_forbids_it_and_what_would_allow_it() {
        let (why, fix) = explained(&[("proc/sys/kernel/unprivileged_bpf_disabled", "2\n")]);
        assert!(why.contains("unprivileged_bpf_disabled is 2"), "{why}");
        assert!(fix.contains("setcap cap_bpf,cap_perfmon+ep"), "{fix}");
        let rights = ("proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t2\n");
        let (why, fix) = explained(&[rights]);
        assert!(
            why.contains("seccomp") && fix.contains("--cap-add BPF"),
            "{why} {fix}"
        );
        let (why, _) = explained(&[
            rights,
            ("sys/kernel/security/lockdown", "none [integrity] confidentiality"),
        ]);
        assert!(why.contains("integrity"), "{why}");
        let (why, _) = explained(&[rights, ("proc/self/uid_map", "0 1000 1")]);
        assert!(why.contains("user namespace"), "{why}");
    }
}
