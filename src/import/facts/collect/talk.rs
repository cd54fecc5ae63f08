//! What goes over connections: sends, receives, and the turns they make.

use std::hash::BuildHasher;

use super::super::fds::{Kind, PeerId, Role, address};
use super::super::{LogFacts, MOST_EXAMPLES, Repeat, args, payload};
use super::{Call, Class, Collector, add_time, count, max_time, positive};
use crate::import::{number, text};
use crate::units::Nanos;

/// Around Linux's shortest delayed ACK.
const ACK_WAIT: std::ops::RangeInclusive<u64> = 38_000_000..=50_000_000;

impl Collector {
    /// Whether a call on a descriptor moves data of a connection; finds sockets by what they carry.
    pub(super) fn is_talk(&mut self, call: &Call<'_>, table: usize, fd: u64) -> bool {
        let socket_call = matches!(call.class, Class::Send | Class::Receive);
        let Some(state) = self.tables.of(table, fd) else {
            self.facts.truncated = true;
            return false;
        };
        match state.kind {
            Kind::Stream => true,
            Kind::Datagram | Kind::Local | Kind::Epoll => false,
            Kind::Unknown if socket_call => {
                state.kind = Kind::Stream;
                true
            }
            Kind::Unknown if fd <= 2 => false,
            Kind::Unknown => {
                payload::strings(call.args, &mut self.payload);
                let talk = payload::commands(&self.payload, |_, _| {}).commands > 0;
                if talk {
                    state.kind = Kind::Stream;
                }
                talk
            }
        }
    }

    pub(super) fn send(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        if self
            .tables
            .get(table, fd)
            .is_some_and(|f| f.kind == Kind::Datagram)
        {
            self.datagram(call, table, fd);
            return;
        }
        if !self.is_talk(call, table, fd) {
            return;
        }
        let Some(peer_id) = self.socket_peer(table, fd) else {
            return;
        };
        if let Some(errno) = call.errno {
            if let (Some(peer), true) = (self.peer(peer_id), errno != "EAGAIN") {
                count(&mut peer.errors, errno);
            }
            return;
        }
        let bytes = positive(call.ret).unwrap_or(0);
        let mut buffer = std::mem::take(&mut self.payload);
        let cut = payload::strings(call.args, &mut buffer);
        let wait_clock = self.threads.get(call.pid).map_or(0, |t| t.wait_clock);
        let slept = self.threads.get_mut(call.pid).and_then(|t| t.slept.take());
        let Some(state) = self.tables.of(table, fd) else {
            return;
        };
        let server = state.role == Role::Server || state.accepted;
        let mut commands = 0;
        if server {
            if let Some(reply) = payload::error_reply(&buffer) {
                count(&mut self.facts.error_replies, &text::shown(reply, 60));
            }
        } else {
            let last_command = &mut state.last_command;
            let (facts, hash) = (&mut self.facts, &self.hash);
            let found = payload::commands(&buffer, |name, argument| {
                count(&mut facts.commands.sent, name);
                let hash = hash.hash_one((name, argument));
                if let (true, Some(slept)) = (hash == *last_command, slept) {
                    note_repeat(facts, name, argument, slept);
                }
                *last_command = hash;
            });
            commands = found.commands;
            if commands > 0 {
                state.role = Role::Client;
                self.facts.commands.cut_payloads += u64::from(cut);
            }
        }
        state.sends += 1;
        state.commands = state.commands.saturating_add(commands);
        state.carried = state.carried.saturating_add(commands);
        let end = call.at.map(|at| at.saturating_add(call.took.unwrap_or(0)));
        state.sent_at = end;
        state.wait_mark = wait_clock;
        state.data_out = true;
        state.connecting = false;
        state.reported = false;
        state.spin = 0;
        let tcp_made_here = state.made_here && !state.accepted;
        let missing_nodelay = tcp_made_here && !state.nodelay && !state.noted_without_nodelay;
        state.noted_without_nodelay |= missing_nodelay;
        let depth = state.commands;
        self.payload = buffer;
        if let Some(peer) = self.peer(peer_id) {
            peer.sends = peer.sends.saturating_add(1);
            peer.sent_bytes = peer.sent_bytes.saturating_add(bytes);
            peer.largest_send = peer.largest_send.max(bytes);
            peer.commands = peer.commands.saturating_add(commands);
            peer.deepest_pipeline = peer.deepest_pipeline.max(depth);
            peer.without_nodelay += u64::from(missing_nodelay && !peer.unix);
        }
    }

