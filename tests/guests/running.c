// Programs that somebody attaches to while they run. Each says `ready`, works until the end of its standard
// input, and says `finished` only when nothing went wrong on the way.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static volatile sig_atomic_t over;

static void say(const char *word) {
    CHECK(printf("%s\n", word) > 0 && fflush(stdout) == 0);
}

static void wait_for_end_of_input(void) {
    char byte;
    ssize_t n;
    while ((n = read(0, &byte, 1)) > 0)
        ;
    CHECK(n == 0);
}

static void calls(int n) {
    while (n-- > 0)
        syscall(SYS_getppid);
}

static void *work(void *unused) {
    while (!over)
        calls(100);
    return unused;
}

// Threads that make calls all the time.
static void busy(int threads) {
    pthread_t ids[64];
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&ids[i], NULL, work, NULL) == 0);
    say("ready");
    wait_for_end_of_input();
    over = 1;
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
}

static pthread_barrier_t begin, end;

static void *round_by_round(void *unused) {
    for (;;) {
        pthread_barrier_wait(&begin);
        if (over)
            return unused;
        calls(1000);
        pthread_barrier_wait(&end);
    }
}

// For each byte of input a known number of calls: 1000 by each thread for `r`, 500 by a child for `f`, 300 by
// a new thread for `t`, and an exec of this program by a child for `e`.
static void *three_hundred(void *unused) {
    calls(300);
    return unused;
}

static void rounds(int threads, const char *self) {
    pthread_t ids[64], one;
    CHECK(pthread_barrier_init(&begin, NULL, threads + 1) == 0);
    CHECK(pthread_barrier_init(&end, NULL, threads + 1) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&ids[i], NULL, round_by_round, NULL) == 0);
    say("ready");
    char what;
    ssize_t n;
    while ((n = read(0, &what, 1)) > 0) {
        pid_t child;
        int status;
        switch (what) {
        case 'r':
            pthread_barrier_wait(&begin);
            pthread_barrier_wait(&end);
            break;
        case 't':
            CHECK(pthread_create(&one, NULL, three_hundred, NULL) == 0);
            CHECK(pthread_join(one, NULL) == 0);
            break;
        case 'f':
        case 'e':
            child = fork();
            CHECK(child >= 0);
            if (child == 0 && what == 'e')
                _exit(execl(self, self, "calls", "700", NULL) != 0);
            if (child == 0) {
                calls(500);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            break;
        default:
            continue;
        }
        say("done");
    }
    CHECK(n == 0);
    over = 1;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
}

// Calls that block, one in each thread. None of them may see that it was interrupted, and each is made once.
static int socket_pair[2], silent_pair[2], pipe_ends[2], epoll_pipe[2], poll_pipe[2], epoll;

static void *in_recv(void *unused) {
    char byte;
    CHECK(recv(socket_pair[0], &byte, 1, 0) == 1);
    return unused;
}

// With a time-out a receive is not restarted by the kernel.
static void *in_timed_recv(void *unused) {
    struct timeval limit = {.tv_sec = 600};
    char byte;
    CHECK(setsockopt(silent_pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(recv(silent_pair[0], &byte, 1, 0) == 1);
    return unused;
}

static void *in_read(void *unused) {
    char byte;
    CHECK(read(pipe_ends[0], &byte, 1) == 1);
    return unused;
}

static void *in_epoll(void *unused) {
    struct epoll_event event;
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
    return unused;
}

static void *in_poll(void *unused) {
    struct pollfd fd = {.fd = poll_pipe[0], .events = POLLIN};
    CHECK(poll(&fd, 1, 600 * 1000) == 1);
    return unused;
}

static void blocked(void) {
    void *(*const ways[])(void *) = {in_recv, in_timed_recv, in_read, in_epoll, in_poll};
    enum { WAYS = sizeof ways / sizeof *ways };
    pthread_t ids[WAYS];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, socket_pair) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, silent_pair) == 0);
    CHECK(pipe(pipe_ends) == 0 && pipe(epoll_pipe) == 0 && pipe(poll_pipe) == 0);
    CHECK((epoll = epoll_create1(0)) >= 0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll_pipe[0], &event) == 0);
    for (int i = 0; i < WAYS; i++)
        CHECK(pthread_create(&ids[i], NULL, ways[i], NULL) == 0);
    say("ready");
    wait_for_end_of_input();
    for (int fd = 0; fd < 1; fd++) {
        CHECK(write(socket_pair[1], "x", 1) == 1 && write(silent_pair[1], "x", 1) == 1);
        CHECK(write(pipe_ends[1], "x", 1) == 1 && write(epoll_pipe[1], "x", 1) == 1);
        CHECK(write(poll_pipe[1], "x", 1) == 1);
    }
    for (int i = 0; i < WAYS; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
}

