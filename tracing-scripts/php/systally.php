<?php
/**
 * The PHP side of systally's worker contract; tracing-scripts/README.md describes it.
 *
 * A client script implements SystallyClient, or extends SystallyRedisClient when its
 * client has get(), set(), mset(), incr() and ping(), and ends with systally_main().
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

/** The payload of kind "object": igbinary and serialize() need a named class. */
final class SystallyRecord
{
    public int $id;
    public string $name;
    /** @var list<string> */
    public array $tags;
    public string $body;
}

/** Where a server is, and how to log in. */
final class SystallyServer
{
    public function __construct(
        public readonly string $scheme,
        public readonly string $host,
        public readonly int $port,
        public readonly string $path,
        public readonly ?string $user,
        public readonly ?string $password,
    ) {
    }
}

/** The checked form of the JSON object that says what to do. */
final class SystallySpec
{
    private const OPS = ['get', 'set', 'setget', 'incr', 'ping'];
    private const CONNECTS = ['once', 'per_op', 'persistent', 'persistent_per_op'];

    public readonly int $worker;
    public readonly string $op;
    public readonly string $connect;
    /** One of $stopOps and $stopSeconds is null. */
    public readonly ?int $stopOps;
    public readonly ?float $stopSeconds;
    public readonly int $batch;
    public readonly int $warmup;
    public readonly int $maxErrors;
    /** @var list<SystallyServer> */
    public readonly array $servers;
    public readonly string $keyPrefix;
    public readonly int $keyCount;
    public readonly bool $keysRandom;
    public readonly int $keySeed;
    public readonly string $payloadKind;
    public readonly int $payloadBytes;
    public readonly string $serializer;
    public readonly bool $histogram;
    /** @var array<string, mixed> */
    private readonly array $options;

    /** From the environment variable SYSTALLY_SPEC, else from the first line of stdin. */
    public static function read(): self
    {
        $text = getenv('SYSTALLY_SPEC');
        if ($text === false || $text === '') {
            $text = (string) fgets(STDIN);
        }
        $raw = json_decode($text, true);
        if (!is_array($raw) || array_is_list($raw)) {
            throw new SystallyFailure('spec', 'the spec is not a JSON object');
        }
        return new self($raw);
    }

    /** @param array<string, mixed> $raw */
    private function __construct(array $raw)
    {
        if (($raw['protocol'] ?? 1) !== 1) {
            throw new SystallyFailure('spec', 'this worker speaks protocol 1 only');
        }
        if (self::whole($raw, 'forks', 0, 0) > 0) {
            throw new SystallyFailure('spec', 'forks: this worker does not fork, start several workers instead');
        }
        $this->worker = self::whole($raw, 'worker', 0, 0);
        $this->op = self::choice($raw, 'op', 'get', self::OPS);
        $this->connect = self::choice($raw, 'connect', 'once', self::CONNECTS);
        $this->batch = self::whole($raw, 'batch', 1, 1);
        $this->warmup = self::whole($raw, 'warmup', 20, 0);
        $this->maxErrors = self::whole($raw, 'max_errors', 10000, 1);
        $this->histogram = self::choice($raw, 'latency', 'hist', ['hist', 'none']) === 'hist';
        $this->options = self::part($raw, 'options');

        // A stop given in the spec replaces the default as a whole.
        $stop = isset($raw['stop']) ? self::part($raw, 'stop') : ['ops' => 1000];
        $this->stopOps = isset($stop['ops']) ? self::whole($stop, 'ops', 0, 0) : null;
        $seconds = $stop['seconds'] ?? null;
        if ($seconds !== null && (!is_int($seconds) && !is_float($seconds) || $seconds < 0)) {
            throw new SystallyFailure('spec', 'stop.seconds must be a number from 0 on');
        }
        $this->stopSeconds = $seconds === null ? null : (float) $seconds;
        if (($this->stopOps === null) === ($this->stopSeconds === null)) {
            throw new SystallyFailure('spec', 'stop needs either "ops" or "seconds"');
        }

        $key = self::part($raw, 'key');
        $this->keyPrefix = self::text($key, 'prefix') ?? 'st:';
        $this->keyCount = self::whole($key, 'count', 1000, 1);
        $this->keysRandom = self::choice($key, 'order', 'seq', ['seq', 'random']) === 'random';
        $this->keySeed = self::whole($key, 'seed', 1, 0);

        $payload = self::part($raw, 'payload');
        $this->payloadKind = self::choice($payload, 'kind', 'string', ['string', 'array', 'object']);
        $this->payloadBytes = self::whole($payload, 'bytes', 4, 0);
        $this->serializer = self::choice($payload, 'serializer', 'none', ['none', 'php', 'igbinary', 'json']);
        if ($this->payloadKind !== 'string' && $this->serializer === 'none') {
            throw new SystallyFailure('spec', "a payload of kind $this->payloadKind needs a serializer: php, igbinary or json");
        }
        if ($this->serializer === 'igbinary' && !extension_loaded('igbinary')) {
            throw new SystallyFailure('config', 'the igbinary extension is not loaded');
        }

        $servers = self::part($raw, 'servers') ?: [['scheme' => 'tcp']];
        $this->servers = array_map(self::server(...), array_values($servers));
    }

