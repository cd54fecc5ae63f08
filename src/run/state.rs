//! What is known of one row while the run goes on, and the result it becomes.

use std::collections::BTreeMap;

use crate::engine::{Engine, Outcome};
use crate::explain::evidence::{self, Failure};
use crate::plan::rows::Row;
use crate::record::latency::LatencyBuilder;
use crate::record::{
    ClientInfo, Counted, Round, ServerOrigin, ServerView, Status, StrategyResult, Timed, stats,
};
use crate::server::Server;
use crate::strategy::contract::Done;
use crate::strategy::worker::{Ready, RoundOutcome, WorkerError};
use crate::units::{Grouped, Measured, Nanos, Ops, escape};

use super::counted;
use super::interrupt::Interrupt;
use super::ledger::{Verification, verify};

/// How much of a client's error text is kept.
const ERROR_TEXT: usize = 160;

/// One row on its way.
pub(super) struct RowState {
    pub(super) client: ClientInfo,
    pub(super) rounds: Vec<Round>,
    pub(super) counted: Measured<Counted>,
    skipped: Option<String>,
    failure: Option<Failure>,
    latency: LatencyBuilder,
    /// Operations claimed and failed over everything the server's view covers.
    claimed: Ops,
    unsure: u64,
    view: Option<Measured<ServerView>>,
}

impl RowState {
    pub(super) fn new(row: &Row) -> RowState {
        RowState {
            client: ClientInfo { name: row.strategy.name.client.clone(), ..ClientInfo::default() },
            rounds: Vec::new(),
            counted: Measured::NotMeasured("the run ended before this row was counted".to_owned()),
            skipped: None,
            failure: None,
            latency: LatencyBuilder::new(row.batch > 1),
            claimed: Ops(0),
            unsure: 0,
            view: None,
        }
    }

    /// Whether the row still takes part.
    pub(super) fn is_live(&self) -> bool {
        self.skipped.is_none() && self.failure.is_none()
    }

    /// Takes the row out before it ran.
    pub(super) fn skip(&mut self, why: String) {
        self.counted = Measured::NotMeasured("the row was skipped".to_owned());
        self.skipped.get_or_insert(why);
    }

