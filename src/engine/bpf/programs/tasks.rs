//! The programs at the birth and at the end of every task.

use super::pieces::*;
use super::*;

/// At the birth of a task: `sched_process_fork(struct task_struct *parent, struct task_struct *child)`.
pub(in super::super) fn fork(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
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
pub(in super::super) fn end(plan: Plan<'_>) -> Result<Vec<Instruction>, AsmError> {
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
    count_one_more(&mut asm, plan, new, counted);
    asm.bind(new);
    insert_one(&mut asm, &plan.maps.unfinished, UPDATE_NEW);
    asm.jump_if(R0, Cond::Equal, 0, counted);
    // Another CPU may have been first.
    count_one_more(&mut asm, plan, full, counted);
    asm.bind(full);
    lose(&mut asm, plan.maps, Loss::Unfinished);
    asm.jump(counted);
    asm.finish()
}

/// Adds one to the unfinished calls of the key on the stack, when it is there already; jumps to one of the
/// labels.
fn count_one_more(asm: &mut Assembler, plan: Plan<'_>, missing: Label, counted: Label) {
    asm.map(R1, &plan.maps.unfinished);
    address(asm, R2, KEY);
    asm.call(Helper::MapLookup);
    asm.jump_if(R0, Cond::Equal, 0, missing);
    asm.mov(R1, 1);
    asm.atomic_add(R0, 0, R1);
    asm.jump(counted);
}
