<?php
/**
 * For `systally list`: says the version of a client whose detection takes more than one
 * expression, or on stderr why it cannot run, with exit status 1.
 */

declare(strict_types=1);

/** The version, or throws what is missing. */
function systally_detect(string $client): string
{
    $autoload = getenv('SYSTALLY_PREDIS') ?: '/usr/share/php/Predis/autoload.php';
    if (!is_file($autoload)) {
        throw new RuntimeException("predis is not at $autoload");
    }
    require $autoload;
    $predis = Predis\Client::VERSION;
    if (version_compare($predis, '3', '>=')) {
        throw new RuntimeException("predis $predis has no such connections; 1 and 2 have");
    }
    switch ($client) {
        case 'predis-ffi':
            require __DIR__ . '/hiredis_ffi.php';
            $hiredis = SystallyHiredis::open()
                ?? throw new RuntimeException('FFI is off or finds no libhiredis of a version known here');
            return "$predis (hiredis $hiredis->version)";
        case 'predis-phpiredis':
            $phpiredis = phpversion('phpiredis')
                ?: throw new RuntimeException('the extension phpiredis is not loaded');
            return "$predis (phpiredis $phpiredis)";
        default:
            throw new RuntimeException("unknown client $client");
    }
}

try {
    echo systally_detect($argv[1] ?? ''), "\n";
} catch (RuntimeException $reason) {
    fwrite(STDERR, $reason->getMessage() . "\n");
    exit(1);
}
