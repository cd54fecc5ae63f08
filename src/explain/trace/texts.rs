//! ERRNO_OF_TEXT: the errno behind a client's words, by the system they come from.

use serde_json::Value;

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, traces};
use crate::record::Record;

pub(super) struct ErrnoTexts;

const DOCS: &[Doc] = &[Doc {
    code: "ERRNO_OF_TEXT",
    means: "What a client's error text stands for: the errno and its usual cause. Bare numbers mean different things on \
            Linux, macOS and the BSDs.",
    measured: "Texts and numbers in the pasted lines.",
    wrong_when: "A client uses the text for something else (phpredis says \"went away\" for any connection that never came \
                 about).",
    todo: "Trace the failing call to be sure (strace -e trace=network).",
}];

impl Rule for ErrnoTexts {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| texts(&trace)).collect()
    }
}

fn meaning(errno: &str) -> &'static str {
    match errno {
        "EADDRNOTAVAIL" => "no free local port towards the server, or no address to connect from",
        "EMFILE" => "the process has used up its open files (ulimit -n of that process)",
        "ENFILE" => "the whole machine is at fs.file-max; ulimit -n does not help",
        "EAGAIN" => "on a connect to a UNIX socket the listen queue is full; on a read a time-out",
        "ECONNREFUSED" => "nothing listens there; on a BSD or macOS also a full queue of a UNIX socket",
        "ETIMEDOUT" => {
            "no answer: packets are dropped, or the listen queue is full (TCP waits, it does not refuse)"
        }
        "EINPROGRESS" => {
            "a connect under way; when the client gives up with this text, its connect time-out has passed"
        }
        "ECONNRESET" => "the other side threw the connection away",
        "EPIPE" => "written to a connection that the other side has closed",
        "ENOBUFS" | "ENOMEM" => "the kernel has no memory for it",
        "WENT_AWAY" => {
            "phpredis says this for any connection that never came about or broke: descriptors, ports, refusal, an unchecked \
             connect(); the errno is not in the text"
        }
        _ => "",
    }
}

fn texts(trace: &Trace<'_>) -> Option<Finding> {
    let texts = trace
        .imported
        .values
        .get("error_texts")
        .and_then(Value::as_object)?;
    let parts: Vec<String> = texts
        .iter()
        .filter(|(errno, _)| !meaning(errno).is_empty())
        .map(|(errno, n)| {
            let name = if errno == "WENT_AWAY" {
                "“went away”"
            } else {
                errno.as_str()
            };
            format!("{name} ({n} x): {}", meaning(errno))
        })
        .collect();
    if parts.is_empty() {
        return None;
    }
    let system = trace
        .word("error_numbers_of")
        .map(|system| format!("; the numbers are those of {system}"))
        .unwrap_or_default();
    Some(
        trace
            .finding("ERRNO_OF_TEXT", Severity::Info)
            .with("texts", texts.len())
            .says(format!("{}{system}", parts.join("; ")))
            .try_next("strace -f -e trace=network on the client shows the call and its errno"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{find, found, has};

    #[test]
    fn numbers_by_their_system() {
        let linux = find(
            &found("error 2003: Can't connect to MySQL server (99)\n"),
            "ERRNO_OF_TEXT",
        )
        .unwrap();
        assert!(linux.says.contains("EADDRNOTAVAIL"), "{}", linux.says);
        let bsd = find(
            &found("connect() to unix: failed (61: Connection refused)\n"),
            "ERRNO_OF_TEXT",
        )
        .unwrap();
        assert!(
            bsd.says.contains("ECONNREFUSED") && bsd.says.contains("BSD"),
            "{}",
            bsd.says
        );
        let timed = find(&found("Operation now in progress[115]\n"), "ERRNO_OF_TEXT").unwrap();
        assert!(timed.says.contains("time-out has passed"));
        let away = find(
            &found("PHP Fatal error: RedisException: Redis server went away\n"),
            "ERRNO_OF_TEXT",
        )
        .unwrap();
        assert!(away.says.contains("never came about"));
    }

    #[test]
    fn settings_have_no_text() {
        assert!(!has("net.core.somaxconn = 128\n", "ERRNO_OF_TEXT"));
    }
}
