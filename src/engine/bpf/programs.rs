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

use super::asm::{AsmError, Assembler, Cond, Helper, Label, Op, Reg, Reg::*, Width};
use super::kernel::Kernel;
use super::layout::{Loss, TABLE_NUMBERS, abi, globals, key, phase, state, tally, window};
use crate::sys::bpf::{Instruction, Map};

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

/// At the entry of a call: `sys_enter(struct pt_regs *regs, long id)`.
pub(super) fn enter(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
    let mut asm = Assembler::new();
    let [usual, unusual, other, classified, counted, out] = labels(&mut asm);
    // R7 the task, R9 the number of the call, R1 the state's flags.
    begin(&mut asm, plan.maps, out);
    asm.load(Width::Double, R9, R6, 8);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.jump_if(
        R1,
        Cond::AnyBit,
        state::BEFORE_EXEC | state::RESTARTING | state::IN_CALL,
        unusual,
    );

    asm.bind(usual);
    asm.mov(R1, state::IN_CALL);
    load_phase(&mut asm, plan, out);
    asm.load(Width::Word, R3, R7, plan.kernel.status);
    asm.jump_if(R3, Cond::AnyBit, TS_COMPAT, other);
    asm.jump_if(R9, Cond::AtLeast, TABLE_NUMBERS, other);
    classify_native(&mut asm, plan);
    note_arguments(&mut asm, plan, counted);
    asm.bind(counted);
    asm.store(Width::Word, R8, state::FLAGS, R1);
    asm.bind(classified);
    // The clock is read last, so that the time does not hold our own work.
    asm.call(Helper::KtimeNs);
    asm.store(Width::Double, R8, state::ENTERED, R0);
    asm.bind(out);
    leave(&mut asm);

    asm.bind(other);
    asm.store(Width::Word, R8, state::FLAGS, R1);
    classify_other(&mut asm, plan);
    asm.jump(classified);

    asm.bind(unusual);
    unusual_entry(&mut asm, plan, usual, out);
    asm.finish()
}

/// The rest of an entry whose task is not simply between two calls. `R1` holds the flags.
fn unusual_entry(asm: &mut Assembler, plan: Plan<'_>, usual: Label, out: Label) {
    let [first, nested, calm, again] = labels(asm);
    asm.jump_if(R1, Cond::AnyBit, state::BEFORE_EXEC, first);
    asm.jump_if(R1, Cond::AnyBit, state::IN_CALL, nested);
    asm.bind(calm);
    asm.jump_if(R1, Cond::AnyBit, state::RESTARTING, again);
    asm.jump(usual);

    // Counting begins with the execve that makes the child the program.
    asm.bind(first);
    asm.jump_if(R9, Cond::NotEqual, NR_EXECVE, out);
    asm.jump(usual);

    asm.bind(nested);
    lose(asm, plan.maps, Loss::Nested);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.jump(calm);

    // The task makes another call, so the one that was to be restarted has returned.
    asm.bind(again);
    let [full, done] = labels(asm);
    asm.load(Width::Double, R1, R8, state::RESTART);
    store_key(asm, R1);
    asm.load(Width::Double, R7, R8, state::ELAPSED);
    find_tally(asm, plan.maps, &plan.maps.restarts, full);
    add_call(asm, R7);
    asm.jump(done);
    asm.bind(full);
    lose(asm, plan.maps, Loss::Restart);
    asm.bind(done);
    asm.call(Helper::CurrentTask);
    asm.mov(R7, R0);
    asm.jump(usual);
}

