//! bpf(2): maps, type information, programs and links, each owning its descriptor. A program loaded here
//! is checked by the kernel's verifier, so a wrong one is an error and never harm.
#![allow(unsafe_code)]

mod map;
mod program;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

pub use map::{Map, MapKind, MapShape};
pub use program::{Instruction, Link, Program, Rejected};

/// Type information (BTF) of our own values, which task storage demands.
#[derive(Debug)]
pub struct Types(OwnedFd);

const BPF_BTF_LOAD: libc::c_long = 18;

#[repr(C)]
struct BtfLoad {
    btf: u64,
    log: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    _pad: u32,
}

/// bpf(2). Returns what the kernel returned.
///
/// # Safety
/// `attribute` must be the kernel's structure for `command`, and every address in it must be live and
/// large enough for what the command reads or writes there.
unsafe fn bpf<T>(command: libc::c_long, attribute: &mut T) -> Result<i32, Errno> {
    // SAFETY: the size is that of the live structure; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attribute),
            size_of::<T>(),
        )
    };
    Errno::result(result).map(|value| value as i32)
}

/// As [`bpf`], for commands that return a new descriptor (which is always closed on exec).
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_fd<T>(command: libc::c_long, attribute: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attribute) }?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    // A descriptor that is open is never negative.
    fd.as_raw_fd() as u32
}

/// A name for `bpftool prog` and `bpftool map`: fifteen bytes at most, the rest zero.
fn short_name(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    short
}

impl Types {
    /// Loads a BTF image.
    ///
    /// # Errors
    /// EPERM without the right, EINVAL when the image is malformed.
    pub fn load(image: &[u8]) -> Result<Types, Errno> {
        let mut attribute = BtfLoad {
            btf: image.as_ptr() as u64,
            log: 0,
            size: u32::try_from(image.len()).map_err(|_| Errno::E2BIG)?,
            log_size: 0,
            log_level: 0,
            _pad: 0,
        };
        // SAFETY: the image is live and `size` is its length.
        unsafe { bpf_fd(BPF_BTF_LOAD, &mut attribute) }.map(Types)
    }
}
