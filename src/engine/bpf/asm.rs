//! An assembler for BPF: typed instructions and labels, so that a program reads from top to bottom and
//! needs no compiler to build. What it makes is still checked by the kernel's verifier.
//!
//! Source of the encoding: `Documentation/bpf/standardization/instruction-set.rst` in the kernel.

use crate::sys::bpf::{Instruction, Map};

/// A register. A call returns in `R0` and takes its arguments in `R1` to `R5`, which it destroys; `R6` to
/// `R9` survive it. `R10` is the end of the stack and cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(
    dead_code,
    reason = "no program of ours needs a fifth argument, but the registers are these"
)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The second operand of an instruction: a register, or a constant, which is extended with its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Src {
    Reg(Reg),
    Imm(i32),
}

impl From<Reg> for Src {
    fn from(reg: Reg) -> Src {
        Src::Reg(reg)
    }
}

impl From<i32> for Src {
    fn from(constant: i32) -> Src {
        Src::Imm(constant)
    }
}

/// How much a load or store moves. Loads fill the rest of the register with zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Width {
    /// Four bytes.
    Word = 0x00,
    /// Eight bytes.
    Double = 0x18,
}

/// Arithmetic on all 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Negate = 0x80,
    Move = 0xb0,
    ShiftRightSigned = 0xc0,
}

/// Comparisons of all 64 bits; those without `Signed` take their operands as unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cond {
    Equal = 0x10,
    AtLeast = 0x30,
    /// Any of the bits is set.
    AnyBit = 0x40,
    NotEqual = 0x50,
    Below = 0xa0,
    AtMost = 0xb0,
    SignedBelow = 0xc0,
}

/// Functions of the kernel, with the numbers of `enum bpf_func_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    KtimeNs = 5,
    ProbeReadUser = 112,
    TaskStorageGet = 156,
    CurrentTask = 158,
}

/// A place in the program, to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A mistake in a program text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AsmError {
    /// A label that was never bound.
    #[error("a jump leads nowhere")]
    Unbound,
    /// A jump over more than 32,767 instructions.
    #[error("a jump is too long")]
    TooFar,
}

const CLASS_LOAD_IMM64: u8 = 0x18;
const CLASS_LOAD: u8 = 0x61;
const CLASS_STORE_IMM: u8 = 0x62;
const CLASS_STORE: u8 = 0x63;
const CLASS_JUMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const MODE_ATOMIC_DOUBLE: u8 = 0xdb;
const FROM_REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP_ALWAYS: u8 = 0x05;
/// The constant of a 64-bit load is the descriptor of a map (1), or of an array's first value (2).
const PSEUDO_MAP: Reg = Reg::R1;
const PSEUDO_VALUE: Reg = Reg::R2;

