//! What the tests of `systally bench` share: running the built program with a limit on its time, and
//! looking for what it might have left behind.

// Each test program uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use systally::explain::Finding;
use systally::record::{Record, Status, StrategyResult, wire};

/// The longest any run of the program may take; far more than it needs on a busy machine. A run that
/// takes longer counts as hung. A proof runs a load seven times and more.
pub(crate) const HUNG: Duration = Duration::from_secs(600);

/// Variables that would change what the program does.
const CLEAN: [&str; 8] = [
    "REDISCLI_AUTH",
    "COLUMNS",
    "NO_COLOR",
    "SYSTALLY_CLIENTS",
    "SYSTALLY_SCRIPTS",
    "SYSTALLY_SPEC",
    "SYSTALLY_HIDDEN_PASS",
    "SYSTALLY_HIDDEN_URI",
];

/// Found in the environment of everything that a run starts.
const MARK: &str = "SYSTALLY_TEST_RUN";

/// One run to make: the program's command, and a folder of its own for what it makes.
pub(crate) struct Run {
    pub(crate) command: Command,
    folder: tempfile::TempDir,
    mark: String,
}

impl Run {
    /// `systally ARGS…`
    pub(crate) fn of<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
        Run::wrapped(&[], args)
    }

    /// `systally bench ARGS…`
    pub(crate) fn bench<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
        let mut run = Run::of(["bench"]);
        run.command.args(args);
        run
    }

    /// `WRAPPER… systally ARGS…`; the wrapper must replace itself by the program.
    pub(crate) fn wrapped<S: AsRef<OsStr>>(wrapper: &[&str], args: impl IntoIterator<Item = S>) -> Run {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let program = env!("CARGO_BIN_EXE_systally");
        let mut command = match wrapper {
            [] => Command::new(program),
            [first, others @ ..] => {
                let mut command = Command::new(first);
                command.args(others).arg(program);
                command
            }
        };
        command.args(args);
        let mut run = Run {
            command,
            folder,
            mark,
        };
        run.surround();
        run
    }

    fn surround(&mut self) {
        self.command
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // So that a signal for the whole group reaches nothing else.
            .process_group(0);
        for name in CLEAN {
            self.command.env_remove(name);
        }
    }

    /// A path in the run's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Processes of this run that live now, systally itself included: pid and command line.
    pub(crate) fn family(&self) -> Vec<(i32, String)> {
        family(&self.mark, self.folder.path())
    }

    /// Lets other users into the run's folders.
    pub(crate) fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt;
        for path in [self.folder.path().to_owned(), self.path("tmp")] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Run {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Run {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Runs another command in the program's place, with the same surroundings.
    pub(crate) fn instead(&mut self, command: Command) {
        self.command = command;
        self.surround();
    }

    pub(crate) fn start(self) -> Running {
        let mut running = self.start_unread();
        running.stdout = running.child.stdout.take().map(read);
        running
    }

    /// Starts it and leaves its standard output to the caller.
    pub(crate) fn start_unread(mut self) -> Running {
        let mut child = self.command.spawn().unwrap();
        let stderr = child.stderr.take().map(read);
        Running {
            child,
            stdout: None,
            stderr,
            started: Instant::now(),
            run: self,
        }
    }

    /// Runs it to its end.
    pub(crate) fn end(self) -> Ended {
        self.start().end()
    }

    /// Runs it with `-o` to its end, and reads the record.
    pub(crate) fn record(mut self) -> (Ended, Record) {
        let path = self.path("record.json");
        // Before the `--` of a program to run, if there is one.
        let args: Vec<_> = self.command.get_args().map(OsStr::to_owned).collect();
        if args.iter().any(|arg| arg == "--") {
            panic!("give -o before --: {args:?}");
        }
        self.command.arg("-o").arg(&path);
        let ended = self.end();
        let record = ended.saved(&path);
        (ended, record)
    }
}

fn read(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A stream that breaks off has brought what it has.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A run under way. Dropping it kills it.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    started: Instant,
    run: Run,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.run.path(name)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until something is so, while the run goes on.
    pub(crate) fn until(&mut self, what: &str, mut so: impl FnMut(&Run) -> bool) {
        while !so(&self.run) {
            if let Some(status) = self.child.try_wait().unwrap() {
                let (out, err) = self.output();
                panic!("ended ({status}) before {what}\n{out}\n{err}");
            }
            assert!(self.started.elapsed() < HUNG, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Processes that this run has started and that live now: pid and command line.
    pub(crate) fn family(&self) -> Vec<(i32, String)> {
        let family = self.run.family();
        family.into_iter().filter(|(pid, _)| *pid != self.pid()).collect()
    }

    fn output(&mut self) -> (String, String) {
        let join = |handle: Option<JoinHandle<String>>| handle.map(|h| h.join().unwrap()).unwrap_or_default();
        (join(self.stdout.take()), join(self.stderr.take()))
    }

    /// Waits for the end. Whatever the run, it must leave nobody running and nothing in its folder for
    /// temporary files.
    pub(crate) fn end(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() > HUNG {
                let family = self.run.family();
                kill_all(&family);
                let _ = self.child.wait();
                let (out, err) = self.output();
                panic!("hung; it had {family:?}\n{out}\n{err}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let took = self.started.elapsed();
        let left = soon_empty(|| self.run.family());
        assert!(left.is_empty(), "{left:?} are left, after {status}");
        let (stdout, stderr) = self.output();
        let tmp = self.run.path("tmp");
        if status.signal() != Some(Signal::SIGKILL as i32) {
            let rest = names(&tmp);
            assert!(
                rest.is_empty(),
                "{rest:?} are left in the folder for temporary files"
            );
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
        let run = std::mem::replace(&mut self.run, Run::of([""; 0]));
        Ended {
            status,
            stdout,
            stderr,
            took,
            run,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        kill_all(&self.run.family());
    }
}

/// A run that is over.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
    pub(crate) run: Run,
}

impl Ended {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.run.path(name)
    }

    /// Asserts the exit code.
    pub(crate) fn code(&self, code: i32) -> &Ended {
        assert_eq!(self.status.code(), Some(code), "{}", self.all());
        self
    }

    /// Everything it wrote.
    pub(crate) fn all(&self) -> String {
        format!("{}\n--- stderr\n{}", self.stdout, self.stderr)
    }

    /// The only error message: one line on standard error, and nothing on standard output.
    pub(crate) fn error(&self) -> &str {
        let mut lines = self.stderr.lines();
        let line = lines.next().unwrap_or_default();
        assert!(lines.next().is_none(), "more than one line: {}", self.all());
        assert!(line.starts_with("systally: "), "{}", self.all());
        line
    }

    /// The record in a file.
    pub(crate) fn saved(&self, path: &Path) -> Record {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{e}: {}", self.all()));
        wire::from_json(&text).unwrap()
    }
}

/// Processes with this mark in their environment, or at work in this folder, that are not zombies. A
/// redis-server writes its title over its environment, and stands in its private folder.
fn family(mark: &str, folder: &Path) -> Vec<(i32, String)> {
    let marked = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let is_marked = read("environ").split(|b| *b == 0).any(|v| v == marked.as_bytes());
        let is_here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        if !is_marked && !is_here {
            continue;
        }
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if command.is_empty() {
            continue;
        }
        found.push((pid, command));
    }
    found
}

fn kill_all(family: &[(i32, String)]) {
    for (pid, _) in family {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

/// What is still there after the moment that a killed process takes to go.
fn soon_empty<T>(look: impl Fn() -> Vec<T>) -> Vec<T> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = look();
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// A row by its name.
pub(crate) fn row<'a>(record: &'a Record, name: &str) -> &'a StrategyResult {
    let found = record.strategies.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("no row {name}"))
}

/// A row by its name, which must have this status.
pub(crate) fn row_is<'a>(record: &'a Record, name: &str, status: Status) -> &'a StrategyResult {
    let row = row(record, name);
    assert_eq!(row.status, status, "{name}: {:?} {:?}", row.reason, row.failure);
    row
}

/// The codes of all findings.
pub(crate) fn codes(record: &Record) -> Vec<&str> {
    record.findings.iter().map(|f| f.code.as_ref()).collect()
}

/// The finding with this code, which must be there.
pub(crate) fn finding<'a>(record: &'a Record, code: &str) -> &'a Finding {
    let found = record.findings.iter().find(|f| f.code == code);
    found.unwrap_or_else(|| {
        let rows: Vec<_> = record
            .strategies
            .iter()
            .map(|s| (&s.name, s.status, &s.reason, &s.failure))
            .collect();
        panic!("no {code} in {:?}\n{rows:#?}", record.findings)
    })
}

