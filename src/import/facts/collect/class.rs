//! What a system call does, by its name.

/// What a system call does, as far as the facts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Socket,
    Connect,
    Accept,
    Close,
    Send,
    Receive,
    Write,
    Read,
    Poll,
    Select,
    EpollWait,
    EpollCreate,
    EpollCtl,
    SetOption,
    GetOption,
    Fcntl,
    Ioctl,
    Open,
    Stat,
    Sleep,
    Futex,
    Clone,
    Exec,
    Dup,
    OtherWait,
    Other,
}

impl Class {
    /// By name, on any system.
    pub(crate) fn of(name: &str) -> Class {
        // macOS has variants that are no cancellation points.
        match name.strip_suffix("_nocancel").unwrap_or(name) {
            "socket" => Class::Socket,
            "connect" | "connectx" => Class::Connect,
            "accept" | "accept4" => Class::Accept,
            "close" => Class::Close,
            "send" | "sendto" | "sendmsg" | "sendmmsg" => Class::Send,
            "recv" | "recvfrom" | "recvmsg" | "recvmmsg" => Class::Receive,
            "write" | "writev" => Class::Write,
            "read" | "readv" => Class::Read,
            "poll" | "ppoll" | "ppoll_time64" | "pollsys" => Class::Poll,
            "select" | "_newselect" | "pselect6" | "pselect" | "pselect6_time64" => Class::Select,
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Class::EpollWait,
            "epoll_create" | "epoll_create1" => Class::EpollCreate,
            "epoll_ctl" => Class::EpollCtl,
            "setsockopt" => Class::SetOption,
            "getsockopt" => Class::GetOption,
            "fcntl" | "fcntl64" => Class::Fcntl,
            "ioctl" => Class::Ioctl,
            "open" | "openat" | "openat2" => Class::Open,
            "stat" | "stat64" | "lstat" | "lstat64" | "newfstatat" | "fstatat64" | "statx" | "access"
            | "faccessat" | "faccessat2" | "readlink" | "readlinkat" => Class::Stat,
            "nanosleep" | "clock_nanosleep" | "clock_nanosleep_time64" | "usleep" => Class::Sleep,
            "futex" | "futex_time64" => Class::Futex,
            "clone" | "clone3" | "fork" | "vfork" => Class::Clone,
            "execve" | "execveat" => Class::Exec,
            "dup" | "dup2" | "dup3" => Class::Dup,
            "wait4" | "waitid" | "waitpid" | "pause" | "rt_sigtimedwait" | "rt_sigsuspend" | "sigsuspend"
            | "kevent" | "lwp_cond_wait" | "lwp_park" | "io_uring_enter" | "io_getevents" | "msgrcv"
            | "semop" => Class::OtherWait,
            _ => Class::Other,
        }
    }

    /// Whether it waits for something.
    pub(super) fn waits(self) -> bool {
        matches!(
            self,
            Class::Connect
                | Class::Accept
                | Class::Receive
                | Class::Poll
                | Class::Select
                | Class::EpollWait
                | Class::Sleep
                | Class::Futex
                | Class::OtherWait
        )
    }
}
