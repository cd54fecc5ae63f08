"""The Python side of systally's worker contract; tracing-scripts/README.md describes it.

A worker hands main() a class that uses one client library. It needs Python 3.8.
"""

import asyncio
import gc
import inspect
import json
import os
import platform
import re
import sys
import time

OPS = ("get", "set", "setget", "incr", "ping")
CONNECTS = ("once", "per_op", "persistent", "persistent_per_op")
KINDS = ("string", "array", "object")
SERIALIZERS = ("none", "php", "igbinary", "json")
NEVER = 1 << 62


class Failure(Exception):
    """Ends the worker with a fail line; kind is "spec", "config" or "connect"."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class WrongReply(Exception):
    """An answer that is not the right one."""


class OpErrors(Exception):
    """Some operations of a batch failed, the others are done."""

    def __init__(self, done, errors):
        super().__init__("some operations failed")
        self.done = done
        self.errors = errors


class Spec:
    """The checked form of the JSON object that says what to do."""

    def __init__(self, raw):
        if not isinstance(raw, dict):
            raise Failure("spec", "the spec is not a JSON object")
        if raw.get("protocol", 1) != 1:
            raise Failure("spec", "this worker speaks protocol 1 only")
        if _whole(raw, "forks", 0, 0) > 0:
            raise Failure("spec", "forks: this worker does not fork, start several workers instead")
        self.worker = _whole(raw, "worker", 0, 0)
        self.op = _choice(raw, "op", "get", OPS)
        self.connect = _choice(raw, "connect", "once", CONNECTS)
        self.batch = _whole(raw, "batch", 1, 1)
        self.warmup = _whole(raw, "warmup", 20, 0)
        self.max_errors = _whole(raw, "max_errors", 10000, 1)
        self.histogram = _choice(raw, "latency", "hist", ("hist", "none")) == "hist"
        self.options = _part(raw, "options", {})

        stop = _part(raw, "stop", {"ops": 1000})
        if ("ops" in stop) == ("seconds" in stop):
            raise Failure("spec", 'stop needs either "ops" or "seconds"')
        self.stop_ops = _whole(stop, "ops", 0, 0) if "ops" in stop else NEVER
        seconds = stop.get("seconds", 1e8)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e8:
            raise Failure("spec", "stop.seconds must be a number from 0 to 100 million")
        self.stop_ns = int(seconds * 1e9)

        key = _part(raw, "key", {})
        self.key_prefix = _text(key, "prefix", "st:")
        self.key_count = _whole(key, "count", 1000, 1)
        self.key_order = _choice(key, "order", "seq", ("seq", "random"))
        self.key_seed = _whole(key, "seed", 1, 0)

        payload = _part(raw, "payload", {})
        self.payload_kind = _choice(payload, "kind", "string", KINDS)
        self.payload_bytes = _whole(payload, "bytes", 4, 0)
        self.serializer = _choice(payload, "serializer", "none", SERIALIZERS)

        servers = raw.get("servers") or [{}]
        if not isinstance(servers, list):
            raise Failure("spec", "servers has the wrong type")
        self.servers = [Server(server) for server in servers]

    @staticmethod
    def read():
        """From the environment variable SYSTALLY_SPEC, else from the first line of stdin."""
        try:
            return Spec(json.loads(spec_text()))
        except ValueError:
            raise Failure("spec", "the spec is not a JSON object") from None

    def one_server(self):
        if len(self.servers) != 1:
            raise Failure("spec", "this worker speaks to one server")
        return self.servers[0]

    def allow(self, options=(), ops=OPS, connects=CONNECTS):
        """Refuses what the worker cannot do; a misspelt option would measure something else."""
        for name in self.options:
            if name not in options:
                known = ", ".join(options) or "none"
                raise Failure("spec", f"unknown option {name}; known: {known}")
        if self.op not in ops:
            raise Failure("spec", f"op {self.op}: this client knows {', '.join(ops)}")
        if self.connect not in connects:
            raise Failure("spec", f"connect {self.connect}: this client knows {', '.join(connects)}")

    def flag(self, name):
        """The value of a yes-or-no option; false when the spec does not give it."""
        value = self.options.get(name, False)
        if not isinstance(value, bool):
            raise Failure("spec", f"the option {name} must be true or false")
        return value

    def option(self, name, default, choices):
        return _choice(self.options, name, default, choices)

    def codec(self):
        """Two functions, each called in every operation as an application would: one gives the
        bytes to store, the other says whether the bytes that came back are the right ones."""
        body = "x" * self.payload_bytes
        if self.payload_kind == "string" and self.serializer == "none":
            stored = body.encode()
            return lambda: stored, lambda got: got == stored
        if self.serializer != "json":
            words = f"a payload of kind {self.payload_kind} with serializer {self.serializer}"
            raise Failure("spec", f"{words}: known here is json")
        value = body
        if self.payload_kind != "string":
            value = {"id": 7, "name": "systally", "tags": ["a", "b", "c"], "body": body}
        encode = json.JSONEncoder(separators=(",", ":")).encode
        return lambda: encode(value).encode(), lambda got: got is not None and json.loads(got) == value

    def keys(self):
        """The keys in the order of use, which repeats after key.count keys."""
        x = (self.key_seed + self.worker) & 0x7FFFFFFF
        keys = []
        for number in range(self.key_count):
            if self.key_order == "random":
                x = (x * 1103515245 + 12345) & 0x7FFFFFFF
                number = (x >> 8) % self.key_count
            keys.append("%s%010d" % (self.key_prefix, number))
        return keys

    def redact(self, text):
        """Takes the servers' passwords out of a text that will be shown."""
        for server in self.servers:
            if server.password:
                text = text.replace(server.password, "***")
        return text


