//! Closed sets and plain structures that look the same on both sides, converted both ways.

use super::types::{
    WireAxes, WireClient, WireFix, WireInterval, WireKind, WireOrigin, WireServer, WireServerView,
    WireSeverity, WireSpan, WireStatus, WireVaried, WireVerdict,
};
use crate::explain::Severity;
use crate::record::{
    Axes, ClientInfo, Fix, Interval, Kind, ServerInfo, ServerOrigin, ServerView, Span, Status, Varied,
    Verdict,
};
use crate::units::Nanos;

/// Two enums with the same variants. A variant that one side gains stops the build here.
macro_rules! same_variants {
    ($($ours:ident = $wire:ident { $($variant:ident),+ })+) => {$(
        impl From<$ours> for $wire {
            fn from(value: $ours) -> $wire {
                match value { $($ours::$variant => $wire::$variant),+ }
            }
        }
        impl From<$wire> for $ours {
            fn from(value: $wire) -> $ours {
                match value { $($wire::$variant => $ours::$variant),+ }
            }
        }
    )+};
}

/// Two structures with the same fields of the same types. A field that one side gains stops the build
/// here.
macro_rules! same_fields {
    ($($ours:ident = $wire:ident { $($field:ident),+ })+) => {$(
        impl From<&$ours> for $wire {
            fn from(value: &$ours) -> $wire {
                let $ours { $($field),+ } = value.clone();
                $wire { $($field: $field.into()),+ }
            }
        }
        impl From<$wire> for $ours {
            fn from(value: $wire) -> $ours {
                let $wire { $($field),+ } = value;
                $ours { $($field: $field.into()),+ }
            }
        }
    )+};
}

same_variants! {
    Kind = WireKind { Bench, Count, Import, Preflight }
    ServerOrigin = WireOrigin { External, Private, BuiltIn }
    Status = WireStatus { Ok, Failed, Skipped, Unverified }
    Verdict = WireVerdict { Ok, Warn, Fail, Unknown, NotApplicable }
    Severity = WireSeverity { Info, Warning, Error }
}

same_fields! {
    ServerInfo = WireServer { place, servers, kind, version, origin, addresses, settings }
    Axes = WireAxes { op, transport, pipeline, payload_bytes, clients, store, servers }
    ClientInfo = WireClient { name, version, environment }
    Interval = WireInterval { median, low, high }
    Fix = WireFix { now, kept, container }
    Span = WireSpan { low, high }
}

impl From<&Varied> for WireVaried {
    fn from(varied: &Varied) -> WireVaried {
        WireVaried {
            syscall: varied.syscall.clone(),
            errno: varied.errno.clone(),
            per_op: (&varied.per_op).into(),
        }
    }
}

impl From<WireVaried> for Varied {
    fn from(varied: WireVaried) -> Varied {
        Varied {
            syscall: varied.syscall,
            errno: varied.errno,
            per_op: varied.per_op.into(),
        }
    }
}

impl From<&ServerView> for WireServerView {
    fn from(view: &ServerView) -> WireServerView {
        let ServerView {
            commands,
            failed,
            busy,
            connections,
            rejected,
            nodes,
        } = view.clone();
        WireServerView {
            commands,
            failed,
            busy_ns: busy.map(|span| span.0),
            connections,
            rejected,
            nodes,
        }
    }
}

impl From<WireServerView> for ServerView {
    fn from(view: WireServerView) -> ServerView {
        let WireServerView {
            commands,
            failed,
            busy_ns,
            connections,
            rejected,
            nodes,
        } = view;
        ServerView {
            commands,
            failed,
            busy: busy_ns.map(Nanos),
            connections,
            rejected,
            nodes,
        }
    }
}
