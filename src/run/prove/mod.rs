//! Putting a suspected limit to the test: the same load with nothing changed (A) and with only that limit
//! raised (B), A B A B, then once the other way round. Each run is a process of its own with a second
//! server, in a network namespace of its own; no setting of the host is ever changed.
//!
//! A limit that can be tested is one file here and a line in [`PROVABLE`].

mod accept_queue;
pub mod arm;
mod client_nofile;
mod cpu_quota;
mod ephemeral_ports;
mod machine_wide;
mod maxclients;
mod memcached_conns;
mod nproc;
mod pids_max;
mod server_nofile;
mod syn_queue;
mod verdict;

use std::collections::BTreeMap;

use crate::explain::{EXPLAINS, Finding, Severity};
use crate::proc::process::{CAP_SYS_ADMIN, Who, status};
use crate::proc::{Root, sysctl};
use crate::record::{Proof, ProofArm, ProofRun, ProofVerdict, Record, Round, Status, StrategyResult};
use crate::units::Measured;
use arm::Setup;

/// A limit that findings can be tested against.
trait Provable: Sync {
    /// The codes of the findings it is about.
    fn codes(&self) -> &'static [&'static str];
    /// The limit's name in `preflight`.
    fn limit(&self) -> &'static str;
    /// What would be changed.
    fn plan(&self, case: &Case<'_>) -> Plan;
}

/// All of them.
const PROVABLE: &[&dyn Provable] = &[
    &accept_queue::AcceptQueue,
    &ephemeral_ports::EphemeralPorts,
    &client_nofile::ClientNofile,
    &server_nofile::ServerNofile,
    &maxclients::Maxclients,
    &memcached_conns::MemcachedConns,
    &nproc::Nproc,
    &pids_max::PidsMax,
    &syn_queue::SynQueue,
    &cpu_quota::CpuQuota,
    &machine_wide::MachineWide,
];

/// What can be done about a finding.
enum Plan {
    /// Runs.
    Test(Box<Test>),
    /// The limit is the whole machine's: what would have to be done.
    Describe(String),
    /// A number is missing.
    NotPossible(String),
}

/// The runs of a test.
struct Test {
    /// The surroundings of the run that failed, made anew.
    a: Setup,
    /// The same with the limit raised.
    b: Setup,
    /// One of two locks raised alone.
    alone: Vec<Setup>,
    /// The limit lowered.
    opposite: Option<Setup>,
    /// Counters that tell.
    counters: &'static [&'static str],
}

/// What a plan is made of.
struct Case<'a> {
    record: &'a Record,
    finding: &'a Finding,
    row: &'a StrategyResult,
    /// The surroundings of the run, as far as a second server can have them.
    base: Setup,
}

impl Case<'_> {
    /// A number of the finding's evidence.
    fn evidence(&self, name: &str) -> Option<u64> {
        self.finding.evidence.get(name)?.as_u64()
    }

    /// A reading taken when the row failed.
    fn fact(&self, name: &str) -> Option<&str> {
        self.row.failure.as_ref()?.facts.get(name).map(String::as_str)
    }

    fn clients(&self) -> u64 {
        u64::from(self.row.axes.clients)
    }

    /// What the load needs of a limit, as the bench read it.
    fn demand(&self, limit: &str) -> Option<u64> {
        let mut readings = self.record.limits.iter();
        readings
            .find(|reading| reading.id == limit)?
            .demand
            .known()
            .copied()
    }

    /// A counter or reading of the record.
    fn reading(&self, name: &str) -> Option<u64> {
        let counters = &self.record.counters;
        counters
            .before
            .get(name)
            .or_else(|| counters.after.get(name))
            .copied()
    }
}

/// A quarter more than needed.
fn ample(demand: u64) -> u64 {
    demand.saturating_mul(5).div_ceil(4)
}

/// Why a run gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No right to make its surroundings.
    Denied(String),
    /// Something else went wrong.
    Failed(String),
    /// The user wants to stop.
    Interrupted,
}

/// Makes a run with these surroundings of this row, and returns its record.
pub type Runner<'a> = dyn FnMut(&Setup, &StrategyResult) -> Result<Record, Trouble> + 'a;

/// How many findings are tested at most; each takes up to eight runs.
const TESTED_AT_MOST: usize = 4;

