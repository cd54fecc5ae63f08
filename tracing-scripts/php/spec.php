<?php
/** What a worker is told to do. */

declare(strict_types=1);

/** The payload of kind "object": igbinary, serialize() and var_export() need a named class. */
final class SystallyRecord
{
    public int $id;
    public string $name;
    /** @var list<string> */
    public array $tags;
    public string $body;

    /** @param array<string, mixed> $fields as var_export() writes them */
    public static function __set_state(array $fields): self
    {
        $record = new self();
        foreach ($fields as $name => $value) {
            $record->$name = $value;
        }
        return $record;
    }
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
    /** Processes that the script forks itself; 0 for all but replays of old scripts. */
    public readonly int $forks;
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
        $this->worker = self::whole($raw, 'worker', 0, 0);
        $this->forks = self::whole($raw, 'forks', 0, 0);
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
        if ($seconds !== null && (!is_int($seconds) && !is_float($seconds) || $seconds < 0 || $seconds > 1e8)) {
            throw new SystallyFailure('spec', 'stop.seconds must be a number from 0 to 100 million');
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

    /** The value of a client's option that is a whole number. */
    public function wholeOption(string $name, int $default): int
    {
        return self::whole($this->options, $name, $default, 0);
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

    /** @param list<string> $known */
    public function allowOps(array $known): void
    {
        if (!in_array($this->op, $known, true)) {
            throw new SystallyFailure('spec', "op $this->op: this client knows " . implode(', ', $known));
        }
    }

    /**
     * Refuses a payload that the client cannot store: one of another kind than string
     * needs a serializer, unless "none" is among the known ones.
     *
     * @param list<string> $known
     */
    public function allowSerializers(array $known): void
    {
        $fits = in_array($this->serializer, $known, true)
            || $this->payloadKind === 'string' && $this->serializer === 'none';
        if (!$fits) {
            $words = "a payload of kind $this->payloadKind with serializer $this->serializer: known here are ";
            throw new SystallyFailure('spec', $words . implode(', ', $known));
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
        return SystallyRecord::__set_state($fields);
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
