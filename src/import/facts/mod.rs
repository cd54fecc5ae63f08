//! What a log shows beyond its counts, in a summary of bounded size: per peer, per command, per wait.
//!
//! Rules read these values; importers of logs fill them through [`collect::Collector`] while they stream.

pub(crate) mod args;
pub(crate) mod collect;
pub(crate) mod fds;
pub(crate) mod payload;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::seconds;
use crate::units::{Nanos, total};

/// Peers kept apart; further ones are [`OTHER_PEERS`].
pub const MOST_PEERS: usize = 64;
/// The name of a connection that was open before the log began.
pub const UNKNOWN_PEER: &str = "a connection opened before the log";
/// The name that peers share beyond [`MOST_PEERS`].
pub const OTHER_PEERS: &str = "other peers";
/// Lists of examples are no longer than this.
pub const MOST_EXAMPLES: usize = 16;

/// A log, summed up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogFacts {
    /// From the first time stamp to the last.
    #[serde(rename = "span_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub span: Option<Nanos>,
    /// Time in all calls, where each has a duration.
    #[serde(rename = "in_calls_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub in_calls: Option<Nanos>,
    /// Of that, in calls that wait (poll, receive, futex, sleep, accept, connect …).
    #[serde(rename = "waiting_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub waiting: Option<Nanos>,
    /// Time between a return and the next entry of the same thread: the program's own work, and time in
    /// which the scheduler or the tracer held it. Known with time stamps and durations only.
    #[serde(rename = "outside_calls_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub outside: Option<Nanos>,
    /// The longest of those gaps.
    pub longest_gap: Option<Gap>,
    /// Commands in the payloads.
    pub commands: Commands,
    /// The other ends of sockets.
    pub peers: BTreeMap<String, Peer>,
    /// Error replies received or sent, by their first words.
    pub error_replies: BTreeMap<String, u64>,
    /// Errors that `getsockopt(SO_ERROR)` handed over; the call itself returns 0.
    pub so_errors: BTreeMap<String, u64>,
    /// Descriptors that are reported ready again and again and have nothing.
    pub spins: Vec<Spin>,
    /// The longest row of receives that got `EAGAIN` with no wait between them.
    pub eagain_streak: u64,
    /// The longest row of waits with time-out 0 that reported nothing.
    pub empty_poll_streak: u64,
    /// The longest waits, and what for.
    pub waits: Vec<Wait>,
    /// Waits that ran into their time-out, by its length in milliseconds.
    pub timed_out: BTreeMap<u64, u64>,
    /// Sleeps by their length in microseconds, the commonest lengths.
    pub sleeps: BTreeMap<u64, u64>,
    /// Commands sent again after a sleep, by their first words.
    pub repeats: BTreeMap<String, Repeat>,
    /// Files looked at.
    pub files: Files,
    /// Listening sockets.
    pub accepts: Accepts,
    /// Signals delivered.
    pub signals: BTreeMap<String, u64>,
    /// Calls cut short by a signal and restarted, by signal.
    pub interrupted: BTreeMap<String, u64>,
    /// futex calls: waits, wakes, and waits that found the value changed.
    pub futex: Futex,
    /// Failed `epoll_ctl` calls by operation and errno.
    pub epoll_ctl_errors: BTreeMap<String, u64>,
    /// The highest descriptor seen.
    pub highest_fd: Option<u64>,
    /// Readiness checks that make a descriptor of their own (`epoll_create`, `epoll_ctl`, `epoll_wait`
    /// with time-out 0, `close`).
    pub epoll_checks: u64,
    /// Clones, forks.
    pub children: u64,
    /// Programs executed.
    pub execs: u64,
    /// Processes that a signal killed, by signal.
    pub killed: BTreeMap<String, u64>,
    /// Something was too much to keep, and the summary is of a part.
    pub truncated: bool,
}

/// A gap between two calls of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// How long.
    #[serde(rename = "nanoseconds")]
    #[schemars(with = "u64")]
    pub length: Nanos,
    /// The call before.
    pub after: String,
    /// The call after.
    pub before: String,
    /// Its line.
    pub line: u64,
}

/// Commands of RESP and of the memcached text protocol that payloads show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Commands {
    /// Sent (this is a client).
    pub sent: BTreeMap<String, u64>,
    /// Received (this is a server).
    pub received: BTreeMap<String, u64>,
    /// Payloads that strace cut (`-s`): they may hold more commands.
    pub cut_payloads: u64,
}

/// Commands that prepare or end a connection, or only ask whether it lives.
const HOUSEKEEPING: [&str; 9] = [
    "HELLO", "AUTH", "SELECT", "CLIENT", "QUIT", "READONLY", "MULTI", "EXEC", "COMMAND",
];

impl Commands {
    /// Operations among the commands: no housekeeping, and no PING or ECHO unless there is nothing else.
    pub fn operations(&self) -> u64 {
        let count = |commands: &BTreeMap<String, u64>| match Self::working(commands) {
            0 => Self::checks(commands),
            working => working,
        };
        let sent = count(&self.sent);
        if sent > 0 { sent } else { count(&self.received) }
    }

    /// Commands that are neither housekeeping nor a check.
    pub fn working(commands: &BTreeMap<String, u64>) -> u64 {
        let works = |name: &str| !HOUSEKEEPING.contains(&name) && !is_check(name);
        total(commands.iter().filter(|(name, _)| works(name)).map(|(_, n)| *n))
    }

    /// PINGs and ECHOs.
    pub fn checks(commands: &BTreeMap<String, u64>) -> u64 {
        total(
            commands
                .iter()
                .filter(|(name, _)| is_check(name))
                .map(|(_, n)| *n),
        )
    }
}

fn is_check(name: &str) -> bool {
    matches!(name, "PING" | "ECHO")
}

