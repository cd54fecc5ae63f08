//! What the responder knows of one connection, apart from its bytes.

use std::fmt::Write;
use std::ops::Range;
use std::time::Instant;

use super::reply::Protocol;
use super::request::Args;

/// The most bytes that may wait in a transaction, as `client-query-buffer-limit`.
const MAX_QUEUED: usize = 1 << 30;

/// One connection's state in the protocol.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number, counted from 1.
    pub(super) id: u64,
    /// Address of the other end, as `CLIENT LIST` shows it.
    pub(super) peer: String,
    /// Address of this end.
    pub(super) local: String,
    /// Its descriptor.
    pub(super) fd: i32,
    /// When it was made.
    pub(super) since: Instant,
    /// When its last command came.
    pub(super) active: Instant,
    /// `CLIENT SETNAME`.
    pub(super) name: Vec<u8>,
    /// `CLIENT SETINFO LIB-NAME`.
    pub(super) lib_name: Vec<u8>,
    /// `CLIENT SETINFO LIB-VER`.
    pub(super) lib_ver: Vec<u8>,
    /// The selected database.
    pub(super) db: usize,
    /// The protocol version.
    pub(super) protocol: Protocol,
    /// Whether it may use all commands.
    pub(super) authenticated: bool,
    /// Commands since `MULTI`.
    pub(super) transaction: Option<Transaction>,
    /// Whether replies are sent.
    pub(super) talk: Talk,
    /// To be closed when its output has been sent.
    pub(super) closing: bool,
    /// Its last command, as statistics name it.
    pub(super) last_command: &'static str,
}

/// `CLIENT REPLY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// Replies are sent.
    On,
    /// None is.
    Off,
    /// The next command's is not; then as `On`.
    SkipNext,
}

impl Session {
    pub(super) fn new(id: u64, fd: i32, peer: String, local: String, authenticated: bool) -> Session {
        let now = Instant::now();
        Session {
            id,
            peer,
            local,
            fd,
            since: now,
            active: now,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_ver: Vec::new(),
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            transaction: None,
            talk: Talk::On,
            closing: false,
            last_command: "NULL",
        }
    }

    /// Its line in `CLIENT LIST`, with the fields that Redis has and we know.
    pub(super) fn line(&self) -> String {
        let text = String::from_utf8_lossy;
        let (flags, queued) = match &self.transaction {
            Some(transaction) => ("x", i64::try_from(transaction.commands.len()).unwrap_or(i64::MAX)),
            None if self.peer.starts_with('/') => ("U", -1),
            None => ("N", -1),
        };
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 \
             multi={queued} cmd={} user=default lib-name={} lib-ver={} resp={}",
            self.id,
            self.peer,
            self.local,
            self.fd,
            text(&self.name),
            self.since.elapsed().as_secs(),
            self.active.elapsed().as_secs(),
            self.db,
            self.last_command,
            text(&self.lib_name),
            text(&self.lib_ver),
            self.protocol.number(),
        );
        line
    }

    /// `RESET`: as a new connection, but for its number and addresses.
    pub(super) fn reset(&mut self, authenticated: bool) {
        self.name.clear();
        self.db = 0;
        self.protocol = Protocol::Resp2;
        self.authenticated = authenticated;
        self.transaction = None;
        self.talk = Talk::On;
    }
}

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// In order.
    pub(super) commands: Vec<Queued>,
    /// Whether a command was refused, so that `EXEC` must be, too.
    pub(super) aborted: bool,
    size: usize,
}

/// One queued command.
#[derive(Debug)]
pub(super) struct Queued {
    /// Its place in the command table.
    pub(super) command: usize,
    bytes: Vec<u8>,
    spans: Vec<Range<usize>>,
}

impl Queued {
    /// Its arguments.
    pub(super) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

impl Transaction {
    /// Queues a command; whether there was room.
    pub(super) fn push(&mut self, command: usize, args: Args<'_>) -> bool {
        let mut queued = Queued {
            command,
            bytes: Vec::with_capacity(args.size()),
            spans: Vec::with_capacity(args.len()),
        };
        for arg in args.from(0) {
            let start = queued.bytes.len();
            queued.bytes.extend_from_slice(arg);
            queued.spans.push(start..queued.bytes.len());
        }
        // Counts what a command without arguments takes, too.
        self.size += args.size() + args.len() * size_of::<Range<usize>>() + size_of::<Queued>();
        self.commands.push(queued);
        self.size <= MAX_QUEUED
    }
}
