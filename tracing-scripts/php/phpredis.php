#!/usr/bin/env php
<?php
/**
 * phpredis, the "redis" extension of PHP.
 *
 * Options:
 *   pipeline_mode  "pipeline" (default): the batch is sent at exec().
 *                  "multi": MULTI/EXEC; each command waits for its +QUEUED.
 *                  "unsent": a demonstration of a mistake, see below.
 *   pooling        true|false: the ini setting redis.pconnect.pooling_enabled.
 *   echo_check     true|false: redis.pconnect.echo_check_liveness; whether pconnect() asks a
 *                  pooled connection for an ECHO before it hands it out.
 *   close          true: with connect "persistent_per_op", call close() after each step.
 *   over           "shards": a RedisArray with consistent hashing. "cluster": a RedisCluster.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class PhpRedisClient extends SystallyRedisClient
{
    /** A queued command takes some 100 bytes; at this many, "unsent" drops them. */
    private const UNSENT_LIMIT = 1_000_000;

    private readonly string $mode;
    private readonly bool $closes;
    private readonly ?int $serializer;
    private int $unsent = 0;

    public function __construct(SystallySpec $spec)
    {
        if (!extension_loaded('redis')) {
            throw new SystallyFailure('config', 'the redis extension (phpredis) is not loaded');
        }
        $spec->allowOptions(['pipeline_mode', 'pooling', 'echo_check', 'close', 'over']);
        $this->mode = $spec->option('pipeline_mode', 'pipeline', ['pipeline', 'multi', 'unsent']);
        if ($this->mode === 'unsent' && $spec->connectsPerOp()) {
            throw new SystallyFailure('spec', 'pipeline_mode unsent needs a connection that is kept');
        }
        $this->set('redis.pconnect.pooling_enabled', $spec->flag('pooling'));
        $this->set('redis.pconnect.echo_check_liveness', $spec->flag('echo_check'));
        // close() really closes a persistent connection, so it is not called by itself.
        $this->closes = $spec->connect === 'per_op' || ($spec->flag('close') ?? false);
        $this->serializer = $this->serializerOf($spec->serializer);
        parent::__construct($spec);
    }

    public function versions(): array
    {
        return ['phpredis' => phpversion('redis')];
    }

    public function rest(): void
    {
        $this->dropUnsent();
    }

    protected function open(): object
    {
        $redis = match ($this->over) {
            'one' => $this->openOne(),
            'shards' => $this->openArray(),
            'cluster' => $this->openCluster(),
        };
        if ($this->serializer !== null) {
            $redis->setOption(Redis::OPT_SERIALIZER, $this->serializer);
        }
        return $redis;
    }

    private function openArray(): RedisArray
    {
        $hosts = array_map(
            static fn (SystallyServer $server): string => $server->scheme === 'unix'
                ? $server->path
                : "$server->host:$server->port",
            $this->spec->servers,
        );
        $options = ['consistent' => true];
        if ($this->server->password !== null) {
            $options['auth'] = $this->server->password;
        }
        return new RedisArray($hosts, $options);
    }

    private function openCluster(): RedisCluster
    {
        $seeds = array_map(
            static fn (SystallyServer $server): string => "$server->host:$server->port",
            $this->spec->servers,
        );
        return new RedisCluster(null, $seeds, 0, 0, $this->spec->connectsPersistently(), $this->server->password);
    }

    private function openOne(): Redis
    {
        $server = $this->server;
        $redis = new Redis();
        $connect = $this->spec->connectsPersistently() ? $redis->pconnect(...) : $redis->connect(...);
        $connected = $server->scheme === 'unix' ? $connect($server->path) : $connect($server->host, $server->port);
        if (!$connected) {
            throw new RedisException('connect() returned false');
        }
        if ($server->password !== null) {
            $login = $server->user === null ? $server->password : [$server->user, $server->password];
            if ($redis->auth($login) !== true) {
                throw new RedisException($redis->getLastError() ?? 'auth() returned false');
            }
        }
        return $redis;
    }

    protected function close(object $connection): void
    {
        if ($this->closes) {
            $connection->close();
        }
    }

    protected function batch(object $connection, int $first, int $count): ?array
    {
        if ($this->over !== 'one') {
            throw new SystallyFailure('spec', 'phpredis has no pipeline over several servers');
        }
        if ($this->mode === 'unsent') {
            $this->queueOnly($connection, $first, $count);
            return null;
        }
        $connection->multi($this->mode === 'multi' ? Redis::MULTI : Redis::PIPELINE);
        try {
            for ($i = $first; $i < $first + $count; $i++) {
                ($this->call)($connection, $i);
            }
            $replies = $connection->exec();
        } catch (RedisException $error) {
            $this->leavePipeline($connection);
            throw $error;
        }
        // exec() returns false when the server gave up the transaction as a whole.
        return is_array($replies) ? $replies : [];
    }

    protected function isOk(mixed $reply): bool
    {
        return $reply === true;
    }

    protected function isPong(mixed $reply): bool
    {
        // Versions before 5.0 return the status line.
        return $reply === true || $reply === '+PONG';
    }

    protected function storeError(object $connection): ?string
    {
        if ($connection instanceof RedisArray) {
            return null;
        }
        $words = $connection->getLastError();
        $connection->clearLastError();
        return $words;
    }

    /**
     * A note of 2018 gave phpredis 1.7 million pipelined requests a second. Its loop
     * entered pipeline mode and never called exec(): each command was only appended to
     * a buffer, and the server saw none. This counts as that loop did, so that anyone
     * can see what such a figure looks like beside the server's own count.
     */
    private function queueOnly(Redis $redis, int $first, int $count): void
    {
        if ($this->unsent === 0) {
            $redis->multi(Redis::PIPELINE);
        }
        for ($i = $first; $i < $first + $count; $i++) {
            ($this->call)($redis, $i);
        }
        $this->unsent += $count;
        if ($this->unsent >= self::UNSENT_LIMIT) {
            $this->dropUnsent();
        }
    }

    private function dropUnsent(): void
    {
        $redis = $this->kept();
        if ($this->unsent > 0 && $redis instanceof Redis) {
            $redis->discard();
            $this->unsent = 0;
        }
    }

    /** After an error in the middle, the object would refuse the next multi(). */
    private function leavePipeline(Redis $redis): void
    {
        try {
            if ($redis->getMode() !== Redis::ATOMIC) {
                $redis->discard();
            }
        } catch (RedisException) {
            // The connection is gone; the operations' own error says so.
        }
    }

    /** @param bool|null $on null leaves the setting as php.ini has it */
    private function set(string $ini, ?bool $on): void
    {
        if ($on !== null && ini_set($ini, $on ? '1' : '0') === false) {
            throw new SystallyFailure('config', "this phpredis has no setting $ini");
        }
    }

    private function serializerOf(string $name): ?int
    {
        if ($name === 'none') {
            return null;
        }
        $constant = 'Redis::SERIALIZER_' . strtoupper($name);
        if (!defined($constant)) {
            throw new SystallyFailure('config', "this phpredis was built without the serializer $name");
        }
        return constant($constant);
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new PhpRedisClient($spec));
