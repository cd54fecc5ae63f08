//! No tracer: the program runs as it would without systally, and nothing is counted. The timed rounds use
//! this.

use std::time::{Duration, Instant};

use super::plain::{Free, Orphans, Plain};
use super::{
    Availability, Capabilities, Engine, EngineError, EngineKind, Outcome, Program, Request, Session,
};
use crate::units::Measured;

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untraced;

impl Engine for Untraced {
    fn kind(&self) -> EngineKind {
        EngineKind::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn availability(&self) -> Availability {
        Availability::Ready
    }

    fn launch(&self, programs: Vec<Program>, _: &Request) -> Result<Box<dyn Session>, EngineError> {
        let plain = Plain::launch(EngineKind::None, programs, None, Orphans::Kill)?;
        Ok(Box::new(UntracedSession { plain }))
    }
}

struct UntracedSession {
    plain: Plain,
}

impl Free for UntracedSession {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn plain_mut(&mut self) -> &mut Plain {
        &mut self.plain
    }

    fn end(mut self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let mut notes = Vec::new();
        if !self.plain.wait(limit.map(|limit| Instant::now() + limit))? {
            notes.push("programs that were still running at the time limit were killed".to_owned());
            self.plain.kill()?;
        }
        let reason = || "the none engine counts nothing".to_owned();
        let (exits, cpu) = self.plain.ended();
        let left = self.plain.left();
        Ok(Outcome {
            left,
            windows: exits.iter().map(|_| Measured::NotMeasured(reason())).collect(),
            tallies: Measured::NotMeasured(reason()),
            cpu: Measured::Known(cpu),
            tracees: exits.len() as u64,
            exits,
            notes,
        })
    }
}