/// Notes what the return program must know of a native call's arguments, and closes the window at the
/// entry of the write that says `done`. `R1` holds the new flags, `R9` the number; falls out at its end.
fn note_arguments(asm: &mut Assembler, plan: Plan<'_>, counted: Label) {
    let [recvfrom, recvmsg, look] = labels(asm);
    let [read, write, writev] = labels(asm);
    asm.jump_if(R9, Cond::Equal, NR_RECVFROM, recvfrom);
    asm.jump_if(R9, Cond::Equal, NR_RECVMSG, recvmsg);
    if plan.markers {
        asm.jump_if(R9, Cond::Equal, NR_READ, read);
        asm.jump_if(R9, Cond::Equal, NR_WRITE, write);
        asm.jump_if(R9, Cond::Equal, NR_SENDTO, write);
        asm.jump_if(R9, Cond::Equal, NR_WRITEV, writev);
    }
    asm.jump(counted);

    asm.bind(recvfrom);
    asm.load(Width::Double, R2, R6, 0);
    asm.load(Width::Word, R3, R2, plan.kernel.argument_4);
    asm.jump(look);
    asm.bind(recvmsg);
    asm.load(Width::Double, R2, R6, 0);
    asm.load(Width::Word, R3, R2, plan.kernel.argument_3);
    asm.bind(look);
    asm.alu(Op::And, R3, libc::MSG_PEEK);
    asm.jump_if(R3, Cond::Equal, 0, counted);
    asm.alu(Op::Or, R1, state::PEEK);
    if plan.markers {
        asm.jump(counted);
        note_markers(asm, plan, [read, write, writev], counted);
    } else {
        // Never jumped to, but a label has to lie somewhere.
        for label in [read, write, writev] {
            asm.bind(label);
        }
    }
}

/// The part of [`note_arguments`] for calls that may be markers.
fn note_markers(asm: &mut Assembler, plan: Plan<'_>, [read, write, writev]: [Label; 3], counted: Label) {
    let kernel = plan.kernel;
    let [text, unreadable, is_done, not_done] = labels(asm);
    asm.bind(read);
    asm.load(Width::Double, R2, R6, 0);
    asm.load(Width::Double, R3, R2, kernel.argument_1);
    asm.jump_if(R3, Cond::NotEqual, 0, counted);
    asm.load(Width::Double, R3, R2, kernel.argument_2);
    asm.store(Width::Double, R8, state::BUFFER, R3);
    asm.alu(Op::Or, R1, state::MAYBE_GO);
    asm.jump(counted);

    // R2 the registers, R3 the length, R4 the text of what is written.
    asm.bind(write);
    asm.load(Width::Double, R2, R6, 0);
    asm.load(Width::Double, R3, R2, kernel.argument_1);
    asm.jump_if(R3, Cond::NotEqual, 1, counted);
    asm.load(Width::Double, R3, R2, kernel.argument_3);
    asm.load(Width::Double, R4, R2, kernel.argument_2);
    asm.bind(text);
    asm.jump_if(R3, Cond::Below, DONE_BYTES, counted);
    asm.store(Width::Double, R8, state::BUFFER, R4);
    asm.store(Width::Double, R10, FLAGS, R1);
    window_address(asm, plan, counted);
    asm.load(Width::Word, R3, R2, window::PHASE);
    asm.jump_if(R3, Cond::NotEqual, phase::LOOP, counted);
    compare_with_done(asm, unreadable, not_done, is_done);

    // What is gathered from several places: only the first can be the beginning of the line.
    asm.bind(writev);
    asm.load(Width::Double, R2, R6, 0);
    asm.load(Width::Double, R3, R2, kernel.argument_1);
    asm.jump_if(R3, Cond::NotEqual, 1, counted);
    asm.load(Width::Double, R3, R2, kernel.argument_2);
    asm.store(Width::Double, R10, FLAGS, R1);
    asm.store(Width::Double, R10, TEXT, 0);
    asm.store(Width::Double, R10, TEXT + 8, 0);
    address(asm, R1, TEXT);
    asm.mov(R2, 16);
    asm.call(Helper::ProbeReadUser);
    let [readable] = labels(asm);
    asm.jump_if(R0, Cond::Equal, 0, readable);
    lose(asm, plan.maps, Loss::Marker);
    asm.bind(readable);
    asm.load(Width::Double, R1, R10, FLAGS);
    asm.load(Width::Double, R4, R10, TEXT);
    asm.load(Width::Double, R3, R10, TEXT + 8);
    asm.jump(text);

    // A page that is not in memory can be read when the call itself has brought it in.
    asm.bind(unreadable);
    asm.load(Width::Double, R1, R10, FLAGS);
    asm.alu(Op::Or, R1, state::MAYBE_DONE);
    asm.jump(counted);

    asm.bind(is_done);
    asm.call(Helper::KtimeNs);
    close_window(asm, plan, not_done);
    asm.mov(R4, phase::SHUTDOWN);
    classify_native(asm, plan);
    asm.bind(not_done);
    asm.load(Width::Double, R1, R10, FLAGS);
}

