<?php
/**
 * The PHP side of systally's worker contract; tracing-scripts/README.md describes it.
 *
 * A client script ends with systally_main(). Its class extends SystallyRedisClient when
 * the client has get(), set(), mset(), incr() and ping(); SystallyServerClient or
 * SystallyLocalClient for another store with keys and values; else it implements
 * SystallyClient.
 *
 * Operations, numbered from 0 in every round:
 *   get     GET of key i; the keys hold the payload before the window opens
 *   set     SET of key i to the payload
 *   setget  SET and GET by turns: i even is SET of key i/2, i odd is GET of the key
 *           just set. Each of the two is one operation; a pipeline keeps the order.
 *   incr    INCR of "n:" + key i, a name apart, since the key itself holds a payload
 *   ping    PING
 *
 * Needs PHP 8.1 or later.
 */

declare(strict_types=1);

require_once __DIR__ . '/spec.php';
require_once __DIR__ . '/store.php';
require_once __DIR__ . '/redis.php';

/** One way to use one client library. */
interface SystallyClient
{
    /** @return array<string, mixed> versions of the client library, for the ready line */
    public function versions(): array;

    /** Connects and stores what the operations will read. Throws SystallyFailure. */
    public function setUp(): void;

    /**
     * Runs the operations $first to $first + $count - 1. This is the measured part.
     * Throws when one of them fails; SystallyOpErrors says which part of a batch.
     *
     * @return int operations that succeeded
     */
    public function step(int $first, int $count): int;

    /** Called after each round, when its window has closed. */
    public function rest(): void;
}

/** Ends the worker with a fail line. */
final class SystallyFailure extends RuntimeException
{
    /** @param 'config'|'connect'|'spec' $class */
    public function __construct(public readonly string $class, string $message)
    {
        parent::__construct($message);
    }
}

/** Some operations of a step failed, the others are done. */
final class SystallyOpErrors extends RuntimeException
{
    /** @param array<string, int> $errors "class:message" => operations */
    public function __construct(public readonly int $done, public readonly array $errors)
    {
        parent::__construct((string) array_key_first($errors));
    }
}

/** Runs one round and returns the done line. */
function systally_round(SystallySpec $spec, SystallyClient $client, ?int $opsWanted, ?float $seconds): array
{
    // Any warning would be written into the window; what went wrong is seen in the replies.
    set_error_handler(static fn (): bool => true);
    $histogram = $spec->histogram ? array_fill(0, 1024, 0) : [];
    $errors = [];
    $asked = $done = $failed = 0;
    $wanted = $opsWanted ?? PHP_INT_MAX;
    $batch = $spec->batch;
    $maxErrors = $spec->maxErrors;
    $start = $now = hrtime(true);
    $end = $seconds === null ? PHP_INT_MAX : $start + (int) ($seconds * 1e9);

    while ($asked < $wanted && $now < $end && $failed < $maxErrors) {
        $count = min($batch, $wanted - $asked);
        try {
            $done += $client->step($asked, $count);
        } catch (SystallyOpErrors $some) {
            $done += $some->done;
            foreach ($some->errors as $key => $n) {
                $errors[$key] = ($errors[$key] ?? 0) + $n;
                $failed += $n;
            }
        } catch (Throwable $error) {
            $key = systally_error_key($error::class, $error->getMessage(), $spec);
            $errors[$key] = ($errors[$key] ?? 0) + $count;
            $failed += $count;
        }
        $asked += $count;
        $before = $now;
        $now = hrtime(true);
        if ($histogram !== []) {
            $histogram[systally_bucket($now - $before)]++;
        }
    }

    restore_error_handler();
    $pairs = [];
    foreach ($histogram as $bucket => $n) {
        if ($n > 0) {
            $pairs[] = [systally_bucket_start($bucket), $n];
        }
    }
    return [
        'event' => 'done',
        'ops' => $done,
        'asked' => $asked,
        'elapsed_ns' => $now - $start,
        'errors' => (object) $errors,
        'latency' => ['unit' => 'ns', 'per' => $batch > 1 ? 'batch' : 'op', 'hist' => $pairs],
    ];
}

/** The histogram's bucket of a duration: 16 buckets for each power of two. */
function systally_bucket(int $ns): int
{
    if ($ns < 16) {
        return max(0, $ns);
    }
    $topBit = strlen(decbin($ns)) - 1;
    return ($topBit - 3) * 16 + (($ns >> ($topBit - 4)) & 15);
}

/** The shortest duration of a bucket. */
function systally_bucket_start(int $bucket): int
{
    return $bucket < 16 ? $bucket : (16 + $bucket % 16) << (intdiv($bucket, 16) - 1);
}

/** PHP's fatal errors (memory used up, say) end the script where it stands: say so all the same. */
function systally_report_fatal_errors(): void
{
    register_shutdown_function(static function (): void {
        $error = error_get_last();
        if ($error !== null && ($error['type'] & (E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR)) !== 0) {
            $message = systally_one_line($error['message'], 400);
            systally_say(['event' => 'fail', 'class' => 'config', 'message' => $message]);
            exit(3);
        }
    });
}

