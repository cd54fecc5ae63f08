//! From the lines of one strace to counts.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::engine::window::{CLOSING, OPENING, WindowState};
use crate::engine::{Selection, Window};
use crate::foreign::strace::{Event, Outcome, event};
use crate::foreign::{number, quoted};
use crate::tally::{Abi, CallTally, Errno, Phase, PhaseTallies, Syscall};
use crate::units::{Nanos, escape};

/// How much of a line that is not understood is repeated.
const SHOWN: usize = 120;

/// How the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// It has been executed.
    Yes,
    /// It cannot be.
    No(Errno),
}

/// A call that a thread is in.
#[derive(Debug, Clone)]
struct Pending {
    call: Syscall,
    /// The phase it was entered in; `None` when it is not counted.
    phase: Option<Phase>,
    /// What is known of its arguments.
    args: Vec<u8>,
}

#[derive(Debug)]
struct Thread {
    abi: Abi,
    pending: Option<Pending>,
}

/// What the lines of one program come to.
pub(super) struct Log {
    selection: Selection,
    window: WindowState,
    /// The log's own clock, as an instant: the stamp of the first line is the base.
    base: Instant,
    first: Option<u64>,
    last: Instant,
    tallies: PhaseTallies,
    threads: HashMap<u32, Thread>,
    seen: BTreeSet<u32>,
    /// The ABI of the last call, which strace takes for that of a new thread.
    abi: Abi,
    begun: Option<Begun>,
    errnos: HashMap<Vec<u8>, Errno>,
    trouble: Option<String>,
}

impl Log {
    /// For a program that has not begun.
    pub(super) fn new(selection: Selection, window: Window) -> Log {
        let base = Instant::now();
        Log {
            selection,
            window: WindowState::new(window),
            base,
            first: None,
            last: base,
            tallies: PhaseTallies::default(),
            threads: HashMap::new(),
            seen: BTreeSet::new(),
            abi: Abi::NATIVE,
            begun: None,
            errnos: HashMap::new(),
            trouble: None,
        }
    }

    /// Whether the program has begun; `None` while that is not known.
    pub(super) fn begun(&self) -> Option<Begun> {
        self.begun
    }

    /// Processes and threads that have not ended.
    pub(super) fn alive(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().copied()
    }

    /// Threads and processes that there were.
    pub(super) fn seen(&self) -> u64 {
        self.seen.len() as u64
    }

    /// The end of the log. Calls that never returned are unfinished.
    ///
    /// # Errors
    /// Why there is no count.
    pub(super) fn end(&mut self) -> Result<PhaseTallies, String> {
        self.window.end(self.last);
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        if !self.threads.is_empty() {
            return Err(format!(
                "strace ended while {} of the traced threads were still running; was it killed?",
                self.threads.len()
            ));
        }
        Ok(std::mem::take(&mut self.tallies))
    }

    /// How long the window was open.
    pub(super) fn window(&self) -> Option<Nanos> {
        self.window.length()
    }

    /// The log has ended in the middle of a line.
    pub(super) fn broke_off(&mut self) {
        self.trouble
            .get_or_insert_with(|| "strace ended while it wrote a line; was it killed?".to_owned());
    }

    /// Takes one line, without its line feed.
    pub(super) fn line(&mut self, line: &[u8]) {
        if self.take(line).is_none() && self.trouble.is_none() {
            let line = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
            let line = escape(&line, SHOWN);
            self.trouble = Some(format!("strace wrote a line that is not understood: {line}"));
        }
    }