class Server:
    """Where a server is, and how to log in."""

    def __init__(self, raw):
        if not isinstance(raw, dict):
            raise Failure("spec", "an entry of servers is not an object")
        self.unix = _choice(raw, "scheme", "tcp", ("tcp", "unix")) == "unix"
        self.path = _text(raw, "path", "")
        if self.unix and not self.path.startswith("/"):
            raise Failure("spec", "a unix server needs an absolute path")
        self.host = _text(raw, "host", "127.0.0.1")
        self.port = _whole(raw, "port", 6379, 1)
        # An empty user or password means none.
        self.user = _text(raw, "user", "") or None
        self.password = _text(raw, "password", "") or None

    def __str__(self):
        return f"unix://{self.path}" if self.unix else f"tcp://{self.host}:{self.port}"


class Plan:
    """Which key each operation uses, and whether its reply is right."""

    def __init__(self, spec):
        self.op = spec.op
        self.encode, self.is_value = spec.codec()
        self.keys = spec.keys()
        if self.op == "incr":
            self.keys = ["n:" + key for key in self.keys]
        self.count = len(self.keys)

    def command(self, i):
        """The name of the operation's command, and its key."""
        if self.op == "setget":
            return ("get" if i & 1 else "set"), self.keys[(i >> 1) % self.count]
        return self.op, self.keys[i % self.count]

    def call(self, client, i):
        """Calls the client's method for the operation: get(key), set(key, value), incr(key), ping()."""
        name, key = self.command(i)
        if name == "get":
            return client.get(key)
        if name == "set":
            return client.set(key, self.encode())
        if name == "incr":
            return client.incr(key)
        return client.ping()

    def check(self, reply, i):
        """Raises WrongReply, or what the client returned in place of raising it."""
        if isinstance(reply, Exception):
            raise reply
        name, _ = self.command(i)
        if name == "get":
            right = self.is_value(reply)
        elif name == "incr":
            right = isinstance(reply, int) and reply > 0
        else:
            right = reply is True
        if not right:
            raise WrongReply(f"{name.upper()} returned {'nothing' if reply is None else 'another reply'}")

    def check_all(self, replies, first, count):
        """Checks the replies of a batch; returns how many they are."""
        if len(replies) != count:
            raise WrongReply("a batch returned another number of replies")
        errors = {}
        for k, reply in enumerate(replies):
            try:
                self.check(reply, first + k)
            except Exception as error:  # any of them is a failed operation
                key = error_key(error)
                errors[key] = errors.get(key, 0) + 1
        if errors:
            raise OpErrors(count - sum(errors.values()), errors)
        return count


class Round:
    """The counts of one round."""

    def __init__(self, spec, stop_ops, stop_ns):
        self.spec = spec
        self.stop_ops = stop_ops
        self.asked = self.done = self.failed = 0
        self.errors = {}
        self.buckets = [0] * 1024 if spec.histogram else None
        self.start = self.now = time.perf_counter_ns()
        self.end = self.start + stop_ns

    def next(self):
        """How many operations the next step has; 0 ends the round."""
        if self.now >= self.end or self.failed >= self.spec.max_errors:
            return 0
        return min(self.spec.batch, self.stop_ops - self.asked)

    def add(self, count, done, error=None):
        if isinstance(error, OpErrors):
            done = error.done
            for key, n in error.errors.items():
                self._fail(key, n)
        elif error is not None:
            self._fail(error_key(error), count)
        self.done += done
        self.asked += count
        before, self.now = self.now, time.perf_counter_ns()
        if self.buckets is not None:
            self.buckets[bucket(self.now - before)] += 1

    def _fail(self, key, n):
        key = _one_line(self.spec.redact(key), 120)
        self.errors[key] = self.errors.get(key, 0) + n
        self.failed += n

    def line(self):
        pairs = [[bucket_start(b), n] for b, n in enumerate(self.buckets or ()) if n]
        return {
            "event": "done",
            "ops": self.done,
            "asked": self.asked,
            "elapsed_ns": self.now - self.start,
            "errors": self.errors,
            "latency": {"unit": "ns", "per": "batch" if self.spec.batch > 1 else "op", "hist": pairs},
        }


def bucket(ns):
    """The histogram's bucket of a duration: 16 buckets for each power of two."""
    if ns < 16:
        return max(0, ns)
    top = ns.bit_length() - 1
    return (top - 3) * 16 + ((ns >> (top - 4)) & 15)


