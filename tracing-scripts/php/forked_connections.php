#!/usr/bin/env php
<?php
/**
 * The experiment of an article of 2016 as its script made it: one process forks P
 * children without a barrier; each opens a connection, adds one to a counter and closes,
 * N times over. The parent waits for ONE child, sleeps three seconds and reads the
 * counter. The article took what was missing there for increments that Redis had lost.
 *
 * Here the parent goes on: it waits for the other children too and reads the counter once
 * more, so that both readings stand side by side. `forks` of the spec is P, and
 * `stop.ops` is N times P.
 *
 * Connections: "per_op" is connect() and close(), "persistent_per_op" is pconnect().
 *
 * Options:
 *   pause_ms  how long the parent sleeps before it reads; 3000 in the article
 */

declare(strict_types=1);

require __DIR__ . '/systally.php';

final class ForkedConnections
{
    /** Attempts at a reading, 5 ms apart. */
    private const TRIES = 2000;

    private readonly SystallyServer $server;
    private readonly string $key;
    private readonly int $pauseMs;

    public function __construct(private readonly SystallySpec $spec)
    {
        foreach (['redis', 'pcntl', 'posix'] as $extension) {
            if (!extension_loaded($extension)) {
                throw new SystallyFailure('config', "the extension $extension is not loaded");
            }
        }
        $spec->allowOptions(['pause_ms']);
        $spec->allowOps(['incr']);
        if ($spec->forks < 1) {
            throw new SystallyFailure('spec', 'forks: this script needs the number of its children');
        }
        if ($spec->stopOps === null) {
            throw new SystallyFailure('spec', 'stop: this script needs a number of operations');
        }
        if (!$spec->connectsPerOp()) {
            throw new SystallyFailure('spec', 'connect must be per_op or persistent_per_op');
        }
        $this->pauseMs = $spec->wholeOption('pause_ms', 3000);
        $this->server = $spec->servers[0];
        // A name apart from the keys with payloads, as all workers have it.
        $this->key = 'n:' . $spec->keys()[0];
    }

    /** Tells a server that cannot be reached before anything is forked. */
    public function check(): void
    {
        try {
            $this->counter();
        } catch (RedisException $error) {
            throw new SystallyFailure('connect', $error->getMessage());
        }
    }

    /** One round: the whole experiment. */
    public function round(): array
    {
        $before = $this->counter();
        $reports = $this->reports();
        $start = hrtime(true);
        $children = 0;
        $notForked = 0;
        for ($child = 0; $child < $this->spec->forks; $child++) {
            $pid = pcntl_fork();
            if ($pid === 0) {
                $this->child($child, $reports);
            }
            $pid > 0 ? $children++ : $notForked += $this->share($child);
        }

        // What the article did.
        $ended = $children > 0 && pcntl_wait($status) > 0 ? 1 : 0;
        usleep($this->pauseMs * 1000);
        $early = $this->counter(self::TRIES) - $before;
        $earlyNs = hrtime(true) - $start;

        // What it left out. First those that have ended by now, to know how many still ran.
        while ($ended < $children && pcntl_wait($status, WNOHANG) > 0) {
            $ended++;
        }
        $running = $children - $ended;
        while ($ended < $children && pcntl_wait($status) > 0) {
            $ended++;
        }
        $elapsed = hrtime(true) - $start;
        return $this->result($reports, $elapsed, $notForked) + [
            'counter' => [
                'expected' => $this->spec->stopOps,
                'early' => $early,
                'ended' => $this->counter(self::TRIES) - $before,
                'running' => $running,
                'early_ns' => $earlyNs,
            ],
        ];
    }

    /**
     * Where children say what they did: a file without a name that all append to. A pipe or socket holds
     * the words of some hundred children; the others would wait for the parent, which waits for them.
     *
     * @return resource
     */
    private function reports()
    {
        $path = tempnam(sys_get_temp_dir(), 'systally-');
        $reports = $path === false ? false : fopen($path, 'a+b');
        if ($reports === false) {
            throw new SystallyFailure('config', 'no file for the reports of the children in ' . sys_get_temp_dir());
        }
        unlink($path);
        return $reports;
    }

