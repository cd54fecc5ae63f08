#!/usr/bin/env php
<?php
/**
 * php-memcache, the older extension with a protocol of its own, written in C.
 *
 * A batch is one get() of many keys; the extension has no such call to set. It has no
 * options here.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class MemcacheClient extends SystallyServerClient
{
    public function __construct(SystallySpec $spec)
    {
        if (!extension_loaded('memcache')) {
            throw new SystallyFailure('config', 'the memcache extension is not loaded');
        }
        $spec->allowOptions([]);
        if ($spec->batch > 1) {
            $spec->allowOps(['get']);
        }
        // Arrays and objects are stored by PHP's own serializer, and by no other.
        parent::__construct($spec, ['get', 'set', 'setget', 'incr'], ['php']);
        if ($this->server->password !== null) {
            throw new SystallyFailure('spec', 'this worker does not log in');
        }
    }

    public function versions(): array
    {
        return ['php-memcache' => phpversion('memcache')];
    }

    protected function calls(array $keys, int $n): Closure
    {
        $payload = $this->payload;
        return match ($this->spec->op) {
            'get' => fn (Memcache $to, int $i): mixed => $to->get($keys[$i % $n]),
            'set' => fn (Memcache $to, int $i): mixed => $to->set($keys[$i % $n], $payload),
            'setget' => fn (Memcache $to, int $i): mixed => $i % 2 === 0
                ? $to->set($keys[($i >> 1) % $n], $payload)
                : $to->get($keys[($i >> 1) % $n]),
            'incr' => fn (Memcache $to, int $i): mixed => $to->increment($keys[$i % $n]),
        };
    }

    protected function open(): object
    {
        $client = new Memcache();
        $connect = $this->spec->connectsPersistently() ? $client->pconnect(...) : $client->connect(...);
        $server = $this->server;
        $words = 'connect() returned false';
        // Why it did is only said in a warning.
        set_error_handler(static function (int $level, string $message) use (&$words): bool {
            $words = $level === E_DEPRECATED ? $words : $message;
            return true;
        });
        $connected = $server->scheme === 'unix'
            ? $connect("unix://$server->path", 0)
            : $connect($server->host, $server->port);
        restore_error_handler();
        if (!$connected) {
            throw new RuntimeException($words);
        }
        return $client;
    }

    protected function close(object $connection): void
    {
        if (!$this->spec->connectsPersistently()) {
            $connection->close();
        }
    }

    protected function refusal(object $connection): ?string
    {
        return $connection->getVersion() === false ? 'it did not answer VERSION' : null;
    }

    protected function preload(object $connection, array $keys): ?string
    {
        $value = match ($this->spec->op) {
            'get' => $this->payload,
            'incr' => 0,
            default => null,
        };
        if ($value === null) {
            return null;
        }
        foreach ($keys as $key) {
            if ($connection->set($key, $value) !== true) {
                return "SET of $key returned false";
            }
        }
        return null;
    }

    protected function batch(object $connection, int $first, int $count): ?array
    {
        $keys = array_map($this->key(...), range($first, $first + $count - 1));
        $found = $connection->get($keys);
        if (!is_array($found)) {
            throw new RuntimeException('get() of many keys returned false');
        }
        return array_map(static fn (string $key): mixed => $found[$key] ?? false, $keys);
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new MemcacheClient($spec));
