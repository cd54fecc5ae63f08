/* Programs whose system calls are known to the number, call by call. Everything a part does on purpose is a
   raw call, so that no library adds or saves one; `nothing` is what the rest of every part comes to. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ends with the line's number where a call does not do what it should. */
#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what))                                                                                         \
            _exit(__LINE__ % 200 + 1);                                                                       \
    } while (0)
#define TIMES(n) for (int time_ = 0; time_ < (n); time_++)

static char buffer[1 << 16];

static int nothing(void) { return 0; }

static int pipes(void)
{
    int ends[2];
    CHECK(syscall(SYS_pipe2, ends, O_NONBLOCK) == 0);
    TIMES(100) {
        CHECK(syscall(SYS_write, ends[1], "x", 1) == 1);
        CHECK(syscall(SYS_read, ends[0], buffer, 1) == 1);
    }
    TIMES(10) CHECK(syscall(SYS_read, ends[0], buffer, 1) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_close, ends[0]) == 0);
    return 0;
}

static int vectors(void)
{
    struct iovec parts[] = { { buffer, 10 }, { buffer + 10, 20 } };
    int file = syscall(SYS_memfd_create, "x", 0);
    CHECK(file >= 0 && syscall(SYS_ftruncate, file, 4096) == 0);
    TIMES(20) {
        CHECK(syscall(SYS_writev, file, parts, 2) == 30);
        CHECK(syscall(SYS_lseek, file, 0, SEEK_SET) == 0);
        CHECK(syscall(SYS_readv, file, parts, 2) == 30);
        CHECK(syscall(SYS_lseek, file, 0, SEEK_SET) == 0);
    }
    TIMES(5) {
        CHECK(syscall(SYS_pwrite64, file, "x", 1, 9) == 1);
        CHECK(syscall(SYS_preadv, file, parts, 2, 0, 0) == 30);
    }
    return 0;
}

static int messages(void)
{
    int ends[2];
    struct iovec part = { buffer, 4 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    struct mmsghdr many[2] = { { .msg_hdr = message }, { .msg_hdr = message } };
    CHECK(syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends) == 0);
    TIMES(10) {
        CHECK(syscall(SYS_sendmsg, ends[0], &message, 0) == 4);
        CHECK(syscall(SYS_recvmsg, ends[1], &message, 0) == 4);
    }
    TIMES(3) {
        CHECK(syscall(SYS_sendmmsg, ends[0], many, 2, 0) == 2);
        CHECK(syscall(SYS_recvmmsg, ends[1], many, 2, 0, NULL) == 2);
    }
    TIMES(7) CHECK(syscall(SYS_recvmsg, ends[1], &message, 0) == -1 && errno == EAGAIN);
    TIMES(2) CHECK(syscall(SYS_sendmsg, 0x7fffffff, &message, 0) == -1 && errno == EBADF);
    return 0;
}

static int tcp(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int on = 1;
    int listener = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    CHECK(syscall(SYS_bind, listener, &address, length) == 0);
    CHECK(syscall(SYS_listen, listener, 8) == 0);
    CHECK(syscall(SYS_getsockname, listener, &address, &length) == 0);
    int client = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    CHECK(syscall(SYS_connect, client, &address, length) == 0);
    int server = syscall(SYS_accept4, listener, NULL, NULL, 0);
    CHECK(server >= 0);
    TIMES(4) CHECK(syscall(SYS_setsockopt, client, IPPROTO_TCP, 1, &on, sizeof on) == 0);
    TIMES(30) {
        CHECK(syscall(SYS_sendto, client, "ping", 4, 0, NULL, 0) == 4);
        CHECK(syscall(SYS_recvfrom, server, buffer, 4, MSG_WAITALL, NULL, NULL) == 4);
    }
    TIMES(6) CHECK(syscall(SYS_recvfrom, client, buffer, 4, MSG_DONTWAIT, NULL, NULL) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_shutdown, client, SHUT_WR) == 0);
    CHECK(syscall(SYS_recvfrom, server, buffer, 4, 0, NULL, NULL) == 0);
    CHECK(syscall(SYS_close, listener) == 0);
    int refused = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    CHECK(syscall(SYS_connect, refused, &address, length) == -1 && errno == ECONNREFUSED);
    return 0;
}

static int unix_missing(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/no/such/socket" };
    int client = syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    TIMES(3) CHECK(syscall(SYS_connect, client, &address, sizeof address) == -1 && errno == ENOENT);
    return 0;
}

