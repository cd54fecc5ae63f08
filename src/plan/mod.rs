//! What to run: the rows of the matrix, the work of each, and the order of the rounds.

pub mod order;
pub mod rows;
pub mod scenario;
mod trace_classes;
pub mod trace_set;

/// Timed rounds of a strategy when nothing says how many.
pub const DEFAULT_RUNS: u32 = 5;

/// Keys when neither `-r` nor a scenario gives their number; few enough to preload, many enough for shards.
pub const DEFAULT_KEYS: u64 = 1_000;
