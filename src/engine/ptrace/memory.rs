//! Reading and patching a stopped tracee's memory. process_vm_readv(2) where it is permitted, and word by
//! word through ptrace where a container's seccomp profile forbids it.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};

use crate::sys::ptrace::Stopped;

/// Fills `buffer` from `address`, and returns how much could be read.
pub(super) fn read(tracee: &Stopped, address: u64, buffer: &mut [u8]) -> usize {
    if buffer.is_empty() {
        return 0;
    }
    let remote = [RemoteIoVec {
        base: address as usize,
        len: buffer.len(),
    }];
    if let Ok(n) = process_vm_readv(tracee.tid(), &mut [IoSliceMut::new(buffer)], &remote) {
        return n;
    }
    let mut done = 0;
    for (i, chunk) in buffer.chunks_mut(8).enumerate() {
        let Ok(word) = tracee.peek(address.wrapping_add(i as u64 * 8)) else {
            break;
        };
        chunk.copy_from_slice(&word[..chunk.len()]);
        done += chunk.len();
    }
    done
}

/// Reads exactly `N` bytes, or nothing.
pub(super) fn read_array<const N: usize>(tracee: &Stopped, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (read(tracee, address, &mut bytes) == N).then_some(bytes)
}

/// Overwrites memory; a failure leaves it as it was, or partly written.
pub(super) fn write(tracee: &Stopped, address: u64, bytes: &[u8]) {
    let remote = [RemoteIoVec {
        base: address as usize,
        len: bytes.len(),
    }];
    if process_vm_writev(tracee.tid(), &[IoSlice::new(bytes)], &remote).is_ok() {
        return;
    }
    for (i, chunk) in bytes.chunks(8).enumerate() {
        let at = address.wrapping_add(i as u64 * 8);
        let Ok(mut word) = tracee.peek(at) else { return };
        word[..chunk.len()].copy_from_slice(chunk);
        if tracee.poke(at, word).is_err() {
            return;
        }
    }
}

/// A scatter-gather list as the 64-bit `struct iovec` has it: the bytes of its first elements, in order,
/// as far as `buffer` holds them.
pub(super) fn read_gathered(tracee: &Stopped, list: u64, elements: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    // Whoever splits a short line over more elements than this is not looked at.
    for i in 0..elements.min(8) {
        let Some(element) = read_array::<16>(tracee, list.wrapping_add(i * 16)) else {
            break;
        };
        let (base, length) = element.split_at(8);
        let number = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
        let rest = &mut buffer[done..];
        let want = rest
            .len()
            .min(usize::try_from(number(length)).unwrap_or(usize::MAX));
        done += read(tracee, number(base), &mut rest[..want]);
        if done == buffer.len() {
            break;
        }
    }
    done
}
