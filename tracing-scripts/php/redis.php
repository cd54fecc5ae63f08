<?php
/** What the workers for Redis clients share. */

declare(strict_types=1);

/**
 * All clients of Redis with the usual method names.
 *
 * Option:
 *   over  "one" (default): one server. "shards", "cluster": several, over which the client
 *         spreads its keys by itself.
 */
abstract class SystallyRedisClient extends SystallyServerClient
{
    /** Keys that are asked for before the window, so that every server has its connection. */
    private const TOUCHED = 200;

    protected readonly string $over;

    public function __construct(SystallySpec $spec)
    {
        $this->over = $spec->option('over', 'one', ['one', 'shards', 'cluster']);
        $ops = ['get', 'set', 'setget', 'incr'];
        if ($this->over === 'one') {
            $ops[] = 'ping';
        }
        parent::__construct($spec, $ops, ['php', 'igbinary', 'json'], $this->over !== 'one');
    }

    protected function calls(array $keys, int $n): Closure
    {
        return match ($this->spec->op) {
            'get' => fn (object $to, int $i): mixed => $to->get($keys[$i % $n]),
            'set' => fn (object $to, int $i): mixed => $to->set($keys[$i % $n], $this->encode($this->payload)),
            'setget' => fn (object $to, int $i): mixed => $i % 2 === 0
                ? $to->set($keys[($i >> 1) % $n], $this->encode($this->payload))
                : $to->get($keys[($i >> 1) % $n]),
            'incr' => fn (object $to, int $i): mixed => $to->incr($keys[$i % $n]),
            'ping' => fn (object $to, int $i): mixed => $to->ping(),
        };
    }

    protected function refusal(object $connection): ?string
    {
        if ($this->over !== 'one') {
            // PING goes to no key, and so to none of them. What is stored first tells.
            return null;
        }
        // Some refusals (too many clients, no login) come with the first command only.
        if ($this->isPong($connection->ping())) {
            return null;
        }
        return $this->storeError($connection) ?? 'it did not answer PING';
    }

    protected function preload(object $connection, array $keys): ?string
    {
        if ($this->over !== 'one') {
            return $this->preloadEach($connection, $keys);
        }
        if ($this->spec->op !== 'get') {
            return null;
        }
        // Groups of about a megabyte: few round trips, and no huge command.
        $size = max(1, min(1000, intdiv(1 << 20, max(1, $this->spec->payloadBytes))));
        foreach (array_chunk($keys, $size) as $some) {
            if (!$this->isOk($connection->mset(array_fill_keys($some, $this->encode($this->payload))))) {
                return $this->storeError($connection) ?? 'the server refused MSET';
            }
        }
        return null;
    }

    /** One by one: MSET would be of one server. */
    private function preloadEach(object $connection, array $keys): ?string
    {
        if ($this->spec->op !== 'get') {
            foreach (array_slice($keys, 0, self::TOUCHED) as $key) {
                $connection->get($key);
            }
            return null;
        }
        foreach ($keys as $key) {
            if (!$this->isOk($connection->set($key, $this->encode($this->payload)))) {
                return $this->storeError($connection) ?? 'a server refused SET';
            }
        }
        return null;
    }
}
