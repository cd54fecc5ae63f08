//! `client-output-buffer-limit` of Redis for normal clients: a client that does not read its replies in
//! time is closed. Off by default.

use super::facts::ServerKind;
use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub(super) struct OutputBuffer;

impl Limit for OutputBuffer {
    fn id(&self) -> &'static str {
        "output_buffer"
    }

    fn title(&self) -> &'static str {
        "client-output-buffer-limit"
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "server",
            "CONFIG GET client-output-buffer-limit, normal, hard",
        );
        if load.server.kind == ServerKind::Memcached {
            return reading.not_applicable("a setting of Redis");
        }
        let limit = match load.server.output_buffer_limit {
            None => return reading.unknown("the server does not tell it"),
            Some(0) => return reading.fine("0: normal clients have no limit"),
            Some(limit) => limit,
        };
        let reading = reading.capacity(limit);
        let batch = load.pipeline.saturating_mul(load.payload_bytes);
        if batch == 0 {
            return reading.unknown("no size of values was planned");
        }
        reading
            .demand(
                batch,
                format!(
                    "{} replies x {} bytes unread at most",
                    load.pipeline, load.payload_bytes
                ),
            )
            .fix(
                "CONFIG SET client-output-buffer-limit \"normal 0 0 0\"; or a smaller pipeline",
                "client-output-buffer-limit normal 0 0 0 in redis.conf",
                "the same in the container's configuration",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "the server closes the client, which sees the end of the connection".to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{batch} of {limit} bytes")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::testing::Tree;

    #[test]
    fn a_batch_of_replies_must_fit() {
        let check = |limit| {
            let server = ServerFacts {
                output_buffer_limit: Some(limit),
                ..ServerFacts::default()
            };
            let load = Load {
                server,
                pipeline: 100,
                payload_bytes: 10_000,
                ..Load::default()
            };
            OutputBuffer.check(&Tree::new().root(), &load).verdict
        };
        assert_eq!(check(0), Verdict::Ok);
        assert_eq!(check(100_000), Verdict::Fail);
        assert_eq!(check(10_000_000), Verdict::Ok);
    }
}
