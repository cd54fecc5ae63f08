//! The formats, by what prints them.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The formats, by what prints them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ImportFormat {
    /// Table of `strace -c` (any version, `-w`, `-U`, `-S`).
    StraceSummary,
    /// Log of `strace` (`-f`, `-t…`, `-r`, `-T`, `-y…`, `-n`).
    StraceLog,
    /// Table of `perf trace -s`.
    PerfTraceSummary,
    /// Log of `perf trace`.
    PerfTraceLog,
    /// Output of `perf script` on a recording of system call tracepoints.
    PerfScript,
    /// Output of `perf stat` on system call tracepoints (`-x`, `-j`, plain).
    PerfStatCsv,
    /// Table of `dtruss -c` (macOS).
    DtrussC,
    /// Log of `dtruss` (macOS).
    DtrussLog,
    /// Table of `truss -c` on Solaris or illumos.
    TrussCSolaris,
    /// Table of `truss -c` on FreeBSD.
    TrussCFreebsd,
    /// Log of `truss`.
    TrussLog,
    /// Output of `kdump` (ktrace on a BSD).
    Kdump,
    /// Table of `ltrace -c`: library functions.
    LtraceC,
    /// Table of bcc's `syscount`.
    Syscount,
    /// Table of bcc's `syscount -P`: counts per process.
    SyscountByProcess,
    /// Map of counts printed by `bpftrace`.
    BpftraceMap,
    /// Tables of `procsystime` (DTrace toolkit).
    Procsystime,
    /// `/proc/PID/limits`.
    ProcLimits,
    /// Pasted network and descriptor state (sysctls, `ss`, `netstat -s`).
    NetState,
    /// `/sys/devices/system/clocksource`.
    Clocksource,
    /// The project's own transcriptions of published tables (JSON).
    Published,
}

impl ImportFormat {
    /// The name on the command line and in records.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

impl std::fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}
