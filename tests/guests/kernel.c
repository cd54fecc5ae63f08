/* Programs whose system calls are known to the number, for the engines that count in the kernel.
   The first argument chooses one. Counts are in terms of getppid, which nothing else here calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void call(long times)
{
    for (long i = 0; i < times; i++)
        syscall(SYS_getppid);
}

static void *thread_calls(void *times)
{
    call((long)times);
    return NULL;
}

static int wait_all(void)
{
    int status, bad = 0;
    while (wait(&status) > 0)
        bad |= status;
    return bad != 0;
}

/* forks CHILDREN TIMES: all children at once */
static int forks(long children, long times)
{
    for (long i = 0; i < children; i++)
        if (fork() == 0) {
            call(times);
            _exit(0);
        }
    return wait_all();
}

/* short CHILDREN: one child after the other */
static int shorts(long children)
{
    for (long i = 0; i < children; i++) {
        if (fork() == 0) {
            call(1);
            _exit(0);
        }
        if (wait_all())
            return 1;
    }
    return 0;
}

/* threads COUNT TIMES */
static int threads(long count, long times)
{
    pthread_t made[count];
    for (long i = 0; i < count; i++)
        if (pthread_create(&made[i], NULL, thread_calls, (void *)times))
            return 1;
    for (long i = 0; i < count; i++)
        pthread_join(made[i], NULL);
    return 0;
}

/* orphan TIMES: a daemon that works on when the root has ended */
static int orphan(long times)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            usleep(150000);
            call(times);
        }
        _exit(0);
    }
    return wait_all();
}

static long i386(long number, long argument)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(argument), "c"(0), "d"(0) : "r8", "r9", "r10", "r11", "memory");
    return (int)result;
}

/* i386: brk by the 32-bit convention has the number of the native recvfrom; socketcall 99 does not exist,
   socketcall 1 is socket */
static int foreign(void)
{
    for (int i = 0; i < 5; i++)
        i386(45, 0);
    i386(102, 1);
    i386(102, 1);
    i386(102, 99);
    syscall(SYS_recvfrom, -1, NULL, 0, 0, NULL, NULL);
    syscall(SYS_recvfrom, -1, NULL, 0, 0, NULL, NULL);
    return 0;
}

/* unknown numbers, and x32 ones */
static int unknown(void)
{
    for (int i = 0; i < 3; i++)
        syscall(9999);
    syscall(-1);
    syscall(-1);
    for (int i = 0; i < 4; i++)
        syscall(0x40000000 + 39);
    return 0;
}

/* refused: a filter of its own refuses getppid */
static int refused(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    call(2);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 1;
    call(7);
    return 0;
}

/* Waits until a thread sleeps in the one call that it has left to make. */
static void until_asleep(pid_t process, pid_t thread)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    for (;;) {
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file)
            fclose(file);
        text[length] = 0;
        char *state = strrchr(text, ')');
        if (state && state[1] && state[2] == 'S')
            return;
        usleep(1000);
    }
}

static volatile int *handled;

static void handle(int signal)
{
    (void)signal;
    ++*handled;
}

/* restart: ten signals interrupt a receive that the kernel restarts, then it is given data */
static int restart(void)
{
    int ends[2];
    char byte;
    handled = mmap(NULL, sizeof *handled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (handled == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 1;
    struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    pid_t root = getpid();
    if (fork() == 0) {
        for (int i = 0; i < 10; i++) {
            while (*handled < i)
                usleep(1000);
            until_asleep(root, root);
            kill(root, SIGUSR1);
        }
        while (*handled < 10)
            usleep(1000);
        until_asleep(root, root);
        if (send(ends[1], "x", 1, 0) != 1)
            _exit(1);
        /* The end of a child is a signal, too, when a tracer follows. */
        while (*handled < 100)
            usleep(1000);
        _exit(0);
    }
    if (recv(ends[0], &byte, 1, 0) != 1)
        return 1;
    *handled = 100;
    return wait_all();
}

static volatile pid_t waiting[3];

static void *thread_waits(void *place)
{
    waiting[(long)place] = syscall(SYS_gettid);
    syscall(SYS_pause);
    return NULL;
}

/* unfinished: three threads never return from pause */
static int unfinished(void)
{
    pthread_t made;
    for (long i = 0; i < 3; i++)
        pthread_create(&made, NULL, thread_waits, (void *)i);
    for (int i = 0; i < 3; i++) {
        while (!waiting[i])
            usleep(1000);
        until_asleep(getpid(), waiting[i]);
    }
    syscall(SYS_exit_group, 0);
    return 1;
}

/* killed: dies by a signal inside a call */
static int killed(void)
{
    pid_t root = getpid();
    if (fork() == 0) {
        until_asleep(root, root);
        kill(root, SIGKILL);
        _exit(0);
    }
    pause();
    return 1;
}

static void *thread_execs(void *program)
{
    execl(program, program, "calls", "21", NULL);
    return NULL;
}

/* exec: a thread that is not the leader executes this program anew */
static int exec(char *program)
{
    pthread_t made;
    call(1);
    pthread_create(&made, NULL, thread_execs, program);
    pause();
    return 1;
}

static pid_t by_vfork(char *program, char **argv)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execv(program, argv);
        _exit(127);
    }
    return pid;
}

