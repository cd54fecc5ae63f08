//! The floor: for each batch one send and one receive, and nothing else.
//!
//! A batch lies ready in memory as it goes over the wire; only the ten digits of each key change.
//! Replies are compared where they arrive. Nothing is allocated in the window unless a reply is wrong.

use std::collections::BTreeMap;
use std::io::Write;

use super::RustClient;
use super::failure::{Fail, Failure, Failures};
use super::harness::Worker;
use super::job::Job;
use super::resp::{self, Frame, Reply};
use super::round::{Batch, Round};
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Endpoint, Spec, Transport};

mod inbox;
mod link;
mod outbox;

use inbox::{Expected, Inbox, Judged};
use link::Link;
use outbox::Outbox;

pub(super) const CLIENT: RustClient = RustClient {
    name: "raw",
    description: "the floor: prepared bytes, one send and one receive per batch",
    version: env!("CARGO_PKG_VERSION"),
    built_by: None,
    transports: &Transport::SOCKETS,
    modes,
    set_up,
};

fn modes() -> Vec<Mode> {
    let mode = |name: &str, pipeline, description: &str| Mode {
        name: name.to_owned(),
        connect: Connect::Once,
        store: None,
        transports: Vec::new(),
        pipeline,
        depth_when_asked: !pipeline,
        forks: false,
        default: !pipeline,
        ops: Vec::new(),
        demonstration: false,
        options: BTreeMap::new(),
        description: description.to_owned(),
    };
    vec![
        mode("persistent", false, "one connection, one operation at a time"),
        mode("pipeline", true, "one connection, operations in pipelines"),
    ]
}

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
    let mut inbox = Inbox::small();
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
        link.write_all(bytes).map_err(|e| (Failure::io("send", &e), 0))?;
        let mut replies = 0;
        while replies < batch.count {
            let command = self.job.command(batch.first + replies as u64);
            match self.expected.judge(self.inbox.unread(), command) {
                Judged::Right(length) => self.inbox.take(length),
                Judged::Wrong(length, failure) => {
                    failures.add(&failure, 1);
                    self.inbox.take(length);
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
