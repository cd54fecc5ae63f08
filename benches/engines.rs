//! What counting costs: throughput of a real client under each engine as a ratio to the same client
//! untraced in the same round, beside `strace -f -c`, and the cost of one counted call.
//!
//! `cargo bench --bench engines -- [ROUNDS] [single|hundred|calls|scale|all]`. Single ratios are noisy on a
//! shared machine, so the median over interleaved rounds is what counts. The client needs `php` with
//! phpredis and a `redis-server`; without them those parts are skipped and said so.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::Duration;

use systally::engine::{
    Availability, EngineKind, Exit, Failures, Outcome, Program, Request, Selection, Session, Stdio, Window,
    engine,
};
use systally::tally::Syscall;

const LIMIT: Duration = Duration::from_secs(120);

/// The client: SET and GET by turns once a line came on its standard input, printing when the loop began
/// and ended on the clock that all processes share.
const CLIENT: &str = r#"
$r = new Redis(); $r->connect("127.0.0.1", (int)$argv[1]); $n = (int)$argv[2];
echo "ready\n"; fgets(STDIN);
$t = hrtime(true);
for ($i = 0; $i < $n; $i += 2) { $r->set("bench:key", "data"); $r->get("bench:key"); }
echo $t, " ", hrtime(true), "\n";
"#;

/// One way of running the client.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Native,
    Bpf,
    Perf,
    PerfForked,
    PerfErrors,
    Ptrace { pin: bool, cpu_time: bool },
    Chosen,
    Counts,
    Strace,
    StracePinned,
    PerfTrace,
}

const PINNED: Way = Way::Ptrace {
    pin: true,
    cpu_time: false,
};

impl Way {
    const ALL: [Way; 13] = [
        Way::Native,
        Way::Bpf,
        Way::Perf,
        Way::PerfForked,
        Way::PerfErrors,
        PINNED,
        Way::Ptrace {
            pin: true,
            cpu_time: true,
        },
        Way::Ptrace {
            pin: false,
            cpu_time: false,
        },
        Way::Chosen,
        Way::Counts,
        Way::Strace,
        Way::StracePinned,
        Way::PerfTrace,
    ];

