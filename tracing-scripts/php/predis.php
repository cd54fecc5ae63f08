#!/usr/bin/env php
<?php
/**
 * Predis, the Redis client written in PHP. Its autoload.php is taken from the
 * environment variable SYSTALLY_PREDIS, else from where Debian's php-predis puts it.
 *
 * Options:
 *   pipeline_mode  "default": all commands are written, then all replies read.
 *                  "atomic": the same inside MULTI/EXEC.
 *                  "fire-and-forget": replies are never read; the connection is closed.
 *                  "timed-before-flush": a demonstration of a mistake, see below.
 *   over           "shards": Predis' own consistent hashing. "cluster": a Redis Cluster.
 *   backend        what reads and writes the socket. "stream" (default): Predis itself.
 *                  "ffi": hiredis through PHP's FFI, see hiredis_ffi.php.
 *                  "phpiredis-stream", "phpiredis-socket": the two connection classes of
 *                  Predis for the phpiredis extension; Predis 3 has them no more.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class PredisClient extends SystallyRedisClient
{
    private const AUTOLOAD = '/usr/share/php/Predis/autoload.php';

    /** A queued command takes some 400 bytes; at this many the queue is flushed, even in a window. */
    private const QUEUE_LIMIT = 200_000;

    private readonly string $mode;
    private readonly string $backend;
    /** The pipeline that "timed-before-flush" has filled and not flushed yet. */
    private ?object $queue = null;
    private int $queued = 0;

    public function __construct(SystallySpec $spec)
    {
        $autoload = getenv('SYSTALLY_PREDIS') ?: self::AUTOLOAD;
        if (!is_file($autoload)) {
            $words = "predis is not at $autoload; SYSTALLY_PREDIS can name its autoload.php";
            throw new SystallyFailure('config', $words);
        }
        require_once $autoload;
        // The first error would otherwise load these files in the middle of a window.
        class_exists(Predis\Connection\ConnectionException::class);
        class_exists(Predis\Response\ServerException::class);

        $spec->allowOptions(['pipeline_mode', 'backend', 'over']);
        $modes = ['default', 'atomic', 'fire-and-forget', 'timed-before-flush'];
        $this->mode = $spec->option('pipeline_mode', 'default', $modes);
        if ($this->mode === 'timed-before-flush' && $spec->connectsPerOp()) {
            throw new SystallyFailure('spec', 'pipeline_mode timed-before-flush needs a connection that is kept');
        }
        $backends = ['stream', 'ffi', 'phpiredis-stream', 'phpiredis-socket'];
        $this->backend = $spec->option('backend', 'stream', $backends);
        $this->needBackend();
        parent::__construct($spec);
    }

    public function versions(): array
    {
        return ['predis' => Predis\Client::VERSION] + match ($this->backend) {
            'stream' => [],
            'ffi' => ['backend' => 'hiredis through FFI', 'hiredis' => SystallyHiredis::open()->version],
            default => ['backend' => $this->backend, 'phpiredis' => phpversion('phpiredis')],
        };
    }

    public function rest(): void
    {
        try {
            $this->flush();
        } catch (Predis\PredisException) {
            // What is lost here is the point of the demonstration: the figure is out already.
        }
    }

    protected function open(): object
    {
        $parameters = array_map($this->parameters(...), $this->spec->servers);
        $class = $this->connectionClass();
        $options = $class === null ? [] : ['connections' => ['tcp' => $class, 'unix' => $class]];
        if ($this->over === 'one') {
            $parameters = $parameters[0];
        } else {
            $options['cluster'] = $this->over === 'shards' ? 'predis' : 'redis';
        }
        $client = new Predis\Client($parameters, $options);
        $client->connect();
        return $client;
    }

    /** @return array<string, mixed> */
    private function parameters(SystallyServer $server): array
    {
        $parameters = $server->scheme === 'unix'
            ? ['scheme' => 'unix', 'path' => $server->path]
            : ['scheme' => 'tcp', 'host' => $server->host, 'port' => $server->port];
        if ($server->password !== null) {
            $parameters['password'] = $server->password;
        }
        if ($server->user !== null) {
            $parameters['username'] = $server->user;
        }
        if ($this->spec->connectsPersistently()) {
            $parameters['persistent'] = true;
        }
        return $parameters;
    }

    /** Null for Predis' own choice. */
    private function connectionClass(): ?string
    {
        return match ($this->backend) {
            'stream' => null,
            'ffi' => SystallyHiredisConnection::class,
            'phpiredis-stream' => Predis\Connection\PhpiredisStreamConnection::class,
            'phpiredis-socket' => Predis\Connection\PhpiredisSocketConnection::class,
        };
    }

    private function needBackend(): void
    {
        if ($this->backend === 'stream') {
            return;
        }
        if (version_compare(Predis\Client::VERSION, '3', '>=')) {
            throw new SystallyFailure('config', "backend $this->backend needs predis 1 or 2");
        }
        if ($this->backend === 'ffi') {
            require __DIR__ . '/hiredis_ffi.php';
            if (SystallyHiredis::open() === null) {
                throw new SystallyFailure('config', 'FFI is off or finds no libhiredis of a version known here');
            }
        } elseif (!extension_loaded('phpiredis')) {
            throw new SystallyFailure('config', 'the extension phpiredis is not loaded');
        } elseif ($this->backend === 'phpiredis-socket' && !extension_loaded('sockets')) {
            throw new SystallyFailure('config', 'the extension sockets is not loaded');
        }
    }

    protected function close(object $connection): void
    {
        if (!$this->spec->connectsPersistently()) {
            $connection->disconnect();
        }
    }

    protected function batch(object $connection, int $first, int $count): ?array
    {
        if ($this->mode === 'timed-before-flush') {
            $this->queueOnly($connection, $first, $count);
            return null;
        }
        $pipeline = $connection->pipeline($this->mode === 'default' ? [] : [$this->mode => true]);
        for ($i = $first; $i < $first + $count; $i++) {
            ($this->call)($pipeline, $i);
        }
        $replies = $pipeline->execute();
        return $this->mode === 'fire-and-forget' ? null : $replies;
    }

    protected function isOk(mixed $reply): bool
    {
        return $reply instanceof Predis\Response\Status && $reply->getPayload() === 'OK';
    }

    protected function isPong(mixed $reply): bool
    {
        return $reply instanceof Predis\Response\Status && $reply->getPayload() === 'PONG';
    }

    /** Predis stores strings only: its users serialise by themselves, in every operation. */
    protected function encode(string|array|SystallyRecord $value): mixed
    {
        return match ($this->spec->serializer) {
            'php' => serialize($value),
            'igbinary' => igbinary_serialize($value),
            'json' => json_encode($value),
            default => $value,
        };
    }

    protected function decode(mixed $reply): mixed
    {
        if (!is_string($reply)) {
            return null;
        }
        return match ($this->spec->serializer) {
            'php' => unserialize($reply),
            'igbinary' => igbinary_unserialize($reply),
            'json' => json_decode($reply, true),
            default => $reply,
        };
    }

    /**
     * A note of 2018 printed predis' pipeline figure inside the closure that fills the
     * pipeline. Predis sends nothing before that closure has returned, so the figure was
     * the speed of queueing. Here too the queue is flushed after the round is reported.
     */
    private function queueOnly(Predis\Client $client, int $first, int $count): void
    {
        $this->queue ??= $client->pipeline();
        for ($i = $first; $i < $first + $count; $i++) {
            ($this->call)($this->queue, $i);
        }
        $this->queued += $count;
        if ($this->queued >= self::QUEUE_LIMIT) {
            $this->flush();
        }
    }

    private function flush(): void
    {
        $queue = $this->queue;
        $this->queue = null;
        $this->queued = 0;
        $queue?->execute();
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new PredisClient($spec));
