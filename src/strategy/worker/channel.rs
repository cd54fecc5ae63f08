//! The pipes of one worker, and one poll(2) over those of all.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};

use crate::engine::Pipes;

/// The longest wait before an interrupt is looked at again.
pub(super) const STEP: Duration = Duration::from_millis(100);

/// The longest line, and the most output without an event.
const MAX_OUTPUT: usize = 1 << 20;

/// What is kept of standard error.
const TAIL: usize = 4 << 10;

/// Bytes read at once.
const BLOCK: usize = 64 << 10;

/// One worker's end of the conversation. Its descriptors do not block.
pub(super) struct Channel {
    pub(super) pid: i32,
    stdin: Option<OwnedFd>,
    to_send: Vec<u8>,
    closing: bool,
    stdout: Option<OwnedFd>,
    /// The beginning of a line.
    part: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
    /// Bytes of output since the last line that was an event.
    idle_output: usize,
    stderr: Option<OwnedFd>,
    tail: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

impl Channel {
    pub(super) fn new(pid: i32, pipes: Pipes) -> Result<Channel, Errno> {
        for fd in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Channel {
            pid,
            stdin: Some(pipes.stdin),
            to_send: Vec::new(),
            closing: false,
            stdout: Some(pipes.stdout),
            part: Vec::new(),
            lines: VecDeque::new(),
            idle_output: 0,
            stderr: Some(pipes.stderr),
            tail: Vec::new(),
        })
    }

    /// Sends now what the pipe takes, and the rest when it can. A worker that no longer reads is found
    /// out by its silence.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.to_send.extend_from_slice(bytes);
        self.flush();
    }

    /// Closes standard input once everything is sent.
    pub(super) fn close_input(&mut self) {
        self.closing = true;
        self.flush();
    }

    fn flush(&mut self) {
        while let (Some(stdin), false) = (&self.stdin, self.to_send.is_empty()) {
            match write(stdin, &self.to_send) {
                Ok(n) => drop(self.to_send.drain(..n)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => self.stdin = None,
            }
        }
        if self.closing {
            self.stdin = None;
        }
    }

    /// The next whole line, without its end. When the output is over, the rest of it is a line too.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        if let Some(line) = self.lines.pop_front() {
            if line.starts_with(b"{") {
                self.idle_output = 0;
            }
            return Some(line);
        }
        (self.stdout.is_none() && !self.part.is_empty()).then(|| std::mem::take(&mut self.part))
    }

    /// What there is of a line that has not ended.
    pub(super) fn unfinished_line(&self) -> Option<&[u8]> {
        (!self.part.is_empty()).then_some(self.part.as_slice())
    }

    /// How much came without an event, when that is more than it may be.
    pub(super) fn flooded(&self) -> Option<usize> {
        (self.idle_output > MAX_OUTPUT).then_some(self.idle_output)
    }

    /// Drops what was read from standard output.
    pub(super) fn forget_output(&mut self) {
        self.lines.clear();
        self.part.clear();
        self.idle_output = 0;
    }

    /// Whether standard output may still bring something.
    pub(super) fn output_is_open(&self) -> bool {
        self.stdout.is_some() || !self.part.is_empty() || !self.lines.is_empty()
    }

    /// Whether any of the worker's own streams is open.
    pub(super) fn is_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    /// Closes everything.
    pub(super) fn close(&mut self) {
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
    }

    /// The end of standard error as text.
    pub(super) fn stderr_tail(&self) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        // A cut in the middle of a character is ours, not the worker's.
        text.trim_start_matches('\u{fffd}').to_owned()
    }

    fn fd(&self, stream: Stream) -> Option<(&OwnedFd, PollFlags)> {
        match stream {
            Stream::Stdin if self.to_send.is_empty() => None,
            Stream::Stdin => self.stdin.as_ref().map(|fd| (fd, PollFlags::POLLOUT)),
            Stream::Stdout => self.stdout.as_ref().map(|fd| (fd, PollFlags::POLLIN)),
            Stream::Stderr => self.stderr.as_ref().map(|fd| (fd, PollFlags::POLLIN)),
        }
    }

    fn serve(&mut self, stream: Stream, block: &mut [u8]) {
        match stream {
            Stream::Stdin => self.flush(),
            Stream::Stdout => {
                if let Some(bytes) = receive(&mut self.stdout, block) {
                    self.split(bytes);
                }
            }
            Stream::Stderr => {
                if let Some(bytes) = receive(&mut self.stderr, block) {
                    self.tail.extend_from_slice(bytes);
                    let surplus = self.tail.len().saturating_sub(TAIL);
                    self.tail.drain(..surplus);
                }
            }
        }
    }

    fn split(&mut self, bytes: &[u8]) {
        self.idle_output += bytes.len();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.part.extend_from_slice(&rest[..end]);
            if self.part.last() == Some(&b'\r') {
                self.part.pop();
            }
            self.lines.push_back(std::mem::take(&mut self.part));
            rest = &rest[end + 1..];
        }
        self.part.extend_from_slice(rest);
    }
}

/// What one read(2) brings. The descriptor is closed when the stream is over.
fn receive<'a>(fd: &mut Option<OwnedFd>, block: &'a mut [u8]) -> Option<&'a [u8]> {
    match read(fd.as_ref()?, block) {
        Ok(0) => *fd = None,
        Ok(n) => return Some(&block[..n]),
        Err(Errno::EAGAIN | Errno::EINTR) => {}
        Err(_) => *fd = None,
    }
    None
}

/// Waits, `limit` at most, until some worker has written something or can take something, and serves all
/// that can be served without waiting.
pub(super) fn pump(channels: &mut [Channel], limit: Duration) -> Result<(), Errno> {
    let mut whose = Vec::with_capacity(channels.len() * 2);
    let mut fds = Vec::with_capacity(channels.len() * 2);
    for (worker, channel) in channels.iter().enumerate() {
        for stream in [Stream::Stdin, Stream::Stdout, Stream::Stderr] {
            if let Some((fd, events)) = channel.fd(stream) {
                whose.push((worker, stream));
                fds.push(PollFd::new(fd.as_fd(), events));
            }
        }
    }
    // Rounded up: a rest below a millisecond must not become a loop without waits.
    let millis = limit.as_micros().div_ceil(1_000);
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno),
    }
    let ready: Vec<(usize, Stream)> = fds
        .iter()
        .zip(whose)
        .filter(|(fd, _)| fd.revents().is_some_and(|events| !events.is_empty()))
        .map(|(_, whose)| whose)
        .collect();
    let mut block = vec![0; if ready.is_empty() { 0 } else { BLOCK }];
    for (worker, stream) in ready {
        channels[worker].serve(stream, &mut block);
    }
    Ok(())
}