/// Tests what a record says of limits, the finding that explains most first. A refuted one is followed by
/// the next about the same row; a proven one ends the search there.
pub fn prove(record: &mut Record, run: &mut Runner<'_>) {
    let mut proofs: Vec<Proof> = Vec::new();
    let mut tested = 0;
    for finding in &record.findings {
        let Some(provable) = PROVABLE
            .iter()
            .find(|one| one.codes().contains(&finding.code.as_ref()))
        else {
            continue;
        };
        let Some(row) = row_of(record, finding).filter(|_| finding.severity > Severity::Info) else {
            continue;
        };
        let settled = proofs.iter().any(|proof| {
            proof.strategy.as_deref() == Some(row.name.as_str()) && proof.verdict == ProofVerdict::Proven
        });
        if settled {
            continue;
        }
        let case = Case {
            record,
            finding,
            row,
            base: base(record, row),
        };
        let mut proof = Proof {
            code: finding.code.clone().into_owned(),
            strategy: Some(row.name.clone()),
            limit: provable.limit().to_owned(),
            verdict: ProofVerdict::NotPossible,
            says: String::new(),
            runs: Vec::new(),
        };
        match provable.plan(&case) {
            Plan::Describe(says) => {
                proof.verdict = ProofVerdict::Described;
                proof.says = says;
            }
            Plan::NotPossible(why) => proof.says = why,
            Plan::Test(_) if tested >= TESTED_AT_MOST => continue,
            Plan::Test(test) => {
                tested += 1;
                if test_one(&test, provable.codes(), row, &mut proof, run) == Err(Trouble::Interrupted) {
                    break;
                }
            }
        }
        proofs.push(proof);
    }
    for finding in &mut record.findings {
        let about = |proof: &&Proof| {
            proof.code == finding.code && (finding.strategy.is_none() || finding.strategy == proof.strategy)
        };
        if let Some(proof) = proofs.iter().find(about) {
            let verdict = proof.verdict.name().replace(' ', "_");
            finding.evidence.insert("proof".to_owned(), verdict.into());
        }
    }
    record.proofs = proofs;
}

/// The row to repeat: the finding's own; of one about the whole run the heaviest, over TCP if there is one.
fn row_of<'a>(record: &'a Record, finding: &Finding) -> Option<&'a StrategyResult> {
    let rows = record
        .strategies
        .iter()
        .enumerate()
        .filter(|(_, row)| row.status != Status::Skipped);
    match finding.strategy {
        Some(_) => rows
            .filter(|(place, row)| finding.is_about(*place, row))
            .map(|(_, row)| row)
            .max_by_key(|row| (row.failure.is_some(), row.axes.clients)),
        None => rows.map(|(_, row)| row).max_by_key(|row| {
            let tcp = row.axes.transport == "tcp";
            (tcp, row.name.contains("/connect/"), row.axes.clients)
        }),
    }
}

fn test_one(
    test: &Test,
    codes: &[&str],
    row: &StrategyResult,
    proof: &mut Proof,
    run: &mut Runner<'_>,
) -> Result<(), Trouble> {
    let mut order = vec![
        (ProofArm::A, &test.a),
        (ProofArm::B, &test.b),
        (ProofArm::A, &test.a),
        (ProofArm::B, &test.b),
    ];
    order.extend(test.alone.iter().map(|setup| (ProofArm::Alone, setup)));
    order.extend(test.opposite.iter().map(|setup| (ProofArm::Opposite, setup)));
    for (arm, setup) in order {
        // What would be the same run again is not worth its time.
        let pointless = matches!(arm, ProofArm::Alone | ProofArm::Opposite) && !verdict::is_promising(proof);
        if pointless {
            break;
        }
        let set = if arm == ProofArm::A {
            test.a.unlike(&test.b)
        } else {
            setup.unlike(&test.a)
        };
        let set = if set.is_empty() { test.a.named() } else { set };
        match run(setup, row) {
            Ok(record) => proof
                .runs
                .push(outcome(&record, arm, set, row, codes, test.counters)),
            Err(Trouble::Denied(why)) => {
                proof.verdict = ProofVerdict::NotPossible;
                proof.says = format!(
                    "{why}; it would run the same load with {} and with {}, by turns",
                    words(&test.a.unlike(&test.b)),
                    words(&test.b.unlike(&test.a))
                );
                return Ok(());
            }
            Err(Trouble::Failed(why)) => proof.runs.push(ProofRun {
                arm,
                set,
                asked: 0,
                done: 0,
                symptom: 0,
                counters: BTreeMap::new(),
                seconds: 0.0,
                findings: Vec::new(),
                error: Some(why),
            }),
            Err(Trouble::Interrupted) => return Err(Trouble::Interrupted),
        }
    }
    let changed = format!(
        "{} instead of {}",
        words(&test.b.unlike(&test.a)),
        words(&test.a.unlike(&test.b))
    );
    (proof.verdict, proof.says) = verdict::judge(&proof.runs, &changed);
    Ok(())
}

