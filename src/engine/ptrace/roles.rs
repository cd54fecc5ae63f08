//! What a call means to the engine beyond being counted: moving data, making or closing descriptors,
//! marking the window, showing the affinity.
//!
//! One table by name serves every ABI; it is turned into an array by number once per session.

use super::fast::FastMap;
use crate::engine::{Selection, Window};
use crate::tally::{Abi, Syscall};

/// What the engine does about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Counts it.
    Plain,
    /// `read`: data in, and on descriptor 0 perhaps the word that opens the window.
    Read,
    /// Other calls that read from the descriptor in the first argument.
    ReadOther,
    /// `write`: data out, and on descriptor 1 perhaps the line that closes the window.
    Write,
    /// `writev`: the same, gathered.
    WriteVector,
    /// Other calls that write to the descriptor in the first argument.
    WriteOther,
    /// `sendto`, `send`.
    Send,
    /// `sendmsg`.
    SendMessage,
    /// `sendmmsg`.
    SendMany,
    /// `recvfrom`, `recv`: flags in the fourth argument.
    Receive,
    /// `recvmsg`: flags in the third.
    ReceiveMessage,
    /// `recvmmsg`: flags in the fourth.
    ReceiveMany,
    /// `sendfile`: out to the first descriptor, in from the second.
    SendFile,
    /// `splice`: in from the first descriptor, out to the third argument.
    Splice,
    /// `socket`.
    Socket,
    /// `connect`.
    Connect,
    /// `accept`, `accept4`.
    Accept,
    /// Calls that only look at or set up the socket in the first argument.
    SocketControl,
    /// `setsockopt`: the same, and it may switch TCP_NODELAY.
    SetOption,
    /// `poll`, `epoll_wait`: a wait for descriptors; the time-out in milliseconds is in this argument.
    Wait(u8),
    /// `ppoll`, `select` and kin: the time-out is in memory, where this argument points.
    WaitAt(u8),
    /// `close`.
    Close,
    /// `dup2`, `dup3`: close the second descriptor.
    Duplicate,
    /// `close_range`.
    CloseRange,
    /// `unshare`: may part shared descriptor tables.
    Unshare,
    /// `clone`: flags in the first argument.
    Clone,
    /// `clone3`: flags in memory.
    Clone3,
    /// `fork`, `vfork`.
    Fork,
    /// `execve`, `execveat`.
    Exec,
    /// `sched_getaffinity`: shows the mask.
    GetAffinity,
    /// `sched_setaffinity`: makes the mask the program's own.
    SetAffinity,
    /// `ptrace`: fails under a tracer.
    Ptrace,
    /// `rt_sigreturn`, `sigreturn`: the result is the interrupted code's register, not an error.
    SignalReturn,
    /// `exit`: never returns.
    Exit,
    /// `exit_group`: never returns either, and is the last moment to ask for CPU time.
    ExitGroup,
    /// `prctl`, `seccomp`: may confine the program.
    Confine,
    /// `io_uring_setup`: what goes through the ring is no system call.
    IoUring,
}

use Role::*;

/// By name, sorted.
const ROLES: &[(&str, Role)] = &[
    ("accept", Accept),
    ("accept4", Accept),
    ("bind", SocketControl),
    ("clone", Clone),
    ("clone3", Clone3),
    ("close", Close),
    ("close_range", CloseRange),
    ("connect", Connect),
    ("dup2", Duplicate),
    ("dup3", Duplicate),
    ("epoll_pwait", Wait(3)),
    ("epoll_pwait2", WaitAt(3)),
    ("epoll_wait", Wait(3)),
    ("execve", Exec),
    ("execveat", Exec),
    ("exit", Exit),
    ("exit_group", ExitGroup),
    ("fork", Fork),
    ("getpeername", SocketControl),
    ("getsockname", SocketControl),
    ("getsockopt", SocketControl),
    ("io_uring_setup", IoUring),
    ("listen", SocketControl),
    ("poll", Wait(2)),
    ("ppoll", WaitAt(2)),
    ("prctl", Confine),
    ("pread64", ReadOther),
    ("preadv", ReadOther),
    ("preadv2", ReadOther),
    ("pselect6", WaitAt(4)),
    ("ptrace", Ptrace),
    ("pwrite64", WriteOther),
    ("pwritev", WriteOther),
    ("pwritev2", WriteOther),
    ("read", Read),
    ("readv", ReadOther),
    ("recv", Receive),
    ("recvfrom", Receive),
    ("recvmmsg", ReceiveMany),
    ("recvmmsg_time64", ReceiveMany),
    ("recvmsg", ReceiveMessage),
    ("rt_sigreturn", SignalReturn),
    ("sched_getaffinity", GetAffinity),
    ("sched_setaffinity", SetAffinity),
    ("seccomp", Confine),
    ("select", WaitAt(4)),
    ("send", Send),
    ("sendfile", SendFile),
    ("sendfile64", SendFile),
    ("sendmmsg", SendMany),
    ("sendmsg", SendMessage),
    ("sendto", Send),
    ("setsockopt", SetOption),
    ("shutdown", SocketControl),
    ("sigreturn", SignalReturn),
    ("socket", Socket),
    ("splice", Splice),
    ("unshare", Unshare),
    ("vfork", Fork),
    ("write", Write),
    ("writev", WriteVector),
];

impl Role {
    /// The role of a call in its own ABI.
    pub(super) fn of(call: Syscall) -> Role {
        let Some(name) = call.bare_name() else {
            return Plain;
        };
        match ROLES.binary_search_by_key(&name, |(name, _)| name) {
            Ok(found) => ROLES[found].1,
            Err(_) => Plain,
        }
    }

