//! What a call did to a descriptor: data that went through it, a connection that was begun, and where it leads.

use std::time::Instant;

use super::calls::Return;
use super::counts::Slot;
use super::descriptors::{Nagle, Owner};
use super::memory;
use super::peers::{Peers, address_name};
use super::roles::Role;
use super::state::InCall;
use super::tracing::Tracing;
use crate::sys::ptrace::Stopped;
use crate::tally::Errno;

impl Tracing {
    /// Data went through a descriptor, or should have.
    pub(super) fn moved(
        &mut self,
        stopped: &Stopped,
        call: InCall,
        result: Return,
        owner: Owner,
        now: Instant,
    ) {
        let Some(flow) = moves(call.role) else { return };
        let Some(at) = call.slot else { return };
        if result.error == Some(Errno(libc::EBADF)) {
            return;
        }
        let Some(tracee) = self.tracees.get(&owner.tid.as_raw()) else {
            return;
        };
        let counts = &mut self.counts;
        let peek = flow
            .flags
            .is_some_and(|flags| call.args[flags] & libc::MSG_PEEK as u64 != 0);
        let moved = result.count().map(|value| match call.role {
            Role::SendMany | Role::ReceiveMany if call.native => message_bytes(stopped, call.args[1], value),
            Role::SendMany | Role::ReceiveMany => 0,
            _ => value,
        });
        if let Some(bytes) = moved {
            let slot: &mut Slot = counts.slot(at);
            if peek {
                slot.peeks += 1;
            } else {
                slot.bytes += bytes;
            }
        }
        let mut first = true;
        for (argument, direction) in [(flow.out, Direction::Out), (flow.into, Direction::In)] {
            let Some(argument) = argument else { continue };
            let fd = call.args[argument] as i32;
            let found = self.descriptors.resolve(tracee.table, fd, owner, &mut self.peers);
            let Some(descriptor) = found else { continue };
            if std::mem::take(&mut first) {
                counts.slot(at).led_to(descriptor.peer);
            }
            let (true, Some(value)) = (descriptor.socket, result.count()) else {
                continue;
            };
            let phase = counts.phase(at.phase());
            match direction {
                // An empty datagram is a send too; `sendfile` of an empty rest is not.
                Direction::Out if value > 0 || flow.message => {
                    phase.sends += 1;
                    descriptor.sends = descriptor.sends.saturating_add(1);
                    descriptor.sent_at = Some(now);
                }
                Direction::In if value > 0 && !peek => {
                    phase.receives += 1;
                    if matches!(call.role, Role::Read | Role::Receive) && value == call.args[2] {
                        phase.filled(value);
                    }
                    let sends = std::mem::take(&mut descriptor.sends);
                    if let (1.., Some(sent)) = (sends, descriptor.sent_at) {
                        phase.round_trips += 1;
                        phase.turn(
                            sends,
                            now.saturating_duration_since(sent).into(),
                            descriptor.nagle,
                        );
                    }
                }
                Direction::Out | Direction::In => {}
            }
        }
    }

    /// A connection was begun, or could not be.
    pub(super) fn connected(&mut self, stopped: &Stopped, call: InCall, result: Return, owner: Owner) {
        let Some(tracee) = self.tracees.get(&owner.tid.as_raw()) else {
            return;
        };
        let counts = &mut self.counts;
        let mut bytes = [0; 128];
        let length = usize::try_from(call.args[2])
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let n = memory::read(stopped, call.args[1], &mut bytes[..length]);
        let name = address_name(&bytes[..n]);
        let begun = match result.error {
            None => true,
            Some(errno) => errno == Errno(libc::EINPROGRESS),
        };
        let fd = call.args[0] as i32;
        let found = self
            .descriptors
            .socket_for_connect(tracee.table, fd, owner, &mut self.peers);
        let Some(descriptor) = found else { return };
        let peer = match &name {
            Some(name) => self.peers.id(name),
            None => Peers::SOCKET,
        };
        if begun {
            // Without an address the call dissolves a connection.
            let new = name.is_some() && !descriptor.connected;
            descriptor.lead_to(peer, name.is_some());
            if let (true, true, Some(at)) = (new, descriptor.stream, call.slot) {
                counts.phase(at.phase()).connects += 1;
            }
        }
        if let Some(at) = call.slot {
            counts.slot(at).led_to(peer);
        }
    }

