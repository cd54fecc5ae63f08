//! What is known of one row while the run goes on, and the result it becomes.

use std::collections::BTreeMap;

use crate::engine::{Engine, Outcome};
use crate::plan::rows::Row;
use crate::record::latency::LatencyBuilder;
use crate::record::{
    ClientInfo, Counted, CounterReading, Experiment, Failure, Interval, Round, ServerOrigin, ServerView,
    Status, StrategyResult, Timed, Usage, Witness, stats, witness,
};
use crate::strategy::contract::{Done, Op};
use crate::strategy::worker::{Ready, RoundOutcome};
use crate::units::{Grouped, Measured, Nanos, Ops, escape};

use super::ledger::{Verification, verify};
use super::{counted, usage};

/// How much of a client's error text is kept.
const ERROR_TEXT: usize = 160;

/// One row on its way.
pub(super) struct RowState {
    pub(super) client: ClientInfo,
    pub(super) rounds: Vec<Round>,
    pub(super) counted: Measured<Counted>,
    /// Every counted pass, that of `counted` first.
    passes: Vec<Counted>,
    /// The same work at nearly native speed, and how much of it was counted.
    recounts: Vec<Counted>,
    recounted_calls: Option<Vec<String>>,
    /// Why there is no recount.
    not_recounted: String,
    skipped: Option<String>,
    /// Whether the row was taken out because its workers failed.
    failed: bool,
    /// The first failure, of the workers or of operations.
    failure: Option<Failure>,
    latency: LatencyBuilder,
    /// Operations claimed and failed over everything the server's view covers.
    claimed: Ops,
    unsure: u64,
    /// What the client said of those that failed.
    errors: BTreeMap<String, u64>,
    view: Option<Measured<ServerView>>,
    /// Commands of this row that the server got after the client had claimed them.
    late: u64,
    /// Those of them that were claimed in timed rounds.
    late_in_rounds: u64,
    /// What a script that counts for itself read.
    counters: Vec<CounterReading>,
    /// What both sides spent, when that was asked for.
    usage: Option<Usage>,
    /// Processes that its workers left running in the timed rounds: how many, and a few in words.
    left: (usize, Vec<String>),
}

/// Processes left running that are named one by one.
const LEFT_NAMED: usize = 3;

impl RowState {
    pub(super) fn new(row: &Row) -> RowState {
        RowState {
            client: ClientInfo {
                name: row.strategy.client.name().to_owned(),
                ..ClientInfo::default()
            },
            rounds: Vec::new(),
            counted: Measured::NotMeasured("the run ended before this row was counted".to_owned()),
            passes: Vec::new(),
            recounts: Vec::new(),
            recounted_calls: None,
            not_recounted: "the run ended before this row was recounted".to_owned(),
            skipped: None,
            failed: false,
            failure: None,
            latency: LatencyBuilder::new(row.batch > 1),
            claimed: Ops(0),
            unsure: 0,
            errors: BTreeMap::new(),
            view: None,
            late: 0,
            late_in_rounds: 0,
            counters: Vec::new(),
            usage: None,
            left: (0, Vec::new()),
        }
    }

    /// Whether the row still takes part.
    pub(super) fn is_live(&self) -> bool {
        self.skipped.is_none() && !self.failed
    }

    /// Takes the row out before it ran.
    pub(super) fn skip(&mut self, why: String) {
        self.counted = Measured::NotMeasured("the row was skipped".to_owned());
        self.skipped.get_or_insert(why);
    }

    /// Keeps what the workers say of themselves.
    pub(super) fn introduce(&mut self, ready: &[Ready]) {
        let Some(first) = ready.first() else { return };
        for (name, text) in &first.versions {
            if *name == self.client.name {
                self.client.version = text.clone();
            } else {
                self.client.environment.insert(name.clone(), text.clone());
            }
        }
    }