/// At the return of a call: `sys_exit(struct pt_regs *regs, long ret)`.
pub(super) fn leave_call(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
    let mut asm = Assembler::new();
    let [seen, returned, count, found, other, restart, marker, lost, out] = labels(&mut asm);
    begin(&mut asm, plan.maps, out);
    // R9 the result, R7 the time in the call.
    asm.load(Width::Double, R9, R6, 8);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.jump_if(R1, Cond::AnyBit, state::IN_CALL, seen);
    unseen_entry(&mut asm, plan, returned, out);

    asm.bind(seen);
    asm.call(Helper::KtimeNs);
    asm.load(Width::Double, R1, R8, state::ENTERED);
    asm.mov(R7, R0);
    asm.alu(Op::Sub, R7, R1);
    asm.mov(R1, R9);
    asm.alu(Op::Add, R1, RESTART_LAST);
    asm.jump_if(R1, Cond::AtMost, RESTART_LAST - RESTART_FIRST, restart);
    asm.bind(returned);
    if plan.markers {
        asm.load(Width::Word, R1, R8, state::FLAGS);
        asm.jump_if(R1, Cond::AnyBit, state::MAYBE_GO | state::MAYBE_DONE, marker);
    } else {
        asm.bind(marker);
    }

    asm.bind(count);
    asm.load(Width::Word, R1, R8, state::PLACE);
    asm.jump_if(R1, Cond::AtLeast, plan.table_length(), other);
    asm.store(Width::Word, R10, INDEX, R1);
    asm.map(R1, &plan.maps.table);
    address(&mut asm, R2, INDEX);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::Equal, 0, lost);
    asm.bind(found);
    add_result(&mut asm, plan, out);
    asm.bind(out);
    leave(&mut asm);

    asm.bind(other);
    asm.mov(R1, 0);
    store_key(&mut asm, R1);
    find_tally(&mut asm, plan.maps, &plan.maps.others, lost);
    asm.jump(found);
    asm.bind(lost);
    lose(&mut asm, plan.maps, Loss::Call);
    clear_call(&mut asm);
    asm.jump(out);

    // Whether the call comes back to the program is known at the task's next call, or at its end.
    asm.bind(restart);
    asm.jump_if(R9, Cond::Equal, -NOT_RESTART, returned);
    asm.negate(R9);
    asm.store(Width::Double, R8, state::RESTART, R9);
    asm.store(Width::Double, R8, state::ELAPSED, R7);
    asm.store(Width::Word, R8, state::FLAGS, state::RESTARTING);
    asm.jump(out);

    if plan.markers {
        asm.bind(marker);
        marker_returned(&mut asm, plan, count);
    }
    asm.finish()
}

