//! The limit of processes of the user.

use nix::sys::resource::{Resource, getrlimit};

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct Nproc;

impl Provable for Nproc {
    fn codes(&self) -> &'static [&'static str] {
        &["FORK_NPROC"]
    }

    fn limit(&self) -> &'static str {
        "nproc"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let (Some(needs), Some(has)) = (case.evidence("needs"), case.evidence("has")) else {
            return Plan::NotPossible("the user's processes were not counted when it failed".to_owned());
        };
        let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NPROC) else {
            return Plan::NotPossible("the limit of processes cannot be read".to_owned());
        };
        // Each worker, the server and the run itself have threads as well.
        let wanted = ample(needs).saturating_add(64);
        if wanted > hard {
            return Plan::NotPossible(format!(
                "it would run the same load with ulimit -u {wanted}; the hard limit is {hard}, and only root may raise it"
            ));
        }
        let setup = |nproc| {
            let mut setup = case.base.clone();
            setup.client_nproc = Some(nproc);
            setup
        };
        Plan::Test(Box::new(Test {
            a: setup(has),
            b: setup(wanted),
            alone: Vec::new(),
            opposite: None,
            counters: &[],
        }))
    }
}
