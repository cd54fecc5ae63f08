"""redis-benchmark, valkey-benchmark and `redis-cli --pipe`: programs that do not keep the worker
contract. Each round runs the program once; its output tells how fast it was. systally counts
such a client twice, with N and with 2 N operations, and subtracts.

Usage: benchmark.py PROGRAM, or benchmark.py PROGRAM --version for `systally list`.

`forks` of the spec is the number of redis-benchmark's connections (-c); redis-cli has one always.
A single operation works on one key, the first of the run's, and its time is the one that
redis-benchmark tells. The operation "suite" is redis-benchmark's own default: its tests one after
the other, spread evenly over the requests, with keys of its own names (key:__rand_int__, mylist …),
which stay on the server; its time is that of the program from start to end, as `time` gives it.
"""

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

from systally import NEVER, Failure, Spec, serve_rounds, spec_text  # noqa: E402

# Operations of the run that tells how many fit into a round of so many seconds.
TRIAL = 2000
# More than a round by time ever holds: `redis-cli --pipe` reads its commands from a file.
MOST = 5_000_000


# The default tests of redis-benchmark 7. LRANGE needs a list first, which its output has as one more.
SUITE = 20


def read():
    """The spec, whose forks and operation "suite" the other workers do not know."""
    try:
        raw = json.loads(spec_text())
    except ValueError:
        raise Failure("spec", "the spec is not a JSON object") from None
    connections = raw.pop("forks", 0) if isinstance(raw, dict) else 0
    suite = isinstance(raw, dict) and raw.get("op") == "suite"
    if suite:
        raw["op"] = "set"
    spec = Spec(raw)
    if isinstance(connections, bool) or not isinstance(connections, int) or connections < 0:
        raise Failure("spec", "forks must be a whole number from 0 on")
    spec.connections, spec.suite = max(1, connections), suite
    return spec


