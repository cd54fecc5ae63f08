//! `systally bench --scenario`: the blocks of a scenario one after the other, each a bench of its own with
//! a server of its own, joined into one record.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow};

use crate::cli::BenchArgs;
use crate::engine::{self, EngineKind};
use crate::explain::explain;
use crate::files;
use crate::plan::rows::Row;
use crate::plan::scenario::estimate::{self, Passes};
use crate::plan::scenario::published::Figures;
use crate::plan::scenario::{Block, Network, Scale, Scenario};
use crate::record::join::join;
use crate::record::{PlanInfo, Record, wire};
use crate::run::interrupt::Interrupt;
use crate::run::{Bench, Progress, RoundLength, Save, Settings};
use crate::server::{Place, PrivateOptions, ServerChoice, ServerError, Servers};
use crate::strategy::{Registry, ScriptSource};
use crate::units::escape;

use super::bench::{DEFAULT_PATIENCE, exit_code};
use super::counting::{self, Counting};
use super::outputs::{Header, file, form, write_outputs};
use super::progress::Parts;
use super::servers::{servers_of, start, wanted};
use super::written_keys::{clean_up, keys_of, to_clean};
use super::{Code, CommandError, CommandResult, WithCode, warn};

/// Servers that were told of: place, kind, version, how many, and whether in a network of their own.
type Told = BTreeSet<(String, String, String, u32, bool)>;

/// A block with its rows.
struct Planned {
    block: Block,
    rows: Vec<Row>,
}

impl Planned {
    /// Seconds that it may take.
    fn cost(&self, args: &BenchArgs, counting: &Counting) -> f64 {
        let block = &self.block;
        let passes = Passes {
            counted: counting.engine.is_some(),
            recounted: counting.engine.is_some() && counting.witness.is_ok(),
            counted_runs: args.counted_runs,
            rounds: args.runs.unwrap_or(block.runs) + args.warmup.unwrap_or(block.warmup),
        };
        estimate::seconds(block, &self.rows, passes)
    }

    /// What tells its rows from those of other blocks, for whoever waits.
    fn settings(&self) -> String {
        let settings = self.block.settings().into_iter();
        settings.map(|(name, value)| format!(" {name}={value}")).collect()
    }
}

/// Runs a scenario and prints its table.
///
/// # Errors
/// As `systally bench`; also a scenario that is not there or is wrong.
pub(super) fn run(args: &BenchArgs, name: &str) -> CommandResult {
    let scenario = Scenario::find(name).code(Code::Usage)?;
    let scale = args.scale.unwrap_or_default();
    let source = ScriptSource::from_env(args.clients_file.clone()).code(Code::Usage)?;
    let registry = Registry::load(&source).code(Code::Usage)?;
    let planned = plan(args, &scenario, scale, &registry)?;
    let figures = match (&scenario.article, args.published) {
        (Some(article), true) => Some((article, Figures::find(&article.id).code(Code::Usage)?)),
        (None, true) => {
            return Err(anyhow!(
                "--published: the scenario {} repeats no article (its file has no [published])",
                scenario.name
            ))
            .code(Code::Usage);
        }
        (_, false) => None,
    };
    let counting = counting::choose(args.engine, args.witness)?;
    let interrupt = Interrupt::install().context("cannot handle signals")?;
    let show = Header {
        format: form(&args.output),
        quiet: args.output.quiet,
    };
    show.line(&headline(&scenario, scale, &planned))?;
    show.prose(&counting.line)?;
    let costs: Vec<f64> = planned.iter().map(|one| one.cost(args, &counting)).collect();
    show.prose(&format!(
        "time: {} on an idle machine with two CPUs; longer where others are at work",
        estimate::about(costs.iter().sum())
    ))?;
    let rows = planned.iter().map(|one| one.rows.len()).collect();
    let parts = Parts::new(args.output.quiet, rows, costs);

    let mut told = Told::new();
    let mut records: Vec<Record> = Vec::new();
    for (number, one) in planned.iter().enumerate() {
        if interrupt.requested() {
            break;
        }
        let last = number + 1 == planned.len();
        let mut record = {
            let before = &records;
            let steps = file(args.output.output.as_deref()).filter(|path| files::is_replaced(path));
            let mut keep = steps.map(|path| {
                move |record: &Record| {
                    let all = before.iter().cloned().chain([record.clone()]).collect();
                    if let Some(mut all) = join(all) {
                        all.complete &= last;
                        // Whether it can be kept is asked and told at the end.
                        let _ = wire::save(&all, path);
                    }
                }
            });
            block(
                args,
                (&show, &mut told),
                (&scenario, scale),
                (one, &*parts.part(number, &one.settings())),
                &counting,
                &interrupt,
                keep.as_mut().map(|keep| keep as &mut dyn FnMut(&Record)),
            )?
        };
        let settings = one.block.settings();
        for (row, result) in one.rows.iter().zip(&mut record.strategies) {
            result.experiment.settings.clone_from(&settings);
            if let Some((article, figures)) = &figures {
                let at = (result.name.as_str(), row.strategy.transport);
                result.experiment.published = figures.of(article, &one.block, at);
            }
        }
        records.push(record);
    }
    let done = records.len() == planned.len();
    let Some(mut record) = join(records) else {
        return Ok(Code::Incomplete);
    };
    record.complete &= done;
    record.findings = explain(&record);
    interrupt.release();
    write_outputs(args, form(&args.output), &record)?;
    Ok(exit_code(&record, args.ignore_failure))
}

