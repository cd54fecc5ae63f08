//! System call stops: what is counted at the entry and at the return of a call.

use std::time::Instant;

use super::Pace;
use super::descriptors::Descriptors;
use super::filter::OURS;
use super::memory;
use super::roles::Role;
use super::state::{InCall, ProgramState, Tracee};
use super::tracing::{NEAR_THE_END, Tracing, checked};
use super::transfers::moves;
use super::window::{CLOSING, OPENING};
use crate::engine::EngineError;
use crate::sys::ptrace::{Entry, PtraceError, Stopped, SyscallStop, Until};
use crate::tally::{Abi, Errno, Phase, Syscall};
use crate::units::Nanos;

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Return {
    pub(super) value: i64,
    pub(super) error: Option<Errno>,
}

impl Return {
    fn of(value: i64, failed: bool, role: Role) -> Return {
        // What rt_sigreturn "returns" is the register of the code that the signal interrupted, and may
        // look like an error by chance.
        let failed = failed && role != Role::SignalReturn;
        let error = failed.then(|| Errno(i32::try_from(-value).unwrap_or(i32::MAX)));
        Return { value, error }
    }

    /// A result that is a number of something.
    pub(super) fn count(self) -> Option<u64> {
        if self.error.is_some() {
            None
        } else {
            u64::try_from(self.value).ok()
        }
    }
}

impl Tracing {
    /// A stop at the entry or the return of a call.
    pub(super) fn at_syscall(&mut self, stopped: Stopped, now: Instant) -> Result<(), EngineError> {
        match stopped.syscall() {
            Ok(SyscallStop::Seccomp(entry, data)) if data != OURS => self.refuse(stopped, &entry, now),
            Ok(SyscallStop::Entry(entry) | SyscallStop::Seccomp(entry, _)) => {
                self.enter(stopped, &entry, now)
            }
            Ok(SyscallStop::Exit { result, failed }) => {
                if !self.holds(&stopped, result, failed, now) {
                    self.leave(&stopped, result, failed, now);
                }
                self.resume(stopped, 0)
            }
            Ok(SyscallStop::None) => self.resume(stopped, 0),
            Err(PtraceError::Gone) => Ok(()),
            Err(PtraceError::Failed(source)) => Err(EngineError::System {
                operation: "ask for the system call (needs Linux 5.3)",
                pid: stopped.tid().as_raw(),
                source,
            }),
        }
    }

