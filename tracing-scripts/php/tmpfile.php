#!/usr/bin/env php
<?php
/**
 * Files as a cache: set writes a value as PHP code into a new file under an exclusive lock
 * and renames it over the old one; get includes it.
 *
 * opcache decides what an include costs, and it is off for the command line. The worker
 * is started with -d opcache.enable_cli=1; the option "opcache" switches the rest:
 *
 *   "off"         (default) opcache is off: each include opens, reads and compiles.
 *   "on"          opcache as php.ini has it. It asks for the file's time again after
 *                 opcache.revalidate_freq seconds of the request, whose clock stands
 *                 still on the command line: a program that runs long never sees a change.
 *   "revalidate"  opcache.revalidate_freq=0: it asks each time.
 *   "trust"       opcache.validate_timestamps=0: it never asks.
 *   "fresh"       opcache is on, but the files are younger than
 *                 opcache.file_update_protection allows (2 seconds before the request
 *                 began, and later): it caches none. So it is for all that a program on
 *                 the command line has written by itself.
 *
 * The other modes set the time of the files an hour back. Without opcache, the first
 * include of a file in a round has one call more, which asks where its path leads.
 *
 * Each worker has a folder of its own in the folder for temporary files. How deep that one
 * lies shows in the counts of set: after a rename PHP asks again for each part of the path.
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class TmpFileClient extends SystallyLocalClient
{
    private const PREFIX = 'systally-tmpfile-';
    private const LOCK = '.lock';

    private readonly string $folder;
    private readonly string $opcache;
    /** The lock that says that the folder is in use. @var resource|null */
    private $lock = null;

    public function __construct(SystallySpec $spec)
    {
        $spec->allowOptions(['opcache']);
        $this->opcache = $spec->option('opcache', 'off', ['off', 'on', 'revalidate', 'trust', 'fresh']);
        $this->setOpcache();
        $this->folder = sys_get_temp_dir() . '/' . self::PREFIX . bin2hex(random_bytes(4));
        parent::__construct($spec, ['get', 'set', 'setget'], ['none']);
    }

    public function versions(): array
    {
        return ['tmpfile' => PHP_VERSION, 'opcache' => $this->opcache];
    }

    public function setUp(): void
    {
        self::removeLeftovers();
        if (!@mkdir($this->folder, 0700)) {
            $words = error_get_last()['message'] ?? 'mkdir failed';
            throw new SystallyFailure('config', "$this->folder: $words");
        }
        register_shutdown_function(fn () => self::remove($this->folder));
        $this->lock = fopen("$this->folder/" . self::LOCK, 'c') ?: null;
        if ($this->lock === null || !flock($this->lock, LOCK_EX | LOCK_NB)) {
            throw new SystallyFailure('config', "$this->folder: cannot lock it");
        }
        parent::setUp();
    }

    public function rest(): void
    {
        if ($this->caches()) {
            return;
        }
        // PHP remembers where a path leads. So that each round is like the first, it forgets
        // all but what the warm-up has looked up.
        clearstatcache(true);
        for ($i = 0; $i < $this->spec->warmup; $i++) {
            realpath("$this->folder/" . rawurlencode($this->key($i)));
        }
    }

    protected function whereTo(): string
    {
        return $this->folder;
    }

    protected function calls(array $keys, int $n): Closure
    {
        $files = array_map(fn (string $key): string => "$this->folder/" . rawurlencode($key), $keys);
        return match ($this->spec->op) {
            'get' => fn (object $to, int $i): mixed => include $files[$i % $n],
            'set' => fn (object $to, int $i): mixed => $this->write($files[$i % $n]),
            'setget' => fn (object $to, int $i): mixed => $i % 2 === 0
                ? $this->write($files[($i >> 1) % $n])
                : include $files[($i >> 1) % $n],
        };
    }

    protected function preload(object $connection, array $keys): ?string
    {
        foreach ($keys as $key) {
            $file = "$this->folder/" . rawurlencode($key);
            if (!@$this->write($file) || $this->opcache !== 'fresh' && !touch($file, time() - 3600)) {
                return error_get_last()['message'] ?? "$file cannot be written";
            }
        }
        foreach ($this->caches() ? $keys : [] as $key) {
            // Compiled now, not in the window.
            include "$this->folder/" . rawurlencode($key);
        }
        return null;
    }

    /** Whether opcache holds the files that were written before the first round. */
    private function caches(): bool
    {
        return $this->opcache !== 'off' && $this->opcache !== 'fresh';
    }

    private function write(string $file): bool
    {
        $new = $file . '.' . getmypid();
        $code = '<?php return ' . var_export($this->payload, true) . ';';
        return file_put_contents($new, $code, LOCK_EX) === strlen($code) && rename($new, $file);
    }

    private function setOpcache(): void
    {
        $on = function_exists('opcache_get_status') && opcache_get_status(false) !== false;
        if ($this->opcache !== 'off' && !$on) {
            throw new SystallyFailure('config', 'opcache is off: start PHP with -d opcache.enable_cli=1');
        }
        // A running program may switch opcache off, but not on.
        $set = match ($this->opcache) {
            'off' => $on ? ['opcache.enable' => '0'] : [],
            'on' => [],
            'revalidate' => ['opcache.validate_timestamps' => '1', 'opcache.revalidate_freq' => '0'],
            'trust' => ['opcache.validate_timestamps' => '0'],
            'fresh' => ['opcache.file_update_protection' => '2'],
        };
        foreach ($set as $name => $value) {
            if (ini_set($name, $value) === false) {
                throw new SystallyFailure('config', "PHP refuses to set $name");
            }
        }
    }

    /** What workers have left that were killed: folders of this user without a lock. */
    private static function removeLeftovers(): void
    {
        foreach (glob(sys_get_temp_dir() . '/' . self::PREFIX . '*', GLOB_ONLYDIR) ?: [] as $folder) {
            // A young one may belong to a worker that has not come to its lock yet.
            $old = @fileowner($folder) === posix_geteuid() && @filemtime($folder) < time() - 60;
            $lock = $old && !is_link($folder) ? @fopen("$folder/" . self::LOCK, 'r') : false;
            if ($lock !== false && flock($lock, LOCK_EX | LOCK_NB)) {
                self::remove($folder);
            }
        }
    }

    private static function remove(string $folder): void
    {
        foreach (scandir($folder) ?: [] as $name) {
            if ($name !== '.' && $name !== '..') {
                @unlink("$folder/$name");
            }
        }
        @rmdir($folder);
    }
}

systally_main(static fn (SystallySpec $spec): SystallyClient => new TmpFileClient($spec));
