//! The `systally` program: parse, run the command, print the error once, return the exit code.

use std::process::ExitCode;

use clap::Parser;
use systally::cli::{Cli, Command};
use systally::cmd;

fn main() -> ExitCode {
    cmd::heed_size_limits();
    systally::sys::process::keep_children();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are answers, and an answer that could not be given is a failure.
        Err(answer) => {
            let answer = cmd::usage::escaped(answer);
            let code = match (answer.print(), u8::try_from(answer.exit_code())) {
                (Ok(()), Ok(code)) => code,
                (Err(_), Ok(code)) if code > 0 => code,
                (Err(_), _) | (Ok(()), Err(_)) => cmd::Code::Failed.number(),
            };
            return ExitCode::from(code);
        }
    };
    let result = match cli.command {
        Command::Bench(mut args) => cmd::bench::run(&mut args),
        Command::Count(mut args) => cmd::count::run(&mut args),
        Command::Preflight(mut args) => cmd::preflight::run(&mut args),
        Command::Explain(args) => cmd::explain::run(&args),
        Command::Import(args) => cmd::import::run(&args),
        Command::List(args) => cmd::list::run(&args),
        Command::Schema => cmd::schema::run(),
        Command::Worker(args) => return cmd::worker::run(&args),
        Command::Responder(args) => cmd::responder::run(&args),
        Command::Arm => cmd::arm::run(),
        Command::Setup => cmd::setup::run(),
        Command::Loop(args) => cmd::calls::run(&args),
    };
    let code = result.unwrap_or_else(|failure| {
        cmd::warn(&format!("systally: {}", cmd::describe(&failure.error)));
        failure.code
    });
    ExitCode::from(code.number())
}
