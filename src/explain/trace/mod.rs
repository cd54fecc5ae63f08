//! Rules for other people's traces: tables and logs that `systally import` has read.
//!
//! They work on [`crate::record::Import`] alone. A table tells counts and sometimes times; a log tells
//! what each connection did as well. A rule says what it can be sure of, and when it can only suspect.

mod blocked;
mod clients;
mod clock;
mod connection;
mod conntrack;
mod dns;
mod errors;
mod files;
mod limits;
mod nagle;
mod orphans;
mod pipeline;
mod ports;
mod probes;
mod redis_memory;
mod replies;
mod scope;
mod sends;
mod server_side;
mod signals;
mod spin;
mod state;
mod syn_flood;
mod tcp_memory;
#[cfg(test)]
pub(super) mod testing;
mod texts;
mod threads;
mod time;
mod time_wait_table;
mod uring;
mod waits;

use serde_json::Value;

pub(super) use errors::{Doubt, normal_error};
pub(super) use waits::famous;

use super::finding::{Finding, Rule, Severity};
use super::row::is_resolver;
use crate::import::facts::{LogFacts, Peer};
use crate::import::{ImportFormat, Imported, ImportedTable, Row};
use crate::record::Record;
use crate::units::total;

/// The rules, in the order in which their findings are listed when they matter equally.
pub(super) const RULES: &[&dyn Rule] = &[
    &ports::Ports,
    &connection::UnixBacklog,
    &connection::Refused,
    &connection::ConnectTimedOut,
    &limits::Nofile,
    &limits::FileMax,
    &replies::ErrorReplies,
    &state::ListenQueue,
    &clients::ClientsFull,
    &redis_memory::RedisMemory,
    &conntrack::Conntrack,
    &tcp_memory::TcpMemory,
    &orphans::Orphans,
    &syn_flood::SynFlood,
    &time_wait_table::TimeWaitTable,
    &state::OpenFiles,
    &state::NothingFull,
    &texts::ErrnoTexts,
    &spin::Spin,
    &nagle::Nagle,
    &connection::PerOperation,
    &connection::NeverClosed,
    &connection::ClosedIdle,
    &pipeline::Pipeline,
    &sends::SentInPieces,
    &sends::ReplyInPieces,
    &probes::Probes,
    &probes::Options,
    &dns::Dns,
    &files::Files,
    &waits::KnownTimeouts,
    &waits::Sleeps,
    &threads::Futex,
    &clock::Clock,
    &uring::Uring,
    &blocked::Blocked,
    &time::Times,
    &time::Split,
    &errors::Errors,
    &signals::Interrupted,
    &server_side::ServerSide,
    &scope::Scope,
];

/// Calls that only sockets have.
const SOCKET_SENDS: &[&str] = &["sendto", "send", "sendmsg", "sendmmsg"];
const SOCKET_RECEIVES: &[&str] = &["recvfrom", "recv", "recvmsg", "recvmmsg"];
const WRITES: &[&str] = &["write", "writev"];
const READS: &[&str] = &["read", "readv"];
/// Calls that wait for descriptors.
const WAITS: &[&str] = &[
    "poll",
    "ppoll",
    "pollsys",
    "select",
    "_newselect",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "kevent",
];

/// One foreign file.
#[derive(Clone, Copy)]
pub(super) struct Trace<'a> {
    /// Its name.
    pub(super) file: &'a str,
    /// What was read.
    pub(super) imported: &'a Imported,
}

/// The files of a record.
pub(super) fn traces(record: &Record) -> impl Iterator<Item = Trace<'_>> {
    record.imports.iter().map(|import| Trace {
        file: &import.file,
        imported: &import.imported,
    })
}

impl<'a> Trace<'a> {
    pub(super) fn facts(&self) -> Option<&'a LogFacts> {
        self.imported.facts.as_deref()
    }

    /// The peers of stream sockets, resolvers apart.
    pub(super) fn peers(&self) -> impl Iterator<Item = (&'a str, &'a Peer)> {
        self.facts()
            .into_iter()
            .flat_map(|facts| &facts.peers)
            .filter(|(name, _)| !is_resolver(name))
            .map(|(name, peer)| (name.as_str(), peer))
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = Table<'a>> {
        let trace = *self;
        self.imported
            .tables
            .iter()
            .map(move |table| Table { trace, table })
    }

    /// The row's value of a pasted setting or counter.
    pub(super) fn value(&self, name: &str) -> Option<u64> {
        self.imported.values.get(name).and_then(Value::as_u64)
    }

    /// The row's value of a pasted setting that is no number.
    pub(super) fn word(&self, name: &str) -> Option<&'a str> {
        self.imported.values.get(name).and_then(Value::as_str)
    }

    /// Errors of these calls with that errno, where errnos are told.
    pub(super) fn errno(&self, calls: &[&str], errno: &str) -> u64 {
        self.imported
            .tables
            .iter()
            .flat_map(|table| &table.rows)
            .filter(|row| calls.is_empty() || calls.contains(&row.syscall.as_str()))
            .flat_map(|row| &row.errnos)
            .filter(|(name, _)| bare(name) == errno)
            .fold(0, |sum: u64, (_, n)| sum.saturating_add(*n))
    }

    /// What shows how long calls wait, with the tool at hand.
    pub(super) fn wall_hint(&self) -> &'static str {
        match self.imported.format {
            ImportFormat::StraceSummary | ImportFormat::StraceLog => "strace -c -w or strace -T",
            ImportFormat::TrussCSolaris | ImportFormat::TrussCFreebsd | ImportFormat::TrussLog => {
                "truss -d -D (time stamps)"
            }
            ImportFormat::DtrussC | ImportFormat::DtrussLog => "dtruss -e (elapsed times)",
            _ => "a trace with times of single calls",
        }
    }

    /// A finding about this file.
    pub(super) fn finding(&self, code: &'static str, severity: Severity) -> Finding {
        Finding {
            strategy: Some(self.file.to_owned()),
            ..Finding::about_all(code, severity)
        }
    }
}

