//! The `systally` program: parse, run the command, print the error once, return the exit code.

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("worker"), Some(name)) => systally::strategy::worker_main::run(&name),
        _ => std::process::ExitCode::from(2),
    }
}