/** "class:message", short, on one line, in valid UTF-8 and without passwords. */
function systally_error_key(string $class, string $message, ?SystallySpec $spec): string
{
    // The class alone, without its namespace: the same kind of name in every language.
    $class = substr((string) strrchr("\\$class", '\\'), 1);
    return $class . ':' . systally_one_line($spec === null ? $message : $spec->redact($message), 120);
}

function systally_one_line(string $text, int $bytes): string
{
    if (preg_match('//u', $text) !== 1) {
        $text = (string) preg_replace('/[^\x20-\x7e]/', '?', $text);
    }
    $text = substr(trim((string) preg_replace('/[\x00-\x20\x7f]+/', ' ', $text)), 0, $bytes);
    while (preg_match('//u', $text) !== 1) {
        $text = substr($text, 0, -1);
    }
    return $text;
}

/** Writes one line of the contract with one write(1): a tracer looks for its first bytes. */
function systally_say(array $line): void
{
    $flags = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE;
    fwrite(STDOUT, json_encode($line, $flags) . "\n");
}

/** The settings of php.ini that change what a client of systally does, or how fast it is. */
const SYSTALLY_INI = [
    'default_socket_timeout',
    'memory_limit',
    'opcache.enable',
    'opcache.enable_cli',
    'opcache.jit',
    'opcache.validate_timestamps',
    'opcache.revalidate_freq',
    'opcache.file_update_protection',
    'redis.pconnect.pooling_enabled',
    'redis.pconnect.echo_check_liveness',
    'redis.pconnect.connection_limit',
    'memcached.serializer',
    'memcached.compression_type',
    'memcache.protocol',
    'memcache.allow_failover',
    'memcache.compress_threshold',
    'apc.enable_cli',
    'apc.serializer',
    'apc.shm_size',
    'xdebug.mode',
];

/** @return array<string, mixed> what in this PHP changes a client's behaviour or speed */
function systally_php_versions(): array
{
    $extensions = array_map('strtolower', array_merge(get_loaded_extensions(), get_loaded_extensions(true)));
    sort($extensions);
    $ini = [];
    foreach (SYSTALLY_INI as $name) {
        $value = ini_get($name);
        if ($value !== false) {
            $ini[$name] = $value;
        }
    }
    return [
        'php' => PHP_VERSION,
        'xdebug' => phpversion('xdebug') ?: null,
        'opcache_cli' => filter_var(ini_get('opcache.enable'), FILTER_VALIDATE_BOOL)
            && filter_var(ini_get('opcache.enable_cli'), FILTER_VALIDATE_BOOL),
        'igbinary' => phpversion('igbinary') ?: null,
        'extensions' => array_values(array_unique($extensions)),
        'ini' => (object) $ini,
    ];
}

/** Runs enough operations that nothing is loaded or connected for the first time in a window. */
function systally_warm_up(SystallySpec $spec, SystallyClient $client): void
{
    if ($spec->warmup === 0) {
        return;
    }
    $round = systally_round($spec, $client, max($spec->warmup, $spec->batch), null);
    $client->rest();
    $errors = (array) $round['errors'];
    if ($round['ops'] === 0 && $errors !== []) {
        throw new SystallyFailure('config', 'every operation of the warm-up failed: ' . array_key_first($errors));
    }
}

/**
 * The life of a worker.
 *
 * @param callable(SystallySpec): SystallyClient $makeClient
 */
function systally_main(callable $makeClient): never
{
    // Under a development php.ini, PHP's own messages would mix with the lines on stdout.
    ini_set('display_errors', 'stderr');
    // Arguments in an exception's trace could show a password.
    ini_set('zend.exception_ignore_args', '1');
    error_reporting(E_ALL & ~E_DEPRECATED);
    systally_report_fatal_errors();

    $spec = null;
    try {
        $spec = SystallySpec::read();
        if ($spec->forks > 0) {
            throw new SystallyFailure('spec', 'forks: this worker does not fork, start several workers instead');
        }
        $client = $makeClient($spec);
        $client->setUp();
        systally_warm_up($spec, $client);
        gc_collect_cycles();
        $versions = $client->versions() + systally_php_versions();
        systally_say(['event' => 'ready', 'protocol' => 1, 'pid' => getmypid(), 'versions' => $versions]);
        while (($line = fgets(STDIN)) !== false) {
            switch (trim($line)) {
                case 'go':
                    systally_say(systally_round($spec, $client, $spec->stopOps, $spec->stopSeconds));
                    $client->rest();
                    break;
                case 'exit':
                    exit(0);
                case '':
                    break;
                default:
                    throw new SystallyFailure('spec', 'expected "go" or "exit" on stdin');
            }
        }
        exit(0);
    } catch (Throwable $error) {
        $class = $error instanceof SystallyFailure ? $error->class : 'config';
        $message = $error instanceof SystallyFailure ? '' : $error::class . ': ';
        $message .= $spec === null ? $error->getMessage() : $spec->redact($error->getMessage());
        systally_say(['event' => 'fail', 'class' => $class, 'message' => systally_one_line($message, 400)]);
        exit(3);
    }
}
