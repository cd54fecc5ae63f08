'use strict';
/**
 * ioredis.
 *
 * Options:
 *   batch           "pipeline" (default): a batch is one pipeline().exec().
 *                   "tick": the commands of a batch are called one after the other without
 *                   waiting; the library writes each one at once.
 *   cluster         true: the client of a Redis Cluster.
 *   autopipelining  true: enableAutoPipelining, by which it joins the commands of one turn
 *                   of the event loop.
 */

const { Failure, Plan, retryDelay, start } = require('./systally.js');

class IoRedis {
  constructor(spec, { module, version }) {
    spec.allow({ options: ['batch', 'autopipelining', 'cluster'], connects: ['once', 'per_op'] });
    this.Redis = module.Redis ?? module;
    this.version = version;
    this.spec = spec;
    this.cluster = spec.flag('cluster');
    this.server = this.cluster ? spec.servers[0] : spec.oneServer();
    if (this.cluster && (spec.op === 'ping' || spec.batch > 1)) {
      throw new Failure('spec', 'over a cluster this worker makes one operation on a key at a time');
    }
    this.plan = new Plan(spec);
    this.inOneTick = spec.option('batch', 'pipeline', ['pipeline', 'tick']) === 'tick';
    this.autopipelining = spec.flag('autopipelining');
    this.perOp = spec.connect === 'per_op';
  }

  versions() {
    return { ioredis: this.version };
  }

  async open() {
    const { socket, user, password } = this.server;
    let connected = false;
    const login = { username: user, password };
    const retry = (failures) => retryDelay(failures, connected);
    const client = this.cluster
      ? new this.Redis.Cluster(
          this.spec.servers.map((server) => server.socket),
          { lazyConnect: true, clusterRetryStrategy: retry, redisOptions: login },
        )
      : new this.Redis({
          ...socket,
          ...login,
          lazyConnect: true,
          enableAutoPipelining: this.autopipelining,
          retryStrategy: retry,
        });
    // Without a listener the library prints the error; the failed operations tell of it.
    let trouble;
    client.on('error', (error) => {
      trouble = error;
    });
    try {
      await client.connect();
    } catch (error) {
      // "Connection is closed." says less than the reason that came before it.
      throw trouble ?? error;
    }
    connected = true;
    return client;
  }

  close(client) {
    return new Promise((resolve) => {
      client.once('end', resolve);
      client.disconnect();
    });
  }

  async setUp() {
    try {
      this.kept = await this.open();
      await (this.cluster ? this.plan.touch(this.kept) : this.kept.ping());
    } catch (error) {
      throw new Failure('connect', `${this.server.name}: ${error.message}`);
    }
    for (const key of this.plan.preloads()) {
      await this.kept.set(key, this.plan.encode());
    }
    if (this.perOp) {
      await this.close(this.kept);
      this.kept = undefined;
    }
  }

  async step(first, count) {
    const client = this.kept ?? (await this.open());
    try {
      if (this.spec.batch > 1) {
        return this.plan.checkAll(await this.replies(client, first, count), first, count);
      }
      this.plan.check(await this.plan.call(client, first), first);
      return 1;
    } finally {
      if (this.perOp) {
        await this.close(client);
      }
    }
  }

  async replies(client, first, count) {
    if (this.inOneTick) {
      const calls = Array.from({ length: count }, (_, k) => this.plan.call(client, first + k));
      return (await Promise.allSettled(calls)).map(({ value, reason }) => reason ?? value);
    }
    const pipeline = client.pipeline();
    for (let k = 0; k < count; k += 1) {
      this.plan.call(pipeline, first + k);
    }
    return (await pipeline.exec()).map(([error, reply]) => error ?? reply);
  }
}

start('ioredis', (spec, library) => new IoRedis(spec, library));