def bucket_start(number):
    """The shortest duration of a bucket."""
    return number if number < 16 else (16 + number % 16) << (number // 16 - 1)


def error_key(error):
    """"class:message" of an exception, the class without its module."""
    return f"{type(error).__name__}:{error}"


def say(**line):
    """Writes one line of the contract with one write: a tracer looks for its first bytes."""
    os.write(1, (json.dumps(line, separators=(",", ":")) + "\n").encode())


def spec_text():
    """What the worker is told, as text."""
    return os.environ.get("SYSTALLY_SPEC") or _lines.next() or ""


def main(make):
    """The life of a worker. make(spec) returns a client with versions(), set_up() and
    step(first, count), which returns the number of operations done; both of the last may
    be coroutine functions."""
    spec = None
    try:
        spec = Spec.read()
        client = make(spec)
        if inspect.iscoroutinefunction(client.step):
            asyncio.run(_live_async(spec, client))
        else:
            _live(spec, client)
    except Failure as failure:
        _fail(failure.kind, str(failure), spec)
    except Exception as error:  # whatever it is, the tool is to hear of it
        _fail("config", error_key(error), spec)


def serve_rounds(make, read=Spec.read):
    """The life of a worker that runs each round as a whole: make(spec) returns an object with
    versions(), set_up(), and round(), which returns the fields of a done line."""
    spec = None
    try:
        spec = read()
        client = make(spec)
        client.set_up()
        _say_ready(client)
        while _wait_for_go():
            line = client.round()
            line["errors"] = {spec.redact(_one_line(key, 120)): n for key, n in line["errors"].items()}
            say(**line)
    except Failure as failure:
        _fail(failure.kind, str(failure), spec)
    except Exception as error:  # whatever it is, the tool is to hear of it
        _fail("config", error_key(error), spec)


def _live(spec, client):
    def run(stop_ops, stop_ns):
        tally = Round(spec, stop_ops, stop_ns)
        while True:
            count = tally.next()
            if count <= 0:
                return tally.line()
            try:
                tally.add(count, client.step(tally.asked, count))
            except Exception as error:  # every kind of it is a failed operation
                tally.add(count, 0, error)

    client.set_up()
    _check_warm_up(run(_warm_up_ops(spec), NEVER))
    _say_ready(client)
    while _wait_for_go():
        say(**run(spec.stop_ops, spec.stop_ns))


async def _live_async(spec, client):
    async def run(stop_ops, stop_ns):
        tally = Round(spec, stop_ops, stop_ns)
        while True:
            count = tally.next()
            if count <= 0:
                return tally.line()
            try:
                tally.add(count, await client.step(tally.asked, count))
            except Exception as error:  # every kind of it is a failed operation
                tally.add(count, 0, error)

    await client.set_up()
    _check_warm_up(await run(_warm_up_ops(spec), NEVER))
    _say_ready(client)
    # The read blocks the event loop: between rounds nothing else is to run.
    while _wait_for_go():
        say(**await run(spec.stop_ops, spec.stop_ns))


def _fail(kind, message, spec):
    text = message if spec is None else spec.redact(message)
    say(event="fail", **{"class": kind}, message=_one_line(text, 400))
    sys.exit(3)


def _warm_up_ops(spec):
    return max(spec.warmup, spec.batch) if spec.warmup else 0


def _check_warm_up(line):
    if line["errors"] and line["ops"] == 0:
        raise Failure("config", f"every operation of the warm-up failed: {next(iter(line['errors']))}")


def _say_ready(client):
    gc.collect()
    versions = {**client.versions(), "python": platform.python_version()}
    say(event="ready", protocol=1, pid=os.getpid(), versions=versions)


def _wait_for_go():
    """False when the worker is to end."""
    while True:
        line = _lines.next()
        if line is None or line == "exit":
            return False
        if line == "go":
            return True
        if line:
            raise Failure("spec", 'expected "go" or "exit" on stdin')


class _Lines:
    """stdin, read in blocks: byte by byte, a tracer would not see the word "go"."""

    def __init__(self):
        self.rest = b""

    def next(self):
        """The next line without its end; None at the end of the file."""
        while b"\n" not in self.rest:
            block = os.read(0, 65536)
            if not block:
                line, self.rest = self.rest, b""
                return line.decode(errors="replace").strip() or None
            self.rest += block
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode(errors="replace").strip()


_lines = _Lines()


def _one_line(text, size):
    text = re.sub(r"[\x00-\x20\x7f]+", " ", text).strip()
    return text.encode(errors="replace")[:size].decode(errors="ignore")


def _part(raw, name, default):
    value = raw.get(name, default)
    if not isinstance(value, dict):
        raise Failure("spec", f"{name} has the wrong type")
    return value


def _whole(raw, name, default, least):
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Failure("spec", f"{name} must be a whole number from {least} on")
    return value


def _text(raw, name, default):
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise Failure("spec", f"{name} must be a string")
    return value


def _choice(raw, name, default, choices):
    value = raw.get(name, default)
    if value not in choices:
        raise Failure("spec", f"{name} must be one of {', '.join(choices)}")
    return value