    /** The done line from what the children said; one that said nothing has done nothing. */
    private function result($reports, int $elapsed, int $notForked): array
    {
        $errors = $notForked > 0 ? ['not-forked:' . posix_strerror(pcntl_get_last_error()) => $notForked] : [];
        $done = $told = 0;
        rewind($reports);
        while (($line = fgets($reports)) !== false) {
            $report = json_decode($line, true);
            $done += $report['done'];
            $told += $report['done'];
            foreach ($report['errors'] as $key => $n) {
                $errors[$key] = ($errors[$key] ?? 0) + $n;
                $told += $n;
            }
        }
        fclose($reports);
        $silent = $this->spec->stopOps - $told - $notForked;
        if ($silent > 0) {
            $errors['child:it ended without a report'] = $silent;
        }
        return [
            'event' => 'done',
            'ops' => $done,
            'asked' => $this->spec->stopOps,
            'elapsed_ns' => $elapsed,
            'errors' => (object) $errors,
        ];
    }

    private function child(int $number, $reports): never
    {
        $done = 0;
        $errors = [];
        set_error_handler(static fn (): bool => true);
        for ($i = $this->share($number); $i > 0; $i--) {
            try {
                $redis = $this->open();
                $redis->incr($this->key);
                if ($this->spec->connect === 'per_op') {
                    $redis->close();
                }
                $done++;
            } catch (RedisException $error) {
                $key = systally_error_key($error::class, $error->getMessage(), $this->spec);
                $errors[$key] = ($errors[$key] ?? 0) + 1;
            }
        }
        fwrite($reports, json_encode(['done' => $done, 'errors' => $errors]) . "\n");
        exit(0);
    }

    /** Operations of a child: the first ones take what does not divide evenly. */
    private function share(int $child): int
    {
        $forks = $this->spec->forks;
        return intdiv($this->spec->stopOps, $forks) + ($child < $this->spec->stopOps % $forks ? 1 : 0);
    }

    /**
     * What the counter stands at, asked over a connection of its own. While the children keep the server's
     * queue full it may have to ask again.
     */
    private function counter(int $tries = 1): int
    {
        while (true) {
            try {
                $redis = $this->open(false);
                $value = (int) $redis->get($this->key);
                $redis->close();
                return $value;
            } catch (RedisException $error) {
                if (--$tries <= 0) {
                    throw $error;
                }
                usleep(5000);
            }
        }
    }

    private function open(?bool $persistently = null): Redis
    {
        $redis = new Redis();
        $persistently ??= $this->spec->connectsPersistently();
        $connect = $persistently ? $redis->pconnect(...) : $redis->connect(...);
        $server = $this->server;
        $connected = $server->scheme === 'unix' ? $connect($server->path) : $connect($server->host, $server->port);
        if (!$connected) {
            throw new RedisException('connect() returned false');
        }
        if ($server->password !== null) {
            $login = $server->user === null ? $server->password : [$server->user, $server->password];
            if ($redis->auth($login) !== true) {
                throw new RedisException($redis->getLastError() ?? 'auth() returned false');
            }
        }
        return $redis;
    }
}

/** The life of this worker: as systally_main(), without warm-up, which the article had not. */
function forked_connections_main(): never
{
    ini_set('display_errors', 'stderr');
    ini_set('zend.exception_ignore_args', '1');
    error_reporting(E_ALL & ~E_DEPRECATED);
    systally_report_fatal_errors();
    $spec = null;
    try {
        $spec = SystallySpec::read();
        $experiment = new ForkedConnections($spec);
        $experiment->check();
        $versions = ['forked-script' => phpversion('redis')] + systally_php_versions();
        systally_say(['event' => 'ready', 'protocol' => 1, 'pid' => getmypid(), 'versions' => $versions]);
        while (($line = fgets(STDIN)) !== false && trim($line) === 'go') {
            systally_say($experiment->round());
        }
        exit(0);
    } catch (Throwable $error) {
        $class = $error instanceof SystallyFailure ? $error->class : 'config';
        $message = $spec === null ? $error->getMessage() : $spec->redact($error->getMessage());
        systally_say(['event' => 'fail', 'class' => $class, 'message' => systally_one_line($message, 400)]);
        exit(3);
    }
}

forked_connections_main();
