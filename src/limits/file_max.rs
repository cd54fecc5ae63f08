//! `fs.file-max`: open files of the whole machine. Usually blamed and hardly ever the cause: the demand of
//! a client load is thousands, the limit hundreds of thousands or none.

use super::reading::{Reading, amount};
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct FileMax;

impl Limit for FileMax {
    fn id(&self) -> &'static str {
        "file_max"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "fs.file-max"
    }

    fn unit(&self) -> Unit {
        Unit::Of("open files")
    }

    fn headline(&self) -> bool {
        true
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/sys/fs/file-max, /proc/sys/fs/file-nr",
        );
        let (max, used) = match (
            sysctl::integer(root, "fs.file-max"),
            sysctl::integers(root, "fs.file-nr", 3),
        ) {
            (Ok(max), Ok(file_nr)) => (max, file_nr[0]),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let n = load.processes;
        let clients = load.open();
        // With a connection per operation the server still holds the one that the client has just closed.
        let server = match (load.same_host, load.connect_per_op) {
            (false, _) => 0,
            (true, false) => clients,
            (true, true) => clients.saturating_mul(2),
        };
        let base = n.saturating_mul(load.client_base_fds);
        let demand = used
            .saturating_add(clients)
            .saturating_add(server)
            .saturating_add(base);
        let formula = format!(
            "{used} open now + {clients} client ends + {server} server ends + {n} processes x {} files",
            load.client_base_fds
        );
        let raise = demand.saturating_mul(5) / 4;
        reading
            .demand(demand, formula)
            .capacity(max)
            .fix(
                format!("sysctl -w fs.file-max={raise}"),
                format!("fs.file-max = {raise} in /etc/sysctl.d/90-file-max.conf"),
                "not namespaced: set it on the host",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "socket, accept4 and open fail with ENFILE (\"Too many open files in system\"): phpredis says \"Redis \
                     server went away\", redis-py \"Error 23 connecting to\"; a process with CAP_SYS_ADMIN is exempt"
                        .to_owned()
                }
                Verdict::Warn => format!("close to the machine's {} open files", amount(max)),
                Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {} open files: fits", amount(max))
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    fn thousand() -> Load {
        Load {
            processes: 1000,
            connect_per_op: true,
            tcp: false,
            ..Load::default()
        }
    }

    #[test]
    fn the_machine_of_2016_was_not_at_its_limit() {
        let tree = Tree::defaults()
            .with("proc/sys/fs/file-max", "100000\n")
            .with("proc/sys/fs/file-nr", "1500\t0\t100000\n");
        let reading = FileMax.check(&tree.root(), &thousand());
        assert_eq!(reading.demand.known(), Some(&(1500 + 3000 + 5000)));
        assert_eq!(reading.verdict, Verdict::Ok);
    }

    #[test]
    fn a_small_table_does_not_fit() {
        let tree = Tree::defaults().with("proc/sys/fs/file-max", "9000\n");
        let reading = FileMax.check(&tree.root(), &thousand());
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(reading.effect.contains("ENFILE"));
    }

    #[test]
    fn a_remote_server_holds_its_own_ends() {
        let load = Load {
            same_host: false,
            ..thousand()
        };
        let reading = FileMax.check(&Tree::defaults().root(), &load);
        assert_eq!(reading.demand.known(), Some(&(1500 + 1000 + 5000)));
    }
}
