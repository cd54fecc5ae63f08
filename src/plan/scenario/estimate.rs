//! How long a scenario will take, roughly, for whoever is about to wait for it.
//!
//! The figures are what such rows took on an idle virtual machine with two CPUs. They are meant to tell a
//! minute from an hour.

use super::Block;
use crate::plan::rows::Row;
use crate::strategy::contract::Connect;

/// How many of the passes of a row are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passes {
    /// Whether an engine counts.
    pub counted: bool,
    /// Whether another one recounts.
    pub recounted: bool,
    /// How often each does.
    pub counted_runs: u32,
    /// Timed rounds, with those that warm up.
    pub rounds: u32,
}

/// CPUs that clients and server share.
const CPUS: f64 = 2.0;

/// What tracing adds to a call, in seconds.
const TRACED_CALL: f64 = 16e-6;

/// Calls that an interpreter makes before its first operation.
const START_CALLS: f64 = 1_700.0;

/// Starting the servers of a block and reading their counters around each round of a row.
const BLOCK: f64 = 0.5;
const ROUND: f64 = 0.02;

/// Clients above which workers are started anew for each round.
const WARM_WORKERS: u32 = 64;

/// Seconds that a block with these rows takes.
pub fn seconds(block: &Block, rows: &[Row], passes: Passes) -> f64 {
    let rows: f64 = rows
        .iter()
        .map(|row| row_seconds(block, row, passes) + ROUND * f64::from(passes.rounds + 2))
        .sum();
    BLOCK + rows
}

fn row_seconds(block: &Block, row: &Row, passes: Passes) -> f64 {
    let program = row.strategy.client.is_program();
    // Seconds, and calls, of one operation by one client.
    let (op, calls) = match row.strategy.mode.connect {
        _ if program => (10e-6, 1.0),
        _ if row.strategy.mode.pipeline => (4e-6, 0.5),
        Connect::PerOp => (110e-6, 15.0),
        Connect::PersistentPerOp => (60e-6, 10.0),
        Connect::Once | Connect::Persistent => (45e-6, 5.0),
    };
    let parallel = if program {
        1.0
    } else {
        f64::from(row.clients).min(CPUS)
    };
    let start = match row.strategy.client.language() {
        "php" => 0.04,
        "python" => 0.12,
        "node" => 0.1,
        _ => 0.005,
    };
    // Forked clients share one start.
    let (starts, fork) = if row.strategy.mode.forks {
        (1.0, 0.002)
    } else {
        (f64::from(row.workers()), 0.0)
    };
    let start = starts * start / starts.min(CPUS) + f64::from(row.clients) * fork;
    let pause = block.pause.unwrap_or_default().as_secs_f64();
    let rounds = f64::from(passes.rounds);
    let starts_of_rounds = if row.clients > WARM_WORKERS { rounds } else { 1.0 };
    let mut sum = rounds * (block.requests as f64 * op / parallel + pause) + starts_of_rounds * start;
    let counted = block.counted as f64 * if program { 3.0 } else { 1.0 };
    let again = f64::from(passes.counted_runs);
    if passes.counted {
        let traced =
            counted * (op + calls * TRACED_CALL) / parallel + START_CALLS * TRACED_CALL * starts / parallel;
        sum += again * (traced + start + pause);
    }
    if passes.recounted && !program {
        sum += again * (counted * op / parallel + start + pause);
    }
    sum
}

/// `about 40 seconds`, `about 12 minutes`, `about 2.5 hours`.
pub fn about(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 10.0 {
        "some seconds".to_owned()
    } else if seconds < 90.0 {
        format!("about {:.0} seconds", (seconds / 10.0).round() * 10.0)
    } else if seconds < 90.0 * 60.0 {
        format!("about {:.0} minutes", (seconds / 60.0).ceil())
    } else {
        format!("about {:.1} hours", seconds / 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::scenario::{Scale, Scenario};
    use crate::strategy::{Registry, ScriptSource};

    #[test]
    fn more_work_takes_longer_and_fewer_passes_less() {
        let source = ScriptSource {
            executable: "/usr/bin/systally".into(),
            scripts: None,
            clients: None,
        };
        let registry = Registry::load(&source).unwrap();
        let passes = Passes {
            counted: true,
            recounted: true,
            counted_runs: 1,
            rounds: 1,
        };
        let of = |name: &str, scale: &str, passes: Passes| -> f64 {
            let scale: Scale = scale.parse().unwrap();
            let scenario = Scenario::find(name).unwrap();
            let blocks = scenario.blocks(scale);
            let each = blocks.iter().map(|block| {
                let rows = block.rows(&registry).unwrap();
                seconds(block, &rows, passes)
            });
            each.sum()
        };
        for name in [
            "forked-connections",
            "sharded-set",
            "php-cache-clients",
            "socket-vs-tcp",
        ] {
            let (all, tenth) = (of(name, "1", passes), of(name, "0.1", passes));
            assert!(
                tenth < all && all.is_finite() && tenth > 0.0,
                "{name}: {all} {tenth}"
            );
            let untraced = Passes {
                counted: false,
                recounted: false,
                ..passes
            };
            assert!(of(name, "1", untraced) < all, "{name}");
        }
    }

    #[test]
    fn times_are_told_as_one_would() {
        for (seconds, told) in [
            (3.0, "some seconds"),
            (44.0, "about 40 seconds"),
            (200.0, "about 4 minutes"),
            (9_000.0, "about 2.5 hours"),
        ] {
            assert_eq!(about(seconds), told);
        }
    }
}
