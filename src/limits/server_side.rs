//! Whether a setting read here is the server's as well.

use super::{Load, accept_backlog};
use crate::proc::Root;
use crate::proc::process::same_netns;

/// Settings below `/proc/sys/net` are those of the reader's network namespace. They are the server's too
/// when both namespaces are the same, or when its listener can be seen from here.
///
/// # Errors
/// Why that is not so, or not known.
pub(super) fn shares_netns(root: &Root, load: &Load) -> Result<(), String> {
    if !load.same_host {
        return Err("the server is on another machine and has a setting of its own".to_owned());
    }
    match load.server_pid.map(|pid| same_netns(root, pid)) {
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => {
            Err("the server is in another network namespace and has a setting of its own".to_owned())
        }
        Some(Err(_)) | None => accept_backlog::planned_listener(root, load)
            .map(drop)
            .map_err(|_| "whether the server shares this network namespace cannot be seen".to_owned()),
    }
}
