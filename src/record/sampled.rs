//! What was read many times while a run went on: queues and pressures that no counter keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// The readings of a run, as their peaks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sampled {
    /// How many times everything was read.
    pub samples: u64,
    /// From the first reading to the last, in seconds.
    pub seconds: f64,
    /// CPU time that the reading took, in nanoseconds.
    #[schemars(with = "u64")]
    pub cpu_ns: Nanos,
    /// The largest value of each reading, apart for each row.
    pub peaks: Vec<Peak>,
}

/// The largest value of one reading while one row ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// What was read (`listener.tcp.queued`, `sockstat.TCP.tw`).
    pub name: String,
    /// The place of the row among the strategies; null between rows.
    pub row: Option<u64>,
    /// The largest value.
    pub peak: u64,
    /// What there was room for, where there is such a bound.
    pub of: Option<u64>,
    /// When it was read first, in seconds from the first reading.
    pub at_s: f64,
}

impl Sampled {
    /// The peak of a reading while this row ran.
    pub fn peak(&self, name: &str, row: u64) -> Option<&Peak> {
        self.peaks
            .iter()
            .find(|peak| peak.name == name && peak.row == Some(row))
    }

    /// The peak of a reading over the whole run.
    pub fn highest(&self, name: &str) -> Option<&Peak> {
        let of_name = self.peaks.iter().filter(|peak| peak.name == name);
        of_name.max_by_key(|peak| peak.peak)
    }
}

/// Connections that waited at the TCP listener; bounded by what fits.
pub const TCP_QUEUED: &str = "listener.tcp.queued";
/// Connections that waited at the UNIX listener; bounded by what fits.
pub const UNIX_QUEUED: &str = "listener.unix.queued";
/// Sockets of the client's network namespace in TIME_WAIT.
pub const TIME_WAIT: &str = "sockstat.TCP.tw";
/// TCP sockets in use in the client's network namespace.
pub const TCP_IN_USE: &str = "sockstat.TCP.inuse";
/// Descriptors that the server had open; bounded by its limit.
pub const SERVER_FDS: &str = "server.fds_open";
/// Threads that ran or waited for a CPU, on the whole machine.
pub const RUNNABLE: &str = "loadavg.running";
/// Threads of the whole machine.
pub const TASKS: &str = "loadavg.tasks";
/// Share of the time, in percent, in which some thread waited for a CPU.
pub const CPU_PRESSURE: &str = "pressure.cpu.some_percent";
/// Share of the time, in percent, in which the server's control group was throttled.
pub const THROTTLED: &str = "server.cpu.throttled_percent";