/// The blocks that have rows, of which the user may have picked some.
fn plan(
    args: &BenchArgs,
    scenario: &Scenario,
    scale: Scale,
    registry: &Registry,
) -> Result<Vec<Planned>, CommandError> {
    let picks: Vec<&str> = args.strategies.iter().flat_map(|list| list.split(',')).collect();
    let mut used = vec![false; picks.len()];
    let mut planned = Vec::new();
    for block in scenario.blocks(scale) {
        let mut rows = block.rows(registry).code(Code::Usage)?;
        if !picks.is_empty() {
            rows.retain(|row| {
                let name = row.strategy.name().to_string();
                let mut any = false;
                for (pick, used) in picks.iter().zip(&mut used) {
                    if is_picked(pick, &name) {
                        (*used, any) = (true, true);
                    }
                }
                any
            });
        }
        if !rows.is_empty() {
            planned.push(Planned { block, rows });
        }
    }
    if let Some((pick, _)) = picks.iter().zip(&used).find(|(_, used)| !**used) {
        return Err(anyhow!(
            "the scenario {} has no row {}; without a STRATEGY all its rows run",
            scenario.name,
            escape(pick, 80)
        ))
        .code(Code::Usage);
    }
    if planned.is_empty() {
        return Err(anyhow!("the scenario {} has no rows", scenario.name)).code(Code::Usage);
    }
    Ok(planned)
}

/// Whether `client`, `client/mode` or `client/mode/transport`, with `*` for any part, is this row.
fn is_picked(pick: &str, name: &str) -> bool {
    let mut own = name.split('/');
    pick.split('/')
        .all(|part| own.next().is_some_and(|word| part == "*" || part == word))
}

