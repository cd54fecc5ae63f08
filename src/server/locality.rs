//! Whether the process behind an address is one that this machine's `/proc` can show.
//!
//! `INFO` tells a process id, but in the server's own pid namespace: behind a forwarded port or in a
//! container it would name some other process here. So it counts only with evidence from this side.

use nix::sys::socket::{getsockopt, sockopt};

use super::link::Link;
use crate::proc::Root;

/// The server's process id here, when that is certain.
pub(super) fn pid_here(root: &Root, link: &Link, told: i32) -> Option<i32> {
    match link {
        Link::Unix(stream) => {
            // The kernel translates this id into our namespace; 0 when it has none here (unix(7)).
            let pid = getsockopt(stream, sockopt::PeerCredentials).ok()?.pid();
            (pid > 0 && id_inside(root, pid) == Some(told)).then_some(pid)
        }
        Link::Tcp(stream) => {
            let (here, there) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
            if here.ip() != there.ip() && !there.ip().is_loopback() {
                return None;
            }
            let port = there.port();
            let listeners = listeners(root, port);
            if listeners.is_empty() || id_inside(root, told) != Some(told) {
                return None;
            }
            owns(root, told, port, &listeners).then_some(told)
        }
    }
}

/// The id that a process has in the innermost of its pid namespaces: the last of `NSpid` (proc(5)).
fn id_inside(root: &Root, pid: i32) -> Option<i32> {
    let status = root.read(&format!("proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// A listening TCP socket.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    uid: u32,
    inode: u64,
}

/// Sockets that listen on a port in this network namespace.
fn listeners(root: &Root, port: u16) -> Vec<Listener> {
    ["proc/net/tcp", "proc/net/tcp6"]
        .iter()
        .filter_map(|name| root.read(name).ok())
        .flat_map(|text| {
            text.lines()
                .skip(1)
                .filter_map(|line| parse_listener(line, port))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// One line of `/proc/net/tcp`, when it is in state 0A (LISTEN) on the port.
fn parse_listener(line: &str, port: u16) -> Option<Listener> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let (_, hex) = local.rsplit_once(':')?;
    let state = fields.nth(1)?;
    if state != "0A" || u16::from_str_radix(hex, 16).ok()? != port {
        return None;
    }
    // After the state: tx_queue:rx_queue, tr:tm->when, retrnsmt, uid, timeout, inode.
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(Listener { uid, inode })
}

/// Whether a process holds one of the listeners: by its descriptors, or, where another user's cannot be
/// read, by its user and the port in its title (`redis-server 127.0.0.1:6379`).
fn owns(root: &Root, pid: i32, port: u16, listeners: &[Listener]) -> bool {
    if let Ok(entries) = std::fs::read_dir(root.path(&format!("proc/{pid}/fd"))) {
        return entries.filter_map(Result::ok).any(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let inode = target.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']'));
            inode
                .and_then(|i| i.parse().ok())
                .is_some_and(|i: u64| listeners.iter().any(|l| l.inode == i))
        });
    }
    let status = root.read(&format!("proc/{pid}/status")).unwrap_or_default();
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| {
            // Real, effective, saved, file system.
            ids.split_whitespace().nth(1)?.parse::<u32>().ok()
        });
    let title = root.read(&format!("proc/{pid}/cmdline")).unwrap_or_default();
    let titled = title
        .split(['\0', ' '])
        .any(|word| word.ends_with(&format!(":{port}")));
    titled && listeners.iter().any(|listener| Some(listener.uid) == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   105        0 4242 1 0";

    #[test]
    fn listeners_are_found_by_port_and_state() {
        assert_eq!(
            parse_listener(LINE, 6379),
            Some(Listener {
                uid: 105,
                inode: 4242
            })
        );
        assert_eq!(parse_listener(LINE, 6380), None);
        assert_eq!(parse_listener(&LINE.replace(" 0A ", " 01 "), 6379), None);
        for broken in ["", "  sl  local_address", "0: x:y z 0A", "0: a:18EB b 0A c"] {
            assert_eq!(parse_listener(broken, 6379), None);
        }
    }

    fn recorded(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::recorded(folder.path());
        (folder, root)
    }

    #[test]
    fn a_process_in_a_container_is_known_by_its_inner_id() {
        let (_folder, root) = recorded(&[("proc/4242/status", "Name:\tredis-server\nNSpid:\t4242\t1\n")]);
        assert_eq!(id_inside(&root, 4242), Some(1));
        assert_eq!(id_inside(&root, 1), None);
    }

    #[test]
    fn a_forwarder_that_listens_is_not_the_server() {
        let (folder, root) = recorded(&[
            ("proc/net/tcp", &format!("head\n{LINE}\n")),
            ("proc/7/fd/keep", ""),
            ("proc/8/status", "Uid:\t105\t105\t105\t105\n"),
            ("proc/8/cmdline", "/usr/bin/redis-server 127.0.0.1:6379\0"),
            ("proc/9/status", "Uid:\t0\t0\t0\t0\n"),
            ("proc/9/cmdline", "/usr/bin/redis-server 127.0.0.1:6379\0"),
        ]);
        let found = listeners(&root, 6379);
        assert_eq!(found.len(), 1);
        assert!(
            !owns(&root, 7, 6379, &found),
            "its descriptors hold no such socket"
        );
        std::os::unix::fs::symlink("socket:[4242]", folder.path().join("proc/7/fd/5")).unwrap();
        assert!(owns(&root, 7, 6379, &found));
        assert!(
            owns(&root, 8, 6379, &found),
            "descriptors unreadable, user and title agree"
        );
        assert!(!owns(&root, 9, 6379, &found), "another user");
    }
}
