#!/usr/bin/env php
<?php
/**
 * APCu, the cache in the memory that the processes of one PHP server share.
 *
 * A program on the command line has a cache of its own, so several workers do not share
 * one and do not wait for each other's locks, as the processes of php-fpm may.
 *
 * Arrays and objects are stored as apc.serializer says; the serializer of the spec must be
 * "none" or the same one. It has no options here.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class ApcuClient extends SystallyLocalClient
{
    public function __construct(SystallySpec $spec)
    {
        if (!extension_loaded('apcu')) {
            throw new SystallyFailure('config', 'the apcu extension is not loaded');
        }
        if (!apcu_enabled()) {
            // Every call would return false, and fast.
            throw new SystallyFailure('config', 'APCu is off: start PHP with -d apc.enable_cli=1');
        }
        $spec->allowOptions([]);
        parent::__construct($spec, ['get', 'set', 'setget', 'incr'], ['none', (string) ini_get('apc.serializer')]);
    }

    public function versions(): array
    {
        return ['apcu' => phpversion('apcu')];
    }

    protected function whereTo(): string
    {
        return 'APCu';
    }

    protected function calls(array $keys, int $n): Closure
    {
        $payload = $this->payload;
        return match ($this->spec->op) {
            'get' => static fn (object $to, int $i): mixed => apcu_fetch($keys[$i % $n]),
            'set' => static fn (object $to, int $i): mixed => apcu_store($keys[$i % $n], $payload),
            'setget' => static fn (object $to, int $i): mixed => $i % 2 === 0
                ? apcu_store($keys[($i >> 1) % $n], $payload)
                : apcu_fetch($keys[($i >> 1) % $n]),
            'incr' => static fn (object $to, int $i): mixed => apcu_inc($keys[$i % $n]),
        };
    }

    protected function preload(object $connection, array $keys): ?string
    {
        if ($this->spec->op !== 'get') {
            return null;
        }
        // When it is full, APCu throws away what it holds and says nothing.
        apcu_store(array_fill_keys($keys, $this->payload));
        $kept = count(apcu_exists($keys));
        return $kept === count($keys) ? null : "APCu holds $kept of them: apc.shm_size is too small";
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new ApcuClient($spec));
