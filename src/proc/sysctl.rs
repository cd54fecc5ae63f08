//! Kernel settings below `/proc/sys`.
//!
//! `/proc/sys/net` shows the network namespace of the reader, not of any other process.

use super::{ReadError, Root};

/// Reads a setting that is one whole number, by its dotted name (`net.core.somaxconn`).
///
/// # Errors
/// An unreadable file, or content that is not a number in 0..2^64.
pub fn integer(root: &Root, name: &str) -> Result<u64, ReadError> {
    let path = path(name);
    let text = root.read(&path)?;
    whole(text.trim()).ok_or_else(|| ReadError::content(&path, "a whole number", &text))
}

/// Reads all whole numbers of a setting (`fs.file-nr`, `net.ipv4.tcp_mem`), `count` of them at least.
///
/// # Errors
/// An unreadable file, fewer numbers, or something else among them.
pub fn integers(root: &Root, name: &str, count: usize) -> Result<Vec<u64>, ReadError> {
    let path = path(name);
    let text = root.read(&path)?;
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(whole).collect();
    match numbers {
        Some(numbers) if numbers.len() >= count => Ok(numbers),
        _ => Err(ReadError::content(&path, "whole numbers", &text)),
    }
}

/// The file of a setting.
pub fn path(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

/// Digits only: `parse` would also take a leading plus sign, which the kernel never writes.
pub(super) fn whole(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// The ports from which the kernel picks one for an outgoing connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPorts {
    /// First.
    pub low: u16,
    /// Last.
    pub high: u16,
    /// How many of them are usable: the range without `ip_local_reserved_ports`.
    pub usable: u64,
}

/// Reads `ip_local_port_range` and takes `ip_local_reserved_ports` off it.
///
/// # Errors
/// An unreadable file or nonsense in either; a missing list of reserved ports (kernels before 2.6.35,
/// some sandboxes) is an empty one.
pub fn local_ports(root: &Root) -> Result<LocalPorts, ReadError> {
    const RANGE: &str = "net.ipv4.ip_local_port_range";
    const RESERVED: &str = "net.ipv4.ip_local_reserved_ports";
    let text = root.read(&path(RANGE))?;
    let bad = || ReadError::content(&path(RANGE), "two ports", &text);
    let ports: Vec<u16> = text
        .split_whitespace()
        .map(|word| word.parse().map_err(|_| bad()))
        .collect::<Result<_, _>>()?;
    let (low, high) = match ports[..] {
        [low, high] if low <= high => (low, high),
        _ => return Err(bad()),
    };
    let mut usable = vec![true; usize::from(high - low) + 1];
    let reserved = match root.read(&path(RESERVED)) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e.into()),
    };
    for item in reserved.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) else {
            return Err(ReadError::content(&path(RESERVED), "a list of ports", &reserved));
        };
        for port in first.max(low)..=last.min(high) {
            usable[usize::from(port - low)] = false;
        }
    }
    Ok(LocalPorts {
        low,
        high,
        usable: usable.iter().filter(|usable| **usable).count() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    const RANGE: &str = "proc/sys/net/ipv4/ip_local_port_range";
    const RESERVED: &str = "proc/sys/net/ipv4/ip_local_reserved_ports";

    #[test]
    fn the_default_range_has_28232_ports() {
        let ports = local_ports(&Tree::defaults().root()).unwrap();
        assert_eq!((ports.low, ports.high, ports.usable), (32768, 60999, 28232));
    }

    #[test]
    fn reserved_ports_are_taken_off_once() {
        let tree = Tree::defaults()
            .with(RANGE, "40000 40050\n")
            .with(RESERVED, "8080,40000-40024,40010,50000-60000\n");
        assert_eq!(local_ports(&tree.root()).unwrap().usable, 26);
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_number() {
        for text in [
            "",
            "\n",
            "-1\n",
            "12a\n",
            "99999999999999999999999\n",
            "+5\n",
            "1 2\n",
        ] {
            let tree = Tree::new().with("proc/sys/net/core/somaxconn", text);
            assert!(integer(&tree.root(), "net.core.somaxconn").is_err(), "{text:?}");
        }
        for text in ["", "32768", "60999 32768", "1 2 3", "0x80 99", "70000 80000"] {
            assert!(
                local_ports(&Tree::defaults().with(RANGE, text).root()).is_err(),
                "{text:?}"
            );
        }
        for text in ["a", "1-", "1-2-3", "99999"] {
            assert!(
                local_ports(&Tree::defaults().with(RESERVED, text).root()).is_err(),
                "{text:?}"
            );
        }
        let not_text = Tree::new().with("proc/sys/fs/file-max", [0xff, 0xfe, 0x00]);
        assert!(integer(&not_text.root(), "fs.file-max").is_err());
    }

    #[test]
    fn file_max_of_systemd_is_the_largest_long() {
        let tree = Tree::new().with("proc/sys/fs/file-max", "9223372036854775807\n");
        assert_eq!(integer(&tree.root(), "fs.file-max").unwrap(), i64::MAX as u64);
    }
}
