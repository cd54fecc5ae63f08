//! `systally preflight`: does the planned load fit this machine and this server?
//!
//! Everything it decides on is read through one [`Root`] and can be saved with `--save-state` and used again
//! with `--state`, on any machine.

mod args;
mod capacity;
mod load;
mod server;

use anyhow::{Context, anyhow};

use crate::limits::{self, ServerKind, Witness};
use crate::proc::{self, Root};
use crate::record::{Counters, Kind, LimitReading, Record, Verdict};
use crate::render::{self, View};
use crate::units::{Measured, escape};

use super::{
    Code, CommandError, CommandResult, WithCode, describe, need_proc, print, secrets, servers, terminal, warn,
};
pub use args::{PlanServer, PreflightArgs};

/// Prints whether the load fits, and ends with 4 when it does not.
///
/// # Errors
/// Unusable flags or a folder that is no recording (2); a folder that cannot be written (1).
pub fn run(args: &mut PreflightArgs) -> CommandResult {
    args.plan.server_kind = servers::kind_or_uri(&mut args.server, args.plan.server_word.take())?;
    secrets::hide(&mut args.server)?;
    let (record, code) = decide(args)?;
    let view = View {
        all_syscalls: args.all,
        ..terminal::view()
    };
    print(&render::render(&record, args.format, &view)?)?;
    Ok(code)
}

/// The record and the exit code.
fn decide(args: &PreflightArgs) -> Result<(Record, Code), CommandError> {
    if args.state.is_none() {
        need_proc()?;
    }
    let root = root(args)?;
    let strategies = load::strategies(args)?;
    let endpoint = server::endpoint(args)?;
    let asked = match (&args.state, &endpoint) {
        (Some(_), _) => Witness::recorded(&root).map_err(anyhow::Error::from),
        (None, None) => Ok(None),
        (None, Some(endpoint)) => server::ask(endpoint, args.plan.server_kind).map(Some),
    };
    let (mut witness, unreachable) = match asked {
        Ok(witness) => (witness, None),
        Err(why) => (None, Some(why)),
    };
    let mut load = load::load(args, &root, endpoint.as_ref());
    if let Some(terms) = load::scenario_terms(&args.plan)? {
        load::add_scenario(
            &mut load,
            &terms,
            endpoint.is_none() && args.plan.transport.is_none(),
        );
    }
    if args.state.is_none() {
        match &mut witness {
            Some(witness) => {
                witness.pid = witness.pid.or_else(|| server::owner(&root, &load));
                witness.keep(&root);
            }
            None => Witness::keep_none(&root),
        }
    }
    if let Some(witness) = &witness {
        load.server_pid = witness.pid;
        load.server = witness.facts(&root);
    }
    if let Some(kind) = args.plan.server_kind {
        load.server.kind = match kind {
            PlanServer::Redis => ServerKind::Redis,
            PlanServer::Memcached => ServerKind::Memcached,
            PlanServer::Other => ServerKind::Other,
        };
    }
    let mut findings = Vec::new();
    if !args.is_planned() {
        findings.push(capacity::finding(&root, &load));
    }
    let loads = load::loads(&root, &strategies, &args.server, &load)?;
    let mut readings = limits::check_each(&root, &loads);
    if witness.is_none() && (endpoint.is_none() || unreachable.is_some()) {
        without_server(&mut readings, unreachable.is_some());
    }
    let fits = limits::worst(&readings) != Verdict::Fail;
    let record = Record {
        kind: Kind::Preflight,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: true,
        host: proc::host(&root),
        server: witness
            .as_ref()
            .map(|witness| server::info(witness, endpoint.as_ref())),
        more_servers: Vec::new(),
        plan: args.info(),
        strategies: Vec::new(),
        imports: Vec::new(),
        limits: readings,
        counters: Counters::default(),
        sampled: None,
        findings,
        proofs: Vec::new(),
    };
    if let Some(folder) = &args.save_state {
        root.save(folder).context("cannot save what was read")?;
    }
    if let Some(why) = &unreachable {
        warn(&format!(
            "systally: {}; its limits are unknown here",
            describe(why)
        ));
    }
    let code = match (fits, unreachable) {
        (false, _) => Code::DoesNotFit,
        (true, Some(_)) => Code::Failed,
        (true, None) => Code::Ok,
    };
    Ok((record, code))
}

/// The machine, or a recording of one.
fn root(args: &PreflightArgs) -> Result<Root, CommandError> {
    let Some(folder) = &args.state else {
        return Ok(Root::live().snapshot());
    };
    if !folder.join("proc").is_dir() {
        let shown = escape(&folder.display().to_string(), 200);
        return Err(anyhow!(
            "--state {shown}: not a recording (no folder `proc` in it); make one with --save-state"
        ))
        .code(Code::Usage);
    }
    Ok(Root::recorded(folder).snapshot())
}

/// What is unknown only because there is no server to ask is said once and not a dozen times.
fn without_server(readings: &mut [LimitReading], unreachable: bool) {
    let of_server = |reading: &&mut LimitReading| {
        let server = reading.scope.starts_with("server")
            || ["cpu_quota", "server_memory_max", "overcommit"].contains(&reading.id.as_str());
        server && reading.verdict == Verdict::Unknown
    };
    for reading in readings.iter_mut().filter(of_server) {
        let (verdict, why) = if unreachable {
            (Verdict::Unknown, "the server cannot be asked")
        } else {
            (
                Verdict::NotApplicable,
                "no server is named: give -h and -p, -s or -u to have its limits as well",
            )
        };
        reading.verdict = verdict;
        reading.effect = why.to_owned();
        for value in [&mut reading.demand, &mut reading.capacity] {
            if value.known().is_none() {
                *value = Measured::NotMeasured(why.to_owned());
            }
        }
    }
}