    fn name(self) -> &'static str {
        match self {
            Way::Native => "native",
            Way::Bpf => "bpf, all calls",
            Way::Perf => "perf, 4 chosen calls",
            Way::PerfForked => "perf, 4 chosen calls, forked",
            Way::PerfErrors => "perf, 4 chosen calls, errors",
            Way::Ptrace {
                pin: true,
                cpu_time: false,
            } => "ptrace, all calls",
            Way::Ptrace {
                pin: true,
                cpu_time: true,
            } => "ptrace, all calls, CPU time",
            Way::Ptrace { pin: false, .. } => "ptrace, all calls, not pinned",
            Way::Chosen => "ptrace, 4 chosen calls",
            Way::Counts => "ptrace-counts, all calls",
            Way::Strace => "strace -f -c",
            Way::StracePinned => "taskset strace -f -c",
            Way::PerfTrace => "perf trace -s",
        }
    }

    /// Why it cannot run here, if it cannot.
    fn missing(self) -> Option<String> {
        let program = match self {
            Way::Strace | Way::StracePinned => "strace",
            Way::PerfTrace => "perf",
            _ => {
                return match engine(self.request().0).availability() {
                    Availability::Ready => None,
                    Availability::Unavailable { why, .. } => Some(why),
                };
            }
        };
        (!have(program)).then(|| format!("{program} is not installed"))
    }

    fn request(self) -> (EngineKind, Request) {
        let request = Request {
            window: Window::Whole,
            selection: Selection::All,
            pin: true,
            cpu_time: false,
            failures: Failures::Free,
        };
        let calls = [
            libc::SYS_sendto,
            libc::SYS_recvfrom,
            libc::SYS_poll,
            libc::SYS_setsockopt,
        ];
        let chosen = Request {
            selection: Selection::Only(calls.map(Syscall::native).to_vec()),
            ..request.clone()
        };
        match self {
            Way::Native | Way::Strace | Way::StracePinned | Way::PerfTrace => (EngineKind::None, request),
            Way::Bpf => (EngineKind::Bpf, request),
            Way::Perf | Way::PerfForked => (EngineKind::Perf, chosen),
            Way::PerfErrors => (
                EngineKind::Perf,
                Request {
                    failures: Failures::All,
                    ..chosen
                },
            ),
            Way::Counts => (EngineKind::PtraceCounts, request),
            Way::Chosen => (EngineKind::Ptrace, chosen),
            Way::Ptrace { pin, cpu_time } => (
                EngineKind::Ptrace,
                Request {
                    pin,
                    cpu_time,
                    ..request
                },
            ),
        }
    }

    /// Whether one process follows all copies, as `strace -f` does with a forking parent. The counters of
    /// perf are then copies of one set, which the kernel leaves where they are when it switches from one
    /// child to another (`perf_event_context_sched_out` in kernel/events/core.c).
    fn leads_all(self) -> bool {
        matches!(
            self,
            Way::PerfForked | Way::Strace | Way::StracePinned | Way::PerfTrace
        )
    }

    fn command(self, command: &[String]) -> Vec<OsString> {
        let before: &[&str] = match self {
            Way::Strace => &["strace", "-f", "-c", "-o", "/dev/null"],
            Way::StracePinned => &["taskset", "-c", "1", "strace", "-f", "-c", "-o", "/dev/null"],
            Way::PerfTrace => &["perf", "trace", "-s", "-o", "/dev/null", "--"],
            _ => &[],
        };
        before
            .iter()
            .map(OsString::from)
            .chain(command.iter().map(OsString::from))
            .collect()
    }

    /// Runs copies of a command, lets all of them go at once when each has said that it is ready, and
    /// returns what each printed then.
    fn run(self, command: &[String], copies: usize) -> (Vec<String>, Outcome) {
        let (kind, request) = self.request();
        let program = |command: &[String]| Program {
            argv: self.command(command),
            env: BTreeMap::new(),
            stdio: Stdio::Piped,
            own_group: true,
        };
        let programs = if self.leads_all() && copies > 1 {
            let me = std::env::current_exe().expect("own path");
            let mut leader = vec![me.to_string_lossy().into_owned(), "--many".to_owned()];
            leader.push(copies.to_string());
            leader.extend_from_slice(command);
            vec![program(&leader)]
        } else {
            vec![program(command); copies]
        };
        let mut session = engine(kind).launch(programs, &request).expect("launch");
        let pipes = session.pipes().into_iter();
        let said = together(
            pipes
                .map(|pipes| (pipes.stdin.into(), pipes.stdout.into()))
                .collect(),
        );
        let outcome = session.finish(Some(LIMIT)).expect("finish");
        assert!(
            outcome.exits.iter().all(|exit| *exit == Exit::Code(0)),
            "{:?} {:?}",
            outcome.exits,
            outcome.notes
        );
        (said, outcome)
    }
}

/// Lets processes go at once when each has said that it is ready, and returns what each printed then.
fn together(processes: Vec<(File, File)>) -> Vec<String> {
    let mut running: Vec<(File, BufReader<File>)> = processes
        .into_iter()
        .map(|(input, output)| {
            let mut output = BufReader::new(output);
            let mut ready = String::new();
            output.read_line(&mut ready).expect("read");
            assert_eq!(ready, "ready\n");
            (input, output)
        })
        .collect();
    for (input, _) in &mut running {
        input.write_all(b"go\n").expect("write");
    }
    running
        .into_iter()
        .map(|(input, mut output)| {
            let mut text = String::new();
            output.read_to_string(&mut text).expect("read");
            drop(input);
            text
        })
        .collect()
}