/// A program being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn new() -> Assembler {
        Assembler::default()
    }

    /// A label to be bound later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `dst = dst op src`.
    pub(super) fn alu(&mut self, op: Op, dst: Reg, src: impl Into<Src>) {
        self.operands(CLASS_ALU64 | op as u8, dst, src.into(), 0);
    }

    /// `dst = src`.
    pub(super) fn mov(&mut self, dst: Reg, src: impl Into<Src>) {
        self.alu(Op::Move, dst, src);
    }

    /// `dst = -dst`.
    pub(super) fn negate(&mut self, dst: Reg) {
        self.alu(Op::Negate, dst, 0);
    }

    /// `dst = constant`, all 64 bits of it.
    pub(super) fn constant(&mut self, dst: Reg, constant: u64) {
        self.wide(
            dst,
            Reg::R0,
            constant as u32 as i32,
            (constant >> 32) as u32 as i32,
        );
    }

    /// `dst = map`, for helpers.
    pub(super) fn map(&mut self, dst: Reg, map: &Map) {
        self.wide(dst, PSEUDO_MAP, map.descriptor(), 0);
    }

    /// `dst = address in the only value of an array`.
    pub(super) fn value(&mut self, dst: Reg, array: &Map, offset: i32) {
        self.wide(dst, PSEUDO_VALUE, array.descriptor(), offset);
    }

    /// `dst = *(base + offset)`.
    pub(super) fn load(&mut self, width: Width, dst: Reg, base: Reg, offset: i16) {
        self.push(CLASS_LOAD | width as u8, dst, base, offset, 0);
    }

    /// `*(base + offset) = src`.
    pub(super) fn store(&mut self, width: Width, base: Reg, offset: i16, src: impl Into<Src>) {
        match src.into() {
            Src::Reg(src) => self.push(CLASS_STORE | width as u8, base, src, offset, 0),
            Src::Imm(constant) => self.push(CLASS_STORE_IMM | width as u8, base, Reg::R0, offset, constant),
        }
    }

    /// `*(base + offset) += src` on eight bytes, against other CPUs too.
    pub(super) fn atomic_add(&mut self, base: Reg, offset: i16, src: Reg) {
        self.push(MODE_ATOMIC_DOUBLE, base, src, offset, 0);
    }

    /// Jumps.
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP_ALWAYS, Reg::R0, Reg::R0, 0, 0);
    }

    /// Jumps when the comparison holds.
    pub(super) fn jump_if(&mut self, left: Reg, cond: Cond, right: impl Into<Src>, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.operands(CLASS_JUMP | cond as u8, left, right.into(), 0);
    }

    /// Calls a function of the kernel.
    pub(super) fn call(&mut self, helper: Helper) {
        self.push(CALL, Reg::R0, Reg::R0, 0, helper as i32);
    }

    /// Ends the program.
    pub(super) fn exit(&mut self) {
        self.push(EXIT, Reg::R0, Reg::R0, 0, 0);
    }

    /// The finished program.
    pub(super) fn finish(mut self) -> Result<Vec<Instruction>, AsmError> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].ok_or(AsmError::Unbound)?;
            // A jump is relative to the instruction after it.
            let distance = target as i64 - at as i64 - 1;
            self.code[at].offset = i16::try_from(distance).map_err(|_| AsmError::TooFar)?;
        }
        Ok(self.code)
    }

    fn operands(&mut self, code: u8, dst: Reg, src: Src, offset: i16) {
        match src {
            Src::Reg(src) => self.push(code | FROM_REGISTER, dst, src, offset, 0),
            Src::Imm(constant) => self.push(code, dst, Reg::R0, offset, constant),
        }
    }

    /// A load of 64 bits, which takes the room of two instructions.
    fn wide(&mut self, dst: Reg, kind: Reg, low: i32, high: i32) {
        self.push(CLASS_LOAD_IMM64, dst, kind, 0, low);
        self.push(0, Reg::R0, Reg::R0, 0, high);
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, immediate: i32) {
        self.code.push(Instruction {
            code,
            registers: dst as u8 | (src as u8) << 4,
            offset,
            immediate,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(write: impl FnOnce(&mut Assembler)) -> Instruction {
        let mut asm = Assembler::new();
        write(&mut asm);
        asm.finish().unwrap()[0]
    }

    /// Codes from the tables of the instruction set's standard.
    #[test]
    fn instructions_have_the_standard_s_codes() {
        use Reg::{R1, R2, R10};
        let code = |write: fn(&mut Assembler)| only(write).code;
        assert_eq!(code(|a| a.mov(R1, R2)), 0xbf);
        assert_eq!(code(|a| a.mov(R1, 5)), 0xb7);
        assert_eq!(code(|a| a.negate(R1)), 0x87);
        assert_eq!(code(|a| a.alu(Op::Add, R1, R2)), 0x0f);
        assert_eq!(code(|a| a.load(Width::Double, R1, R2, 8)), 0x79);
        assert_eq!(code(|a| a.load(Width::Word, R1, R2, 8)), 0x61);
        assert_eq!(code(|a| a.store(Width::Double, R10, -8, R1)), 0x7b);
        assert_eq!(code(|a| a.store(Width::Word, R10, -8, 7)), 0x62);
        assert_eq!(code(|a| a.atomic_add(R1, 0, R2)), 0xdb);
        let add = only(|a| a.load(Width::Double, R1, R2, -8));
        assert_eq!((add.registers, add.offset), (0x21, -8));
    }

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let mut asm = Assembler::new();
        let (end, start) = (asm.label(), asm.label());
        asm.bind(start);
        asm.jump_if(Reg::R1, Cond::Equal, 0, end);
        asm.constant(Reg::R2, 0x1_0000_0002);
        asm.jump(start);
        asm.bind(end);
        asm.exit();
        let code = asm.finish().unwrap();
        assert_eq!((code[0].code, code[0].offset), (0x15, 3));
        assert_eq!((code[1].immediate, code[2].immediate), (2, 1));
        assert_eq!(code[3].offset, -4);
    }

    #[test]
    fn a_jump_to_nowhere_is_an_error() {
        let mut asm = Assembler::new();
        let nowhere = asm.label();
        asm.jump(nowhere);
        assert_eq!(asm.finish(), Err(AsmError::Unbound));
    }
}
