'use strict';
/**
 * The Node side of systally's worker contract; tracing-scripts/README.md describes it.
 *
 * A worker hands main() a function that makes a client object from the spec, with
 *   versions()          versions of the library, for the ready line
 *   setUp()             connects and stores what the operations will read
 *   step(first, count)  runs operations and returns how many are done
 * The last two may return promises.
 */

const fs = require('node:fs');
const path = require('node:path');

const OPS = ['get', 'set', 'setget', 'incr', 'ping'];

/** Keys that touch() asks for. */
const TOUCHED = 200;

/** Ends the worker with a fail line; kind is "spec", "config" or "connect". */
class Failure extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/** An answer that is not the right one. */
class WrongReply extends Error {}

/** Some operations of a batch failed, the others are done. */
class OpErrors extends Error {
  constructor(done, errors) {
    super('some operations failed');
    this.done = done;
    this.errors = errors;
  }
}

/** The checked form of the JSON object that says what to do. */
class Spec {
  constructor(raw) {
    if (!isObject(raw)) {
      throw new Failure('spec', 'the spec is not a JSON object');
    }
    if ((raw.protocol ?? 1) !== 1) {
      throw new Failure('spec', 'this worker speaks protocol 1 only');
    }
    if (whole(raw, 'forks', 0, 0) > 0) {
      throw new Failure('spec', 'forks: this worker does not fork, start several workers instead');
    }
    this.worker = whole(raw, 'worker', 0, 0);
    this.op = choice(raw, 'op', 'get', OPS);
    this.connect = choice(raw, 'connect', 'once', ['once', 'per_op', 'persistent', 'persistent_per_op']);
    this.batch = whole(raw, 'batch', 1, 1);
    this.warmup = whole(raw, 'warmup', 20, 0);
    this.maxErrors = whole(raw, 'max_errors', 10000, 1);
    this.histogram = choice(raw, 'latency', 'hist', ['hist', 'none']) === 'hist';
    this.options = part(raw, 'options', {});

    const stop = part(raw, 'stop', { ops: 1000 });
    if ((stop.ops === undefined) === (stop.seconds === undefined)) {
      throw new Failure('spec', 'stop needs either "ops" or "seconds"');
    }
    this.stopOps = stop.ops === undefined ? Infinity : whole(stop, 'ops', 0, 0);
    const seconds = stop.seconds ?? Infinity;
    if (typeof seconds !== 'number' || seconds < 0) {
      throw new Failure('spec', 'stop.seconds must be a number from 0 on');
    }
    this.stopNs = seconds * 1e9;

    const key = part(raw, 'key', {});
    this.keyPrefix = text(key, 'prefix', 'st:');
    this.keyCount = whole(key, 'count', 1000, 1);
    this.keyOrder = choice(key, 'order', 'seq', ['seq', 'random']);
    this.keySeed = whole(key, 'seed', 1, 0);

    const payload = part(raw, 'payload', {});
    this.payloadKind = choice(payload, 'kind', 'string', ['string', 'array', 'object']);
    this.payloadBytes = whole(payload, 'bytes', 4, 0);
    this.serializer = choice(payload, 'serializer', 'none', ['none', 'php', 'igbinary', 'json']);

    const servers = raw.servers ?? [];
    if (!Array.isArray(servers)) {
      throw new Failure('spec', 'servers has the wrong type');
    }
    this.servers = (servers.length > 0 ? servers : [{}]).map(server);
  }

  /** From the environment variable SYSTALLY_SPEC, else from the first line of stdin. */
  static read() {
    let raw;
    try {
      raw = JSON.parse(process.env.SYSTALLY_SPEC || lines.next() || '');
    } catch {
      throw new Failure('spec', 'the spec is not a JSON object');
    }
    return new Spec(raw);
  }

  oneServer() {
    if (this.servers.length !== 1) {
      throw new Failure('spec', 'this worker speaks to one server');
    }
    return this.servers[0];
  }

  /** Refuses what the worker cannot do; a misspelt option would measure something else. */
  allow({ options, connects }) {
    for (const name of Object.keys(this.options)) {
      if (!options.includes(name)) {
        throw new Failure('spec', `unknown option ${name}; known: ${options.join(', ') || 'none'}`);
      }
    }
    if (!connects.includes(this.connect)) {
      throw new Failure('spec', `connect ${this.connect}: this client knows ${connects.join(', ')}`);
    }
  }

