//! TIME_SPLIT for systally's own runs: what the time of an operation is made of, and who is the bottleneck.
//! The code is described in [`super::trace`].

use std::collections::BTreeMap;

use serde_json::json;

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{FUTEX, RECEIVES, Row, SLEEPS, WAITS, round2};
use crate::record::label::label;
use crate::record::{Kind, Record, Status, StrategyResult};
use crate::units::{Nanos, total};

pub(super) struct TimeSplit;

/// Rows that are named for each bottleneck; all are in the evidence and in the table.
const MOST_ROWS: usize = 3;
/// The clock that tells user from kernel time (`utime` and `stime` of `/proc/PID/stat`, and `getrusage` after it) counts
/// in these: USER_HZ, a hundredth of a second on every Linux (proc_pid_stat(5)). The sum of both is exact.
const TICK: Nanos = Nanos(10_000_000);
/// Less time than this is not worth a split, and its CPU time is only a few ticks.
const LEAST: Nanos = Nanos(200_000_000);
/// Other calls that wait, for neither a server nor a time.
const OTHER_WAITS: &[&str] = &["wait4", "waitid", "pause", "rt_sigtimedwait", "rt_sigsuspend"];

impl Rule for TimeSplit {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        match record.kind {
            Kind::Bench => bench(record).into_iter().collect(),
            Kind::Count => Row::run(record).filter_map(|row| counted(&row)).collect(),
            Kind::Import | Kind::Preflight => Vec::new(),
        }
    }
}

/// Who keeps an operation from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// The loop that every worker has around its client.
    Harness,
    /// The client's process.
    Client,
    /// The server's commands.
    Server,
    /// The way to the server: the kernel, the network, the server's own reading and writing, a free CPU.
    Waiting,
    /// Locks, sleeps, other threads.
    Elsewhere,
    /// Nothing has most of it.
    Mixed,
}

impl Bound {
    /// In a few words.
    pub fn words(self) -> &'static str {
        match self {
            Bound::Harness => "harness-bound",
            Bound::Client => "client-bound",
            Bound::Server => "server-bound",
            Bound::Waiting => "waits for replies",
            Bound::Elsewhere => "waits for something else than the server",
            Bound::Mixed => "no part has most of it",
        }
    }
}

/// The time of one operation on one worker, untraced, in nanoseconds. The parts and the rest are the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// The whole.
    pub wall: f64,
    /// CPU time in user mode.
    pub user: f64,
    /// CPU time in the kernel.
    pub kernel: f64,
    /// Waiting for the server: for replies, and for a CPU after them.
    pub for_server: f64,
    /// Waiting for locks, sleeps, other threads.
    pub for_else: f64,
    /// The server's own time in the command, which is within the waiting for it.
    pub server: Option<f64>,
    /// Share of the time in which the server was in commands.
    server_busy: Option<f64>,
    /// How far user and kernel time can be off by the ticks they were told apart by.
    tick: f64,
}

impl Split {
    fn of(row: &Row<'_>) -> Option<Split> {
        let rounds = &row.timed()?.rounds;
        let sum = |part: fn(&crate::record::Round) -> Option<u64>| -> Option<f64> {
            let parts: Option<Vec<u64>> = rounds.iter().map(part).collect();
            Some(total(parts?) as f64)
        };
        let ops = total(rounds.iter().map(|round| round.ops.0)) as f64;
        let span = total(rounds.iter().map(|round| round.elapsed.0));
        let wall = span as f64 * f64::from(row.result.axes.clients.max(1));
        if ops == 0.0 || span < LEAST.0 {
            return None;
        }
        let user = sum(|round| Some(round.cpu?.0.0))? / ops;
        let kernel = sum(|round| Some(round.cpu?.1.0))? / ops;
        let busy = sum(|round| Some(round.server.known()?.busy?.0));
        // Each reading of each worker is off by less than a tick, to either side: so many add up as a root does.
        let readings = rounds.len() as f64 * f64::from(row.result.axes.clients.max(1));
        let wall_per_op = wall / ops;
        // CPU time is read around the round, which is a little longer than the workers' own time.
        let waiting = (wall_per_op - user - kernel).max(0.0);
        let elsewhere = waiting * share_elsewhere(row);
        Some(Split {
            wall: wall_per_op,
            user,
            kernel,
            for_server: waiting - elsewhere,
            for_else: elsewhere,
            server: busy.map(|busy| busy / ops),
            server_busy: busy.map(|busy| busy / span as f64),
            tick: TICK.0 as f64 * readings.sqrt() / ops,
        })
    }

