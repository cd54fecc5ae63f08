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

    /// The ABIs by which a process on a machine of this kind can call.
    pub const ON_THIS_MACHINE: &[Abi] = if cfg!(target_arch = "aarch64") {
        &[Abi::Aarch64, Abi::Arm]
    } else {
        &[Abi::X86_64, Abi::X32, Abi::I386]
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

    /// The call inside a multiplexer of the 32-bit table: `socketcall` and `ipc` carry the real call as
    /// their first argument. It is counted under its own name, as strace does.
    ///
    /// Such a call has no number of its own; here it is the multiplexer's with the inner number in the
    /// upper half. An inner number that does not exist leaves the multiplexer as it is.
    pub fn inside_multiplexer(self, inner: u64) -> Syscall {
        if self.abi != Abi::I386 || multiplexed(self.number).is_none() {
            return self;
        }
        // `ipc` keeps a version in the upper 16 bits of the inner number.
        let whole = Syscall {
            abi: Abi::I386,
            number: self.number | ((inner & 0xffff) << 32),
        };
        if whole.bare_name().is_some() { whole } else { self }
    }

    /// The number of the multiplexer that this call was made through.
    pub fn multiplexed_by(self) -> Option<u64> {
        (self.abi == Abi::I386 && self.number >> 32 != 0).then_some(self.number & 0xffff_ffff)
    }

    /// The call of that name in an ABI's table.
    pub fn by_name(abi: Abi, name: &str) -> Option<Syscall> {
        let table = match abi {
            Abi::X86_64 => name
                .parse::<syscalls::x86_64::Sysno>()
                .ok()
                .map(|s| s.id() as u64),
            Abi::X32 => x32_number(name),
            Abi::I386 => name.parse::<syscalls::x86::Sysno>().ok().map(|s| s.id() as u64),
            Abi::Aarch64 => name
                .parse::<syscalls::aarch64::Sysno>()
                .ok()
                .map(|s| s.id() as u64),
            Abi::Arm => name.parse::<syscalls::arm::Sysno>().ok().map(|s| s.id() as u64),
            Abi::Other(_) => None,
        };
        table.map(|number| Syscall { abi, number })
    }

    /// Every call of that name that a process on this machine can make: in the native table, in the
    /// tables of foreign ABIs, and through multiplexers.
    pub fn all_by_name(name: &str) -> Vec<Syscall> {
        let plain = Abi::ON_THIS_MACHINE
            .iter()
            .filter_map(|abi| Syscall::by_name(*abi, name));
        let inside = [SOCKETCALL, IPC].into_iter().flat_map(|outer| {
            let calls = multiplexed(outer).unwrap_or_default();
            let found = calls.iter().enumerate().filter(|(_, inner)| **inner == name);
            found.map(move |(inner, _)| Syscall {
                abi: Abi::I386,
                number: outer | ((inner as u64) << 32),
            })
        });
        let inside = inside.filter(|_| Abi::ON_THIS_MACHINE.contains(&Abi::I386));
        plain.chain(inside).collect()
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
        if let Some(outer) = self.multiplexed_by() {
            let inner = usize::try_from(self.number >> 32).ok()?;
            return multiplexed(outer)?
                .get(inner)
                .copied()
                .filter(|name| !name.is_empty());
        }
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
const X32_OWN: [&str; 36] = [
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

fn x32_name(number: usize) -> Option<&'static str> {
    match number {
        512.. => X32_OWN.get(number - 512).copied(),
        _ => syscalls::x86_64::Sysno::new(number).map(|s| s.name()),
    }
}

fn x32_number(name: &str) -> Option<u64> {
    match X32_OWN.iter().position(|own| *own == name) {
        Some(own) => Some(512 + own as u64),
        None => name
            .parse::<syscalls::x86_64::Sysno>()
            .ok()
            .map(|s| s.id() as u64),
    }
}

const SOCKETCALL: u64 = 102;
const IPC: u64 = 117;

/// The calls inside a multiplexer of the i386 table by their inner number; empty strings are gaps.
/// Sources: `include/uapi/linux/net.h`, `include/uapi/linux/ipc.h`.
fn multiplexed(outer: u64) -> Option<&'static [&'static str]> {
    match outer {
        SOCKETCALL => Some(&[
            "",
            "socket",
            "bind",
            "connect",
            "listen",
            "accept",
            "getsockname",
            "getpeername",
            "socketpair",
            "send",
            "recv",
            "sendto",
            "recvfrom",
            "shutdown",
            "setsockopt",
            "getsockopt",
            "sendmsg",
            "recvmsg",
            "accept4",
            "recvmmsg",
            "sendmmsg",
        ]),
        IPC => Some(&[
            "",
            "semop",
            "semget",
            "semctl",
            "semtimedop",
            "",
            "",
            "",
            "",
            "",
            "",
            "msgsnd",
            "msgrcv",
            "msgget",
            "msgctl",
            "",
            "",
            "",
            "",
            "",
            "",
            "shmat",
            "shmdt",
            "shmget",
            "shmctl",
        ]),
        _ => None,
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
    fn names_lead_back_to_numbers() {
        for abi in [Abi::X86_64, Abi::X32, Abi::I386, Abi::Aarch64, Abi::Arm] {
            for number in 0..600 {
                let call = Syscall { abi, number };
                let Some(name) = call.bare_name() else { continue };
                let found = Syscall::by_name(abi, name).expect(name);
                // x32 lists both numbers of a call that it replaces.
                assert_eq!(found.bare_name(), Some(name), "{abi:?} {number}");
                assert!(found == call || abi == Abi::X32, "{abi:?} {number}");
            }
        }
        assert_eq!(Syscall::by_name(Abi::X86_64, "no_such_call"), None);
    }

    #[test]
    fn calls_inside_multiplexers_have_their_own_names() {
        let socketcall = Syscall::from_audit(AUDIT_ARCH_I386, SOCKETCALL);
        assert_eq!(socketcall.inside_multiplexer(3).name(), "i386:connect");
        assert_eq!(
            socketcall.inside_multiplexer(3).multiplexed_by(),
            Some(SOCKETCALL)
        );
        assert_eq!(socketcall.inside_multiplexer(99), socketcall);
        assert_eq!(socketcall.inside_multiplexer(0), socketcall);
        let ipc = Syscall::from_audit(AUDIT_ARCH_I386, IPC);
        assert_eq!(ipc.inside_multiplexer(1 << 16 | 21).name(), "i386:shmat");
        let native = Syscall::native(102);
        assert_eq!(native.inside_multiplexer(3), native);
        assert_eq!(Syscall::all_by_name("connect").len(), 4);
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
