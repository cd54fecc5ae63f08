//! What is received, and what should be.

use std::io::{self, Read};

use super::link::Link;
use crate::strategy::contract::Spec;
use crate::strategy::rust::failure::Failure;
use crate::strategy::rust::job::{Command, Job};
use crate::strategy::rust::resp::{self, Frame, Reply};

/// Bytes asked for in one receive, at least.
const INBOX: usize = 64 << 10;

/// Received bytes that have not been looked at.
pub(super) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// For single replies outside of the window.
    pub(super) fn small() -> Inbox {
        Inbox {
            buffer: vec![0; INBOX],
            start: 0,
            end: 0,
        }
    }

    /// Large enough for the replies of a batch of small values, or for one large one.
    pub(super) fn new(job: &Job, spec: &Spec) -> Inbox {
        let reply = job.payload.len() + 32;
        let batch = reply.saturating_mul(spec.batch as usize);
        Inbox {
            buffer: vec![0; batch.min(1 << 20).max(reply).max(INBOX)],
            start: 0,
            end: 0,
        }
    }

    /// What has been received and not been taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes a reply of this length.
    pub(super) fn take(&mut self, length: usize) {
        self.start += length;
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// One receive, behind what is there; `need` is how much is known to be missing.
    pub(super) fn receive(&mut self, link: &mut Link, need: usize) -> Result<(), Failure> {
        if self.start == self.end {
            self.clear();
        }
        if self.end + need > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end + need > self.buffer.len() {
                self.buffer.resize(self.end + need, 0);
            }
        }
        loop {
            match link.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Failure::io("receive", &closed));
                }
                Ok(n) => {
                    self.end += n;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Failure::io("receive", &e)),
            }
        }
    }
}

/// The right replies, as bytes.
pub(super) struct Expected {
    value: Vec<u8>,
}

/// What the received bytes begin with, set against what was expected.
pub(super) enum Judged {
    /// The right reply, so long.
    Right(usize),
    /// Another one, so long.
    Wrong(usize, Failure),
    /// The beginning of a reply.
    Part { need: usize },
    /// No reply at all.
    Broken,
}

impl Expected {
    pub(super) fn new(payload: &[u8]) -> Expected {
        let mut value = Vec::with_capacity(payload.len() + 32);
        resp::encode_bulk(&mut value, payload);
        Expected { value }
    }

    #[inline]
    pub(super) fn judge(&self, bytes: &[u8], command: Command) -> Judged {
        let expected: &[u8] = match command {
            Command::Get => &self.value,
            Command::Set => b"+OK\r\n",
            Command::Ping => b"+PONG\r\n",
            Command::Incr => return judge_counter(bytes),
        };
        if bytes.starts_with(expected) {
            return Judged::Right(expected.len());
        }
        judge_other(bytes, command)
    }
}

fn judge_counter(bytes: &[u8]) -> Judged {
    match resp::frame(bytes) {
        Frame::Whole(Reply::Integer(digits), length)
            if digits.first() != Some(&b'-') && digits.iter().any(|digit| *digit != b'0') =>
        {
            Judged::Right(length)
        }
        _ => judge_other(bytes, Command::Incr),
    }
}

#[cold]
fn judge_other(bytes: &[u8], command: Command) -> Judged {
    match resp::frame(bytes) {
        Frame::Whole(Reply::Error(words), length) => {
            Judged::Wrong(length, Failure::server(&String::from_utf8_lossy(words)))
        }
        Frame::Whole(_, length) => Judged::Wrong(length, command.wrong_reply()),
        Frame::Part { need } => Judged::Part { need },
        Frame::Broken => Judged::Broken,
    }
}