/// A return without an entry: the birth of a task, or a call that its own seccomp filter refused before
/// the entry tracepoint. The latter is counted, as strace does, but has no time.
fn unseen_entry(asm: &mut Assembler, plan: Plan<'_>, returned: Label, out: Label) {
    let [newborn, other, stored] = labels(asm);
    asm.jump_if(R1, Cond::AnyBit, state::BEFORE_EXEC, out);
    asm.jump_if(R1, Cond::AnyBit, state::NEWBORN, newborn);
    asm.store(Width::Word, R8, state::FLAGS, state::REFUSED);
    asm.store(Width::Double, R10, TEXT, R9);
    asm.load(Width::Double, R2, R6, 0);
    asm.load(Width::Double, R9, R2, plan.kernel.number);
    // A number is an int; what stands above it in the register means nothing.
    asm.alu(Op::ShiftLeft, R9, 32);
    asm.alu(Op::ShiftRightSigned, R9, 32);
    load_phase(asm, plan, out);
    asm.load(Width::Word, R3, R7, plan.kernel.status);
    asm.jump_if(R3, Cond::AnyBit, TS_COMPAT, other);
    asm.jump_if(R9, Cond::AtLeast, TABLE_NUMBERS, other);
    classify_native(asm, plan);
    asm.jump(stored);
    asm.bind(other);
    classify_other(asm, plan);
    asm.bind(stored);
    asm.load(Width::Double, R9, R10, TEXT);
    asm.mov(R7, 0);
    asm.jump(returned);

    asm.bind(newborn);
    clear_call(asm);
    asm.jump(out);
}

/// Opens the window after the read that returned `go`, and closes it late when the text of the write
/// could not be read at its entry. `R1` holds the flags.
fn marker_returned(asm: &mut Assembler, plan: Plan<'_>, count: Label) {
    let [late, short, unreadable, go, is_done] = labels(asm);
    asm.jump_if(R1, Cond::AnyBit, state::MAYBE_DONE, late);
    asm.jump_if(R9, Cond::SignedBelow, GO_BYTES, count);
    window_address(asm, plan, count);
    asm.load(Width::Word, R1, R2, window::PHASE);
    asm.jump_if(R1, Cond::Equal, phase::LOOP, count);
    asm.store(Width::Double, R10, TEXT, 0);
    address(asm, R1, TEXT);
    asm.mov(R2, GO_BYTES);
    asm.jump_if(R9, Cond::Equal, GO_BYTES, short);
    asm.mov(R2, GO_BYTES + 1);
    asm.bind(short);
    asm.load(Width::Double, R3, R8, state::BUFFER);
    asm.call(Helper::ProbeReadUser);
    asm.jump_if(R0, Cond::NotEqual, 0, unreadable);
    asm.load(Width::Word, R1, R10, TEXT);
    for end in [0, '\n' as i32, '\r' as i32] {
        asm.jump_if(R1, Cond::Equal, GO | end << 16, go);
    }
    asm.jump(count);
    asm.bind(go);
    window_address(asm, plan, count);
    asm.store(Width::Word, R2, window::PHASE, phase::LOOP);
    asm.load(Width::Double, R1, R8, state::ENTERED);
    asm.alu(Op::Add, R1, R7);
    asm.store(Width::Double, R2, window::OPENED, R1);
    asm.jump(count);

    asm.bind(late);
    asm.jump_if(R9, Cond::SignedBelow, 0, count);
    compare_with_done(asm, unreadable, count, is_done);
    asm.bind(is_done);
    asm.load(Width::Double, R0, R8, state::ENTERED);
    close_window(asm, plan, count);
    asm.load(Width::Double, R3, R8, state::NUMBER);
    asm.alu(Op::Add, R3, phase::SHUTDOWN * TABLE_NUMBERS);
    asm.store(Width::Word, R8, state::PLACE, R3);
    asm.store(Width::Word, R8, state::KIND, phase::SHUTDOWN);
    asm.jump(count);

    asm.bind(unreadable);
    lose(asm, plan.maps, Loss::Marker);
    asm.jump(count);
}

