//! What a count can show and how it can be sorted, under the names that strace gave these things.

use super::model::{Column, Group};

/// The order of the rows; the names are those of `strace -S`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SortBy {
    /// The time that `% time` is of, longest first.
    #[default]
    #[value(alias = "time-percent", alias = "time-total", alias = "total-time")]
    Time,
    /// Time per call, longest first.
    #[value(name = "avg-time", alias = "time-avg")]
    AvgTime,
    /// Calls, most first.
    #[value(alias = "count")]
    Calls,
    /// Failed calls, most first.
    #[value(alias = "error")]
    Errors,
    /// Name, from a.
    #[value(alias = "syscall", alias = "syscall-name")]
    Name,
    /// As they are in the record, which is by name too, but without promise.
    #[value(alias = "none")]
    Nothing,
}

/// Which of a call's times a column is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum TimeKind {
    /// CPU time in the kernel, as `strace -c` counts.
    #[default]
    Cpu,
    /// Time from entry to return, as `strace -c -w` counts.
    Wall,
}

/// A column of a count; the names are those of `strace -U` where strace has the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CountColumn {
    /// Share of the time of all calls.
    #[value(name = "time-percent", alias = "time")]
    TimePercent,
    /// Time from entry to return.
    Wall,
    /// CPU time in the kernel.
    #[value(alias = "total-time", alias = "time-total")]
    Cpu,
    /// Time per call.
    #[value(name = "avg-time", alias = "time-avg")]
    AvgTime,
    /// Calls that returned.
    #[value(alias = "count")]
    Calls,
    /// Failed calls.
    #[value(alias = "error")]
    Errors,
    /// Calls per operation.
    #[value(name = "per-op")]
    PerOp,
    /// Calls that never returned.
    Unfinished,
    /// Bytes moved.
    Bytes,
    /// Name of the call. It names the row, so it is always there.
    #[value(alias = "syscall", alias = "syscall-name")]
    Name,
    /// Errors by name.
    Errnos,
}

impl CountColumn {
    /// The columns of a count when none are asked for. `PerOp` is left out where nobody knows the
    /// operations.
    pub const USUAL: [CountColumn; 9] = [
        CountColumn::TimePercent,
        CountColumn::Wall,
        CountColumn::Cpu,
        CountColumn::AvgTime,
        CountColumn::Calls,
        CountColumn::Errors,
        CountColumn::PerOp,
        CountColumn::Name,
        CountColumn::Errnos,
    ];

    pub(super) fn column(self, time: TimeKind) -> Column {
        let kind = match time {
            TimeKind::Cpu => "cpu",
            TimeKind::Wall => "wall",
        };
        match self {
            CountColumn::TimePercent => Column::number("% time", kind, Group::Summary),
            CountColumn::Wall => Column::number("wall", "s", Group::Summary),
            CountColumn::Cpu => Column::number("cpu", "s", Group::Summary),
            CountColumn::AvgTime => Column::number("usecs", "/call", Group::Summary),
            CountColumn::Calls => Column::number("calls", "", Group::Summary),
            CountColumn::Errors => Column::number("errors", "", Group::Summary),
            CountColumn::PerOp => Column::number("per op", "", Group::Summary),
            CountColumn::Unfinished => Column::number("unfinished", "", Group::Summary),
            CountColumn::Bytes => Column::number("bytes", "", Group::Summary),
            CountColumn::Name => Column::text("syscall", Group::Key),
            CountColumn::Errnos => Column::text("errors by name", Group::Errors),
        }
    }
}
