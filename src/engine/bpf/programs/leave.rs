//! The program at the return of every system call.

use super::pieces::*;
use super::*;

/// At the return of a call: `sys_exit(struct pt_regs *regs, long ret)`.
pub(in super::super) fn leave_call(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
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