/// Adds a returned call to the tally in `R0`: `R9` is the result, `R7` the time.
fn add_result(asm: &mut Assembler, plan: Plan<'_>, out: Label) {
    let [failed, peeked, refused, timed, again, new, full, done] = labels(asm);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.jump_if(R1, Cond::AnyBit, state::REFUSED, refused);
    add_call(asm, R7);
    asm.bind(timed);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.mov(R2, R9);
    asm.alu(Op::Add, R2, MAX_ERRNO);
    asm.jump_if(R2, Cond::Below, MAX_ERRNO, failed);
    asm.jump_if(R1, Cond::AnyBit, state::PEEK, peeked);
    add(asm, R0, tally::SUM, R9);
    asm.bind(done);
    clear_call(asm);
    asm.jump(out);

    asm.bind(refused);
    increment(asm, R0, tally::CALLS);
    asm.jump(timed);
    asm.bind(peeked);
    increment(asm, R0, tally::PEEKS);
    asm.jump(done);

    asm.bind(failed);
    asm.jump_if(R9, Cond::Equal, -libc::EAGAIN, again);
    asm.mov(R1, R9);
    asm.negate(R1);
    store_key(asm, R1);
    asm.map(R1, &plan.maps.errors);
    address(asm, R2, KEY);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::Equal, 0, new);
    increment(asm, R0, 0);
    asm.jump(done);
    asm.bind(again);
    increment(asm, R0, tally::AGAIN);
    asm.jump(done);
    asm.bind(new);
    insert_one(asm, &plan.maps.errors, UPDATE_ANY);
    asm.jump_if(R0, Cond::NotEqual, 0, full);
    asm.jump(done);
    asm.bind(full);
    lose(asm, plan.maps, Loss::Errno);
    asm.jump(done);
}

/// At the birth of a task: `sched_process_fork(struct task_struct *parent, struct task_struct *child)`.
pub(super) fn fork(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
    let mut asm = Assembler::new();
    let [lost, out] = labels(&mut asm);
    asm.mov(R6, R1);
    asm.load(Width::Double, R2, R6, 0);
    storage(&mut asm, plan.maps, 0);
    asm.jump_if(R0, Cond::Equal, 0, out);
    asm.mov(R8, R0);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.jump_if(R1, Cond::AnyBit, state::BEFORE_EXEC, out);
    asm.load(Width::Double, R2, R6, 8);
    storage(&mut asm, plan.maps, STORAGE_CREATE);
    asm.jump_if(R0, Cond::Equal, 0, lost);
    asm.load(Width::Word, R1, R8, state::PROGRAM);
    asm.store(Width::Word, R0, state::PROGRAM, R1);
    asm.store(Width::Word, R0, state::FLAGS, state::NEWBORN);
    add_global(&mut asm, plan.maps, globals::LIVE, 1);
    add_global(&mut asm, plan.maps, globals::SEEN, 1);
    asm.bind(out);
    leave(&mut asm);

    asm.bind(lost);
    lose(&mut asm, plan.maps, Loss::Task);
    asm.jump(out);
    asm.finish()
}

