//! From the maps to tallies.

use nix::errno::Errno;

use super::layout::{TABLE_NUMBERS, abi, key, phase, state, tally};
use super::programs::Maps;
use crate::sys::bpf::Map;
use crate::tally::{Abi, CallTally, Errno as CallErrno, Phase, PhaseTallies, Syscall};
use crate::units::Nanos;

/// Reads everything. The programs' tasks should have ended; those that have not may be counted halfway.
pub(super) fn tallies(maps: &Maps, markers: bool) -> Result<PhaseTallies, Errno> {
    let mut found = PhaseTallies::default();
    let phases: &[i32] = if markers {
        &[phase::STARTUP, phase::LOOP, phase::SHUTDOWN]
    } else {
        &[phase::LOOP]
    };
    for (row, phase) in phases.iter().enumerate() {
        for number in 0..TABLE_NUMBERS as u32 {
            let place = row as u32 * TABLE_NUMBERS as u32 + number;
            if let Some(call) = sum(&maps.table, &place.to_ne_bytes())?.filter(|call| call.calls > 0) {
                let syscall = Syscall {
                    abi: Abi::NATIVE,
                    number: u64::from(number),
                };
                add(&mut found, phase_of(*phase as u8), syscall, &call);
            }
        }
    }
    for raw in maps.others.keys()? {
        if let (key, Some(call)) = (Key::read(&raw), sum(&maps.others, &raw)?) {
            add(&mut found, key.phase, key.syscall, &call);
        }
    }
    for raw in maps.restarts.keys()? {
        if let (key, Some(call)) = (Key::read(&raw), sum(&maps.restarts, &raw)?) {
            add(&mut found, key.phase, key.syscall, &call);
            if !is_signal_return(key.syscall) {
                let restarts = &mut found.phase(key.phase).of(key.syscall).restarts;
                *restarts.entry(key.errno).or_default() += call.calls;
            }
        }
    }
    for raw in maps.errors.keys()? {
        let key = Key::read(&raw);
        let n: u64 = copies(&maps.errors, &raw)?
            .iter()
            .map(|copy| number(copy, 0))
            .sum();
        if n > 0 && !is_signal_return(key.syscall) {
            *found
                .phase(key.phase)
                .of(key.syscall)
                .errors
                .entry(key.errno)
                .or_default() += n;
        }
    }
    for raw in maps.unfinished.keys()? {
        let key = Key::read(&raw);
        let n: u64 = copies(&maps.unfinished, &raw)?
            .iter()
            .map(|copy| number(copy, 0))
            .sum();
        found.phase(key.phase).of(key.syscall).unfinished += n;
    }
    Ok(found)
}

/// Adds the call that a task is in, by its state, to the unfinished ones.
pub(super) fn unfinished(found: &mut PhaseTallies, task: &[u8]) {
    let flags = number(task, state::FLAGS as usize) as i32;
    if flags & (state::IN_CALL | state::RESTARTING) == 0 {
        return;
    }
    let kind = number(task, state::KIND as usize) & 0xffff_ffff;
    let number = number(task, state::NUMBER as usize);
    let key = Key::read(&[number.to_ne_bytes(), kind.to_ne_bytes()].concat());
    found.phase(key.phase).of(key.syscall).unfinished += 1;
}

/// A tally of the kernel, all CPUs together.
#[derive(Debug, Default)]
struct Sum {
    calls: u64,
    time: u64,
    sum: u64,
    peeks: u64,
    again: u64,
    times: [u64; tally::BUCKETS as usize],
}

fn sum(map: &Map, key: &[u8]) -> Result<Option<Sum>, Errno> {
    let copies = copies(map, key)?;
    if copies.is_empty() {
        return Ok(None);
    }
    let mut sum = Sum::default();
    for copy in copies {
        sum.calls += number(&copy, tally::CALLS as usize);
        sum.time += number(&copy, tally::TIME as usize);
        sum.sum += number(&copy, tally::SUM as usize);
        sum.peeks += number(&copy, tally::PEEKS as usize);
        sum.again += number(&copy, tally::AGAIN as usize);
        for (bucket, n) in sum.times.iter_mut().enumerate() {
            *n += number(&copy, tally::TIMES as usize + 8 * bucket);
        }
    }
    Ok(Some(sum))
}

/// The copies of a value: one for each CPU in a per-CPU map.
fn copies(map: &Map, key: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let value = map.get(key)?.unwrap_or_default();
    Ok(value.chunks(map.stride()).map(<[u8]>::to_vec).collect())
}

fn add(found: &mut PhaseTallies, phase: Phase, syscall: Syscall, sum: &Sum) {
    let call: &mut CallTally = found.phase(phase).of(syscall);
    call.calls += sum.calls;
    call.wall += Nanos(sum.time);
    call.peeks += sum.peeks;
    if moves_bytes(syscall) {
        call.bytes += sum.sum;
    }
    if sum.again > 0 && !is_signal_return(syscall) {
        *call.errors.entry(CallErrno(libc::EAGAIN)).or_default() += sum.again;
    }
    for (bucket, n) in sum.times.iter().enumerate().filter(|(_, n)| **n > 0) {
        let log2 = bucket as u8 + tally::FIRST_LOG2 as u8;
        *call.times.entry(log2).or_default() += n;
    }
}

/// Calls whose positive result is a number of bytes moved. `sendmmsg` and `recvmmsg` return a number of
/// messages.
fn moves_bytes(syscall: Syscall) -> bool {
    const MOVERS: [&str; 18] = [
        "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2",
        "pwritev2", "sendto", "recvfrom", "send", "recv", "sendmsg", "recvmsg", "sendfile", "splice",
    ];
    syscall.bare_name().is_some_and(|name| MOVERS.contains(&name))
}

/// What `rt_sigreturn` returns is a register of the interrupted code and says nothing about itself.
fn is_signal_return(syscall: Syscall) -> bool {
    syscall
        .bare_name()
        .is_some_and(|name| matches!(name, "rt_sigreturn" | "sigreturn"))
}

/// A key of the hashes, read.
#[derive(Debug)]
struct Key {
    syscall: Syscall,
    phase: Phase,
    errno: CallErrno,
}

impl Key {
    fn read(raw: &[u8]) -> Key {
        let what = number(raw, 8);
        let kind = what as i32 & 0xffff;
        let raw = number(raw, 0);
        let syscall = match kind >> key::ABI_SHIFT {
            abi::I386 => {
                let outer = Syscall {
                    abi: Abi::I386,
                    number: raw & 0xffff_ffff,
                };
                // Nothing but a multiplexer's inner call stands above a number; a negative one is all ones.
                match raw >> 32 {
                    0 => outer,
                    inner if inner <= 0xffff => outer.inside_multiplexer(inner),
                    _ => Syscall {
                        abi: Abi::I386,
                        number: raw,
                    },
                }
            }
            abi::X32 => Syscall {
                abi: Abi::X32,
                number: raw,
            },
            _ => Syscall {
                abi: Abi::NATIVE,
                number: raw,
            },
        };
        Key {
            syscall,
            phase: phase_of(kind as u8),
            errno: CallErrno((what >> key::ERRNO_SHIFT) as i32),
        }
    }
}

fn phase_of(code: u8) -> Phase {
    match i32::from(code) {
        phase::STARTUP => Phase::Startup,
        phase::SHUTDOWN => Phase::Shutdown,
        _ => Phase::Loop,
    }
}

/// Eight bytes of a value; zero beyond its end.
pub(super) fn number(value: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(found) = value.get(at..at + 8) {
        bytes.copy_from_slice(found);
    }
    u64::from_ne_bytes(bytes)
}