    /// `None` for a line that is not one of those that strace writes here.
    fn take(&mut self, line: &[u8]) -> Option<()> {
        let columns = Columns::of(line)?;
        let at = self.clock(columns.stamp);
        self.last = at;
        let pid = columns.pid;
        if !self.threads.contains_key(&pid) {
            self.seen.insert(pid);
            let abi = self.abi;
            self.threads.insert(pid, Thread { abi, pending: None });
        }
        match event(columns.body) {
            Event::Call(name, args, outcome) => {
                self.enter(pid, columns.number, name, args, at)?;
                self.leave(pid, &[], outcome, at);
            }
            Event::Unfinished(name, args) => self.enter(pid, columns.number, name, args, at)?,
            Event::Resumed(_, rest, outcome) => self.leave(pid, rest, outcome, at),
            Event::Gone(_) => {
                self.leave(pid, &[], Outcome::default(), at);
                self.threads.remove(&pid);
            }
            Event::Superseded(other) => self.supersede(pid, other),
            Event::Mode(_, mode) => {
                self.abi = abi(mode)?;
                let abi = self.abi;
                self.threads.get_mut(&pid)?.abi = abi;
            }
            Event::Aside | Event::Signal(_) => {}
            Event::Broken(_) | Event::Complaint(_) | Event::Unknown => return None,
        }
        Some(())
    }

    fn clock(&mut self, stamp: u64) -> Instant {
        let first = *self.first.get_or_insert(stamp);
        self.base + Duration::from_nanos(stamp.saturating_sub(first))
    }

    fn enter(&mut self, pid: u32, number: Option<u64>, name: &[u8], args: &[u8], at: Instant) -> Option<()> {
        // strace does not always say that a call ended before the next one begins.
        self.leave(pid, &[], Outcome::default(), at);
        let thread = self.threads.get_mut(&pid)?;
        self.abi = thread.abi;
        let call = identity(thread.abi, number, name, args)?;
        if self.window.may_close() && may_close(call) && args.starts_with(b"1,") {
            let mut said = Vec::new();
            quoted::strings(args, &mut said);
            said.truncate(CLOSING.len());
            self.window.will_write(&said, at);
        }
        let is_counted = match &self.selection {
            Selection::All => true,
            Selection::Only(chosen) => chosen.contains(&call),
            Selection::Except(left_out) => !left_out.contains(&call),
        };
        thread.pending = Some(Pending {
            call,
            phase: is_counted.then(|| self.window.phase()),
            args: args.to_vec(),
        });
        Some(())
    }

    /// A thread's call has ended, if it was in one: with an outcome, or without ever returning.
    fn leave(&mut self, pid: u32, rest: &[u8], outcome: Outcome<'_>, at: Instant) {
        let Some(pending) = self
            .threads
            .get_mut(&pid)
            .and_then(|thread| thread.pending.take())
        else {
            return;
        };
        let returned = outcome.ret.is_some() || outcome.is_error();
        // What a signal's handler returns to is the result of the interrupted code.
        let errno = if outcome.is_error() && !is_signal_return(pending.call) {
            Some(self.errno(outcome))
        } else {
            None
        };
        if self.begun.is_none() && is_exec(pending.call) {
            self.begun = match errno {
                None if returned => Some(Begun::Yes),
                None => None,
                Some(errno) => Some(Begun::No(errno)),
            };
        }
        if let Some(phase) = pending.phase {
            let tally = self.tallies.phase(phase).of(pending.call);
            count(tally, returned, errno, outcome.took);
        }
        if self.window.may_open()
            && pending.call == Syscall::native(libc::SYS_read)
            && let Some(length @ 1..) = outcome.ret
        {
            let args = [&pending.args, rest].concat();
            if args.starts_with(b"0,") {
                let mut said = Vec::new();
                quoted::strings(&args, &mut said);
                said.truncate(OPENING.min(usize::try_from(length).unwrap_or(OPENING)));
                self.window.has_read(&said, at);
            }
        }
    }

    /// A process was replaced by an exec of another of its threads, which has its number from now on.
    fn supersede(&mut self, pid: u32, other: u32) {
        self.leave(pid, &[], Outcome::default(), self.last);
        if let Some(thread) = self.threads.remove(&other) {
            self.threads.insert(pid, thread);
        }
    }

    fn errno(&mut self, outcome: Outcome<'_>) -> Errno {
        let Some(name) = outcome.errno else {
            return Errno::OTHER;
        };
        if let Some(known) = self.errnos.get(name) {
            return *known;
        }
        let errno = match number::uint(name) {
            Some(number) => Errno(i32::try_from(number).unwrap_or(0)),
            None => std::str::from_utf8(name)
                .ok()
                .and_then(Errno::by_name)
                .unwrap_or(Errno::OTHER),
        };
        self.errnos.insert(name.to_vec(), errno);
        errno
    }
}