/* spawn CHILDREN: by vfork and by posix_spawn */
static int spawn(char *program, long children)
{
    char *argv[] = { program, "calls", "3", NULL };
    for (long i = 0; i < children; i++) {
        pid_t pid;
        if (i % 2 ? posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0 : by_vfork(program, argv) < 0)
            return 1;
    }
    return wait_all();
}

/* failures: known numbers of known errors */
static int failures(void)
{
    int ends[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        return 1;
    for (int i = 0; i < 12; i++)
        syscall(SYS_recvfrom, ends[0], &byte, 1, 0, NULL, NULL);
    syscall(SYS_sendto, ends[1], "xyz", 3, 0, NULL, 0);
    syscall(SYS_recvfrom, ends[0], &byte, 1, MSG_PEEK, NULL, NULL);
    syscall(SYS_recvfrom, ends[0], &byte, 1, MSG_PEEK, NULL, NULL);
    for (int i = 0; i < 3; i++)
        syscall(SYS_recvfrom, ends[0], &byte, 1, 0, NULL, NULL);
    for (int i = 0; i < 5; i++)
        syscall(SYS_recvfrom, -1, &byte, 1, 0, NULL, NULL);
    for (int i = 0; i < 4; i++)
        syscall(SYS_sendto, 0x7fffffff, &byte, 1, 0, NULL, 0);
    return 0;
}

static const char done_in_a_page_of_its_own[4096] __attribute__((aligned(4096))) = "{\"event\":\"done\"}\n";

static int ready_and_go(void)
{
    char word[16];
    static const char ready[] = "{\"event\":\"ready\"}\n";
    return write(1, ready, sizeof ready - 1) < 0 || read(0, word, sizeof word) < 2;
}

/* worker ROUNDS TIMES HOW: the worker contract; `done` is written as HOW says */
static int worker(long rounds, long times, const char *how)
{
    static char done[] = "{\"event\":\"done\",\"ops\":0}\n";
    call(2);
    for (long i = 0; i < rounds; i++) {
        /* Takes the page out of memory: only the write itself will bring it back. */
        madvise((void *)done_in_a_page_of_its_own, sizeof done_in_a_page_of_its_own, MADV_DONTNEED);
        if (ready_and_go())
            return 1;
        call(times);
        if (!strcmp(how, "writev")) {
            struct iovec parts[] = { { done, 17 }, { done + 17, sizeof done - 18 } };
            if (writev(1, parts, 2) < 0)
                return 1;
        } else if (!strcmp(how, "unread")) {
            if (write(1, done_in_a_page_of_its_own, 17) < 0)
                return 1;
        } else if (write(1, done, sizeof done - 1) < 0)
            return 1;
        call(5);
    }
    return 0;
}

int main(int argc, char **argv)
{
    long a = argc > 2 ? atol(argv[2]) : 0, b = argc > 3 ? atol(argv[3]) : 0;
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "calls"))
        return call(a), 0;
    if (!strcmp(what, "forks"))
        return forks(a, b);
    if (!strcmp(what, "short"))
        return shorts(a);
    if (!strcmp(what, "threads"))
        return threads(a, b);
    if (!strcmp(what, "orphan"))
        return orphan(a);
    if (!strcmp(what, "foreign"))
        return foreign();
    if (!strcmp(what, "unknown"))
        return unknown();
    if (!strcmp(what, "refused"))
        return refused();
    if (!strcmp(what, "restart"))
        return restart();
    if (!strcmp(what, "unfinished"))
        return unfinished();
    if (!strcmp(what, "killed"))
        return killed();
    if (!strcmp(what, "exec"))
        return exec(argv[0]);
    if (!strcmp(what, "spawn"))
        return spawn(argv[0], a);
    if (!strcmp(what, "failures"))
        return failures();
    if (!strcmp(what, "worker"))
        return worker(a, b, argc > 4 ? argv[4] : "");
    fprintf(stderr, "no guest of that name\n");
    return 2;
}