  option(name, fallback, choices) {
    return choice(this.options, name, fallback, choices);
  }

  flag(name) {
    return choice(this.options, name, false, [false, true]);
  }

  /** The keys in the order of use, which repeats after key.count keys. */
  keys() {
    let x = (this.keySeed + this.worker) % 2 ** 31;
    return Array.from({ length: this.keyCount }, (_, i) => {
      let number = i;
      if (this.keyOrder === 'random') {
        // The lower 31 bits of the product are those of the exact one.
        x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff;
        number = (x >> 8) % this.keyCount;
      }
      return this.keyPrefix + String(number).padStart(10, '0');
    });
  }

  /**
   * Two functions, each called in every operation as an application would: encode() gives
   * the string to store, isValue() says whether the one that came back is right.
   */
  codec() {
    const body = 'x'.repeat(this.payloadBytes);
    if (this.payloadKind === 'string' && this.serializer === 'none') {
      return { encode: () => body, isValue: (got) => got === body };
    }
    if (this.serializer !== 'json') {
      const words = `a payload of kind ${this.payloadKind} with serializer ${this.serializer}`;
      throw new Failure('spec', `${words}: known here is json`);
    }
    const value = this.payloadKind === 'string' ? body : { id: 7, name: 'systally', tags: ['a', 'b', 'c'], body };
    const isRight = this.payloadKind === 'string' ? (got) => got === body : isRecord(body);
    return {
      encode: () => JSON.stringify(value),
      isValue: (got) => typeof got === 'string' && isRight(JSON.parse(got)),
    };
  }

  /** Takes the servers' passwords out of a text that will be shown. */
  redact(words) {
    return this.servers.reduce((t, { password }) => (password ? t.replaceAll(password, '***') : t), words);
  }
}

/** Which key each operation uses, and whether its reply is right. */
class Plan {
  constructor(spec) {
    this.op = spec.op;
    const { encode, isValue } = spec.codec();
    this.encode = encode;
    this.isValue = isValue;
    this.keys = spec.keys().map((key) => (spec.op === 'incr' ? `n:${key}` : key));
  }

  /** The name of an operation's command. */
  command(i) {
    return this.op === 'setget' ? (i % 2 === 0 ? 'set' : 'get') : this.op;
  }

  /** Calls get(key), set(key, value), incr(key) or ping() of a client or a pipeline. */
  call(client, i) {
    const command = this.command(i);
    const key = this.keys[(this.op === 'setget' ? Math.floor(i / 2) : i) % this.keys.length];
    switch (command) {
      case 'get':
        return client.get(key);
      case 'set':
        return client.set(key, this.encode());
      case 'incr':
        return client.incr(key);
      default:
        return client.ping();
    }
  }

  /** Throws WrongReply, or what the client gave in place of throwing it. */
  check(reply, i) {
    if (reply instanceof Error) {
      throw reply;
    }
    const command = this.command(i);
    if (!this.isRight(command, reply)) {
      throw new WrongReply(`${command.toUpperCase()} returned ${reply === null ? 'nothing' : 'another reply'}`);
    }
  }

  isRight(command, reply) {
    switch (command) {
      case 'get':
        return this.isValue(reply);
      case 'set':
        return reply === 'OK';
      case 'incr':
        return Number.isInteger(reply) && reply > 0;
      default:
        return reply === 'PONG';
    }
  }

  /** Checks the replies of a batch; returns how many they are. */
  checkAll(replies, first, count) {
    if (replies.length !== count) {
      throw new WrongReply('a batch returned another number of replies');
    }
    const errors = {};
    let failed = 0;
    replies.forEach((reply, k) => {
      try {
        this.check(reply, first + k);
      } catch (error) {
        const key = errorKey(error);
        errors[key] = (errors[key] ?? 0) + 1;
        failed += 1;
      }
    });
    if (failed > 0) {
      throw new OpErrors(count - failed, errors);
    }
    return count;
  }

  /** Asks for some keys, so that every node of a cluster has its connection before the window. */
  async touch(client) {
    for (const key of this.keys.slice(0, TOUCHED)) {
      await client.get(key);
    }
  }

