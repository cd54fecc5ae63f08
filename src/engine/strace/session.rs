//! Programs under strace, and the threads that read its logs.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;

use super::command::{find, under_strace};
use super::log::{Begun, Log};
use crate::engine::plain::{Free, Orphans, PATIENCE, Plain};
use crate::engine::{EngineError, EngineKind, Order, Outcome, Program, Request, start};
use crate::folder::{self, Folder};
use crate::sys::process::send_signal;
use crate::sys::spawn::{StartError, Step};
use crate::tally::PhaseTallies;
use crate::units::Measured;

/// How long strace may take to execute a program.
const START: Duration = Duration::from_secs(60);
/// The pause between two looks at whether anything has happened.
const LOOK: Duration = Duration::from_millis(20);

/// What a reader says.
enum News {
    /// This program has begun, or cannot.
    Begun(usize, Begun),
    /// The log of this program has come to its end.
    Ended(usize),
}

/// A program's log, as far as it has come.
type SharedLog = Arc<Mutex<Log>>;

fn lock(log: &SharedLog) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The programs and their logs. Dropping it kills what still runs.
pub(super) struct StraceSession {
    plain: Plain,
    logs: Vec<SharedLog>,
    ended: Vec<bool>,
    news: Receiver<News>,
    finished: bool,
}

impl StraceSession {
    /// Starts the programs; returns when strace has executed them all, or with an error and nothing left
    /// running.
    pub(super) fn launch(programs: Vec<Program>, request: &Request) -> Result<StraceSession, EngineError> {
        let strace = find().ok_or_else(|| EngineError::Denied {
            why: "strace is not in PATH".to_owned(),
            fix: "install it".to_owned(),
        })?;
        // strace would say so on the program's standard error, and end with status 1.
        for program in &programs {
            start::check(program)?;
        }
        // Those of runs that were killed before their strace had opened its log.
        folder::sweep();
        let folder = Folder::create().map_err(|error| EngineError::Denied {
            why: format!(
                "there is no folder for strace's log in {}: {}",
                error.path.display(),
                error.source
            ),
            fix: "set TMPDIR to a folder that you can write to".to_owned(),
        })?;
        let (sender, news) = channel();
        let mut keepers = Vec::with_capacity(programs.len());
        let mut logs = Vec::with_capacity(programs.len());
        let mut traced = Vec::with_capacity(programs.len());
        for (index, program) in programs.iter().enumerate() {
            let path = folder.path().join(index.to_string());
            let log = Arc::new(Mutex::new(Log::new(request.selection.clone(), request.window)));
            keepers.push(Some(read_log(index, &path, &log, &sender)?));
            logs.push(log);
            traced.push(under_strace(
                &strace,
                program,
                &path,
                &request.selection,
                request.window,
            ));
        }
        let plain = Plain::launch(EngineKind::Strace, traced, None, Orphans::Leave)?;
        let mut session = StraceSession {
            plain,
            ended: vec![false; logs.len()],
            logs,
            news,
            finished: false,
        };
        session.wait_begun(&programs, keepers)?;
        // Every strace has its FIFO open by now; nothing stays behind should systally be killed.
        drop(folder);
        Ok(session)
    }

    /// Waits until every program has been executed. Closes systally's own writing end of each log then,
    /// so that its end is that of its strace.
    fn wait_begun(
        &mut self,
        programs: &[Program],
        mut keepers: Vec<Option<File>>,
    ) -> Result<(), EngineError> {
        let give_up = Instant::now() + START;
        let mut begun = vec![false; programs.len()];
        while begun.contains(&false) {
            match self.news.recv_timeout(LOOK) {
                Ok(News::Begun(index, Begun::Yes)) => {
                    begun[index] = true;
                    keepers[index] = None;
                }
                Ok(News::Begun(index, Begun::No(errno))) => {
                    let error = StartError {
                        step: Step::Exec,
                        errno: nix::errno::Errno::from_raw(errno.0),
                    };
                    return Err(start::start_error(&programs[index], error));
                }
                Ok(News::Ended(index)) => {
                    self.ended[index] = true;
                    if !begun[index] {
                        return Err(self.not_begun());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if Instant::now() >= give_up {
                        return Err(self.not_begun());
                    }
                    // Without a strace nobody else writes to the logs.
                    if self.plain.wait(Some(Instant::now()))? {
                        keepers.iter_mut().for_each(|keeper| *keeper = None);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.not_begun()),
            }
        }
        Ok(())
    }

    fn not_begun(&self) -> EngineError {
        self.plain
            .broken("strace did not execute the program; version 5.7 or newer is needed, and what it says itself is on standard error")
    }

    /// Waits until all programs and the straces of all have ended. True when they have.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, EngineError> {
        if !self.plain.wait(deadline)? {
            return Ok(false);
        }
        while self.ended.contains(&false) {
            let news = match deadline {
                Some(deadline) => self
                    .news
                    .recv_timeout(deadline.saturating_duration_since(Instant::now())),
                None => self.news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match news {
                Ok(News::Ended(index)) => self.ended[index] = true,
                Ok(News::Begun(..)) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self
                        .plain
                        .broken("a thread that reads strace's log ended without a word"));
                }
            }
        }
        Ok(true)
    }

