//! What to run: the rows of the matrix, the work of each, and the order of the rounds.

pub mod order;
pub mod rows;
pub mod scenario;
mod trace_classes;
pub mod trace_set;
