<?php
/** What the workers for Redis clients share. */

declare(strict_types=1);

/** All clients of one Redis server with the usual method names. */
abstract class SystallyRedisClient extends SystallyServerClient
{
    public function __construct(SystallySpec $spec)
    {
        parent::__construct($spec, ['get', 'set', 'setget', 'incr', 'ping'], ['php', 'igbinary', 'json']);
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
        // Some refusals (too many clients, no login) come with the first command only.
        if ($this->isPong($connection->ping())) {
            return null;
        }
        return $this->storeError($connection) ?? 'it did not answer PING';
    }

    protected function preload(object $connection, array $keys): ?string
    {
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
}
