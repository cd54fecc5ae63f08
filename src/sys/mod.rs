//! The only unsafe code: system calls that have no safe wrapper, each behind a function that cannot be
//! called wrongly.

pub mod bpf;
pub mod lifetime;
pub mod namespace;
pub mod perf;
pub mod process;
pub mod ptrace;
pub mod spawn;
