#!/usr/bin/env python3
"""redis-benchmark (or valkey-benchmark) as a worker: each round runs the program once.

`forks` of the spec is its number of connections (-c). Its requests are those of the round,
spread evenly over its tests where there are several. The time of a round is that of the
program, from start to end, as `time redis-benchmark` gives it; its CPU time and context
switches are its own, not those of this script.

It writes keys of its own names (key:__rand_int__, mylist ...), which stay on the server.

Option:
  program   "redis-benchmark" (default) or "valkey-benchmark"
"""

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import time

# The default tests of version 7, in its order; "suite" runs them all.
SUITE = [
    "ping_inline", "ping_mbulk", "set", "get", "incr", "lpush", "rpush", "lpop", "rpop", "sadd",
    "hset", "spop", "zadd", "zpopmin", "lrange_100", "lrange_300", "lrange_500", "lrange_600", "mset",
]
# LRANGE needs a list first, which is a test of its own in the program's output.
TESTS = {"get": ["get"], "set": ["set"], "incr": ["incr"], "ping": ["ping_mbulk"], "setget": ["set", "get"]}
PER_SUITE = len(SUITE) + 1


class Failure(Exception):
    """Ends the worker with a fail line."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def say(line):
    os.write(1, (json.dumps(line) + "\n").encode())


class Benchmark:
    def __init__(self, spec):
        options = dict(spec.get("options", {}))
        name = options.pop("program", "redis-benchmark")
        if options:
            raise Failure("spec", "unknown option %s" % sorted(options)[0])
        if name not in ("redis-benchmark", "valkey-benchmark"):
            raise Failure("spec", "program must be redis-benchmark or valkey-benchmark")
        self.program = shutil.which(name)
        if self.program is None:
            raise Failure("config", "%s is not installed" % name)
        self.op = spec["op"]
        if self.op != "suite" and self.op not in TESTS:
            raise Failure("spec", "op %s: redis-benchmark knows suite, %s" % (self.op, ", ".join(TESTS)))
        server = spec["servers"][0]
        if server.get("password"):
            raise Failure("config", "redis-benchmark takes a password on its command line only, where all can see it")
        if server["scheme"] == "unix":
            where = ["-s", server["path"]]
        else:
            where = ["-h", server["host"], "-p", str(server["port"])]
        self.base = [self.program] + where + [
            "-c", str(max(1, spec.get("forks", 1))),
            "-P", str(spec.get("batch", 1)),
            "-d", str(spec["payload"]["bytes"]),
            "-k", "0" if spec["connect"] == "per_op" else "1",
            "--csv",
        ]
        self.stop = spec["stop"]

    def round(self):
        start = time.monotonic_ns()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        asked = done = 0
        errors = {}
        if "ops" in self.stop:
            batches = self.split(self.stop["ops"])
        else:
            batches = self.until(start + int(self.stop["seconds"] * 1e9))
        for tests, each, of in batches:
            wanted = each * of
            asked += wanted
            served, error = self.run(tests, each, of)
            done += served
            if error is not None:
                errors[error] = errors.get(error, 0) + wanted - served
        elapsed = time.monotonic_ns() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "event": "done",
            "ops": done,
            "asked": asked,
            "elapsed_ns": elapsed,
            "errors": errors,
            "usage": {
                "user_ns": int((after.ru_utime - before.ru_utime) * 1e9),
                "system_ns": int((after.ru_stime - before.ru_stime) * 1e9),
                "voluntary": after.ru_nvcsw - before.ru_nvcsw,
                "involuntary": after.ru_nivcsw - before.ru_nivcsw,
            },
        }

    def split(self, ops):
        """Runs of the program for so many operations: its tests, requests of each, and how many tests."""
        tests, of = self.tests()
        if ops // of:
            yield tests, ops // of, of
        if ops % of:
            # What does not divide evenly: more of the first test.
            first = "ping_mbulk" if self.op == "suite" else tests[0]
            yield [first], ops % of, 1

    def until(self, end):
        tests, of = self.tests()
        while time.monotonic_ns() < end:
            yield tests, 1000, of

    def tests(self):
        return (None, PER_SUITE) if self.op == "suite" else (TESTS[self.op], len(TESTS[self.op]))

    def run(self, tests, each, of):
        """Operations done, and what went wrong."""
        command = self.base + ["-n", str(each)] + ([] if tests is None else ["-t", ",".join(tests)])
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        rows = [row for row in csv.reader(ended.stdout.splitlines()) if len(row) > 1 and row[0] != "test"]
        if ended.returncode == 0 and len(rows) == of:
            return each * of, None
        words = (ended.stderr or ended.stdout).strip().splitlines()
        what = words[-1] if words else "it ended with status %d" % ended.returncode
        if ended.returncode == 0:
            what = "it ran %d tests, not %d" % (len(rows), of)
        return min(len(rows), of) * each, "redis-benchmark:" + what[:120]


def main():
    try:
        text = os.environ.get("SYSTALLY_SPEC") or sys.stdin.readline()
        benchmark = Benchmark(json.loads(text))
        version = subprocess.run(
            [benchmark.program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        ).stdout.split()
        versions = {"redis-benchmark": version[1] if len(version) > 1 else ""}
        say({"event": "ready", "protocol": 1, "pid": os.getpid(), "versions": versions})
        for line in iter(sys.stdin.readline, ""):
            if line.strip() == "go":
                say(benchmark.round())
            elif line.strip() == "exit":
                return 0
        return 0
    except Failure as failure:
        say({"event": "fail", "class": failure.kind, "message": str(failure)})
    except (KeyError, ValueError, TypeError) as error:
        say({"event": "fail", "class": "spec", "message": "%s: %s" % (type(error).__name__, error)})
    return 3


sys.exit(main())