    /// CPU time, which is exact.
    pub fn cpu(&self) -> f64 {
        self.user + self.kernel
    }

    /// The place of the last digit of user and kernel time that the clock gives (a power of ten, at least one
    /// nanosecond); `None` where the rounds were too short to tell the two apart.
    pub fn place(&self) -> Option<u64> {
        let place = 10_f64.powf(self.tick.log10().ceil()).max(1.0);
        // With less than two steps of it, every split would do.
        (place.is_finite() && self.cpu() >= 2.0 * place).then_some(place as u64)
    }

    /// What is in no part. Below zero when more CPU time was read than the workers' own time: it is read around
    /// the round, which is a little longer.
    pub fn rest(&self) -> f64 {
        self.wall - (self.user + self.kernel + self.for_server + self.for_else)
    }

    fn bound(&self, noop: Option<f64>) -> Bound {
        let share = |part: f64| part / self.wall;
        if noop.is_some_and(|noop| share(noop) >= 0.5) {
            Bound::Harness
        } else if self.server_busy.is_some_and(|busy| busy >= 0.6) {
            Bound::Server
        } else if share(self.user + self.kernel) >= 0.6 {
            Bound::Client
        } else if share(self.for_else) >= 0.4 {
            Bound::Elsewhere
        } else if share(self.for_server) >= 0.5 {
            Bound::Waiting
        } else {
            Bound::Mixed
        }
    }
}

/// How much of the waiting in the counted pass was for something else than a descriptor.
fn share_elsewhere(row: &Row<'_>) -> f64 {
    let server = row.loop_wall(WAITS).zip(row.loop_wall(RECEIVES));
    let other = [SLEEPS, FUTEX, OTHER_WAITS].map(|calls| row.loop_wall(calls).unwrap_or_default().0);
    let other = total(other) as f64;
    match server {
        Some((waits, receives)) if other > 0.0 => other / (other + (waits + receives).0 as f64),
        _ => 0.0,
    }
}

/// The rows of a bench that were timed for long enough, each with its split and who is the bottleneck. The row of
/// noop, by which the others are judged, is none of them, and neither are rows that failed or that their server does not
/// confirm: they have no operations whose time could be split.
pub fn splits(record: &Record) -> Vec<(&StrategyResult, Split, Bound)> {
    if record.kind != Kind::Bench {
        return Vec::new();
    }
    let (noops, rows): (Vec<_>, Vec<_>) = Row::run(record)
        .filter(|row| row.result.status == Status::Ok)
        .filter_map(|row| Some((row.result, Split::of(&row)?)))
        .partition(|(row, _)| row.is_noop());
    let noop = noops.first().map(|(_, split)| split.wall);
    rows.into_iter()
        .map(|(row, split)| (row, split, split.bound(noop)))
        .collect()
}