/// At the end of a task: `sched_process_exit(struct task_struct *task, …)`. A call that it is in, or whose
/// return never reached the program, is unfinished.
pub(super) fn end(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
    let mut asm = Assembler::new();
    let [unfinished, new, full, counted, out] = labels(&mut asm);
    asm.mov(R6, R1);
    asm.load(Width::Double, R2, R6, 0);
    storage(&mut asm, plan.maps, 0);
    asm.jump_if(R0, Cond::Equal, 0, out);
    asm.mov(R8, R0);
    asm.load(Width::Word, R1, R8, state::FLAGS);
    asm.jump_if(R1, Cond::AnyBit, state::IN_CALL | state::RESTARTING, unfinished);
    asm.bind(counted);
    asm.store(Width::Word, R8, state::FLAGS, 0);
    // Last: who sees that no task lives may read the tallies.
    add_global(&mut asm, plan.maps, globals::LIVE, -1);
    asm.bind(out);
    leave(&mut asm);

    asm.bind(unfinished);
    asm.mov(R1, 0);
    store_key(&mut asm, R1);
    let [again] = labels(&mut asm);
    asm.bind(again);
    asm.map(R1, &plan.maps.unfinished);
    address(&mut asm, R2, KEY);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::Equal, 0, new);
    asm.mov(R1, 1);
    asm.atomic_add(R0, 0, R1);
    asm.jump(counted);
    asm.bind(new);
    insert_one(&mut asm, &plan.maps.unfinished, UPDATE_NEW);
    asm.jump_if(R0, Cond::Equal, 0, counted);
    // Another CPU may have been first.
    asm.map(R1, &plan.maps.unfinished);
    address(&mut asm, R2, KEY);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::Equal, 0, full);
    asm.mov(R1, 1);
    asm.atomic_add(R0, 0, R1);
    asm.jump(counted);
    asm.bind(full);
    lose(&mut asm, plan.maps, Loss::Unfinished);
    asm.jump(counted);
    asm.finish()
}

impl Plan<'_> {
    /// Tallies in the table: for each phase there is, one for each number.
    pub(super) fn table_length(self) -> i32 {
        TABLE_NUMBERS * if self.markers { phase::COUNT } else { 1 }
    }
}

fn labels<const N: usize>(asm: &mut Assembler) -> [Label; N] {
    std::array::from_fn(|_| asm.label())
}

/// `R6` = context, `R7` = current task, `R8` = its state; leaves when it has none.
fn begin(asm: &mut Assembler, maps: &Maps, out: Label) {
    asm.mov(R6, R1);
    asm.call(Helper::CurrentTask);
    asm.mov(R7, R0);
    asm.mov(R2, R0);
    storage(asm, maps, 0);
    asm.jump_if(R0, Cond::Equal, 0, out);
    asm.mov(R8, R0);
}

/// `R0` = storage of the task in `R2`, or null.
fn storage(asm: &mut Assembler, maps: &Maps, flags: i32) {
    asm.map(R1, &maps.tasks);
    asm.mov(R3, 0);
    asm.mov(R4, flags);
    asm.call(Helper::TaskStorageGet);
}

/// Ends the program. A program on a tracepoint has to return 0.
fn leave(asm: &mut Assembler) {
    asm.mov(R0, 0);
    asm.exit();
}

/// `dst` = address of a place on the stack.
fn address(asm: &mut Assembler, dst: Reg, place: i16) {
    asm.mov(dst, R10);
    asm.alu(Op::Add, dst, i32::from(place));
}

/// `R2` = address of the window of this task's program. Uses `R3`.
fn window_address(asm: &mut Assembler, plan: Plan<'_>, impossible: Label) {
    asm.load(Width::Word, R3, R8, state::PROGRAM);
    asm.jump_if(R3, Cond::AtLeast, plan.programs, impossible);
    asm.alu(Op::Mul, R3, window::BYTES);
    asm.value(R2, &plan.maps.globals, globals::WINDOWS);
    asm.alu(Op::Add, R2, R3);
}

/// `R4` = the phase of this task's program. Uses `R2` and `R3`.
fn load_phase(asm: &mut Assembler, plan: Plan<'_>, impossible: Label) {
    if plan.markers {
        window_address(asm, plan, impossible);
        asm.load(Width::Word, R4, R2, window::PHASE);
    } else {
        asm.mov(R4, phase::LOOP);
    }
}

/// Closes the window of this task's program at the time in `R0`. Uses `R2` and `R3`.
fn close_window(asm: &mut Assembler, plan: Plan<'_>, impossible: Label) {
    window_address(asm, plan, impossible);
    asm.store(Width::Word, R2, window::PHASE, phase::SHUTDOWN);
    asm.load(Width::Double, R3, R2, window::OPENED);
    asm.alu(Op::Sub, R0, R3);
    add(asm, R2, window::LENGTH, R0);
}