  /** Each key that get will read, once; none for another operation. */
  preloads() {
    return this.op === 'get' ? [...new Set(this.keys)] : [];
  }
}

/** Runs one round and returns the done line. */
async function round(spec, client, stopOps, stopNs) {
  const buckets = new Float64Array(1024);
  const errors = {};
  let asked = 0;
  let done = 0;
  let failed = 0;
  const fail = (key, n) => {
    const words = oneLine(spec.redact(key), 120);
    errors[words] = (errors[words] ?? 0) + n;
    failed += n;
  };
  const start = process.hrtime.bigint();
  let now = 0;
  while (asked < stopOps && now < stopNs && failed < spec.maxErrors) {
    const count = Math.min(spec.batch, stopOps - asked);
    try {
      done += await client.step(asked, count);
    } catch (error) {
      if (error instanceof OpErrors) {
        done += error.done;
        Object.entries(error.errors).forEach(([key, n]) => fail(key, n));
      } else {
        fail(errorKey(error), count);
      }
    }
    asked += count;
    const before = now;
    now = Number(process.hrtime.bigint() - start);
    buckets[bucket(now - before)] += 1;
  }
  const hist = [];
  if (spec.histogram) {
    buckets.forEach((n, number) => n > 0 && hist.push([bucketStart(number), n]));
  }
  const latency = { unit: 'ns', per: spec.batch > 1 ? 'batch' : 'op', hist };
  return { event: 'done', ops: done, asked, elapsed_ns: now, errors, latency };
}

/** The histogram's bucket of a duration: 16 buckets for each power of two. */
function bucket(ns) {
  if (ns < 16) {
    return Math.max(0, ns);
  }
  const top = ns < 2 ** 32 ? 31 - Math.clz32(ns) : 63 - Math.clz32(ns / 2 ** 32);
  return (top - 3) * 16 + (Math.floor(ns / 2 ** (top - 4)) & 15);
}

/** The shortest duration of a bucket. */
function bucketStart(number) {
  return number < 16 ? number : (16 + (number % 16)) * 2 ** (Math.floor(number / 16) - 1);
}

/** The life of a worker. */
async function main(make) {
  let spec;
  try {
    spec = Spec.read();
    const client = make(spec);
    await client.setUp();
    const warm = await round(spec, client, spec.warmup > 0 ? Math.max(spec.warmup, spec.batch) : 0, Infinity);
    if (warm.ops === 0 && warm.asked > 0) {
      const words = `every operation of the warm-up failed: ${Object.keys(warm.errors)[0]}`;
      throw new Failure('config', words);
    }
    globalThis.gc?.();
    const versions = { ...client.versions(), node: process.versions.node };
    say({ event: 'ready', protocol: 1, pid: process.pid, versions });
    // The read blocks the event loop: between rounds nothing else is to run.
    for (let line = lines.next(); line !== null && line !== 'exit'; line = lines.next()) {
      if (line === 'go') {
        say(await round(spec, client, spec.stopOps, spec.stopNs));
      } else if (line !== '') {
        throw new Failure('spec', 'expected "go" or "exit" on stdin');
      }
    }
    process.exit(0);
  } catch (error) {
    const kind = error instanceof Failure ? error.kind : 'config';
    const words = error instanceof Failure ? error.message : errorKey(error);
    say({ event: 'fail', class: kind, message: oneLine(spec ? spec.redact(words) : words, 400) });
    process.exit(3);
  }
}

/** Writes one line of the contract with one write: a tracer looks for its first bytes. */
function say(line) {
  fs.writeSync(1, `${JSON.stringify(line)}\n`);
}

/**
 * stdin, read in blocks and without the event loop: a stream would add calls to the window
 * and hide the word "go" from a tracer.
 */
const lines = {
  rest: '',
  /** The next line without its end; null at the end of the file. */
  next() {
    const block = Buffer.alloc(65536);
    while (!this.rest.includes('\n')) {
      let read;
      try {
        read = fs.readSync(0, block);
      } catch (error) {
        if (error.code !== 'EAGAIN') {
          throw error;
        }
        // Somebody made the pipe non-blocking: look again in a moment.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
        continue;
      }
      if (read === 0) {
        const line = this.rest.trim();
        this.rest = '';
        return line || null;
      }
      this.rest += block.toString('utf8', 0, read);
    }
    const end = this.rest.indexOf('\n');
    const line = this.rest.slice(0, end).trim();
    this.rest = this.rest.slice(end + 1);
    return line;
  },
};