    /// Queries: only the peer, its sends and the waits for it matter.
    pub(super) fn datagram(&mut self, call: &Call<'_>, table: usize, fd: u64) {
        let named = address(args::nth(call.args, 4)).or_else(|| {
            let at = memchr::memmem::find(call.args, b"msg_name={")?;
            address(&call.args[at + 9..])
        });
        let peer = match &named {
            Some(address) => self.peer_of(address),
            None => self.tables.get(table, fd).and_then(|f| f.peer),
        };
        let Some(peer) = peer else { return };
        if let Some(state) = self.tables.get(table, fd) {
            state.peer = Some(peer);
            state.sends += 1;
        }
        if let Some(peer) = self.peer(peer) {
            // sendmmsg sends several at once (an A and an AAAA query).
            let messages = if &**call.name == "sendmmsg" {
                positive(call.ret).unwrap_or(1)
            } else {
                1
            };
            peer.sends = peer.sends.saturating_add(messages);
        }
    }

    pub(super) fn receive(&mut self, call: &Call<'_>) {
        let Some((table, fd)) = self.first_fd(call) else {
            return;
        };
        if let (Some(state), Some(0..)) = (self.tables.get(table, fd), call.ret)
            && state.kind == Kind::Datagram
        {
            state.sends = 0;
            let peer = state.peer;
            if let Some(peer) = peer.and_then(|id| self.peer(id)) {
                peer.receives += 1;
            }
            return;
        }
        if !self.is_talk(call, table, fd) {
            if let (Some(state), true) = (self.tables.get(table, fd), call.errno.is_none()) {
                state.reported = false;
                state.spin = 0;
            }
            return;
        }
        let Some(peer_id) = self.socket_peer(table, fd) else {
            return;
        };
        let peek = call.class == Class::Receive && text::contains(call.args, "MSG_PEEK");
        match (call.ret, call.errno) {
            (_, Some("EAGAIN")) => self.nothing_there(table, fd, peer_id, peek),
            (_, Some(errno)) => {
                if let Some(peer) = self.peer(peer_id) {
                    count(&mut peer.errors, errno);
                }
            }
            (Some(0), None) => self.end_of_stream(table, fd, peer_id, peek),
            (Some(n @ 1..), None) => {
                if peek {
                    if let Some(peer) = self.peer(peer_id) {
                        peer.peeks += 1;
                    }
                } else {
                    self.data(call, table, fd, peer_id, n.unsigned_abs());
                }
            }
            (_, None) => {}
        }
    }

    pub(super) fn nothing_there(&mut self, table: usize, fd: u64, peer_id: PeerId, peek: bool) {
        let mut streak = 0;
        if let Some(state) = self.tables.get(table, fd) {
            if std::mem::take(&mut state.reported) {
                state.spin += 1;
            }
            if !peek {
                state.eagain_streak += 1;
                streak = state.eagain_streak;
            }
        }
        if streak > 1 {
            // The first of a row is the end of a drain; from the second on nobody waited.
            self.facts.eagain_streak = self.facts.eagain_streak.max(streak);
        }
        if let Some(peer) = self.peer(peer_id) {
            if peek {
                peer.peeks += 1;
                peer.eagain_peeks += 1;
            } else {
                peer.eagain_receives += 1;
            }
        }
    }

