/*
 * The C side of systally's worker contract; tracing-scripts/README.md describes it.
 *
 * A worker fills a struct client and calls systally_main(). Whatever is wrong before the
 * first round ends the process through systally_fail().
 */
#ifndef SYSTALLY_H
#define SYSTALLY_H

#include <stdbool.h>
#include <stdint.h>

enum op { OP_GET, OP_SET, OP_SETGET, OP_INCR, OP_PING };

/* Where a server is, and how to log in; a text that was not given is NULL. */
struct server {
    bool unix_socket;
    const char *host;
    int port;
    const char *path;
    const char *user;
    const char *password;
};

/* The checked form of what the spec says; options and payloads other than strings are refused. */
struct spec {
    uint64_t worker;
    enum op op;
    bool per_op; /* a new connection for each step */
    uint64_t stop_ops;
    double stop_seconds;
    uint64_t batch;
    uint64_t warmup;
    uint64_t max_errors;
    struct server server;
    bool histogram;
    uint64_t key_count;
    /* The keys in the order of use, which repeats after key_count of them; counters for incr. */
    char **keys;
    /* Length of each key. */
    uint64_t key_bytes;
    char *payload;
    uint64_t payload_bytes;
};

struct client {
    /* The library's name and version, for the ready line and for --version. */
    const char *name;
    const char *version;
    /* Connects and stores what the operations will read. */
    void (*set_up)(const struct spec *spec);
    /*
     * Runs operations and returns how many are done. For each other one it has called
     * systally_error().
     */
    uint64_t (*step)(const struct spec *spec, uint64_t first, uint64_t count);
};

/* The command of an operation (never OP_SETGET) and the index of its key. */
enum op systally_command(const struct spec *spec, uint64_t i, uint64_t *key);

/* Notes that n operations failed. */
void systally_error(uint64_t n, const char *class, const char *message);

/* Writes a fail line and ends the process; class is "spec", "config" or "connect". */
_Noreturn void systally_fail(const char *class, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The life of a worker; returns the exit status. */
int systally_main(int argc, char **argv, const struct client *client);

#endif