/**
 * Where a module is: in node_modules beside this file, or in NODE_PATH. Nothing is downloaded.
 *
 * @returns {{entry: string, version: string}}
 */
function find(name) {
  let entry;
  try {
    entry = require.resolve(name);
  } catch {
    throw new Failure('config', `node finds no module ${name}: run tracing-scripts/setup --all, or set NODE_PATH`);
  }
  // A module may hide its package.json from require().
  let folder = path.dirname(entry);
  while (!isPackage(folder, name) && folder !== path.dirname(folder)) {
    folder = path.dirname(folder);
  }
  const { version } = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
  return { entry, version };
}

/** @returns {{module: any, version: string}} */
function load(name) {
  const { entry, version } = find(name);
  return { module: require(entry), version };
}

function isPackage(folder, name) {
  try {
    return JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).name === name;
  } catch {
    return false;
  }
}

/**
 * When to connect again: the milliseconds to wait after so many failures, or null to give up.
 * Both libraries would go on for ever, and the operation that waits for them with them. A
 * first connection that is refused is not tried again at all.
 */
function retryDelay(failures, wasConnected) {
  return wasConnected && failures <= 5 ? 50 * 2 ** failures : null;
}

/** With --version a worker says for `systally list` what it would use; otherwise it works. */
function start(name, make) {
  if (process.argv[2] !== '--version') {
    main((spec) => make(spec, load(name)));
    return;
  }
  try {
    process.stdout.write(`${find(name).version} (Node ${process.versions.node})\n`);
  } catch (error) {
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 1;
  }
}

function errorKey(error) {
  return error instanceof Error ? `${error.constructor.name}:${error.message}` : `Error:${error}`;
}

function oneLine(words, size) {
  const line = words.replace(/[\x00-\x20\x7f]+/g, ' ').trim();
  // A character that is cut in two becomes the replacement character, which goes.
  return Buffer.from(line).subarray(0, size).toString('utf8').replace(/\ufffd+$/, '');
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isRecord(body) {
  return (got) =>
    isObject(got) && got.id === 7 && got.name === 'systally' && got.tags?.join() === 'a,b,c' && got.body === body;
}

function server(raw) {
  if (!isObject(raw)) {
    throw new Failure('spec', 'an entry of servers is not an object');
  }
  const unix = choice(raw, 'scheme', 'tcp', ['tcp', 'unix']) === 'unix';
  const where = text(raw, 'path', '');
  if (unix && !where.startsWith('/')) {
    throw new Failure('spec', 'a unix server needs an absolute path');
  }
  const port = whole(raw, 'port', 6379, 1);
  const host = text(raw, 'host', '127.0.0.1');
  return {
    // Both libraries name a server like this.
    socket: unix ? { path: where } : { host, port },
    name: unix ? `unix://${where}` : `tcp://${host}:${port}`,
    // An empty user or password means none.
    user: text(raw, 'user', '') || undefined,
    password: text(raw, 'password', '') || undefined,
  };
}

function part(raw, name, fallback) {
  const value = raw[name] ?? fallback;
  if (!isObject(value)) {
    throw new Failure('spec', `${name} has the wrong type`);
  }
  return value;
}

function whole(raw, name, fallback, least) {
  const value = raw[name] ?? fallback;
  if (!Number.isSafeInteger(value) || value < least) {
    throw new Failure('spec', `${name} must be a whole number from ${least} on`);
  }
  return value;
}

function text(raw, name, fallback) {
  const value = raw[name] ?? fallback;
  if (typeof value !== 'string') {
    throw new Failure('spec', `${name} must be a string`);
  }
  return value;
}

function choice(raw, name, fallback, choices) {
  const value = raw[name] ?? fallback;
  if (!choices.includes(value)) {
    throw new Failure('spec', `${name} must be one of ${choices.join(', ')}`);
  }
  return value;
}

module.exports = { Failure, Plan, retryDelay, start };
