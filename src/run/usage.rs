//! CPU time and context switches of both sides of a row, around its timed rounds.

use crate::proc::Root;
use crate::proc::process::{context_switches, cpu_time};
use crate::record::{Spent, Usage};
use crate::strategy::worker::{RoundOutcome, Workers};
use crate::units::Ops;

/// Readings before a round.
pub(super) struct Before {
    workers: Option<Spent>,
    servers: Option<Spent>,
}

/// Reads what workers and servers have spent so far.
pub(super) fn before(workers: &Workers, servers: &[i32]) -> Before {
    Before {
        workers: spent(&workers.pids()),
        servers: spent(servers),
    }
}

/// What was spent since. Where the workers only ran the client, it is that client's; nothing when it could
/// not be read.
pub(super) fn since(
    before: &Before,
    workers: &Workers,
    servers: &[i32],
    outcome: &RoundOutcome,
) -> Option<Usage> {
    let now = self::before(workers, servers);
    let mut ran: Option<Spent> = None;
    for usage in outcome.dones.iter().filter_map(|done| done.usage) {
        ran.get_or_insert_default().add(usage);
    }
    Some(Usage {
        rounds: 1,
        client: match ran {
            Some(ran) => ran,
            None => now.workers?.since(before.workers?),
        },
        server: match (now.servers, before.servers) {
            (Some(now), Some(before)) if !servers.is_empty() => Some(now.since(before)),
            _ => None,
        },
    })
}

/// `None` when one of the processes is gone.
fn spent(pids: &[i32]) -> Option<Spent> {
    let root = Root::live();
    let mut sum = Spent::default();
    for pid in pids {
        let cpu = cpu_time(&root, *pid).ok()?;
        let (voluntary, involuntary) = context_switches(&root, *pid).ok()?;
        // The clock is exact and does not tell user from system; the ticks tell their ratio.
        let (user, system) = cpu.ticks;
        let share = Ops(user.saturating_add(system)).per_op(user).unwrap_or(0.0);
        let user_ns = (cpu.total.0 as f64 * share) as u64;
        sum.add(Spent {
            user_ns,
            system_ns: cpu.total.0.saturating_sub(user_ns),
            voluntary,
            involuntary,
        });
    }
    Some(sum)
}

/// Adds a round to those before it.
pub(super) fn add(sum: &mut Option<Usage>, round: Usage) {
    let Some(sum) = sum else {
        *sum = Some(round);
        return;
    };
    sum.rounds += round.rounds;
    sum.client.add(round.client);
    sum.server = match (sum.server, round.server) {
        (Some(mut all), Some(one)) => {
            all.add(one);
            Some(all)
        }
        _ => None,
    };
}
