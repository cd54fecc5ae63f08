//! What a map holds, by its name and by the shape of its keys.

use super::super::text;
use super::key::{self, Part};
use super::printed::Printed;

/// What the values of a map are, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// How often, and the name says so.
    Calls,
    Errors,
    Time(u64),
    /// What a script keeps between entry and return, or no counts.
    Other,
    /// The name says nothing.
    Unsaid,
}

pub(super) fn meaning(map: &[u8]) -> Meaning {
    let name = map.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text::contains(&name, word));
    let ends = |words: &[&str]| words.iter().any(|word| name.ends_with(word.as_bytes()));
    let is = |words: &[&str]| words.iter().any(|word| name == word.as_bytes());
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word.as_bytes()));
    if has(&["err", "fail"]) {
        Meaning::Errors
    } else if has(&["byte", "size", "avg", "average", "min", "max"])
        || begins(&["start", "begin", "entry", "enter"])
        || is(&[
            "s", "t", "ts", "t0", "av", "mx", "mn", "tid", "pid", "nr", "id", "args",
        ])
    {
        Meaning::Other
    } else if ends(&["_ns", "nsecs", "nanos"]) || is(&["ns"]) || has(&["time", "lat", "dur", "total_ns"]) {
        Meaning::Time(1)
    } else if ends(&["_us", "usecs", "micros"]) || is(&["us"]) {
        Meaning::Time(1_000)
    } else if ends(&["_ms", "msecs", "millis"]) || is(&["ms"]) {
        Meaning::Time(1_000_000)
    } else if is(&["", "c", "n", "num", "cnt"]) || has(&["count", "call", "hits", "freq"]) {
        Meaning::Calls
    } else {
        Meaning::Unsaid
    }
}

/// Which parts of a map's keys are what.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    pub(super) call: Option<usize>,
    pub(super) by_number: bool,
    pub(super) result: Option<usize>,
    pub(super) process: Option<usize>,
    pub(super) command: Option<usize>,
    pub(super) probe: bool,
    pub(super) several: bool,
}

impl Shape {
    pub(super) fn of(map: &Printed) -> Shape {
        let mut shape = Shape::default();
        for index in 0..8 {
            let Some(part) = key::kind(map.order.iter().map(|k| &**k), index) else {
                break;
            };
            shape.several = index > 0;
            match part {
                Part::Call => (shape.call, shape.by_number) = (Some(index), false),
                // Whoever calls stands before the call, as a rule.
                Part::Number if shape.call.is_none() || shape.by_number => {
                    (shape.call, shape.by_number) = (Some(index), true);
                }
                Part::Number => {}
                Part::Process if shape.process.is_none() => shape.process = Some(index),
                Part::Return => shape.result = Some(index),
                Part::Text if shape.command.is_none() => shape.command = Some(index),
                Part::Probe => shape.probe = true,
                Part::Process | Part::Text => {}
            }
        }
        shape
    }
}
