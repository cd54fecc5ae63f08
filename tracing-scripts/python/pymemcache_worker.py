"""pymemcache.

A batch is one get_many() or set_many(). Every set waits for its reply, which is not what
pymemcache does by itself: there, default_noreply is true and a set that failed looks like
one that worked.

It has no options. With --version it prints the version and the Python for `systally list`.
"""

import platform
import sys
from importlib.metadata import version

from systally import Failure, Plan, WrongReply, main


def load():
    """The class of the client, with the name that the plan uses for its increment."""
    try:
        from pymemcache.client.base import Client as Memcache
    except ImportError as error:
        raise Failure("config", f"pymemcache cannot be imported: {error}") from None

    class Connection(Memcache):
        def incr(self, key):
            return super().incr(key, 1)

    return Connection


class Client:
    def __init__(self, spec):
        self.Connection = load()
        ops = ("get", "set") if spec.batch > 1 else ("get", "set", "setget", "incr")
        spec.allow(ops=ops, connects=("once", "per_op"))
        self.spec = spec
        self.server = spec.one_server()
        if self.server.password is not None:
            raise Failure("spec", "this worker does not log in")
        self.plan = Plan(spec)
        self.kept = None

    def versions(self):
        return {"pymemcache": version("pymemcache")}

    def open(self):
        server = self.server
        return self.Connection(server.path if server.unix else (server.host, server.port), default_noreply=False)

    def set_up(self):
        try:
            client = self.open()
            client.version()
        except Exception as error:  # a refusal, whatever its class
            raise Failure("connect", f"{self.server}: {error}") from None
        value = {"get": self.plan.encode(), "incr": b"0"}.get(self.spec.op)
        if value is not None:
            for key in self.plan.keys:
                client.set(key, value)
        if self.spec.connect == "per_op":
            client.close()
        else:
            self.kept = client

    def step(self, first, count):
        client = self.kept or self.open()
        if self.spec.batch > 1:
            done = self.many(client, first, count)
        else:
            self.plan.check(self.plan.call(client, first), first)
            done = 1
        if self.kept is None:
            client.close()
        return done

    def many(self, client, first, count):
        plan = self.plan
        keys = [plan.command(i)[1] for i in range(first, first + count)]
        if self.spec.op == "get":
            found = client.get_many(keys)
            return plan.check_all([found.get(key) for key in keys], first, count)
        # One dictionary holds each key once: a key that comes again begins the next one.
        values = {}
        for key in keys:
            if key in values:
                self.set_all(client, values)
                values = {}
            values[key] = plan.encode()
        self.set_all(client, values)
        return count

    @staticmethod
    def set_all(client, values):
        if client.set_many(values):
            raise WrongReply("SET of many keys failed for some")


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"{version('pymemcache')} (Python {platform.python_version()})")
    else:
        main(Client)
