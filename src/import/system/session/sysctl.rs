//! Kernel settings: `net.core.somaxconn = 128`.

use super::super::super::text;
use super::{Session, uint, words};

impl Session {
    /// `net.core.somaxconn = 128`
    pub(super) fn sysctl_line(&mut self, line: &[u8]) -> bool {
        let fields = words(line);
        match fields.as_slice() {
            [name, "=", rest @ ..] if name.contains('.') && !rest.is_empty() => {
                let name = name.replace('/', ".");
                self.sysctl(&name, rest)
            }
            _ => false,
        }
    }

    pub(super) fn sysctl(&mut self, name: &str, fields: &[&str]) -> bool {
        let numbers: Vec<u64> = fields.iter().filter_map(|f| uint(f)).collect();
        let all_numbers = numbers.len() == fields.len();
        match (name, numbers.as_slice()) {
            ("net.ipv4.ip_local_port_range", [low, high]) if low <= high && *high <= 65_535 => {
                self.set("port_low", *low);
                self.set("port_high", *high);
                self.set("ports", high - low + 1);
            }
            ("net.ipv4.ip_local_port_range", _) => return false,
            ("fs.file-nr", [used, _, most]) => {
                self.set("file_nr", *used);
                self.set("file_max", *most);
            }
            ("fs.file-max", [most]) => self.set("file_max", *most),
            ("net.core.somaxconn", [n]) => {
                self.set("somaxconn", *n);
                self.backlog();
            }
            ("net.netfilter.nf_conntrack_count" | "net.nf_conntrack_count", [n]) => {
                self.set("conntrack_count", *n)
            }
            ("net.netfilter.nf_conntrack_max" | "net.nf_conntrack_max", [n]) => self.set("conntrack_max", *n),
            (_, [n]) if all_numbers => {
                let short = name.rsplit('.').next().unwrap_or(name);
                self.set(&text::shown(short.as_bytes(), 48), *n);
            }
            (_, [_, ..]) if all_numbers => {
                let short = name.rsplit('.').next().unwrap_or(name);
                self.set(&text::shown(short.as_bytes(), 48), numbers);
            }
            _ => return false,
        }
        true
    }
}
