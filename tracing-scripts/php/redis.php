<?php
/** What the workers for Redis clients share. */

declare(strict_types=1);

/** What all clients of one Redis server with the usual method names have in common. */
abstract class SystallyRedisClient implements SystallyClient
{
    protected readonly SystallyServer $server;
    /** Makes the call of an operation on a client object, or queues it on a pipeline. */
    protected readonly Closure $call;
    private readonly string|array|SystallyRecord $payload;
    private readonly string|array|SystallyRecord $expected;
    /** @var list<string> */
    private readonly array $keys;
    private readonly bool $pipelined;
    /** The connection of a client that does not connect per operation. */
    private ?object $kept = null;

    public function __construct(protected readonly SystallySpec $spec)
    {
        if (count($spec->servers) !== 1) {
            throw new SystallyFailure('spec', 'this worker speaks to one server');
        }
        $this->server = $spec->servers[0];
        $this->payload = $spec->payload();
        $this->expected = $spec->expectedPayload();
        $this->pipelined = $spec->batch > 1 || $spec->hasOption('pipeline_mode');

        $keys = $spec->keys();
        if ($spec->op === 'incr') {
            $keys = array_map(static fn (string $key): string => "n:$key", $keys);
        }
        $this->keys = $keys;

        $n = count($keys);
        $this->call = match ($spec->op) {
            'get' => fn (object $to, int $i): mixed => $to->get($keys[$i % $n]),
            'set' => fn (object $to, int $i): mixed => $to->set($keys[$i % $n], $this->encode($this->payload)),
            'setget' => fn (object $to, int $i): mixed => $i % 2 === 0
                ? $to->set($keys[($i >> 1) % $n], $this->encode($this->payload))
                : $to->get($keys[($i >> 1) % $n]),
            'incr' => fn (object $to, int $i): mixed => $to->incr($keys[$i % $n]),
            'ping' => fn (object $to, int $i): mixed => $to->ping(),
        };
    }

    /** A connection that is ready for commands, logged in if there is a password. */
    abstract protected function open(): object;

    /** Gives up a connection of open() at the end of a step. */
    abstract protected function close(object $connection): void;

    /**
     * Sends a batch and returns its replies, or null when the client gives none to check.
     *
     * @return list<mixed>|null
     */
    abstract protected function pipeline(object $connection, int $first, int $count): ?array;

    abstract protected function isOk(mixed $reply): bool;

    abstract protected function isPong(mixed $reply): bool;

    /** The server's last error, for clients that return false instead of throwing; forgets it. */
    protected function serverError(object $connection): ?string
    {
        return null;
    }

    /** The form in which the client takes a value. */
    protected function encode(string|array|SystallyRecord $value): mixed
    {
        return $value;
    }

    /** The value in what the client returned. */
    protected function decode(mixed $reply): mixed
    {
        return $reply;
    }

    public function setUp(): void
    {
        try {
            $connection = $this->open();
            // Some refusals (too many clients, no login) come with the first command only.
            $reply = $connection->ping();
        } catch (SystallyFailure $failure) {
            throw $failure;
        } catch (Throwable $error) {
            throw new SystallyFailure('connect', $this->whereTo() . ': ' . $error->getMessage());
        }
        if (!$this->isPong($reply)) {
            $words = $this->serverError($connection) ?? 'it did not answer PING';
            throw new SystallyFailure('connect', $this->whereTo() . ": $words");
        }
        if ($this->spec->op === 'get') {
            $this->preload($connection);
        }
        if ($this->spec->connectsPerOp()) {
            $this->close($connection);
        } else {
            $this->kept = $connection;
        }
    }

    public function step(int $first, int $count): int
    {
        $connection = $this->kept ?? $this->open();
        if ($this->pipelined) {
            $replies = $this->pipeline($connection, $first, $count);
            if ($replies !== null) {
                $this->checkAll($connection, $replies, $first, $count);
            }
        } else {
            $reply = ($this->call)($connection, $first);
            if (!$this->isRight($reply, $first)) {
                $words = $this->serverError($connection);
                throw new SystallyOpErrors(0, [$this->errorKey($reply, $first, $words) => 1]);
            }
        }
        if ($this->kept === null) {
            $this->close($connection);
        }
        return $count;
    }

    public function rest(): void
    {
    }

    /** The connection that is kept between steps, if one is. */
    protected function kept(): ?object
    {
        return $this->kept;
    }

    private function whereTo(): string
    {
        $server = $this->server;
        return $server->scheme === 'unix' ? "unix://$server->path" : "tcp://$server->host:$server->port";
    }

    private function preload(object $connection): void
    {
        // Groups of about a megabyte: few round trips, and no huge command.
        $size = max(1, min(1000, intdiv(1 << 20, max(1, $this->spec->payloadBytes))));
        foreach (array_chunk(array_unique($this->keys), $size) as $keys) {
            try {
                $stored = $this->isOk($connection->mset(array_fill_keys($keys, $this->encode($this->payload))));
                $words = $stored ? '' : $this->serverError($connection) ?? 'the server refused MSET';
            } catch (Throwable $error) {
                $words = $error->getMessage();
            }
            if ($words !== '') {
                throw new SystallyFailure('config', "storing the keys to read: $words");
            }
        }
    }

    /** @param list<mixed> $replies */
    private function checkAll(object $connection, array $replies, int $first, int $count): void
    {
        if (count($replies) !== $count) {
            throw new SystallyOpErrors(0, ['WrongReply:a pipeline returned another number of replies' => $count]);
        }
        $wrong = [];
        foreach ($replies as $k => $reply) {
            if (!$this->isRight($reply, $first + $k)) {
                $wrong[$k] = $reply;
            }
        }
        if ($wrong === []) {
            return;
        }
        $errors = [];
        $words = $this->serverError($connection);
        foreach ($wrong as $k => $reply) {
            $key = $this->errorKey($reply, $first + $k, $words);
            $errors[$key] = ($errors[$key] ?? 0) + 1;
        }
        throw new SystallyOpErrors($count - count($wrong), $errors);
    }

    private function command(int $i): string
    {
        return $this->spec->op === 'setget' ? ($i % 2 === 0 ? 'set' : 'get') : $this->spec->op;
    }

    private function isRight(mixed $reply, int $i): bool
    {
        switch ($this->command($i)) {
            case 'get':
                $value = $this->decode($reply);
                // Two objects are identical only when they are one and the same.
                return $value instanceof SystallyRecord ? $value == $this->expected : $value === $this->expected;
            case 'set':
                return $this->isOk($reply);
            case 'incr':
                return is_int($reply) && $reply > 0;
            default:
                return $this->isPong($reply);
        }
    }

    /** @param string|null $words what the server said, which stands for a reply of false */
    private function errorKey(mixed $reply, int $i, ?string $words): string
    {
        if ($reply === false && $words !== null) {
            return systally_error_key('ServerError', $words, $this->spec);
        }
        $what = match ($reply) {
            false => 'false',
            null => 'nothing',
            default => $this->command($i) === 'get' ? 'another value' : 'another reply',
        };
        return 'WrongReply:' . strtoupper($this->command($i)) . " returned $what";
    }
}
