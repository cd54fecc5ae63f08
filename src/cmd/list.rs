//! `systally list`: what is ready on this machine, and for what is not, why and what installs it.

use std::fmt::Write;

use anyhow::anyhow;
use clap::ValueEnum;

use crate::cli::{ListArgs, ListWhat};
use crate::engine::{Availability, ENGINES, EngineKind, measure};
use crate::plan::scenario::{BUILT_IN, Scenario};
use crate::proc::own;
use crate::render::Format;
use crate::strategy::{Presence, Registry, ScriptSource};

use super::{Code, CommandError, CommandResult, WithCode, need_proc, print};

/// Open files that it takes to try programs and engines. With fewer they would seem to be missing.
const TRYING_FILES: u64 = 24;

/// Prints the list.
///
/// # Errors
/// A clients file that cannot be read.
pub fn run(args: &ListArgs) -> CommandResult {
    if let Some(name) = &args.show {
        return show(args.what, name);
    }
    let tries = [ListWhat::Strategies, ListWhat::Engines];
    if args.what.is_none_or(|only| tries.contains(&only)) {
        need_proc()?;
        own::need_files(TRYING_FILES)
            .map_err(|limit| anyhow!("cannot try what is installed: {limit}"))
            .code(Code::Failed)?;
    }
    let wanted = |what: ListWhat| args.what.is_none_or(|only| only == what);
    let mut text = String::new();
    if wanted(ListWhat::Strategies) {
        let source = ScriptSource::from_env(args.clients_file.clone()).code(Code::Usage)?;
        strategies(&mut text, &Registry::load(&source).code(Code::Usage)?)?;
    }
    if wanted(ListWhat::Engines) {
        engines(&mut text, args.measure)?;
    }
    if wanted(ListWhat::Scenarios) {
        scenarios(&mut text)?;
    }
    if wanted(ListWhat::Formats) {
        formats(&mut text)?;
    }
    print(&text)?;
    Ok(Code::Ok)
}

/// Prints the file of a built-in scenario.
fn show(what: Option<ListWhat>, name: &str) -> CommandResult {
    if what.is_some_and(|what| what != ListWhat::Scenarios) {
        return Err(anyhow!(
            "--show prints a scenario: systally list scenarios --show NAME"
        ))
        .code(Code::Usage);
    }
    match BUILT_IN.iter().find(|known| known.name == name) {
        Some(known) => print(known.text)?,
        // The same words as when it is run.
        None => drop(Scenario::find(name).code(Code::Usage)?),
    }
    Ok(Code::Ok)
}

fn scenarios(out: &mut String) -> Result<(), CommandError> {
    writeln!(
        out,
        "Scenarios (bench --scenario NAME; list scenarios --show NAME prints the file)"
    )?;
    for known in BUILT_IN {
        let scenario = Scenario::find(known.name).code(Code::Usage)?;
        writeln!(out, "    {:<20} {}", known.name, scenario.about)?;
    }
    Ok(writeln!(out)?)
}

fn strategies(out: &mut String, registry: &Registry) -> std::fmt::Result {
    writeln!(out, "Strategies (client/mode/transport; * runs by default)")?;
    for client in registry.clients() {
        match client.presence() {
            Presence::Ready { version } => {
                writeln!(
                    out,
                    "  {:<18} {:<10} ready  {}",
                    client.name(),
                    version,
                    client.description()
                )?;
            }
            Presence::Missing { why, install } => {
                writeln!(out, "  {:<18} {:<10} {why}; {install}", client.name(), "missing")?;
            }
        }
        for mode in client.modes() {
            let transports: Vec<&str> = mode
                .transports(client.as_ref())
                .iter()
                .map(|transport| transport.name())
                .collect();
            let star = if mode.default { '*' } else { ' ' };
            writeln!(
                out,
                "   {star} {:<24} {:<9} {}",
                format!("{}/{}", client.name(), mode.name),
                transports.join(","),
                mode.description
            )?;
        }
    }
    writeln!(out)
}

fn engines(out: &mut String, measured: bool) -> std::fmt::Result {
    writeln!(out, "Engines")?;
    for engine in ENGINES {
        let state = match engine.availability() {
            Availability::Ready => "ready".to_owned(),
            Availability::Unavailable { why, fix } => format!("not available: {why}; {fix}"),
        };
        let can = engine.capabilities();
        let knows: Vec<&str> = [
            (can.all_calls, "all calls"),
            (can.errors, "errno"),
            (can.time, "time in call"),
            (can.peers, "peers"),
            (can.phases, "phases"),
            (can.exact, "exact"),
            (can.attach, "attach"),
        ]
        .into_iter()
        .filter_map(|(yes, word)| yes.then_some(word))
        .collect();
        let knows = if knows.is_empty() {
            "counts nothing".to_owned()
        } else {
            knows.join(", ")
        };
        let cost = if measured && engine.availability() == Availability::Ready {
            cost(engine.kind())
        } else {
            String::new()
        };
        writeln!(out, "    {:<13} {state} ({knows}){cost}", engine.kind().name())?;
    }
    writeln!(out)
}

/// What a counted call costs, measured now.
fn cost(kind: EngineKind) -> String {
    if kind == EngineKind::None {
        return String::new();
    }
    let measured = std::env::current_exe()
        .map_err(|error| format!("systally's own program cannot be found: {error}"))
        .and_then(|looper| measure(kind, &looper).map_err(|error| error.to_string()));
    match measured {
        Ok(cost) => format!(
            "; a call that takes {} takes {} more when it is counted ({:.1} times as long)",
            cost.bare,
            cost.added,
            cost.times()
        ),
        Err(error) => format!("; its cost could not be measured: {error}"),
    }
}

fn formats(out: &mut String) -> std::fmt::Result {
    writeln!(out, "Formats")?;
    for format in Format::value_variants() {
        if let Some(value) = format.to_possible_value() {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            writeln!(out, "    {:<8} {help}", value.get_name())?;
        }
    }
    Ok(())
}
