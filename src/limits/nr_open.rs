//! `fs.nr_open`: how far `ulimit -n` of any process may be raised. It bears on a load only when that has to
//! be raised.

use super::reading::{Reading, enough};
use super::{Limit, Load, Unit};
use crate::proc::process::{Resource, Who, rlimit};
use crate::proc::{Root, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct NrOpen;

impl Limit for NrOpen {
    fn id(&self) -> &'static str {
        "nr_open"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "fs.nr_open"
    }

    fn unit(&self) -> Unit {
        Unit::Of("open files per client")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "machine", "/proc/sys/fs/nr_open");
        let (nr_open, soft) = match (
            sysctl::integer(root, "fs.nr_open"),
            rlimit(root, Who::Me, Resource::OpenFiles),
        ) {
            (Ok(nr_open), Ok(limit)) => (nr_open, limit.soft),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let wanted = load.client_fds();
        if soft.is_none_or(|soft| wanted <= soft) {
            return reading.not_applicable("no process has to raise its limit of open files");
        }
        let target = enough(wanted, nr_open);
        reading
            .demand(wanted, format!("{wanted} descriptors per client"))
            .capacity(nr_open)
            .fix(
                format!("sysctl -w fs.nr_open={target}, before the limit itself is raised"),
                format!("fs.nr_open = {target} in /etc/sysctl.d/90-nr-open.conf"),
                "not namespaced: set it on the host",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "setrlimit EPERM: ulimit -n cannot be raised that far, not even by root".to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("ulimit -n can be raised to {nr_open}")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn it_bears_only_when_the_limit_must_be_raised() {
        let tree = Tree::defaults().with("proc/sys/fs/nr_open", "4096\n");
        let verdict = |m| {
            let load = Load {
                connections_per_process: m,
                ..Load::default()
            };
            NrOpen.check(&tree.root(), &load).verdict
        };
        assert_eq!(verdict(100), Verdict::NotApplicable);
        assert_eq!(verdict(2000), Verdict::Ok);
        assert_eq!(verdict(5000), Verdict::Fail);
    }
}
