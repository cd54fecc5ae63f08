#!/usr/bin/env php
<?php
/**
 * php-memcached, the extension over libmemcached.
 *
 * A batch is one getMulti() or setMulti(); libmemcached makes one command of the keys to
 * get, but one of each key to set.
 *
 * Options:
 *   binary    true: the binary protocol.
 *   buffered  true: OPT_BUFFER_WRITES. A set is only put into a buffer of 8 KiB and its
 *             reply is not seen, so that its operation says nothing about the server. What
 *             is left in the buffer is sent after the round.
 *   no_block, nodelay  true: OPT_NO_BLOCK, OPT_TCP_NODELAY.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class MemcachedClient extends SystallyServerClient
{
    /** Options of this worker and those of the library that they switch on. */
    private const SWITCHES = [
        'binary' => 'OPT_BINARY_PROTOCOL',
        'buffered' => 'OPT_BUFFER_WRITES',
        'no_block' => 'OPT_NO_BLOCK',
        'nodelay' => 'OPT_TCP_NODELAY',
    ];

    /** @var array<int, mixed> */
    private array $options = [];
    private readonly bool $buffered;

    public function __construct(SystallySpec $spec)
    {
        if (!extension_loaded('memcached')) {
            throw new SystallyFailure('config', 'the memcached extension is not loaded');
        }
        $spec->allowOptions(array_keys(self::SWITCHES));
        foreach (self::SWITCHES as $name => $constant) {
            if ($spec->flag($name) === true) {
                $this->options[constant("Memcached::$constant")] = true;
            }
        }
        $this->buffered = $spec->flag('buffered') ?? false;
        if ($spec->serializer !== 'none') {
            $this->options[Memcached::OPT_SERIALIZER] = $this->serializerOf($spec->serializer);
        }
        if ($spec->batch > 1) {
            $spec->allowOps(['get', 'set']);
        }
        parent::__construct($spec, ['get', 'set', 'setget', 'incr'], ['php', 'igbinary', 'json']);
        if ($this->server->password !== null) {
            throw new SystallyFailure('spec', 'this worker does not log in');
        }
    }

    public function versions(): array
    {
        return ['php-memcached' => phpversion('memcached'), 'libmemcached' => self::libraryVersion()];
    }

    public function rest(): void
    {
        $kept = $this->kept();
        if ($this->buffered && $kept instanceof Memcached) {
            $kept->flushBuffers();
        }
    }

    protected function calls(array $keys, int $n): Closure
    {
        $payload = $this->payload;
        return match ($this->spec->op) {
            'get' => fn (Memcached $to, int $i): mixed => $to->get($keys[$i % $n]),
            'set' => fn (Memcached $to, int $i): mixed => $to->set($keys[$i % $n], $payload),
            'setget' => fn (Memcached $to, int $i): mixed => $i % 2 === 0
                ? $to->set($keys[($i >> 1) % $n], $payload)
                : $to->get($keys[($i >> 1) % $n]),
            'incr' => fn (Memcached $to, int $i): mixed => $to->increment($keys[$i % $n]),
        };
    }

    protected function open(): object
    {
        $client = $this->spec->connectsPersistently() ? new Memcached('systally') : new Memcached();
        // A persistent client comes back with its servers; to add them again would double them.
        if ($client->isPersistent() && $client->getServerList() !== []) {
            return $client;
        }
        if (!$client->setOptions($this->options)) {
            throw new SystallyFailure('config', 'this libmemcached refuses: ' . $client->getResultMessage());
        }
        $server = $this->server;
        if ($server->scheme === 'unix') {
            $client->addServer($server->path, 0);
        } else {
            $client->addServer($server->host, $server->port);
        }
        return $client;
    }

    protected function close(object $connection): void
    {
        if (!$this->spec->connectsPersistently()) {
            $connection->quit();
        }
    }

    protected function refusal(object $connection): ?string
    {
        // The library connects with the first command. Its words begin with the address of an
        // object and end with a place in its source.
        if ($connection->getVersion() !== false) {
            return null;
        }
        return preg_replace('/^\(0x\w+\) |, +(?:host|socket): .*$/', '', $connection->getLastErrorMessage());
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
        // Buffered writes would not say that they failed.
        $connection->setOption(Memcached::OPT_BUFFER_WRITES, false);
        $stored = $connection->setMulti(array_fill_keys($keys, $value));
        $trouble = $stored ? null : $connection->getResultMessage();
        $connection->setOption(Memcached::OPT_BUFFER_WRITES, $this->buffered);
        return $trouble;
    }

    protected function batch(object $connection, int $first, int $count): ?array
    {
        $keys = array_map($this->key(...), range($first, $first + $count - 1));
        if ($this->spec->op === 'get') {
            $found = $connection->getMulti($keys);
            if ($found === false) {
                throw new RuntimeException($connection->getResultMessage());
            }
            return array_map(static fn (string $key): mixed => $found[$key] ?? false, $keys);
        }
        // One array holds each key once: a key that comes again begins the next one.
        $values = [];
        foreach ($keys as $key) {
            if (isset($values[$key])) {
                $this->setAll($connection, $values);
                $values = [];
            }
            $values[$key] = $this->payload;
        }
        $this->setAll($connection, $values);
        return array_fill(0, $count, true);
    }

    protected function storeError(object $connection): ?string
    {
        $fine = [Memcached::RES_SUCCESS, Memcached::RES_BUFFERED];
        return in_array($connection->getResultCode(), $fine, true) ? null : $connection->getResultMessage();
    }

    /** @param array<string, mixed> $values */
    private function setAll(Memcached $client, array $values): void
    {
        if (!$client->setMulti($values)) {
            throw new RuntimeException($client->getResultMessage());
        }
    }

    private function serializerOf(string $name): int
    {
        $have = ['igbinary' => Memcached::HAVE_IGBINARY, 'json' => Memcached::HAVE_JSON];
        if (!($have[$name] ?? true)) {
            throw new SystallyFailure('config', "this php-memcached was built without the serializer $name");
        }
        // With SERIALIZER_JSON objects come back as objects of no class, not as arrays.
        return constant('Memcached::SERIALIZER_' . ($name === 'json' ? 'JSON_ARRAY' : strtoupper($name)));
    }

    /** The library's constant tells the headers' version, and no function tells the library's. */
    private static function libraryVersion(): ?string
    {
        ob_start();
        (new ReflectionExtension('memcached'))->info();
        $found = preg_match('/library version => (\S+)/', (string) ob_get_clean(), $match);
        return $found === 1 ? $match[1] : null;
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new MemcachedClient($spec));
