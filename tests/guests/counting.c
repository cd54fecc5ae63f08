// Deterministic work, to be counted: how many processes or threads make how many calls.
//   counting forks N CALLS     N children, one after another, each making CALLS getppid
//   counting burst N CALLS     the same, all at once
//   counting threads N CALLS   N threads
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long calls;

static void work(void) {
    for (long i = 0; i < calls; i++)
        syscall(SYS_getppid);
}

static void *thread(void *unused) {
    (void)unused;
    work();
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    long n = atol(argv[2]);
    calls = atol(argv[3]);
    if (strcmp(argv[1], "threads") == 0) {
        pthread_t *threads = calloc(n, sizeof *threads);
        for (long i = 0; i < n; i++)
            if (pthread_create(&threads[i], NULL, thread, NULL) != 0)
                return 3;
        for (long i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        free(threads);
        return 0;
    }
    int burst = strcmp(argv[1], "burst") == 0;
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (child < 0)
            return 4;
        if (child == 0) {
            work();
            _exit(0);
        }
        if (!burst)
            waitpid(child, NULL, 0);
    }
    for (long i = 0; burst && i < n; i++)
        wait(NULL);
    return 0;
}
