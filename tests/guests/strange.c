// Things that trip tracers. Each part exits with 0 when the program saw what it would see untraced.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static void calls(int n) {
    while (n-- > 0)
        syscall(SYS_getppid);
}

static int vfork_part(void) {
    pid_t child = vfork();
    if (child == 0) {
        calls(3);
        _exit(5);
    }
    calls(2);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    return 0;
}

static char *own_path;

static void *exec_in_thread(void *unused) {
    (void)unused;
    calls(4);
    execl(own_path, own_path, "calls", "5", (char *)NULL);
    CHECK(!"exec returned");
    return NULL;
}

static void *wait_in_pause(void *unused) {
    (void)unused;
    pause();
    return NULL;
}

// A thread that is not the first executes a program; the others die inside a call.
static int thread_exec_part(void) {
    pthread_t other, thread;
    CHECK(pthread_create(&other, NULL, wait_in_pause, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, exec_in_thread, NULL) == 0);
    while (pause() == -1)
        ;
    return 1;
}

static void *read_for_ever(void *pipe_end) {
    char byte;
    if (read(*(int *)pipe_end, &byte, 1) < 0)
        return NULL;
    return NULL;
}

// Waits until n of this process's other threads are inside a call, or stopped by a tracer at its entry.
static void wait_for_threads_in(long number, int n) {
    for (;;) {
        int found = 0;
        DIR *tasks = opendir("/proc/self/task");
        CHECK(tasks);
        for (struct dirent *task; (task = readdir(tasks));) {
            char path[300], line[256];
            long now = -1;
            if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
                continue;
            snprintf(path, sizeof path, "/proc/self/task/%s/syscall", task->d_name);
            FILE *file = fopen(path, "r");
            if (!file)
                continue;
            if (fgets(line, sizeof line, file))
                sscanf(line, "%ld", &now);
            fclose(file);
            found += now == number;
        }
        closedir(tasks);
        if (found >= n)
            return;
        usleep(2000);
    }
}

// Threads that die inside a call, because the first one ends the process.
static int die_in_call_part(void) {
    int ends[2];
    pthread_t thread;
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(pthread_create(&thread, NULL, read_for_ever, &ends[0]) == 0);
    wait_for_threads_in(SYS_read, 5);
    syscall(SYS_exit_group, 0);
    return 1;
}

// The first thread ends before the others.
static void *last_thread(void *unused) {
    (void)unused;
    usleep(20000);
    calls(6);
    exit(0);
}

static int leader_exits_part(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, last_thread, NULL) == 0);
    pthread_exit(NULL);
}

static int seccomp_part(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    calls(2);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (int i = 0; i < 7; i++)
        CHECK(syscall(SYS_getppid) == -1 && errno == EPERM);
    // Without a tracer of its own, RET_TRACE is ENOSYS.
    CHECK(syscall(SYS_getpgrp) == -1 && errno == ENOSYS);
    return 0;
}

// A filter that asks for a tracer there is none of: its calls are never made, in a child neither. The call is
// one with an effect, and the data are any.
static int asks_for_tracer_part(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 0xffff),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    int ends[2];
    calls(3);
    CHECK(pipe(ends) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(syscall(SYS_getppid) == -1 && errno == ENOSYS);
    CHECK(syscall(SYS_close, ends[1]) == -1 && errno == ENOSYS);
    CHECK(write(ends[1], "x", 1) == 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(syscall(SYS_getppid) == -1 && errno == ENOSYS);
        syscall(SYS_exit_group, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    syscall(SYS_exit_group, 0);
    return 1;
}

#ifdef __x86_64__
static long by_int80(long number, long a, long b) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b) : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static int int80_part(void) {
    for (int i = 0; i < 3; i++)
        CHECK(by_int80(20, 0, 0) == getpid());
    for (int i = 0; i < 2; i++)
        by_int80(45, 0, 0);
    // socketcall: its second argument is a list that is not there.
    CHECK(by_int80(102, 3, 0) < 0);
    CHECK((int)by_int80(4000, 0, 0) == -ENOSYS);
    // x32, which most kernels leave out.
    syscall(0x40000000 + 39);
    return 0;
}
#else
static int int80_part(void) { return 77; }
#endif

static int unknown_part(void) {
    for (int i = 0; i < 3; i++)
        CHECK(syscall(5000) == -1 && errno == ENOSYS);
    CHECK(syscall(0x12345678) == -1 && errno == ENOSYS);
    for (int i = 0; i < 2; i++)
        CHECK(syscall(-1) == -1 && errno == ENOSYS);
    return 0;
}

static int ptrace_part(void) {
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1 && errno == EPERM);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(1);
    }
    CHECK(ptrace(PTRACE_SEIZE, child, NULL, NULL) == -1 && errno == EPERM);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}