    pub(super) fn end_of_stream(&mut self, table: usize, fd: u64, peer_id: PeerId, peek: bool) {
        let Some(state) = self.tables.get(table, fd) else {
            return;
        };
        let first = !std::mem::replace(&mut state.ended, true);
        let idle = peek || state.sends == 0;
        if let Some(peer) = self.peer(peer_id) {
            peer.peeks += u64::from(peek);
            if first {
                peer.closed_by_peer += 1;
                peer.closed_idle += u64::from(idle);
            }
        }
    }

    pub(super) fn data(&mut self, call: &Call<'_>, table: usize, fd: u64, peer_id: PeerId, bytes: u64) {
        let wait_clock = self.threads.get(call.pid).map_or(0, |t| t.wait_clock);
        let mut buffer = std::mem::take(&mut self.payload);
        let cut = payload::strings(call.args, &mut buffer);
        let Some(state) = self.tables.get(table, fd) else {
            self.payload = buffer;
            return;
        };
        state.data_in = true;
        state.reported = false;
        state.spin = 0;
        state.eagain_streak = 0;
        let server = state.role == Role::Server || (state.role == Role::Unknown && state.sends == 0);
        let mut commands = 0;
        if server {
            let facts = &mut self.facts;
            commands =
                payload::commands(&buffer, |name, _| count(&mut facts.commands.received, name)).commands;
            if commands > 0 {
                state.role = Role::Server;
                state.carried = state.carried.saturating_add(commands);
                self.facts.commands.cut_payloads += u64::from(cut);
            }
        } else if let Some(reply) = payload::error_reply(&buffer) {
            count(&mut self.facts.error_replies, &text::shown(reply, 60));
        }
        let turn = (state.sends > 0 && state.role != Role::Server).then(|| {
            let wait = match (call.at, state.sent_at) {
                (Some(at), Some(sent)) => {
                    Some(at.saturating_add(call.took.unwrap_or(0)).saturating_sub(sent))
                }
                _ if call.took.is_some() => Some(wait_clock.saturating_sub(state.wait_mark)),
                _ => None,
            };
            (state.sends, wait)
        });
        if turn.is_some() && state.role == Role::Unknown {
            state.carried = state.carried.saturating_add(1);
        }
        state.sends = 0;
        state.commands = 0;
        self.payload = buffer;
        let full = bytes >= 4096 && {
            let asked = args::value(args::nth(call.args, 2));
            number::int(asked).and_then(|n| u64::try_from(n).ok()) == Some(bytes)
        };
        if let Some(peer) = self.peer(peer_id) {
            peer.receives += 1;
            peer.received_bytes = peer.received_bytes.saturating_add(bytes);
            peer.commands = peer.commands.saturating_add(commands);
            if full {
                peer.full_receives += 1;
                peer.full_buffer = peer.full_buffer.max(bytes);
            }
            if let Some((sends, wait)) = turn {
                peer.turns += 1;
                peer.turns_with_several_sends += u64::from(sends > 1);
                peer.most_sends_in_turn = peer.most_sends_in_turn.max(sends);
                if let Some(wait) = wait {
                    peer.timed_turns += 1;
                    add_time(&mut peer.turn_wait, wait);
                    max_time(&mut peer.longest_turn_wait, wait);
                    if ACK_WAIT.contains(&wait) {
                        if sends > 1 {
                            peer.ack_waits_after_several += 1;
                        } else {
                            peer.ack_waits_after_one += 1;
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn note_repeat(facts: &mut LogFacts, name: &str, argument: &[u8], slept: u64) {
    let key = format!("{name} {}", text::shown(argument, 40));
    if !facts.repeats.contains_key(&key) && facts.repeats.len() >= MOST_EXAMPLES {
        return;
    }
    let repeat = facts.repeats.entry(key).or_insert_with(|| Repeat {
        equal: true,
        sleep: Nanos(slept),
        times: 0,
    });
    repeat.times += 1;
    repeat.equal &= repeat.sleep.0.abs_diff(slept) <= slept / 20;
    repeat.sleep = Nanos(slept);
}