/// The parent of many copies, for a tracer that follows one program and its children.
fn many(copies: usize, command: &[String]) {
    let mut children: Vec<Child> = (0..copies)
        .map(|_| {
            Command::new(&command[0])
                .args(&command[1..])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("spawn")
        })
        .collect();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("go");
    let ends = children.iter_mut().map(|child| {
        let input: OwnedFd = child.stdin.take().expect("stdin").into();
        let output: OwnedFd = child.stdout.take().expect("stdout").into();
        (input.into(), output.into())
    });
    for text in together(ends.collect()) {
        print!("{text}");
    }
    for mut child in children {
        assert!(child.wait().expect("wait").success());
    }
}

/// From the first beginning to the last end, in seconds; each line has when a loop began and ended, in
/// nanoseconds of the monotonic clock.
fn whole(said: &[String]) -> f64 {
    let (begin, end) = said
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| line.split_once(' ').expect("begin and end"))
        .fold((f64::MAX, 0f64), |(first, last), (begin, end)| {
            let nanos = |text: &str| text.trim().parse::<f64>().expect("nanoseconds");
            (first.min(nanos(begin)), last.max(nanos(end)))
        });
    (end - begin) / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A private server that ends with this process.
struct Server {
    session: Option<Box<dyn Session>>,
    port: u16,
}

impl Server {
    fn start() -> Option<Server> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .ok()?
            .local_addr()
            .ok()?
            .port();
        let arguments = [
            "redis-server",
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        let program = Program {
            argv: arguments.iter().map(OsString::from).collect(),
            env: BTreeMap::new(),
            stdio: Stdio::Piped,
            own_group: true,
        };
        let (_, request) = Way::Native.request();
        let session = engine(EngineKind::None).launch(vec![program], &request).ok()?;
        for _ in 0..200 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(Server {
                    session: Some(session),
                    port,
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.signal(libc::SIGTERM);
            let _ = session.finish(Some(Duration::from_secs(5)));
        }
    }
}

/// Throughput of the client under each way, by turns.
fn clients(rounds: usize, port: u16, copies: usize, ops: usize, ways: &[Way]) {
    let command: Vec<String> = [
        "php",
        "-d",
        "display_errors=stderr",
        "-r",
        CLIENT,
        &port.to_string(),
        &ops.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    println!("\n{copies} phpredis client(s), {ops} operations each over TCP, {rounds} rounds");
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    let mut eagain: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for (i, way) in ways
            .iter()
            .enumerate()
            .map(|(i, _)| (i + round) % ways.len())
            .map(|i| (i, ways[i]))
        {
            let (said, outcome) = way.run(&command, copies);
            rates[i].push((copies * ops) as f64 / whole(&said));
            if let Some(tallies) = outcome.tallies.known() {
                let calls = &tallies.run_loop.calls;
                let received = &calls[&Syscall::native(libc::SYS_recvfrom)];
                let sent = calls[&Syscall::native(libc::SYS_sendto)].calls;
                assert_eq!(sent, (copies * ops) as u64, "{}", way.name());
                let (kind, request) = way.request();
                if engine(kind).learns(&request).errors {
                    eagain[i].push(received.failed() as f64);
                }
            }
        }
    }
    println!("| way | op/s median | ratio to native | min to max | EAGAIN |");
    println!("|---|---:|---:|---:|---:|");
    for (i, way) in ways.iter().enumerate() {
        let ratios: Vec<f64> = rates[i]
            .iter()
            .zip(&rates[0])
            .map(|(rate, native)| rate / native)
            .collect();
        let (low, high) = ratios
            .iter()
            .fold((f64::MAX, 0f64), |(l, h), r| (l.min(*r), h.max(*r)));
        let eagain = if eagain[i].is_empty() {
            "–".to_owned()
        } else {
            format!("{:.0}", median(eagain[i].clone()))
        };
        println!(
            "| {} | {:.0} | {:.3} | {low:.2} to {high:.2} | {eagain} |",
            way.name(),
            median(rates[i].clone()),
            median(ratios),
        );
    }
}

/// The cost of one call: loops of getppid(2), which does next to nothing, in many processes at once. With
/// more processes than CPUs it is CPU time that is compared, per CPU.
fn calls(rounds: usize, ways: &[Way], processes: &[usize]) {
    let me = std::env::current_exe()
        .expect("own path")
        .to_string_lossy()
        .into_owned();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for copies in processes {
        let n = 40_000 / copies + 40;
        let command = vec![me.clone(), "--getppid".to_owned(), n.to_string()];
        println!("\n{copies} process(es), {n} getppid calls each, {rounds} rounds");
        println!("| way | µs added per call | KiB of systally per process |");
        println!("|---|---:|---:|");
        let mut costs: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
        let mut memory: Vec<f64> = vec![0.0; ways.len()];
        for _ in 0..rounds {
            for (i, way) in ways.iter().enumerate() {
                let before = resident();
                let (said, _) = way.run(&command, *copies);
                costs[i].push(whole(&said) * 1e6 * cpus.min(*copies) as f64 / (n * copies) as f64);
                memory[i] = memory[i].max((resident() - before).max(0.0) / *copies as f64);
            }
        }
        for (i, way) in ways.iter().enumerate() {
            let base = median(costs[0].clone());
            println!(
                "| {} | {:.2} | {:.1} |",
                way.name(),
                median(costs[i].clone()) - if i == 0 { 0.0 } else { base },
                memory[i],
            );
        }
    }
}

/// Resident memory of this process in KiB.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4.0
}

