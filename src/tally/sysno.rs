//! The identity of a system call, and its name from the table of its ABI.

use std::borrow::Cow;

/// The calling convention a system call was made by. A 32-bit program on a 64-bit kernel uses another
/// table of numbers, and so does a 64-bit program that executes `int 0x80`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Abi {
    /// x86-64, `AUDIT_ARCH_X86_64`.
    X86_64,
    /// x32: x86-64 numbers with bit 30 set.
    X32,
    /// i386, `AUDIT_ARCH_I386`.
    I386,
    /// AArch64, `AUDIT_ARCH_AARCH64`.
    Aarch64,
    /// 32-bit Arm, `AUDIT_ARCH_ARM`.
    Arm,
    /// Any other, by its audit number (`include/uapi/linux/audit.h`).
    Other(u32),
}

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const AUDIT_ARCH_I386: u32 = 0x4000_0003;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;
const AUDIT_ARCH_ARM: u32 = 0x4000_0028;
const X32_SYSCALL_BIT: u64 = 0x4000_0000;

impl Abi {
    /// The ABI of the machine systally was built for.
    pub const NATIVE: Abi = if cfg!(target_arch = "aarch64") {
        Abi::Aarch64
    } else {
        Abi::X86_64
    };

    /// The short name that marks a foreign call in tables (`i386:brk`).
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Abi::X86_64 => "x86_64",
            Abi::X32 => "x32",
            Abi::I386 => "i386",
            Abi::Aarch64 => "aarch64",
            Abi::Arm => "arm",
            Abi::Other(audit) => return Cow::Owned(format!("arch_{audit:#x}")),
        })
    }
}

/// One system call: its ABI and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syscall {
    /// Whose table the number belongs to.
    pub abi: Abi,
    /// The number, without the x32 bit.
    pub number: u64,
}

impl Syscall {
    /// From what `PTRACE_GET_SYSCALL_INFO` tells: the audit architecture and the raw number.
    pub fn from_audit(arch: u32, raw: u64) -> Syscall {
        let abi = match arch {
            AUDIT_ARCH_X86_64 if raw & X32_SYSCALL_BIT != 0 && raw >> 32 == 0 => {
                return Syscall {
                    abi: Abi::X32,
                    number: raw & !X32_SYSCALL_BIT,
                };
            }
            AUDIT_ARCH_X86_64 => Abi::X86_64,
            AUDIT_ARCH_I386 => Abi::I386,
            AUDIT_ARCH_AARCH64 => Abi::Aarch64,
            AUDIT_ARCH_ARM => Abi::Arm,
            other => Abi::Other(other),
        };
        Syscall { abi, number: raw }
    }

    /// A call of the native ABI by its number (`libc::SYS_*`).
    pub const fn native(number: i64) -> Syscall {
        Syscall {
            abi: Abi::NATIVE,
            number: number as u64,
        }
    }

    /// The bare name in its own table; `None` for a number the table does not know.
    pub fn bare_name(self) -> Option<&'static str> {
        let number = usize::try_from(self.number).ok()?;
        match self.abi {
            Abi::X86_64 => syscalls::x86_64::Sysno::new(number).map(|s| s.name()),
            Abi::X32 => x32_name(number),
            Abi::I386 => syscalls::x86::Sysno::new(number).map(|s| s.name()),
            Abi::Aarch64 => syscalls::aarch64::Sysno::new(number).map(|s| s.name()),
            Abi::Arm => syscalls::arm::Sysno::new(number).map(|s| s.name()),
            Abi::Other(_) => None,
        }
    }

    /// The name for tables and records: bare for the native ABI, prefixed for others (`i386:brk`), and
    /// `syscall_0x1ce` for an unknown number, as strace writes it.
    pub fn name(self) -> Cow<'static, str> {
        let bare = match self.bare_name() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("syscall_{:#x}", self.number)),
        };
        if self.abi == Abi::NATIVE {
            bare
        } else {
            Cow::Owned(format!("{}:{bare}", self.abi.name()))
        }
    }
}

/// x32 shares the x86-64 numbers below 512 and has its own for calls whose structures differ.
/// Source: `arch/x86/entry/syscalls/syscall_64.tbl`, the rows marked x32.
fn x32_name(number: usize) -> Option<&'static str> {
    const OWN: [&str; 36] = [
        "rt_sigaction",
        "rt_sigreturn",
        "ioctl",
        "readv",
        "writev",
        "recvfrom",
        "sendmsg",
        "recvmsg",
        "execve",
        "ptrace",
        "rt_sigpending",
        "rt_sigtimedwait",
        "rt_sigqueueinfo",
        "sigaltstack",
        "timer_create",
        "mq_notify",
        "kexec_load",
        "waitid",
        "set_robust_list",
        "get_robust_list",
        "vmsplice",
        "move_pages",
        "preadv",
        "pwritev",
        "rt_tgsigqueueinfo",
        "recvmmsg",
        "sendmmsg",
        "process_vm_readv",
        "process_vm_writev",
        "setsockopt",
        "getsockopt",
        "io_setup",
        "io_submit",
        "execveat",
        "preadv2",
        "pwritev2",
    ];
    match number {
        512.. => OWN.get(number - 512).copied(),
        _ => syscalls::x86_64::Sysno::new(number).map(|s| s.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_has_another_name_in_another_abi() {
        assert_eq!(
            Syscall::from_audit(AUDIT_ARCH_X86_64, 45).bare_name(),
            Some("recvfrom")
        );
        assert_eq!(Syscall::from_audit(AUDIT_ARCH_I386, 45).bare_name(), Some("brk"));
        assert_eq!(Syscall::from_audit(AUDIT_ARCH_I386, 45).name(), "i386:brk");
        assert_eq!(
            Syscall::from_audit(AUDIT_ARCH_X86_64, 0x4000_0000 | 39).name(),
            "x32:getpid"
        );
        assert_eq!(
            Syscall::from_audit(AUDIT_ARCH_X86_64, 0x4000_0000 | 517).name(),
            "x32:recvfrom"
        );
    }

    #[test]
    fn an_unknown_number_keeps_its_number() {
        assert_eq!(
            Syscall::from_audit(AUDIT_ARCH_X86_64, 0x1_ce00).name(),
            "syscall_0x1ce00"
        );
        assert_eq!(Syscall::from_audit(AUDIT_ARCH_X86_64, u64::MAX).bare_name(), None);
    }
}
