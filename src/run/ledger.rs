//! The ledger: what the client says it did against what the server says it got.

use crate::record::{ServerOrigin, ServerView};
use crate::strategy::contract::Op;
use crate::units::{Measured, Ops};

/// What comparing the two sides says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// The server served exactly what was claimed; on a server that others use too, at least that.
    Confirmed,
    /// The sides differ.
    Differs {
        /// Operations the client claims.
        claimed: u64,
        /// Commands the server served.
        served: u64,
    },
    /// The server's side is not known, for this reason.
    Unknown(String),
}

/// Compares the claim of a row with the server's counters.
///
/// Operations that failed on the client's side may still have been served (a reply that came too late),
/// so `unsure` operations may lie on either side. Other users of an external server add to its counters,
/// so there only a deficit is a difference.
pub fn verify(
    op: Op,
    claimed: Ops,
    unsure: u64,
    view: &Measured<ServerView>,
    origin: ServerOrigin,
) -> Verification {
    let view = match view {
        Measured::Known(view) => view,
        Measured::NotMeasured(reason) => return Verification::Unknown(reason.clone()),
    };
    let served = view.served(op.commands());
    let most = match origin {
        ServerOrigin::External => u64::MAX,
        ServerOrigin::Private | ServerOrigin::BuiltIn => claimed.0.saturating_add(unsure),
    };
    if (claimed.0..=most).contains(&served) {
        Verification::Confirmed
    } else {
        Verification::Differs {
            claimed: claimed.0,
            served,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(served: u64) -> Measured<ServerView> {
        let mut view = ServerView::default();
        view.commands.insert("set".into(), served / 2);
        view.commands.insert("get".into(), served - served / 2);
        view.commands.insert("ping".into(), 1000);
        Measured::Known(view)
    }

    #[test]
    fn only_the_commands_of_the_operation_count() {
        let got = verify(Op::Setget, Ops(10), 0, &view(10), ServerOrigin::Private);
        assert_eq!(got, Verification::Confirmed);
    }

    #[test]
    fn a_queue_that_was_never_sent_differs() {
        let got = verify(Op::Setget, Ops(1_800_000), 0, &view(0), ServerOrigin::Private);
        assert_eq!(
            got,
            Verification::Differs {
                claimed: 1_800_000,
                served: 0
            }
        );
    }

    #[test]
    fn failed_operations_may_or_may_not_have_arrived() {
        for served in [10, 11, 12] {
            let got = verify(Op::Setget, Ops(10), 2, &view(served), ServerOrigin::Private);
            assert_eq!(got, Verification::Confirmed, "{served}");
        }
        assert_ne!(
            verify(Op::Setget, Ops(10), 2, &view(13), ServerOrigin::Private),
            Verification::Confirmed
        );
    }

    #[test]
    fn others_may_add_to_an_external_server_but_never_take_away() {
        assert_eq!(
            verify(Op::Set, Ops(5), 0, &view(90), ServerOrigin::External),
            Verification::Confirmed
        );
        assert!(matches!(
            verify(Op::Set, Ops(50), 0, &view(90), ServerOrigin::External),
            Verification::Differs {
                claimed: 50,
                served: 45
            }
        ));
    }

    #[test]
    fn an_unreadable_server_confirms_nothing() {
        let view = Measured::NotMeasured("INFO is denied".into());
        assert_eq!(
            verify(Op::Get, Ops(1), 0, &view, ServerOrigin::Private),
            Verification::Unknown("INFO is denied".into())
        );
    }
}
