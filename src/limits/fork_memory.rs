//! Memory for the client processes. How much one takes is not in the plan, so the plan gets the room that
//! each has, and fails only where even an empty process would not fit.

use super::reading::Reading;
use super::{Limit, Load};
use crate::proc::process::Who;
use crate::proc::{Root, cgroup, host};
use crate::record::{LimitReading, Verdict};

pub(super) struct ForkMemory;

/// Kernel stack, page tables and task structure: what the smallest process costs.
const LEAST: u64 = 100 << 10;
/// Few clients take more than this of their own; the pages they share are counted once.
const PLENTY: u64 = 64 << 20;

impl Limit for ForkMemory {
    fn id(&self) -> &'static str {
        "fork_memory"
    }

    fn title(&self) -> &'static str {
        "memory for clients"
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/meminfo MemAvailable; memory.max of the own groups",
        );
        let (available, levels) = match (host::meminfo(root, "MemAvailable"), cgroup::memory(root, Who::Me)) {
            (Ok(available), Ok(levels)) => (available, levels),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let room = levels
            .iter()
            .filter_map(|level| Some(level.max?.saturating_sub(level.current)))
            .fold(available, u64::min);
        let each = room / load.processes.max(1);
        let reading = reading.capacity(room).fix(
            "fewer processes, or more connections in each",
            "memory for the host, MemoryMax= in the unit",
            "docker run --memory",
        );
        let least = load.processes.saturating_mul(LEAST);
        if least > room {
            return reading
                .demand(
                    least,
                    format!("{} processes x {LEAST} bytes at the very least", load.processes),
                )
                .decide(|_: Verdict| "fork ENOMEM, or the out-of-memory killer".to_owned());
        }
        let megabytes = each >> 20;
        if each >= PLENTY {
            return reading.fine(format!(
                "{megabytes} MiB for each of {} processes",
                load.processes
            ));
        }
        reading.unknown(format!(
            "each of {} processes may take {megabytes} MiB of its own; measure one (Pss in /proc/PID/smaps_rollup)",
            load.processes
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn the_room_for_each_process_decides() {
        let tree = Tree::new()
            .with("proc/meminfo", "MemAvailable:    8000000 kB\n")
            .with("proc/self/cgroup", "")
            .with("proc/self/mountinfo", "");
        let verdict = |n| {
            ForkMemory
                .check(
                    &tree.root(),
                    &Load {
                        processes: n,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(verdict(100), Verdict::Ok);
        assert_eq!(verdict(1000), Verdict::Unknown);
        assert_eq!(verdict(1_000_000), Verdict::Fail);
    }
}
