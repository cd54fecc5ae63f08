//! Files that are opened or asked about.

use std::collections::BTreeMap;

use super::super::fds::{Fd, Kind};
use super::super::{MOST_EXAMPLES, args};
use super::{Call, Class, Collector, positive};
use crate::import::{Map, text};

/// Different paths whose counts are kept.
const MOST_PATHS: usize = 512;

impl Collector {
    pub(super) fn path(&mut self, call: &Call<'_>) {
        if call.class == Class::Open
            && let (Some(fd), Some(table)) = (positive(call.ret), self.table(call.pid))
        {
            self.saw_fd(fd);
            let state = Fd {
                kind: Kind::Local,
                made_here: true,
                ..Fd::default()
            };
            self.tables.open(table, fd, state);
        }
        let Some(open) = memchr::memchr(b'"', call.args) else {
            return;
        };
        let end = args::end_of_string(call.args, open);
        let path = call.args.get(open + 1..end.saturating_sub(1)).unwrap_or(&[]);
        let path = &path[..path.len().min(256)];
        if path.is_empty() {
            return;
        }
        let missing = call.errno == Some("ENOENT");
        let files = &mut self.facts.files;
        files.calls += 1;
        files.missing += u64::from(missing);
        files.php += u64::from(path.ends_with(b".php"));
        files.xdebug += u64::from(text::contains(path, "xdebug") && !missing);
        const RESOLVER: [&[u8]; 5] = [
            b"/etc/resolv.conf",
            b"/etc/hosts",
            b"/etc/nsswitch.conf",
            b"/etc/host.conf",
            b"/etc/gai.conf",
        ];
        files.resolver_opens += u64::from(call.class == Class::Open && RESOLVER.contains(&path));
        let room = self.paths.len() < MOST_PATHS;
        match self.paths.get_mut(path) {
            Some((asked, gone)) => {
                *asked += 1;
                *gone += u64::from(missing);
            }
            None if room => {
                self.paths.insert(path.to_vec(), (1, u64::from(missing)));
            }
            None => {}
        }
    }
}

/// The paths with the highest counts, those asked for once left out.
pub(super) fn most(
    paths: &Map<Vec<u8>, (u64, u64)>,
    by: impl Fn(&(u64, u64)) -> u64,
) -> BTreeMap<String, u64> {
    let mut list: Vec<(&Vec<u8>, u64)> = paths
        .iter()
        .map(|(path, n)| (path, by(n)))
        .filter(|(_, n)| *n > 1)
        .collect();
    list.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    list.truncate(MOST_EXAMPLES);
    list.into_iter()
        .map(|(path, n)| (text::shown(path, 120), n))
        .collect()
}