static int count_cpus(void) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return CPU_COUNT(&set);
}

static void *count_in_thread(void *cpus) {
    *(int *)cpus = count_cpus();
    return NULL;
}

// Prints how many CPUs it sees: itself, in a thread, in a child, and after it has chosen one.
static int affinity_part(void) {
    int in_thread, in_child, status;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, count_in_thread, &in_thread) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(count_cpus());
    CHECK(waitpid(child, &status, 0) == child);
    in_child = WEXITSTATUS(status);
    printf("%d %d %d", count_cpus(), in_thread, in_child);
    cpu_set_t before, one;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &before))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        CHECK(count_cpus() == 1);
        CHECK(sched_getcpu() == cpu);
    }
    child = fork();
    if (child == 0)
        _exit(count_cpus());
    CHECK(waitpid(child, &status, 0) == child);
    printf(" %d\n", WEXITSTATUS(status));
    return 0;
}

// A daemon that outlives the program.
static int daemon_part(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        usleep(100000);
        calls(5);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}

// Processes that never end by themselves, also outside of the group.
static int linger_part(void) {
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i == 1)
                setsid();
            signal(SIGTERM, SIG_IGN);
            for (;;)
                pause();
        }
        printf("%d\n", child);
    }
    fflush(stdout);
    while (pause() == -1)
        ;
    return 1;
}

// Runs until a signal ends it.
static int wait_part(void) {
    while (pause() == -1)
        ;
    return 1;
}

// clone3 with shared descriptors, and a child that shares nothing.
static int clone3_part(void) {
    struct { unsigned long long words[11]; } args = {{0}};
    args.words[4] = SIGCHLD;
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0) {
        calls(3);
        _exit(0);
    }
    CHECK(child > 0);
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}

// A child in strict mode, which ends by the first call that this forbids; the result of asking for it is 0 or EINVAL.
static int strict_part(void) {
    pid_t child = fork();
    if (child == 0) {
        int asked = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        calls(1);
        syscall(SYS_exit, asked == 0 ? 1 : 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return 0;
}

// A child that no tracer may follow.
static int untraced_part(void) {
    pid_t child = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        calls(7);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

// Ends, perhaps after another signal, while the parent waits. Both are sent before the parent can run.
static pid_t send_soon(int first, int second) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(20000);
        if (first)
            kill(parent, first);
        if (second)
            kill(parent, second);
        _exit(0);
    }
    return child;
}

// Signals that are ignored, by default or by choice, cut nothing short; one with a handler does, also
// right behind an ignored one.
static int ignored_part(void) {
    struct epoll_event event;
    int poll = epoll_create1(0), ends[2];
    struct timeval patience = {.tv_usec = 100000};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    signal(SIGUSR1, SIG_IGN);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR2, &action, NULL);
    for (int i = 0; i < 5; i++) {
        pid_t child = send_soon(i & 1 ? SIGUSR1 : 0, i & 2 ? SIGURG : 0);
        CHECK(epoll_wait(poll, &event, 1, 100) == 0);
        CHECK(waitpid(child, NULL, 0) == child);
        child = send_soon(i & 1 ? SIGUSR1 : 0, i & 2 ? SIGWINCH : 0);
        char byte;
        CHECK(recv(ends[0], &byte, 1, 0) == -1 && errno == EAGAIN);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    for (int i = 0; i < 5; i++) {
        pid_t child = send_soon(i & 1 ? SIGUSR1 : 0, SIGUSR2);
        CHECK(epoll_wait(poll, &event, 1, 10000) == -1 && errno == EINTR);
        CHECK(handled == i + 1);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    return 0;
}

int main(int argc, char **argv) {
    own_path = argv[0];
    if (argc == 3 && strcmp(argv[1], "calls") == 0) {
        calls(atoi(argv[2]));
        return 0;
    }
    struct { const char *name; int (*part)(void); } parts[] = {
        {"vfork", vfork_part},       {"thread-exec", thread_exec_part},   {"die-in-call", die_in_call_part},
        {"seccomp", seccomp_part},   {"int80", int80_part},               {"unknown", unknown_part},
        {"ptrace", ptrace_part},     {"affinity", affinity_part},         {"daemon", daemon_part},
        {"linger", linger_part},     {"leader-exits", leader_exits_part}, {"clone3", clone3_part},
        {"wait", wait_part},         {"asks-for-tracer", asks_for_tracer_part},
        {"ignored", ignored_part},             {"strict", strict_part},
        {"untraced", untraced_part},
    };
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0)
            return parts[i].part();
    return 2;
}
