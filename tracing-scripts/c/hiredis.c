/* hiredis, the C client of Redis, blocking. A batch is a pipeline. */
#include "systally.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x) #x
#define VERSION_OF(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

/* The connection, when one is kept; NULL after it broke. */
static redisContext *kept;

/*
 * A connection that is logged in. On failure it returns NULL and gives the class and the
 * words of the error, which last until the next call.
 */
static redisContext *open_connection(const struct server *server, const char **class, const char **words)
{
    static char message[160];
    redisContext *context =
        server->unix_socket ? redisConnectUnix(server->path) : redisConnect(server->host, server->port);
    *class = "ConnectError";
    *words = message;
    if (context == NULL) {
        snprintf(message, sizeof message, "out of memory");
        return NULL;
    }
    redisReply *reply = NULL;
    if (context->err == 0 && server->password != NULL) {
        reply = server->user != NULL ? redisCommand(context, "AUTH %s %s", server->user, server->password)
                                     : redisCommand(context, "AUTH %s", server->password);
    }
    bool refused = reply != NULL && reply->type == REDIS_REPLY_ERROR;
    if (context->err != 0 || refused) {
        *class = refused ? "ServerError" : "ConnectError";
        snprintf(message, sizeof message, "%s", refused ? reply->str : context->errstr);
        redisFree(context);
        context = NULL;
    }
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    return context;
}

static void queue(redisContext *context, const struct spec *spec, enum op command, uint64_t key)
{
    static const char *const names[] = {[OP_GET] = "GET", [OP_SET] = "SET", [OP_INCR] = "INCR", [OP_PING] = "PING"};
    const char *words[] = {names[command], spec->keys[key], spec->payload};
    const size_t lengths[] = {strlen(names[command]), spec->key_bytes, spec->payload_bytes};
    int count = command == OP_PING ? 1 : command == OP_SET ? 3 : 2;
    redisAppendCommandArgv(context, count, words, lengths);
}

/* NULL when the reply is the right one, else what is wrong with it. */
static const char *wrong(const struct spec *spec, enum op command, const redisReply *reply)
{
    switch (command) {
    case OP_GET:
        if (reply->type == REDIS_REPLY_NIL) {
            return "GET returned nothing";
        }
        return reply->type == REDIS_REPLY_STRING && (uint64_t)reply->len == spec->payload_bytes &&
                       memcmp(reply->str, spec->payload, spec->payload_bytes) == 0
                   ? NULL
                   : "GET returned another value";
    case OP_SET:
        return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0 ? NULL
                                                                                 : "SET returned another reply";
    case OP_INCR:
        return reply->type == REDIS_REPLY_INTEGER && reply->integer > 0 ? NULL : "INCR returned another reply";
    case OP_PING:
        return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "PONG") == 0 ? NULL
                                                                                   : "PING returned another reply";
    case OP_SETGET:
        break;
    }
    return "no such command";
}

static uint64_t step(const struct spec *spec, uint64_t first, uint64_t count)
{
    const char *class, *words;
    redisContext *context = kept != NULL ? kept : open_connection(&spec->server, &class, &words);
    if (context == NULL) {
        systally_error(count, class, words);
        return 0;
    }
    uint64_t key, done = 0;
    for (uint64_t i = first; i < first + count; i++) {
        enum op command = systally_command(spec, i, &key);
        queue(context, spec, command, key);
    }
    for (uint64_t i = first; i < first + count; i++) {
        redisReply *reply;
        if (redisGetReply(context, (void **)&reply) != REDIS_OK) {
            systally_error(first + count - i, "IoError", context->errstr);
            redisFree(context);
            kept = NULL;
            return done;
        }
        const char *trouble = wrong(spec, systally_command(spec, i, &key), reply);
        if (reply->type == REDIS_REPLY_ERROR) {
            systally_error(1, "ServerError", reply->str);
        } else if (trouble != NULL) {
            systally_error(1, "WrongReply", trouble);
        } else {
            done++;
        }
        freeReplyObject(reply);
    }
    if (spec->per_op) {
        redisFree(context);
    } else {
        kept = context;
    }
    return done;
}

/* What a server refuses may come with the first command only. */
static void greet(redisContext *context, const struct server *server)
{
    redisReply *reply = redisCommand(context, "PING");
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        const char *words = reply == NULL ? context->errstr : reply->str;
        systally_fail("connect", "%s: %s", server->unix_socket ? server->path : server->host, words);
    }
    freeReplyObject(reply);
}

static void set_up(const struct spec *spec)
{
    const struct server *server = &spec->server;
    const char *class, *words;
    redisContext *context = open_connection(server, &class, &words);
    if (context == NULL && server->unix_socket) {
        systally_fail("connect", "unix://%s: %s", server->path, words);
    } else if (context == NULL) {
        systally_fail("connect", "tcp://%s:%d: %s", server->host, server->port, words);
    }
    greet(context, server);
    for (uint64_t i = 0; spec->op == OP_GET && i < spec->key_count; i++) {
        queue(context, spec, OP_SET, i);
        redisReply *reply;
        if (redisGetReply(context, (void **)&reply) != REDIS_OK) {
            systally_fail("config", "storing the keys to read: %s", context->errstr);
        }
        if (reply->type == REDIS_REPLY_ERROR) {
            systally_fail("config", "storing the keys to read: %s", reply->str);
        }
        freeReplyObject(reply);
    }
    if (spec->per_op) {
        redisFree(context);
    } else {
        kept = context;
    }
}

int main(int argc, char **argv)
{
    static const struct client client = {
        .name = "hiredis",
        .version = VERSION_OF(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH),
        .set_up = set_up,
        .step = step,
    };
    return systally_main(argc, argv, &client);
}
