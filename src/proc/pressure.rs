//! How many threads run, and how long threads wait for a CPU.

use std::time::Duration;

use super::sysctl::whole;
use super::{ReadError, Root};

/// Threads that run or wait for a CPU, and all threads of the machine: the fourth field of
/// `/proc/loadavg`.
///
/// # Errors
/// An unreadable or odd file.
pub fn tasks(root: &Root) -> Result<(u64, u64), ReadError> {
    const PATH: &str = "proc/loadavg";
    let text = root.read(PATH)?;
    text.split_whitespace()
        .nth(3)
        .and_then(|word| {
            let (running, all) = word.split_once('/')?;
            Some((whole(running)?, whole(all)?))
        })
        .ok_or_else(|| ReadError::content(PATH, "running/all tasks", &text))
}

/// For how long some thread waited for a CPU since the start: `total` of the line `some` in
/// `/proc/pressure/cpu`.
///
/// # Errors
/// An unreadable file (a kernel built or started without it), or an odd one.
pub fn cpu_some(root: &Root) -> Result<Duration, ReadError> {
    const PATH: &str = "proc/pressure/cpu";
    let text = root.read(PATH)?;
    text.lines()
        .find_map(|line| {
            let rest = line.strip_prefix("some ")?;
            let total = rest
                .split_whitespace()
                .find_map(|word| word.strip_prefix("total="))?;
            whole(total)
        })
        .map(Duration::from_micros)
        .ok_or_else(|| ReadError::content(PATH, "a line some with its total", &text))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn both_files_are_read_and_damaged_ones_are_errors() {
        let tree = Tree::new()
            .with("proc/loadavg", "0.10 0.20 0.30 3/241 999\n")
            .with(
                "proc/pressure/cpu",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            );
        assert_eq!(tasks(&tree.root()).unwrap(), (3, 241));
        assert_eq!(cpu_some(&tree.root()).unwrap(), Duration::from_micros(1500));
        for text in ["", "full total=1\n", "some total=-1\n", "some avg10=0\n"] {
            let tree = Tree::new()
                .with("proc/pressure/cpu", text)
                .with("proc/loadavg", text);
            assert!(
                cpu_some(&tree.root()).is_err() && tasks(&tree.root()).is_err(),
                "{text:?}"
            );
        }
    }
}