/// The other end of sockets: an address, a path, or all of which it is not known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Peer {
    /// Whether it is reached over a UNIX socket.
    pub unix: bool,
    /// Stream connections begun, by result (`ok`, or an errno).
    pub connects: BTreeMap<String, u64>,
    /// Time in `connect` and in the waits for it, the longest.
    #[serde(rename = "longest_connect_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub longest_connect: Option<Nanos>,
    /// Connections closed from this side, by how many commands or turns they carried: none, one, more.
    pub closed_after: [u64; 3],
    /// Receives that found the connection closed by the peer.
    pub closed_by_peer: u64,
    /// Of those, receives that only peeked or followed no send: the connection was idle.
    pub closed_idle: u64,
    /// Calls that send.
    pub sends: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Of those, the most that one call took.
    pub largest_send: u64,
    /// Receives with data.
    pub receives: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Receives that filled their buffer of at least 4 KiB: more was waiting.
    pub full_receives: u64,
    /// The buffer they filled.
    pub full_buffer: u64,
    /// Receives with `EAGAIN`, peeks apart.
    pub eagain_receives: u64,
    /// Receives with `MSG_PEEK`: in all, and those that found nothing (`EAGAIN`: alive).
    pub peeks: u64,
    /// Of the peeks, those with `EAGAIN`.
    pub eagain_peeks: u64,
    /// Turns: a receive with data after a send.
    pub turns: u64,
    /// Turns with more than one send.
    pub turns_with_several_sends: u64,
    /// The most sends in one turn.
    pub most_sends_in_turn: u64,
    /// Commands that these turns carried, as far as payloads show.
    pub commands: u64,
    /// Most commands sent before a reply was read.
    pub deepest_pipeline: u64,
    /// Times from the last send of a turn to its data: how many are known.
    pub timed_turns: u64,
    /// Their sum.
    #[serde(rename = "turn_wait_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub turn_wait: Option<Nanos>,
    /// The longest.
    #[serde(rename = "longest_turn_wait_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub longest_turn_wait: Option<Nanos>,
    /// Waits of 38 to 50 ms (Linux's shortest delayed ACK is 40 ms) after several sends.
    pub ack_waits_after_several: u64,
    /// The same after one send.
    pub ack_waits_after_one: u64,
    /// `TCP_NODELAY` set on this many sockets.
    pub nodelay: u64,
    /// Stream sockets connected in this log that sent before `TCP_NODELAY` was set.
    pub without_nodelay: u64,
    /// `setsockopt`, `fcntl`, `ioctl(FIONBIO)` on its sockets.
    pub options: BTreeMap<String, u64>,
    /// Of those, calls after the first data went out: options set per operation.
    pub options_in_use: u64,
    /// Waits with time-out 0, and `ioctl(FIONREAD)`.
    pub readiness_checks: u64,
    /// Waits for it that ran into their time-out, by its length in milliseconds.
    pub timed_out: BTreeMap<u64, u64>,
    /// Errors of sends and receives, `EAGAIN` apart.
    pub errors: BTreeMap<String, u64>,
}

impl Peer {
    /// Connections begun, whatever came of them.
    pub fn connect_attempts(&self) -> u64 {
        total(self.connects.values().copied())
    }

    /// Connections that did not fail at once.
    pub fn connections(&self) -> u64 {
        let begun = |(result, _): &(&String, &u64)| matches!(result.as_str(), "ok" | "EINPROGRESS");
        total(self.connects.iter().filter(begun).map(|(_, n)| *n))
    }
}

/// A descriptor reported ready in vain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spin {
    /// The descriptor.
    pub fd: u64,
    /// The call that reports it.
    pub call: String,
    /// What it reports (`EPOLLERR`).
    pub events: String,
    /// How often in a row.
    pub repeats: u64,
}

/// One long wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The call.
    pub call: String,
    /// For whom; empty when it is not a socket.
    pub peer: String,
    /// How long.
    #[serde(rename = "nanoseconds")]
    #[schemars(with = "u64")]
    pub length: Nanos,
    /// Its time-out in milliseconds, where it has one.
    pub timeout_ms: Option<u64>,
    /// Whether it ended without an event.
    pub in_vain: bool,
    /// Its line.
    pub line: u64,
}

/// A command sent again and again with sleeps between.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often after a sleep.
    pub times: u64,
    /// The sleep before the last one.
    #[serde(rename = "sleep_nanoseconds")]
    #[schemars(with = "u64")]
    pub sleep: Nanos,
    /// Whether all sleeps were of that length.
    pub equal: bool,
}

/// Files that were opened or asked about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Files {
    /// Calls with a path.
    pub calls: u64,
    /// Of those, `ENOENT`.
    pub missing: u64,
    /// Paths asked for most, with how often.
    pub most_asked: BTreeMap<String, u64>,
    /// Missing paths asked for most.
    pub most_missing: BTreeMap<String, u64>,
    /// Opens of resolver files (`resolv.conf`, `hosts`, `nsswitch.conf`, `host.conf`, `gai.conf`).
    pub resolver_opens: u64,
    /// Calls on `.php` files.
    pub php: u64,
    /// Files whose name has `xdebug` in it.
    pub xdebug: u64,
}

/// The server's side of connecting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Accepts {
    /// Connections accepted.
    pub accepted: u64,
    /// Closed without a single read.
    pub closed_unread: u64,
    /// Failed accepts by errno.
    pub errors: BTreeMap<String, u64>,
}

/// futex calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Futex {
    /// Waits.
    pub waits: u64,
    /// Wakes.
    pub wakes: u64,
    /// Waits that found the value changed already (`EAGAIN`).
    pub too_late: u64,
    /// Time in waits.
    #[serde(rename = "wait_seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub time: Option<Nanos>,
}
