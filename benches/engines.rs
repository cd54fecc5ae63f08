//! What counting costs: throughput of a real client under each engine as a ratio to the same client
//! untraced in the same round, beside `strace -f -c`, and the cost of one counted call.
//!
//! `cargo bench --bench engines -- [ROUNDS] [single|hundred|calls|all]`. Single ratios are noisy on a
//! shared machine, so the median over interleaved rounds is what counts. The client needs `php` with
//! phpredis and a `redis-server`; without them those parts are skipped and said so.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::time::{Duration, Instant};

use systally::engine::{
    EngineKind, Exit, Outcome, Program, Request, Selection, Session, Stdio, Window, engine,
};
use systally::tally::Syscall;

const LIMIT: Duration = Duration::from_secs(120);

/// The client: SET and GET by turns, printing the nanoseconds that the loop took.
const CLIENT: &str = r#"
$r = new Redis(); $r->connect("127.0.0.1", (int)$argv[1]); $n = (int)$argv[2];
$t = hrtime(true);
for ($i = 0; $i < $n; $i += 2) { $r->set("bench:key", "data"); $r->get("bench:key"); }
echo hrtime(true) - $t, "\n";
"#;

/// One way of running the client.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Native,
    Ptrace { pin: bool, cpu_time: bool },
    Chosen,
    Strace,
    StracePinned,
}

impl Way {
    const ALL: [Way; 7] = [
        Way::Native,
        Way::Ptrace {
            pin: true,
            cpu_time: false,
        },
        Way::Ptrace {
            pin: true,
            cpu_time: true,
        },
        Way::Ptrace {
            pin: false,
            cpu_time: false,
        },
        Way::Chosen,
        Way::Strace,
        Way::StracePinned,
    ];

    fn name(self) -> &'static str {
        match self {
            Way::Native => "native",
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
            Way::Strace => "strace -f -c",
            Way::StracePinned => "taskset strace -f -c",
        }
    }

    fn request(self) -> (EngineKind, Request) {
        let request = Request {
            window: Window::Whole,
            selection: Selection::All,
            pin: true,
            cpu_time: false,
        };
        match self {
            Way::Native | Way::Strace | Way::StracePinned => (EngineKind::None, request),
            Way::Ptrace { pin, cpu_time } => (
                EngineKind::Ptrace,
                Request {
                    pin,
                    cpu_time,
                    ..request
                },
            ),
            Way::Chosen => {
                let calls = [
                    libc::SYS_sendto,
                    libc::SYS_recvfrom,
                    libc::SYS_poll,
                    libc::SYS_setsockopt,
                ];
                let selection = Selection::Only(calls.map(Syscall::native).to_vec());
                (EngineKind::Ptrace, Request { selection, ..request })
            }
        }
    }

    fn command(self, command: &[String]) -> Vec<OsString> {
        let before: &[&str] = match self {
            Way::Native | Way::Ptrace { .. } | Way::Chosen => &[],
            Way::Strace => &["strace", "-f", "-c", "-o", "/dev/null"],
            Way::StracePinned => &["taskset", "-c", "1", "strace", "-f", "-c", "-o", "/dev/null"],
        };
        before
            .iter()
            .map(OsString::from)
            .chain(command.iter().map(OsString::from))
            .collect()
    }

    /// Runs copies of a command and returns what each printed on standard output.
    fn run(self, command: &[String], copies: usize) -> (Vec<String>, Outcome) {
        let (kind, request) = self.request();
        let program = Program {
            argv: self.command(command),
            env: BTreeMap::new(),
            stdio: Stdio::Piped,
            own_group: true,
        };
        let mut session = engine(kind)
            .launch(vec![program; copies], &request)
            .expect("launch");
        let pipes = session.pipes();
        let said = pipes
            .into_iter()
            .map(|pipes| {
                drop(pipes.stdin);
                let mut text = String::new();
                std::fs::File::from(pipes.stdout)
                    .read_to_string(&mut text)
                    .expect("read");
                text
            })
            .collect();
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
            let longest = said
                .iter()
                .map(|text| text.trim().parse::<f64>().expect("nanoseconds"));
            rates[i].push((copies * ops) as f64 / (longest.fold(0.0, f64::max) / 1e9));
            if let Some(tallies) = outcome.tallies.known() {
                let calls = &tallies.run_loop.calls;
                let received = &calls[&Syscall::native(libc::SYS_recvfrom)];
                let sent = calls[&Syscall::native(libc::SYS_sendto)].calls;
                assert_eq!(sent, (copies * ops) as u64, "{}", way.name());
                eagain[i].push(received.failed() as f64);
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

/// The cost of one call: a loop of getppid(2), which does next to nothing.
fn calls(rounds: usize, ways: &[Way], processes: &[usize]) {
    let me = std::env::current_exe()
        .expect("own path")
        .to_string_lossy()
        .into_owned();
    for copies in processes {
        let n = 20_000 / copies.clamp(&1, &100) + 100;
        let command = vec![me.clone(), "--getppid".to_owned(), n.to_string()];
        println!("\n{copies} process(es), {n} getppid calls each, {rounds} rounds: µs added per call");
        let mut costs: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (i, way) in ways.iter().enumerate() {
                let (said, _) = way.run(&command, *copies);
                let spent = said
                    .iter()
                    .map(|text| text.trim().parse::<f64>().expect("nanoseconds"))
                    .sum::<f64>();
                costs[i].push(spent / 1e3 / (n * copies) as f64);
            }
        }
        for (i, way) in ways.iter().enumerate() {
            let base = median(costs[0].clone());
            println!(
                "| {} | {:.2} |",
                way.name(),
                median(costs[i].clone()) - if i == 0 { 0.0 } else { base }
            );
        }
    }
}

/// The same cost as the whole span of many processes, which work at the same time.
fn getppid(n: u64) {
    let start = Instant::now();
    for _ in 0..n {
        nix::unistd::getppid();
    }
    println!("{}", start.elapsed().as_nanos());
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
    let rounds = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(9);
    let part = arguments.get(1).map_or("all", String::as_str);
    let wanted = |name: &str| part == "all" || part == name;
    let strace = have("strace");
    let ways: Vec<Way> = Way::ALL
        .into_iter()
        .filter(|way| strace || !matches!(way, Way::Strace | Way::StracePinned))
        .collect();
    if !strace {
        println!("SKIP: strace is not installed, so there is nothing to compare with");
    }
    if wanted("calls") {
        calls(rounds, &ways, &[1]);
    }
    match Server::start() {
        Some(server) if have("php") => {
            if wanted("single") {
                clients(rounds, server.port, 1, 10_000, &ways);
            }
            if wanted("hundred") {
                let pool = [Way::Native, Way::ALL[1], Way::ALL[3], Way::Chosen, Way::Strace];
                clients(rounds, server.port, 100, 500, &pool[..if strace { 5 } else { 4 }]);
            }
        }
        Some(_) => println!("SKIP: php is not installed"),
        None => println!("SKIP: redis-server is not installed or did not start"),
    }
}
