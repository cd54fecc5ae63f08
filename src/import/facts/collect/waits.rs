//! What threads wait for, and how long.

use std::collections::BTreeMap;

use super::super::fds::{Fd, Kind};
use super::super::{MOST_EXAMPLES, Spin, Wait, args};
use super::{Call, Class, Collector, MOST_KEYS, add_time, max_time};
use crate::import::{number, text};
use crate::units::Nanos;

/// Shortest wait worth keeping as an example.
const LONG: u64 = 20_000_000;

impl Collector {
    pub(super) fn poll(&mut self, call: &Call<'_>) {
        let Some(table) = self.table(call.pid) else {
            return;
        };
        let (fd, events) = waited_for(call);
        let timeout = wait_timeout(call);
        let nothing = call.ret == Some(0);
        if let Some(thread) = self.threads.get_mut(call.pid) {
            if timeout == Some(0) && nothing {
                thread.empty_polls += 1;
                self.facts.empty_poll_streak = self.facts.empty_poll_streak.max(thread.empty_polls);
            } else {
                thread.empty_polls = 0;
            }
            if call.class == Class::EpollWait
                && let Some((epoll, 2)) = thread.epoll_check
                && args::fd(args::first(call.args).0) == Some(epoll)
                && timeout == Some(0)
            {
                thread.epoll_check = Some((epoll, 3));
            }
        }
        if let (true, Some(ms)) = (nothing, timeout.filter(|ms| *ms > 0)) {
            *small_slot(&mut self.facts.timed_out, ms) += 1;
        }
        let Some(fd) = fd else { return };
        self.saw_fd(fd);
        // What is reported is looked at only for sockets, and epoll's user data need not be a descriptor.
        let known = self
            .tables
            .get(table, fd)
            .is_some_and(|f| matches!(f.kind, Kind::Stream | Kind::Datagram));
        let failed_spin = call.ret.is_some_and(|n| n > 0);
        if !(known || failed_spin && call.class == Class::EpollWait) {
            return;
        }
        let Some(state) = self.tables.of(table, fd) else {
            return;
        };
        let mut connected_in = None;
        if failed_spin {
            if state.reported && state.kind == Kind::Stream {
                // Reported again, and nobody sent or received in between.
                state.spin += 1;
            }
            state.reported = true;
            state.eagain_streak = 0;
            if std::mem::take(&mut state.connecting) {
                let end = call.at.map(|at| at.saturating_add(call.took.unwrap_or(0)));
                connected_in = end
                    .zip(state.connect_at)
                    .map(|(end, begin)| end.saturating_sub(begin))
                    .or(call.took);
            }
        } else if timeout.is_some_and(|ms| ms > 0) {
            state.eagain_streak = 0;
        }
        let spin = state.spin;
        let peer = state.peer;
        if spin >= 2 && failed_spin {
            note_spin(&mut self.facts.spins, fd, call.name, events, spin + 1);
        }
        if let Some(peer) = peer.and_then(|id| self.peer(id)) {
            peer.readiness_checks += u64::from(timeout == Some(0));
            if let (true, Some(ms)) = (nothing, timeout.filter(|ms| *ms > 0)) {
                *small_slot(&mut peer.timed_out, ms) += 1;
            }
            if let Some(connected_in) = connected_in {
                max_time(&mut peer.longest_connect, connected_in);
            }
        }
    }

    pub(super) fn end_spin(&mut self, state: &Fd, fd: u64) {
        if let (true, Some(spin)) = (state.spin >= 2, self.facts.spins.iter_mut().find(|s| s.fd == fd)) {
            spin.repeats = spin.repeats.max(state.spin);
        }
    }

    pub(super) fn sleep(&mut self, call: &Call<'_>) {
        let asked = args::timespec(call.args);
        let length = call.took.or(asked);
        let Some(length) = length else { return };
        if let Some(thread) = self.threads.get_mut(call.pid) {
            thread.slept = Some(asked.unwrap_or(length));
        }
        // By what was asked for: what the clock made of it differs each time.
        let micros = asked.unwrap_or(length) / 1_000;
        if let Some(n) = self.sleeps.get_mut(&micros) {
            *n += 1;
        } else if self.sleeps.len() < 256 {
            self.sleeps.insert(micros, 1);
        }
    }

    pub(super) fn futex(&mut self, call: &Call<'_>) {
        let futex = &mut self.facts.futex;
        if text::contains(call.args, "FUTEX_WAIT") || text::contains(call.args, "FUTEX_LOCK") {
            futex.waits += 1;
            futex.too_late += u64::from(call.errno == Some("EAGAIN"));
            if let Some(took) = call.took {
                add_time(&mut futex.time, took);
            }
        } else {
            futex.wakes += 1;
        }
    }