    /// The program's own filter has asked for a tracer, and for the program there is none: the kernel would
    /// have let the call fail with ENOSYS. It is counted so where it is one of the chosen.
    fn refuse(&mut self, stopped: Stopped, entry: &Entry, now: Instant) -> Result<(), EngineError> {
        let tid = stopped.tid();
        match stopped.refuse() {
            Ok(true) => {}
            Ok(false) => {
                let name = self.name_of(tid);
                self.notes.insert(format!(
                    "{name} has a seccomp filter that asks for a tracer; its calls were made, where untraced they \
                     fail with ENOSYS"
                ));
                return self.enter(stopped, entry, now);
            }
            Err(error) => return checked("let a call fail", tid, Err(error)),
        }
        let mut call = Syscall::from_audit(entry.arch, entry.number);
        if call.abi == Abi::I386 {
            call = call.inside_multiplexer(entry.args[0]);
        }
        let treatment = self.roles.of(call);
        if let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) {
            let program = &self.programs[tracee.program];
            if let Some(slot) = tracee.call.take().and_then(|earlier| earlier.slot) {
                self.counts.slot(slot).never_returned();
            }
            if treatment.counted {
                let slot = self.counts.enter(program.window.phase(), call);
                let error = (self.job.pace == Pace::Detail).then_some(Errno(libc::ENOSYS));
                self.counts.slot(slot).returned(error, Nanos(0), Nanos(0));
            }
            if let Some(observer) = &self.job.observer {
                observer.refused(program.index, call);
            }
        }
        checked("resume", tid, stopped.resume(Until::Event, 0).map(drop))
    }

    fn enter(&mut self, stopped: Stopped, entry: &Entry, now: Instant) -> Result<(), EngineError> {
        let mut call = Syscall::from_audit(entry.arch, entry.number);
        let mut args = entry.args;
        if call.abi == Abi::I386 {
            call = call.inside_multiplexer(args[0]);
            if call.multiplexed_by().is_some() {
                args = multiplexed_arguments(&stopped, args);
            }
        }
        let native = call.abi == Abi::NATIVE;
        let treatment = self.roles.of(call);
        let tid = stopped.tid();
        match treatment.role {
            Role::Confine if native => self.note_confinement(tid, call, &args),
            Role::Clone => self.note_untraced(tid, args[0]),
            Role::Clone3 => {
                let flags = memory::read_array(&stopped, args[0]).map_or(0, u64::from_ne_bytes);
                self.note_untraced(tid, flags);
            }
            _ => {}
        }
        let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) else {
            return Ok(());
        };
        if let Some(again) = tracee.again.take() {
            if native && again.number == entry.number as libc::c_long {
                tracee.call = again.cut.map(|cut| cut.call);
                return self.resume(stopped, 0);
            }
            if let Some(cut) = again.cut {
                cut.failed(&mut self.counts);
            }
        }
        let program = &mut self.programs[tracee.program];

        let entries_only = self.job.pace == Pace::Counts;
        match treatment.role {
            role if role.closes() && !entries_only => closes(&mut self.descriptors, tracee, role, &args),
            Role::Write | Role::WriteVector | Role::Send
                if args[0] == 1 && native && program.window.may_close() =>
            {
                let mut bytes = [0; CLOSING.len()];
                let n = if treatment.role == Role::WriteVector {
                    memory::read_gathered(&stopped, args[1], args[2], &mut bytes)
                } else {
                    let length = usize::try_from(args[2]).unwrap_or(usize::MAX).min(bytes.len());
                    memory::read(&stopped, args[1], &mut bytes[..length])
                };
                program.window.will_write(&bytes[..n], now);
                if let (Phase::Shutdown, Some(observer)) = (program.window.phase(), &self.job.observer) {
                    observer.phase(program.index, Phase::Shutdown);
                }
            }
            Role::ExitGroup if program.root == tracee.tgid => self.ask_usage = NEAR_THE_END,
            _ => {}
        }

        if let Some(slot) = tracee.call.take().and_then(|earlier| earlier.slot) {
            self.counts.slot(slot).never_returned();
        }
        let slot = treatment
            .counted
            .then(|| self.counts.enter(program.window.phase(), call));
        if let (true, Some(slot)) = (entries_only, slot) {
            // No return will be seen, so a call that can come back is taken to have done so.
            let counts = self.counts.slot(slot);
            match treatment.role {
                Role::Exit | Role::ExitGroup => counts.never_returned(),
                _ => counts.returned(None, Nanos(0), Nanos(0)),
            }
        }
        let slot = slot.filter(|_| !entries_only);
        let until = if slot.is_none() && !needs_return(treatment.role, &args, program) {
            if self.job.filter.is_empty() {
                Until::Syscall
            } else {
                Until::Event
            }
        } else {
            tracee.call = Some(InCall {
                slot,
                number: entry.number as libc::c_long,
                role: treatment.role,
                native,
                args,
                entered: Instant::now(),
                system: self.usage.system,
            });
            Until::Syscall
        };
        checked("resume", tid, stopped.resume(until, 0).map(drop))
    }

    pub(super) fn leave(&mut self, stopped: &Stopped, result: i64, failed: bool, now: Instant) {
        let tid = stopped.tid();
        let Some(tracee) = self.tracees.get_mut(&tid.as_raw()) else {
            return;
        };
        let Some(call) = tracee.call.take() else { return };
        let result = Return::of(result, failed, call.role);
        let owner = tracee.owner(tid);
        let program = &mut self.programs[tracee.program];
        if let Some(slot) = call.slot {
            let wall = Nanos::from(now.saturating_duration_since(call.entered));
            let cpu = if self.job.request.cpu_time {
                Nanos(self.usage.system.0.saturating_sub(call.system.0))
            } else {
                Nanos(0)
            };
            self.counts.slot(slot).returned(result.error, wall, cpu);
            self.counts.waited(slot, wall, result.value, result.error);
        }
        match call.role {
            Role::Read => {
                if let (0, true, Some(length)) = (call.args[0], program.window.may_open(), result.count()) {
                    let mut bytes = [0; OPENING];
                    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
                    let n = memory::read(stopped, call.args[1], &mut bytes[..length]);
                    program.window.has_read(&bytes[..n], now);
                    if let (Phase::Loop, Some(observer)) = (program.window.phase(), &self.job.observer) {
                        observer.phase(program.index, Phase::Loop);
                    }
                }
                self.moved(stopped, call, result, owner, now);
            }
            role if moves(role).is_some() => self.moved(stopped, call, result, owner, now),
            Role::Connect => self.connected(stopped, call, result, owner),
            Role::Accept | Role::SocketControl | Role::SetOption => {
                if call.role == Role::Accept
                    && let Some(fd) = result.count()
                {
                    self.descriptors.accepted(tracee.table, fd as i32);
                }
                self.led(stopped, call, result, owner);
            }
            Role::Wait(_) | Role::WaitAt(_) => {
                if let (Some(at), Some(value)) = (call.slot, result.count()) {
                    let no_time = value == 0 && has_no_time(stopped, &call);
                    tracee.polls = if no_time { tracee.polls + 1 } else { 0 };
                    let streak = tracee.polls;
                    self.counts.phase(at.phase()).polled(value, no_time, streak);
                }
            }
            Role::Socket => {
                if let Some(fd) = result.count() {
                    self.descriptors
                        .made(tracee.table, fd as i32, call.args[0], call.args[1]);
                }
            }
            Role::Unshare if result.error.is_none() && call.args[0] & libc::CLONE_FILES as u64 != 0 => {
                let own = self.descriptors.copy(tracee.table);
                let shared = std::mem::replace(&mut tracee.table, own);
                self.descriptors.release(shared);
            }
            Role::GetAffinity => self.show_affinity(stopped, call, result),
            Role::SetAffinity => {
                let target = if call.args[0] == 0 {
                    tid.as_raw()
                } else {
                    call.args[0] as i32
                };
                if result.error.is_none()
                    && let Some(target) = self.tracees.get_mut(&target)
                {
                    target.own_affinity = true;
                }
            }
            Role::Ptrace if result.error == Some(Errno(libc::EPERM)) => {
                let name = self.name_of(tid);
                self.notes.insert(format!(
                    "{name} used ptrace itself, which the kernel refuses (EPERM) while systally traces it"
                ));
            }
            Role::IoUring if result.error.is_none() => {
                let name = self.name_of(tid);
                self.notes.insert(format!(
                    "{name} uses io_uring; operations that go through the ring are not system calls and are not \
                     counted"
                ));
            }
            _ => {}
        }
    }

    /// Puts the mask that the tracee would have had into the answer.
    fn show_affinity(&mut self, stopped: &Stopped, call: InCall, result: Return) {
        let (Some(pin), Some(length)) = (&self.job.pin, result.count()) else {
            return;
        };
        let target = if call.args[0] == 0 {
            stopped.tid().as_raw()
        } else {
            call.args[0] as i32
        };
        let pinned = self
            .tracees
            .get(&target)
            .is_some_and(|tracee| !tracee.own_affinity);
        if pinned {
            let length = usize::try_from(length).unwrap_or(0);
            memory::write(stopped, call.args[2], pin.shown(length));
        }
    }
}