fn count(tally: &mut CallTally, returned: bool, errno: Option<Errno>, took: Option<u64>) {
    if !returned {
        tally.unfinished += 1;
        return;
    }
    tally.calls += 1;
    tally.wall += Nanos(took.unwrap_or(0));
    if let Some(errno) = errno {
        let kind = if errno.is_restart() {
            &mut tally.restarts
        } else {
            &mut tally.errors
        };
        *kind.entry(errno).or_default() += 1;
    }
}

/// The columns before the call: `26260 1796109629.795094296 [  59] `.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Columns<'a> {
    pid: u32,
    /// Nanoseconds since 1970.
    stamp: u64,
    /// `None` for a number below zero, which strace prints as `????`.
    number: Option<u64>,
    body: &'a [u8],
}

impl Columns<'_> {
    fn of(line: &[u8]) -> Option<Columns<'_>> {
        let (pid, rest) = word(line)?;
        let (stamp, rest) = word(rest)?;
        let rest = rest.trim_ascii_start().strip_prefix(b"[")?;
        let end = rest.iter().position(|byte| *byte == b']')?;
        Some(Columns {
            pid: u32::try_from(number::uint(pid)?).ok()?,
            stamp: number::seconds(stamp)?.0,
            number: number::uint(rest[..end].trim_ascii()),
            body: rest[end + 1..].trim_ascii_start(),
        })
    }
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..end], &text[end..]))
}

/// `[ Process PID=778 runs in x32 mode. ]`, without ` bit`.
fn abi(mode: &[u8]) -> Option<Abi> {
    let native_is_x86 = Abi::NATIVE == Abi::X86_64;
    match mode {
        b"64" => Some(Abi::NATIVE),
        b"32" if native_is_x86 => Some(Abi::I386),
        b"32" => Some(Abi::Arm),
        b"x32" => Some(Abi::X32),
        _ => None,
    }
}

/// Which call it is.
fn identity(abi: Abi, number: Option<u64>, name: &[u8], args: &[u8]) -> Option<Syscall> {
    /// Bit 30 marks x32 numbers.
    const X32_BIT: u64 = 0x4000_0000;
    let Some(number) = number else {
        // Numbers below zero have no column of their own: `syscall_0xffffffffffffffff`.
        let hex = std::str::from_utf8(name.strip_prefix(b"syscall_0x")?).ok()?;
        let number = u64::from_str_radix(hex, 16).ok()?;
        return Some(Syscall { abi, number });
    };
    let plain = Syscall {
        abi,
        number: if abi == Abi::X32 {
            number & !X32_BIT
        } else {
            number
        },
    };
    if abi != Abi::I386 {
        return Some(plain);
    }
    // socketcall and ipc carry the real call, which strace names when it can read the arguments.
    let name = std::str::from_utf8(name).ok()?;
    if plain.bare_name() == Some(name) {
        let inner = args.strip_prefix(b"SYS_").map(|inner| {
            let end = inner.iter().position(|byte| *byte == b',').unwrap_or(inner.len());
            String::from_utf8_lossy(&inner[..end]).to_ascii_lowercase()
        });
        return Some(inner.and_then(|inner| within(plain, &inner)).unwrap_or(plain));
    }
    Some(within(plain, name).unwrap_or(plain))
}

/// The call of that name inside a multiplexer.
fn within(outer: Syscall, name: &str) -> Option<Syscall> {
    let calls = Syscall::all_by_name(name).into_iter();
    let mut inside = calls.filter(|call| call.multiplexed_by() == Some(outer.number));
    inside.next()
}

fn may_close(call: Syscall) -> bool {
    [libc::SYS_write, libc::SYS_writev, libc::SYS_sendto]
        .into_iter()
        .any(|number| call == Syscall::native(number))
}