/// The errno's name without the system it is from.
pub(super) fn bare(errno: &str) -> &str {
    if errno.starts_with("errno ") {
        errno
    } else {
        errno.split(' ').next().unwrap_or(errno)
    }
}

/// Operations of a table, and how sure that is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ops {
    pub(super) count: u64,
    /// Given by the user or counted in payloads; else taken from the replies.
    pub(super) known: bool,
}

impl Ops {
    pub(super) fn per_op(self, count: u64) -> f64 {
        count as f64 / self.count.max(1) as f64
    }

    /// What `count / ops` is a figure of.
    pub(super) fn unit(self) -> &'static str {
        if self.known {
            "per operation"
        } else {
            "per reply (--ops N gives figures per operation)"
        }
    }
}

/// One table of a file.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) trace: Trace<'a>,
    pub(super) table: &'a ImportedTable,
}

impl<'a> Table<'a> {
    pub(super) fn rows(&self) -> &'a [Row] {
        &self.table.rows
    }

    pub(super) fn row(&self, name: &str) -> Option<&'a Row> {
        self.table.row(name)
    }

    pub(super) fn calls(&self, names: &[&str]) -> u64 {
        self.table.calls_of(names)
    }

    fn of(&self, names: &[&str], value: impl Fn(&Row) -> u64) -> u64 {
        self.rows()
            .iter()
            .filter(|row| names.contains(&row.syscall.as_str()))
            .map(value)
            .fold(0, u64::saturating_add)
    }

    /// Whether the sends and receives of sockets are known by name. A program that uses `read` and
    /// `write` on sockets makes them for files as well, so those count only where sockets have no others.
    fn talks_by_name(&self) -> bool {
        self.calls(SOCKET_SENDS) > 0 || self.calls(SOCKET_RECEIVES) > 0
    }

    /// Names of the calls that send.
    pub(super) fn send_names(&self) -> &'static [&'static str] {
        if self.talks_by_name() {
            SOCKET_SENDS
        } else {
            WRITES
        }
    }

    fn receive_names(&self) -> &'static [&'static str] {
        if self.talks_by_name() {
            SOCKET_RECEIVES
        } else {
            READS
        }
    }

    pub(super) fn sends(&self) -> u64 {
        self.calls(self.send_names())
    }

    pub(super) fn receives(&self) -> u64 {
        self.calls(self.receive_names())
    }

    /// Receives that did not fail.
    pub(super) fn good_receives(&self) -> u64 {
        self.of(self.receive_names(), Row::good)
    }

    /// Receives that failed; 0 when the format does not tell errors.
    pub(super) fn failed_receives(&self) -> u64 {
        self.of(self.receive_names(), |row| row.errors.unwrap_or(0))
    }

    pub(super) fn waits(&self) -> u64 {
        self.calls(WAITS)
    }

    pub(super) fn connects(&self) -> u64 {
        self.calls(&["connect"])
    }

    /// Whether it is the table of a program that talks to a server: it sends and receives.
    pub(super) fn talks(&self) -> bool {
        let sockets = self.talks_by_name() || self.connects() > 0 || self.waits() > 0;
        sockets && self.sends() > 0 && self.good_receives() > 0
    }

    /// Operations: given, counted in payloads, or estimated by the replies.
    pub(super) fn ops(&self) -> Option<Ops> {
        if let Some(count) = self.trace.imported.ops {
            return Some(Ops { count, known: true });
        }
        // A peek that finds data is a receive as well; a reply follows at least one send.
        let replies = match self.trace.facts() {
            Some(facts) => total(facts.peers.values().map(|peer| peer.turns)),
            None if self.talks() => self.good_receives().min(self.sends()),
            None => 0,
        };
        (replies > 0).then_some(Ops {
            count: replies,
            known: false,
        })
    }

    /// A finding about this table.
    pub(super) fn finding(&self, code: &'static str, severity: Severity) -> Finding {
        let mut finding = self.trace.finding(code, severity);
        if self.trace.imported.tables.len() > 1 {
            finding.strategy = Some(format!("{}/{}", self.trace.file, self.table.label));
        }
        finding
    }
}

/// Milliseconds with the digits they deserve.
pub(super) fn ms(nanos: u64) -> String {
    crate::units::Nanos(nanos).to_string()
}

/// `1 connect`, `2 connects`.
pub(super) fn plural(count: u64, one: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {one}{s}", crate::units::Grouped(count))
}
