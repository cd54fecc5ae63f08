//! Socket buffers: a batch that is larger than the send buffer is sent in several turns. Slower, and never
//! an error.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct SocketBuffers;

impl Limit for SocketBuffers {
    fn id(&self) -> &'static str {
        "socket_buffers"
    }

    fn title(&self) -> &'static str {
        "socket buffers"
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let source = if load.tcp {
            "/proc/sys/net/ipv4/tcp_wmem (largest)"
        } else {
            "/proc/sys/net/core/wmem_default"
        };
        let reading = Reading::of(self.id(), "client's netns", source);
        let batch = load.pipeline.saturating_mul(load.payload_bytes);
        if batch == 0 {
            return reading.not_applicable("no size of values was planned");
        }
        let buffer = if load.tcp {
            sysctl::integers(root, "net.ipv4.tcp_wmem", 3).map(|three| three[2])
        } else {
            sysctl::integer(root, "net.core.wmem_default")
        };
        let buffer = match buffer {
            Ok(buffer) => buffer,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let mut reading = reading
            .demand(batch, format!("{} commands x {} bytes", load.pipeline, load.payload_bytes))
            .capacity(buffer)
            .fix(
                "a smaller pipeline",
                "net.ipv4.tcp_wmem, net.core.wmem_default in /etc/sysctl.d",
                "docker run --sysctl net.ipv4.tcp_wmem=\"4096 16384 N\"",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail | Verdict::Warn => format!(
                    "a batch of {batch} bytes and a send buffer of {buffer} bytes: sent in several turns, slower, no error"
                ),
                Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("a batch of {batch} bytes fits the send buffer of {buffer} bytes")
                }
            });
        // It slows the load and does not break it.
        if reading.verdict == Verdict::Fail {
            reading.verdict = Verdict::Warn;
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn a_large_batch_is_slow_and_no_failure() {
        let tree = Tree::new().with("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
        let load = |bytes| Load {
            pipeline: 100,
            payload_bytes: bytes,
            ..Load::default()
        };
        assert_eq!(SocketBuffers.check(&tree.root(), &load(100)).verdict, Verdict::Ok);
        assert_eq!(
            SocketBuffers.check(&tree.root(), &load(100_000)).verdict,
            Verdict::Warn
        );
    }
}