    pub(super) fn keep_wait(&mut self, call: &Call<'_>) {
        if call.took.is_some_and(|took| took < LONG) || (call.took.is_none() && call.at.is_none()) {
            return;
        }
        let fd = match call.class {
            Class::Poll | Class::Select | Class::EpollWait => waited_for(call).0,
            Class::Connect | Class::Accept | Class::Receive => args::fd(args::first(call.args).0),
            _ => None,
        };
        let table = self.threads.get(call.pid).and_then(|t| t.table);
        let peer = fd
            .zip(table)
            .and_then(|(fd, table)| self.tables.get(table, fd))
            .and_then(|f| f.peer)
            .and_then(|id| self.peers.get(id))
            .map(|(name, _)| name.clone())
            .unwrap_or_default();
        let wait = Wait {
            call: call.name.to_string(),
            peer,
            length: Nanos(call.took.unwrap_or(0)),
            timeout_ms: wait_timeout(call),
            in_vain: call.ret == Some(0)
                && matches!(call.class, Class::Poll | Class::Select | Class::EpollWait)
                || call.errno == Some("ETIMEDOUT"),
            line: call.line,
        };
        match (call.took, call.at) {
            (Some(_), _) => keep(&mut self.facts.waits, wait),
            (None, Some(at)) => {
                if let Some(thread) = self.threads.get_mut(call.pid) {
                    thread.open_wait = Some((at, wait));
                }
            }
            (None, None) => {}
        }
    }
}

/// Keeps the longest waits.
pub(super) fn keep(waits: &mut Vec<Wait>, wait: Wait) {
    if wait.length.0 < LONG {
        return;
    }
    let at = waits.partition_point(|have| have.length >= wait.length);
    if at < MOST_EXAMPLES {
        waits.insert(at, wait);
        waits.truncate(MOST_EXAMPLES);
    }
}

pub(super) fn note_spin(spins: &mut Vec<Spin>, fd: u64, call: &str, events: &[u8], repeats: u64) {
    let events = || text::shown(events, 40);
    let room = spins.len() < MOST_EXAMPLES;
    match spins.iter_mut().find(|spin| spin.fd == fd) {
        Some(spin) if spin.repeats < repeats => {
            spin.repeats = repeats;
            spin.events = events();
        }
        Some(_) => {}
        None if room => spins.push(Spin {
            fd,
            call: call.to_owned(),
            events: events(),
            repeats,
        }),
        None => {}
    }
}

pub(super) fn small_slot(map: &mut BTreeMap<u64, u64>, key: u64) -> &mut u64 {
    let key = if map.contains_key(&key) || map.len() < MOST_KEYS {
        key
    } else {
        u64::MAX
    };
    map.entry(key).or_default()
}

/// The first descriptor a wait is about (what was reported, else what was asked for), and the events
/// reported for it.
pub(super) fn waited_for<'a>(call: &Call<'a>) -> (Option<u64>, &'a [u8]) {
    let in_braces = |text: &'a [u8]| -> Option<u64> {
        // The end is that of a list entry, or of the decoration that -y adds.
        args::between(text, "{fd=", b",}<")
            .and_then(number::int)
            .and_then(|n| u64::try_from(n).ok())
    };
    match call.class {
        Class::Poll => {
            let reported = in_braces(call.tail);
            let events = args::between(call.tail, "revents=", b"},").unwrap_or(&[]);
            (reported.or_else(|| in_braces(call.args)), events)
        }
        Class::Select => {
            let list = args::between(call.tail, "[", b" ]").or_else(|| args::between(call.args, "[", b" ]"));
            (list.and_then(args::fd), &[])
        }
        Class::EpollWait => {
            let (_, rest) = args::first(call.args);
            let (list, _) = args::first(rest);
            let fd = args::number_after(list, "u32=").or_else(|| args::number_after(list, "data="));
            (
                fd.filter(|n| *n < 1 << 20),
                args::between(list, "events=", b",}").unwrap_or(&[]),
            )
        }
        _ => (None, &[]),
    }
}

/// The time-out of a wait in milliseconds; `None` for ever, or when it is not shown.
pub(super) fn wait_timeout(call: &Call<'_>) -> Option<u64> {
    let ms = |arg: &[u8]| number::int(args::value(arg)).and_then(|n| u64::try_from(n).ok());
    let spec = |arg: &[u8]| args::timespec(arg).map(|nanos| nanos / 1_000_000);
    match call.class {
        Class::Poll => {
            let arg = args::nth(call.args, 2);
            spec(arg).or_else(|| ms(arg))
        }
        Class::Select => spec(args::nth(call.args, 4)),
        Class::EpollWait => {
            let arg = args::nth(call.args, 3);
            spec(arg).or_else(|| ms(arg))
        }
        _ => None,
    }
}
