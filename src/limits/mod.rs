//! Limits of the machine and the server: what a planned load demands of each, and what there is.
//!
//! One file per limit, listed in [`LIMITS`]. A limit is read from a [`crate::proc::Root`], which can be
//! the live system or a recorded tree, so everything here can be tested on recordings.

use crate::proc::Root;
use crate::record::LimitReading;

/// A planned load, in the terms of the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Client processes (N).
    pub processes: u64,
    /// Connections each holds at one time (M).
    pub connections_per_process: u64,
    /// Whether each operation makes a connection of its own.
    pub connect_per_op: bool,
    /// Over TCP; otherwise over a UNIX socket.
    pub tcp: bool,
    /// Whether the server is on this machine.
    pub same_host: bool,
    /// Expected connections per second over all processes; `None` when nobody can say.
    pub connects_per_second: Option<u64>,
    /// Process id of the server, when known.
    pub server_pid: Option<i32>,
}

/// One limit.
pub trait Limit: Sync {
    /// Stable name.
    fn id(&self) -> &'static str;
    /// Reads it below `root` and sets it against the load.
    fn check(&self, root: &Root, load: &Load) -> LimitReading;
}

/// All limits, in the order in which they are listed.
pub const LIMITS: &[&dyn Limit] = &[];
