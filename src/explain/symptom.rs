//! What a client's error text means: the one place where the words of many clients and languages become
//! a closed set.

use std::sync::LazyLock;

use regex::Regex;

use crate::tally::Errno;

/// A kind of failure as a client can see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Symptom {
    /// ECONNREFUSED.
    Refused,
    /// ENOENT.
    NoSuchFile,
    /// EACCES.
    PermissionDenied,
    /// EAGAIN.
    TryAgain,
    /// EADDRNOTAVAIL.
    NoAddress,
    /// EMFILE.
    TooManyFiles,
    /// ENFILE.
    SystemTooManyFiles,
    /// ECONNRESET.
    Reset,
    /// EPIPE.
    BrokenPipe,
    /// The other side closed.
    Closed,
    /// ETIMEDOUT, or the client's own timer.
    TimedOut,
    /// No reply in time (`read error on connection`).
    ReadError,
    /// phpredis' text for any connection that never came about.
    WentAway,
    /// The server is at `maxclients`.
    MaxClients,
    /// The server wants a password.
    NoAuth,
    /// The password or user is wrong, or not wanted.
    WrongPassword,
    /// The user may not run the command.
    NoPermission,
    /// Protected mode.
    ProtectedMode,
    /// The server is out of memory (`maxmemory`).
    OutOfMemory,
    /// The server is loading its data.
    Loading,
    /// phpredis may keep no more persistent connections.
    PoolLimit,
    /// A reply with another value than expected.
    WrongValue,
    /// A script could not fork one of its clients; the errno's words are those of a full UNIX queue.
    NotForked,
    /// Anything else.
    Other,
}

/// Texts in lower case and what they mean; the first that is found counts, so what a server says goes
/// before errno texts, and longer texts before those they contain.
const TEXTS: &[(&str, Symptom)] = &[
    ("max number of clients", Symptom::MaxClients),
    ("noauth", Symptom::NoAuth),
    ("authentication required", Symptom::NoAuth),
    ("err operation not permitted", Symptom::NoAuth),
    ("wrongpass", Symptom::WrongPassword),
    ("invalid password", Symptom::WrongPassword),
    ("invalid username-password", Symptom::WrongPassword),
    ("authentication failed", Symptom::WrongPassword),
    ("without any password configured", Symptom::WrongPassword),
    ("noperm", Symptom::NoPermission),
    ("protected mode", Symptom::ProtectedMode),
    ("oom command not allowed", Symptom::OutOfMemory),
    ("is loading the dataset", Symptom::Loading),
    ("connection limit reached", Symptom::PoolLimit),
    ("went away", Symptom::WentAway),
    ("read error on connection", Symptom::ReadError),
    ("too many open files in system", Symptom::SystemTooManyFiles),
    ("too many open files", Symptom::TooManyFiles),
    ("connection refused", Symptom::Refused),
    ("no such file or directory", Symptom::NoSuchFile),
    ("permission denied", Symptom::PermissionDenied),
    ("resource temporarily unavailable", Symptom::TryAgain),
    ("cannot assign requested address", Symptom::NoAddress),
    ("can't assign requested address", Symptom::NoAddress),
    ("connection reset by peer", Symptom::Reset),
    ("broken pipe", Symptom::BrokenPipe),
    ("timed out", Symptom::TimedOut),
    ("timeout", Symptom::TimedOut),
    ("operation now in progress", Symptom::TimedOut),
    ("unexpected end of file", Symptom::Closed),
    ("error while reading line", Symptom::Closed),
    ("connection closed", Symptom::Closed),
    ("connection lost", Symptom::Closed),
    ("connection is closed", Symptom::Closed),
    ("closed unexpectedly", Symptom::Closed),
    ("server closed the connection", Symptom::Closed),
    ("wrong value", Symptom::WrongValue),
];

/// The class of errors under which a worker that forks its clients tells those it could not.
const NOT_FORKED: &str = "not-forked:";

