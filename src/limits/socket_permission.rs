//! Whether this user may connect to the server's UNIX socket.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};
use crate::strategy::contract::Endpoint;

pub(super) struct SocketPermission;

impl Limit for SocketPermission {
    fn id(&self) -> &'static str {
        "socket_permission"
    }

    fn title(&self) -> &'static str {
        "socket's permissions"
    }

    fn unit(&self) -> Unit {
        Unit::Of("clients")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server", "access(2) on the socket's path").fix(
            "CONFIG SET has no unixsocketperm: chmod 770 the socket, or run as a user of its group",
            "unixsocketperm 770 in redis.conf, and the client's user in the server's group",
            "mount the socket's folder and use the same user id on both sides",
        );
        let Some(Endpoint::Unix { path, .. }) = &load.endpoint else {
            return reading.not_applicable("no UNIX socket is planned");
        };
        if path.starts_with('@') {
            return reading.fine("an abstract socket has no permissions");
        }
        match root.may_write(path) {
            Ok(true) => reading.fine("this user may write to it"),
            Ok(false) => {
                let mut failed = reading.unknown(
                    "connect EACCES (\"Permission denied\", redis-py \"Error 13 connecting to\"): this user may not write to \
                     the socket",
                );
                failed.verdict = Verdict::Fail;
                failed
            }
            Err(e) => reading.unknown(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn what_was_recorded_decides() {
        let endpoint = Endpoint::Unix {
            path: "/run/r.sock".into(),
            user: None,
            password: None,
        };
        let check = |tree: Tree| SocketPermission.check(&tree.root(), &Load::to(&endpoint)).verdict;
        assert_eq!(check(Tree::new()), Verdict::Unknown);
        assert_eq!(
            check(Tree::new().with("systally/access/run/r.sock", "yes")),
            Verdict::Ok
        );
        assert_eq!(
            check(Tree::new().with("systally/access/run/r.sock", "no")),
            Verdict::Fail
        );
    }
}