/// Notes a call of the native ABI with the number in `R9` in the phase in `R4`.
fn classify_native(asm: &mut Assembler, plan: Plan<'_>) {
    asm.store(Width::Double, R8, state::NUMBER, R9);
    asm.store(Width::Word, R8, state::KIND, R4);
    if plan.markers {
        asm.alu(Op::Mul, R4, TABLE_NUMBERS);
        asm.alu(Op::Add, R4, R9);
        asm.store(Width::Word, R8, state::PLACE, R4);
    } else {
        asm.store(Width::Word, R8, state::PLACE, R9);
    }
}

/// Notes a call that is not in the table: number in `R9`, phase in `R4`, the task's thread status in `R3`.
fn classify_other(asm: &mut Assembler, plan: Plan<'_>) {
    let [i386, multiplexer, number] = labels(asm);
    asm.mov(R2, R9);
    asm.jump_if(R3, Cond::AnyBit, TS_COMPAT, i386);
    // x32 numbers have bit 30 set and nothing above it.
    asm.mov(R3, R9);
    asm.alu(Op::ShiftRight, R3, 30);
    asm.jump_if(R3, Cond::NotEqual, 1, number);
    asm.alu(Op::Or, R4, abi::X32 << key::ABI_SHIFT);
    asm.alu(Op::And, R2, !X32_BIT);
    asm.jump(number);
    asm.bind(i386);
    asm.alu(Op::Or, R4, abi::I386 << key::ABI_SHIFT);
    for outer in MULTIPLEXERS {
        asm.jump_if(R9, Cond::Equal, outer, multiplexer);
    }
    asm.jump(number);
    // The real call is the first argument; it goes to the upper half of the number.
    asm.bind(multiplexer);
    asm.load(Width::Double, R3, R6, 0);
    asm.load(Width::Word, R3, R3, plan.kernel.i386_argument_1);
    asm.alu(Op::And, R3, 0xffff);
    asm.alu(Op::ShiftLeft, R3, 32);
    asm.alu(Op::Or, R2, R3);
    asm.bind(number);
    asm.store(Width::Double, R8, state::NUMBER, R2);
    asm.store(Width::Word, R8, state::KIND, R4);
    asm.store(Width::Word, R8, state::PLACE, -1);
}

/// Reads the buffer of a write and compares it with the beginning of the `done` line. Falls to nothing:
/// one of the labels is jumped to.
fn compare_with_done(asm: &mut Assembler, unreadable: Label, not_done: Label, is_done: Label) {
    let [first, rest] = DONE.map(u64::from_le_bytes);
    asm.store(Width::Double, R10, TEXT, 0);
    asm.store(Width::Double, R10, TEXT + 8, 0);
    address(asm, R1, TEXT);
    asm.mov(R2, DONE_BYTES);
    asm.load(Width::Double, R3, R8, state::BUFFER);
    asm.call(Helper::ProbeReadUser);
    asm.jump_if(R0, Cond::NotEqual, 0, unreadable);
    asm.load(Width::Double, R1, R10, TEXT);
    asm.constant(R2, first);
    asm.jump_if(R1, Cond::NotEqual, R2, not_done);
    asm.load(Width::Double, R1, R10, TEXT + 8);
    asm.constant(R2, rest);
    asm.jump_if(R1, Cond::NotEqual, R2, not_done);
    asm.jump(is_done);
}

/// Puts the key of the task's call, with the errno in `errno`, on the stack.
fn store_key(asm: &mut Assembler, errno: Reg) {
    asm.load(Width::Double, R2, R8, state::NUMBER);
    asm.store(Width::Double, R10, KEY, R2);
    asm.load(Width::Word, R2, R8, state::KIND);
    asm.alu(Op::ShiftLeft, errno, key::ERRNO_SHIFT);
    asm.alu(Op::Or, R2, errno);
    asm.store(Width::Double, R10, KEY + 8, R2);
}

