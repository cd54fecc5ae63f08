//! From what went wrong with a worker to the failure that the record keeps, with what the machine and
//! the server say at that moment.

use crate::engine::EngineError;
use crate::explain::{Symptom, evidence};
use crate::proc::Root;
use crate::record::{Failure, FailureKind, Stage};
use crate::server::{Health, Server};
use crate::strategy::contract::Endpoint;
use crate::strategy::worker::{Fault, Phase, Problem, WorkerError};
use crate::units::escape;

/// How much of a message and of standard error is kept.
const TEXT: usize = 400;

/// What went wrong with the workers of a row. `counted` tells the counted pass from a timed round.
pub(super) fn of_workers(
    error: &WorkerError,
    counted: bool,
    endpoint: &Endpoint,
    server: &mut Server,
) -> Failure {
    let fault = match error {
        WorkerError::Workers { faults, .. } => faults.first(),
        WorkerError::Engine(_)
        | WorkerError::Interrupted { .. }
        | WorkerError::Pipes { .. }
        | WorkerError::Over => None,
    };
    let message = escape(&error.to_string(), TEXT);
    let stage = match fault.map(|f| f.phase) {
        Some(Phase::StartUp) | None => Stage::Startup,
        Some(Phase::Round | Phase::Idle) if counted => Stage::Counted,
        Some(Phase::Round | Phase::Idle) => Stage::Round,
    };
    let (class, exit) = match fault.map(|f| &f.problem) {
        Some(Problem::Failed { class, .. }) => (class.clone(), None),
        Some(Problem::Ended { exit }) => (String::new(), exit.map(|exit| exit.to_string())),
        _ => (String::new(), None),
    };
    let mut failure = Failure {
        stage,
        kind: kind(error, fault),
        class,
        errno: Symptom::of(&message).errno().map(str::to_owned),
        message,
        pid: fault.map(|f| f.pid),
        exit,
        stderr_tail: fault.map(|f| escape(&f.stderr, TEXT)).unwrap_or_default(),
        endpoint: escape(&endpoint.to_string(), TEXT),
        facts: Default::default(),
    };
    read_the_moment(&mut failure, endpoint, server);
    failure
}

/// Operations failed although the workers went on: the client's most frequent words.
pub(super) fn of_operations(text: &str, counted: bool, endpoint: &Endpoint, server: &mut Server) -> Failure {
    let (class, message) = text.split_once(':').unwrap_or(("", text));
    let mut failure = Failure {
        stage: if counted { Stage::Counted } else { Stage::Round },
        kind: FailureKind::Said,
        class: class.to_owned(),
        message: message.to_owned(),
        errno: Symptom::of(message).errno().map(str::to_owned),
        pid: None,
        exit: None,
        stderr_tail: String::new(),
        endpoint: escape(&endpoint.to_string(), TEXT),
        facts: Default::default(),
    };
    read_the_moment(&mut failure, endpoint, server);
    failure
}

/// Adds what the machine says now, and says so when it is the server that died.
fn read_the_moment(failure: &mut Failure, endpoint: &Endpoint, server: &mut Server) {
    failure.facts = evidence::collect(&Root::live(), endpoint, None, server.pid());
    match server.describe_alive() {
        Health::Running => {}
        Health::Silent(_) => failure.kind = FailureKind::ServerUnreachable,
        ended @ Health::Ended { .. } => {
            failure.kind = FailureKind::ServerDied;
            failure.pid = server.pid();
            failure.exit = Some(ended.to_string());
        }
    }
}

fn kind(error: &WorkerError, fault: Option<&Fault>) -> FailureKind {
    match error {
        WorkerError::Engine(EngineError::Exec { .. }) => return FailureKind::NotStarted,
        WorkerError::Engine(EngineError::Denied { .. }) => return FailureKind::NoPtrace,
        WorkerError::Engine(EngineError::System { .. } | EngineError::Broken { .. })
        | WorkerError::Interrupted { .. }
        | WorkerError::Pipes { .. }
        | WorkerError::Over => return FailureKind::Died,
        WorkerError::Workers { .. } => {}
    }
    match fault.map(|f| &f.problem) {
        Some(Problem::Failed { .. }) => FailureKind::Said,
        Some(Problem::Ended { .. }) | None => FailureKind::Died,
        Some(Problem::TimedOut { .. }) => FailureKind::Hung,
        Some(
            Problem::ClosedOutput
            | Problem::Garbage { .. }
            | Problem::TooMuch { .. }
            | Problem::WrongProtocol { .. }
            | Problem::OutOfOrder { .. }
            | Problem::Miscounted { .. },
        ) => FailureKind::Garbage,
    }
}
