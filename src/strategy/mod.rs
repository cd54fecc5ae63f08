//! The client programs: the registry, the worker contract, the Rust clients, and the scripts.

pub mod contract;
pub mod worker_main;

mod assignment;
mod client;
mod name;
mod rust;

pub use assignment::{Assignment, Strategy, Work};
pub use client::{Client, Mode, Presence};
pub use name::{NameError, StrategyName, is_name};
