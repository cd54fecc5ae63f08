//! The program at the entry of every system call.

use super::pieces::*;
use super::*;

/// At the entry of a call: `sys_enter(struct pt_regs *regs, long id)`.
pub(in super::super) fn enter(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
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
