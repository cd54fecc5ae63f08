//! The seccomp filter that stops a tracee only at chosen calls, as classic BPF.
//!
//! Only comparisons, jumps, loads of the number and the architecture, and returns are used: the kernel
//! runs such a filter once for each number when it is installed and afterwards skips it for numbers that
//! it always allows (`seccomp_is_const_allow` in `kernel/seccomp.c`, Linux 5.11), so calls that are not
//! chosen run at full speed. Looking at an argument is left to the few numbers where it is needed.

use libc::sock_filter;

use super::roles::Watch;
use crate::engine::Selection;
use crate::tally::{Abi, Syscall};

/// `struct seccomp_data` (`include/uapi/linux/seccomp.h`): offsets of the number, the architecture and
/// the low half of the first argument on a little-endian machine.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The data of every stop that is ours. A program's own filter may ask for a tracer too, with data of its
/// own; nearly all such filters leave it 0 or put a number of their own there.
pub(super) const OURS: u16 = 0x53ce;

/// `BPF_MAXINSNS`.
const LONGEST: usize = 4096;

/// What the filter does with one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stop,
    Pass,
    /// Stop when the first argument is this descriptor.
    StopOn(u32),
}

/// The filter for a selection and the calls that are watched beside it; empty for [`Selection::All`],
/// which needs none. `None` when it would be longer than the kernel accepts.
pub(super) fn build(selection: &Selection, watches: &[Watch]) -> Option<Vec<sock_filter>> {
    let (listed, listed_stop) = match selection {
        Selection::All => return Some(Vec::new()),
        Selection::Only(calls) => (calls, true),
        Selection::Except(calls) => (calls, false),
    };
    let abis = native_abis();
    let mut program = vec![plain(LOAD, ARCHITECTURE)];
    for (abi, audit) in abis {
        let block = block(*abi, listed, listed_stop, watches);
        // Skip the whole block when the architecture is another.
        program.push(conditional(IF_EQUAL, *audit, 1, 0));
        program.push(plain(JUMP, u32::try_from(block.len()).ok()?));
        program.extend(block);
    }
    program.push(returning(!listed_stop));
    (program.len() <= LONGEST).then_some(program)
}

/// The filter that stops at every call of every ABI.
pub(super) fn everything() -> Vec<sock_filter> {
    vec![returning(true)]
}

/// The ABIs a process on this machine can call by, with their audit architectures. x32 shares the
/// architecture of x86-64 and is told apart by a bit of the number.
fn native_abis() -> &'static [(Abi, u32)] {
    match Abi::NATIVE {
        Abi::Aarch64 => &[(Abi::Aarch64, 0xc000_00b7), (Abi::Arm, 0x4000_0028)],
        Abi::X86_64 | Abi::X32 | Abi::I386 | Abi::Arm | Abi::Other(_) => {
            &[(Abi::X86_64, 0xc000_003e), (Abi::I386, 0x4000_0003)]
        }
    }
}

/// The part of the filter for one architecture. It always returns.
fn block(abi: Abi, listed: &[Syscall], listed_stop: bool, watches: &[Watch]) -> Vec<sock_filter> {
    let mut block = vec![plain(LOAD, NUMBER)];
    let mut exceptions = exceptions(abi, listed, listed_stop, watches);
    if abi == Abi::X86_64 {
        exceptions.extend(self::exceptions(Abi::X32, listed, listed_stop, watches));
        exceptions.sort_unstable_by_key(|(number, _)| *number);
    }
    let mut rest = exceptions.as_slice();
    while let Some((first, verdict)) = rest.first().copied() {
        let run = rest
            .iter()
            .enumerate()
            .take_while(|(i, (number, other))| *other == verdict && *number == first + *i as u32)
            .count();
        rest = &rest[run..];
        let last = first + run as u32 - 1;
        let action: &[sock_filter] = &match verdict {
            Verdict::Stop => vec![returning(true)],
            Verdict::Pass => vec![returning(false)],
            Verdict::StopOn(fd) => vec![
                plain(LOAD, FIRST_ARGUMENT),
                conditional(IF_EQUAL, fd, 0, 1),
                returning(true),
                returning(false),
            ],
        };
        let over = action.len() as u8;
        if run == 1 {
            block.push(conditional(IF_EQUAL, first, 0, over));
        } else {
            block.push(conditional(IF_AT_LEAST, first, 0, over + 1));
            block.push(conditional(IF_AT_LEAST, last + 1, over, 0));
        }
        block.extend_from_slice(action);
    }
    block.push(returning(!listed_stop));
    block
}

/// The numbers of an ABI that are not treated like the rest, in order.
fn exceptions(abi: Abi, listed: &[Syscall], listed_stop: bool, watches: &[Watch]) -> Vec<(u32, Verdict)> {
    let raw = |number: u64| {
        let bit = if abi == Abi::X32 { 0x4000_0000 } else { 0 };
        u32::try_from(number).ok().map(|number| number | bit)
    };
    let mut verdicts = std::collections::BTreeMap::new();
    for call in listed.iter().filter(|call| call.abi == abi) {
        if let Some(number) = raw(call.multiplexed_by().unwrap_or(call.number)) {
            let whole = call.multiplexed_by().is_none();
            // A call that is made through a multiplexer can only be told apart after the stop.
            match (listed_stop, whole) {
                (true, _) => verdicts.insert(number, Verdict::Stop),
                (false, true) => verdicts.insert(number, Verdict::Pass),
                (false, false) => None,
            };
        }
    }
    for watch in watches {
        let Some(call) = Syscall::by_name(abi, watch.name) else {
            continue;
        };
        let Some(number) = raw(call.number) else { continue };
        let stops_anyway = match verdicts.get(&number) {
            Some(Verdict::Stop) => true,
            Some(Verdict::Pass | Verdict::StopOn(_)) => false,
            None => !listed_stop,
        };
        if !stops_anyway {
            let verdict = watch.first_argument.map_or(Verdict::Stop, Verdict::StopOn);
            verdicts.insert(number, verdict);
        }
    }
    verdicts.into_iter().collect()
}

fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn conditional(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn returning(stop: bool) -> sock_filter {
    plain(
        RETURN,
        if stop {
            libc::SECCOMP_RET_TRACE | u32::from(OURS)
        } else {
            libc::SECCOMP_RET_ALLOW
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86_64: u32 = 0xc000_003e;
    const I386: u32 = 0x4000_0003;

    /// Runs a filter as the kernel would.
    fn run(program: &[sock_filter], arch: u32, number: u32, first: u32) -> bool {
        let (mut at, mut loaded) = (0usize, 0u32);
        loop {
            let i = program[at];
            at += 1;
            match i.code {
                LOAD => {
                    loaded = match i.k {
                        NUMBER => number,
                        ARCHITECTURE => arch,
                        FIRST_ARGUMENT => first,
                        other => panic!("loads {other}"),
                    }
                }
                JUMP => at += i.k as usize,
                IF_EQUAL => at += usize::from(if loaded == i.k { i.jt } else { i.jf }),
                IF_AT_LEAST => at += usize::from(if loaded >= i.k { i.jt } else { i.jf }),
                RETURN => return i.k == libc::SECCOMP_RET_TRACE | u32::from(OURS),
                other => panic!("code {other}"),
            }
        }
    }

    fn calls(names: &[&str]) -> Vec<Syscall> {
        names.iter().flat_map(|name| Syscall::all_by_name(name)).collect()
    }

    #[test]
    fn only_the_chosen_calls_stop_in_every_abi() {
        let only = Selection::Only(calls(&["recvfrom", "sendto", "brk"]));
        let filter = build(&only, &[]).unwrap();
        for number in 0..600 {
            assert_eq!(
                run(&filter, X86_64, number, 0),
                [44, 45, 12].contains(&number),
                "{number}"
            );
            // 45 is brk there; recvfrom is 371, sendto 369; 102 is socketcall, which carries both.
            let stops = [45, 371, 369, 102].contains(&number);
            assert_eq!(run(&filter, I386, number, 0), stops, "i386 {number}");
        }
        assert!(run(&filter, X86_64, 0x4000_0000 | 44, 0));
        assert!(run(&filter, X86_64, 0x4000_0000 | 517, 0));
        assert!(!run(&filter, X86_64, 0x4000_0000 | 45, 0));
        assert!(!run(&filter, 0xdead_beef, 45, 0));
        assert!(!run(&filter, X86_64, u32::MAX, 0));
    }

    #[test]
    fn all_but_the_listed_calls_stop() {
        let filter = build(&Selection::Except(calls(&["read", "write"])), &[]).unwrap();
        for number in 0..600 {
            assert_eq!(run(&filter, X86_64, number, 0), number > 1, "{number}");
            assert_eq!(
                run(&filter, I386, number, 0),
                number != 3 && number != 4,
                "i386 {number}"
            );
        }
        assert!(run(&filter, X86_64, u32::MAX, 0));
    }

    #[test]
    fn a_watched_descriptor_stops_only_there() {
        let watch = [
            Watch {
                name: "read",
                first_argument: Some(0),
            },
            Watch {
                name: "close",
                first_argument: None,
            },
        ];
        let filter = build(&Selection::Only(calls(&["sendto"])), &watch).unwrap();
        assert!(run(&filter, X86_64, 0, 0));
        assert!(!run(&filter, X86_64, 0, 7));
        assert!(run(&filter, X86_64, 3, 7));
        assert!(!run(&filter, X86_64, 1, 0));
        // Chosen anyway: on every descriptor.
        let filter = build(&Selection::Only(calls(&["read"])), &watch).unwrap();
        assert!(run(&filter, X86_64, 0, 7));
        // Excepted, but watched.
        let filter = build(&Selection::Except(calls(&["read", "close"])), &watch).unwrap();
        assert!(run(&filter, X86_64, 3, 7));
        assert!(!run(&filter, X86_64, 0, 7));
        assert!(run(&filter, X86_64, 1, 7));
    }

    #[test]
    fn runs_of_numbers_are_compared_as_ranges() {
        let short = build(&Selection::Only(calls(&["read"])), &[]).unwrap();
        let all: Vec<_> = (0..300).map(Syscall::native).collect();
        let long = build(&Selection::Only(all), &[]).unwrap();
        assert!(long.len() < short.len() + 10, "{}", long.len());
        assert!(run(&long, X86_64, 299, 0) && !run(&long, X86_64, 300, 0));
        // Every other number of every table still fits.
        let odd = (0..600).filter(|n| n % 2 == 1);
        let odd =
            odd.flat_map(|number| [Abi::X86_64, Abi::X32, Abi::I386].map(|abi| Syscall { abi, number }));
        assert!(build(&Selection::Only(odd.collect()), &[]).is_some());
    }

    #[test]
    fn no_choice_needs_no_filter() {
        assert!(build(&Selection::All, &[]).unwrap().is_empty());
    }
}
