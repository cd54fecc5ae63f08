//! `bench --prove`: makes the runs that test a suspected limit, each as a process of its own.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cli::BenchArgs;
use crate::plan::DEFAULT_RUNS;
use crate::record::{Record, ServerOrigin, StrategyResult, wire};
use crate::run::interrupt::Interrupt;
use crate::run::prove::arm::{Arm, sweep};
use crate::run::prove::{self, Trouble};
use crate::sys::lifetime::die_with_this_thread;
use crate::units::escape;

use super::Code;
use super::bench::{DEFAULT_PATIENCE, DEFAULT_WARMUP};

/// What all rounds of one run shall take at most, in seconds.
const LONGEST_RUN: f64 = 10.0;

/// What a run may take beside its rounds: starting a thousand clients on a busy machine.
const AROUND_A_RUN: Duration = Duration::from_secs(120);

/// How long a run is given to end when the user wants to stop.
const TO_END: Duration = Duration::from_secs(5);

/// Tests what the record says of limits, and adds what came of it.
pub(super) fn prove(args: &BenchArgs, record: &mut Record, interrupt: &Interrupt) {
    let built_in = record
        .server
        .as_ref()
        .is_some_and(|server| server.origin == ServerOrigin::BuiltIn);
    prove::prove(record, &mut |setup, row| {
        if interrupt.requested() {
            return Err(Trouble::Interrupted);
        }
        let arm = Arm {
            setup: setup.clone(),
            bench: bench_of(args, row, built_in)?,
        };
        make(&arm, args, interrupt)
    });
}

/// The command line of a bench of this row alone, untraced, against a server of its own.
fn bench_of(args: &BenchArgs, row: &StrategyResult, built_in: bool) -> Result<Vec<String>, Trouble> {
    let load = &args.load;
    let mut words: Vec<String> = Vec::new();
    let mut put = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    put("--clients", row.axes.clients.to_string());
    put("--data-size", row.axes.payload_bytes.to_string());
    put("--tests", row.axes.op.clone());
    put("--seed", load.seed.to_string());
    put("--key-prefix", load.key_prefix.clone());
    put("--runs", rounds(args, row).to_string());
    put("--warmup", "0".to_owned());
    put("--engine", "none".to_owned());
    put(
        "--timeout",
        format!("{}ms", args.timeout.unwrap_or(DEFAULT_PATIENCE).as_millis()),
    );
    put("--output", "-".to_owned());
    if !load.pipeline.is_empty() {
        put("--pipeline", row.axes.pipeline.to_string());
    }
    if let Some(keys) = load.keyspace {
        put("--keyspace", keys.to_string());
    }
    match load.requests {
        Some(requests) => put("--requests", requests.to_string()),
        None => {
            let span = args.duration.unwrap_or(Duration::from_millis(500));
            put("--duration", format!("{}ms", span.as_millis().max(1)));
        }
    }
    for (flag, value) in [
        ("--payload", clap::ValueEnum::to_possible_value(&load.payload)),
        (
            "--serializer",
            clap::ValueEnum::to_possible_value(&load.serializer),
        ),
    ] {
        if let Some(value) = value {
            put(flag, value.get_name().to_owned());
        }
    }
    let text = |path: &std::ffi::OsStr| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| Trouble::Failed("a path of the command line is not valid UTF-8".to_owned()))
    };
    if let Some(file) = &args.clients_file {
        put("--clients-file", text(file.as_os_str())?);
    }
    if built_in {
        words.push("--builtin-server".to_owned());
    }
    if args.program.is_empty() {
        words.push(row.name.clone());
    } else {
        words.push("--".to_owned());
        for word in &args.program {
            words.push(text(word)?);
        }
    }
    Ok(words)
}

/// As many rounds as the run had, as far as they fit into the time of one run.
fn rounds(args: &BenchArgs, row: &StrategyResult) -> u32 {
    let all = args
        .runs
        .unwrap_or(DEFAULT_RUNS)
        .saturating_add(args.warmup.unwrap_or(DEFAULT_WARMUP))
        .max(1);
    let one = row.timed.known().and_then(|timed| {
        let longest = timed.rounds.iter().map(|round| round.elapsed.as_secs_f64());
        longest.reduce(f64::max)
    });
    match one {
        Some(seconds) if seconds > 0.0 => all.min((LONGEST_RUN / seconds) as u32).max(1),
        Some(_) | None => all.min(3),
    }
}

/// Makes a run and reads its record.
fn make(arm: &Arm, args: &BenchArgs, interrupt: &Interrupt) -> Result<Record, Trouble> {
    let failed = |what: &str, e: &dyn std::fmt::Display| Trouble::Failed(format!("{what}: {e}"));
    let program = std::env::current_exe().map_err(|e| failed("cannot find this program", &e))?;
    let text = serde_json::to_string(arm).map_err(|e| failed("cannot describe the run", &e))?;
    let mut command = Command::new(program);
    command
        .arg("arm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A terminal's Ctrl-C reaches this process alone, which then ends the run.
        .process_group(0);
    // No server of the user's is asked anything, so no password is needed.
    command.env_remove("REDISCLI_AUTH");
    die_with_this_thread(&mut command);
    let mut child = Running(command.spawn().map_err(|e| failed("cannot start a run", &e))?);
    if let Some(mut stdin) = child.0.stdin.take() {
        // A run that has ended already says why.
        let _ = stdin.write_all(text.as_bytes());
    }
    let (stdout, stderr) = (read(child.0.stdout.take()), read(child.0.stderr.take()));
    let longest =
        Duration::from_secs_f64(LONGEST_RUN) + args.timeout.unwrap_or(DEFAULT_PATIENCE) * 4 + AROUND_A_RUN;
    let deadline = Instant::now() + longest;
    let status = loop {
        match child.0.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if interrupt.requested() => {
                child.end();
                return Err(Trouble::Interrupted);
            }
            Ok(None) if Instant::now() > deadline => {
                child.end();
                return Err(Trouble::Failed(format!(
                    "it did not end within {} s",
                    longest.as_secs()
                )));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => return Err(failed("cannot wait for a run", &e)),
        }
    };
    let (stdout, stderr) = (joined(stdout), joined(stderr));
    let last = stderr.lines().last().unwrap_or_default();
    let said = escape(last.strip_prefix("systally: ").unwrap_or(last), 300);
    if status.code() == Some(i32::from(Code::CannotMeasure.number())) {
        return Err(Trouble::Denied(said));
    }
    wire::from_json(&stdout).map_err(|e| match said.as_str() {
        "" => Trouble::Failed(format!("it ended with {status} and without a record ({e})")),
        said => Trouble::Failed(said.to_owned()),
    })
}

/// A run under way; dropping it ends it.
struct Running(Child);

impl Running {
    fn end(&mut self) {
        let group = Pid::from_raw(self.0.id().cast_signed());
        let until = Instant::now() + TO_END;
        let mut signal = Signal::SIGTERM;
        while matches!(self.0.try_wait(), Ok(None)) {
            // It is not reaped yet, so its group is still its own.
            let _ = killpg(group, signal);
            if Instant::now() > until {
                signal = Signal::SIGKILL;
            }
            // Stuck in the kernel; nobody can end it.
            if Instant::now() > until + TO_END {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        sweep();
    }
}

fn read(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn joined(thread: std::thread::JoinHandle<String>) -> String {
    thread.join().unwrap_or_default()
}