/// `R0` = tally of the key on the stack, made when it is new.
fn find_tally(asm: &mut Assembler, maps: &Maps, map: &Map, full: Label) {
    let [found] = labels(asm);
    asm.map(R1, map);
    address(asm, R2, KEY);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::NotEqual, 0, found);
    asm.map(R1, map);
    address(asm, R2, KEY);
    asm.value(R3, &maps.globals, globals::ZEROES);
    asm.mov(R4, UPDATE_NEW);
    asm.call(Helper::MapUpdate);
    asm.map(R1, map);
    address(asm, R2, KEY);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::Equal, 0, full);
    asm.bind(found);
}

/// Sets the key on the stack to 1. `R0` is 0 when that worked.
fn insert_one(asm: &mut Assembler, map: &Map, flags: i32) {
    asm.store(Width::Double, R10, ONE, 1);
    asm.map(R1, map);
    address(asm, R2, KEY);
    address(asm, R3, ONE);
    asm.mov(R4, flags);
    asm.call(Helper::MapUpdate);
}

/// Adds one call of the duration in `elapsed` to the tally in `R0`. Uses `R1` to `R3`.
fn add_call(asm: &mut Assembler, elapsed: Reg) {
    increment(asm, R0, tally::CALLS);
    add(asm, R0, tally::TIME, elapsed);
    // R2 = log2 of the duration, by halves.
    asm.mov(R1, elapsed);
    asm.mov(R2, 0);
    for bits in [32, 16, 8, 4, 2, 1] {
        let [smaller] = labels(asm);
        asm.mov(R3, R1);
        asm.alu(Op::ShiftRight, R3, bits);
        asm.jump_if(R3, Cond::Equal, 0, smaller);
        asm.mov(R1, R3);
        asm.alu(Op::Add, R2, bits);
        asm.bind(smaller);
    }
    let [first, inside] = labels(asm);
    asm.jump_if(R2, Cond::Below, tally::FIRST_LOG2, first);
    asm.alu(Op::Sub, R2, tally::FIRST_LOG2);
    asm.jump_if(R2, Cond::Below, tally::BUCKETS, inside);
    asm.mov(R2, tally::BUCKETS - 1);
    asm.jump(inside);
    asm.bind(first);
    asm.mov(R2, 0);
    asm.bind(inside);
    asm.alu(Op::ShiftLeft, R2, 3);
    asm.mov(R1, R0);
    asm.alu(Op::Add, R1, R2);
    increment(asm, R1, tally::TIMES);
}

/// `*(base + offset) += src`. Uses `R3`.
fn add(asm: &mut Assembler, base: Reg, offset: i16, src: Reg) {
    asm.load(Width::Double, R3, base, offset);
    asm.alu(Op::Add, R3, src);
    asm.store(Width::Double, base, offset, R3);
}

/// `*(base + offset) += 1`. Uses `R3`.
fn increment(asm: &mut Assembler, base: Reg, offset: i16) {
    asm.load(Width::Double, R3, base, offset);
    asm.alu(Op::Add, R3, 1);
    asm.store(Width::Double, base, offset, R3);
}

/// Adds to a counter of the globals. Uses `R1` and `R2`.
fn add_global(asm: &mut Assembler, maps: &Maps, offset: i32, by: i32) {
    asm.value(R1, &maps.globals, offset);
    asm.mov(R2, by);
    asm.atomic_add(R1, 0, R2);
}

/// Counts a loss. Uses `R1` and `R2`.
fn lose(asm: &mut Assembler, maps: &Maps, loss: Loss) {
    add_global(asm, maps, loss.offset(), 1);
}

/// The task is between two calls.
fn clear_call(asm: &mut Assembler) {
    asm.store(Width::Word, R8, state::FLAGS, 0);
}