impl Symptom {
    /// What an error text of a client means. Names and texts go before bare numbers, which are read as
    /// Linux's.
    pub fn of(text: &str) -> Symptom {
        if text.starts_with(NOT_FORKED) {
            return Symptom::NotForked;
        }
        static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bE[A-Z]{3,14}\b").ok());
        static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"(?i)(?:os error|errno|error)[ :=]{1,2}(\d{1,3})\b|[\[(](\d{1,3})[\])]|\((\d{1,3}):")
                .ok()
        });
        if let Some(names) = NAME.as_ref() {
            let named = names
                .find_iter(text)
                .map(|found| Symptom::of_errno(found.as_str()));
            if let Some(symptom) = named.into_iter().find(|symptom| *symptom != Symptom::Other) {
                return symptom;
            }
        }
        let lower = text.to_lowercase();
        if let Some((_, symptom)) = TEXTS.iter().find(|(words, _)| lower.contains(words)) {
            return *symptom;
        }
        NUMBER
            .as_ref()
            .and_then(|numbers| {
                let groups = numbers.captures(text)?;
                let number = (1..=3).find_map(|group| groups.get(group))?;
                number.as_str().parse().ok()
            })
            .map_or(Symptom::Other, |number| Symptom::of_errno(&Errno(number).name()))
    }

    /// What an errno name means.
    pub fn of_errno(name: &str) -> Symptom {
        ERRNOS
            .iter()
            .find(|(errno, _)| *errno == name)
            .map_or(Symptom::Other, |(_, symptom)| *symptom)
    }

    /// The errno behind it, where there is exactly one.
    pub fn errno(self) -> Option<&'static str> {
        ERRNOS
            .iter()
            .find(|(_, symptom)| *symptom == self)
            .map(|(errno, _)| *errno)
    }
}

const ERRNOS: &[(&str, Symptom)] = &[
    ("ECONNREFUSED", Symptom::Refused),
    ("ENOENT", Symptom::NoSuchFile),
    ("EACCES", Symptom::PermissionDenied),
    ("EAGAIN", Symptom::TryAgain),
    ("EADDRNOTAVAIL", Symptom::NoAddress),
    ("EMFILE", Symptom::TooManyFiles),
    ("ENFILE", Symptom::SystemTooManyFiles),
    ("ECONNRESET", Symptom::Reset),
    ("EPIPE", Symptom::BrokenPipe),
    ("ETIMEDOUT", Symptom::TimedOut),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_clients_are_understood() {
        for (text, symptom) in [
            ("RedisException:Connection refused", Symptom::Refused),
            (
                "ConnectionException:Connection refused [tcp://127.0.0.1:1]",
                Symptom::Refused,
            ),
            ("IoError:Connection refused (os error 111)", Symptom::Refused),
            (
                "ConnectionError:Error 111 connecting to 127.0.0.1:1.",
                Symptom::Refused,
            ),
            ("connect ECONNREFUSED 127.0.0.1:6379", Symptom::Refused),
            (
                "RedisException:Resource temporarily unavailable",
                Symptom::TryAgain,
            ),
            ("connect EADDRNOTAVAIL 10.0.0.1:6379", Symptom::NoAddress),
            ("error 2003 (99)", Symptom::NoAddress),
            ("io:Too many open files (os error 24)", Symptom::TooManyFiles),
            (
                "accept4: Too many open files in system",
                Symptom::SystemTooManyFiles,
            ),
            ("RedisException:Redis server went away", Symptom::WentAway),
            (
                "ServerException:ERR max number of clients reached",
                Symptom::MaxClients,
            ),
            ("NOAUTH Authentication required.", Symptom::NoAuth),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                Symptom::WrongPassword,
            ),
            ("unexpected end of file", Symptom::Closed),
            ("Error while reading line from the server.", Symptom::Closed),
            ("Operation now in progress[115]", Symptom::TimedOut),
            ("Error 2 connecting to unix socket: /x.", Symptom::NoSuchFile),
            ("not-forked:Resource temporarily unavailable", Symptom::NotForked),
            ("fork: EAGAIN: Try again", Symptom::TryAgain),
            ("something new", Symptom::Other),
            ("", Symptom::Other),
        ] {
            assert_eq!(Symptom::of(text), symptom, "{text}");
        }
    }

    #[test]
    fn emfile_and_enfile_differ_by_one_word() {
        assert_ne!(
            Symptom::of("Too many open files"),
            Symptom::of("Too many open files in system")
        );
    }

    #[test]
    fn an_errno_name_wins_over_a_text() {
        assert_eq!(Symptom::of("ENOENT after timeout"), Symptom::NoSuchFile);
    }
}