    /// Keeps what the workers say of themselves.
    pub(super) fn introduce(&mut self, ready: &[Ready]) {
        let Some(first) = ready.first() else { return };
        for (name, value) in &first.versions {
            let text = match value {
                serde_json::Value::Null => continue,
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let text = escape(&text, ERROR_TEXT);
            if *name == self.client.name {
                self.client.version = text;
            } else {
                self.client.environment.insert(escape(name, 40), text);
            }
        }
    }

    /// Takes the row out because a worker failed, with what the machine and the server say at that
    /// moment.
    pub(super) fn fail(&mut self, error: WorkerError, server: &mut Server, row: &Row, interrupt: &Interrupt) {
        if interrupt.requested() {
            return;
        }
        self.counted = Measured::NotMeasured("the row failed before it was counted".to_owned());
        self.failure = Some(evidence::of_worker(&error, server, row.strategy.name.transport, row.clients));
    }

    /// The counted pass failed; the timed rounds stay.
    pub(super) fn fail_count(
        &mut self,
        error: WorkerError,
        server: &mut Server,
        row: &Row,
        interrupt: &Interrupt,
    ) {
        self.fail(error, server, row, interrupt);
        if let Some(failure) = &self.failure {
            self.counted = Measured::NotMeasured(format!("the counted pass failed: {}", failure.message));
        }
    }

    /// Adds a round; a warm-up round only counts for the ledger.
    pub(super) fn add_round(&mut self, outcome: &RoundOutcome, view: Measured<ServerView>, kept: bool) {
        let (ops, errors, elapsed) = merged(&outcome.dones);
        self.claim(ops, errors.values().sum(), &view);
        if !kept {
            return;
        }
        for done in &outcome.dones {
            if let Some(latency) = &done.latency {
                self.latency.add(latency);
            }
        }
        let asked = Ops(outcome.dones.iter().map(|d| d.asked).sum());
        self.rounds.push(Round { ops, asked, elapsed, errors, server: view });
    }

    /// Adds the counted pass.
    pub(super) fn add_counted(
        &mut self,
        row: &Row,
        engine: &dyn Engine,
        dones: &[Done],
        outcome: Outcome,
        view: Measured<ServerView>,
    ) {
        let (counted, ops, failed) = counted::counted(row, engine, dones, outcome, self.median());
        self.claim(ops, failed, &view);
        self.counted = counted;
    }

    fn claim(&mut self, ops: Ops, failed: u64, view: &Measured<ServerView>) {
        self.claimed.0 += ops.0;
        self.unsure += failed;
        match &mut self.view {
            None => self.view = Some(view.clone()),
            Some(sum) => counted::add_view(sum, view),
        }
    }

    fn rates(&self) -> Vec<f64> {
        rates(&self.rounds)
    }

    fn median(&self) -> Option<f64> {
        stats::bootstrap(&self.rates()).map(|interval| interval.median)
    }

    /// The row as the record keeps it.
    pub(super) fn result(
        &self,
        row: &Row,
        baseline: Option<&[Round]>,
        origin: ServerOrigin,
    ) -> StrategyResult {
        let view = self.view.clone().unwrap_or_else(|| Measured::NotMeasured("no round was run".to_owned()));
        let (status, reason) = self.status(row, &view, origin);
        StrategyResult {
            name: row.strategy.name.to_string(),
            axes: row.axes(),
            client: self.client.clone(),
            status,
            reason,
            timed: self.timed(baseline),
            counted: self.counted.clone(),
            server_view: view,
            failure: self.failure.clone(),
        }
    }

    fn timed(&self, baseline: Option<&[Round]>) -> Measured<Timed> {
        let Some(ops_per_s) = stats::bootstrap(&self.rates()) else {
            return Measured::NotMeasured("no timed round completed an operation".to_owned());
        };
        let vs_baseline = match baseline {
            None => Measured::NotMeasured("this row is the baseline".to_owned()),
            Some(rounds) => Measured::from_option(
                stats::ratio_by_round(&self.rates(), &rates(rounds)),
                "the baseline has no round to compare with",
            ),
        };
        let latency = Measured::from_option(self.latency.finish(), "the client keeps no histogram");
        Measured::Known(Timed { rounds: self.rounds.clone(), ops_per_s, vs_baseline, latency })
    }

    fn status(
        &self,
        row: &Row,
        view: &Measured<ServerView>,
        origin: ServerOrigin,
    ) -> (Status, Option<String>) {
        if let Some(why) = &self.skipped {
            return (Status::Skipped, Some(why.clone()));
        }
        if let Some(failure) = &self.failure {
            return (Status::Failed, Some(failure.message.clone()));
        }
        if self.view.is_none() {
            return (Status::Skipped, Some("the run was interrupted before this row".to_owned()));
        }
        if self.claimed.0 == 0 && self.unsure > 0 {
            return (Status::Failed, self.first_error());
        }
        match verify(row.op, self.claimed, self.unsure, view, origin) {
            Verification::Confirmed if self.unsure > 0 => (Status::Ok, self.first_error()),
            Verification::Confirmed => (Status::Ok, None),
            Verification::Differs { claimed, served } => (
                Status::Unverified,
                Some(format!(
                    "the client claims {} operations, the server served {}",
                    Grouped(claimed),
                    Grouped(served)
                )),
            ),
            Verification::Unknown(why) => {
                (Status::Unverified, Some(format!("the server's counters could not be read: {why}")))
            }
        }
    }

    /// The most frequent error of the client over all rounds, in its words.
    fn first_error(&self) -> Option<String> {
        let mut sum: BTreeMap<&str, u64> = BTreeMap::new();
        let counted = self.counted.known().map(|c| &c.client_errors);
        for errors in self.rounds.iter().map(|r| &r.errors).chain(counted) {
            for (text, n) in errors {
                *sum.entry(text).or_default() += n;
            }
        }
        let (text, n) = sum.into_iter().max_by_key(|(_, n)| *n)?;
        Some(format!("{} operations failed: {text}", Grouped(n)))
    }
}

fn rates(rounds: &[Round]) -> Vec<f64> {
    rounds.iter().filter_map(|r| r.ops.per_second(r.elapsed)).collect()
}

/// One round of several workers: operations and errors add up, and the slowest worker gives the time.
pub(super) fn merged(dones: &[Done]) -> (Ops, BTreeMap<String, u64>, Nanos) {
    let mut errors = BTreeMap::new();
    for done in dones {
        for (text, n) in &done.errors {
            *errors.entry(escape(text, ERROR_TEXT)).or_default() += n;
        }
    }
    let ops = Ops(dones.iter().map(|d| d.ops).sum());
    let elapsed = dones.iter().map(|d| d.elapsed_ns).max().unwrap_or_default();
    (ops, errors, elapsed)
}
