//! What a program does that hides calls from this engine, told as it happens.

use nix::unistd::Pid;

use super::tracing::Tracing;
use crate::tally::Syscall;

impl Tracing {
    /// What a program's own confinement by seccomp(2) means to a count that goes by a filter.
    pub(super) fn note_confinement(&mut self, tid: Pid, call: Syscall, args: &[u64; 6]) {
        if self.job.filter.is_empty() {
            return;
        }
        let mode = match (i64::try_from(call.number), args[0]) {
            (Ok(libc::SYS_prctl), command) if command == libc::PR_SET_SECCOMP as u64 => args[1],
            (Ok(libc::SYS_seccomp), operation) => operation + 1,
            _ => return,
        };
        let strict = mode == u64::from(libc::SECCOMP_MODE_STRICT);
        let filter = mode == u64::from(libc::SECCOMP_MODE_FILTER);
        let name = self.name_of(tid);
        if strict {
            self.notes.insert(format!(
                "{name} asked for seccomp's strict mode, which the filter that counts here rules out (EINVAL): it was not \
                 confined; bpf, and ptrace without -e, let it be"
            ));
        } else if filter && self.job.observer.is_none() {
            self.notes.insert(format!(
                "{name} has set a seccomp filter of its own: calls that it answers itself, by an errno, a trap or a kill, \
                 are not counted; bpf, and ptrace without -e, count them"
            ));
        }
    }

    /// A child that the kernel keeps from being traced (clone(2)).
    pub(super) fn note_untraced(&mut self, tid: Pid, flags: u64) {
        // An engine that counts by other means counts it too.
        if flags & libc::CLONE_UNTRACED as u64 == 0 || self.job.observer.is_some() {
            return;
        }
        let name = self.name_of(tid);
        self.notes.insert(format!(
            "{name} made a child that no tracer may follow (CLONE_UNTRACED): its calls are not counted; bpf counts them"
        ));
    }
}