// Threads that are made all the time, by several threads, and end soon.
static void *short_life(void *sum) {
    calls(5);
    __atomic_add_fetch((long *)sum, 1, __ATOMIC_RELAXED);
    return NULL;
}

static long made, lived;

static void *make_threads(void *unused) {
    while (!over) {
        pthread_t ids[4];
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&ids[i], NULL, short_life, &lived) == 0);
        for (int i = 0; i < 4; i++)
            CHECK(pthread_join(ids[i], NULL) == 0);
        __atomic_add_fetch(&made, 4, __ATOMIC_RELAXED);
    }
    return unused;
}

static void burst(void) {
    pthread_t ids[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&ids[i], NULL, make_threads, NULL) == 0);
    say("ready");
    wait_for_end_of_input();
    over = 1;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(made > 0 && made == lived);
}

// Children that are forked all the time.
static void forks(void) {
    int flags = 0;
    say("ready");
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            calls(5);
            _exit(7);
        }
        CHECK(waitpid(child, &flags, 0) == child);
        CHECK(WIFEXITED(flags) && WEXITSTATUS(flags) == 7);
    }
}

// A manager with workers, as php-fpm is.
static void tree(int workers, char **argv) {
    pid_t ids[64];
    int gone[2];
    CHECK(pipe(gone) == 0);
    for (int i = 0; i < workers; i++) {
        ids[i] = fork();
        CHECK(ids[i] >= 0);
        if (ids[i] == 0) {
            struct pollfd end = {.fd = gone[0], .events = POLLHUP};
            close(gone[1]);
            snprintf(argv[0], strlen(argv[0]) + 1, "worker");
            prctl(PR_SET_NAME, "fpm-worker");
            while (poll(&end, 1, 0) == 0)
                calls(100);
            _exit(0);
        }
    }
    close(gone[0]);
    for (int i = 0; i < workers; i++)
        printf("%d ", ids[i]);
    say("ready");
    wait_for_end_of_input();
    close(gone[1]);
    for (int i = 0; i < workers; i++) {
        int status;
        CHECK(waitpid(ids[i], &status, 0) == ids[i] && status == 0);
    }
}

// A parent that waits for its child of vfork cannot be interrupted meanwhile.
static void in_vfork(void) {
    int status;
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        syscall(SYS_write, 1, "ready\n", 6);
        while (syscall(SYS_read, 0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Counts a real-time signal, which the kernel queues: none may get lost.
static volatile sig_atomic_t seen;

static void note(int signal) {
    (void)signal;
    seen++;
}

static void *quiet(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    return work(unused);
}

static void signals(void) {
    pthread_t id;
    struct sigaction action = {.sa_handler = note};
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    CHECK(pthread_create(&id, NULL, quiet, NULL) == 0);
    say("ready");
    char byte;
    ssize_t n;
    while ((n = read(0, &byte, 1)) > 0 || (n < 0 && errno == EINTR))
        ;
    CHECK(n == 0);
    over = 1;
    CHECK(pthread_join(id, NULL) == 0);
    printf("%d ", (int)seen);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(argv[1], "calls") == 0) {
        calls(n);
        return 0;
    }
    if (strcmp(argv[1], "busy") == 0)
        busy(n);
    else if (strcmp(argv[1], "rounds") == 0)
        rounds(n, argv[0]);
    else if (strcmp(argv[1], "blocked") == 0)
        blocked();
    else if (strcmp(argv[1], "burst") == 0)
        burst();
    else if (strcmp(argv[1], "forks") == 0)
        forks();
    else if (strcmp(argv[1], "tree") == 0)
        tree(n, argv);
    else if (strcmp(argv[1], "signals") == 0)
        signals();
    else if (strcmp(argv[1], "vfork") == 0)
        in_vfork();
    else
        return 2;
    say("finished");
    return 0;
}
