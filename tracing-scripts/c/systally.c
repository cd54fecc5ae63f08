/* The life of a worker and its spec; see systally.h. */
#define _POSIX_C_SOURCE 200809L

#include "systally.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- memory and text ---------------------------------------------------- */

static void *must(void *memory)
{
    if (memory == NULL) {
        systally_fail("config", "out of memory");
    }
    return memory;
}

/* A text that grows. A line is written at once, so it is built here first. */
struct text {
    char *bytes;
    size_t length;
    size_t room;
};

static void text_bytes(struct text *text, const char *bytes, size_t length)
{
    if (text->length + length + 1 > text->room) {
        text->room = 2 * (text->length + length + 1);
        text->bytes = must(realloc(text->bytes, text->room));
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

__attribute__((format(printf, 2, 3))) static void text_print(struct text *text, const char *format, ...)
{
    char bytes[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(bytes, sizeof bytes, format, arguments);
    va_end(arguments);
    text_bytes(text, bytes, length < (int)sizeof bytes ? (size_t)length : sizeof bytes - 1);
}

/* A JSON string. Bytes beyond ASCII become '?', so that the line is valid UTF-8. */
static void text_string(struct text *text, const char *string)
{
    text_bytes(text, "\"", 1);
    for (; *string != '\0'; string++) {
        char byte = *string;
        if (byte == '"' || byte == '\\') {
            text_bytes(text, "\\", 1);
        } else if ((unsigned char)byte < 0x20 || byte == 0x7f) {
            byte = ' ';
        } else if ((unsigned char)byte >= 0x80) {
            byte = '?';
        }
        text_bytes(text, &byte, 1);
    }
    text_bytes(text, "\"", 1);
}

/* One write, unless the reader's pipe is full: a tracer looks for the line's first bytes. */
static void say(struct text *line)
{
    text_bytes(line, "\n", 1);
    for (size_t done = 0; done < line->length;) {
        ssize_t wrote = write(STDOUT_FILENO, line->bytes + done, line->length - done);
        if (wrote < 0 && errno != EINTR) {
            _exit(3);
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    free(line->bytes);
}

void systally_fail(const char *class, const char *format, ...)
{
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    struct text line = {0};
    text_print(&line, "{\"event\":\"fail\",\"class\":\"%s\",\"message\":", class);
    text_string(&line, message);
    text_bytes(&line, "}", 1);
    say(&line);
    exit(3);
}

/* ---- stdin -------------------------------------------------------------- */

/*
 * The next line without its end, valid until the next call; NULL at the end of the file.
 * It reads in blocks: byte by byte, a tracer would not see the word "go".
 */
static char *next_line(void)
{
    static char *bytes;
    static size_t room, start, end;
    for (;;) {
        char *newline = end > start ? memchr(bytes + start, '\n', end - start) : NULL;
        if (newline != NULL) {
            char *line = bytes + start;
            *newline = '\0';
            start = (size_t)(newline - bytes) + 1;
            return line;
        }
        if (start > 0) {
            memmove(bytes, bytes + start, end - start);
            end -= start;
            start = 0;
        }
        if (room - end < 4097) {
            room += 65536;
            bytes = must(realloc(bytes, room));
        }
        ssize_t got = read(STDIN_FILENO, bytes + end, room - end - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            if (end == 0) {
                return NULL;
            }
            bytes[end] = '\0';
            end = 0;
            return bytes;
        }
        end += (size_t)got;
    }
}

/* ---- the spec: JSON, as a flat list of paths and values ------------------ */

enum kind { TEXT, NUMBER, WORD };

/* "key.count" is 1000, "servers.0.host" is 127.0.0.1. */
struct value {
    char *path;
    char *text;
    enum kind kind;
};

static struct value values[256];
static size_t value_count;
static const char *json;

_Noreturn static void not_json(void)
{
    systally_fail("spec", "the spec is not a JSON object");
}

static void skip_space(void)
{
    json += strspn(json, " \t\r\n");
}

static bool took(char byte)
{
    skip_space();
    if (*json != byte) {
        return false;
    }
    json++;
    return true;
}

static unsigned hex4(void)
{
    unsigned code = 0;
    for (int i = 0; i < 4; i++, json++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *digit = *json != '\0' ? strchr(digits, *json) : NULL;
        if (digit == NULL) {
            not_json();
        }
        code = code * 16 + (unsigned)(digit - digits) % 16;
    }
    return code;
}

static void code_point(struct text *text)
{
    unsigned code = hex4();
    if (code >= 0xd800 && code < 0xdc00) {
        if (json[0] != '\\' || json[1] != 'u') {
            not_json();
        }
        json += 2;
        code = 0x10000 + ((code - 0xd800) << 10) + (hex4() - 0xdc00);
    }
    if (code == 0) {
        systally_fail("spec", "a text of the spec holds a zero byte");
    }
    char utf8[4];
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--, code >>= 6) {
        utf8[i] = (char)(0x80 | (code & 0x3f));
    }
    utf8[0] = (char)(first[length] | code);
    text_bytes(text, utf8, length);
}

/* After its opening quote. */
static char *string(void)
{
    struct text text = {0};
    text_bytes(&text, "", 0);
    for (; *json != '"'; ) {
        if (*json == '\0') {
            not_json();
        }
        if (*json != '\\') {
            text_bytes(&text, json++, 1);
            continue;
        }
        json++;
        const char *names = "\"\\/bfnrt";
        const char *name = *json != '\0' ? strchr(names, *json) : NULL;
        if (name != NULL) {
            text_bytes(&text, &"\"\\/\b\f\n\r\t"[name - names], 1);
            json++;
        } else if (*json++ == 'u') {
            code_point(&text);
        } else {
            not_json();
        }
    }
    json++;
    return text.bytes;
}

static void add(const char *path, char *text, enum kind kind)
{
    if (value_count == sizeof values / sizeof values[0]) {
        systally_fail("spec", "the spec has too many values");
    }
    values[value_count++] = (struct value){must(strdup(path)), text, kind};
}

static void parse(const char *path, int depth)
{
    char below[256];
    if (depth > 8) {
        systally_fail("spec", "the spec is nested too deeply");
    }
    skip_space();
    if (took('{')) {
        for (bool more = !took('}'); more;) {
            if (!took('"')) {
                not_json();
            }
            char *name = string();
            snprintf(below, sizeof below, "%s%s%s", path, *path == '\0' ? "" : ".", name);
            free(name);
            if (!took(':')) {
                not_json();
            }
            parse(below, depth + 1);
            more = took(',');
            if (!more && !took('}')) {
                not_json();
            }
        }
    } else if (took('[')) {
        bool more = !took(']');
        for (int i = 0; more; i++) {
            snprintf(below, sizeof below, "%s.%d", path, i);
            parse(below, depth + 1);
            more = took(',');
            if (!more && !took(']')) {
                not_json();
            }
        }
    } else if (took('"')) {
        add(path, string(), TEXT);
    } else {
        size_t length = strspn(json, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
        char *word = must(strndup(json, length));
        bool number = (*word >= '0' && *word <= '9') || *word == '-';
        if (!number && strcmp(word, "true") != 0 && strcmp(word, "false") != 0 && strcmp(word, "null") != 0) {
            not_json();
        }
        json += length;
        if (strcmp(word, "null") != 0) {
            add(path, word, number ? NUMBER : WORD);
        }
    }
}

static const struct value *find(const char *path)
{
    for (size_t i = 0; i < value_count; i++) {
        if (strcmp(values[i].path, path) == 0) {
            return &values[i];
        }
    }
    return NULL;
}

/* Whether there is anything under a path. */
static bool any_under(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < value_count; i++) {
        if (strncmp(values[i].path, path, length) == 0 && values[i].path[length] == '.') {
            return true;
        }
    }
    return false;
}

static uint64_t whole(const char *path, uint64_t fallback, uint64_t least)
{
    const struct value *value = find(path);
    if (value == NULL) {
        return fallback;
    }
    char *end;
    errno = 0;
    uint64_t number = strtoull(value->text, &end, 10);
    if (value->kind != NUMBER || *value->text == '-' || *end != '\0' || errno != 0 || number < least) {
        systally_fail("spec", "%s must be a whole number from %" PRIu64 " on", path, least);
    }
    return number;
}

/* An empty text means none. */
static const char *text_at(const char *path, const char *fallback)
{
    const struct value *value = find(path);
    if (value == NULL) {
        return fallback;
    }
    if (value->kind != TEXT) {
        systally_fail("spec", "%s must be a string", path);
    }
    return *value->text == '\0' ? fallback : value->text;
}

/* The place of a text among the choices, of which the first is the default. */
static int choice(const char *path, const char *const *choices)
{
    const char *text = text_at(path, choices[0]);
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            return i;
        }
    }
    systally_fail("spec", "%s is none that this worker knows", path);
}

static void read_server(struct server *server)
{
    static const char *const schemes[] = {"tcp", "unix", NULL};
    if (any_under("servers.1")) {
        systally_fail("spec", "this worker speaks to one server");
    }
    server->unix_socket = choice("servers.0.scheme", schemes) == 1;
    server->host = text_at("servers.0.host", "127.0.0.1");
    uint64_t port = whole("servers.0.port", 6379, 1);
    if (port > 65535) {
        systally_fail("spec", "port must be at most 65535");
    }
    server->port = (int)port;
    server->path = text_at("servers.0.path", NULL);
    if (server->unix_socket && (server->path == NULL || *server->path != '/')) {
        systally_fail("spec", "a unix server needs an absolute path");
    }
    server->user = text_at("servers.0.user", NULL);
    server->password = text_at("servers.0.password", NULL);
}

static void make_keys(struct spec *spec, const char *prefix, bool random, uint64_t seed)
{
    spec->keys = must(calloc(spec->key_count, sizeof *spec->keys));
    const char *counter = spec->op == OP_INCR ? "n:" : "";
    spec->key_bytes = strlen(counter) + strlen(prefix) + 10;
    uint64_t x = (seed + spec->worker) & 0x7fffffff;
    for (uint64_t i = 0; i < spec->key_count; i++) {
        uint64_t number = i;
        if (random) {
            x = (x * 1103515245 + 12345) & 0x7fffffff;
            number = (x >> 8) % spec->key_count;
        }
        spec->keys[i] = must(malloc(spec->key_bytes + 1));
        snprintf(spec->keys[i], spec->key_bytes + 1, "%s%s%010" PRIu64, counter, prefix, number);
    }
}

static struct spec read_spec(void)
{
    static const char *const ops[] = {"get", "set", "setget", "incr", "ping", NULL};
    static const char *const connects[] = {"once", "per_op", NULL};
    static const char *const orders[] = {"seq", "random", NULL};
    static const char *const latencies[] = {"hist", "none", NULL};
    static const char *const strings[] = {"string", NULL};
    static const char *const nones[] = {"none", NULL};
    struct spec spec = {0};

    json = getenv("SYSTALLY_SPEC");
    if (json == NULL || *json == '\0') {
        char *line = next_line();
        json = must(strdup(line == NULL ? "" : line));
    }
    skip_space();
    if (*json != '{') {
        not_json();
    }
    parse("", 0);
    skip_space();
    if (*json != '\0') {
        not_json();
    }

    if (whole("protocol", 1, 0) != 1) {
        systally_fail("spec", "this worker speaks protocol 1 only");
    }
    if (whole("forks", 0, 0) > 0) {
        systally_fail("spec", "forks: this worker does not fork, start several workers instead");
    }
    if (any_under("options")) {
        systally_fail("spec", "this worker has no options");
    }
    choice("payload.kind", strings);
    choice("payload.serializer", nones);
    spec.worker = whole("worker", 0, 0);
    spec.op = (enum op)choice("op", ops);
    spec.per_op = choice("connect", connects) == 1;
    spec.batch = whole("batch", 1, 1);
    spec.warmup = whole("warmup", 20, 0);
    spec.max_errors = whole("max_errors", 10000, 1);
    spec.histogram = choice("latency", latencies) == 0;

    bool has_ops = find("stop.ops") != NULL;
    const struct value *seconds = find("stop.seconds");
    if (any_under("stop") ? has_ops == (seconds != NULL) : false) {
        systally_fail("spec", "stop needs either \"ops\" or \"seconds\"");
    }
    spec.stop_ops = seconds == NULL ? whole("stop.ops", 1000, 0) : UINT64_MAX;
    spec.stop_seconds = seconds == NULL ? 1e8 : strtod(seconds->text, NULL);
    if (seconds != NULL && (seconds->kind != NUMBER || !(spec.stop_seconds >= 0 && spec.stop_seconds <= 1e8))) {
        systally_fail("spec", "stop.seconds must be a number from 0 to 100 million");
    }

    read_server(&spec.server);
    spec.key_count = whole("key.count", 1000, 1);
    const struct value *prefix = find("key.prefix"); /* which may well be empty */
    bool random = choice("key.order", orders) == 1;
    make_keys(&spec, prefix == NULL ? "st:" : prefix->text, random, whole("key.seed", 1, 0));
    spec.payload_bytes = whole("payload.bytes", 4, 0);
    spec.payload = must(malloc(spec.payload_bytes + 1));
    memset(spec.payload, 'x', spec.payload_bytes);
    spec.payload[spec.payload_bytes] = '\0';
    return spec;
}

enum op systally_command(const struct spec *spec, uint64_t i, uint64_t *key)
{
    *key = (spec->op == OP_SETGET ? i / 2 : i) % spec->key_count;
    return spec->op != OP_SETGET ? spec->op : i % 2 == 0 ? OP_SET : OP_GET;
}

/* ---- a round ------------------------------------------------------------ */

#define BUCKETS 1024
#define ERRORS 32

/* Kinds of errors of this round; the last place is for all that do not fit. */
static struct error {
    char key[121];
    uint64_t count;
} errors[ERRORS];

static uint64_t failed;

void systally_error(uint64_t n, const char *class, const char *message)
{
    char key[sizeof errors[0].key];
    snprintf(key, sizeof key, "%s:%s", class, message);
    failed += n;
    for (size_t i = 0; i < ERRORS; i++) {
        if (errors[i].count == 0) {
            strcpy(errors[i].key, i < ERRORS - 1 ? key : "Other:errors of more kinds");
        }
        if (i == ERRORS - 1 || strcmp(errors[i].key, key) == 0) {
            errors[i].count += n;
            return;
        }
    }
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* The histogram's bucket of a duration: 16 buckets for each power of two. */
static size_t bucket(uint64_t ns)
{
    if (ns < 16) {
        return (size_t)ns;
    }
    size_t top = 63 - (size_t)__builtin_clzll(ns);
    return (top - 3) * 16 + ((ns >> (top - 4)) & 15);
}

/* The shortest duration of a bucket. */
static uint64_t bucket_start(size_t number)
{
    return number < 16 ? number : (uint64_t)(16 + number % 16) << (number / 16 - 1);
}

struct round {
    uint64_t asked, done, elapsed;
    uint64_t buckets[BUCKETS];
};

static void run(const struct spec *spec, const struct client *client, uint64_t ops, double seconds,
                struct round *round)
{
    memset(round, 0, sizeof *round);
    memset(errors, 0, sizeof errors);
    failed = 0;
    uint64_t start = now_ns(), now = start, end = start + (uint64_t)(seconds * 1e9);
    while (round->asked < ops && now < end && failed < spec->max_errors) {
        uint64_t left = ops - round->asked, count = spec->batch < left ? spec->batch : left;
        round->done += client->step(spec, round->asked, count);
        round->asked += count;
        uint64_t before = now;
        now = now_ns();
        round->buckets[bucket(now - before)]++;
    }
    round->elapsed = now - start;
}

static void say_done(const struct spec *spec, const struct round *round)
{
    struct text line = {0};
    text_print(&line, "{\"event\":\"done\",\"ops\":%" PRIu64 ",\"asked\":%" PRIu64 ",\"elapsed_ns\":%" PRIu64,
               round->done, round->asked, round->elapsed);
    text_print(&line, ",\"errors\":{");
    for (size_t i = 0; i < ERRORS && errors[i].count > 0; i++) {
        text_print(&line, "%s", i > 0 ? "," : "");
        text_string(&line, errors[i].key);
        text_print(&line, ":%" PRIu64, errors[i].count);
    }
    text_print(&line, "},\"latency\":{\"unit\":\"ns\",\"per\":\"%s\",\"hist\":[", spec->batch > 1 ? "batch" : "op");
    const char *comma = "";
    for (size_t i = 0; spec->histogram && i < BUCKETS; i++) {
        if (round->buckets[i] > 0) {
            text_print(&line, "%s[%" PRIu64 ",%" PRIu64 "]", comma, bucket_start(i), round->buckets[i]);
            comma = ",";
        }
    }
    text_print(&line, "]}}");
    say(&line);
}

int systally_main(int argc, char **argv, const struct client *client)
{
    static struct round round;
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        return printf("%s\n", client->version) > 0 ? 0 : 1;
    }
    /* A server that goes away is to be an error of an operation, not the end of this process. */
    signal(SIGPIPE, SIG_IGN);
    struct spec spec = read_spec();
    client->set_up(&spec);
    if (spec.warmup > 0) {
        run(&spec, client, spec.warmup > spec.batch ? spec.warmup : spec.batch, 1e8, &round);
        if (round.done == 0 && round.asked > 0) {
            systally_fail("config", "every operation of the warm-up failed: %s", errors[0].key);
        }
    }
    struct text ready = {0};
    text_print(&ready, "{\"event\":\"ready\",\"protocol\":1,\"pid\":%d,\"versions\":{", (int)getpid());
    text_print(&ready, "\"%s\":\"%s\"}}", client->name, client->version);
    say(&ready);
    for (char *line = next_line(); line != NULL && strcmp(line, "exit") != 0; line = next_line()) {
        if (strcmp(line, "go") == 0) {
            run(&spec, client, spec.stop_ops, spec.stop_seconds, &round);
            say_done(&spec, &round);
        } else if (*line != '\0') {
            systally_fail("spec", "expected \"go\" or \"exit\" on stdin");
        }
    }
    return 0;
}