    /// Whether it moves data or works on a socket, so that what its descriptor leads to matters.
    pub(super) fn is_on_descriptor(self) -> bool {
        match self {
            Read | ReadOther | Write | WriteVector | WriteOther | Send | SendMessage | SendMany | Receive
            | ReceiveMessage | ReceiveMany | SendFile | Splice | Connect | Accept | SocketControl
            | SetOption => true,
            Plain | Wait(_) | WaitAt(_) | Socket | Close | Duplicate | CloseRange | Unshare | Clone
            | Clone3 | Fork | Exec | GetAffinity | SetAffinity | Ptrace | SignalReturn | Exit | ExitGroup
            | Confine | IoUring => false,
        }
    }

    /// Whether it may end what a descriptor number stands for. Acted on at the entry: the number can be
    /// given to another file by the time the call returns.
    pub(super) fn closes(self) -> bool {
        matches!(self, Close | Duplicate | CloseRange)
    }
}

/// How one call is treated in this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Treatment {
    /// Its role.
    pub(super) role: Role,
    /// Whether it is counted, or only looked at.
    pub(super) counted: bool,
}

/// How many numbers of the native table are looked up by index.
pub(super) const NATIVE_NUMBERS: usize = 512;

/// The treatment of every call.
pub(super) struct Roles {
    native: Box<[Treatment; NATIVE_NUMBERS]>,
    others: FastMap<Syscall, Treatment>,
    chosen: Chosen,
}

impl Roles {
    /// For a selection.
    pub(super) fn new(selection: &Selection) -> Roles {
        let chosen = Chosen::new(selection);
        let mut native = Box::new(
            [Treatment {
                role: Plain,
                counted: false,
            }; NATIVE_NUMBERS],
        );
        for (number, treatment) in native.iter_mut().enumerate() {
            *treatment = chosen.treatment(Syscall::native(number as i64));
        }
        Roles {
            native,
            others: FastMap::default(),
            chosen,
        }
    }

    /// How to treat a call.
    pub(super) fn of(&mut self, call: Syscall) -> Treatment {
        if call.abi == Abi::NATIVE
            && let Some(treatment) = self.native.get(call.number as usize)
        {
            return *treatment;
        }
        *self
            .others
            .entry(call)
            .or_insert_with(|| self.chosen.treatment(call))
    }
}

/// Which calls are counted.
#[derive(Debug, Clone)]
struct Chosen {
    listed: std::collections::HashSet<Syscall>,
    listed_are_counted: bool,
}

impl Chosen {
    fn new(selection: &Selection) -> Chosen {
        let (calls, listed_are_counted): (&[Syscall], bool) = match selection {
            Selection::All => (&[], false),
            Selection::Only(calls) => (calls, true),
            Selection::Except(calls) => (calls, false),
        };
        Chosen {
            listed: calls.iter().copied().collect(),
            listed_are_counted,
        }
    }

    fn treatment(&self, call: Syscall) -> Treatment {
        Treatment {
            role: Role::of(call),
            counted: self.listed.contains(&call) == self.listed_are_counted,
        }
    }
}

/// A call that the engine must see although it is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watch {
    /// Its name in every ABI.
    pub(super) name: &'static str,
    /// Only when the first argument is this, a descriptor or a command.
    pub(super) first_argument: Option<u32>,
}

/// What has to be watched beside a selection: the markers, what a descriptor number stands for, the
/// affinity, the end, and what the notes are about. All of these are rare, or looked at only on
/// descriptors 0 and 1.
pub(super) fn watches(selection: &Selection, window: Window, pinned: bool) -> Vec<Watch> {
    let always = |name| Watch {
        name,
        first_argument: None,
    };
    let on = |name, argument| Watch {
        name,
        first_argument: Some(argument),
    };
    let mut watches = vec![
        always("exit_group"),
        always("ptrace"),
        always("io_uring_setup"),
        always("seccomp"),
        on("prctl", libc::PR_SET_SECCOMP as u32),
    ];
    if window == Window::Markers {
        watches.extend([on("read", 0), on("write", 1), on("writev", 1), on("sendto", 1)]);
    }
    if pinned {
        watches.extend([always("sched_getaffinity"), always("sched_setaffinity")]);
    }
    let by_descriptor = match selection {
        Selection::All | Selection::Except(_) => true,
        Selection::Only(calls) => calls.iter().any(|call| Role::of(*call).is_on_descriptor()),
    };
    if by_descriptor {
        watches.extend(["close", "close_range", "dup2", "dup3"].map(always));
    }
    watches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_names_exist() {
        assert!(ROLES.is_sorted_by_key(|(name, _)| *name));
        for (name, _) in ROLES {
            assert!(!Syscall::all_by_name(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_selection_says_what_is_counted() {
        let read = Syscall::native(libc::SYS_read);
        let write = Syscall::native(libc::SYS_write);
        let unknown = Syscall::native(400_000);
        let counted = |selection: Selection| {
            let mut roles = Roles::new(&selection);
            [read, write, unknown].map(|call| roles.of(call).counted)
        };
        assert_eq!(counted(Selection::All), [true, true, true]);
        assert_eq!(counted(Selection::Only(vec![read])), [true, false, false]);
        assert_eq!(counted(Selection::Except(vec![read])), [false, true, true]);
    }

    #[test]
    fn a_32_bit_call_has_the_role_of_its_own_table() {
        // 45 is recvfrom in the native table and brk in the 32-bit one.
        assert_eq!(
            Role::of(Syscall {
                abi: Abi::X86_64,
                number: 45
            }),
            Receive
        );
        assert_eq!(
            Role::of(Syscall {
                abi: Abi::I386,
                number: 45
            }),
            Plain
        );
        assert_eq!(
            Role::of(Syscall {
                abi: Abi::I386,
                number: 3
            }),
            Read
        );
    }
}
