//! AUTH: the server wants a password, or another one.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, Seen};
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct Auth;

const DOCS: &[Doc] = &[Doc {
    code: "AUTH",
    means: "The server refuses commands without the right user and password, or this user may not run them.",
    measured: "A reply that begins with NOAUTH, WRONGPASS or NOPERM, in the client's words.",
    wrong_when: "The client puts the words of another error in its message.",
    todo: "Give the password with -a (or in the URI, or by REDISCLI_AUTH), and the user with --user; for NOPERM \
           look at ACL GETUSER.",
}];

impl Rule for Auth {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let mut symptoms = row.symptoms();
    let mut take = |symptom, says: &str, try_next: &str| -> Option<(Seen, String, String)> {
        Some((symptoms.remove(&symptom)?, says.to_owned(), try_next.to_owned()))
    };
    let (seen, says, try_next) = take(
        Symptom::NoAuth,
        "the server wants a password and the client gave none",
        "give it with -a PASSWORD, or in the URI (-u redis://:PASSWORD@host)",
    )
    .or_else(|| {
        take(
            Symptom::WrongPassword,
            "the server does not take this user and password",
            "check requirepass or the ACL on the server; a server without a password refuses one as well",
        )
    })
    .or_else(|| {
        take(
            Symptom::NoPermission,
            "the user may not run this command",
            "ACL GETUSER on the server shows what is allowed; the run needs its operation, and INFO for the ledger",
        )
    })?;
    Some(
        Finding::about(row, "AUTH", Severity::Error)
            .with("failed", seen.count)
            .with("server_says", seen.text)
            .says(says)
            .try_next(try_next),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, failed};

    #[test]
    fn the_three_refusals() {
        for text in [
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to run the 'get' command",
        ] {
            assert_eq!(
                codes(&failed("phpredis/persistent/tcp", "connect", text)),
                ["AUTH"],
                "{text}"
            );
        }
    }

    #[test]
    fn a_socket_without_rights_is_not_a_password() {
        let record = failed("phpredis/persistent/unix", "connect", "Permission denied");
        assert_eq!(codes(&record), ["SOCKET_PERM"]);
    }
}
