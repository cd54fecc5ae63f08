//! Every read of `/proc` and sysfs, from a root that is the live system or a recorded tree.
//!
//! Nothing here decides anything: a reader turns a kernel file into a value or says, with the path, why
//! it cannot. Content that is cut short, foreign or hostile is an error, never a default.

pub mod cgroup;
pub mod counters;
mod error;
pub mod host;
pub mod net;
pub mod own;
pub mod pressure;
pub mod process;
pub mod processes;
mod root;
pub mod sockdiag;
pub mod sockets;
pub mod sysctl;
#[cfg(test)]
pub(crate) mod testing;

pub use counters::counters;
pub use error::{ReadError, measured};
pub use host::host;
pub use root::Root;
