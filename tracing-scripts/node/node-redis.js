'use strict';
/**
 * node-redis, the "redis" module.
 *
 * Options:
 *   cluster  true: the client of a Redis Cluster.
 *   batch  "pipeline" (default): a batch is one multi().execAsPipeline().
 *          "tick": the commands of a batch are called one after the other without waiting,
 *          and the library sends together what is called in one turn of the event loop.
 */

const { Failure, Plan, retryDelay, start } = require('./systally.js');

class NodeRedis {
  constructor(spec, { module, version }) {
    spec.allow({ options: ['batch', 'cluster'], connects: ['once', 'per_op'] });
    this.redis = module;
    this.version = version;
    this.spec = spec;
    this.cluster = spec.flag('cluster');
    this.server = this.cluster ? spec.servers[0] : spec.oneServer();
    if (this.cluster && (spec.op === 'ping' || spec.batch > 1)) {
      throw new Failure('spec', 'over a cluster this worker makes one operation on a key at a time');
    }
    this.plan = new Plan(spec);
    this.inOneTick = spec.option('batch', 'pipeline', ['pipeline', 'tick']) === 'tick';
    this.perOp = spec.connect === 'per_op';
  }

  versions() {
    return { 'node-redis': this.version };
  }

  async open() {
    const { socket, user, password } = this.server;
    let connected = false;
    const reconnectStrategy = (failures, cause) => retryDelay(failures, connected) ?? cause;
    const login = { username: user, password };
    const client = this.cluster
      ? this.redis.createCluster({
          rootNodes: this.spec.servers.map((server) => ({ socket: { ...server.socket, reconnectStrategy } })),
          defaults: login,
        })
      : this.redis.createClient({ socket: { ...socket, reconnectStrategy }, ...login });
    // Without a listener an error would end the process; the failed operations tell of it.
    client.on('error', () => {});
    await client.connect();
    connected = true;
    return client;
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
      await this.kept.close();
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
        await client.close();
      }
    }
  }

  async replies(client, first, count) {
    if (this.inOneTick) {
      const calls = Array.from({ length: count }, (_, k) => this.plan.call(client, first + k));
      return (await Promise.allSettled(calls)).map(({ value, reason }) => reason ?? value);
    }
    const pipeline = client.multi();
    for (let k = 0; k < count; k += 1) {
      this.plan.call(pipeline, first + k);
    }
    // If one command fails, this throws its error in place of all replies.
    return pipeline.execAsPipeline();
  }
}

start('redis', (spec, library) => new NodeRedis(spec, library));