fn is_exec(call: Syscall) -> bool {
    matches!(call.bare_name(), Some("execve" | "execveat"))
}

fn is_signal_return(call: Syscall) -> bool {
    matches!(call.bare_name(), Some("rt_sigreturn" | "sigreturn"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn log(window: Window, lines: &str) -> Log {
        let mut log = Log::new(Selection::All, window);
        lines.lines().for_each(|line| log.line(line.trim().as_bytes()));
        log
    }

    fn calls(tallies: &PhaseTallies) -> Vec<(String, u64, u64)> {
        let calls = tallies.run_loop.calls.iter();
        calls
            .map(|(call, n)| (call.name().into_owned(), n.calls, n.unfinished))
            .collect()
    }

    #[test]
    fn halves_failures_restarts_and_ends() {
        let mut log = log(
            Window::Whole,
            r#"7 100.000000001 [  59] execve("x", ["x"], 0x7ff /* 3 vars */) = 0 <0.000000500>
               7 100.1 [  45] recvfrom(3,  <unfinished ...>
               8 100.1 [  34] pause( <unfinished ...>
               7 100.2 [  45] <... recvfrom resumed>0x7, 1, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable) <0.1>
               7 100.3 [  45] recvfrom(3, 0x7, 1, 0, NULL, NULL) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.000001>
               7 100.3 [  15] rt_sigreturn({mask=[]}) = -1 EINTR (Interrupted system call) <0.000001>
               7 100.3 [????] syscall_0xffffffffffffffff(0, 0, 0, 0, 0, 0) = -1 ENOSYS (Function not implemented) <0.000001>
               8 100.4 [  34] +++ killed by SIGKILL +++
               7 100.4 [ 231] exit_group(0) = ?
               7 100.4 [ 231] +++ exited with 0 +++"#,
        );
        assert_eq!(log.begun(), Some(Begun::Yes));
        assert_eq!(log.seen(), 2);
        let tallies = log.end().unwrap();
        let expected = [
            ("rt_sigreturn", 1, 0),
            ("pause", 0, 1),
            ("recvfrom", 2, 0),
            ("execve", 1, 0),
            ("exit_group", 0, 1),
            ("syscall_0xffffffffffffffff", 1, 0),
        ];
        let expected: Vec<_> = expected
            .map(|(name, n, never)| (name.to_owned(), n, never))
            .into();
        assert_eq!(calls(&tallies), expected);
        let receive = &tallies.run_loop.calls[&Syscall::native(libc::SYS_recvfrom)];
        assert_eq!(receive.errors, BTreeMap::from([(Errno(libc::EAGAIN), 1)]));
        assert_eq!(receive.restarts, BTreeMap::from([(Errno(512), 1)]));
        assert_eq!(receive.wall, Nanos(100_001_000));
    }

    #[test]
    fn markers_open_and_close_the_window() {
        let mut log = log(
            Window::Markers,
            r#"7 100.0 [  59] execve("x", ["x"], 0x7ff /* 3 vars */) = 0 <0.0000005>
               7 100.0 [   0] read(0,  <unfinished ...>
               9 100.5 [   1] write(1, "{\"event\":\"done\",\"op"..., 30) = 30 <0.000001>
               7 101.0 [   0] <... read resumed>"go\n", 16) = 3 <1.0>
               7 102.0 [ 110] getppid() = 1 <0.0000001>
               7 103.0 [  20] writev(1, [{iov_base="{\"event\":\"d", iov_len=11}, {iov_base="one\"}\n", iov_len=6}], 2) = 17 <0.000001>
               9 103.0 [  60] exit(0) = ?
               9 103.0 [  60] +++ exited with 0 +++
               7 103.0 [ 231] exit_group(0) = ?
               7 103.0 [ 231] +++ exited with 0 +++"#,
        );
        assert_eq!(
            log.end().map(|tallies| calls(&tallies)),
            Ok(vec![("getppid".to_owned(), 1, 0)])
        );
        assert_eq!(log.window(), Some(Nanos(2_000_000_000)));
    }

    #[test]
    fn another_abi_has_its_own_table() {
        let mut log = log(
            Window::Whole,
            "7 1.0 [  45] recvfrom(-1, NULL, 0, 0, NULL, NULL) = -1 EBADF (Bad file descriptor) <0.1>
             7 1.0 [  11] [ Process PID=7 runs in 32 bit mode. ]
             7 1.0 [  45] brk(NULL) = 0x4ea4000 <0.1>
             7 1.0 [ 102] socketcall(SYS_SOCKET, NULL) = -1 EFAULT (Bad address) <0.1>
             7 1.0 [ 102] socket(AF_UNIX, SOCK_STREAM, 0) = 3 <0.1>
             7 1.0 [ 102] socketcall(99, NULL) = -1 EINVAL (Invalid argument) <0.1>
             7 1.0 [ 102] [ Process PID=7 runs in x32 mode. ]
             7 1.0 [1073741863] getpid() = 7 <0.1>
             7 1.0 [1073741863] [ Process PID=7 runs in 64 bit mode. ]
             7 1.0 [ 231] exit_group(0) = ?
             7 1.0 [ 231] +++ exited with 0 +++",
        );
        let tallies = log.end().unwrap();
        let of = |name: &str| {
            calls(&tallies)
                .into_iter()
                .find(|(known, ..)| known == name)
                .unwrap()
                .1
        };
        assert_eq!(of("recvfrom"), 1);
        assert_eq!(of("i386:brk"), 1);
        assert_eq!(of("i386:socket"), 2);
        assert_eq!(of("i386:socketcall"), 1);
        assert_eq!(of("x32:getpid"), 1);
    }

    #[test]
    fn a_thread_that_executes_takes_over_its_process() {
        let mut log = log(
            Window::Whole,
            r#"7 1.0 [  34] pause( <unfinished ...>
               8 1.0 [  59] execve("./kg", ["./kg"], 0x7ffe /* 35 vars */ <unfinished ...>
               7 1.0 [  34] <... pause resumed>) = ?
               7 1.0 [  59] +++ superseded by execve in pid 8 +++
               7 1.0 [  59] <... execve resumed>) = 0 <0.000660392>
               7 1.0 [ 231] exit_group(0) = ?
               7 1.0 [ 231] +++ exited with 0 +++"#,
        );
        let tallies = log.end().unwrap();
        let expected = [("pause", 0, 1), ("execve", 1, 0), ("exit_group", 0, 1)];
        let expected: Vec<_> = expected
            .map(|(name, n, never)| (name.to_owned(), n, never))
            .into();
        assert_eq!(calls(&tallies), expected);
    }

    #[test]
    fn a_log_that_breaks_off_is_no_count() {
        let cut = "7 1.0 [  59] execve(\"x\", [\"x\"], 0x7 /* 3 vars */) = 0 <0.1>";
        let why = log(Window::Whole, cut).end().unwrap_err();
        assert!(why.contains("was it killed"), "{why}");
        let mut log_of_a_cut_line = log(Window::Whole, "");
        log_of_a_cut_line.broke_off();
        let why = log_of_a_cut_line.end().unwrap_err();
        assert!(why.contains("was it killed"), "{why}");
        let why = log(Window::Whole, "7 1.0 [  59] exec").end().unwrap_err();
        assert!(why.contains("exec"), "{why}");
        for garbage in [
            "",
            "7",
            "7 1.0",
            "7 1.0 [",
            "x 1.0 [ 1] close(1) = 0",
            "7 x [ 1] close(1) = 0",
        ] {
            let mut log = Log::new(Selection::All, Window::Whole);
            log.line(garbage.as_bytes());
            assert!(log.end().is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn a_program_that_cannot_be_executed_has_not_begun() {
        let log = log(
            Window::Whole,
            "7 1.0 [  59] execve(\"./txt\", [\"./txt\"], 0x7 /* 35 vars */) = -1 ENOEXEC (Exec format error) <0.1>",
        );
        assert_eq!(log.begun(), Some(Begun::No(Errno(libc::ENOEXEC))));
    }
}