fn getppid(n: u64) {
    let now = || {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("clock");
        Duration::from(now).as_nanos()
    };
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("go");
    let start = now();
    for _ in 0..n {
        nix::unistd::getppid();
    }
    println!("{start} {}", now());
}

fn have(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|path| path.join(program).is_file())
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let [flag, n] = arguments.as_slice()
        && flag == "--getppid"
    {
        return getppid(n.parse().expect("a number"));
    }
    if let [flag, copies, command @ ..] = arguments.as_slice()
        && flag == "--many"
    {
        return many(copies.parse().expect("a number"), command);
    }
    let rounds = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(9);
    let part = arguments.get(1).map_or("all", String::as_str);
    let wanted = |name: &str| part == "all" || part == name;
    let mut ways = Way::ALL.to_vec();
    ways.retain(|way| match way.missing() {
        None => true,
        Some(why) => {
            println!("SKIP: {}: {why}", way.name());
            false
        }
    });
    if wanted("calls") {
        calls(rounds, &ways, &[1]);
    }
    if wanted("scale") {
        let few = [Way::Native, Way::Bpf, PINNED, Way::Counts];
        let few: Vec<Way> = few.into_iter().filter(|way| ways.contains(way)).collect();
        calls(rounds.min(3), &few, &[1, 10, 100, 1000]);
    }
    match Server::start() {
        Some(server) if have("php") => {
            if wanted("single") {
                let alone: Vec<Way> = ways
                    .iter()
                    .copied()
                    .filter(|way| *way != Way::PerfForked)
                    .collect();
                clients(rounds, server.port, 1, 10_000, &alone);
            }
            if wanted("hundred") {
                let pool: Vec<Way> = ways
                    .iter()
                    .copied()
                    .filter(|way| {
                        !matches!(
                            way,
                            Way::StracePinned | Way::PerfTrace | Way::Ptrace { cpu_time: true, .. }
                        )
                    })
                    .collect();
                clients(rounds, server.port, 100, 500, &pool);
            }
        }
        Some(_) => println!("SKIP: php is not installed"),
        None => println!("SKIP: redis-server is not installed or did not start"),
    }
}
