//! Without a plan: what this machine and server can carry.

use std::collections::BTreeMap;

use crate::explain::{Finding, Severity};
use crate::limits::{self, Load};
use crate::proc::Root;

/// What can be carried, as a finding: it is not a matter of fitting.
pub(super) fn finding(root: &Root, load: &Load) -> Finding {
    let found = limits::capacities(root, load);
    let mut evidence = BTreeMap::new();
    let mut parts = Vec::new();
    for capacity in &found {
        match capacity.most {
            Some(most) => {
                evidence.insert(format!("{}_most", capacity.id), most.into());
                evidence.insert(
                    format!("{}_first_limit", capacity.id),
                    capacity.first.join(", ").into(),
                );
                parts.push(format!(
                    "{most} {} (then {})",
                    capacity.what,
                    capacity.first.join(", ")
                ));
            }
            None => parts.push(format!("{}: no limit that can be read", capacity.what)),
        }
    }
    let mut says = format!("this machine and server carry at most {}", parts.join("; "));
    if let Some(rate) = limits::beyond_loopback(root, load) {
        evidence.insert("connects_per_second_beyond_loopback".to_owned(), rate.into());
        says.push_str(&format!(
            ". The rate holds over loopback only: to a server's other addresses, of this machine too, {rate} a second can \
             last, unless tcp_tw_reuse is 1"
        ));
    }
    if let Some((open, rate)) = limits::followed(root, load) {
        evidence.insert("conntrack_connections_most".to_owned(), open.into());
        evidence.insert("conntrack_connects_per_second_most".to_owned(), rate.into());
        says.push_str(&format!(
            ". Where a rule of the packet filter follows connections (nf_conntrack_max), {open} at once and {rate} a second"
        ));
    }
    Finding {
        code: "CAPACITY".into(),
        severity: Severity::Info,
        strategy: None,
        row: None,
        evidence,
        says,
        try_next: "give the load (-c, --connections, --mode, --rate) to see what it needs of each limit"
            .to_owned(),
        not_the_cause: Vec::new(),
    }
}
