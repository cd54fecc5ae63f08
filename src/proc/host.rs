//! The machine in a few lines, for the head of a record.

use super::process::{Who, status};
use super::sysctl::whole;
use super::{ReadError, Root, measured};
use crate::record::Host;
use crate::units::escape;

/// Reads kernel release, CPU model, usable CPUs, memory and clocksource below `root`. What cannot be read
/// is not measured, with the reason.
pub fn host(root: &Root) -> Host {
    let line = |name: &str| -> Result<String, ReadError> {
        let text = root.read(name)?;
        match text.lines().next().map(str::trim) {
            Some(line) if !line.is_empty() => Ok(escape(line, 120)),
            _ => Err(ReadError::content(name, "a line of text", &text)),
        }
    };
    Host {
        kernel: measured(line("proc/sys/kernel/osrelease")),
        cpu: measured(cpu_model(root)),
        cores: measured(status(root, Who::Me).map(|status| status.cpus)),
        memory_bytes: measured(meminfo(root, "MemTotal")),
        clocksource: measured(line(
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
        )),
    }
}

/// A line of `/proc/meminfo` in bytes (`MemTotal`, `MemAvailable`).
///
/// # Errors
/// An unreadable file, or one without that line in kB.
pub fn meminfo(root: &Root, name: &'static str) -> Result<u64, ReadError> {
    const PATH: &str = "proc/meminfo";
    let text = root.read(PATH)?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| whole(rest.trim().strip_suffix("kB")?.trim_end())?.checked_mul(1024))
        .ok_or_else(|| ReadError::content(PATH, name, &text))
}

/// The model line differs by architecture: `model name` on x86, `Model` or `CPU part` on Arm.
fn cpu_model(root: &Root) -> Result<String, ReadError> {
    const PATH: &str = "proc/cpuinfo";
    let text = root.read(PATH)?;
    ["model name", "Model", "cpu model", "CPU part"]
        .iter()
        .find_map(|key| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == *key && !value.trim().is_empty()).then(|| escape(value.trim(), 120))
            })
        })
        .ok_or_else(|| ReadError::content(PATH, "a CPU model", &text))
}

/// Tasks on the machine, from `/proc/loadavg` (`runnable/all`).
///
/// # Errors
/// An unreadable or odd file.
pub fn tasks(root: &Root) -> Result<u64, ReadError> {
    const PATH: &str = "proc/loadavg";
    let text = root.read(PATH)?;
    text.split_whitespace()
        .nth(3)
        .and_then(|word| whole(word.split_once('/')?.1))
        .ok_or_else(|| ReadError::content(PATH, "running/all tasks", &text))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let host = host(&Root::live());
        assert!(host.kernel.known().is_some());
        assert!(host.cores.known().is_some_and(|n| *n >= 1));
        assert!(host.memory_bytes.known().is_some_and(|n| *n > 1 << 20));
        assert!(tasks(&Root::live()).unwrap() >= 1);
    }

    #[test]
    fn an_empty_recording_knows_nothing_and_says_why() {
        let host = host(&Tree::new().root());
        assert_eq!(host.cores.known(), None);
        assert!(host.kernel.reason().is_some_and(|why| why.contains("osrelease")));
    }

    #[test]
    fn damaged_files_are_not_measured() {
        let tree = Tree::new()
            .with("proc/meminfo", "MemTotal: 99999999999999999999 kB\n")
            .with("proc/cpuinfo", "model name :\n")
            .with("proc/loadavg", "0.1 0.2 0.3\n")
            .with("proc/sys/kernel/osrelease", "6.1\u{1b}[31m\n");
        let host = host(&tree.root());
        assert_eq!(host.memory_bytes.known(), None);
        assert_eq!(host.cpu.known(), None);
        assert!(tasks(&tree.root()).is_err());
        assert!(!host.kernel.known().unwrap().contains('\u{1b}'));
    }
}
