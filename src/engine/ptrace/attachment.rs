//! Attached processes as their owner sees them: the tracer threads from outside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attach::Attached;
use super::availability::Rights;
use super::orders::Control;
use super::tracing::{Job, Tracing};
use super::workers::{End, LOOK_EVERY, Workers, broken};
use super::{Pace, affinity};
use crate::engine::{Attachment, EngineError, Finder, Outcome, Refusal, Request};
use crate::proc::Root;
use crate::tally::PhaseTallies;
use crate::units::{Measured, Nanos};

/// Attached processes as their owner sees them. Dropping it lets them go.
pub(super) struct PtraceAttachment {
    processes: Vec<i32>,
    refused: Vec<Refusal>,
    workers: Workers<Attached>,
    began: Instant,
}

impl PtraceAttachment {
    /// Attaches to everything that the finder names.
    pub(super) fn begin(find: &Finder, request: &Request) -> Result<PtraceAttachment, EngineError> {
        let control = Arc::new(Control::default());
        let rights = Rights::read(&Root::live());
        let cpus = affinity::cpus().map_or(1, |(_, cpus)| cpus.len()).max(1);
        let threads = find().len().clamp(1, cpus);
        let jobs = (0..threads).map(|share| {
            let all = Arc::clone(find);
            let mine = move |pid: &i32| pid.unsigned_abs() as usize % threads == share;
            Job {
                programs: Vec::new(),
                find: Some(Arc::new(move || {
                    let mut pids = all();
                    pids.retain(mine);
                    pids
                })),
                request: request.clone(),
                pace: Pace::Detail,
                filter: Vec::new(),
                no_new_privs: false,
                may_trace_privileged: rights.may_trace_all,
                pin: None,
                mask: nix::sys::signal::SigSet::empty(),
                control: Arc::clone(&control),
                observer: None,
                stay_near: request.pin && threads == 1,
            }
        });
        let (workers, parts) =
            Workers::start(jobs.collect(), control.clone(), End::LetGo, Tracing::attach_all)?;
        let mut attachment = PtraceAttachment {
            processes: Vec::new(),
            refused: Vec::new(),
            workers,
            began: Instant::now(),
        };
        for part in parts {
            attachment.processes.extend(part.processes);
            attachment.refused.extend(part.refused);
        }
        match attachment.refused.first() {
            _ if !attachment.processes.is_empty() => Ok(attachment),
            Some(refusal) => Err(EngineError::Denied {
                why: refusal.why.clone(),
                fix: refusal.fix.clone(),
            }),
            None => Err(EngineError::NoneLeft),
        }
    }
}

impl Attachment for PtraceAttachment {
    fn processes(&self) -> &[i32] {
        &self.processes
    }

    fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    fn wait(&mut self, limit: Option<Duration>, stop: &dyn Fn() -> bool) -> Result<(), EngineError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !self.workers.all_ended() && !stop() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            self.workers
                .hear(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
            self.workers.ring();
        }
        Ok(())
    }

    fn detach(mut self: Box<Self>) -> Result<Outcome, EngineError> {
        let elapsed = Nanos::from(self.began.elapsed());
        self.workers.end();
        if !self.workers.all_ended() {
            return Err(broken(
                "a tracer thread did not end; the program runs on when systally has ended",
            ));
        }
        let mut outcome = Outcome {
            exits: Vec::new(),
            tallies: Measured::NotMeasured(String::new()),
            windows: vec![Measured::Known(elapsed)],
            cpu: Measured::NotMeasured("the program was running before it was counted".to_owned()),
            tracees: 0,
            left: Vec::new(),
            notes: Vec::new(),
        };
        let mut tallies = PhaseTallies::default();
        let mut notes = BTreeSet::new();
        for part in self.workers.found()? {
            tallies.merge(&part.tallies);
            outcome.tracees += part.tracees;
            notes.extend(part.notes);
        }
        outcome.tallies = Measured::Known(tallies);
        outcome.notes = notes.into_iter().collect();
        Ok(outcome)
    }
}
