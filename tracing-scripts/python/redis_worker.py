"""redis-py.

Options:
  parser   "auto" (default): what redis-py chooses by itself, hiredis where it is there.
           "python", "hiredis": that one, or the worker fails.
  single   true: single_connection_client, which leaves out the connection pool.
  asyncio  true: the asyncio client.
  cluster  true: the client of a Redis Cluster.
  gather   true, with asyncio: the operations of a batch are in flight together, each on a
           connection of its own, in place of one pipeline.

With --version it prints the version, the parser and the Python for `systally list`.
"""

import asyncio
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from systally import Failure, Plan, main

# Keys in one MSET.
PRELOAD = 1000


def load(parser):
    """Imports redis with the parser that is asked for."""
    if parser == "python":
        # redis-py looks for the module when it is imported itself, and has no better switch.
        sys.modules["hiredis"] = None
    try:
        import redis
    except ImportError as error:
        raise Failure("config", f"redis-py cannot be imported: {error}") from None
    if parser == "hiredis" and not hiredis_is_used():
        raise Failure("config", "redis-py finds no hiredis that it can use")
    return redis


def hiredis_is_used():
    from redis.utils import HIREDIS_AVAILABLE

    return HIREDIS_AVAILABLE


def hiredis_version():
    """None when redis-py parses replies by itself."""
    if not hiredis_is_used():
        return None
    import hiredis

    return hiredis.__version__


class Client:
    """What the blocking and the asyncio client have in common."""

    def __init__(self, spec):
        spec.allow(("parser", "single", "asyncio", "gather", "cluster"), connects=("once", "per_op"))
        self.redis = load(spec.option("parser", "auto", ("auto", "python", "hiredis")))
        self.spec = spec
        self.cluster = spec.flag("cluster")
        self.server = spec.servers[0] if self.cluster else spec.one_server()
        self.plan = Plan(spec)
        self.per_op = spec.connect == "per_op"
        self.single = spec.flag("single")
        self.kept = None

    def versions(self):
        return {
            "redis-py": self.redis.__version__,
            "hiredis-py": hiredis_version(),
            "parser": "hiredis" if hiredis_is_used() else "python",
        }

    def arguments(self):
        server = self.server
        if server.unix:
            where = {"unix_socket_path": server.path}
        else:
            where = {"host": server.host, "port": server.port}
        if server.password is not None:
            where.update(username=server.user, password=server.password)
        if self.cluster:
            return where
        return {**where, "single_connection_client": self.single}

    def preloads(self):
        """The keys to store, in groups for MSET; none unless the operation is get."""
        keys = list(dict.fromkeys(self.plan.keys)) if self.spec.op == "get" else []
        size = max(1, min(PRELOAD, (1 << 20) // max(1, self.spec.payload_bytes)))
        for start in range(0, len(keys), size):
            yield {key: self.plan.encode() for key in keys[start : start + size]}

    def no_connection(self, error):
        return Failure("connect", f"{self.server}: {error}")


class BlockingClient(Client):
    def open(self):
        if self.cluster:
            return self.redis.RedisCluster(**self.arguments())
        return self.redis.Redis(**self.arguments())

    def fill(self, client):
        """One key at a time, since MSET is of one node; and every node gets its connection."""
        for values in self.preloads():
            for key, value in values.items():
                client.set(key, value)
        if self.spec.op != "get":
            for key in self.plan.keys[:PRELOAD]:
                client.get(key)

    def set_up(self):
        if self.cluster and self.spec.op == "ping":
            raise Failure("spec", "op ping: it goes to no key, and so to no node of a cluster")
        if self.spec.flag("gather"):
            raise Failure("spec", "gather needs asyncio")
        try:
            client = self.open()
            client.ping()
        except Exception as error:  # a refusal, whatever its class
            raise self.no_connection(error) from None
        if self.cluster:
            self.fill(client)
        else:
            for values in self.preloads():
                client.mset(values)
        if self.per_op:
            client.close()
        else:
            self.kept = client

    def step(self, first, count):
        client = self.kept or self.open()
        if self.spec.batch > 1:
            pipeline = client.pipeline(transaction=False)
            for i in range(first, first + count):
                self.plan.call(pipeline, i)
            self.plan.check_all(pipeline.execute(raise_on_error=False), first, count)
        else:
            self.plan.check(self.plan.call(client, first), first)
        if self.per_op:
            client.close()
        return count


class AsyncClient(Client):
    def __init__(self, spec):
        super().__init__(spec)
        if self.cluster:
            raise Failure("spec", "cluster: this worker has the blocking client of a cluster only")
        if self.per_op:
            raise Failure("spec", "connect per_op: this worker keeps its asyncio connections")
        self.gather = spec.flag("gather")

    async def set_up(self):
        import redis.asyncio

        try:
            self.kept = redis.asyncio.Redis(**self.arguments())
            await self.kept.ping()
        except Exception as error:  # a refusal, whatever its class
            raise self.no_connection(error) from None
        for values in self.preloads():
            await self.kept.mset(values)

    async def step(self, first, count):
        plan, client = self.plan, self.kept
        if self.spec.batch == 1:
            plan.check(await plan.call(client, first), first)
            return 1
        numbers = range(first, first + count)
        if self.gather:
            calls = (plan.call(client, i) for i in numbers)
            return plan.check_all(await asyncio.gather(*calls, return_exceptions=True), first, count)
        pipeline = client.pipeline(transaction=False)
        for i in numbers:
            plan.call(pipeline, i)
        return plan.check_all(await pipeline.execute(raise_on_error=False), first, count)


def print_version():
    # Asked for without importing it, which takes long.
    try:
        parser = f"hiredis {version('hiredis')}"
    except PackageNotFoundError:
        parser = "its own parser"
    print(f"{version('redis')} ({parser}, Python {platform.python_version()})")


def make(spec):
    return AsyncClient(spec) if spec.flag("asyncio") else BlockingClient(spec)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print_version()
    else:
        main(make)
