//! Small recorded trees for tests.

use super::Root;

/// A recorded tree in a temporary folder, removed with it.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    /// An empty one.
    pub(crate) fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    /// A tree with the usual files of an idle machine with kernel defaults.
    pub(crate) fn defaults() -> Tree {
        let mut tree = Tree::new();
        for (name, text) in [
            ("proc/sys/fs/file-max", "2466186\n"),
            ("proc/sys/fs/file-nr", "1500\t0\t2466186\n"),
            ("proc/sys/fs/nr_open", "1048576\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("proc/sys/net/ipv4/ip_local_reserved_ports", "\n"),
            ("proc/sys/net/ipv4/tcp_tw_reuse", "2\n"),
            ("proc/sys/net/ipv4/tcp_tw_reuse_delay", "1000\n"),
            ("proc/sys/net/ipv4/tcp_timestamps", "1\n"),
            ("proc/sys/net/ipv4/tcp_max_tw_buckets", "131072\n"),
            (
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max processes             96365                96365                processes \n\
                 Max open files            1024                 524288               files     \n",
            ),
        ] {
            tree = tree.with(name, text);
        }
        tree
    }

    /// The tree with one more file, or with another content of it.
    pub(crate) fn with(self, name: &str, text: impl AsRef<[u8]>) -> Tree {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// The tree where so many connections are tracked, of 262,144, closed ones for two minutes.
    pub(crate) fn tracking_connections(self, count: u64) -> Tree {
        self.with("proc/sys/net/netfilter/nf_conntrack_count", format!("{count}\n"))
            .with("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
            .with(
                "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait",
                "120\n",
            )
    }

    /// The tree without a file.
    pub(crate) fn without(self, name: &str) -> Tree {
        std::fs::remove_file(self.0.path().join(name)).unwrap();
        self
    }

    /// Its root.
    pub(crate) fn root(&self) -> Root {
        Root::recorded(self.0.path())
    }
}
