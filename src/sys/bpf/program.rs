//! Programs and their links: loaded, attached, and asked for the runs they missed.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::{bpf, bpf_fd, number, short_name};

/// One instruction as the kernel reads it (`struct bpf_insn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source in the high four.
    pub registers: u8,
    /// Jump distance or displacement.
    pub offset: i16,
    /// Constant.
    pub immediate: i32,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program attached to its tracepoint, until this is dropped.
#[derive(Debug)]
pub struct Link {
    // Only held: closing it detaches.
    _fd: OwnedFd,
}

/// Why a program was not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// What bpf(2) said.
    pub errno: Errno,
    /// The verifier's words; empty when it was not asked.
    pub log: String,
}

/// How often a program is offered again to a verifier that was interrupted.
const LOAD_RETRIES: usize = 20;

const BPF_PROG_LOAD: libc::c_long = 5;

const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;

const BPF_PROG_TYPE_TRACING: u32 = 26;

const BPF_TRACE_RAW_TP: u32 = 23;

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
    btf: u32,
    func_info_size: u32,
    func_info: u64,
    func_info_count: u32,
    line_info_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_btf_id: u32,
}

#[repr(C)]
struct InfoByFd {
    fd: u32,
    length: u32,
    info: u64,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    _pad: u32,
}

/// Bytes of `struct bpf_prog_info` up to and including `recursion_misses` (Linux 5.12), and where that is.
const PROGRAM_INFO_BYTES: usize = 216;

const PROGRAM_INFO_MISSES: usize = 208;

impl Program {
    /// Loads a program for the tracepoint whose `btf_trace_…` type has this id in the kernel's BTF.
    ///
    /// # Errors
    /// EPERM without the right; otherwise what the verifier found.
    pub fn load(
        name: &str,
        instructions: &[Instruction],
        license: &str,
        attach_btf_id: u32,
    ) -> Result<Program, Rejected> {
        // The verifier gives up with EAGAIN when a signal is pending for this thread (`do_check` in
        // kernel/bpf/verifier.c); a child that ends elsewhere is enough, so it is asked again.
        let mut quick = Program::try_load(name, instructions, license, attach_btf_id, &mut []);
        for _ in 0..LOAD_RETRIES {
            if !matches!(quick, Err(Errno::EAGAIN)) {
                break;
            }
            quick = Program::try_load(name, instructions, license, attach_btf_id, &mut []);
        }
        match quick {
            Err(errno @ (Errno::EACCES | Errno::EINVAL | Errno::E2BIG)) => {
                // The verifier's words cost time, so they are asked for only when there is something to say.
                let mut log = vec![0u8; 1 << 20];
                match Program::try_load(name, instructions, license, attach_btf_id, &mut log) {
                    Ok(program) => Ok(program),
                    Err(_) => {
                        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                        let log = String::from_utf8_lossy(&log[..end]).into_owned();
                        Err(Rejected { errno, log })
                    }
                }
            }
            other => other.map_err(|errno| Rejected {
                errno,
                log: String::new(),
            }),
        }
    }

    fn try_load(
        name: &str,
        instructions: &[Instruction],
        license: &str,
        attach_btf_id: u32,
        log: &mut [u8],
    ) -> Result<Program, Errno> {
        let license = CString::new(license).map_err(|_| Errno::EINVAL)?;
        let mut attribute = ProgramLoad {
            kind: BPF_PROG_TYPE_TRACING,
            count: u32::try_from(instructions.len()).map_err(|_| Errno::E2BIG)?,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: u32::try_from(log.len()).map_err(|_| Errno::E2BIG)?,
            log: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr() as u64
            },
            kernel_version: 0,
            flags: 0,
            name: short_name(name),
            ifindex: 0,
            attach_type: BPF_TRACE_RAW_TP,
            btf: 0,
            func_info_size: 0,
            func_info: 0,
            func_info_count: 0,
            line_info_size: 0,
            line_info: 0,
            line_info_count: 0,
            attach_btf_id,
        };
        // SAFETY: `instructions` and `license` are live with the given length and terminator; the log is
        // written up to `log_size`.
        unsafe { bpf_fd(BPF_PROG_LOAD, &mut attribute) }.map(Program)
    }

    /// Attaches it to its tracepoint.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn attach(&self) -> Result<Link, Errno> {
        let mut attribute = RawTracepointOpen {
            name: 0,
            program: number(&self.0),
            _pad: 0,
        };
        // SAFETY: a null name means the tracepoint that the program was loaded for.
        unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &mut attribute) }.map(|fd| Link { _fd: fd })
    }

    /// How often the kernel did not run it because it was running on that CPU already.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn misses(&self) -> Result<u64, Errno> {
        let mut info = [0u8; PROGRAM_INFO_BYTES];
        let mut attribute = InfoByFd {
            fd: number(&self.0),
            length: PROGRAM_INFO_BYTES as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: the kernel writes `length` bytes at most; the lengths of the lists in it are zero.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attribute) }?;
        let mut misses = [0u8; 8];
        misses.copy_from_slice(&info[PROGRAM_INFO_MISSES..PROGRAM_INFO_MISSES + 8]);
        Ok(u64::from_ne_bytes(misses))
    }
}
