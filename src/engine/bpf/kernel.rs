//! What the programs must know of the running kernel, read from its BTF once.

use std::sync::OnceLock;

use super::btf::{Btf, BtfError};

/// Where the kernel describes its types.
pub(super) const BTF_FILE: &str = "sys/kernel/btf/vmlinux";

/// Offsets of members in the kernel's structures, and ids of the tracepoints' types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernel {
    /// `task_struct.thread_info.status`, which tells an i386 call from a native one.
    pub(super) status: i16,
    /// `pt_regs`: the first argument of an i386 call.
    pub(super) i386_argument_1: i16,
    /// `pt_regs`: the arguments of a native call, in order.
    pub(super) argument_1: i16,
    pub(super) argument_2: i16,
    pub(super) argument_3: i16,
    pub(super) argument_4: i16,
    /// `pt_regs`: the number of the call.
    pub(super) number: i16,
    /// Id of the tracepoint at the entry of calls.
    pub(super) enter: u32,
    /// At their return.
    pub(super) exit: u32,
    /// At the birth of a task.
    pub(super) fork: u32,
    /// At its end.
    pub(super) end: u32,
}

/// Why the kernel's BTF tells nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KernelError {
    /// It cannot be read.
    #[error("/{BTF_FILE} cannot be read: {0}")]
    Unreadable(String),
    /// It does not hold what is needed.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The programs are written for another machine.
    #[error("the BPF engine is written for x86-64 only")]
    Machine,
}

impl Kernel {
    /// Of the running kernel.
    pub(super) fn running() -> Result<&'static Kernel, KernelError> {
        static KERNEL: OnceLock<Result<Kernel, KernelError>> = OnceLock::new();
        let kernel = KERNEL.get_or_init(|| {
            if !cfg!(target_arch = "x86_64") {
                return Err(KernelError::Machine);
            }
            let image = std::fs::read(crate::proc::Root::live().path(BTF_FILE))
                .map_err(|error| KernelError::Unreadable(error.to_string()))?;
            Ok(Kernel::find(&Btf::parse(&image)?)?)
        });
        kernel.as_ref().map_err(Clone::clone)
    }

    fn find(btf: &Btf<'_>) -> Result<Kernel, BtfError> {
        Ok(Kernel {
            status: btf.offset("task_struct", "thread_info.status")?,
            i386_argument_1: btf.offset("pt_regs", "bx")?,
            argument_1: btf.offset("pt_regs", "di")?,
            argument_2: btf.offset("pt_regs", "si")?,
            argument_3: btf.offset("pt_regs", "dx")?,
            argument_4: btf.offset("pt_regs", "r10")?,
            number: btf.offset("pt_regs", "orig_ax")?,
            enter: btf.tracepoint("sys_enter")?,
            exit: btf.tracepoint("sys_exit")?,
            fork: btf.tracepoint("sched_process_fork")?,
            end: btf.tracepoint("sched_process_exit")?,
        })
    }
}
