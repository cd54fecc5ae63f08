//! A network namespace of one's own, and limits of open files for other processes.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendmsg, socket,
};
use nix::unistd::{getegid, geteuid};

/// Moves this process into a new network namespace with the loopback interface up. Without the right to do
/// so (CAP_SYS_ADMIN) it makes a user namespace around it, where that is allowed; the process keeps its
/// user id in it. The process must have one thread.
///
/// # Errors
/// EPERM where neither is allowed, and what the kernel says to setting the interface up.
pub fn enter_own_network() -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            let (uid, gid) = (geteuid(), getegid());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
            // Without this an ordinary user may not map a group.
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
        }
        Err(errno) => return Err(errno.into()),
    }
    loopback_up()
}

/// Sets interface 1, which is `lo` in every new namespace, up: RTM_NEWLINK with IFF_UP
/// (`include/uapi/linux/rtnetlink.h`).
fn loopback_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 0x5;
    const NLMSG_ERROR: u16 = 2;
    const IFF_UP: u32 = 1;
    const LENGTH: u32 = 32;
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut message = Vec::with_capacity(LENGTH as usize);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]);
    // struct ifinfomsg: family, padding, type, index, flags, change.
    message.extend([0; 4]);
    message.extend(1_i32.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    sendmsg::<NetlinkAddr>(
        fd.as_raw_fd(),
        &[IoSlice::new(&message)],
        &[],
        MsgFlags::empty(),
        Some(&NetlinkAddr::new(0, 0)),
    )?;
    let mut answer = [0_u8; 256];
    let length = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let word = |at: usize| answer.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
    let kind = answer.get(4..6).and_then(|bytes| bytes.first_chunk::<2>());
    match (kind.map(|kind| u16::from_ne_bytes(*kind)), word(16)) {
        (Some(NLMSG_ERROR), Some(code)) if length >= 20 => match i32::from_ne_bytes(*code) {
            0 => Ok(()),
            code => Err(Errno::from_raw(code.wrapping_neg()).into()),
        },
        _ => Err(Errno::EPROTO.into()),
    }
}

/// Lets a command start with this limit of open files, soft and hard.
pub fn start_with_open_files(command: &mut Command, limit: u64) -> &mut Command {
    let set = move || setrlimit(Resource::RLIMIT_NOFILE, limit, limit).map_err(io::Error::from);
    // SAFETY: the closure runs between fork and exec and makes one system call; it neither allocates nor
    // takes a lock.
    unsafe { command.pre_exec(set) }
}

/// Sets the soft limit of open files of a running process.
///
/// # Errors
/// ESRCH when it is gone, EPERM when it is another user's.
pub fn set_open_files_of(pid: i32, soft: u64) -> Result<(), Errno> {
    // SAFETY: all zeroes are a valid rlimit.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: `limit` is live, and nothing is set.
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    Errno::result(read)?;
    limit.rlim_cur = soft.min(limit.rlim_max);
    // SAFETY: `limit` is live, and nothing is read back.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    Errno::result(set).map(drop)
}