static int epoll(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    unsigned long long one = 1;
    int queue = syscall(SYS_epoll_create1, 0), counter = syscall(SYS_eventfd2, 0, 0);
    CHECK(syscall(SYS_epoll_ctl, queue, EPOLL_CTL_ADD, counter, &event) == 0);
    TIMES(2) CHECK(syscall(SYS_epoll_ctl, queue, EPOLL_CTL_ADD, counter, &event) == -1 && errno == EEXIST);
    TIMES(8) CHECK(syscall(SYS_epoll_pwait, queue, &event, 1, 0, NULL, 8) == 0);
    CHECK(syscall(SYS_write, counter, &one, 8) == 8);
    TIMES(3) CHECK(syscall(SYS_epoll_pwait, queue, &event, 1, -1, NULL, 8) == 1);
    CHECK(syscall(SYS_epoll_ctl, queue, EPOLL_CTL_DEL, counter, NULL) == 0);
    CHECK(syscall(SYS_epoll_ctl, queue, EPOLL_CTL_DEL, counter, NULL) == -1 && errno == ENOENT);
    return 0;
}

static int waits(void)
{
    struct timespec soon = { 0, 1000000 };
    TIMES(3) CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, NULL) == 0);
    TIMES(2) CHECK(syscall(SYS_ppoll, NULL, 0, &soon, NULL, 8) == 0);
    TIMES(4) CHECK(syscall(SYS_sched_yield) == 0);
    return 0;
}

static int failing(void)
{
    TIMES(10) CHECK(syscall(SYS_openat, AT_FDCWD, "/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
    TIMES(4) CHECK(syscall(SYS_close, 0x7fffffff) == -1 && errno == EBADF);
    TIMES(2) CHECK(syscall(SYS_dup, 0x7fffffff) == -1 && errno == EBADF);
    TIMES(3) CHECK(syscall(SYS_mkdirat, AT_FDCWD, "/", 0700) == -1 && errno == EEXIST);
    TIMES(5) CHECK(syscall(SYS_kill, 0x7ffffff, 0) == -1 && errno == ESRCH);
    TIMES(2) CHECK(syscall(SYS_munmap, 1, 4096) == -1 && errno == EINVAL);
    TIMES(6) CHECK(syscall(SYS_wait4, -1, NULL, 0, NULL) == -1 && errno == ECHILD);
    return 0;
}

static int memory(void)
{
    TIMES(20) {
        char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        CHECK(syscall(SYS_mprotect, page, 4096, PROT_READ) == 0);
        CHECK(syscall(SYS_madvise, page, 8192, MADV_DONTNEED) == 0);
        CHECK(syscall(SYS_munmap, page, 8192) == 0);
    }
    return 0;
}

static int descriptors(void)
{
    int copy = 0;
    TIMES(5) CHECK((copy = syscall(SYS_dup, 2)) >= 0);
    TIMES(3) CHECK(syscall(SYS_dup3, 2, 100, 0) == 100);
    TIMES(6) CHECK(syscall(SYS_fcntl, 100, F_GETFD) == 0);
    CHECK(syscall(SYS_close_range, 100, 100, 0) == 0);
    TIMES(2) CHECK(syscall(SYS_fcntl, 100, F_GETFD) == -1 && errno == EBADF);
    TIMES(3) CHECK(syscall(SYS_unshare, CLONE_FILES) == 0);
    return copy < 0;
}

static volatile sig_atomic_t handled;

static void handle(int signal) { handled += signal > 0; }

static void handle_all(int signal, int flags)
{
    struct sigaction action = { .sa_handler = handle, .sa_flags = flags };
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static int signals(void)
{
    int self = syscall(SYS_getpid);
    handle_all(SIGUSR1, 0);
    handle_all(SIGRTMIN + 1, 0);
    TIMES(12) CHECK(syscall(SYS_tgkill, self, self, SIGUSR1) == 0);
    TIMES(8) CHECK(syscall(SYS_kill, self, SIGRTMIN + 1) == 0);
    return handled != 20;
}

/* A handler without SA_RESTART ends the waits that a timer interrupts. */
static int interrupted(void)
{
    struct itimerval soon = { .it_value = { 0, 3000 } };
    struct timespec never = { 1000, 0 };
    handle_all(SIGALRM, 0);
    TIMES(3) {
        CHECK(syscall(SYS_setitimer, ITIMER_REAL, &soon, NULL) == 0);
        CHECK(syscall(SYS_ppoll, NULL, 0, &never, NULL, 8) == -1 && errno == EINTR);
    }
    TIMES(2) {
        CHECK(syscall(SYS_setitimer, ITIMER_REAL, &soon, NULL) == 0);
        CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &never, NULL) == -1 && errno == EINTR);
    }
    return handled != 5;
}

static void until_state(pid_t process, char wanted)
{
    char path[64], text[256];
    struct timespec moment = { 0, 1000000 };
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    for (;;) {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        CHECK(length > 0);
        text[length] = 0;
        char *state = strrchr(text, ')');
        if (state && state[1] && state[2] == wanted)
            return;
        clock_nanosleep(CLOCK_REALTIME, 0, &moment, NULL);
    }
}

/* A sleep over a stop goes on as restart_syscall. The stopped state is another letter under a tracer, so the
   stop is waited for by waitpid. */
static int stopped(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct timespec while_stopped = { 0, 400000000 };
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &while_stopped, NULL);
        _exit(0);
    }
    int status;
    until_state(child, 'S');
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(kill(child, SIGCONT) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return 0;
}

