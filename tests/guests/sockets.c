// Known traffic with an echo server, to be attributed.
//   sockets tcp PORT CLOSED-PORT
//   sockets unix PATH MISSING-PATH
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static struct sockaddr_storage address;
static socklen_t address_length;

static int stream(int flags) { return socket(address.ss_family, SOCK_STREAM | flags, 0); }

static int connected(void) {
    int fd = stream(0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&address, address_length) == 0);
    return fd;
}

static void get(int fd, size_t length) {
    char buffer[64];
    CHECK(recv(fd, buffer, length, MSG_WAITALL) == (ssize_t)length);
}

static void set_address(int tcp, const char *where) {
    memset(&address, 0, sizeof address);
    if (tcp) {
        struct sockaddr_in *in = (struct sockaddr_in *)&address;
        in->sin_family = AF_INET;
        in->sin_port = htons(atoi(where));
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address_length = sizeof *in;
    } else {
        struct sockaddr_un *un = (struct sockaddr_un *)&address;
        un->sun_family = AF_UNIX;
        strcpy(un->sun_path, where);
        address_length = sizeof *un;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int tcp = strcmp(argv[1], "tcp") == 0;
    set_address(tcp, argv[2]);
    char byte, buffer[64];

    // First connection: three turns with send and recv; two sends and one receive are one turn.
    int one = connected();
    CHECK(recv(one, buffer, 1, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN);
    for (int i = 0; i < 2; i++) {
        CHECK(send(one, "abcd", 4, 0) == 4);
        CHECK(recv(one, buffer, 4, MSG_PEEK | MSG_WAITALL) == 4);
        get(one, 4);
    }
    CHECK(send(one, "ab", 2, 0) == 2);
    CHECK(send(one, "cd", 2, 0) == 2);
    get(one, 4);

    // Second: the same number after a close, by write, writev, read, and through a duplicate.
    close(one);
    int two = connected();
    CHECK(two == one);
    CHECK(write(two, "hello", 5) == 5);
    CHECK(read(two, buffer, 5) == 5);
    struct iovec parts[2] = {{"he", 2}, {"llo", 3}};
    CHECK(writev(two, parts, 2) == 5);
    get(two, 5);
    int copy = dup(two);
    CHECK(write(copy, "x", 1) == 1);
    CHECK(read(copy, &byte, 1) == 1);
    close(copy);

    // Third: non-blocking, with messages.
    int three = stream(SOCK_NONBLOCK);
    int result = connect(three, (struct sockaddr *)&address, address_length);
    CHECK(result == 0 || errno == EINPROGRESS);
    struct pollfd ready = {three, POLLOUT, 0};
    CHECK(poll(&ready, 1, -1) == 1);
    close(two);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    CHECK(sendmsg(three, &message, 0) == 5);
    ready.events = POLLIN;
    CHECK(poll(&ready, 1, -1) == 1);
    struct iovec into = {buffer, sizeof buffer};
    message = (struct msghdr){.msg_iov = &into, .msg_iovlen = 1};
    CHECK(recvmsg(three, &message, 0) == 5);
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 2}},
                              {.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}}};
    CHECK(sendmmsg(three, many, 2, 0) == 2);
    CHECK(fcntl(three, F_SETFL, 0) == 0);
    get(three, 7);
    // dup2 onto it: the number is now another connection.
    int four = connected();
    CHECK(dup2(four, three) == three);
    close(four);
    CHECK(write(three, "four", 4) == 4);
    get(three, 4);
    // A child uses it too.
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(three, "kid", 3) == 3);
        get(three, 3);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    close_range(three, three, 0);

    // Fifth, by sendfile, on the number that a file has had.
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(pread(file, buffer, 4, 0) == 4);
    int five = connected();
    off_t offset = 0;
    CHECK(sendfile(five, file, &offset, 8) == 8);
    get(five, 8);
    close(five);
    close(file);
    // A connection that leads nowhere.
    set_address(tcp, argv[3]);
    int refused = stream(0);
    CHECK(connect(refused, (struct sockaddr *)&address, address_length) == -1);
    close(refused);

    // Not sockets.
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "p", 1) == 1 && read(ends[0], &byte, 1) == 1);
    unsigned long long number = 1;
    int event = eventfd(0, 0);
    CHECK(write(event, &number, 8) == 8 && read(event, &number, 8) == 8);
    // Datagrams make no connections.
    int datagram = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in discard = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(connect(datagram, (struct sockaddr *)&discard, sizeof discard) == 0);
    CHECK(send(datagram, "d", 1, 0) == 1);
    return 0;
}
