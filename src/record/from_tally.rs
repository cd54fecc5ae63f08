//! From an engine's tally to the record: names at the edge, and what the engine cannot know as not
//! measured.

use std::collections::BTreeMap;

use crate::engine::Capabilities;
use crate::tally::{CallTally, Errno, PhaseTallies, Tally};
use crate::units::Measured;

use super::{CallCounts, PhaseCounts, Phases};

impl Phases {
    /// The phases of a counted pass, as far as the engine can know them; `cpu_time` tells whether CPU time
    /// per call was asked for.
    pub fn from_tallies(tallies: &PhaseTallies, can: Capabilities, cpu_time: bool) -> Phases {
        Phases {
            startup: phase(&tallies.startup, can, cpu_time),
            run_loop: phase(&tallies.run_loop, can, cpu_time),
            shutdown: phase(&tallies.shutdown, can, cpu_time),
        }
    }
}

fn phase(tally: &Tally, can: Capabilities, cpu_time: bool) -> PhaseCounts {
    let syscalls = tally
        .calls
        .iter()
        .map(|(call, counts)| (call.name().into_owned(), counted(counts, can, cpu_time)));
    PhaseCounts {
        syscalls: syscalls.collect(),
        talk: tally.talk.clone(),
    }
}

fn counted(call: &CallTally, can: Capabilities, cpu_time: bool) -> CallCounts {
    fn known<T>(can: bool, value: T, what: &str) -> Measured<T> {
        if can {
            Measured::Known(value)
        } else {
            Measured::NotMeasured(format!("the engine does not see {what}"))
        }
    }
    CallCounts {
        calls: call.calls,
        unfinished: call.unfinished,
        errors: if can.errors {
            Measured::Known(by_name(&call.errors))
        } else {
            Measured::NotMeasured(
                "the errors of calls were not asked for, or the engine does not see them".to_owned(),
            )
        },
        restarts: by_name(&call.restarts),
        wall: known(can.time, call.wall, "the time in calls"),
        cpu: if cpu_time {
            Measured::Known(call.cpu)
        } else {
            Measured::NotMeasured(
                "CPU time per call was not asked for, or the engine does not know it".to_owned(),
            )
        },
        bytes: known(can.peers, call.bytes, "the bytes of calls"),
        peeks: known(can.peers, call.peeks, "the flags of calls"),
        peers: call.peers.clone(),
    }
}

fn by_name(errnos: &BTreeMap<Errno, u64>) -> BTreeMap<String, u64> {
    errnos
        .iter()
        .map(|(errno, n)| (errno.name().into_owned(), *n))
        .collect()
}