    /**
     * The value of a client's option.
     *
     * @param list<string> $choices
     */
    public function option(string $name, string $default, array $choices): string
    {
        return self::choice($this->options, $name, $default, $choices);
    }

    /** The value of a client's yes-or-no option; null when the spec does not give it. */
    public function flag(string $name): ?bool
    {
        $value = $this->options[$name] ?? null;
        if ($value !== null && !is_bool($value)) {
            throw new SystallyFailure('spec', "the option $name must be true or false");
        }
        return $value;
    }

    public function hasOption(string $name): bool
    {
        return isset($this->options[$name]);
    }

    /**
     * A misspelt option would silently measure something else.
     *
     * @param list<string> $known
     */
    public function allowOptions(array $known): void
    {
        foreach (array_diff(array_keys($this->options), $known) as $name) {
            $known = $known === [] ? 'none' : implode(', ', $known);
            throw new SystallyFailure('spec', "unknown option $name; known: $known");
        }
    }

    /** A new connection for each step. */
    public function connectsPerOp(): bool
    {
        return $this->connect === 'per_op' || $this->connect === 'persistent_per_op';
    }

    /** Through the client's persistent connections. */
    public function connectsPersistently(): bool
    {
        return $this->connect === 'persistent' || $this->connect === 'persistent_per_op';
    }

    /** The value that is stored. */
    public function payload(): string|array|SystallyRecord
    {
        $body = str_repeat('x', $this->payloadBytes);
        if ($this->payloadKind === 'string') {
            return $body;
        }
        $fields = ['id' => 7, 'name' => 'systally', 'tags' => ['a', 'b', 'c'], 'body' => $body];
        if ($this->payloadKind === 'array') {
            return $fields;
        }
        $record = new SystallyRecord();
        foreach ($fields as $name => $value) {
            $record->$name = $value;
        }
        return $record;
    }

    /** The value that comes back: JSON turns an object into an array. */
    public function expectedPayload(): string|array|SystallyRecord
    {
        $payload = $this->payload();
        return $this->serializer === 'json' ? json_decode((string) json_encode($payload), true) : $payload;
    }

    /**
     * The keys in the order of use, which repeats after key.count keys. The random order
     * is the same in every language and another one for each worker.
     *
     * @return list<string>
     */
    public function keys(): array
    {
        $keys = [];
        $x = ($this->keySeed + $this->worker) & 0x7fffffff;
        for ($i = 0; $i < $this->keyCount; $i++) {
            $index = $i;
            if ($this->keysRandom) {
                $x = ($x * 1103515245 + 12345) & 0x7fffffff;
                $index = ($x >> 8) % $this->keyCount;
            }
            $keys[] = $this->keyPrefix . sprintf('%010d', $index);
        }
        return $keys;
    }

    /** Takes the servers' passwords out of a text that will be shown. */
    public function redact(string $text): string
    {
        foreach ($this->servers as $server) {
            if ($server->password !== null) {
                $text = str_replace($server->password, '***', $text);
            }
        }
        return $text;
    }

    /** @param mixed $raw one entry of "servers" */
    private static function server(mixed $raw): SystallyServer
    {
        if (!is_array($raw)) {
            throw new SystallyFailure('spec', 'an entry of servers is not an object');
        }
        $scheme = self::choice($raw, 'scheme', 'tcp', ['tcp', 'unix']);
        $path = self::text($raw, 'path') ?? '';
        if ($scheme === 'unix' && !str_starts_with($path, '/')) {
            throw new SystallyFailure('spec', 'a unix server needs an absolute path');
        }
        $port = self::whole($raw, 'port', 6379, 1);
        if ($port > 65535) {
            throw new SystallyFailure('spec', 'port must be at most 65535');
        }
        // An empty user or password means none.
        $user = (self::text($raw, 'user') ?? '') ?: null;
        $password = self::text($raw, 'password') ?? '';
        if ($user !== null && $password === '') {
            throw new SystallyFailure('spec', 'a server with a user needs a password');
        }
        return new SystallyServer(
            $scheme,
            self::text($raw, 'host') ?? '127.0.0.1',
            $port,
            $path,
            $user,
            $password === '' ? null : $password,
        );
    }

