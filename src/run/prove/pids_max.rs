//! `pids.max` of a control group. The group that refused is left as it is: the run with more room is made
//! in a new group beside the topmost one.

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct PidsMax;

impl Provable for PidsMax {
    fn codes(&self) -> &'static [&'static str] {
        &["FORK_PIDS_MAX"]
    }

    fn limit(&self) -> &'static str {
        "pids_max"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let Some(max) = case.evidence("has") else {
            return Plan::NotPossible("the group that refused could not be read".to_owned());
        };
        let needs = case
            .evidence("needs")
            .unwrap_or(max)
            .max(max)
            .saturating_add(case.clients());
        let setup = |max| {
            let mut setup = case.base.clone();
            setup.pids_max = Some(max);
            setup
        };
        let mut a = case.base.clone();
        a.pids_max = None;
        // Threads of the run and of its server count as well.
        Plan::Test(Box::new(Test {
            a,
            b: setup(ample(needs).saturating_add(64)),
            alone: Vec::new(),
            opposite: None,
            counters: &["pids.events.max"],
        }))
    }
}
