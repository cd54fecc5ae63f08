//! Writing replies in RESP2 or RESP3.

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Protocol {
    /// RESP2, the one a connection begins with.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// The number that `HELLO` and `CLIENT LIST` show.
    pub(super) fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Appends replies to a connection's output. What RESP2 has no type for is written as it defines: maps and
/// sets as arrays, verbatim text as a bulk string.
pub(super) struct Replies<'a> {
    out: &'a mut Vec<u8>,
    /// The version in which the next reply is written.
    pub(super) protocol: Protocol,
}

impl<'a> Replies<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Replies<'a> {
        Replies { out, protocol }
    }

    /// Bytes that wait in the output.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was written since the output had this length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// `+text`; the text must hold no line break.
    pub(super) fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// `-text`, line breaks made spaces as Redis does.
    pub(super) fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        self.out.extend(
            text.iter()
                .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }),
        );
        self.end_line();
    }

    /// `:n`.
    pub(super) fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// `$n` and the bytes.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', length(bytes.len()));
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    /// No value.
    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// No array.
    pub(super) fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.null(),
        }
    }

    /// Head of an array; its items follow.
    pub(super) fn array(&mut self, items: usize) {
        self.header(b'*', length(items));
    }

    /// Head of a map; keys and values follow by turns.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', length(pairs.saturating_mul(2))),
            Protocol::Resp3 => self.header(b'%', length(pairs)),
        }
    }

    /// Head of a set; its members follow.
    pub(super) fn set(&mut self, members: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', length(members)),
            Protocol::Resp3 => self.header(b'~', length(members)),
        }
    }

    /// Text for people.
    pub(super) fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', length(text.len() + 4));
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.end_line();
            }
        }
    }

    fn header(&mut self, kind: u8, value: i64) {
        self.out.push(kind);
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = value.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            self.out.push(b'-');
        }
        self.out.extend_from_slice(&digits[at..]);
        self.end_line();
    }

    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

fn length(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Replies<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Replies::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_versions() {
        let all = |r: &mut Replies<'_>| {
            r.map(1);
            r.bulk(b"a\r\n");
            r.null();
            r.set(0);
            r.verbatim("t");
            r.integer(-120);
            r.error(b"ERR a\r\nb");
        };
        assert_eq!(
            written(Protocol::Resp2, all),
            "*2\r\n$3\r\na\r\n\r\n$-1\r\n*0\r\n$1\r\nt\r\n:-120\r\n-ERR a  b\r\n"
        );
        assert_eq!(
            written(Protocol::Resp3, all),
            "%1\r\n$3\r\na\r\n\r\n_\r\n~0\r\n=5\r\ntxt:t\r\n:-120\r\n-ERR a  b\r\n"
        );
    }

    #[test]
    fn every_integer_reads_back() {
        for value in [0, 9, 10, -1, i64::MAX, i64::MIN] {
            assert_eq!(
                written(Protocol::Resp2, |r| r.integer(value)),
                format!(":{value}\r\n")
            );
        }
    }
}
