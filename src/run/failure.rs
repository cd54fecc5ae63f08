//! From what went wrong with a worker to the failure that the record keeps, with what the machine and
//! the server say at that moment.

use nix::errno::Errno;

use crate::engine::EngineError;
use crate::explain::{Symptom, evidence};
use crate::proc::Root;
use crate::record::{Failure, FailureKind, Stage};
use crate::server::{Backend, Health, ServerError};
use crate::strategy::contract::Endpoint;
use crate::strategy::worker::{Fault, Phase, Problem, WorkerError};
use crate::units::escape;

/// How much of a message and of standard error is kept.
const TEXT: usize = 400;

/// Where it went wrong: the address and the server of the row; neither for a client without a server.
pub(super) struct Scene<'a> {
    pub(super) endpoint: Option<Endpoint>,
    pub(super) server: Option<&'a mut Backend>,
}

impl Scene<'_> {
    fn health(&mut self) -> Health {
        self.server
            .as_mut()
            .map_or(Health::Running, |server| server.describe_alive())
    }

    fn address(&self) -> String {
        self.endpoint
            .as_ref()
            .map(|endpoint| escape(&endpoint.to_string(), TEXT))
            .unwrap_or_default()
    }
}

/// What went wrong with the workers of a row. `counted` tells the counted pass from a timed round.
pub(super) fn of_workers(error: &WorkerError, counted: bool, scene: &mut Scene<'_>) -> Failure {
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
    let stderr = fault.map(|f| f.stderr.as_str()).unwrap_or_default();
    let mut failure = Failure {
        stage,
        kind: kind(error, fault),
        class,
        errno: errno(&message, stderr).map(str::to_owned),
        message,
        pid: fault.map(|f| f.pid),
        exit,
        stderr_tail: escape(stderr, TEXT),
        endpoint: scene.address(),
        facts: Default::default(),
    };
    let health = scene.health();
    read_the_moment(&mut failure, scene, None, health);
    if failure.kind == FailureKind::NotStarted {
        failure.facts.extend(evidence::forking(&Root::live()));
    }
    failure
}

/// Operations failed although the workers went on: the client's most frequent words, and the worker that
/// said them.
pub(super) fn of_operations(
    text: &str,
    worker: Option<i32>,
    counted: bool,
    scene: &mut Scene<'_>,
) -> Failure {
    let (class, message) = text.split_once(':').unwrap_or(("", text));
    let symptom = Symptom::of(text);
    let mut failure = Failure {
        stage: if counted { Stage::Counted } else { Stage::Round },
        kind: FailureKind::Said,
        class: class.to_owned(),
        errno: symptom.errno().map(str::to_owned),
        ..nothing(message, scene)
    };
    let health = scene.health();
    read_the_moment(&mut failure, scene, worker, health);
    if symptom == Symptom::NotForked {
        failure.facts.extend(evidence::forking(&Root::live()));
    }
    failure
}

/// The server did not answer systally itself when a row was to begin.
pub(super) fn of_server(error: &ServerError, counted: bool, scene: &mut Scene<'_>) -> Failure {
    let health = scene.health();
    of_silence(&error.to_string(), health, counted, scene)
}

/// As [`of_server`], when only its health is known.
pub(super) fn of_health(health: Health, counted: bool, scene: &mut Scene<'_>) -> Failure {
    let text = format!("the server is gone: {health}");
    of_silence(&text, health, counted, scene)
}

/// The row's server could not be started.
pub(super) fn of_absence(error: &ServerError) -> Failure {
    let nowhere = Scene {
        endpoint: None,
        server: None,
    };
    Failure {
        stage: Stage::Startup,
        ..nothing(&error.to_string(), &nowhere)
    }
}

fn of_silence(text: &str, health: Health, counted: bool, scene: &mut Scene<'_>) -> Failure {
    let mut failure = Failure {
        stage: if counted { Stage::Counted } else { Stage::Round },
        ..nothing(text, scene)
    };
    read_the_moment(&mut failure, scene, None, health);
    failure
}

fn nothing(message: &str, scene: &Scene<'_>) -> Failure {
    Failure {
        stage: Stage::Round,
        kind: FailureKind::ServerUnreachable,
        class: String::new(),
        errno: None,
        message: escape(message, TEXT),
        pid: None,
        exit: None,
        stderr_tail: String::new(),
        endpoint: scene.address(),
        facts: Default::default(),
    }
}

/// Whether there is no server any more to run anything against.
pub(super) fn is_loss(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::ServerDied | FailureKind::ServerUnreachable
    )
}

/// The errno in a worker's words. A runtime that could open no file says so on standard error and dies
/// without a word of its own; other errnos there are as often remarks.
fn errno(message: &str, stderr: &str) -> Option<&'static str> {
    let said = Symptom::of(message).errno();
    said.or_else(
        || match stderr.lines().map(Symptom::of).find(|s| is_shortage(*s)) {
            Some(shortage) => shortage.errno(),
            None => None,
        },
    )
}

fn is_shortage(symptom: Symptom) -> bool {
    matches!(symptom, Symptom::TooManyFiles | Symptom::SystemTooManyFiles)
}

/// Adds what the machine says now, and says so when it is the server that died.
fn read_the_moment(failure: &mut Failure, scene: &Scene<'_>, worker: Option<i32>, health: Health) {
    let server = scene.server.as_ref().and_then(|server| server.pid());
    failure.facts = evidence::collect(&Root::live(), scene.endpoint.as_ref(), worker, server);
    match health {
        Health::Running => {}
        Health::Silent(_) => failure.kind = FailureKind::ServerUnreachable,
        ended @ Health::Ended { .. } => {
            failure.kind = FailureKind::ServerDied;
            failure.pid = server;
            failure.exit = Some(ended.to_string());
        }
    }
}

fn kind(error: &WorkerError, fault: Option<&Fault>) -> FailureKind {
    match error {
        WorkerError::Engine(EngineError::Exec { .. }) => return FailureKind::NotStarted,
        WorkerError::Engine(
            EngineError::NoProcess { .. }
            | EngineError::System {
                source: Errno::EAGAIN,
                ..
            },
        ) => return FailureKind::NotStarted,
        WorkerError::Engine(EngineError::Denied { .. }) => return FailureKind::NoPtrace,
        WorkerError::Engine(
            EngineError::System { .. }
            | EngineError::Broken { .. }
            | EngineError::NoneLeft
            | EngineError::CannotAttach { .. },
        )
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
            | Problem::OutOfOrder { .. },
        ) => FailureKind::Garbage,
        Some(Problem::Miscounted { .. }) => FailureKind::Miscounted,
    }
}