    private static function part(array $raw, string $name): array
    {
        $value = $raw[$name] ?? [];
        if (!is_array($value)) {
            throw new SystallyFailure('spec', "$name has the wrong type");
        }
        return $value;
    }

    private static function whole(array $raw, string $name, int $default, int $least): int
    {
        $value = $raw[$name] ?? $default;
        if (!is_int($value) || $value < $least) {
            throw new SystallyFailure('spec', "$name must be a whole number from $least on");
        }
        return $value;
    }

    private static function text(array $raw, string $name): ?string
    {
        $value = $raw[$name] ?? null;
        if ($value !== null && !is_string($value)) {
            throw new SystallyFailure('spec', "$name must be a string");
        }
        return $value;
    }

    /** @param list<string> $choices */
    private static function choice(array $raw, string $name, string $default, array $choices): string
    {
        $value = $raw[$name] ?? $default;
        if (!in_array($value, $choices, true)) {
            throw new SystallyFailure('spec', "$name must be one of " . implode(', ', $choices));
        }
        return $value;
    }
}

/** What all clients of one Redis server with the usual method names have in common. */
abstract class SystallyRedisClient implements SystallyClient
{
    protected readonly SystallyServer $server;
    /** Makes the call of an operation on a client object, or queues it on a pipeline. */
    protected readonly Closure $call;
    private readonly string|array|SystallyRecord $payload;
    private readonly string|array|SystallyRecord $expected;
    /** @var list<string> */
    private readonly array $keys;
    private readonly bool $pipelined;
    /** The connection of a client that does not connect per operation. */
    private ?object $kept = null;

    public function __construct(protected readonly SystallySpec $spec)
    {
        if (count($spec->servers) !== 1) {
            throw new SystallyFailure('spec', 'this worker speaks to one server');
        }
        $this->server = $spec->servers[0];
        $this->payload = $spec->payload();
        $this->expected = $spec->expectedPayload();
        $this->pipelined = $spec->batch > 1 || $spec->hasOption('pipeline_mode');

        $keys = $spec->keys();
        if ($spec->op === 'incr') {
            $keys = array_map(static fn (string $key): string => "n:$key", $keys);
        }
        $this->keys = $keys;

        $n = count($keys);
        $this->call = match ($spec->op) {
            'get' => fn (object $to, int $i): mixed => $to->get($keys[$i % $n]),
            'set' => fn (object $to, int $i): mixed => $to->set($keys[$i % $n], $this->encode($this->payload)),
            'setget' => fn (object $to, int $i): mixed => $i % 2 === 0
                ? $to->set($keys[($i >> 1) % $n], $this->encode($this->payload))
                : $to->get($keys[($i >> 1) % $n]),
            'incr' => fn (object $to, int $i): mixed => $to->incr($keys[$i % $n]),
            'ping' => fn (object $to, int $i): mixed => $to->ping(),
        };
    }

    /** A connection that is ready for commands, logged in if there is a password. */
    abstract protected function open(): object;

    /** Gives up a connection of open() at the end of a step. */
    abstract protected function close(object $connection): void;

    /**
     * Sends a batch and returns its replies, or null when the client gives none to check.
     *
     * @return list<mixed>|null
     */
    abstract protected function pipeline(object $connection, int $first, int $count): ?array;

    abstract protected function isOk(mixed $reply): bool;

    abstract protected function isPong(mixed $reply): bool;

    /** The server's own words about a reply that was an error, for clients that do not throw. */
    protected function serverError(object $connection): ?string
    {
        return null;
    }

    /** The form in which the client takes a value. */
    protected function encode(string|array|SystallyRecord $value): mixed
    {
        return $value;
    }

    /** The value in what the client returned. */
    protected function decode(mixed $reply): mixed
    {
        return $reply;
    }