/// Runs one block against a server of its own, or the user's.
fn block(
    args: &BenchArgs,
    (show, told): (&Header, &mut Told),
    of: (&Scenario, Scale),
    (planned, progress): (&Planned, &dyn Progress),
    counting: &Counting,
    interrupt: &Interrupt,
    keep: Option<&mut dyn FnMut(&Record)>,
) -> Result<Record, CommandError> {
    let block = &planned.block;
    let options = PrivateOptions {
        tcp_backlog: args.tcp_backlog.or(block.server.tcp_backlog),
        maxclients: block.server.maxclients,
        own_network: block.server.network == Network::Own,
        ..PrivateOptions::default()
    };
    let own_network = options.own_network;
    let wanted = wanted(&args.server, options)?;
    let mut servers = match (own_network, &wanted.redis) {
        (false, _) => start(&wanted, &planned.rows, interrupt)?,
        // A server of the user's stays where it is.
        (true, ServerChoice::External(_)) => Servers::without(
            Place::Redis,
            ServerError::NoOwnNetwork {
                why: "it is yours and stays where it is; leave it out for a private one",
            },
        ),
        // A machine that permits no namespaces runs the rest.
        (true, _) => servers_of(&wanted, &planned.rows, interrupt).unwrap_or_else(|error| {
            warn(&format!("systally: {error}"));
            Servers::without(Place::Redis, error)
        }),
    };
    // Each part has servers of its own; what they are is told once.
    for (_, server) in servers.iter() {
        let info = server.info();
        let what = (
            info.place.clone(),
            info.kind.clone(),
            info.version.clone(),
            info.servers,
            own_network,
        );
        if told.insert(what) {
            let network = if own_network {
                ", in a network namespace of its own"
            } else {
                ""
            };
            show.line(&format!("server: {server}{network}"))?;
        }
    }
    let common = block.common(&args.load.key_prefix);
    let keys = keys_of(&planned.rows, &common);
    let to_clean = to_clean(&mut servers, &keys)?;
    let settings = settings(args, of, block);
    let mut save = keep.map(|keep| move |record: &Record| keep(record));
    let record = Bench {
        rows: &planned.rows,
        common: &common,
        settings: &settings,
        servers: &mut servers,
        timing: engine::engine(EngineKind::None),
        counting: counting
            .engine
            .ok_or_else(|| "--engine none was asked for".to_owned()),
        witness: counting.witness.clone(),
        interrupt,
        progress,
        sampler: None,
        save: save.as_mut().map(|save| save as &mut Save),
    }
    .run();
    clean_up(&mut servers, &to_clean, &keys);
    servers.stop();
    Ok(record)
}

fn settings(args: &BenchArgs, (scenario, scale): (&Scenario, Scale), block: &Block) -> Settings {
    let mut plan = BTreeMap::from([
        ("scenario".to_owned(), scenario.name.clone()),
        ("scale".to_owned(), scale.to_string()),
    ]);
    if let (Some(article), true) = (&scenario.article, args.published) {
        plan.insert("published".to_owned(), article.id.clone());
    }
    if let Some(backlog) = args.tcp_backlog {
        plan.insert("tcp-backlog".to_owned(), backlog.to_string());
    }
    let patience = args.timeout.or(scenario.timeout).unwrap_or(DEFAULT_PATIENCE);
    Settings {
        runs: args.runs.unwrap_or(block.runs),
        warmup: args.warmup.unwrap_or(block.warmup),
        length: RoundLength::Ops(block.requests),
        counted_ops: Some(block.counted),
        counted_runs: args.counted_runs,
        // A replayed script sleeps within its round.
        patience: patience.saturating_add(block.pause.unwrap_or_default()),
        baseline: None,
        plan: PlanInfo { settings: plan },
        usage: block.usage,
    }
}

/// The first line: what is run.
fn headline(scenario: &Scenario, scale: Scale, planned: &[Planned]) -> String {
    let rows: usize = planned.iter().map(|one| one.rows.len()).sum();
    let operations: u64 = planned
        .iter()
        .map(|one| one.block.requests.saturating_mul(one.rows.len() as u64))
        .fold(0, u64::saturating_add);
    format!(
        "scenario: {} at scale {scale}: {rows} rows in {} blocks, {} operations in a round of all",
        scenario.name,
        planned.len(),
        crate::units::Grouped(operations),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pick_is_a_beginning_of_the_name() {
        assert!(is_picked("phpredis", "phpredis/connect/tcp"));
        assert!(is_picked("*/connect", "phpredis/connect/tcp"));
        assert!(is_picked("phpredis/*/unix", "phpredis/connect/unix"));
        assert!(!is_picked("phpredis/*/unix", "phpredis/connect/tcp"));
        assert!(!is_picked("php", "phpredis/connect/tcp"));
        assert!(!is_picked("phpredis/connect/tcp/x", "phpredis/connect/tcp"));
    }
}
