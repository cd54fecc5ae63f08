// A worker of the contract: calls before, in and after the window.
//   worker ROUNDS      answers that many go lines, then ends
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void calls(int n) {
    while (n-- > 0)
        syscall(SYS_getppid);
}

static void say(const char *line) {
    if (write(1, line, strlen(line)) < 0)
        _exit(1);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    char line[64];
    calls(2);
    say("{\"event\":\"ready\",\"protocol\":1,\"pid\":1}\n");
    for (int i = 0; i < rounds; i++) {
        ssize_t n = read(0, line, sizeof line);
        if (n < 2 || strncmp(line, "go", 2) != 0)
            return 3;
        calls(7);
        // A child's calls are in the window too.
        pid_t child = fork();
        if (child == 0) {
            calls(4);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        if (i % 2 == 0) {
            say("{\"event\":\"done\",\"ops\":1}\n");
        } else {
            struct iovec parts[2] = {{"{\"event\"", 8}, {":\"done\",\"ops\":1}\n", 17}};
            if (writev(1, parts, 2) < 0)
                return 1;
        }
        calls(3);
    }
    return read(0, line, sizeof line) < 0;
}