    /// A call on a socket that moves nothing.
    pub(super) fn led(&mut self, stopped: &Stopped, call: InCall, result: Return, owner: Owner) {
        let Some(at) = call.slot else { return };
        if result.error == Some(Errno(libc::EBADF)) {
            return;
        }
        let Some(tracee) = self.tracees.get(&owner.tid.as_raw()) else {
            return;
        };
        let fd = call.args[0] as i32;
        let found = self.descriptors.resolve(tracee.table, fd, owner, &mut self.peers);
        if let Some(descriptor) = found {
            let option = (call.args[1], call.args[2]);
            if call.role == Role::SetOption
                && result.error.is_none()
                && option == (libc::IPPROTO_TCP as u64, libc::TCP_NODELAY as u64)
                && let Some(value) = memory::read_array(stopped, call.args[3])
            {
                descriptor.nagle = if i32::from_ne_bytes(value) == 0 {
                    Nagle::On
                } else {
                    Nagle::Off
                };
            }
            self.counts.slot(at).led_to(descriptor.peer);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// Where a data call has its descriptors and flags.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    into: Option<usize>,
    out: Option<usize>,
    flags: Option<usize>,
    message: bool,
}

pub(super) fn moves(role: Role) -> Option<Flow> {
    let none = Flow {
        into: None,
        out: None,
        flags: None,
        message: false,
    };
    match role {
        Role::Read | Role::ReadOther => Some(Flow {
            into: Some(0),
            ..none
        }),
        Role::Write | Role::WriteVector | Role::WriteOther => Some(Flow { out: Some(0), ..none }),
        Role::Send | Role::SendMessage | Role::SendMany => Some(Flow {
            out: Some(0),
            message: true,
            ..none
        }),
        Role::Receive | Role::ReceiveMany => Some(Flow {
            into: Some(0),
            flags: Some(3),
            ..none
        }),
        Role::ReceiveMessage => Some(Flow {
            into: Some(0),
            flags: Some(2),
            ..none
        }),
        Role::SendFile => Some(Flow {
            out: Some(0),
            into: Some(1),
            ..none
        }),
        Role::Splice => Some(Flow {
            into: Some(0),
            out: Some(2),
            ..none
        }),
        Role::Plain
        | Role::Socket
        | Role::Connect
        | Role::Accept
        | Role::SocketControl
        | Role::SetOption
        | Role::Wait(_)
        | Role::WaitAt(_)
        | Role::Close
        | Role::Duplicate
        | Role::CloseRange
        | Role::Unshare
        | Role::Clone
        | Role::Clone3
        | Role::Fork
        | Role::Exec
        | Role::GetAffinity
        | Role::SetAffinity
        | Role::Ptrace
        | Role::SignalReturn
        | Role::Exit
        | Role::ExitGroup
        | Role::IoUring
        | Role::Confine => None,
    }
}

/// The bytes of the messages that `sendmmsg` or `recvmmsg` moved: the 64-bit `struct mmsghdr` is 64 bytes
/// long and has the length at offset 56.
fn message_bytes(stopped: &Stopped, list: u64, messages: u64) -> u64 {
    // UIO_MAXIOV bounds the list.
    (0..messages.min(1024))
        .filter_map(|i| memory::read_array(stopped, list.wrapping_add(i * 64 + 56)))
        .map(|length| u64::from(u32::from_ne_bytes(length)))
        .sum()
}
