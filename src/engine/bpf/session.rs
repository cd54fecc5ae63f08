//! Programs whose calls the kernel counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::availability::engine_error;
use super::tracer::Tracer;
use crate::engine::plain::{Free, Orphans, PATIENCE, Plain};
use crate::engine::{EngineError, EngineKind, Order, Outcome, Program, Request, Selection};
use crate::sys::process::PidFd;
use crate::tally::PhaseTallies;
use crate::units::{Measured, Nanos};

/// First and longest pause between two looks at whether descendants still live.
const LOOK: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(10)];

/// The programs and what counts them. Dropping it kills what still runs.
pub(super) struct BpfSession {
    // Before the tracer, so that it goes first.
    plain: Plain,
    tracer: Arc<Tracer>,
    selection: Selection,
    /// The signal for everything that is left; 0 for none.
    order: Arc<AtomicI32>,
    finished: bool,
}

impl BpfSession {
    /// Attaches the BPF programs and starts the programs under them.
    pub(super) fn launch(programs: Vec<Program>, request: &Request) -> Result<BpfSession, EngineError> {
        let tracer = Tracer::attach(programs.len(), request.window).map_err(|error| engine_error(&error))?;
        let tracer = Arc::new(tracer);
        let follower = Arc::clone(&tracer);
        let follow = move |index: usize, _: Pid, pidfd: &PidFd| {
            follower
                .follow(pidfd, index)
                .map_err(|error| engine_error(&error))
        };
        let plain = Plain::launch(EngineKind::Bpf, programs, Some(Box::new(follow)), Orphans::Leave)?;
        Ok(BpfSession {
            plain,
            tracer,
            selection: request.selection.clone(),
            order: Arc::default(),
            finished: false,
        })
    }

    /// Waits until no task lives that is followed. True when none does.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, EngineError> {
        if !self.plain.wait(deadline)? {
            return Ok(false);
        }
        let [mut pause, longest] = LOOK;
        let mut sent = 0;
        while self.tracer.census().map_err(|error| engine_error(&error))?.live > 0 {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let order = self.order.load(Ordering::Relaxed);
            if order != sent {
                sent = order;
                self.signal_followed(order);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
        Ok(true)
    }

    /// Kills everything that is followed, whoever its parent is by now. Returns how many processes were
    /// killed and whether all of them ended.
    fn kill(&mut self) -> Result<(u64, bool), EngineError> {
        let mut killed = self.signal_followed(libc::SIGKILL);
        self.plain.kill()?;
        let give_up = Instant::now() + PATIENCE;
        // A process that forks while it is looked for may leave a child that was not seen.
        while self.tracer.census().map_err(|error| engine_error(&error))?.live > 0 {
            if Instant::now() >= give_up {
                return Ok((killed, false));
            }
            std::thread::sleep(LOOK[1]);
            killed += self.signal_followed(libc::SIGKILL);
        }
        Ok((killed, true))
    }

    /// Sends a signal to everything that is followed, and returns to how many processes.
    fn signal_followed(&self, signal: i32) -> u64 {
        let numbers = std::fs::read_dir(crate::proc::Root::live().path("proc"))
            .into_iter()
            .flatten();
        let pids = numbers
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .map(Pid::from_raw);
        // The descriptor is of one certain process, so it does not matter whose number it was before.
        let followed = pids
            .filter_map(|pid| PidFd::open(pid).ok())
            .filter(|pidfd| self.tracer.follows(pidfd));
        followed.filter(|pidfd| pidfd.signal(signal).is_ok()).count() as u64
    }

    fn outcome(&self, notes: Vec<String>) -> Result<Outcome, EngineError> {
        let failed = |error| engine_error(&error);
        let (exits, cpu) = self.plain.ended();
        let tallies = match self.tracer.losses().map_err(failed)? {
            Some(lost) => Measured::NotMeasured(format!("the kernel lost part of the count ({lost})")),
            None => {
                let mut tallies = self.tracer.tallies().map_err(failed)?;
                select(&mut tallies, &self.selection);
                Measured::Known(tallies)
            }
        };
        let windows = self.tracer.windows(exits.len(), now()).map_err(failed)?;
        Ok(Outcome {
            windows: windows
                .into_iter()
                .map(|length| Measured::from_option(length, "the program never opened its window"))
                .collect(),
            exits,
            tallies,
            cpu: Measured::Known(cpu),
            tracees: self.tracer.census().map_err(failed)?.seen,
            left: Vec::new(),
            notes,
        })
    }
}

impl Free for BpfSession {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn plain_mut(&mut self) -> &mut Plain {
        &mut self.plain
    }

    fn everything(&self) -> Order {
        let order = Arc::clone(&self.order);
        Order::new(move |signal| order.store(signal, Ordering::Relaxed))
    }

    fn end(mut self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let mut notes = Vec::new();
        if !self.wait(limit.map(|limit| Instant::now() + limit))? {
            let (killed, ended) = self.kill()?;
            if !ended {
                return Err(self
                    .plain
                    .broken("processes were killed but did not end; they are probably stuck in the kernel"));
            }
            notes.push(format!(
                "{killed} of the counted processes were still running at the time limit and were killed"
            ));
        }
        self.finished = true;
        self.outcome(notes)
    }
}

impl Drop for BpfSession {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is there to be told when something does not end.
            let _ = self.kill();
        }
    }
}

/// Leaves only what was asked for. Counting the rest costs next to nothing, so the programs count all.
pub(super) fn select(tallies: &mut PhaseTallies, selection: &Selection) {
    for tally in [&mut tallies.startup, &mut tallies.run_loop, &mut tallies.shutdown] {
        match selection {
            Selection::All => {}
            Selection::Only(chosen) => tally.calls.retain(|call, _| chosen.contains(call)),
            Selection::Except(left_out) => tally.calls.retain(|call, _| !left_out.contains(call)),
        }
    }
}

/// The clock by which BPF programs tell the time.
fn now() -> Nanos {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Nanos(0), |now| Nanos::from(Duration::from(now)))
}
