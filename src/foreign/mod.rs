//! How other tools write: what the engine that drives strace reads as well as the importers. Takes text
//! apart and knows nothing of what becomes of it.

pub(crate) mod number;
pub(crate) mod quoted;
pub(crate) mod strace;
pub(crate) mod text;
