//! The limit of open files of the client processes, which they inherit from the run.

use nix::sys::resource::{Resource, getrlimit};

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct ClientNofile;

impl Provable for ClientNofile {
    fn codes(&self) -> &'static [&'static str] {
        &["CLIENT_NOFILE"]
    }

    fn limit(&self) -> &'static str {
        "client_nofile"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let Ok((inherited, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
            return Plan::NotPossible("the limit of open files cannot be read".to_owned());
        };
        let Some(soft) = case.evidence("soft_limit") else {
            return Plan::NotPossible("the limit of the client was not read when it failed".to_owned());
        };
        if soft < inherited {
            return Plan::NotPossible(format!(
                "the client lowers its own limit to {soft} (it was started with {inherited}), which nobody else can raise"
            ));
        }
        let wanted = ample(case.demand(self.limit()).unwrap_or(0))
            .max(soft.saturating_mul(4))
            .max(1024);
        if wanted > hard && !nix::unistd::geteuid().is_root() {
            return Plan::NotPossible(format!(
                "the hard limit is {hard} and {wanted} would be tried; that needs CAP_SYS_RESOURCE"
            ));
        }
        let setup = |soft| {
            let mut setup = case.base.clone();
            setup.client_nofile = Some(soft);
            setup
        };
        // A lower one would take the descriptors that systally itself needs.
        Plan::Test(Box::new(Test {
            a: setup(soft),
            b: setup(wanted),
            alone: Vec::new(),
            opposite: None,
            counters: &[],
        }))
    }
}
