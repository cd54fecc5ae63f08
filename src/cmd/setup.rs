//! `systally setup`: what has to be done once, as root, so that others can count without rights.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use crate::engine::perf::{CACHE, keep};
use crate::engine::{Availability, EngineKind, engine};
use crate::proc::Root;

use super::{Code, CommandResult, WithCode, print};

/// Keeps the numbers of the kernel's tracepoints for the perf engine.
///
/// # Errors
/// Without the right to read them or to write the file.
pub fn run() -> CommandResult {
    let count = keep(&Root::live(), Path::new(CACHE))
        .context("setup has to be run as root (sudo systally setup)")
        .code(Code::CannotMeasure)?;
    let mut text = format!("{CACHE}: kept the numbers of {count} tracepoints of this kernel\n");
    let paranoid = Root::live()
        .read("proc/sys/kernel/perf_event_paranoid")
        .unwrap_or_default();
    if let Ok(level @ 3..) = paranoid.trim().parse::<i32>() {
        writeln!(
            text,
            "kernel.perf_event_paranoid is {level}: users without CAP_PERFMON may not count; 2 would let them \
         (sudo sysctl kernel.perf_event_paranoid=2)"
        )?
    }
    match engine(EngineKind::Perf).availability() {
        Availability::Ready => writeln!(text, "the perf engine is ready")?,
        Availability::Unavailable { why, fix } => {
            writeln!(text, "the perf engine is not available: {why}; {fix}")?
        }
    }
    print(&text)?;
    Ok(Code::Ok)
}