/* A child that dies inside a call. */
static int killed_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_pause);
        _exit(1);
    }
    int status;
    until_state(child, 'S');
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    return 0;
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Children by every call that makes one. Blocked, no end of a child restarts the call that makes the next. */
static int births(void)
{
    struct clone_args how = { .exit_signal = SIGCHLD };
    TIMES(5) {
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            syscall(SYS_exit_group, 0);
        wait_for(child);
    }
    TIMES(3) {
        long child = syscall(SYS_clone3, &how, sizeof how);
        if (child == 0)
            syscall(SYS_exit_group, 0);
        wait_for(child);
    }
#ifdef SYS_fork
    TIMES(2) {
        long child = syscall(SYS_fork);
        if (child == 0)
            syscall(SYS_exit_group, 0);
        wait_for(child);
    }
#endif
    return 0;
}

/* Every process has three children, down to the third generation: 39 of them. */
static int tree(int depth)
{
    TIMES(5) syscall(SYS_getppid);
    if (depth == 3)
        return 0;
    for (int i = 0; i < 3; i++)
        if (fork() == 0)
            _exit(tree(depth + 1));
    int status;
    for (int i = 0; i < 3; i++)
        CHECK(wait(&status) > 0 && status == 0);
    return 0;
}

/* Executes itself over and over. */
static int chain(char *program, int left)
{
    char number[16];
    syscall(SYS_getppid);
    if (left == 0)
        return 0;
    snprintf(number, sizeof number, "%d", left - 1);
    execl(program, program, "chain", number, NULL);
    return 1;
}

static void *thread_ends(void *unused)
{
    TIMES(9) syscall(SYS_getppid);
    syscall(SYS_exit, 0);
    return unused;
}

/* Threads that end by themselves: exit never returns. */
static int thread_exits(void)
{
    pthread_t made;
    TIMES(10) CHECK(pthread_create(&made, NULL, thread_ends, NULL) == 0);
    /* Nobody can join them; the process is over when the last one is. */
    struct timespec moment = { 0, 1000000 };
    for (;;) {
        char text[4096];
        int file = open("/proc/self/status", O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        CHECK(length > 0);
        text[length] = 0;
        if (strstr(text, "Threads:\t1\n"))
            return 0;
        clock_nanosleep(CLOCK_REALTIME, 0, &moment, NULL);
    }
}

/* Arguments that look like what a tracer prints. */
static int deceiving(void)
{
    static const char line[] = "x\") = 0 <0.1>\n7 1.0 [  39] getppid() = 1 <0.1>\n+++ exited with 0 +++\n";
    int sink = open("/dev/null", O_WRONLY);
    CHECK(syscall(SYS_prctl, PR_SET_NAME, ") = 0 <0.1>") == 0);
    TIMES(15) CHECK(syscall(SYS_write, sink, line, sizeof line - 1) == sizeof line - 1);
    TIMES(15) CHECK(syscall(SYS_write, sink, "x\" <unfinished ...>", 19) == 19);
    TIMES(4) CHECK(syscall(SYS_faccessat, AT_FDCWD, ") = 0\n[\"", F_OK) == -1 && errno == ENOENT);
    return 0;
}

/* Large transfers and many calls. */
static int many(void)
{
    int sink = open("/dev/null", O_WRONLY);
    TIMES(500) CHECK(syscall(SYS_write, sink, buffer, sizeof buffer) == sizeof buffer);
    TIMES(500) syscall(SYS_getppid);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    static const struct {
        const char *name;
        int (*run)(void);
    } parts[] = {
        { "nothing", nothing },     { "pipes", pipes },
        { "vectors", vectors },     { "messages", messages },
        { "tcp", tcp },             { "unix-missing", unix_missing },
        { "epoll", epoll },         { "waits", waits },
        { "failing", failing },     { "memory", memory },
        { "descriptors", descriptors }, { "signals", signals },
        { "interrupted", interrupted }, { "stopped", stopped },
        { "killed-child", killed_child }, { "births", births },
        { "thread-exits", thread_exits }, { "deceiving", deceiving },
        { "many", many },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(what, parts[i].name))
            return parts[i].run();
    if (!strcmp(what, "tree"))
        return tree(0);
    if (!strcmp(what, "chain"))
        return chain(argv[0], argc > 2 ? atoi(argv[2]) : 10);
    return 2;
}
