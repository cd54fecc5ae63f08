//! What a worker says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::WireLatency;
use crate::record::experiment::{CounterReading, Spent};
use crate::units::Nanos;

/// One line from a worker. Written with `event` as the first key, so that a tracer can match the first
/// bytes of the line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// Connected and warmed up.
    Ready {
        /// The protocol it speaks.
        protocol: u32,
        /// Its process id.
        pid: i32,
        /// Versions and what else matters of its environment.
        #[serde(default)]
        versions: BTreeMap<String, serde_json::Value>,
    },
    /// A round is over.
    Done(Done),
    /// It cannot go on.
    Fail {
        /// Kind of trouble.
        class: String,
        /// What happened.
        message: String,
    },
}

/// The result of one round of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Operations whose reply was right.
    pub ops: u64,
    /// Operations begun.
    pub asked: u64,
    /// From the first operation to the last.
    pub elapsed_ns: Nanos,
    /// Failed operations by `class:message`.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Times of operations, when asked for.
    #[serde(default)]
    pub latency: Option<WireLatency>,
    /// What a replayed script that counts for itself read; other workers leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterReading>,
    /// What the programs that the worker ran in the round spent, where they and not the worker are the
    /// client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_the_first_key_of_every_line() {
        let done = Event::Done(Done {
            ops: 1,
            asked: 1,
            elapsed_ns: Nanos(1),
            errors: BTreeMap::new(),
            latency: None,
            counter: None,
            usage: None,
        });
        let fail = Event::Fail {
            class: "spec".into(),
            message: "no".into(),
        };
        for (event, start) in [(done, r#"{"event":"done","#), (fail, r#"{"event":"fail","#)] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn events_parse_as_the_contract_says() {
        let ready = r#"{"event":"ready","protocol":1,"pid":12,"versions":{"php":"8.2","phpiredis":null}}"#;
        assert!(matches!(
            serde_json::from_str(ready),
            Ok(Event::Ready { pid: 12, .. })
        ));
        let done = r#"{"event":"done","ops":9,"asked":10,"elapsed_ns":5,"errors":{"E:x":1},"latency":{"unit":"ns","per":"op","hist":[[16,9]]}}"#;
        let Ok(Event::Done(done)) = serde_json::from_str::<Event>(done) else {
            panic!("not a done line")
        };
        assert_eq!((done.ops, done.asked, done.errors["E:x"]), (9, 10, 1));
    }
}