/// Forgets what a call closes. At its entry: when it returns, the number may be another file's already.
fn closes(descriptors: &mut Descriptors, tracee: &mut Tracee, role: Role, args: &[u64; 6]) {
    match role {
        Role::Close => descriptors.forget(tracee.table, args[0] as i32),
        // A descriptor duplicated onto itself stays what it is.
        Role::Duplicate if args[0] as i32 != args[1] as i32 => {
            descriptors.forget(tracee.table, args[1] as i32);
        }
        Role::CloseRange => {
            let flags = args[2] as u32;
            if flags & libc::CLOSE_RANGE_UNSHARE != 0 {
                let own = descriptors.copy(tracee.table);
                descriptors.release(std::mem::replace(&mut tracee.table, own));
            }
            if flags & libc::CLOSE_RANGE_CLOEXEC == 0 {
                descriptors.forget_range(tracee.table, args[0] as u32, args[1] as u32);
            }
        }
        _ => {}
    }
}

/// Whether the return of a call that is not counted has to be seen.
fn needs_return(role: Role, args: &[u64; 6], program: &ProgramState) -> bool {
    match role {
        Role::Read => args[0] == 0 && program.window.may_open(),
        Role::GetAffinity | Role::SetAffinity | Role::Ptrace | Role::IoUring => true,
        _ => false,
    }
}

/// Whether a wait was given no time: its time-out, in an argument or in memory (`struct timeval` and
/// `struct timespec` are two words each), is zero. A wait without a time-out waits for ever.
fn has_no_time(stopped: &Stopped, call: &InCall) -> bool {
    match call.role {
        Role::Wait(argument) => call.args[usize::from(argument)] as i32 == 0,
        Role::WaitAt(argument) if call.native => {
            let at = call.args[usize::from(argument)];
            at != 0 && memory::read_array(stopped, at) == Some([0; 16])
        }
        _ => false,
    }
}

/// The arguments of a call inside `socketcall` are a list of 32-bit words in memory; those of `ipc`
/// follow the inner number.
fn multiplexed_arguments(stopped: &Stopped, args: [u64; 6]) -> [u64; 6] {
    let mut words = [0u8; 24];
    let n = memory::read(stopped, args[1] & 0xffff_ffff, &mut words);
    let mut inner = [0; 6];
    for (argument, word) in inner.iter_mut().zip(words[..n].chunks_exact(4)) {
        *argument = u64::from(word.try_into().map_or(0, u32::from_ne_bytes));
    }
    inner
}
