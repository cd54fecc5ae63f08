//! No client at all: the loop alone, `noop/loop/local`. It makes no system call in the window. Over `tcp` and
//! `unix` it claims operations that a server never sees. If it shows clock_gettime,
//! this machine reads its clock through the kernel, and every worker pays for it.

use super::RustClient;
use super::failure::Fail;
use super::harness::Worker;
use super::round::Round;
use crate::strategy::client::Mode;
use crate::strategy::contract::{Connect, Spec, Transport};

pub(super) const CLIENT: RustClient = RustClient {
    name: "noop",
    description: "no client: the worker's own loop, to see what it adds",
    version: env!("CARGO_PKG_VERSION"),
    built_by: None,
    transports: &Transport::ALL,
    modes,
    set_up,
};

fn modes() -> Vec<Mode> {
    vec![Mode {
        name: "loop".to_owned(),
        connect: Connect::Once,
        store: None,
        transports: Vec::new(),
        pipeline: false,
        depth_when_asked: false,
        forks: false,
        default: false,
        ops: Vec::new(),
        demonstration: true,
        options: std::collections::BTreeMap::new(),
        description: "claims operations and makes none".to_owned(),
    }]
}

struct Noop;

impl Worker for Noop {
    fn run(&mut self, round: &mut Round) {
        round.drive(|_, _| {});
    }
}

fn set_up(_: &Spec) -> Result<Box<dyn Worker>, Fail> {
    Ok(Box::new(Noop))
}
