//! The four programs that count in the kernel: at the entry and the return of every system call, at the
//! birth and at the end of every task.
//!
//! Each begins by asking for the task's storage; a task that is not followed has none, and the program
//! ends there. What several programs or CPUs write is written by atomic additions. A tally is per CPU and
//! written by one program only, which the kernel never runs twice at a time on one CPU (and counts when it
//! had to skip it), so tallies need none.
//!
//! In all of them `R6` is the context (the tracepoint's arguments, eight bytes each) and `R8` the task's
//! state. The text of a program is in the order of its instructions; what happens rarely stands behind
//! the end of the usual path.

mod enter;
mod leave;
mod pieces;
mod tasks;

use super::asm::{AsmError, Assembler, Cond, Helper, Label, Op, Reg, Reg::*, Width};
use super::kernel::Kernel;
use super::layout::{Loss, TABLE_NUMBERS, abi, globals, key, phase, state, tally, window};
use crate::sys::bpf::{Instruction, Map};

pub(super) use enter::enter;
pub(super) use leave::leave_call;
pub(super) use tasks::{end, fork};

/// The maps that programs use.
#[derive(Debug)]
pub(super) struct Maps {
    /// State of each task.
    pub(super) tasks: Map,
    /// One value: counters and the phase of each program.
    pub(super) globals: Map,
    /// Tallies of native calls by phase and number, per CPU.
    pub(super) table: Map,
    /// Tallies of the others by key, per CPU.
    pub(super) others: Map,
    /// Failures by key, per CPU.
    pub(super) errors: Map,
    /// Tallies of calls that returned to be restarted, by key with the restart code, per CPU.
    pub(super) restarts: Map,
    /// Calls that never returned, by key.
    pub(super) unfinished: Map,
}

/// What the programs are written for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan<'a> {
    /// Where the kernel keeps what they read.
    pub(super) kernel: &'a Kernel,
    /// The maps.
    pub(super) maps: &'a Maps,
    /// How many programs are counted.
    pub(super) programs: i32,
    /// Whether the markers of the worker contract divide a run into phases. Without them all is loop.
    pub(super) markers: bool,
}

impl Plan<'_> {
    /// Tallies in the table: for each phase there is, one for each number.
    pub(super) fn table_length(self) -> i32 {
        TABLE_NUMBERS * if self.markers { phase::COUNT } else { 1 }
    }
}

const NR_READ: i32 = libc::SYS_read as i32;
const NR_WRITE: i32 = libc::SYS_write as i32;
const NR_RECVFROM: i32 = libc::SYS_recvfrom as i32;
const NR_RECVMSG: i32 = libc::SYS_recvmsg as i32;
const NR_WRITEV: i32 = libc::SYS_writev as i32;
const NR_SENDTO: i32 = libc::SYS_sendto as i32;
const NR_EXECVE: i32 = libc::SYS_execve as i32;
/// `TS_COMPAT` of arch/x86/include/asm/thread_info.h: the call was made by the i386 convention.
const TS_COMPAT: i32 = 2;
/// `socketcall` and `ipc` of the i386 table.
const MULTIPLEXERS: [i32; 2] = [102, 117];
const X32_BIT: i32 = 0x4000_0000;
/// Restart codes are 512 to 516 without 515 (include/linux/errno.h).
const RESTART_FIRST: i32 = 512;
const RESTART_LAST: i32 = 516;
const NOT_RESTART: i32 = 515;
/// Greatest error number (include/linux/err.h).
const MAX_ERRNO: i32 = 4095;
const STORAGE_CREATE: i32 = 1;
const UPDATE_ANY: i32 = 0;
const UPDATE_NEW: i32 = 1;

/// How the line that closes the window begins: its first eight bytes and the other seven.
const DONE: [[u8; 8]; 2] = [*b"{\"event\"", *b":\"done\"\0"];
const DONE_BYTES: i32 = 15;
/// The word that opens it, alone or followed by the end of its line.
const GO: i32 = u16::from_le_bytes(*b"go") as i32;
const GO_BYTES: i32 = 2;

/// Places on the stack, counted from its end: a key, text read from user space, and single values.
const KEY: i16 = -16;
const TEXT: i16 = -32;
const FLAGS: i16 = -40;
const INDEX: i16 = -48;
const ONE: i16 = -56;