fn bench(record: &Record) -> Option<Finding> {
    let mut finding = Finding::about_all("TIME_SPLIT", Severity::Info);
    let mut rows: BTreeMap<Bound, Vec<String>> = BTreeMap::new();
    for (row, split, bound) in splits(record) {
        let us = |part: f64| round2(part / 1e3);
        let by_tick = |part: f64| {
            let place = split.place()? as f64;
            Some(us((part / place).round() * place))
        };
        let name = label(row, &record.strategies);
        finding = finding.with(
            &name,
            json!({
                "wall_us": us(split.wall), "cpu_us": us(split.cpu()),
                "user_us": by_tick(split.user), "kernel_us": by_tick(split.kernel),
                "waiting_for_server_us": us(split.for_server), "waiting_for_else_us": us(split.for_else),
                "rest_us": us(split.rest()), "server_command_us": split.server.map(us), "bound": bound.words(),
            }),
        );
        rows.entry(bound).or_default().push(name);
    }
    if rows.is_empty() {
        return None;
    }
    let texts: Vec<String> = rows
        .into_iter()
        .map(|(bound, mut names)| {
            names.dedup();
            let more = match names.len().saturating_sub(MOST_ROWS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            names.truncate(MOST_ROWS);
            format!("{}: {}{more}", bound.words(), names.join(", "))
        })
        .collect();
    let has_noop = Row::run(record).any(|row| row.result.is_noop());
    let harness = if has_noop {
        ""
    } else {
        "; how much of the client's part is the workers' own loop is not known without a row of noop"
    };
    Some(
        finding
            .says(format!("what an operation's time goes to, untraced: {}{harness}", texts.join("; ")))
            .try_next(
                "client-bound: profile the client (perf, a profiler of its language); waits for replies: fewer round trips \
                 (pipelining), a UNIX socket, free CPUs; server-bound: cheaper commands or more servers",
            ),
    )
}

/// A counted program: under the tracer, so only coarse.
fn counted(row: &Row<'_>) -> Option<Finding> {
    let counted = row.counted()?;
    let (user, kernel) = *counted.cpu.known()?;
    let wall = counted.elapsed;
    let sockets = row.loop_wall(WAITS)?
        + row.loop_wall(RECEIVES)?
        + row.loop_wall(&["connect", "accept", "accept4"])?;
    let other = [SLEEPS, FUTEX, OTHER_WAITS]
        .iter()
        .try_fold(Nanos(0), |sum, calls| Some(sum + row.loop_wall(calls)?))?;
    if wall < LEAST {
        return None;
    }
    let share = |part: Nanos| part.0 as f64 / wall.0 as f64;
    let verdict = if share(sockets) >= 0.6 {
        "it mostly waits for descriptors (a server, a pipe, input)"
    } else if share(other) >= 0.6 {
        "it mostly waits for time, threads or children, not for a server"
    } else if share(user) >= 0.6 {
        "it mostly computes: system calls are not the cause"
    } else if share(user + kernel) >= 0.6 {
        "it mostly works, a good part of it in the kernel (tracing adds to that)"
    } else {
        "no part has most of it"
    };
    let sleeps = row.loop_wall(SLEEPS).unwrap_or_default();
    let in_sleeps = if sleeps.0 > 0 {
        format!(" ({sleeps} of it in sleeps)")
    } else {
        String::new()
    };
    let parts = user + kernel + sockets + other;
    let rest = if parts <= wall {
        let rest = Nanos(wall.0 - parts.0);
        format!("+ {rest} of neither (stops by the tracer, other calls, waiting for a CPU)")
    } else {
        let twice = Nanos(parts.0 - wall.0);
        format!("- {twice} that are in two of these (threads at the same time, CPU time within waits)")
    };
    let cpu = if (user + kernel).0 < 2 * TICK.0 {
        format!(
            "CPU {} (too little to tell user from kernel by ticks of 10 ms)",
            user + kernel
        )
    } else {
        let by_tick = |part: Nanos| match part.0 {
            0 => "0".to_owned(),
            // Halves and more of a tick are one.
            ns => match ns.saturating_add(TICK.0 / 2) / TICK.0 {
                0 => format!("<{TICK}"),
                ticks => Nanos(ticks * TICK.0).to_string(),
            },
        };
        format!("user {} + kernel {}", by_tick(user), by_tick(kernel))
    };
    Some(
        Finding::about(row, "TIME_SPLIT", Severity::Info)
            .with("wall_ms", round2(wall.0 as f64 / 1e6))
            .with("user_ms", round2(user.0 as f64 / 1e6))
            .with("kernel_ms", round2(kernel.0 as f64 / 1e6))
            .with("waiting_for_descriptors_ms", round2(sockets.0 as f64 / 1e6))
            .with("waiting_for_else_ms", round2(other.0 as f64 / 1e6))
            .with("rest_ms", round2((wall.0 as f64 - parts.0 as f64) / 1e6))
            .says(format!(
                "{wall} under the tracer = {cpu} + waits for descriptors {sockets} + other waits \
                 {other}{in_sleeps} {rest}: {verdict}"
            ))
            .try_next("mostly waiting: look at what it waits for; mostly user time: profile the program"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{empty, explained, round, row, set_call_time, set_rounds};
    use crate::units::{Measured, Ops};

    /// 10,000 operations in a second.
    fn split(name: &str, user_ms: u64, kernel_ms: u64, server_ms: u64) -> StrategyResult {
        let mut result = row(name);
        let mut one = round(10_000, 10_000, 10_000);
        one.elapsed = Nanos(1_000_000_000);
        one.cpu = Some((Nanos(user_ms * 1_000_000), Nanos(kernel_ms * 1_000_000)));
        if let Measured::Known(view) = &mut one.server {
            view.busy = Some(Nanos(server_ms * 1_000_000));
        }
        set_rounds(&mut result, vec![one], 10_000.0);
        result
    }

    fn bound(row: StrategyResult, noop: Option<StrategyResult>) -> String {
        let mut record = empty();
        let name = row.name.clone();
        record.strategies.push(row);
        record.strategies.extend(noop);
        let found = explained(&record);
        let split = found.iter().find(|finding| finding.code == "TIME_SPLIT").unwrap();
        let mut rows = split.evidence.iter();
        let (_, of_row) = rows.find(|(key, _)| key.starts_with(&name)).unwrap();
        of_row["bound"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_bottleneck_is_named() {
        assert_eq!(
            bound(split("redis-py/persistent/tcp", 700, 200, 20), None),
            "client-bound"
        );
        assert_eq!(
            bound(split("raw/persistent/tcp", 100, 200, 20), None),
            "waits for replies"
        );
        assert_eq!(
            bound(split("raw/persistent/tcp", 100, 200, 800), None),
            "server-bound"
        );
        let mut noop = split("noop/none/local", 900, 0, 0);
        set_rounds(
            &mut noop,
            vec![crate::record::Round {
                ops: Ops(15_000),
                elapsed: Nanos(1_000_000_000),
                cpu: Some((Nanos(900_000_000), Nanos(0))),
                ..round(1, 1, 1)
            }],
            15_000.0,
        );
        assert_eq!(
            bound(split("redis-py/persistent/tcp", 700, 200, 20), Some(noop)),
            "harness-bound"
        );
    }

    #[test]
    fn the_parts_and_the_rest_are_the_whole() {
        let mut sleeper = split("phpredis/persistent/tcp", 50, 50, 10);
        set_call_time(&mut sleeper, "clock_nanosleep", Nanos(900));
        set_call_time(&mut sleeper, "recvfrom", Nanos(100));
        let mut record = empty();
        record.strategies = vec![
            split("redis-py/persistent/tcp", 700, 200, 20),
            sleeper,
            // More CPU time than the round was long.
            split("raw/persistent/tcp", 600, 500, 20),
        ];
        let splits = splits(&record);
        assert_eq!(splits.len(), 3);
        for (_, split, _) in &splits {
            let sum = split.user + split.kernel + split.for_server + split.for_else + split.rest();
            assert!((sum - split.wall).abs() < 1e-6 * split.wall, "{split:?}");
        }
        assert!(splits[0].1.rest().abs() < 1e-6 && splits[2].1.rest() < -9_000.0);
        let found = explained(&record);
        let says = &found.iter().find(|one| one.code == "TIME_SPLIT").unwrap().says;
        assert!(
            says.contains("client-bound: redis-py/persistent/tcp, raw/persistent/tcp; "),
            "{says}"
        );
    }

    #[test]
    fn user_and_kernel_time_have_the_digits_of_their_clock() {
        // 10,000 operations: a tick of 10 ms is a microsecond of each.
        let of = |row: StrategyResult| {
            let mut record = empty();
            record.strategies.push(row);
            let found = explained(&record);
            let split = splits(&record)[0].1;
            let evidence = found
                .into_iter()
                .find(|one| one.code == "TIME_SPLIT")
                .unwrap()
                .evidence;
            (split, evidence.into_values().next().unwrap())
        };
        let (split, evidence) = of(split("raw/persistent/tcp", 123, 241, 20));
        assert_eq!(split.place(), Some(1_000));
        assert_eq!(
            (&evidence["cpu_us"], &evidence["user_us"], &evidence["kernel_us"]),
            (&json!(36.4), &json!(12.0), &json!(24.0))
        );
        // A tick and a half is no split.
        let (split, evidence) = of(super::tests::split("raw/persistent/tcp", 9, 6, 20));
        assert_eq!(split.place(), None);
        assert_eq!(
            (&evidence["cpu_us"], &evidence["user_us"], &evidence["kernel_us"]),
            (&json!(1.5), &json!(null), &json!(null))
        );
    }

    #[test]
    fn rows_that_are_no_result_have_no_split() {
        for status in [Status::Failed, Status::Unverified] {
            let mut record = empty();
            let mut row = split("raw/persistent/tcp", 123, 241, 20);
            row.status = status;
            record.strategies.push(row);
            assert!(splits(&record).is_empty(), "{status:?}");
        }
    }

    #[test]
    fn waiting_for_sleeps_is_not_waiting_for_the_server() {
        let mut sleeper = split("phpredis/persistent/tcp", 50, 50, 10);
        set_call_time(&mut sleeper, "clock_nanosleep", Nanos(900));
        set_call_time(&mut sleeper, "recvfrom", Nanos(100));
        assert_eq!(bound(sleeper, None), "waits for something else than the server");
    }

    #[test]
    fn short_runs_and_unread_cpu_times_have_no_split() {
        let mut record = empty();
        record.strategies.push(row("raw/persistent/tcp"));
        assert_eq!(explained(&record), []);
    }
}
