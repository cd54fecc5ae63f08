#!/usr/bin/env php
<?php
/**
 * No client at all: the loop alone. It must make no system call per operation. If it
 * shows clock_gettime, this machine reads its clock through the kernel and every PHP
 * worker pays for it, so subtract that much.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class NoopClient implements SystallyClient
{
    public function versions(): array
    {
        return [];
    }

    public function setUp(): void
    {
    }

    public function step(int $first, int $count): int
    {
        return $count;
    }

    public function rest(): void
    {
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new NoopClient());
