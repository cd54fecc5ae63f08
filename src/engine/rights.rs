//! What this process may do, as far as engines that count in the kernel depend on it.

use crate::proc::Root;

/// A capability, by its bit (`include/uapi/linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Capability {
    /// CAP_SYS_ADMIN, which includes the two below.
    Admin = 21,
    /// CAP_PERFMON, Linux 5.8.
    Perfmon = 38,
    /// CAP_BPF, Linux 5.8.
    Bpf = 39,
}

/// The rights, and what may stand in their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rights {
    effective: u64,
    /// A seccomp filter is in force, as in a container.
    pub(super) filtered: bool,
    /// In a user namespace of its own, where capabilities do not reach tracing.
    pub(super) in_user_namespace: bool,
    /// Kernel lockdown: `integrity` or `confidentiality`; `None` when it is off or not built in.
    pub(super) lockdown: Option<String>,
}

impl Rights {
    /// Reads them.
    pub(super) fn read(root: &Root) -> Rights {
        let status = root.read("proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
                .unwrap_or_default()
        };
        let map = root.read("proc/self/uid_map").unwrap_or_default();
        let lockdown = root.read("sys/kernel/security/lockdown").unwrap_or_default();
        Rights {
            effective: u64::from_str_radix(field("CapEff:"), 16).unwrap_or(0),
            filtered: field("Seccomp:") == "2",
            // The initial namespace maps all 32-bit ids to themselves.
            in_user_namespace: !map.is_empty()
                && map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"],
            lockdown: chosen(&lockdown)
                .filter(|mode| *mode != "none")
                .map(str::to_owned),
        }
    }

    /// Whether a capability is in force, by itself or by CAP_SYS_ADMIN.
    pub(super) fn has(&self, capability: Capability) -> bool {
        let bit = |capability: Capability| self.effective >> capability as u8 & 1 == 1;
        bit(capability) || bit(Capability::Admin)
    }
}

/// The word in brackets of a kernel file that lists choices (`none [integrity] confidentiality`).
fn chosen(list: &str) -> Option<&str> {
    list.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(files: &[(&str, &str)]) -> Rights {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Rights::read(&Root::recorded(folder.path()))
    }

    #[test]
    fn capabilities_are_bits_and_admin_has_them_all() {
        let status = |mask: &str| rights(&[("proc/self/status", &format!("Seccomp:\t0\nCapEff:\t{mask}\n"))]);
        let bpf = status("0000008000000000");
        assert!(bpf.has(Capability::Bpf) && !bpf.has(Capability::Perfmon) && !bpf.filtered);
        assert!(status("0000000000200000").has(Capability::Perfmon));
        assert!(!status("0000000000000000").has(Capability::Bpf));
        assert!(!rights(&[]).has(Capability::Bpf));
    }

    #[test]
    fn a_container_and_a_locked_kernel_are_seen() {
        let found = rights(&[
            ("proc/self/status", "Seccomp:\t2\n"),
            ("proc/self/uid_map", "         0     100000      65536\n"),
            (
                "sys/kernel/security/lockdown",
                "none integrity [confidentiality]\n",
            ),
        ]);
        assert!(found.filtered && found.in_user_namespace);
        assert_eq!(found.lockdown.as_deref(), Some("confidentiality"));
        let host = rights(&[
            ("proc/self/uid_map", "         0          0 4294967295\n"),
            (
                "sys/kernel/security/lockdown",
                "[none] integrity confidentiality\n",
            ),
        ]);
        assert!(!host.in_user_namespace);
        assert_eq!(host.lockdown, None);
    }
}
