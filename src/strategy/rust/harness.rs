//! The life of a Rust worker: specification, set-up, warm-up, `ready`, and a round for each `go`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use super::failure::Fail;
use super::round::Round;
use crate::strategy::contract::{Event, PROTOCOL, Spec};

/// Exit status after a `fail` line.
const FAILED: u8 = 3;

/// A client that is connected and ready to work.
pub(super) trait Worker {
    /// Runs a round to its end; [`Round::drive`] does it for a client that works step by step.
    fn run(&mut self, round: &mut Round);

    /// Versions of what it is built on, beside its own.
    fn versions(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::new()
    }
}

/// Speaks the contract from beginning to end.
pub(super) fn serve(
    name: &str,
    version: &str,
    set_up: fn(&Spec) -> Result<Box<dyn Worker>, Fail>,
) -> ExitCode {
    let spec = match read_spec() {
        Ok(spec) => spec,
        Err(fail) => return refuse(&fail),
    };
    let redact = |text: &str| spec.redact(text);
    let mut out = Vec::with_capacity(1 << 16);
    let outcome = check(&spec)
        .and_then(|()| set_up(&spec))
        .and_then(|mut worker| warm_up(&spec, worker.as_mut(), &mut out).map(|()| worker))
        .and_then(|mut worker| {
            let mut versions = worker.versions();
            versions.insert(name.to_owned(), version.into());
            say(
                &mut out,
                &Event::Ready {
                    protocol: PROTOCOL,
                    pid: std::process::id().cast_signed(),
                    versions,
                },
            );
            rounds(&spec, worker.as_mut(), &mut out)
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            say(&mut out, &fail.event(redact));
            ExitCode::from(FAILED)
        }
    }
}

/// Ends with a `fail` line before there is a specification.
pub(super) fn refuse(fail: &Fail) -> ExitCode {
    say(&mut Vec::new(), &fail.event(str::to_owned));
    ExitCode::from(FAILED)
}

/// From the environment, else from the first line of standard input.
fn read_spec() -> Result<Spec, Fail> {
    let mut text = std::env::var("SYSTALLY_SPEC").unwrap_or_default();
    if text.is_empty() {
        io::stdin()
            .lock()
            .read_line(&mut text)
            .map_err(|e| Fail::spec(format!("reading the specification from standard input: {e}")))?;
    }
    if text.trim().is_empty() {
        return Err(Fail::spec(
            "there is no specification, neither in SYSTALLY_SPEC nor on standard input",
        ));
    }
    // serde_json quotes what it could not read, and that may be a password.
    serde_json::from_str(&text).map_err(|e| {
        Fail::spec(format!(
            "the specification cannot be read ({:?} at column {})",
            e.classify(),
            e.column()
        ))
    })
}

/// What no Rust client can do.
fn check(spec: &Spec) -> Result<(), Fail> {
    if spec.protocol != PROTOCOL {
        return Err(Fail::spec(format!("this worker speaks protocol {PROTOCOL} only")));
    }
    if spec.forks > 0 {
        return Err(Fail::spec(
            "forks: this worker does not fork, start several workers instead",
        ));
    }
    if spec.batch == 0 || spec.max_errors == 0 {
        return Err(Fail::spec("batch and max_errors must be at least 1"));
    }
    if let crate::strategy::contract::Stop::Seconds(seconds) = spec.stop
        && std::time::Duration::try_from_secs_f64(seconds).is_err()
    {
        return Err(Fail::spec("stop.seconds must be a number from 0 on"));
    }
    Ok(())
}

/// Runs enough operations that nothing is connected, loaded or allocated for the first time in a window.
fn warm_up(spec: &Spec, worker: &mut dyn Worker, out: &mut Vec<u8>) -> Result<(), Fail> {
    let Some(mut round) = Round::warm_up(spec) else {
        return Ok(());
    };
    worker.run(&mut round);
    let done = round.done(|text| spec.redact(text));
    encode(out, &Event::Done(done.clone()));
    match round.failures.first() {
        Some(failure) if done.ops == 0 => Err(Fail::config(format!(
            "every operation of the warm-up failed: {failure}"
        ))),
        _ => Ok(()),
    }
}

fn rounds(spec: &Spec, worker: &mut dyn Worker, out: &mut Vec<u8>) -> Result<(), Fail> {
    let mut round = Round::new(spec);
    let mut line = String::with_capacity(64);
    let mut input = io::stdin().lock();
    loop {
        line.clear();
        match input.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(Fail::spec(format!("reading standard input: {e}"))),
        }
        match line.trim() {
            "go" => {
                worker.run(&mut round);
                say(out, &Event::Done(round.done(|text| spec.redact(text))));
            }
            "exit" => return Ok(()),
            "" => {}
            _ => return Err(Fail::spec("expected go or exit on standard input")),
        }
    }
}

fn encode(out: &mut Vec<u8>, event: &Event) {
    out.clear();
    // Writing JSON to memory fails for maps without string keys only, and an Event has none.
    if serde_json::to_writer(&mut *out, event).is_ok() {
        out.push(b'\n');
    }
}

/// Writes an event with one write(1): a tracer looks for its first bytes.
fn say(out: &mut Vec<u8>, event: &Event) {
    encode(out, event);
    // Standard output is line buffered and empty, so that a whole line goes straight through. When
    // systally is gone nobody reads it, and the end of standard input ends the worker.
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(out).and_then(|()| stdout.flush());
}