    /// Kills everything that is traced. Returns how many threads and processes that were, and whether all
    /// of them ended.
    fn kill(&mut self) -> Result<(u64, bool), EngineError> {
        let killed = self.kill_traced();
        self.plain.kill()?;
        let give_up = Instant::now() + PATIENCE;
        while !self.wait(Some(Instant::now() + LOOK))? {
            if Instant::now() >= give_up {
                return Ok((killed, false));
            }
            // A process that forks meanwhile may leave a child that was not in the log yet.
            self.kill_traced();
        }
        Ok((killed, true))
    }

    fn kill_traced(&self) -> u64 {
        self.logs.iter().map(|log| kill_alive(&lock(log))).sum()
    }
}

/// Kills what has not ended by the log. Its strace has not seen it end, so the numbers are still its own.
fn kill_alive(log: &Log) -> u64 {
    signal_alive(log, libc::SIGKILL)
}

/// Sends a signal to what has not ended by the log, and tells to how many.
fn signal_alive(log: &Log, signal: i32) -> u64 {
    let alive = log.alive().filter_map(|pid| i32::try_from(pid).ok());
    alive.map(|pid| send_signal(pid, signal)).count() as u64
}

/// Makes the FIFO of a log and reads it in a thread of its own. What is returned keeps the log from ending
/// before strace has opened it.
fn read_log(index: usize, path: &Path, log: &SharedLog, news: &Sender<News>) -> Result<File, EngineError> {
    nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|source| EngineError::System {
        operation: "make a FIFO for strace's log",
        pid: 0,
        source,
    })?;
    let failed = |error: std::io::Error| start::system("open the FIFO of strace's log", &error);
    // Reading and writing at once does not wait for another end.
    let keeper = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed)?;
    let reader = File::open(path).map_err(failed)?;
    let (log, news) = (Arc::clone(log), news.clone());
    std::thread::Builder::new()
        .name("systally-strace".to_owned())
        .spawn(move || read(index, reader, &log, &news))
        .map_err(|error| start::system("start a thread that reads strace's log", &error))?;
    Ok(keeper)
}

fn read(index: usize, reader: File, log: &SharedLog, news: &Sender<News>) {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let mut line = Vec::new();
    let mut told = false;
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let mut log = lock(log);
        match line.strip_suffix(b"\n") {
            Some(line) => log.line(line),
            None => log.broke_off(),
        }
        if let (false, Some(begun)) = (told, log.begun()) {
            told = true;
            // Nobody waits for it any more when the session has been dropped.
            let _ = news.send(News::Begun(index, begun));
        }
    }
    // A strace that was killed leaves its tracees running, which nobody counts now.
    kill_alive(&lock(log));
    let _ = news.send(News::Ended(index));
}

impl Free for StraceSession {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn plain_mut(&mut self) -> &mut Plain {
        &mut self.plain
    }

    fn everything(&self) -> Order {
        let logs = self.logs.clone();
        Order::new(move |signal| {
            for log in &logs {
                signal_alive(&lock(log), signal);
            }
        })
    }

    fn end(mut self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let mut notes = Vec::new();
        if !self.wait(limit.map(|limit| Instant::now() + limit))? {
            let (killed, ended) = self.kill()?;
            if !ended {
                return Err(self
                    .plain
                    .broken("processes were killed but strace did not see them end; they are probably stuck in the kernel"));
            }
            notes.push(format!(
                "{killed} of the counted processes and threads were still running at the time limit and were killed"
            ));
        }
        self.finished = true;
        let mut tallies = Measured::Known(PhaseTallies::default());
        let mut windows = Vec::with_capacity(self.logs.len());
        let mut tracees = 0;
        for log in &self.logs {
            let mut log = lock(log);
            let counted = log.end();
            windows.push(Measured::from_option(
                log.window(),
                "the program never opened its window",
            ));
            tracees += log.seen();
            match (&mut tallies, counted) {
                (Measured::Known(sum), Ok(counted)) => sum.merge(&counted),
                (Measured::Known(_), Err(why)) => tallies = Measured::NotMeasured(why),
                (Measured::NotMeasured(_), _) => {}
            }
        }
        let (exits, _) = self.plain.ended();
        Ok(Outcome {
            exits,
            tallies,
            windows,
            cpu: Measured::NotMeasured("strace begins in the process that becomes the program".to_owned()),
            tracees,
            left: Vec::new(),
            notes,
        })
    }
}

impl Drop for StraceSession {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is there to be told when something does not end.
            let _ = self.kill();
        }
    }
}