    /// Takes the row out because its workers failed; rounds that it had stay.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.counted = Measured::NotMeasured(format!("the row failed {}", failure.stage.words()));
        self.failed = true;
        self.failure = Some(failure);
    }

    /// Keeps what was read when operations failed for the first time; the row goes on.
    pub(super) fn trouble(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Adds a round; a warm-up round only counts for the ledger.
    pub(super) fn add_round(&mut self, outcome: &RoundOutcome, view: Measured<ServerView>, kept: bool) {
        let (ops, errors, elapsed) = merged(&outcome.dones);
        self.claim(ops, &errors, &view);
        if !kept {
            return;
        }
        for done in &outcome.dones {
            if let Some(latency) = &done.latency {
                self.latency.add_all(&latency.hist);
            }
            self.counters.extend(done.counter);
        }
        let asked = Ops(outcome
            .dones
            .iter()
            .fold(0, |sum, done| sum.saturating_add(done.asked)));
        self.rounds.push(Round {
            ops,
            asked,
            elapsed,
            errors,
            server: view,
            cpu: outcome.cpu,
        });
    }

    /// Adds the counted pass.
    pub(super) fn add_counted(
        &mut self,
        row: &Row,
        engine: &dyn Engine,
        dones: &[Done],
        counted: &[Done],
        outcome: Outcome,
        view: Measured<ServerView>,
    ) {
        let (ops, errors, _) = merged(dones);
        let counted = counted::counted(row, engine, counted, outcome, self.median());
        self.claim(ops, &errors, &view);
        if let Measured::Known(counted) = &counted {
            self.passes.push(counted.clone());
        }
        // The table shows the first pass; a later one that failed takes nothing from it.
        if self.counted.known().is_none() {
            self.counted = counted;
        }
    }

    /// Adds work that is in the ledger alone.
    pub(super) fn add_uncounted(&mut self, dones: &[Done], view: &Measured<ServerView>) {
        let (ops, errors, _) = merged(dones);
        self.claim(ops, &errors, view);
    }

    /// Adds a recount by an engine that counts only these calls, or all.
    pub(super) fn add_recount(
        &mut self,
        row: &Row,
        engine: &dyn Engine,
        dones: &[Done],
        outcome: Outcome,
        view: Measured<ServerView>,
        calls: Option<Vec<String>>,
    ) {
        let (ops, errors, _) = merged(dones);
        let recount = counted::counted(row, engine, dones, outcome, self.median());
        self.claim(ops, &errors, &view);
        self.recounted_calls = calls;
        match recount {
            Measured::Known(recount) => self.recounts.push(recount),
            Measured::NotMeasured(why) => self.not_recounted = why,
        }
    }

    /// Keeps why the row is not recounted.
    pub(super) fn no_recount(&mut self, why: String) {
        self.not_recounted = why;
    }

    /// What the recounts say of the counted passes.
    fn witness(&self) -> Measured<Witness> {
        if let (Some(reason), None) = (self.counted.reason(), self.counted.known()) {
            return Measured::NotMeasured(reason.to_owned());
        }
        let Some(first) = self.recounts.first() else {
            return Measured::NotMeasured(self.not_recounted.clone());
        };
        let coverage = match self.recounted_calls {
            None => witness::Coverage::All,
            Some(_) => witness::Coverage::Chosen,
        };
        Measured::Known(Witness {
            engine: first.engine.clone(),
            passes: u32::try_from(self.recounts.len()).unwrap_or(u32::MAX),
            calls: self.recounted_calls.clone(),
            slowdown: first.slowdown.clone(),
            moved: witness::compare(&self.passes, &self.recounts, coverage),
        })
    }

    /// Whether the server has served less than the client claims so far, late arrivals included.
    pub(super) fn claims_too_much(&self, op: Op) -> bool {
        let served = self
            .view
            .as_ref()
            .and_then(|view| view.known())
            .map(|view| view.served(op.commands()));
        served.is_some_and(|served| served.saturating_add(self.late) < self.claimed.0)
    }

    /// Keeps what its workers left running and was ended.
    pub(super) fn left_running(&mut self, left: Vec<String>) {
        self.left.0 += left.len();
        let room = LEFT_NAMED.saturating_sub(self.left.1.len());
        self.left.1.extend(left.into_iter().take(room));
    }

    /// The counted pass, with what is to be said of the timed rounds.
    fn counted(&self) -> Measured<Counted> {
        let mut counted = self.counted.clone();
        if let (Measured::Known(counted), (n @ 1.., named)) = (&mut counted, &self.left) {
            let more = if *n > named.len() { " and others" } else { "" };
            counted.notes.push(format!(
                "in the timed rounds its workers left {n} processes running, which were killed: {}{more}",
                named.join(", ")
            ));
        }
        counted
    }

    /// Adds what both sides spent in a round.
    pub(super) fn spend(&mut self, round: Usage) {
        usage::add(&mut self.usage, round);
    }

    /// Keeps how many commands came after the end of a round, and whether that was one that is kept.
    pub(super) fn arrived_late(&mut self, commands: u64, kept: bool) {
        self.late = self.late.saturating_add(commands);
        if kept {
            self.late_in_rounds = self.late_in_rounds.saturating_add(commands);
        }
    }

    fn claim(&mut self, ops: Ops, errors: &BTreeMap<String, u64>, view: &Measured<ServerView>) {
        // Saturating, here and below: a worker may claim whatever it likes.
        self.claimed.0 = self.claimed.0.saturating_add(ops.0);
        for (text, n) in errors {
            self.unsure = self.unsure.saturating_add(*n);
            let sum = self.errors.entry(text.clone()).or_default();
            *sum = sum.saturating_add(*n);
        }
        match &mut self.view {
            None => self.view = Some(view.clone()),
            Some(sum) => counted::add_view(sum, view),
        }
    }

    /// Median operations per second of the timed rounds.
    pub(super) fn median(&self) -> Option<f64> {
        stats::median(&rates(&self.rounds).into_iter().flatten().collect::<Vec<_>>())
    }

    /// What the server saw of it in all its rounds.
    fn whole_view(&self) -> Measured<ServerView> {
        self.view
            .clone()
            .unwrap_or_else(|| Measured::NotMeasured("no round was run".to_owned()))
    }

    /// Whether its speed is a result so far: it has not failed, and its server confirms what it claims.
    pub(super) fn is_sound(&self, row: &Row, origin: Option<ServerOrigin>) -> bool {
        self.status(row, &self.whole_view(), origin).0 == Status::Ok
    }

    /// The row as the record keeps it.
    pub(super) fn result(
        &self,
        row: &Row,
        baseline: Result<&[Round], &str>,
        origin: Option<ServerOrigin>,
    ) -> StrategyResult {
        let view = self.whole_view();
        let (status, reason) = self.status(row, &view, origin);
        StrategyResult {
            name: row.strategy.name().to_string(),
            axes: row.axes(),
            client: self.client.clone(),
            status,
            reason,
            timed: self.timed(baseline),
            counted: self.counted(),
            varied: witness::varied(&self.passes),
            witness: self.witness(),
            server_view: view,
            experiment: Experiment {
                counters: self.counters.clone(),
                usage: self.usage,
                served_late: self.late_in_rounds,
                ..Experiment::default()
            },
            failure: self.failure.clone(),
        }
    }

    fn timed(&self, baseline: Result<&[Round], &str>) -> Measured<Timed> {
        let own = rates(&self.rounds);
        let Some(ops_per_s) = Interval::of(&own.iter().copied().flatten().collect::<Vec<_>>()) else {
            return Measured::NotMeasured("no timed round completed an operation".to_owned());
        };
        let vs_baseline = match baseline {
            Err(why) => Measured::NotMeasured(why.to_owned()),
            Ok(rounds) => Measured::from_option(
                stats::ratio_by_round(&own, &rates(rounds)),
                "the baseline has no round to compare with",
            ),
        };
        let latency = Measured::from_option(self.latency.clone().finish(), "the client keeps no histogram");
        Measured::Known(Timed {
            rounds: self.rounds.clone(),
            ops_per_s,
            vs_baseline,
            latency,
        })
    }

    fn status(
        &self,
        row: &Row,
        view: &Measured<ServerView>,
        origin: Option<ServerOrigin>,
    ) -> (Status, Option<String>) {
        if let Some(why) = &self.skipped {
            return (Status::Skipped, Some(why.clone()));
        }
        if let (true, Some(failure)) = (self.failed, &self.failure) {
            return (Status::Failed, Some(failure.message.clone()));
        }
        if self.view.is_none() {
            return (
                Status::Skipped,
                Some("the run was interrupted before this row".to_owned()),
            );
        }
        if self.claimed.0 == 0 && self.unsure > 0 {
            return (Status::Failed, self.error_line());
        }
        // A client without a server: nobody but itself can confirm what it did.
        let Some(origin) = origin else {
            return match self.unsure {
                0 => (Status::Ok, None),
                _ => (Status::Ok, self.error_line()),
            };
        };
        match verify(row.op, self.claimed, self.unsure, view, origin) {
            Verification::Confirmed if self.unsure > 0 => (Status::Ok, self.error_line()),
            Verification::Confirmed => (Status::Ok, None),
            Verification::Differs { claimed, served } => (
                Status::Unverified,
                Some(format!(
                    "the client claims {} operations in all (warm-up, timed rounds and counting), the server served {}{}",
                    Grouped(claimed),
                    Grouped(served),
                    match self.late {
                        0 => String::new(),
                        late => format!(
                            " by then and {} after the client had stopped its clock",
                            Grouped(late)
                        ),
                    }
                )),
            ),
            Verification::Unknown(why) => (
                Status::Unverified,
                Some(format!("the server's counters could not be read: {why}")),
            ),
        }
    }

    fn error_line(&self) -> Option<String> {
        let (text, n) = most_frequent(&self.errors)?;
        Some(format!("{} operations failed: {text}", Grouped(n)))
    }
}

/// The error that most operations failed with.
pub(super) fn most_frequent(errors: &BTreeMap<String, u64>) -> Option<(&str, u64)> {
    let (text, n) = errors.iter().max_by_key(|(_, n)| **n)?;
    Some((text, *n))
}

/// Operations per second of each round; a round that completed none has a rate of 0, one without any
/// time has none.
fn rates(rounds: &[Round]) -> Vec<Option<f64>> {
    rounds.iter().map(|r| r.ops.per_second(r.elapsed)).collect()
}

/// One round of several workers: operations and errors add up, and the slowest worker gives the time.
pub(super) fn merged(dones: &[Done]) -> (Ops, BTreeMap<String, u64>, Nanos) {
    let mut errors = BTreeMap::new();
    for done in dones {
        for (text, n) in &done.errors {
            let sum: &mut u64 = errors.entry(escape(text, ERROR_TEXT)).or_default();
            *sum = sum.saturating_add(*n);
        }
    }
    let ops = Ops(dones.iter().fold(0, |sum, done| sum.saturating_add(done.ops)));
    let elapsed = dones.iter().map(|d| d.elapsed_ns).max().unwrap_or_default();
    (ops, errors, elapsed)
}