class Program:
    def __init__(self, spec, name):
        spec.allow(ops=self.ops, connects=("once", "per_op"))
        if spec.payload_kind != "string" or spec.serializer != "none":
            raise Failure("spec", f"{name} stores strings only")
        self.spec = spec
        self.name = name
        self.server = spec.one_server()
        if self.server.password is not None:
            raise Failure("config", f"{name} would show the password in its arguments; use a server without one")
        self.clients = spec.connections
        self.rate = 0.0

    def versions(self):
        return {self.name: version(self.name)}

    def where(self):
        if self.server.unix:
            return ["-s", self.server.path]
        return ["-h", self.server.host, "-p", str(self.server.port)]

    def set_up(self):
        self.prepare(TRIAL)
        line = self.run(TRIAL)
        if line["ops"] == 0:
            raise Failure("connect", f"{self.server}: {next(iter(line['errors']), 'it did nothing')}")
        self.rate = TRIAL / max(line["elapsed_ns"], 1)
        self.prepare(self.wanted())

    def wanted(self):
        if self.spec.stop_ops != NEVER:
            return self.spec.stop_ops
        return max(1, min(MOST, int(self.rate * self.spec.stop_ns)))

    def prepare(self, ops):
        pass

    def round(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = self.run(self.wanted())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the program, not of this script.
        line["usage"] = {
            "user_ns": int((after.ru_utime - before.ru_utime) * 1e9),
            "system_ns": int((after.ru_stime - before.ru_stime) * 1e9),
            "voluntary": after.ru_nvcsw - before.ru_nvcsw,
            "involuntary": after.ru_nivcsw - before.ru_nivcsw,
        }
        return line

    def execute(self, arguments, stdin=subprocess.DEVNULL):
        """What it wrote to standard output; raises OSError with its words when it failed."""
        done = subprocess.run(
            [self.name, *self.where(), *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if done.returncode != 0:
            words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise OSError(f"exit status {done.returncode}: {words[-1] if words else 'it said nothing'}")
        return done.stdout.decode(errors="replace")


class Benchmark(Program):
    """redis-benchmark and valkey-benchmark."""

    ops = ("get", "set", "setget", "incr", "ping")

    def command(self, op):
        spec = self.spec
        key = spec.keys()[0]
        return {
            "get": ["GET", key],
            "set": ["SET", key, "x" * spec.payload_bytes],
            "incr": ["INCR", f"n:{key}"],
            "ping": ["PING"],
        }[op]

    def prepare(self, ops):
        if self.spec.op == "get":
            key = self.spec.keys()[0]
            self.execute(["-c", "1", "-n", "1", "--csv", "SET", key, "x" * self.spec.payload_bytes])

    def run(self, ops):
        if self.spec.suite:
            return self.suite(ops)
        # One test at a time: SET first, and then GET of what it has set.
        halves = {"setget": (("set", (ops + 1) // 2), ("get", ops // 2))}
        done, elapsed, errors = 0, 0, {}
        for op, share in halves.get(self.spec.op, ((self.spec.op, ops),)):
            # It sends whole pipelines only, so what is left of the operations is a run of its own.
            batch = max(1, min(self.spec.batch, share))
            rest = share % batch
            for count, depth in ((share - rest, batch), (rest, rest)):
                if count == 0:
                    continue
                try:
                    elapsed += self.once(count, depth, op)
                    done += count
                except (OSError, ValueError) as error:
                    key = f"{self.name}:{error}"[:120]
                    errors[key] = errors.get(key, 0) + count
        return dict(event="done", ops=done, asked=ops, elapsed_ns=elapsed, errors=errors, latency=None)

    def once(self, ops, depth, op):
        rates = self.rates(ops, depth, self.command(op))
        if not rates:
            raise ValueError("it told no rate")
        return int(ops / rates[0] * 1e9)

    def rates(self, ops, depth, test):
        """Requests a second of each test that it ran."""
        keep = "0" if self.spec.connect == "per_op" else "1"
        options = ["-c", str(min(self.clients, ops)), "-n", str(ops), "-P", str(depth), "-k", keep, "--csv"]
        rows = csv.reader(self.execute([*options, *test]).splitlines())
        return [float(row[1]) for row in rows if len(row) > 1 and row[0] != "test"]

    def suite(self, ops):
        """All default tests, and PING for what they leave of the requests."""
        start = time.perf_counter_ns()
        done, errors = 0, {}
        size = ["-d", str(self.spec.payload_bytes)]
        for each, test, number in ((ops // SUITE, size, SUITE), (ops % SUITE, ["PING"], 1)):
            if each == 0:
                continue
            ran, trouble = 0, None
            try:
                ran = min(number, len(self.rates(each, self.spec.batch, test)))
            except (OSError, ValueError) as error:
                trouble = error
            done += each * ran
            if ran != number:
                key = f"{self.name}:{trouble or f'it ran {ran} tests, not {number}'}"[:120]
                errors[key] = errors.get(key, 0) + each * (number - ran)
        elapsed = time.perf_counter_ns() - start
        return dict(event="done", ops=done, asked=ops, elapsed_ns=elapsed, errors=errors, latency=None)


class Pipe(Program):
    """redis-cli --pipe."""

    ops = ("get", "set", "setget", "incr", "ping")

    def __init__(self, spec, name):
        super().__init__(spec, name)
        if spec.suite:
            raise Failure("spec", "op suite: that is redis-benchmark's")

    def prepare(self, ops):
        """Writes the commands of a round to a file without a name."""
        self.file = tempfile.TemporaryFile()
        spec, keys, value = self.spec, self.spec.keys(), "x" * self.spec.payload_bytes
        one = {
            "get": lambda i: ("GET", keys[i % len(keys)]),
            "set": lambda i: ("SET", keys[i % len(keys)], value),
            "setget": lambda i: (
                ("GET", keys[(i >> 1) % len(keys)]) if i % 2 else ("SET", keys[(i >> 1) % len(keys)], value)
            ),
            "incr": lambda i: ("INCR", f"n:{keys[i % len(keys)]}"),
            "ping": lambda i: ("PING",),
        }[spec.op]
        with open(self.file.fileno(), "wb", closefd=False, buffering=1 << 20) as out:
            for i in range(ops):
                words = one(i)
                text = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
                out.write(text.encode())

    def run(self, ops):
        self.file.seek(0)
        start = time.perf_counter_ns()
        failed, errors = 0, {}
        try:
            said = self.execute(["--pipe"], stdin=self.file)
            # Its last line: errors: 0, replies: 1000
            last = dict(part.strip().split(": ") for part in said.strip().splitlines()[-1].split(","))
            failed = int(last["errors"]) + max(0, ops - int(last["replies"]))
            if failed:
                errors[f"{self.name}:{said.strip().splitlines()[-1]}"[:120]] = failed
        except (OSError, ValueError, KeyError, IndexError) as error:
            failed = ops
            errors[f"{self.name}:{error}"[:120]] = ops
        elapsed = time.perf_counter_ns() - start
        return dict(event="done", ops=ops - failed, asked=ops, elapsed_ns=elapsed, errors=errors, latency=None)


def version(name):
    """`7.0.15` from `redis-benchmark 7.0.15`."""
    said = subprocess.run([name, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    words = said.decode(errors="replace").split()
    return words[1] if len(words) > 1 else ""


if __name__ == "__main__":
    program = sys.argv[1]
    kind = Pipe if program.endswith("-cli") else Benchmark
    if sys.argv[2:] == ["--version"]:
        if shutil.which(program) is None:
            sys.exit(f"{program} is not in PATH")
        print(version(program))
    else:
        serve_rounds(lambda spec: kind(spec, program), read)
