//! The classes of calls that strace's `-e trace=%class` knows, by name. Membership is strace 6.1's, found
//! by making every call under each class; calls that are younger are put beside their kin.

/// A class and its calls, which are separated by spaces.
pub(super) struct Class {
    /// The name after `%`.
    pub(super) name: &'static str,
    /// Whether strace takes the name without `%` too (those of before strace 4.17).
    pub(super) bare: bool,
    calls: &'static str,
}

impl Class {
    /// The names of its calls, in every ABI that has them.
    pub(super) fn calls(&self) -> impl Iterator<Item = &'static str> {
        self.calls.split_whitespace()
    }
}

/// All classes.
pub(super) const CLASSES: &[Class] = &[
    Class {
        name: "network",
        bare: true,
        calls: "accept accept4 bind connect getpeername getpmsg getsockname getsockopt listen putpmsg \
                recv recvfrom recvmmsg recvmmsg_time64 recvmsg send sendfile sendmmsg sendmsg sendto \
                setsockopt shutdown socket socketcall socketpair",
    },
    Class {
        name: "file",
        bare: true,
        calls: "access acct chdir chmod chown chown32 chroot creat execve execveat faccessat faccessat2 \
                fanotify_mark fchmodat fchmodat2 fchownat file_getattr file_setattr fsconfig fspick \
                fstatat64 futimesat getcwd getxattr getxattrat inotify_add_watch lchown lchown32 \
                lgetxattr link linkat listxattr listxattrat llistxattr lremovexattr lsetxattr lstat \
                lstat64 mkdir mkdirat mknod mknodat mount mount_setattr move_mount name_to_handle_at \
                newfstatat oldlstat oldstat open open_tree open_tree_attr openat openat2 pivot_root \
                quotactl readlink readlinkat removexattr removexattrat rename renameat renameat2 rmdir \
                setxattr setxattrat stat stat64 statfs statfs64 statx swapoff swapon symlink symlinkat \
                truncate truncate64 umount umount2 unlink unlinkat uselib utime utimensat \
                utimensat_time64 utimes",
    },
    Class {
        name: "desc",
        bare: true,
        calls: "_llseek _newselect bpf cachestat close copy_file_range creat dup dup2 dup3 epoll_create \
                epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old \
                eventfd eventfd2 execveat faccessat faccessat2 fadvise64 fadvise64_64 fallocate \
                fanotify_init fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat \
                fcntl fcntl64 fdatasync fgetxattr file_getattr file_setattr finit_module flistxattr \
                flock fremovexattr fsconfig fsetxattr fsmount fsopen fspick fstat fstat64 fstatat64 \
                fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getdents getdents64 getxattrat \
                inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_uring_enter \
                io_uring_register io_uring_setup ioctl kexec_file_load landlock_add_rule \
                landlock_create_ruleset landlock_restrict_self linkat listxattrat lseek memfd_create \
                memfd_secret mkdirat mknodat mmap mmap2 mount_setattr move_mount mq_getsetattr mq_notify \
                mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 \
                name_to_handle_at newfstatat open open_by_handle_at open_tree openat openat2 \
                perf_event_open pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 poll ppoll \
                ppoll_time64 pread64 preadv preadv2 process_madvise process_mrelease pselect6 \
                pselect6_time64 pwrite64 pwritev pwritev2 quotactl_fd read readahead readdir readlinkat \
                readv removexattrat renameat renameat2 select sendfile sendfile64 setns setxattrat \
                signalfd signalfd4 splice statmount statx symlinkat sync_file_range syncfs tee \
                timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 \
                unlinkat userfaultfd utimensat utimensat_time64 vmsplice write writev",
    },
    Class {
        name: "process",
        bare: true,
        calls: "clone clone3 execve execveat exit exit_group fork kill pidfd_send_signal rt_sigqueueinfo \
                rt_tgsigqueueinfo tgkill tkill vfork wait4 waitid waitpid",
    },
    Class {
        name: "memory",
        bare: true,
        calls: "brk get_mempolicy io_destroy io_setup io_uring_register madvise map_shadow_stack mbind \
                migrate_pages mincore mlock mlock2 mlockall mmap mmap2 move_pages mprotect mremap mseal \
                msync munlock munlockall munmap pkey_mprotect remap_file_pages set_mempolicy \
                set_mempolicy_home_node shmat shmdt",
    },
    Class {
        name: "signal",
        bare: true,
        calls: "io_uring_enter kill pause pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask \
                rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 \
                rt_tgsigqueueinfo sgetmask sigaction sigaltstack signal signalfd signalfd4 sigpending \
                sigprocmask sigreturn sigsuspend ssetmask tgkill tkill",
    },
    Class {
        name: "ipc",
        bare: true,
        calls: "ipc msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat \
                shmctl shmdt shmget",
    },
    Class {
        name: "clock",
        bare: false,
        calls: "adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime \
                clock_gettime64 clock_settime clock_settime64 gettimeofday settimeofday stime time",
    },
    Class {
        name: "creds",
        bare: false,
        calls: "capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 \
                getresgid getresgid32 getresuid getresuid32 getuid getuid32 prctl setfsgid setfsgid32 \
                setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setregid setregid32 setresgid \
                setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Syscall;

    #[test]
    fn every_call_exists_somewhere() {
        for class in CLASSES {
            for name in class.calls() {
                assert!(!Syscall::all_by_name(name).is_empty(), "%{}: {name}", class.name);
            }
        }
    }

    #[test]
    fn the_calls_of_clients_are_where_people_look_for_them() {
        let has = |class: &str, call: &str| {
            let class = CLASSES.iter().find(|known| known.name == class).expect(class);
            class.calls().any(|known| known == call)
        };
        for call in ["sendto", "recvfrom", "connect", "setsockopt", "sendfile"] {
            assert!(has("network", call), "{call}");
        }
        for call in ["read", "writev", "poll", "epoll_wait", "openat"] {
            assert!(has("desc", call), "{call}");
        }
        assert!(!has("network", "read") && !has("file", "read"));
    }
}
