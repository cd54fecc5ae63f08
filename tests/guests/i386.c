// A whole 32-bit program without a C library: `_start` makes its calls by int 0x80, most of the socket ones
// through `socketcall`.
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

enum {
    EXIT = 1,
    READ = 3,
    WRITE = 4,
    CLOSE = 6,
    GETPID = 20,
    SOCKETCALL = 102,
    EXIT_GROUP = 252,
};
enum { SOCKETPAIR = 8, SEND = 9, RECV = 10, SHUTDOWN = 13 };

void _start(void) {
    int pair[2], wrong = 0;
    char buffer[8];
    for (int i = 0; i < 3; i++)
        call(GETPID, 0, 0, 0);
    long ends[] = {1, 1, 0, (long)pair};
    wrong |= call(SOCKETCALL, SOCKETPAIR, (long)ends, 0) != 0;
    for (int i = 0; i < 4; i++) {
        long send[] = {pair[0], (long)"hello", 5, 0};
        wrong |= call(SOCKETCALL, SEND, (long)send, 0) != 5;
        long receive[] = {pair[1], (long)buffer, sizeof buffer, 0};
        wrong |= call(SOCKETCALL, RECV, (long)receive, 0) != 5;
    }
    wrong |= call(WRITE, pair[0], (long)"by write", 8) != 8;
    wrong |= call(READ, pair[1], (long)buffer, 8) != 8;
    long down[] = {99, 0};
    wrong |= call(SOCKETCALL, SHUTDOWN, (long)down, 0) != -9;
    call(CLOSE, pair[0], 0, 0);
    call(EXIT_GROUP, wrong, 0, 0);
    call(EXIT, 99, 0, 0);
}
