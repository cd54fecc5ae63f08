//! What `systally count` takes: clap types, and the lists of process ids that they read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::render::{CountColumn, Format, SortBy};
use crate::units::{escape, parse_span};

/// Above the options for programs that run already.
const ATTACH: &str = "Running programs";

/// `systally count`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("attached").args(["pid", "name", "cgroup"]).multiple(true)))]
pub struct CountArgs {
    /// The program to run and count, with its arguments
    #[arg(
        required_unless_present_any = ["pid", "name", "cgroup"],
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub program: Vec<OsString>,

    /// Follow children and threads; always done, accepted as strace's flag
    #[arg(short = 'f', long)]
    pub follow_forks: bool,

    /// Print counts only; always done, accepted as strace's flag
    #[arg(short = 'c', long)]
    pub summary_only: bool,

    /// Calls to count: names, %network, %file, %desc, %process, %signal, %memory, %ipc (these also without
    /// %), %clock, %creds, /regex, ! for all but these
    #[arg(short = 'e', long = "trace", value_name = "trace=SET")]
    pub trace: Vec<String>,

    /// Base `% time` and usecs/call on wall time instead of CPU time
    #[arg(short = 'w', long)]
    pub summary_wall_clock: bool,

    /// Sort by
    #[arg(short = 'S', long = "summary-sort-by", value_enum, default_value_t = SortBy::Time, value_name = "COLUMN")]
    pub sort: SortBy,

    /// Columns to show
    #[arg(
        short = 'U',
        long = "summary-columns",
        value_enum,
        value_delimiter = ',',
        value_name = "COLUMNS"
    )]
    pub columns: Vec<CountColumn>,

    /// Count only calls that succeeded
    #[arg(short = 'z', long, conflicts_with = "failed_only")]
    pub successful_only: bool,

    /// Count only calls that failed
    #[arg(short = 'Z', long)]
    pub failed_only: bool,

    /// Count failed calls too where that costs extra: `--engine perf` leaves them out. The other engines see
    /// them anyway, all but ptrace-counts
    #[arg(long)]
    pub errors: bool,

    /// Operations that the program makes, for counts per operation
    #[arg(long, value_name = "N", conflicts_with = "ops_from", value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,

    /// Take the operations from the program's standard output: the first group of this expression, or
    /// the first number in its match; the last matching line counts
    #[arg(long, value_name = "REGEX")]
    pub ops_from: Option<String>,

    /// Keep the record (JSON) in this file, apart from what the program writes; `systally import FILE
    /// --format md|csv` prints it in another form. `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Form of the result. A table, also that of strace, goes to standard error, since standard output is the
    /// program's; the other forms go to standard output, behind what the program wrote there (-o keeps them
    /// apart)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// What counts
    #[arg(long, value_enum, default_value_t = CountEngine::Auto)]
    pub engine: CountEngine,

    /// Attach to running processes, by id: commas or spaces make lists. Ctrl-C or --for ends the count, and
    /// the programs run on
    #[arg(short = 'p', long = "pid", value_name = "PID", help_heading = ATTACH, conflicts_with = "program",
          value_parser = parse_pids)]
    pub pid: Vec<Pids>,

    /// Attach to all processes of that name, or whose program's file has it; *, ? and [] are patterns
    #[arg(long, value_name = "NAME", help_heading = ATTACH, conflicts_with = "program")]
    pub name: Vec<String>,

    /// Attach to the processes in that control group
    #[arg(long, value_name = "PATH", help_heading = ATTACH, conflicts_with = "program")]
    pub cgroup: Vec<String>,

    /// Attach to all that descend from these processes too
    #[arg(long, help_heading = ATTACH, conflicts_with = "program", requires = "attached")]
    pub tree: bool,

    /// How long to count: 500ms, 10s, 2m [default: until Ctrl-C]
    #[arg(long = "for", value_name = "SPAN", help_heading = ATTACH, conflicts_with = "program",
          requires = "attached", value_parser = parse_span)]
    pub span: Option<Duration>,

    /// Take the operations from this server's own command counters: redis://[user:password@]host[:port] or
    /// unix:///path. REDISCLI_AUTH keeps the password out of the process list
    #[arg(long, value_name = "URI", conflicts_with_all = ["ops", "ops_from"])]
    pub server: Option<String>,

    /// A second table: calls by what their descriptor leads to
    #[arg(long)]
    pub peers: bool,

    /// Only calls on descriptors that lead there (an address as --peers shows it)
    #[arg(long, value_name = "PEER", conflicts_with_all = ["connections", "successful_only", "failed_only"])]
    pub only_peer: Vec<String>,

    /// Only calls on connections that the program made: to the server that --server names, else to any
    #[arg(long, conflicts_with_all = ["successful_only", "failed_only"])]
    pub connections: bool,

    /// Leave tracer and program where the scheduler puts them, instead of on one CPU (seven times slower
    /// for one busy thread, faster for a program that keeps several CPUs busy)
    #[arg(long)]
    pub no_pin: bool,
}

/// The ids of one `-p`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pids(pub Vec<i32>);

/// Reads a list of process ids as strace does: `"$(pidof php)"` works.
fn parse_pids(text: &str) -> Result<Pids, String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let pids: Vec<i32> = words
        .filter(|word| !word.is_empty())
        .map(|word| match word.parse() {
            Ok(pid) if pid > 0 => Ok(pid),
            Ok(_) | Err(_) => Err(format!("'{}' is no process id", escape(word, 40))),
        })
        .collect::<Result<_, _>>()?;
    if pids.is_empty() {
        return Err("no process id is in it".to_owned());
    }
    Ok(Pids(pids))
}

impl CountArgs {
    /// Whether running programs are to be counted, and none is started.
    pub fn attaches(&self) -> bool {
        !(self.pid.is_empty() && self.name.is_empty() && self.cgroup.is_empty())
    }

    /// Whether the result goes where a program that is started writes too.
    pub(super) fn shares_output(&self) -> bool {
        let dash = self.output.as_deref() == Some(Path::new("-"));
        let form = match self.format {
            Format::Markdown | Format::Csv | Format::Json => true,
            Format::Table | Format::Strace => false,
        };
        !self.attaches() && (dash || form)
    }

    /// Whether only calls on some peers are to be shown.
    pub(super) fn asks_for_peers(&self) -> bool {
        self.peers || self.connections || !self.only_peer.is_empty()
    }
}

/// The engines that can count a program of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CountEngine {
    /// Ptrace; for programs that run already bpf, which does not stop them, where it may be used and sees what
    /// is asked for
    Auto,
    /// Every call with errno, times, bytes and peers; needs no rights
    Ptrace,
    /// Every call at half the cost of ptrace, without errno, times, bytes and peers; needs no rights
    PtraceCounts,
    /// Every call with errno and wall time at nearly full speed; needs CAP_BPF and CAP_PERFMON
    Bpf,
    /// A few calls (those of -e, eight at most, else what clients make most) at nearly full speed, mostly
    /// without rights
    Perf,
    /// Every call with errno and wall time, by an installed strace and as slowly
    Strace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_come_in_lists() {
        assert_eq!(parse_pids("12"), Ok(Pids(vec![12])));
        assert_eq!(parse_pids("12, 13\n14 "), Ok(Pids(vec![12, 13, 14])));
        for bad in ["", " ", "x", "0", "-4", "12,y", "99999999999"] {
            assert!(parse_pids(bad).is_err(), "{bad}");
        }
    }
}
