//! Which engine counts in a bench and which one recounts, by what was asked for and what may run here.

use anyhow::anyhow;

use crate::cli::{EngineChoice, WitnessChoice};
use crate::engine::{self, Availability, Engine, EngineKind};

use super::{Code, CommandError, WithCode};

/// The engines that `--engine auto` tries: the first one knows most.
const COUNTING: [EngineKind; 2] = [EngineKind::Ptrace, EngineKind::Bpf];
/// Those that `--witness auto` tries: the first one counts most.
const WITNESSES: [EngineKind; 2] = [EngineKind::Bpf, EngineKind::Perf];

/// The engines of a run.
pub struct Counting {
    /// Counts; `None` when nothing shall be counted.
    pub engine: Option<&'static dyn Engine>,
    /// Recounts; or why nothing is recounted.
    pub witness: Result<&'static dyn Engine, String>,
    /// Which engines these are and why, in one line.
    pub line: String,
}

/// Chooses the engines.
///
/// # Errors
/// An engine that was asked for and may not run here; a witness that cannot be one.
pub fn choose(engine: EngineChoice, witness: WitnessChoice) -> Result<Counting, CommandError> {
    let Some((counting, why)) = counting(engine)? else {
        return match asked(witness) {
            Some(kind) => Err(anyhow!(
                "--witness {kind} recounts what another engine has counted, and --engine none counts nothing"
            ))
            .code(Code::Usage),
            None => Ok(Counting {
                engine: None,
                witness: Err("nothing was counted".to_owned()),
                line: "counting: nothing (--engine none)".to_owned(),
            }),
        };
    };
    let kind = counting.kind();
    let (witness, how) = if kind.is_near_native() {
        if let Some(witness) = asked(witness) {
            return Err(anyhow!(
                "--witness {witness} recounts at native speed what a slower engine has counted, and {kind} hardly \
                 slows a client; leave it out"
            ))
            .code(Code::Usage);
        }
        let why = format!("{kind} hardly slows a client");
        (Err(why.clone()), format!("not recounted: {why}"))
    } else {
        second(witness)?
    };
    Ok(Counting {
        engine: Some(counting),
        witness,
        line: format!("counting: by {kind} ({why}); {how}"),
    })
}

/// The engine of the counted pass and why it is that one.
fn counting(choice: EngineChoice) -> Result<Option<(&'static dyn Engine, String)>, CommandError> {
    let kind = match choice {
        EngineChoice::None => return Ok(None),
        EngineChoice::Auto => {
            let (ready, passed_over) = first_ready(&COUNTING);
            return match ready {
                Some(engine) if passed_over.is_empty() => {
                    Ok(Some((engine, "auto: it sees where every call leads".to_owned())))
                }
                Some(engine) => Ok(Some((engine, format!("auto: {}", passed_over.join("; "))))),
                None => unavailable(COUNTING[0], "or time without counting: --engine none"),
            };
        }
        EngineChoice::Ptrace => EngineKind::Ptrace,
        EngineChoice::PtraceCounts => EngineKind::PtraceCounts,
        EngineChoice::Bpf => EngineKind::Bpf,
        EngineChoice::Perf => EngineKind::Perf,
        EngineChoice::Strace => EngineKind::Strace,
    };
    if is_ready(kind) {
        Ok(Some((engine::engine(kind), format!("--engine {kind}"))))
    } else {
        unavailable(kind, "or time without counting: --engine none")
    }
}

/// The engine that recounts, and what is said of it.
#[allow(clippy::type_complexity)] // A pair of the two things that the line and the run need.
fn second(choice: WitnessChoice) -> Result<(Result<&'static dyn Engine, String>, String), CommandError> {
    let kind = match choice {
        WitnessChoice::None => {
            let why = "--witness none".to_owned();
            return Ok((Err(why.clone()), format!("not recounted ({why})")));
        }
        WitnessChoice::Auto => {
            let (ready, passed_over) = first_ready(&WITNESSES);
            let reasons = passed_over.join("; ");
            return Ok(match ready {
                Some(engine) => {
                    let why = if reasons.is_empty() {
                        "it sees all calls"
                    } else {
                        &reasons
                    };
                    let how = format!(
                        "recounted at nearly native speed by {} (auto: {why})",
                        engine.kind()
                    );
                    (Ok(engine), how)
                }
                None => (
                    Err(format!("no engine counts at native speed here: {reasons}")),
                    format!("not recounted at native speed ({reasons})"),
                ),
            });
        }
        WitnessChoice::Bpf => EngineKind::Bpf,
        WitnessChoice::Perf => EngineKind::Perf,
    };
    if is_ready(kind) {
        let how = format!("recounted at nearly native speed by {kind} (--witness {kind})");
        Ok((Ok(engine::engine(kind)), how))
    } else {
        unavailable(kind, "or go without a witness: --witness none")
    }
}

/// The engine of an explicit choice.
fn asked(choice: WitnessChoice) -> Option<EngineKind> {
    match choice {
        WitnessChoice::Auto | WitnessChoice::None => None,
        WitnessChoice::Bpf => Some(EngineKind::Bpf),
        WitnessChoice::Perf => Some(EngineKind::Perf),
    }
}

fn is_ready(kind: EngineKind) -> bool {
    engine::engine(kind).availability() == Availability::Ready
}

/// The first of these engines that may run here, and why those before it may not.
fn first_ready(kinds: &[EngineKind]) -> (Option<&'static dyn Engine>, Vec<String>) {
    let mut passed_over = Vec::new();
    for kind in kinds {
        let engine = engine::engine(*kind);
        match engine.availability() {
            Availability::Ready => return (Some(engine), passed_over),
            Availability::Unavailable { why, .. } => {
                passed_over.push(format!("{kind} is not available: {why}"))
            }
        }
    }
    (None, passed_over)
}

/// The error of an engine that may not run here.
fn unavailable<T>(kind: EngineKind, else_do: &str) -> Result<T, CommandError> {
    let (why, fix) = match engine::engine(kind).availability() {
        Availability::Unavailable { why, fix } => (why, fix),
        // It has become ready since it was asked.
        Availability::Ready => ("it was not ready a moment ago".to_owned(), "try again".to_owned()),
    };
    Err(anyhow!("cannot count with {kind}: {why}; {fix}, {else_do}")).code(Code::CannotMeasure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_needs_something_to_witness() {
        let refused = |engine, witness| match choose(engine, witness) {
            Err(error) => (error.code, error.error.to_string()),
            Ok(counting) => panic!("{}", counting.line),
        };
        let (code, text) = refused(EngineChoice::None, WitnessChoice::Bpf);
        assert_eq!(code, Code::Usage);
        assert!(text.contains("counts nothing"), "{text}");
        let nothing = choose(EngineChoice::None, WitnessChoice::Auto).expect("no engine");
        assert!(nothing.engine.is_none() && nothing.witness.is_err());
    }
}
