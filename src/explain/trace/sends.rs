//! SENT_IN_PIECES, REPLY_IN_PIECES: more calls than a request or a reply needs.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, plural, traces};
use crate::record::Record;

pub(super) struct SentInPieces;
pub(super) struct ReplyInPieces;

const PIECES: &[Doc] = &[Doc {
    code: "SENT_IN_PIECES",
    means: "A request leaves in more than one send, for instance header and body apart.",
    measured: "Sends per operation, or sends before each reply in a log, of 1.5 and more; in a counted pass half of all replies preceded by two or more sends.",
    wrong_when: "Requests are larger than what one send takes.",
    todo: "Join the pieces (writev, a buffer that is large enough); without TCP_NODELAY each second piece can wait 40 ms.",
}];

impl Rule for SentInPieces {
    fn docs(&self) -> &'static [Doc] {
        PIECES
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| match trace.facts() {
                Some(_) => log(&trace).into_iter().collect::<Vec<_>>(),
                None => trace.tables().filter_map(|table| of_table(&table)).collect(),
            })
            .collect()
    }
}

fn log(trace: &Trace<'_>) -> Option<Finding> {
    let (name, peer) = trace
        .peers()
        .max_by_key(|(_, peer)| peer.turns_with_several_sends)?;
    // Several commands before a reply are a pipeline, which has its own rule.
    if peer.turns == 0
        || peer.turns_with_several_sends.saturating_mul(2) < peer.turns
        || peer.deepest_pipeline > 1
    {
        return None;
    }
    Some(
        trace
            .finding("SENT_IN_PIECES", Severity::Info)
            .with("turns_with_several_sends", peer.turns_with_several_sends)
            .with("turns", peer.turns)
            .says(format!(
                "{} of {} requests to {name} left in two or more sends, up to {}{}",
                peer.turns_with_several_sends,
                peer.turns,
                peer.most_sends_in_turn,
                if peer.largest_send == 8192 {
                    "; none is larger than 8192 bytes, which is what a PHP stream writes at once"
                } else {
                    ""
                }
            ))
            .with("largest_send_bytes", peer.largest_send)
            .try_next("one send per request: a larger buffer, writev, or TCP_CORK"),
    )
}

fn of_table(table: &Table<'_>) -> Option<Finding> {
    let ops = table.ops()?;
    let sends = ops.per_op(table.sends());
    // Without the number of operations a server that answers in batches looks the same.
    let waits = table.waits() > 0 && table.waits().saturating_mul(2) > table.good_receives();
    if !(1.5..=16.0).contains(&sends) || ops.count < 2 || !(ops.known || waits) {
        return None;
    }
    let call = table
        .rows()
        .iter()
        .filter(|row| table.send_names().contains(&row.syscall.as_str()))
        .max_by_key(|row| row.calls())?;
    Some(
        table
            .finding("SENT_IN_PIECES", Severity::Info)
            .with("sends_per_op", round2(sends))
            .says(format!(
                "{sends:.1} {} {}: header and body are sent apart",
                call.syscall,
                ops.unit()
            ))
            .try_next("one send per request: a larger buffer, writev, or TCP_CORK"),
    )
}

const REPLIES: &[Doc] = &[Doc {
    code: "REPLY_IN_PIECES",
    means: "Large replies are read in small pieces, with a system call (often two) for each.",
    measured: "Receives that filled their buffer, so that more was waiting; PHP streams read 8192 bytes at a time; the same in a counted pass.",
    wrong_when: "The last piece of a reply happens to fill the buffer.",
    todo: "A larger read buffer if the client has one; smaller values, or a client that reads in larger pieces.",
}];

impl Rule for ReplyInPieces {
    fn docs(&self) -> &'static [Doc] {
        REPLIES
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| replies(&trace)).collect()
    }
}

fn replies(trace: &Trace<'_>) -> Option<Finding> {
    let (name, peer) = trace.peers().max_by_key(|(_, peer)| peer.full_receives)?;
    if peer.full_receives < 2 || peer.full_receives.saturating_mul(2) < peer.turns {
        return None;
    }
    let each = peer.receives as f64 / peer.turns.max(1) as f64;
    Some(
        trace
            .finding("REPLY_IN_PIECES", Severity::Info)
            .with("full_receives", peer.full_receives)
            .with("buffer_bytes", peer.full_buffer)
            .with("receives_per_reply", round2(each))
            .says(format!(
                "{} from {name} filled a buffer of {} bytes: replies are read in {each:.1} pieces each",
                plural(peer.full_receives, "receive"),
                peer.full_buffer
            ))
            .try_next("smaller values, compression, or a client with a larger read buffer"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn a_large_reply_and_a_small_one() {
        let large = format!(
            "sendto(4, \"*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\nk\\r\\n\", 20, 0, NULL, 0) = 20\n{}recvfrom(4, \"xxx\"..., 8192, 0, NULL, NULL) = 700\n",
            "recvfrom(4, \"xxx\"..., 8192, 0, NULL, NULL) = 8192\n".repeat(5)
        );
        assert!(has(&large, "REPLY_IN_PIECES"));
        assert!(!has(&clean(5), "REPLY_IN_PIECES"));
        assert!(!has(&clean(5), "SENT_IN_PIECES"));
    }
}