    public function setUp(): void
    {
        try {
            $connection = $this->open();
            // Some refusals (too many clients, no login) come with the first command only.
            $reply = $connection->ping();
        } catch (SystallyFailure $failure) {
            throw $failure;
        } catch (Throwable $error) {
            throw new SystallyFailure('connect', $this->whereTo() . ': ' . $error->getMessage());
        }
        if (!$this->isPong($reply)) {
            $words = $this->serverError($connection) ?? 'it did not answer PING';
            throw new SystallyFailure('connect', $this->whereTo() . ": $words");
        }
        if ($this->spec->op === 'get') {
            $this->preload($connection);
        }
        if ($this->spec->connectsPerOp()) {
            $this->close($connection);
        } else {
            $this->kept = $connection;
        }
    }

    public function step(int $first, int $count): int
    {
        $connection = $this->kept ?? $this->open();
        if ($this->pipelined) {
            $replies = $this->pipeline($connection, $first, $count);
            if ($replies !== null) {
                $this->checkAll($connection, $replies, $first, $count);
            }
        } else {
            $reply = ($this->call)($connection, $first);
            if (!$this->isRight($reply, $first)) {
                throw new SystallyOpErrors(0, [$this->errorKey($connection, $first) => 1]);
            }
        }
        if ($this->kept === null) {
            $this->close($connection);
        }
        return $count;
    }

    public function rest(): void
    {
    }

    /** The connection that is kept between steps, if one is. */
    protected function kept(): ?object
    {
        return $this->kept;
    }

    private function whereTo(): string
    {
        $server = $this->server;
        return $server->scheme === 'unix' ? "unix://$server->path" : "tcp://$server->host:$server->port";
    }

    private function preload(object $connection): void
    {
        // Groups of about a megabyte: few round trips, and no huge command.
        $size = max(1, min(1000, intdiv(1 << 20, max(1, $this->spec->payloadBytes))));
        foreach (array_chunk(array_unique($this->keys), $size) as $keys) {
            try {
                $stored = $this->isOk($connection->mset(array_fill_keys($keys, $this->encode($this->payload))));
                $words = $stored ? '' : $this->serverError($connection) ?? 'the server refused MSET';
            } catch (Throwable $error) {
                $words = $error->getMessage();
            }
            if ($words !== '') {
                throw new SystallyFailure('config', "storing the keys to read: $words");
            }
        }
    }

    /** @param list<mixed> $replies */
    private function checkAll(object $connection, array $replies, int $first, int $count): void
    {
        if (count($replies) !== $count) {
            throw new SystallyOpErrors(0, ['WrongReply:a pipeline returned another number of replies' => $count]);
        }
        $errors = [];
        foreach ($replies as $k => $reply) {
            if (!$this->isRight($reply, $first + $k)) {
                $key = $this->errorKey($connection, $first + $k);
                $errors[$key] = ($errors[$key] ?? 0) + 1;
            }
        }
        if ($errors !== []) {
            throw new SystallyOpErrors($count - array_sum($errors), $errors);
        }
    }

    private function command(int $i): string
    {
        return $this->spec->op === 'setget' ? ($i % 2 === 0 ? 'set' : 'get') : $this->spec->op;
    }

    private function isRight(mixed $reply, int $i): bool
    {
        switch ($this->command($i)) {
            case 'get':
                $value = $this->decode($reply);
                // Two objects are identical only when they are one and the same.
                return $value instanceof SystallyRecord ? $value == $this->expected : $value === $this->expected;
            case 'set':
                return $this->isOk($reply);
            case 'incr':
                return is_int($reply) && $reply > 0;
            default:
                return $this->isPong($reply);
        }
    }

    private function errorKey(object $connection, int $i): string
    {
        $words = $this->serverError($connection);
        if ($words !== null) {
            return systally_error_key('ServerError', $words, $this->spec);
        }
        $command = strtoupper($this->command($i));
        return "WrongReply:$command returned another " . ($command === 'GET' ? 'value' : 'reply');
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
    fwrite(STDOUT, json_encode($line, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}

/** @return array<string, mixed> what in this PHP changes a client's behaviour or speed */
function systally_php_versions(): array
{
    return [
        'php' => PHP_VERSION,
        'xdebug' => phpversion('xdebug') ?: null,
        'opcache_cli' => filter_var(ini_get('opcache.enable'), FILTER_VALIDATE_BOOL)
            && filter_var(ini_get('opcache.enable_cli'), FILTER_VALIDATE_BOOL),
        'igbinary' => phpversion('igbinary') ?: null,
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
