//! What the demand and the capacity of a limit count.

use std::fmt;

/// A unit of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, by their name in the plural.
    Of(&'static str),
    /// Memory in bytes.
    Bytes,
    /// Memory in pages of the kernel, whose size differs between machines.
    Pages,
    /// CPU time in microseconds.
    CpuMicros,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Of(name) => name,
            Unit::Bytes => "bytes",
            Unit::Pages => "memory pages",
            Unit::CpuMicros => "us of CPU time",
        })
    }
}
