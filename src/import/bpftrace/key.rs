//! Which part of a map's keys is the system call, and what the other parts are.

use super::super::{number, text};
use crate::tally::{Abi, Errno, Syscall};

/// Linux 6.1's last number. Newer calls keep their number here: on which kernel a pasted map was made is
/// not known, and names given to new numbers by a newer table would say more than the file does.
const LAST_NAMED: u64 = 450;
/// No table of x86-64 has numbers beyond: what is larger is a process or thread.
const LAST_NUMBER: u64 = 600;

/// What one part of the keys of a map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A system call by name or probe.
    Call,
    /// A number that can be a system call's.
    Number,
    /// A process or thread.
    Process,
    /// A return value, negative for errors.
    Return,
    /// A probe or function that is no system call.
    Probe,
    /// The name of a command, or any other text.
    Text,
}

/// The parts of a key.
pub(super) fn parts(key: &[u8]) -> Vec<&[u8]> {
    key.split(|b| *b == b',').map(text::trim).collect()
}

/// What part `index` is in all keys of a map.
pub(super) fn kind<'a>(keys: impl Iterator<Item = &'a [u8]>, index: usize) -> Option<Part> {
    let (mut all, mut numbers, mut calls, mut probes) = (0_usize, 0_usize, 0_usize, 0_usize);
    let (mut large, mut negative) = (0_usize, false);
    for key in keys {
        let Some(part) = parts(key).get(index).copied() else {
            continue;
        };
        all += 1;
        if let Some(n) = number::int(part).filter(|_| !part.starts_with(b"0x")) {
            numbers += 1;
            large += usize::from(u64::try_from(n).is_ok_and(|n| n > LAST_NUMBER));
            negative |= n < 0;
        } else if named(part).is_some_and(|name| is_call(&name)) {
            calls += 1;
        } else if part.contains(&b':') {
            probes += 1;
        }
    }
    if all == 0 {
        return None;
    }
    Some(if numbers == all {
        // A program may call numbers that no table has; processes are mostly beyond them.
        match (negative, large * 4 > all) {
            (true, _) => Part::Return,
            (false, true) => Part::Process,
            (false, false) => Part::Number,
        }
    } else if calls * 2 >= all {
        Part::Call
    } else if probes * 2 >= all {
        Part::Probe
    } else {
        Part::Text
    })
}

/// The call in a part that is one.
pub(super) fn call(part: &[u8]) -> String {
    if let Some(nr) = number::uint(part) {
        let named = (nr <= LAST_NAMED)
            .then(|| {
                Syscall {
                    abi: Abi::X86_64,
                    number: nr,
                }
                .bare_name()
            })
            .flatten();
        return named.map_or_else(|| format!("syscall_{nr}"), str::to_owned);
    }
    named(part).unwrap_or_else(|| text::name(part))
}

/// The name of the error that a return value stands for.
pub(super) fn errno(part: &[u8]) -> Option<String> {
    let value = number::int(part)?;
    (-4095..0)
        .contains(&value)
        .then(|| Errno(i32::try_from(-value).unwrap_or(0)).name().into_owned())
}

/// The name in a probe, function or tracepoint, without what stands around it.
fn named(part: &[u8]) -> Option<String> {
    let mut name = part;
    for prefix in [
        "tracepoint:",
        "kprobe:",
        "kretprobe:",
        "fentry:",
        "fexit:",
        "kfunc:",
        "kretfunc:",
        "rawtracepoint:",
        "vmlinux:",
        "syscalls:",
        "sys_enter_",
        "sys_exit_",
        "__x64_sys_",
        "__arm64_sys_",
        "__ia32_sys_",
        "__se_sys_",
        "__do_sys_",
        "ksys_",
        "SyS_",
        "sys_",
    ] {
        name = name.strip_prefix(prefix.as_bytes()).unwrap_or(name);
    }
    let plain = name
        .first()
        .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    plain.then(|| text::name(name))
}

fn is_call(name: &str) -> bool {
    // What kernels call them inside, and other ABIs have.
    matches!(
        name,
        "newstat" | "newlstat" | "newfstat" | "newuname" | "sendfile64"
    ) || name.starts_with("syscall_")
        || [Abi::X86_64, Abi::Aarch64, Abi::I386]
            .iter()
            .any(|abi| Syscall::by_name(*abi, name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[&str], index: usize) -> Option<Part> {
        kind(keys.iter().map(|k| k.as_bytes()), index)
    }

    #[test]
    fn parts_by_all_their_values() {
        assert_eq!(of(&["44", "0"], 0), Some(Part::Number));
        assert_eq!(of(&["44", "1234"], 0), Some(Part::Process));
        assert_eq!(of(&["0", "1", "3", "44", "999"], 0), Some(Part::Number));
        assert_eq!(
            of(&["php, 44", "redis-server, 45", "kill, 3"], 0),
            Some(Part::Text)
        );
        assert_eq!(of(&["php, 44", "redis-server, 45"], 1), Some(Part::Number));
        assert_eq!(of(&["21, -2", "45, -11"], 1), Some(Part::Return));
        assert_eq!(
            of(
                &["tracepoint:syscalls:sys_enter_read", "kprobe:__x64_sys_write"],
                0
            ),
            Some(Part::Call)
        );
        assert_eq!(of(&["kprobe:vfs_read", "kprobe:vfs_write"], 0), Some(Part::Probe));
        assert_eq!(of(&["lto cgu.02", "read", "ctrl-c"], 0), Some(Part::Text));
        assert_eq!(of(&["44"], 1), None);
    }

    #[test]
    fn calls_of_every_kind() {
        for part in [
            "44",
            "tracepoint:syscalls:sys_enter_sendto",
            "sys_enter_sendto",
            "kprobe:__x64_sys_sendto",
            "sendto",
        ] {
            assert_eq!(call(part.as_bytes()), "sendto", "{part}");
        }
        assert_eq!(call(b"462"), "syscall_462");
        assert_eq!(errno(b"-11").as_deref(), Some("EAGAIN"));
        assert_eq!(errno(b"11"), None);
        assert_eq!(errno(b"-5000"), None);
    }
}
