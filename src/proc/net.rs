//! The network counters of a namespace: `netstat`, `snmp` and `sockstat`.
//!
//! They are read below `/proc/PID/net`, which shows the namespace of that process even when it is
//! another one, and they never start from zero: only differences mean something.

use std::collections::BTreeMap;

use super::process::Who;
use super::sysctl::whole;
use super::{ReadError, Root};

/// Reads a file of pairs of lines (`TcpExt: names…`, `TcpExt: values…`) into `TcpExt.name`. Negative
/// values (`Tcp.MaxConn` is -1) are not counters and are left out.
///
/// # Errors
/// An unreadable file; a pair whose two lines do not belong together or differ in length, as in a file
/// that was cut.
pub fn table(root: &Root, path: &str) -> Result<BTreeMap<String, u64>, ReadError> {
    let text = root.read(path)?;
    let bad = |line: &str| ReadError::content(path, "a line of names and a line of values", line);
    let mut out = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(names) = lines.next() {
        let values = lines.next().ok_or_else(|| bad(names))?;
        let (group, names) = names.split_once(':').ok_or_else(|| bad(names))?;
        let (same_group, values) = values.split_once(':').ok_or_else(|| bad(values))?;
        let names: Vec<&str> = names.split_whitespace().collect();
        let values: Vec<&str> = values.split_whitespace().collect();
        if group != same_group || names.len() != values.len() {
            return Err(bad(group));
        }
        for (name, value) in names.iter().zip(values) {
            match whole(value) {
                Some(value) => _ = out.insert(format!("{group}.{name}"), value),
                None if value.strip_prefix('-').and_then(whole).is_some() => {}
                None => return Err(bad(value)),
            }
        }
    }
    if out.is_empty() {
        return Err(bad(&text));
    }
    Ok(out)
}

/// Reads `sockstat` into `sockstat.TCP.tw` and the like.
///
/// # Errors
/// An unreadable file, or a line that is not a protocol and pairs.
pub fn sockstat(root: &Root, who: Who) -> Result<BTreeMap<String, u64>, ReadError> {
    let path = who.file("net/sockstat");
    let text = root.read(&path)?;
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let bad = || ReadError::content(&path, "a protocol and its numbers", line);
        let (protocol, pairs) = line.split_once(':').ok_or_else(bad)?;
        let words: Vec<&str> = pairs.split_whitespace().collect();
        if !words.len().is_multiple_of(2) {
            return Err(bad());
        }
        for pair in words.chunks_exact(2) {
            let value = whole(pair[1]).ok_or_else(bad)?;
            out.insert(format!("sockstat.{protocol}.{}", pair[0]), value);
        }
    }
    if out.is_empty() {
        return Err(ReadError::content(&path, "socket counts", &text));
    }
    Ok(out)
}

/// Packets that the packet filter dropped because its table of connections was full, over all CPUs: the
/// column `drop` of `/proc/net/stat/nf_conntrack`, whose numbers are hexadecimal.
///
/// # Errors
/// An unreadable file (connection tracking not loaded), or one without that column.
pub fn conntrack_drops(root: &Root) -> Result<u64, ReadError> {
    const PATH: &str = "proc/net/stat/nf_conntrack";
    let text = root.read(PATH)?;
    let mut lines = text.lines();
    let column = lines
        .next()
        .and_then(|head| head.split_whitespace().position(|name| name == "drop"))
        .ok_or_else(|| ReadError::content(PATH, "a column drop", &text))?;
    hex_column(PATH, lines, column)
}

/// Packets that did not fit into a CPU's backlog (`netdev_max_backlog`), over all CPUs: the second column
/// of `/proc/net/softnet_stat`.
///
/// # Errors
/// An unreadable or odd file.
pub fn softnet_dropped(root: &Root) -> Result<u64, ReadError> {
    const PATH: &str = "proc/net/softnet_stat";
    let text = root.read(PATH)?;
    if text.trim().is_empty() {
        return Err(ReadError::content(PATH, "a line for each CPU", &text));
    }
    hex_column(PATH, text.lines(), 1)
}

fn hex_column<'a>(path: &str, lines: impl Iterator<Item = &'a str>, column: usize) -> Result<u64, ReadError> {
    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            line.split_whitespace()
                .nth(column)
                .and_then(|word| u64::from_str_radix(word, 16).ok())
                .ok_or_else(|| ReadError::content(path, "hexadecimal numbers", line))
        })
        .try_fold(0, |sum: u64, n| Ok(sum.saturating_add(n?)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn pairs_of_lines_become_dotted_names() {
        let tree = Tree::new().with(
            "proc/self/net/snmp",
            "Tcp: RtoMin MaxConn ActiveOpens\nTcp: 200 -1 17\nUdp: InDatagrams\nUdp: 4\n",
        );
        let table = table(&tree.root(), "proc/self/net/snmp").unwrap();
        assert_eq!(table["Tcp.ActiveOpens"], 17);
        assert_eq!(table["Udp.InDatagrams"], 4);
        assert!(!table.contains_key("Tcp.MaxConn"));
    }

    #[test]
    fn a_cut_or_shuffled_table_is_an_error() {
        for text in [
            "",
            "Tcp: A B\n",
            "Tcp: A B\nTcp: 1\n",
            "Tcp: A\nUdp: 1\n",
            "Tcp: A\nTcp: x\n",
            "nothing\nhere\n",
        ] {
            let tree = Tree::new().with("proc/self/net/snmp", text);
            assert!(table(&tree.root(), "proc/self/net/snmp").is_err(), "{text:?}");
        }
    }

    #[test]
    fn sockstat_has_time_wait() {
        let tree = Tree::new().with(
            "proc/self/net/sockstat",
            "sockets: used 217\nTCP: inuse 12 orphan 0 tw 28211 alloc 14 mem 1\n",
        );
        assert_eq!(
            sockstat(&tree.root(), Who::Me).unwrap()["sockstat.TCP.tw"],
            28_211
        );
        for text in ["", "TCP: inuse\n", "TCP inuse 1\n", "TCP: inuse -1\n"] {
            let tree = Tree::new().with("proc/self/net/sockstat", text);
            assert!(sockstat(&tree.root(), Who::Me).is_err(), "{text:?}");
        }
    }

    #[test]
    fn drops_are_added_over_the_cpus() {
        let tree = Tree::new()
            .with(
                "proc/net/stat/nf_conntrack",
                "entries  searched found drop early_drop\n00000014 0 0 00000003 0\n00000014 0 0 0000000a 0\n",
            )
            .with(
                "proc/net/softnet_stat",
                "00000010 00000002 0\n00000010 00000001 0\n",
            );
        assert_eq!(conntrack_drops(&tree.root()).unwrap(), 13);
        assert_eq!(softnet_dropped(&tree.root()).unwrap(), 3);
        for text in ["", "entries found\n1 2\n", "drop\nxyz\n", "a drop\n1\n"] {
            let tree = Tree::new().with("proc/net/stat/nf_conntrack", text);
            assert!(conntrack_drops(&tree.root()).is_err(), "{text:?}");
        }
        for text in ["", "1\n", "1 -2\n"] {
            let tree = Tree::new().with("proc/net/softnet_stat", text);
            assert!(softnet_dropped(&tree.root()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_live_files_parse() {
        let root = Root::live();
        assert!(
            table(&root, "proc/self/net/netstat")
                .unwrap()
                .contains_key("TcpExt.ListenOverflows")
        );
        assert!(sockstat(&root, Who::Me).unwrap().contains_key("sockstat.TCP.tw"));
    }
}