/// Settings in words.
fn words(set: &BTreeMap<String, String>) -> String {
    if set.is_empty() {
        return "what is there".to_owned();
    }
    let parts: Vec<String> = set
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    parts.join(" ")
}

fn outcome(
    record: &Record,
    arm: ProofArm,
    set: BTreeMap<String, String>,
    row: &StrategyResult,
    codes: &[&str],
    counters: &[&str],
) -> ProofRun {
    let result = record.strategies.iter().find(|one| one.name == row.name);
    let rounds: &[Round] = match result.map(|one| &one.timed) {
        Some(Measured::Known(timed)) => &timed.rounds,
        Some(Measured::NotMeasured(_)) | None => &[],
    };
    let sum = |of: fn(&Round) -> u64| crate::units::total(rounds.iter().map(of));
    let about = |finding: &&Finding| match finding.strategy.as_deref() {
        Some(name) => name == row.name,
        None => true,
    };
    let ours = record.findings.iter().filter(about);
    let of_codes = ours
        .clone()
        .filter(|finding| codes.contains(&finding.code.as_ref()));
    // A finding without a number of operations is one.
    let symptom = of_codes.map(|finding| {
        finding
            .evidence
            .get(EXPLAINS)
            .and_then(|n| n.as_u64())
            .unwrap_or(1)
            .max(1)
    });
    let grown = counters
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), record.counters.grew(name)?)));
    ProofRun {
        arm,
        set,
        asked: sum(|round| round.asked.0),
        done: sum(|round| round.ops.0),
        symptom: crate::units::total(symptom),
        counters: grown.collect(),
        seconds: rounds
            .iter()
            .fold(0.0, |sum, round| sum + round.elapsed.as_secs_f64()),
        findings: ours.map(|finding| finding.code.clone().into_owned()).collect(),
        error: result.is_none().then(|| "it has no such row".to_owned()),
    }
}

/// Settings of the network namespace that decide whether a load fits; a new namespace begins with the
/// kernel's defaults and not with the host's.
const COPIED: &[&str] = &[
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_syn_linear_timeouts",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_tw_reuse_delay",
];

/// The surroundings of the run as they are now.
fn base(record: &Record, row: &StrategyResult) -> Setup {
    let root = Root::live();
    let mut setup = Setup::default();
    // Who may not make a namespace can still test limits that need none.
    let may = status(&root, Who::Me).is_ok_and(|status| status.has(CAP_SYS_ADMIN));
    for name in COPIED.iter().filter(|_| may) {
        let text = root.read(&sysctl::path(name)).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        if !words.is_empty() {
            setup.sysctls.insert((*name).to_owned(), words.join(" "));
        }
    }
    let facts = row.failure.as_ref().map(|failure| &failure.facts);
    let loopback = facts.and_then(|facts| facts.get("address.loopback"));
    // The second server is on 127.0.0.1, where tcp_tw_reuse=2 helps as it does not for other addresses.
    if loopback.is_some_and(|loopback| loopback == "no")
        && setup
            .sysctls
            .get("net.ipv4.tcp_tw_reuse")
            .is_some_and(|mode| mode == "2")
    {
        setup
            .sysctls
            .insert("net.ipv4.tcp_tw_reuse".to_owned(), "0".to_owned());
    }
    let settings = record.server.as_ref().map(|server| &server.settings);
    let setting = |name: &str| settings.and_then(|settings| settings.get(name)?.parse::<u32>().ok());
    setup.tcp_backlog = setting("tcp-backlog");
    setup.maxclients = setting("maxclients");
    setup
}
