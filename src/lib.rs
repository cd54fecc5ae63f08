//! systally runs real client programs against a real server, counts the system calls each one makes per
//! completed operation, sets that beside the throughput it reaches untraced, and checks with the server
//! that the work arrived.
//!
//! Data flows one way, a folder per stage:
//!
//! ```text
//! plan ─→ run (server, strategy, engine) ─→ tally ─→ record ─→ explain ─→ render
//!                                                      ↑
//!                                                   import
//! ```
//!
//! `engine`, `sys` and `proc` know nothing of `explain` or `render`, and `render` knows nothing of
//! `engine`: between them stands the [`record`]. Only [`cmd`] writes to standard output. The only
//! unsafe code is in [`sys`].

#![deny(unsafe_code)]

pub mod cli;
pub mod cmd;
pub mod engine;
pub mod explain;
pub mod files;
mod folder;
mod foreign;
pub mod import;
pub mod limits;
pub mod place;
pub mod plan;
pub mod proc;
pub mod record;
pub mod render;
pub mod run;
pub mod server;
pub mod strategy;
pub mod sys;
pub mod tally;
pub mod units;
