// Programs whose trouble is known beforehand: shapes MODE PORT TURNS
// Each turn asks a server that answers every 8 bytes; that is this program too: shapes serve 0 BYTES
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static int port, turns, fd;

static struct sockaddr_in at(int port) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return in;
}

static int joined(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = at(port);
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&in, sizeof in) == 0);
    return fd;
}

static void all(int fd, size_t length, size_t piece) {
    char buffer[65536];
    while (length > 0) {
        ssize_t n = recv(fd, buffer, piece < length ? piece : length, 0);
        CHECK(n > 0);
        length -= n;
    }
}

static void ask(void) { CHECK(send(fd, "question", 8, 0) == 8); }

static void in_pieces(void) {
    CHECK(send(fd, "ques", 4, 0) == 4);
    CHECK(send(fd, "tion", 4, 0) == 4);
    all(fd, 8, 8);
}

static int word;

static void wait_for(int value) {
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) != value)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, !value, NULL, NULL, 0);
}

static void set(int value) {
    __atomic_store_n(&word, value, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *other(void *unused) {
    for (int i = 0; i < turns; i++) {
        wait_for(1);
        set(0);
    }
    return unused;
}

static int reply;

static void *serve(void *connection) {
    static char bytes[65536];
    int fd = (int)(long)connection, zero = 0, one = 1;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    for (;;) {
        char request[8];
        for (int have = 0; have < 8;) {
            // Acknowledgements are delayed from the first segment on, as on an old connection.
            setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &zero, sizeof zero);
            int n = recv(fd, request + have, 8 - have, 0);
            if (n <= 0) {
                close(fd);
                return NULL;
            }
            have += n;
        }
        for (int sent = 0; sent < reply;) {
            int n = send(fd, bytes, reply - sent, MSG_NOSIGNAL);
            if (n <= 0) break;
            sent += n;
        }
    }
}

// Says its port, and serves until its standard input ends.
static int server(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = at(0);
    socklen_t length = sizeof in;
    CHECK(bind(listener, (struct sockaddr *)&in, sizeof in) == 0 && listen(listener, 16) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&in, &length) == 0);
    printf("%d\n", ntohs(in.sin_port));
    fflush(stdout);
    for (;;) {
        struct pollfd ready[2] = {{.fd = listener, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        CHECK(poll(ready, 2, -1) > 0);
        if (ready[1].revents) return 0;
        pthread_t thread;
        long fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0 && pthread_create(&thread, NULL, serve, (void *)fd) == 0);
        pthread_detach(thread);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *mode = argv[1];
    port = atoi(argv[2]);
    turns = reply = atoi(argv[3]);
    if (!strcmp(mode, "serve")) return server();
    if (!strcmp(mode, "names")) {
        for (int i = 0; i < turns; i++) {
            int query = socket(AF_INET, SOCK_DGRAM, 0);
            struct sockaddr_in in = at(53);
            CHECK(connect(query, (struct sockaddr *)&in, sizeof in) == 0);
            (void)!send(query, "query", 5, 0);
            close(query);
            fd = joined();
            ask();
            all(fd, 8, 8);
            close(fd);
        }
        return 0;
    }
    if (!strcmp(mode, "ring")) {
        char parameters[120] = {0};
        int ring = syscall(SYS_io_uring_setup, 4, parameters);
        if (ring < 0) return 77;
        for (int i = 0; i < turns; i++) CHECK(syscall(SYS_io_uring_enter, ring, 0, 0, 0, NULL, 0) == 0);
        return 0;
    }
    if (!strcmp(mode, "clock")) {
        struct timespec now;
        for (int i = 0; i < turns; i++) CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0);
        return 0;
    }
    if (!strcmp(mode, "threads")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
        for (int i = 0; i < turns; i++) {
            set(1);
            wait_for(0);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        return 0;
    }
    fd = joined();
    int one = 1;
    if (!strcmp(mode, "nodelay")) CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    for (int i = 0; i < turns; i++) {
        if (!strcmp(mode, "pieces") || !strcmp(mode, "nodelay")) {
            in_pieces();
        } else if (!strcmp(mode, "whole")) {
            ask();
            all(fd, 8, 8);
        } else if (!strcmp(mode, "large")) {
            ask();
            all(fd, 65536, 4096);
        } else if (!strcmp(mode, "poll")) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            for (int look = 0; look < 50; look++) CHECK(poll(&ready, 1, 0) == 0);
            ask();
            all(fd, 8, 8);
        } else if (!strcmp(mode, "try")) {
            char buffer[8];
            for (int look = 0; look < 50; look++) CHECK(recv(fd, buffer, 8, MSG_DONTWAIT) < 0 && errno == EAGAIN);
            ask();
            all(fd, 8, 8);
        } else if (!strcmp(mode, "sleep")) {
            ask();
            all(fd, 8, 8);
            usleep(2000);
        } else if (!strcmp(mode, "options")) {
            CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0);
            ask();
            all(fd, 8, 8);
        } else if (!strcmp(mode, "timeout")) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            ask();
            all(fd, 8, 8);
            CHECK(poll(&ready, 1, 300) == 0);
        } else {
            CHECK(!"a mode");
        }
    }
    return 0;
}
