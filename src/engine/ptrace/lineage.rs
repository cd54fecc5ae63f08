//! How threads and processes come to be, change and end: fork, exec, exit.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::memory;
use super::roles::Role;
use super::state::Tracee;
use super::tracing::{Tracing, checked};
use crate::engine::{EngineError, Exit};
use crate::sys::ptrace::{ForkKind, Stopped};
use crate::units::escape;

/// What a new thread shares with its maker.
#[derive(Debug, Clone, Copy)]
struct Shares {
    process: bool,
    descriptors: bool,
}

impl Tracing {
    /// The parent's event: from here on it is known whose the child is.
    pub(super) fn at_fork(&mut self, stopped: Stopped, kind: ForkKind) -> Result<(), EngineError> {
        let parent = stopped.tid();
        let child = match stopped.message() {
            Ok(message) => Pid::from_raw(message as i32),
            // The parent was killed; its child is adopted when the parent's end is handled.
            Err(error) => return checked("ask for a new child", parent, Err(error)),
        };
        self.seen += 1;
        // The number may have been given out again if the first one's parent never told of it.
        if self.early_ends.remove(&child.as_raw()) && !self.is_alive(child) {
            return self.resume(stopped, 0);
        }
        if let Some(known) = self.tracees.get(&child.as_raw()).map(|tracee| tracee.program) {
            // It was adopted under a guess after another process had ended; now its parent is certain.
            let certain = self
                .tracees
                .get(&parent.as_raw())
                .map_or(known, |tracee| tracee.program);
            if let Some(tracee) = self.tracees.get_mut(&child.as_raw()) {
                tracee.program = certain;
            }
            self.seen -= 1;
            return self.resume(stopped, 0);
        }
        let shares = self.shares(&stopped, child, kind);
        self.adopt(child, Some(parent), shares);
        self.resume(stopped, 0)?;
        self.release_early(child)
    }

    /// What the child shares, by the flags of the call that made it, or, when that call was not stopped
    /// at, by where the kernel lists the child.
    fn shares(&self, parent: &Stopped, child: Pid, kind: ForkKind) -> Shares {
        let tracee = self.tracees.get(&parent.tid().as_raw());
        let call = tracee.and_then(|tracee| tracee.call);
        let flags = match call.map(|call| (call.role, call.args[0])) {
            Some((Role::Clone, flags)) => Some(flags),
            Some((Role::Clone3, arguments)) => memory::read_array(parent, arguments).map(u64::from_ne_bytes),
            Some((Role::Fork, _)) => Some(0),
            _ => None,
        };
        if let Some(flags) = flags {
            return Shares {
                process: flags & libc::CLONE_THREAD as u64 != 0,
                descriptors: flags & libc::CLONE_FILES as u64 != 0,
            };
        }
        let thread = kind == ForkKind::Clone
            && tracee.is_some_and(|tracee| {
                self.root
                    .path(&format!("proc/{}/task/{child}", tracee.tgid))
                    .exists()
            });
        Shares {
            process: thread,
            descriptors: thread,
        }
    }

    /// Makes the state of a new thread.
    fn adopt(&mut self, child: Pid, parent: Option<Pid>, shares: Shares) {
        let parent = parent.and_then(|parent| self.tracees.get(&parent.as_raw()));
        let (tgid, program, own_affinity) = match parent {
            Some(parent) if shares.process => (parent.tgid, parent.program, parent.own_affinity),
            Some(parent) => (child, parent.program, parent.own_affinity),
            None => (child, 0, false),
        };
        let table = match parent.map(|parent| parent.table) {
            Some(table) if shares.descriptors => self.descriptors.share(table),
            Some(table) => self.descriptors.copy(table),
            None => self.descriptors.fresh(),
        };
        self.tracees.insert(
            child.as_raw(),
            Tracee {
                tgid,
                program,
                table,
                call: None,
                cut: None,
                again: None,
                own_affinity,
                polls: 0,
                fresh: false,
            },
        );
        if self.is_killing() {
            let _ = kill(child, Signal::SIGKILL);
        }
        if let Some(pin) = &self.job.pin
            && self.crowd.has_changed()
            && !own_affinity
        {
            // It has inherited what its parent had, which may be from before the change.
            let _ = if self.crowd.is_spread() {
                pin.release(child)
            } else {
                pin.hold(child)
            };
        }
    }

    /// Handles the first stop of a child that came before its parent's event.
    fn release_early(&mut self, child: Pid) -> Result<(), EngineError> {
        match self.early.remove(&child.as_raw()) {
            Some((stopped, stop)) => self.stopped(stopped, stop, Instant::now()),
            None => Ok(()),
        }
    }

