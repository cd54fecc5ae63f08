//! How a tracer thread starts its programs and brings each past its exec.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::availability;
use super::roles::Role;
use super::state::{InCall, ProgramState, Tracee};
use super::tracing::Tracing;
use crate::engine::start::{self, ChildEnds};
use crate::engine::{EngineError, EngineKind, Pipes};
use crate::sys::process::{PidFd, wait4};
use crate::sys::ptrace::Options;
use crate::sys::spawn::{Child, Setup, StartError, spawn};
use crate::tally::Syscall;
use crate::units::Nanos;

/// A program that has been executed.
pub(super) struct Started {
    /// Its position in the session.
    pub(super) index: usize,
    /// Its process id.
    pub(super) pid: Pid,
    /// A descriptor of it.
    pub(super) pidfd: Option<PidFd>,
    /// Whether it leads a group of its own.
    pub(super) own_group: bool,
    /// systally's ends of its pipes.
    pub(super) pipes: Option<Pipes>,
}

impl Tracing {
    /// Starts all programs of the job and brings each past its exec. After an error nothing of them runs
    /// any more.
    pub(super) fn launch(&mut self) -> Result<Vec<Started>, EngineError> {
        let launched = self.launch_all();
        if launched.is_err() {
            self.kill_all();
            // The first error is the one to report.
            let _ = self.run_to_end();
        }
        launched
    }

    fn launch_all(&mut self) -> Result<Vec<Started>, EngineError> {
        let programs = std::mem::take(&mut self.job.programs);
        // Names that lead nowhere are found before anything runs.
        let images = programs
            .iter()
            .map(|(_, program)| start::image(program))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(pin) = &self.job.pin {
            // Only speed depends on it.
            let _ = pin.hold(Pid::from_raw(0));
        }
        let mut started = Vec::with_capacity(programs.len());
        for ((index, program), image) in programs.iter().zip(&images) {
            let (ours, theirs) = start::pipes(program)?.unzip();
            let setup = Setup {
                stdio: theirs.as_ref().map(ChildEnds::stdio),
                own_group: program.own_group,
                die_with_thread: false,
                mask: self.job.mask,
                hold: true,
                filter: &self.job.filter,
                no_new_privs: self.job.no_new_privs,
            };
            let child = spawn(image, &setup).map_err(|e| start::no_process("start a process", &e))?;
            let pid = child.pid();
            let pidfd = PidFd::open(pid).ok();
            self.attach(*index, child)?;
            started.push(Started {
                index: *index,
                pid,
                pidfd,
                own_group: program.own_group,
                pipes: ours,
            });
        }
        while self.failed.is_none() && self.programs.iter().any(|program| program.starting.is_some()) {
            if !self.step()? {
                break;
            }
        }
        match self.failed.take() {
            None => Ok(started),
            Some((index, error)) => {
                let program = programs
                    .iter()
                    .find(|(i, _)| *i == index)
                    .map(|(_, program)| program);
                Err(match (program, error) {
                    (Some(program), Some(error)) => start::start_error(program, error),
                    _ => EngineError::Broken {
                        engine: EngineKind::Ptrace,
                        what: "a program was killed before it could be executed".to_owned(),
                    },
                })
            }
        }
    }

    /// Attaches to a held child and lets it execute its program.
    fn attach(&mut self, index: usize, child: Child) -> Result<(), EngineError> {
        let pid = child.pid();
        let options = Options {
            follow: true,
            seccomp: !self.job.filter.is_empty(),
            kill_with_tracer: true,
        };
        if let Err(errno) = self.tracer.seize(pid, options) {
            let (why, fix) = availability::why_denied(errno, pid);
            let _ = kill(pid, Signal::SIGKILL);
            let _ = wait4(pid.as_raw(), libc::__WALL, None);
            return Err(EngineError::Denied { why, fix });
        }
        if let Some(observer) = &self.job.observer
            && let Err(error) = observer.held(index, pid)
        {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = wait4(pid.as_raw(), libc::__WALL, None);
            return Err(error);
        }
        if let Some(pin) = &self.job.pin {
            let _ = pin.hold(pid);
        }
        let mut program = ProgramState::new(index, child, self.job.request.window);
        let mut tracee = Tracee {
            tgid: pid,
            program: self.programs.len(),
            table: self.descriptors.fresh(),
            call: None,
            cut: None,
            again: None,
            own_affinity: false,
            polls: 0,
            fresh: false,
        };
        if self.job.filter.is_empty() {
            // Without a filter nothing stops before the exec event, which is inside the call.
            let execve = Syscall::native(libc::SYS_execve);
            tracee.call = Some(InCall {
                number: libc::SYS_execve,
                slot: Some(self.counts.enter(program.window.phase(), execve)),
                role: Role::Exec,
                native: true,
                args: [0; 6],
                entered: Instant::now(),
                system: Nanos(0),
            });
        }
        if let Some(child) = &mut program.starting {
            // A child that died meanwhile is reported by the next wait.
            let _ = child.release();
        }
        self.programs.push(program);
        self.tracees.insert(pid.as_raw(), tracee);
        self.seen += 1;
        Ok(())
    }

    /// A root process ended before it executed its program.
    pub(super) fn start_failed(&mut self, index: usize, error: Option<StartError>) {
        self.failed.get_or_insert((index, error));
    }
}
