//! What is known of each thread and each program while they run.

use std::time::Instant;

use nix::unistd::Pid;

use super::counts::SlotRef;
use super::descriptors::{Owner, TableId};
use super::roles::Role;
use super::window::WindowState;
use crate::engine::{Exit, Window};
use crate::sys::process::Usage;
use crate::sys::spawn::Child;
use crate::units::Nanos;

/// One traced thread.
#[derive(Debug)]
pub(super) struct Tracee {
    /// Its process.
    pub(super) tgid: Pid,
    /// The program it descends from.
    pub(super) program: usize,
    /// Its descriptor table.
    pub(super) table: TableId,
    /// The call it is in.
    pub(super) call: Option<InCall>,
    /// A call that has returned EINTR, held until it is known why (`ignored`).
    pub(super) cut: Option<Cut>,
    /// A call that is about to be made again.
    pub(super) again: Option<Again>,
    /// Whether it has set its affinity itself, which is then left alone and shown as it is.
    pub(super) own_affinity: bool,
    /// Waits in a row that were given no time and reported nothing.
    pub(super) polls: u64,
    /// Whether it was attached to and has not stopped since.
    pub(super) fresh: bool,
}

impl Tracee {
    /// Whose descriptors these are.
    pub(super) fn owner(&self, tid: Pid) -> Owner {
        Owner { tid, tgid: self.tgid }
    }
}

/// A return with EINTR whose reason is not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// The call.
    pub(super) call: InCall,
    /// When it returned.
    pub(super) at: Instant,
}

/// A call that the kernel makes again after a signal that the program ignores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    /// Its native number.
    pub(super) number: libc::c_long,
    /// How it was cut short, where its return was seen.
    pub(super) cut: Option<Cut>,
}

/// A call that was entered and has not returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct InCall {
    /// Where it is counted; `None` when it is only looked at.
    pub(super) slot: Option<SlotRef>,
    /// Its number in its own ABI.
    pub(super) number: libc::c_long,
    /// What it means.
    pub(super) role: Role,
    /// Whether it was made by the native ABI, whose structures in memory are known.
    pub(super) native: bool,
    /// Its arguments.
    pub(super) args: [u64; 6],
    /// When the tracee was let into the kernel.
    pub(super) entered: Instant,
    /// System CPU time of its process at the entry.
    pub(super) system: Nanos,
}

/// One program that was launched, with everything that descends from it.
#[derive(Debug)]
pub(super) struct ProgramState {
    /// Its position among all programs of the session.
    pub(super) index: usize,
    /// The process that was launched.
    pub(super) root: Pid,
    /// Until it has executed its program.
    pub(super) starting: Option<Child>,
    /// The measured window.
    pub(super) window: WindowState,
    /// How the root ended.
    pub(super) exit: Option<Exit>,
    /// CPU time at the end of the root.
    pub(super) usage: Option<Usage>,
}

impl ProgramState {
    /// A program that was just forked.
    pub(super) fn new(index: usize, child: Child, window: Window) -> ProgramState {
        ProgramState {
            index,
            root: child.pid(),
            starting: Some(child),
            window: WindowState::new(window),
            exit: None,
            usage: None,
        }
    }

    /// A process that was running already.
    pub(super) fn attached(index: usize, root: Pid) -> ProgramState {
        ProgramState {
            index,
            root,
            starting: None,
            window: WindowState::new(Window::Whole),
            exit: None,
            usage: None,
        }
    }
}
