//! One round of a worker: which operations come next, when it is over, and what they took.

use std::time::{Duration, Instant};

use super::failure::Failures;
use crate::strategy::contract::{Done, LatencyMode, Spec, Stop, WireLatency, bucket, bucket_lower};
use crate::units::Nanos;

/// Operations that go to the server together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    /// The number of the first, from 0 in every round.
    pub(super) first: u64,
    /// How many.
    pub(super) count: usize,
}

/// The state of a round. It is made once and used again: between `go` and `done` it asks for no memory,
/// and reads the clock once for each batch (a call that stays in user space wherever the kernel's vDSO
/// serves the clocksource).
pub(super) struct Round {
    wanted: u64,
    batch: u64,
    max_errors: u64,
    seconds: Option<Duration>,
    keeps_times: bool,
    asked: u64,
    started: Instant,
    last: Instant,
    deadline: Option<Instant>,
    times: Vec<u64>,
    /// What failed.
    pub(super) failures: Failures,
}

impl Round {
    /// A round as the specification wants it.
    pub(super) fn new(spec: &Spec) -> Round {
        let (wanted, seconds) = match spec.stop {
            Stop::Ops(ops) => (ops, None),
            // Text that is no duration (negative, not a number) was refused with the specification.
            Stop::Seconds(s) => (u64::MAX, Some(Duration::try_from_secs_f64(s).unwrap_or_default())),
        };
        let now = Instant::now();
        Round {
            wanted,
            batch: u64::from(spec.batch),
            max_errors: spec.max_errors,
            seconds,
            keeps_times: spec.latency == LatencyMode::Hist,
            asked: 0,
            started: now,
            last: now,
            deadline: None,
            times: vec![0; bucket(u64::MAX) + 1],
            failures: Failures::default(),
        }
    }

    /// The uncounted round before `ready`; `None` when none is wanted. It takes the buffers of the real
    /// rounds, so that these are in memory when the window opens.
    pub(super) fn warm_up(spec: &Spec) -> Option<Round> {
        (spec.warmup > 0).then(|| Round {
            wanted: u64::from(spec.warmup.max(spec.batch)),
            seconds: None,
            ..Round::new(spec)
        })
    }

    /// Starts the clock.
    pub(super) fn begin(&mut self) {
        self.asked = 0;
        self.failures.clear();
        self.times.fill(0);
        self.started = Instant::now();
        self.last = self.started;
        self.deadline = self.seconds.and_then(|seconds| self.started.checked_add(seconds));
    }

    /// What to do next; `None` when the round is over.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Batch> {
        let late = self.deadline.is_some_and(|deadline| self.last >= deadline);
        if self.asked >= self.wanted
            || late
            || self.failures.total() >= self.max_errors
            || self.failures.ends_the_round()
        {
            return None;
        }
        let count = self.batch.min(self.wanted - self.asked);
        Some(Batch {
            first: self.asked,
            count: count as usize,
        })
    }

    /// Notes that a batch is over; what failed in it is in [`Round::failures`] by then.
    #[inline]
    pub(super) fn over(&mut self, batch: Batch) {
        self.asked += batch.count as u64;
        if self.keeps_times || self.deadline.is_some() {
            let now = Instant::now();
            if self.keeps_times {
                let span = now.duration_since(self.last);
                self.times[bucket(span.as_nanos() as u64)] += 1;
            }
            self.last = now;
        }
    }

    /// Runs the round with a client that works step by step.
    pub(super) fn drive(&mut self, mut step: impl FnMut(Batch, &mut Failures)) {
        self.begin();
        while let Some(batch) = self.next() {
            step(batch, &mut self.failures);
            self.over(batch);
        }
    }

    /// The result.
    pub(super) fn done(&self, redact: impl Fn(&str) -> String) -> Done {
        let end = if self.keeps_times || self.deadline.is_some() {
            self.last
        } else {
            Instant::now()
        };
        let latency = self.keeps_times.then(|| WireLatency {
            unit: "ns".to_owned(),
            per: if self.batch > 1 { "batch" } else { "op" }.to_owned(),
            hist: self
                .times
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(|(bucket, count)| (bucket_lower(bucket), *count))
                .collect(),
        });
        Done {
            ops: self.asked - self.failures.total().min(self.asked),
            asked: self.asked,
            elapsed_ns: Nanos::from(end.duration_since(self.started)),
            errors: self.failures.by_kind(redact),
            latency,
            counter: None,
            usage: None,
        }
    }
}
