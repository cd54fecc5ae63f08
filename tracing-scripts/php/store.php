<?php
/** What the workers for clients of key-value stores share. */

declare(strict_types=1);

/** Keys, values and the check of every reply, for any store that has get() and set(). */
abstract class SystallyStoreClient implements SystallyClient
{
    /** Makes the call of an operation on a client object, or queues it on a pipeline. */
    protected readonly Closure $call;
    protected readonly string|array|SystallyRecord $payload;
    private readonly string|array|SystallyRecord $expected;
    /** @var list<string> in the order of use */
    private readonly array $keys;
    private readonly bool $batched;
    /** The connection of a client that does not connect per operation. */
    private ?object $kept = null;

    /**
     * @param list<string> $ops the operations that this client knows
     * @param list<string> $serializers those it knows besides "none", which is for strings
     */
    public function __construct(protected readonly SystallySpec $spec, array $ops, array $serializers)
    {
        $spec->allowOps($ops);
        $spec->allowSerializers($serializers);
        $this->payload = $spec->payload();
        $this->expected = $spec->expectedPayload();
        $this->batched = $spec->batch > 1 || $spec->hasOption('pipeline_mode');

        $keys = $spec->keys();
        if ($spec->op === 'incr') {
            $keys = array_map(static fn (string $key): string => "n:$key", $keys);
        }
        $this->keys = $keys;
        $this->call = $this->calls($keys, count($keys));
    }

    /**
     * The function that makes one operation: it gets a client object and the operation's
     * number and returns the reply. Chosen once, so that the loop does not choose again.
     *
     * @param list<string> $keys
     * @param int $n how many there are
     */
    abstract protected function calls(array $keys, int $n): Closure;

    /** A connection that is ready for commands, logged in if there is a password. */
    abstract protected function open(): object;

    /** Gives up a connection of open() at the end of a step. */
    abstract protected function close(object $connection): void;

    /** Why the store behind a new connection does not answer; null when it does. */
    abstract protected function refusal(object $connection): ?string;

    /**
     * Stores what get and incr need to find.
     *
     * @param list<string> $keys each key once
     * @return string|null what went wrong
     */
    abstract protected function preload(object $connection, array $keys): ?string;

    /**
     * Makes a batch of operations and returns their replies in order, or null when the
     * client gives none to check.
     *
     * @return list<mixed>|null
     */
    abstract protected function batch(object $connection, int $first, int $count): ?array;

    /** Where the store is, for messages. */
    abstract protected function whereTo(): string;

    protected function isOk(mixed $reply): bool
    {
        return $reply === true;
    }

    protected function isPong(mixed $reply): bool
    {
        return false;
    }

    /** The store's last error, for clients that return false instead of throwing; forgets it. */
    protected function storeError(object $connection): ?string
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
            $refusal = $this->refusal($connection);
        } catch (SystallyFailure $failure) {
            throw $failure;
        } catch (Throwable $error) {
            throw new SystallyFailure('connect', $this->whereTo() . ': ' . $error->getMessage());
        }
        if ($refusal !== null) {
            throw new SystallyFailure('connect', $this->whereTo() . ": $refusal");
        }
        try {
            $trouble = $this->preload($connection, array_values(array_unique($this->keys)));
        } catch (Throwable $error) {
            $trouble = $error->getMessage();
        }
        if ($trouble !== null) {
            throw new SystallyFailure('config', "storing what the operations will read: $trouble");
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
        if ($this->batched) {
            $replies = $this->batch($connection, $first, $count);
            if ($replies !== null) {
                $this->checkAll($connection, $replies, $first, $count);
            }
        } else {
            $reply = ($this->call)($connection, $first);
            if (!$this->isRight($reply, $first)) {
                $words = $this->storeError($connection);
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

    /** The key of an operation. */
    protected function key(int $i): string
    {
        return $this->keys[($this->spec->op === 'setget' ? $i >> 1 : $i) % count($this->keys)];
    }

    /** @param list<mixed> $replies */
    private function checkAll(object $connection, array $replies, int $first, int $count): void
    {
        if (count($replies) !== $count) {
            throw new SystallyOpErrors(0, ['WrongReply:a batch returned another number of replies' => $count]);
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
        $words = $this->storeError($connection);
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

    /** @param string|null $words what the store said, which stands for a reply of false */
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

/** A store behind a socket. */
abstract class SystallyServerClient extends SystallyStoreClient
{
    protected readonly SystallyServer $server;

    /** @param bool $several whether the client spreads its keys over several servers */
    public function __construct(SystallySpec $spec, array $ops, array $serializers, bool $several = false)
    {
        if (count($spec->servers) !== 1 && !$several) {
            throw new SystallyFailure('spec', 'this worker speaks to one server');
        }
        $this->server = $spec->servers[0];
        parent::__construct($spec, $ops, $serializers);
    }

    protected function whereTo(): string
    {
        $name = static fn (SystallyServer $server): string => $server->scheme === 'unix'
            ? "unix://$server->path"
            : "tcp://$server->host:$server->port";
        return implode(', ', array_map($name, $this->spec->servers));
    }
}

/** A store within this process or its file system, where there is nothing to connect to. */
abstract class SystallyLocalClient extends SystallyStoreClient
{
    public function __construct(SystallySpec $spec, array $ops, array $serializers)
    {
        if ($spec->connect !== 'once') {
            throw new SystallyFailure('spec', "connect $spec->connect: this store has no connections");
        }
        if ($spec->batch > 1) {
            throw new SystallyFailure('spec', 'batch: this worker makes one operation at a time');
        }
        parent::__construct($spec, $ops, $serializers);
    }

    protected function open(): object
    {
        return $this;
    }

    protected function close(object $connection): void
    {
    }

    protected function refusal(object $connection): ?string
    {
        return null;
    }

    protected function batch(object $connection, int $first, int $count): ?array
    {
        return null;
    }
}
