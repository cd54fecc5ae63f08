//! `tcp_fin_timeout`: often advised against TIME_WAIT, and without any effect on it. It bounds FIN_WAIT2.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::LimitReading;

pub(super) struct FinTimeout;

impl Limit for FinTimeout {
    fn id(&self) -> &'static str {
        "fin_timeout"
    }

    fn title(&self) -> &'static str {
        "tcp_fin_timeout"
    }

    fn unit(&self) -> Unit {
        Unit::Of("seconds")
    }

    fn check(&self, root: &Root, _load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "client's netns", "/proc/sys/net/ipv4/tcp_fin_timeout");
        match sysctl::integer(root, "net.ipv4.tcp_fin_timeout") {
            Ok(value) => reading.not_applicable(format!(
                "{value} s, of FIN_WAIT2: TIME_WAIT stays 60 s whatever this is, so it frees no ports"
            )),
            Err(e) => reading.unknown(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn it_never_decides() {
        let tree = Tree::new().with("proc/sys/net/ipv4/tcp_fin_timeout", "5\n");
        assert_eq!(
            FinTimeout.check(&tree.root(), &Load::default()).verdict,
            Verdict::NotApplicable
        );
    }
}
