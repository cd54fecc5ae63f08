//! The worker contract, protocol 1: how systally and a client program in any language talk.
//!
//! The specification goes in by `SYSTALLY_SPEC`; the worker answers with one JSON line per event and is
//! driven by the lines `go` and `exit` on its standard input. The whole text, for people who write a
//! worker, is in `tracing-scripts/README.md`.

mod data;
mod endpoint;
mod event;
mod latency;
mod spec;

pub use data::{KeyOrder, Keys, Payload, PayloadKind, Serializer};
pub use endpoint::{Endpoint, Store, Transport};
pub use event::{Done, Event};
pub use latency::{WireLatency, bucket, bucket_lower};
pub use spec::{Connect, LatencyMode, Op, Spec, Stop};

/// The protocol number this build speaks.
pub const PROTOCOL: u32 = 1;
