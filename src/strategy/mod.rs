//! The client programs: the registry, the worker contract, the Rust clients, and the scripts.
//!
//! To add a client in any language: a script and an entry in `tracing-scripts/clients.toml`. To add one
//! in Rust: a file in `rust/` and a line in its list.

pub mod contract;
pub mod worker;
pub mod worker_main;

mod assignment;
mod client;
mod name;
mod program;
mod registry;
mod rust;
mod script;
mod select;
mod title;

pub use assignment::{Assignment, Strategy, Work};
pub use client::{Client, Mode, Presence};
pub use name::{NameError, StrategyName, is_name};
pub use program::program_strategies;
pub use registry::{LoadError, Registry};
pub use script::{ScriptSource, SourceError};
pub use select::SelectError;
