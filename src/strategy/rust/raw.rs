//! The floor: for each batch one send and one receive, and nothing else.
//!
//! A batch lies ready in memory as it goes over the wire; only the ten digits of each key change.
//! Replies are compared where they arrive. Nothing is allocated in the window unless a reply is wrong.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::RustClient;
use super::failure::{Fail, Failure, Failures};
use super::harness::Worker;
use super::job::{Command, Job};
use super::resp::{self, Frame, Reply};
use super::round::{Batch, Round};
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Endpoint, Spec};

mod link;
use link::Link;

pub(super) const CLIENT: RustClient = RustClient {
    name: "raw",
    description: "the floor: prepared bytes, one send and one receive per batch",
    version: env!("CARGO_PKG_VERSION"),
    modes,
    set_up,
};

fn modes() -> Vec<Mode> {
    let mode = |name: &str, pipeline, description: &str| Mode {
        name: name.to_owned(),
        connect: Connect::Once,
        pipeline,
        depth_when_asked: !pipeline,
        default: !pipeline,
        demonstration: false,
        options: BTreeMap::new(),
        description: description.to_owned(),
    };
    vec![
        mode("persistent", false, "one connection, one operation at a time"),
        mode("pipeline", true, "one connection, operations in pipelines"),
    ]
}

/// Memory that a prepared batch may take.
const MAX_BATCH: usize = 1 << 30;

/// Bytes asked for in one receive, at least.
const INBOX: usize = 64 << 10;

fn set_up(spec: &Spec) -> Result<Box<dyn Worker>, Fail> {
    let job = Job::new(spec, &[Connect::Once])?;
    let mut link = open(&job.server).map_err(|why| Fail::connect(&job.server, &why))?;
    store(&job, &mut link)?;
    Ok(Box::new(Raw {
        outbox: Outbox::new(&job, spec)?,
        inbox: Inbox::new(&job, spec),
        expected: Expected::new(&job.payload),
        link: Some(link),
        job,
    }))
}

/// Connects, logs in if there is a password, and asks whether the server answers: some refusals (too
/// many clients, no login) come with the first command only.
fn open(server: &Endpoint) -> Result<Link, Failure> {
    let mut link = Link::connect(server).map_err(|e| Failure::io("connect", &e))?;
    if let (user, Some(password)) = server.credentials() {
        let args = [Some("AUTH"), user, Some(password)];
        let args: Vec<&[u8]> = args.into_iter().flatten().map(str::as_bytes).collect();
        ask(&mut link, &args, b"OK")?;
    }
    ask(&mut link, &[b"PING"], b"PONG")?;
    Ok(link)
}

/// One command outside the window, with the status it must be answered by.
fn ask(link: &mut Link, args: &[&[u8]], status: &[u8]) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    resp::encode(&mut bytes, args);
    link.write_all(&bytes).map_err(|e| Failure::io("send", &e))?;
    let mut inbox = Inbox {
        buffer: vec![0; INBOX],
        start: 0,
        end: 0,
    };
    loop {
        match resp::frame(inbox.unread()) {
            Frame::Whole(Reply::Simple(words), _) if words == status => return Ok(()),
            Frame::Whole(Reply::Error(words), _) => {
                return Err(Failure::server(&String::from_utf8_lossy(words)));
            }
            Frame::Part { need } => inbox.receive(link, need)?,
            Frame::Whole(..) | Frame::Broken => return Err(not_redis()),
        }
    }
}

/// Stores what GETs will read.
fn store(job: &Job, link: &mut Link) -> Result<(), Fail> {
    let failed = |why: Failure| Fail::config(format!("storing the keys to read: {}", why.message));
    for keys in job.to_store() {
        let mut args: Vec<&[u8]> = vec![b"MSET"];
        for key in keys {
            args.extend([key.as_bytes(), &job.payload]);
        }
        ask(link, &args, b"OK").map_err(failed)?;
    }
    Ok(())
}

fn not_redis() -> Failure {
    Failure {
        class: "receive",
        message: "the reply is not one of a Redis server".to_owned(),
        last: true,
    }
}

struct Raw {
    job: Job,
    /// `None` after a failure of the connection.
    link: Option<Link>,
    outbox: Outbox,
    inbox: Inbox,
    expected: Expected,
}

impl Worker for Raw {
    fn run(&mut self, round: &mut Round) {
        round.drive(|batch, failures| self.step(batch, failures));
    }
}

impl Raw {
    fn step(&mut self, batch: Batch, failures: &mut Failures) {
        if let Err((why, replies)) = self.exchange(batch, failures) {
            failures.add(&why, batch.count - replies);
            // What is still on its way belongs to this batch: the connection is of no more use. The next
            // round may try a new one, once.
            self.link = None;
            self.inbox.clear();
        }
    }

