<?php
/**
 * Predis over hiredis without an extension: PHP's FFI calls the formatter and the parser
 * of libhiredis, and PHP's own stream carries the bytes.
 *
 * It stands in for Predis with the phpiredis extension, which no distribution packages
 * any more, and makes the system calls of its PhpiredisStreamConnection: one send, and a
 * receive without the poll before it. It needs more processor time than the extension,
 * since every call through FFI and every field of a reply costs; so its rows are labelled
 * as what they are, and its throughput says nothing about phpiredis.
 *
 * The file is loaded after Predis 1 or 2; Predis 3 has other connection classes.
 */

declare(strict_types=1);

/** The functions of libhiredis that are needed. */
final class SystallyHiredis
{
    private static ?self $opened = null;

    /**
     * Names of the library, newest first. The layout of a reply is not the same in all
     * of them, so a name that is not listed is not tried.
     */
    private const LIBRARIES = [
        'libhiredis.so.1.3.0' => self::REPLY_1,
        'libhiredis.so.1.2.0' => self::REPLY_1,
        'libhiredis.so.1.1.0' => self::REPLY_1,
        'libhiredis.so.1.0.0' => self::REPLY_1,
        'libhiredis.so.0.14' => self::REPLY_0,
    ];

    private const REPLY_0 = 'typedef struct redisReply { int type; long long integer; size_t len; char *str;
        size_t elements; struct redisReply **element; } redisReply;';

    private const REPLY_1 = 'typedef struct redisReply { int type; long long integer; double dval; size_t len;
        char *str; char vtype[4]; size_t elements; struct redisReply **element; } redisReply;';

    private const FUNCTIONS = 'typedef struct redisReader redisReader;
        redisReader *redisReaderCreate(void);
        void redisReaderFree(redisReader *reader);
        int redisReaderFeed(redisReader *reader, const char *bytes, size_t length);
        int redisReaderGetReply(redisReader *reader, redisReply **reply);
        void freeReplyObject(redisReply *reply);
        long long redisFormatCommandArgv(char **target, int count, char **words, const size_t *lengths);
        void redisFreeCommand(char *command);';

    private function __construct(public readonly FFI $ffi, public readonly string $version)
    {
    }

    /** Null when FFI is switched off or no known version of the library is installed. */
    public static function open(): ?self
    {
        if (self::$opened !== null || !extension_loaded('ffi')) {
            return self::$opened;
        }
        foreach (self::LIBRARIES as $name => $reply) {
            try {
                $ffi = FFI::cdef($reply . self::FUNCTIONS, $name);
            } catch (FFI\Exception) {
                continue;
            }
            return self::$opened = new self($ffi, substr($name, strlen('libhiredis.so.')));
        }
        return null;
    }
}

/** For `systally list`: this file alone, without Predis, only answers open(). */
if (!class_exists(Predis\Connection\StreamConnection::class)) {
    return;
}

/** Predis' stream, with hiredis in place of its own formatter and parser. */
final class SystallyHiredisConnection extends Predis\Connection\StreamConnection
{
    /** What PhpiredisStreamConnection asks for at a time. */
    private const RECEIVE = 4096;

    // The kinds of a reply, from hiredis' read.h.
    private const STRING = 1;
    private const ARRAY = 2;
    private const INTEGER = 3;
    private const NIL = 4;
    private const STATUS = 5;
    private const ERROR = 6;

    private ?FFI\CData $reader = null;

    public function writeRequest(Predis\Command\CommandInterface $command)
    {
        $words = [$command->getId()];
        foreach ($command->getArguments() as $argument) {
            $words[] = (string) $argument;
        }
        $this->write($this->format($words));
    }

    public function read()
    {
        $ffi = $this->ffi();
        $this->reader ??= $ffi->redisReaderCreate();
        $reply = $ffi->new('redisReply *');
        for (;;) {
            if ($ffi->redisReaderGetReply($this->reader, FFI::addr($reply)) !== 0) {
                $this->onProtocolError('hiredis cannot parse what the server sent');
            }
            if (!FFI::isNull($reply)) {
                break;
            }
            $bytes = stream_socket_recvfrom($this->getResource(), self::RECEIVE);
            if ($bytes === false || $bytes === '') {
                $this->onConnectionError('Error while reading bytes from the server.');
            }
            $ffi->redisReaderFeed($this->reader, $bytes, strlen($bytes));
        }
        try {
            return $this->value($reply);
        } finally {
            $ffi->freeReplyObject($reply);
        }
    }

    public function disconnect()
    {
        // With the connection goes what it left half read.
        if ($this->reader !== null) {
            $this->ffi()->redisReaderFree($this->reader);
            $this->reader = null;
        }
        parent::disconnect();
    }

    private function ffi(): FFI
    {
        return SystallyHiredis::open()->ffi;
    }

    /** @param list<string> $words a command and its arguments, which may hold any bytes */
    private function format(array $words): string
    {
        $ffi = $this->ffi();
        $count = count($words);
        $bytes = implode('', $words);
        // One more, since an array of C cannot be empty.
        $buffer = $ffi->new('char[' . strlen($bytes) + 1 . ']');
        FFI::memcpy($buffer, $bytes, strlen($bytes));
        $starts = $ffi->new("char *[$count]");
        $lengths = $ffi->new("size_t[$count]");
        $offset = 0;
        foreach ($words as $i => $word) {
            $starts[$i] = FFI::addr($buffer[$offset]);
            $lengths[$i] = strlen($word);
            $offset += strlen($word);
        }
        $command = $ffi->new('char *');
        $length = $ffi->redisFormatCommandArgv(FFI::addr($command), $count, $starts, $lengths);
        if ($length < 0) {
            $this->onProtocolError('hiredis cannot format the command');
        }
        try {
            return FFI::string($command, $length);
        } finally {
            $ffi->redisFreeCommand($command);
        }
    }

    private function value(FFI\CData $reply): mixed
    {
        switch ($reply->type) {
            case self::STRING:
                return FFI::string($reply->str, $reply->len);
            case self::STATUS:
                return Predis\Response\Status::get(FFI::string($reply->str, $reply->len));
            case self::INTEGER:
                return $reply->integer;
            case self::NIL:
                return null;
            case self::ERROR:
                return new Predis\Response\Error(FFI::string($reply->str, $reply->len));
            case self::ARRAY:
                $values = [];
                for ($i = 0; $i < $reply->elements; $i++) {
                    $values[] = $this->value($reply->element[$i]);
                }
                return $values;
            default:
                $this->onProtocolError("hiredis returned a reply of the unknown kind $reply->type");
        }
    }
}
