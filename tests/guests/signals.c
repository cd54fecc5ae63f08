// Signals under a tracer. Each part exits with 0 only when the program saw what it would see untraced.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static volatile sig_atomic_t seen[65];
static volatile int values[65];

static void note(int signal, siginfo_t *info, void *unused) {
    (void)unused;
    seen[signal]++;
    values[signal] = info->si_value.sival_int;
}

// Every signal that can be caught, real-time ones with a value.
static int every(void) {
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
        if (signal == SIGKILL || signal == SIGSTOP || (signal > 31 && signal < SIGRTMIN))
            continue;
        CHECK(sigaction(signal, &action, NULL) == 0);
        union sigval value = {.sival_int = 1000 + signal};
        CHECK(sigqueue(getpid(), signal, value) == 0);
        CHECK(seen[signal] == 1);
        CHECK(values[signal] == 1000 + signal);
    }
    return 0;
}

static int acknowledge;

static void answer(int signal) {
    (void)signal;
    CHECK(write(acknowledge, "x", 1) == 1);
}

// Waits until the process is inside (or at the entry of) a call.
static void wait_for_call(pid_t pid, long number) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/syscall", pid);
    for (;;) {
        FILE *file = fopen(path, "r");
        CHECK(file);
        long now = -1;
        if (fgets(line, sizeof line, file))
            sscanf(line, "%ld", &now);
        fclose(file);
        if (now == number)
            return;
        usleep(1000);
    }
}

// A recv that ten signals interrupt and the kernel restarts.
static int restart(void) {
    int pair[2], back[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(pipe(back) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sigaction action = {.sa_handler = answer, .sa_flags = SA_RESTART};
        acknowledge = back[1];
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        char byte;
        CHECK(recv(pair[1], &byte, 1, 0) == 1);
        _exit(0);
    }
    for (int i = 0; i < 10; i++) {
        char byte;
        wait_for_call(child, SYS_recvfrom);
        CHECK(kill(child, SIGUSR1) == 0);
        CHECK(read(back[0], &byte, 1) == 1);
    }
    wait_for_call(child, SYS_recvfrom);
    CHECK(send(pair[0], "y", 1, 0) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

static void stop_and_continue(pid_t child) {
    int status;
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(kill(child, SIGCONT) == 0);
    CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
}

// Calls that a stop interrupts: poll goes on as restart_syscall, select is made again.
static int restart_kinds(void) {
    // Under a tracer it would restart the sleep in which the parent waits for the child's call.
    sigset_t of_children;
    sigemptyset(&of_children);
    sigaddset(&of_children, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &of_children, NULL) == 0);
    for (int way = 0; way < 2; way++) {
        int ends[2], status;
        CHECK(pipe(ends) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct pollfd fd = {.fd = ends[0], .events = POLLIN};
            fd_set set;
            FD_ZERO(&set);
            FD_SET(ends[0], &set);
            CHECK((way == 0 ? poll(&fd, 1, 600 * 1000) : select(ends[0] + 1, &set, NULL, NULL, NULL)) == 1);
            _exit(0);
        }
        wait_for_call(child, way == 0 ? SYS_poll : SYS_pselect6);
        stop_and_continue(child);
        if (way == 0) {
            wait_for_call(child, SYS_restart_syscall);
            stop_and_continue(child);
        }
        CHECK(write(ends[1], "x", 1) == 1);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}

// A child that stops itself stays stopped, and goes on when it is told to.
static int stop(void) {
    int signals[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    for (int i = 0; i < 4; i++) {
        int told[2];
        CHECK(pipe(told) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(setpgid(0, 0) == 0);
            raise(signals[i]);
            CHECK(write(told[1], "x", 1) == 1);
            _exit(7);
        }
        int status;
        CHECK(waitpid(child, &status, WUNTRACED) == child);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == signals[i]);
        usleep(20000);
        CHECK(waitpid(child, &status, WNOHANG) == 0);
        CHECK(kill(child, SIGCONT) == 0);
        CHECK(waitpid(child, &status, WCONTINUED) == child);
        CHECK(WIFCONTINUED(status) || WIFEXITED(status));
        if (!WIFEXITED(status))
            CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    return 0;
}

// Children that die by each of a few signals.
static int deaths(void) {
    int signals[] = {SIGKILL, SIGTERM, SIGABRT, SIGSEGV, SIGRTMIN + 3};
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (signals[i] == SIGSEGV)
                *(volatile int *)8 = 1;
            kill(getpid(), signals[i]);
            pause();
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "every") == 0)
        return every();
    if (argc == 2 && strcmp(argv[1], "restart") == 0)
        return restart();
    if (argc == 2 && strcmp(argv[1], "restart-kinds") == 0)
        return restart_kinds();
    if (argc == 2 && strcmp(argv[1], "stop") == 0)
        return stop();
    if (argc == 2 && strcmp(argv[1], "deaths") == 0)
        return deaths();
    if (argc == 3 && strcmp(argv[1], "die") == 0) {
        kill(getpid(), atoi(argv[2]));
        pause();
    }
    return 2;
}