    /// Sends a batch and checks its replies. An error ends the connection and comes with the number of
    /// replies before it.
    fn exchange(&mut self, batch: Batch, failures: &mut Failures) -> Result<(), (Failure, usize)> {
        let link = match &mut self.link {
            Some(link) => link,
            gone => gone.insert(open(&self.job.server).map_err(|why| (as_last(why), 0))?),
        };
        let bytes = self.outbox.prepare(batch);
        link.write_all(bytes)
            .map_err(|e| (Failure::io("send", &e), 0))?;
        let mut replies = 0;
        while replies < batch.count {
            let command = self.job.command(batch.first + replies as u64);
            match self.expected.judge(self.inbox.unread(), command) {
                Judged::Right(length) => self.inbox.start += length,
                Judged::Wrong(length, failure) => {
                    failures.add(&failure, 1);
                    self.inbox.start += length;
                }
                Judged::Part { need } => {
                    self.inbox.receive(link, need).map_err(|why| (why, replies))?;
                    continue;
                }
                Judged::Broken => return Err((not_redis(), replies)),
            }
            replies += 1;
        }
        Ok(())
    }
}

/// A refusal of a new connection ends the round, whatever its kind.
fn as_last(why: Failure) -> Failure {
    Failure { last: true, ..why }
}

/// A batch as it goes over the wire.
struct Outbox {
    bytes: Vec<u8>,
    /// For each command in `bytes`: where its digits begin (none in a `PING`), and where it ends.
    slots: Vec<Slot>,
    /// The digits of each key, in the order of use.
    digits: Vec<[u8; DIGITS]>,
    ops_per_key: u64,
}

const DIGITS: usize = 10;

struct Slot {
    digits: Option<usize>,
    end: usize,
}

impl Outbox {
    fn new(job: &Job, spec: &Spec) -> Result<Outbox, Fail> {
        // SET and GET by turns: a batch can begin with either.
        let commands = u64::from(spec.batch) + job.ops_per_key() - 1;
        let mut bytes = Vec::new();
        let mut slots = Vec::new();
        for i in 0..commands {
            let command = job.command(i);
            let key = job.key(0).as_bytes();
            let before = bytes.len();
            match command {
                Command::Set => resp::encode(&mut bytes, &[b"SET", key, &job.payload]),
                Command::Get | Command::Incr => resp::encode(&mut bytes, &[command.name().as_bytes(), key]),
                Command::Ping => resp::encode(&mut bytes, &[b"PING"]),
            }
            // The key is the second argument: behind "*N\r\n", "$N\r\nNAME\r\n" and its own "$NN\r\n".
            let behind = |start: usize| {
                let lines = bytes[start..].windows(2).position(|pair| pair == b"\r\n");
                start + lines.map_or(0, |at| at + 2)
            };
            let key_start = behind(behind(behind(behind(before))));
            slots.push(Slot {
                digits: (command != Command::Ping).then(|| key_start + key.len() - DIGITS),
                end: bytes.len(),
            });
            if bytes.len() > MAX_BATCH {
                return Err(Fail::spec(format!(
                    "a batch of {} operations of {} bytes takes more than {} MiB",
                    spec.batch,
                    job.payload.len(),
                    MAX_BATCH >> 20
                )));
            }
        }
        let digits = job
            .keys
            .iter()
            .map(|key| {
                let mut digits = [b'0'; DIGITS];
                digits.copy_from_slice(&key.as_bytes()[key.len() - DIGITS..]);
                digits
            })
            .collect();
        Ok(Outbox {
            bytes,
            slots,
            digits,
            ops_per_key: job.ops_per_key(),
        })
    }

    /// The bytes of a batch.
    fn prepare(&mut self, batch: Batch) -> &[u8] {
        let keys = self.digits.len();
        let first_slot = (batch.first % self.ops_per_key) as usize;
        let mut key = (batch.first / self.ops_per_key % keys as u64) as usize;
        for slot in first_slot..first_slot + batch.count {
            if let Some(at) = self.slots[slot].digits {
                self.bytes[at..at + DIGITS].copy_from_slice(&self.digits[key]);
            }
            if (slot as u64 + 1).is_multiple_of(self.ops_per_key) {
                key = (key + 1) % keys;
            }
        }
        let start = first_slot
            .checked_sub(1)
            .map_or(0, |before| self.slots[before].end);
        &self.bytes[start..self.slots[first_slot + batch.count - 1].end]
    }
}

/// Received bytes that have not been looked at.
struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Large enough for the replies of a batch of small values, or for one large one.
    fn new(job: &Job, spec: &Spec) -> Inbox {
        let reply = job.payload.len() + 32;
        let batch = reply.saturating_mul(spec.batch as usize);
        Inbox {
            buffer: vec![0; batch.min(1 << 20).max(reply).max(INBOX)],
            start: 0,
            end: 0,
        }
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// One receive, behind what is there; `need` is how much is known to be missing.
    fn receive(&mut self, link: &mut Link, need: usize) -> Result<(), Failure> {
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
struct Expected {
    value: Vec<u8>,
}

/// What the received bytes begin with, set against what was expected.
enum Judged {
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
    fn new(payload: &[u8]) -> Expected {
        let mut value = Vec::with_capacity(payload.len() + 32);
        resp::encode_bulk(&mut value, payload);
        Expected { value }
    }

    #[inline]
    fn judge(&self, bytes: &[u8], command: Command) -> Judged {
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
