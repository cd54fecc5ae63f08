//! What a session tells its tracer threads: to send a signal, to kill what is left, or to let it go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

use nix::unistd::Pid;

use super::tracing::{MATERNITY, Tracing};
use crate::engine::EngineError;
use crate::sys::process::send_signal;

/// What the session tells its tracer threads.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Kill everything that is left.
    pub(super) kill: AtomicBool,
    /// Let everything run on untraced.
    pub(super) let_go: AtomicBool,
    /// Send this signal to everything that is left; 0 for none. Each thread does it once.
    pub(super) signal: AtomicI32,
}

impl Tracing {
    pub(super) fn look_at_orders(&mut self, now: Instant) -> Result<(), EngineError> {
        let control = Arc::clone(&self.job.control);
        let signal = control.signal.load(Ordering::Relaxed);
        if signal != self.signalled {
            self.signalled = signal;
            self.signal_all(signal);
        }
        if control.kill.load(Ordering::Relaxed) && !self.killing {
            self.note_survivors();
            self.kill_all();
        }
        if self.letting_go.is_some() {
            return Ok(());
        }
        if control.let_go.load(Ordering::Relaxed) {
            return self.let_go(now);
        }
        if self.early.is_empty() {
            self.early_since = None;
        } else if self.early_since.is_some_and(|since| now > since + MATERNITY) {
            self.early_since = None;
            self.adopt_all_early()?;
        }
        self.look_for_late_ones(now)
    }

    /// Kills every process that is still there, now and as it appears.
    pub(super) fn kill_all(&mut self) {
        self.killing = true;
        self.signal_all(libc::SIGKILL);
    }

    /// Sends a signal to every process that is still there.
    fn signal_all(&mut self, signal: i32) {
        // A process that is not reaped keeps its number, and only this thread reaps these.
        let processes: BTreeSet<i32> = self.tracees.values().map(|tracee| tracee.tgid.as_raw()).collect();
        for pid in processes.into_iter().chain(self.early.keys().copied()) {
            send_signal(pid, signal);
        }
    }

    /// Whether new processes are to be killed at once.
    pub(super) fn is_killing(&self) -> bool {
        self.killing
    }

    fn note_survivors(&mut self) {
        let processes: BTreeSet<i32> = self.tracees.values().map(|tracee| tracee.tgid.as_raw()).collect();
        let named: Vec<String> = processes
            .iter()
            .take(5)
            .map(|pid| format!("{} (pid {pid})", self.name_of(Pid::from_raw(*pid))))
            .collect();
        let more = if processes.len() > named.len() {
            " and others"
        } else {
            ""
        };
        if !named.is_empty() {
            self.notes.insert(format!(
                "{} of the counted processes were still running at the time limit and were killed: {}{more}",
                processes.len(),
                named.join(", "),
            ));
        }
    }
}