    /// A program was executed. When another thread than the first one did it, that thread now has the
    /// first one's id.
    pub(super) fn at_exec(&mut self, stopped: Stopped) -> Result<(), EngineError> {
        let tid = stopped.tid();
        let former = match stopped.message() {
            Ok(message) => Pid::from_raw(message as i32),
            Err(error) => return checked("ask for the former id", tid, Err(error)),
        };
        if former != tid
            && let Some(moved) = self.tracees.remove(&former.as_raw())
        {
            self.forget(tid);
            self.tracees.insert(tid.as_raw(), moved);
        }
        let fresh = self.descriptors.fresh();
        if let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) {
            // Descriptors marked close-on-exec are gone, and nobody tells which.
            let before = std::mem::replace(&mut tracee.table, fresh);
            tracee.tgid = tid;
            self.descriptors.release(before);
            let program = &mut self.programs[tracee.program];
            if program.root == tid {
                program.starting = None;
            }
        }
        self.note_lost_rights(tid);
        self.resume(stopped, 0)
    }

    /// Says so when a set-user-ID program ran without the rights it should have.
    fn note_lost_rights(&mut self, tid: Pid) {
        if self.job.may_trace_privileged && !self.job.no_new_privs {
            return;
        }
        let link = self.root.path(&format!("proc/{tid}/exe"));
        let Ok(file) = std::fs::metadata(&link) else {
            return;
        };
        let set_user = file.mode() & libc::S_ISUID != 0 && file.uid() != nix::unistd::getuid().as_raw();
        let set_group = file.mode() & libc::S_ISGID != 0 && file.gid() != nix::unistd::getgid().as_raw();
        if set_user || set_group || crate::sys::process::has_file_capabilities(&link) {
            let path = std::fs::read_link(&link).unwrap_or_default();
            self.notes.insert(format!(
                "{} should run with other rights (set-user-ID, set-group-ID or file capabilities), which the \
                 kernel withholds under an unprivileged tracer; run systally as root to count it as it is",
                escape(&path.to_string_lossy(), 200),
            ));
        }
    }

    /// A thread or process has ended.
    pub(super) fn ended(&mut self, tid: Pid, exit: Exit, now: Instant) -> Result<(), EngineError> {
        if !self.tracees.contains_key(&tid.as_raw()) {
            self.early.remove(&tid.as_raw());
            self.early_ends.insert(tid.as_raw());
            return Ok(());
        }
        let owner = self.tracees.get(&tid.as_raw()).map_or(0, |tracee| tracee.program);
        self.forget(tid);
        let asked_usage = self.job.request.cpu_time || self.ask_usage > 0;
        let program = &mut self.programs[owner];
        if program.root == tid {
            program.exit = Some(exit);
            program.usage = asked_usage.then_some(self.usage);
            program.window.end(now);
            if let Some(child) = program.starting.take() {
                let index = program.index;
                self.start_failed(index, child.start_error_of_dead());
            }
        }
        self.adopt_orphans(owner)
    }

    /// Drops what is known of a thread; the call it was in never returned.
    pub(super) fn forget(&mut self, tid: Pid) {
        let Some(tracee) = self.tracees.remove(&tid.as_raw()) else {
            return;
        };
        if let Some(cut) = tracee.cut {
            cut.failed(&mut self.counts);
        }
        let again = tracee.again.and_then(|again| again.cut).map(|cut| cut.call);
        if let Some(slot) = tracee.call.or(again).and_then(|call| call.slot) {
            self.counts.slot(slot).never_returned();
        }
        self.descriptors.release(tracee.table);
    }

    /// A parent that is killed while it forks never tells of its child, which would wait for ever. After
    /// an end, children that wait are therefore taken as descendants of the program that ended, unless
    /// the kernel still knows a parent that says otherwise.
    fn adopt_orphans(&mut self, ended: usize) -> Result<(), EngineError> {
        let waiting: BTreeSet<i32> = self.early.keys().copied().collect();
        for child in waiting {
            let child = Pid::from_raw(child);
            // One that lives will tell.
            if !self.parent_of(child).is_some_and(|parent| self.traces(parent)) {
                self.adopt_waiting(child, ended)?;
            }
        }
        Ok(())
    }

    /// Takes in every child that still waits: as its parent's, or as one of the program whose process group it
    /// is in. Should somebody tell of it yet, that is put right (`at_fork`).
    pub(super) fn adopt_all_early(&mut self) -> Result<(), EngineError> {
        let waiting: BTreeSet<i32> = self.early.keys().copied().collect();
        for child in waiting {
            let child = Pid::from_raw(child);
            let parent = self.parent_of(child);
            let of_parent = self.tracees.values().find(|tracee| Some(tracee.tgid) == parent);
            let of_group = || {
                let group = nix::unistd::getpgid(Some(child)).ok()?;
                self.programs.iter().position(|program| program.root == group)
            };
            let program = of_parent.map(|tracee| tracee.program).or_else(of_group);
            self.adopt_waiting(child, program.unwrap_or(0))?;
        }
        Ok(())
    }

    fn adopt_waiting(&mut self, child: Pid, program: usize) -> Result<(), EngineError> {
        self.seen += 1;
        let shares = Shares {
            process: false,
            descriptors: false,
        };
        self.adopt(child, None, shares);
        // A thread is its process's.
        let process = self.process_of(child);
        if let Some(tracee) = self.tracees.get_mut(&child.as_raw()) {
            tracee.program = program;
            tracee.tgid = process.unwrap_or(child);
        }
        self.release_early(child)
    }

    /// Whether a process has a thread that is traced here.
    fn traces(&self, process: Pid) -> bool {
        self.tracees.contains_key(&process.as_raw())
            || self.tracees.values().any(|tracee| tracee.tgid == process)
    }

    fn is_alive(&self, tid: Pid) -> bool {
        self.early.contains_key(&tid.as_raw()) || self.root.path(&format!("proc/{tid}")).exists()
    }

    fn process_of(&self, tid: Pid) -> Option<Pid> {
        self.status_field(tid, "Tgid:").map(Pid::from_raw)
    }

    fn parent_of(&self, tid: Pid) -> Option<Pid> {
        // A thread's maker is in its own process.
        match self.process_of(tid)? {
            process if process != tid => Some(process),
            _ => self.status_field(tid, "PPid:").map(Pid::from_raw),
        }
    }

    fn status_field(&self, tid: Pid, name: &str) -> Option<i32> {
        let status = self.root.read(&format!("proc/{tid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }
}