/// A number in a finding's evidence.
pub(crate) fn evidence(finding: &Finding, name: &str) -> f64 {
    let value = finding.evidence.get(name);
    value
        .and_then(|v| v.as_f64())
        .unwrap_or_else(|| panic!("no {name} in {finding:?}"))
}

/// Whether a program is there; if not, a line that says what is left out.
pub(crate) fn have(program: &str, args: &[&str], what: &str) -> bool {
    let found = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        println!(
            "SKIP: {what}: `{program} {}` does not succeed here",
            args.join(" ")
        );
    }
    found
}

/// Whether the PHP clients are there.
pub(crate) fn have_php() -> bool {
    have(
        "php",
        &[
            "-r",
            "exit(extension_loaded('redis') && is_file('/usr/share/php/Predis/autoload.php') ? 0 : 1);",
        ],
        "the PHP clients",
    )
}

/// Whether programs may be traced here; asked of the program itself.
pub(crate) fn may_trace() -> bool {
    let listed = Run::of(["list", "engines"]).end();
    let ready = listed
        .stdout
        .lines()
        .any(|line| line.contains("ptrace") && line.contains("ready"));
    if !ready {
        println!("SKIP: nothing may be traced here: {}", listed.stdout);
    }
    ready
}

/// Whether this user may do anything.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
