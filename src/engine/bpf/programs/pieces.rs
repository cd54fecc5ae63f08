//! What the programs share: short runs of instructions, each with what it leaves in which register.

use super::*;

pub(super) fn labels<const N: usize>(asm: &mut Assembler) -> [Label; N] {
    std::array::from_fn(|_| asm.label())
}

/// `R6` = context, `R7` = current task, `R8` = its state; leaves when it has none.
pub(super) fn begin(asm: &mut Assembler, maps: &Maps, out: Label) {
    asm.mov(R6, R1);
    asm.call(Helper::CurrentTask);
    asm.mov(R7, R0);
    asm.mov(R2, R0);
    storage(asm, maps, 0);
    asm.jump_if(R0, Cond::Equal, 0, out);
    asm.mov(R8, R0);
}

/// `R0` = storage of the task in `R2`, or null.
pub(super) fn storage(asm: &mut Assembler, maps: &Maps, flags: i32) {
    asm.map(R1, &maps.tasks);
    asm.mov(R3, 0);
    asm.mov(R4, flags);
    asm.call(Helper::TaskStorageGet);
}

/// Ends the program. A program on a tracepoint has to return 0.
pub(super) fn leave(asm: &mut Assembler) {
    asm.mov(R0, 0);
    asm.exit();
}

/// `dst` = address of a place on the stack.
pub(super) fn address(asm: &mut Assembler, dst: Reg, place: i16) {
    asm.mov(dst, R10);
    asm.alu(Op::Add, dst, i32::from(place));
}

/// `R2` = address of the window of this task's program. Uses `R3`.
pub(super) fn window_address(asm: &mut Assembler, plan: Plan<'_>, impossible: Label) {
    asm.load(Width::Word, R3, R8, state::PROGRAM);
    asm.jump_if(R3, Cond::AtLeast, plan.programs, impossible);
    asm.alu(Op::Mul, R3, window::BYTES);
    asm.value(R2, &plan.maps.globals, globals::WINDOWS);
    asm.alu(Op::Add, R2, R3);
}

/// `R4` = the phase of this task's program. Uses `R2` and `R3`.
pub(super) fn load_phase(asm: &mut Assembler, plan: Plan<'_>, impossible: Label) {
    if plan.markers {
        window_address(asm, plan, impossible);
        asm.load(Width::Word, R4, R2, window::PHASE);
    } else {
        asm.mov(R4, phase::LOOP);
    }
}

/// Closes the window of this task's program at the time in `R0`. Uses `R2` and `R3`.
pub(super) fn close_window(asm: &mut Assembler, plan: Plan<'_>, impossible: Label) {
    window_address(asm, plan, impossible);
    asm.store(Width::Word, R2, window::PHASE, phase::SHUTDOWN);
    asm.load(Width::Double, R3, R2, window::OPENED);
    asm.alu(Op::Sub, R0, R3);
    add(asm, R2, window::LENGTH, R0);
}

/// Notes a call of the native ABI with the number in `R9` in the phase in `R4`.
pub(super) fn classify_native(asm: &mut Assembler, plan: Plan<'_>) {
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
pub(super) fn classify_other(asm: &mut Assembler, plan: Plan<'_>) {
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
pub(super) fn compare_with_done(asm: &mut Assembler, unreadable: Label, not_done: Label, is_done: Label) {
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
pub(super) fn store_key(asm: &mut Assembler, errno: Reg) {
    asm.load(Width::Double, R2, R8, state::NUMBER);
    asm.store(Width::Double, R10, KEY, R2);
    asm.load(Width::Word, R2, R8, state::KIND);
    asm.alu(Op::ShiftLeft, errno, key::ERRNO_SHIFT);
    asm.alu(Op::Or, R2, errno);
    asm.store(Width::Double, R10, KEY + 8, R2);
}

/// `R0` = tally of the key on the stack, made when it is new.
pub(super) fn find_tally(asm: &mut Assembler, maps: &Maps, map: &Map, full: Label) {
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
pub(super) fn insert_one(asm: &mut Assembler, map: &Map, flags: i32) {
    asm.store(Width::Double, R10, ONE, 1);
    asm.map(R1, map);
    address(asm, R2, KEY);
    address(asm, R3, ONE);
    asm.mov(R4, flags);
    asm.call(Helper::MapUpdate);
}

/// Adds one call of the duration in `elapsed` to the tally in `R0`. Uses `R1` to `R3`.
pub(super) fn add_call(asm: &mut Assembler, elapsed: Reg) {
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
pub(super) fn add(asm: &mut Assembler, base: Reg, offset: i16, src: Reg) {
    asm.load(Width::Double, R3, base, offset);
    asm.alu(Op::Add, R3, src);
    asm.store(Width::Double, base, offset, R3);
}

/// `*(base + offset) += 1`. Uses `R3`.
pub(super) fn increment(asm: &mut Assembler, base: Reg, offset: i16) {
    asm.load(Width::Double, R3, base, offset);
    asm.alu(Op::Add, R3, 1);
    asm.store(Width::Double, base, offset, R3);
}

/// Adds to a counter of the globals. Uses `R1` and `R2`.
pub(super) fn add_global(asm: &mut Assembler, maps: &Maps, offset: i32, by: i32) {
    asm.value(R1, &maps.globals, offset);
    asm.mov(R2, by);
    asm.atomic_add(R1, 0, R2);
}

/// Counts a loss. Uses `R1` and `R2`.
pub(super) fn lose(asm: &mut Assembler, maps: &Maps, loss: Loss) {
    add_global(asm, maps, loss.offset(), 1);
}

/// The task is between two calls.
pub(super) fn clear_call(asm: &mut Assembler) {
    asm.store(Width::Word, R8, state::FLAGS, 0);
}
