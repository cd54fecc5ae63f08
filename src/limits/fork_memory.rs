//! Memory for the client processes. How much one takes of its own is measured where it can be, and assumed
//! by its language where it cannot; an assumption alone never fails a plan.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::process::Who;
use crate::proc::{Root, cgroup, host};
use crate::record::{LimitReading, Verdict};

pub(super) struct ForkMemory;

/// Kernel stack, page tables and task structure: what the smallest process costs.
const LEAST: u64 = 100 << 10;

impl Limit for ForkMemory {
    fn id(&self) -> &'static str {
        "fork_memory"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "memory for clients"
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
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
            .filter_map(|level| Some(level.max?.saturating_sub(level.current.unwrap_or(0))))
            .fold(available, u64::min);
        let untold = levels
            .iter()
            .find(|level| level.max.is_some() && level.current.is_none());
        let reading = reading.capacity(room).fix(
            "fewer processes, or more connections in each",
            "memory for the host, MemoryMax= in the unit",
            "docker run --memory",
        );
        let processes = load.processes;
        let killed = "fork ENOMEM, or the out-of-memory killer";
        let least = processes.saturating_mul(LEAST);
        if least > room {
            return reading
                .demand(
                    least,
                    format!("{processes} processes x {LEAST} bytes at the very least"),
                )
                .decide(|_: Verdict| killed.to_owned());
        }
        let demand = processes.saturating_mul(load.client_bytes.max(LEAST));
        let basis = if load.client_bytes_measured {
            "measured"
        } else {
            "assumed"
        };
        let each = amount_of(load.client_bytes.max(LEAST));
        let reading = reading.demand(
            demand,
            format!("{processes} processes x {each} of their own ({basis})"),
        );
        let has = amount_of(room / processes.max(1));
        if let Some(level) = untold
            && demand <= room
        {
            return reading.unknown(format!(
                "/{} has a memory limit and does not tell how much of it is used",
                level.folder
            ));
        }
        if load.client_bytes_measured {
            return reading.decide(|verdict| match verdict {
                Verdict::Fail => format!("{killed}: each takes {each} of its own and may take {has}"),
                _ => format!("each takes {each} of its own (measured) and may take {has}"),
            });
        }
        // A client that was forked and not executed shares much of it.
        reading.guess(|verdict| match verdict {
            Verdict::Ok => format!("at an assumed {each} each; each may take {has}"),
            _ => format!(
                "each of {processes} processes may take {has} of its own, and {each} is assumed: if that is so, {killed}; \
                 measure one (Private_Dirty in /proc/PID/smaps_rollup)"
            ),
        })
    }
}

/// Bytes in a unit that keeps them readable.
fn amount_of(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
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
        assert_eq!(verdict(1000), Verdict::Ok, "5 GB of 8, as assumed");
        assert_eq!(verdict(1250), Verdict::Ok, "6.25 GiB, 80 % of 7.8");
        assert_eq!(verdict(1251), Verdict::Warn);
        assert_eq!(verdict(2000), Verdict::Warn, "10 GB of 8, as assumed");
        assert_eq!(verdict(50_000), Verdict::Warn);
        assert_eq!(verdict(1_000_000), Verdict::Fail);
    }

    #[test]
    fn what_was_measured_decides() {
        let tree = Tree::new()
            .with("proc/meminfo", "MemAvailable:    8000000 kB\n")
            .with("proc/self/cgroup", "")
            .with("proc/self/mountinfo", "");
        let load = Load {
            processes: 2000,
            client_bytes: 8 << 20,
            client_bytes_measured: true,
            ..Load::default()
        };
        let reading = ForkMemory.check(&tree.root(), &load);
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(reading.effect.contains("may take 3 MiB"), "{}", reading.effect);
    }

    #[test]
    fn little_room_is_not_called_none() {
        let tree = Tree::new()
            .with("proc/meminfo", "MemAvailable:    20000000 kB\n")
            .with("proc/self/cgroup", "")
            .with("proc/self/mountinfo", "");
        let load = Load {
            processes: 50_000,
            ..Load::default()
        };
        let reading = ForkMemory.check(&tree.root(), &load);
        assert_eq!(reading.verdict, Verdict::Warn);
        assert!(reading.effect.contains("may take 400 KiB"), "{}", reading.effect);
    }
}
