//! The client programs: the registry, the worker contract, the Rust clients, and the scripts.

pub mod contract;
