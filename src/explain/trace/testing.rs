//! Texts as records, for the tests of these rules.

use crate::explain::{Finding, explain};
use crate::import::{import, into_record};
use crate::record::Record;
use crate::units::Ops;

/// The record of a foreign text.
pub(in crate::explain) fn record(text: &str, ops: Option<u64>) -> Record {
    let imported = import(Box::new(std::io::Cursor::new(text.to_owned())), None)
        .unwrap_or_else(|e| panic!("{e}: {text}"));
    into_record(vec![("test".to_owned(), imported)], ops.map(Ops))
}

/// What is found in a foreign text.
pub(in crate::explain) fn found(text: &str) -> Vec<Finding> {
    explain(&record(text, None))
}

/// The same with known operations.
pub(in crate::explain) fn found_for(text: &str, ops: u64) -> Vec<Finding> {
    explain(&record(text, Some(ops)))
}

/// The finding of a code, if it is there.
pub(in crate::explain) fn find(findings: &[Finding], code: &str) -> Option<Finding> {
    findings.iter().find(|finding| finding.code == code).cloned()
}

/// Whether a code was found.
pub(in crate::explain) fn has(text: &str, code: &str) -> bool {
    find(&found(text), code).is_some()
}

/// A clean GET over a kept connection, `n` times, with times.
pub(in crate::explain) fn clean(n: u32) -> String {
    let mut text = String::from(
        "10:00:00.000000 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 4 <0.000010>\n\
         10:00:00.000020 connect(4, {sa_family=AF_INET, sin_port=htons(6379), sin_addr=inet_addr(\"127.0.0.1\")}, 16) = 0 <0.000050>\n\
         10:00:00.000080 setsockopt(4, SOL_TCP, TCP_NODELAY, [1], 4) = 0 <0.000005>\n",
    );
    for i in 0..n {
        let at = 100 + i * 200;
        text.push_str(&format!(
            "10:00:00.{:06} sendto(4, \"*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\nk\\r\\n\", 20, MSG_NOSIGNAL, NULL, 0) = 20 <0.000020>\n\
             10:00:00.{:06} recvfrom(4, \"$1\\r\\nv\\r\\n\", 8192, 0, NULL, NULL) = 7 <0.000050>\n",
            at,
            at + 30
        ));
    }
    text
}
