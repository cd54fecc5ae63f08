//! Where results go when the place is no plain file, or fails while it is written: the result is printed all
//! the same, the error is said once, and no half of a file is left.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;

use std::path::Path;
use std::process::Command;

use bench_support::{Ended, Run, may_trace};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

/// What `strace -c` printed, long enough for a record that fills more than one block.
const TABLE: &str = "% time     seconds  usecs/call     calls    errors syscall\n\
    ------ ----------- ----------- --------- --------- ----------------\n\
    100.00    0.000100           1       100           read\n\
    ------ ----------- ----------- --------- --------- ----------------\n\
    100.00    0.000100           1       100           total\n";

/// The three commands that keep a record, each with the file behind `-o` and a part of the result. They say
/// the result on either stream.
fn commands(output: &str) -> Vec<(Run, &'static str)> {
    let import = Run::of(["import", "table.txt", "-o", output]);
    std::fs::write(import.path("table.txt"), TABLE).unwrap();
    let mut all = vec![
        (import, "100.00"),
        (
            Run::bench([
                "raw/persistent/unix",
                "--builtin-server",
                "--engine",
                "none",
                "-n",
                "100",
            ])
            .args(["--runs", "1", "--warmup", "0", "-o", output]),
            "raw/persistent/unix",
        ),
    ];
    if may_trace() {
        all.push((Run::of(["count", "-o", output, "--", "true"]), "execve"));
    }
    for (run, _) in &mut all {
        let folder = run.path("");
        run.command.current_dir(folder);
    }
    all
}

/// Runs it under a shell that does something first.
fn after(mut run: Run, first: &str) -> Ended {
    let mut shell = Command::new("sh");
    let own = run.command.get_current_dir().map(Path::to_owned);
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]);
    shell.arg(run.command.get_program()).args(run.command.get_args());
    run.instead(shell);
    run.command.current_dir(own.unwrap());
    run.end()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "tmp" && name != "table.txt")
        .collect()
}

#[test]
fn a_pipe_that_nobody_reads_costs_the_record_alone() {
    for (run, result) in commands("pipe") {
        nix::unistd::mkfifo(&run.path("pipe"), Mode::S_IRWXU).unwrap();
        let ended = run.end();
        ended.code(1);
        assert!(ended.all().contains(result), "{}", ended.all());
        let said = "cannot write pipe: No such device or address (os error 6); nothing reads from this pipe";
        assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.all());
    }
}

#[test]
fn a_pipe_gets_one_record_when_it_is_done() {
    for (run, _) in commands("pipe") {
        let pipe = run.path("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
        run.end().code(0);
        systally::record::wire::from_json(&reader.join().unwrap()).unwrap();
    }
}

#[test]
fn a_reader_that_does_not_read_can_be_left() {
    for (run, _) in commands("pipe") {
        let pipe = run.path("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        // Opened for both, so that it does not wait for the writer; filled to the brim by ourselves.
        let reader = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&pipe)
            .unwrap();
        let size = nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        std::io::Write::write_all(&mut &reader, &vec![b'x'; size as usize]).unwrap();
        let mut running = run.start();
        let pid = running.pid();
        // Blocked in the write: the last line of the kernel's stack has its name, or the state says it.
        running.until("it waits for room in the pipe", |_| {
            std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("pipe_write"))
        });
        running.signal(Signal::SIGTERM);
        let ended = running.end();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(
            ended.status.signal(),
            Some(Signal::SIGTERM as i32),
            "{}",
            ended.all()
        );
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_write() {
    for (run, result) in commands("run.json") {
        let ended = after(run, "ulimit -f 1");
        ended.code(1);
        assert!(ended.all().contains(result), "{}", ended.all());
        let said = "cannot write run.json: File too large (os error 27)";
        assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.all());
        assert_eq!(names(&ended.path("")), [""; 0]);
    }
}

#[test]
fn a_limit_of_file_sizes_still_ends_the_program_that_is_counted() {
    if !may_trace() {
        return;
    }
    let mut run = Run::of(["count", "--", "dd", "if=/dev/zero", "of=big", "bs=64k", "count=1"]);
    let folder = run.path("");
    run.command.current_dir(folder);
    let ended = after(run, "ulimit -f 1");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(
        ended.status.signal(),
        Some(Signal::SIGXFSZ as i32),
        "{}",
        ended.all()
    );
}

#[test]
fn a_folder_that_goes_away_meanwhile_costs_its_files_alone() {
    let run = Run::bench(["raw/persistent/unix", "--builtin-server", "--engine", "none"])
        .args(["--duration", "500ms", "--runs", "2", "--warmup", "0"])
        .args(["-o", "results/run.json", "--export-csv", "results/run.csv"]);
    let mut run = run;
    let (folder, results) = (run.path(""), run.path("results"));
    run.command.current_dir(folder);
    std::fs::create_dir(&results).unwrap();
    let mut running = run.start();
    // After the first round there is a record.
    running.until("the first record", |run| run.path("results/run.json").exists());
    std::fs::remove_dir_all(&results).unwrap();
    let ended = running.end();
    ended.code(1);
    assert!(ended.stdout.contains("raw/persistent/unix"), "{}", ended.all());
    for file in ["run.json", "run.csv"] {
        let said = format!("cannot write results/{file}: No such file or directory (os error 2)");
        assert_eq!(ended.stderr.matches(&said).count(), 1, "{}", ended.all());
    }
}

#[test]
fn an_export_that_fails_leaves_what_was_there() {
    let run = Run::bench([
        "raw/persistent/unix",
        "--builtin-server",
        "--engine",
        "none",
        "-n",
        "100",
    ])
    .args(["--runs", "1", "--warmup", "0", "--export-csv", "run.csv"]);
    let mut run = run;
    let folder = run.path("");
    run.command.current_dir(folder);
    std::fs::write(run.path("run.csv"), "old").unwrap();
    let ended = after(run, "ulimit -f 1");
    ended.code(1);
    assert_eq!(std::fs::read_to_string(ended.path("run.csv")).unwrap(), "old");
    assert_eq!(names(&ended.path("")), ["run.csv"]);
}

/// What a run printed comes out of its record again, in every format.
#[test]
fn a_record_is_shown_again() {
    let strip = |text: &str| {
        let skip = [
            "server: ",
            "host: ",
            "plan: ",
            "bench: ",
            "counting: ",
            "- server: ",
            "- host: ",
            "- plan: ",
        ];
        let lines = text
            .lines()
            .filter(|line| !skip.iter().any(|begin| line.starts_with(begin)));
        // The head, which an own line of a live run may stand in for, and the folds of it.
        let lines: Vec<&str> = lines
            .skip_while(|line| !line.starts_with("strategy") && !line.starts_with('|'))
            .collect();
        lines.join("\n")
    };
    let flag = "--format";
    for format in ["table", "md", "csv", "json"] {
        let run = Run::bench(["raw/persistent/unix,redis-rs/persistent/unix", "--builtin-server"]).args([
            "-n", "100", "--runs", "3", "--warmup", "0", "--peers", flag, format,
        ]);
        let path = run.path("run.json");
        let live = run.arg("-o").arg(&path).end();
        live.code(0);
        let again = Run::of(["import", "--peers", flag, format]).arg(&path).end();
        again.code(0);
        if ["csv", "json"].contains(&format) {
            assert_eq!(again.stdout, live.stdout);
        } else {
            assert_eq!(strip(&again.stdout), strip(&live.stdout));
            assert!(
                again.stdout.contains("redis-rs/persistent/unix"),
                "{}",
                again.all()
            );
        }
        assert_eq!(again.stderr, "");
    }
    if may_trace() {
        let run = Run::of(["count", "--format", "md", "-o"]);
        let path = run.path("count.json");
        let live = run.arg(&path).args(["--", "true"]).end();
        live.code(0);
        let again = Run::of(["import", "--format", "md"]).arg(&path).end();
        assert_eq!(strip(&again.stdout), strip(&live.stdout));
    }
    // One that was cut short says so by its code.
    let cut = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records/bench-incomplete.json");
    Run::of(["import"]).arg(cut).end().code(5);
}

#[test]
fn a_descriptor_is_added_to() {
    let mut run = Run::of(["import", "table.txt", "-o", "/dev/stdout", "--format", "csv"]);
    std::fs::write(run.path("table.txt"), TABLE).unwrap();
    let folder = run.path("");
    run.command.current_dir(folder);
    let ended = after(run, "exec >all.txt");
    ended.code(0);
    let all = std::fs::read_to_string(ended.path("all.txt")).unwrap();
    assert!(all.starts_with("row,") && all.contains("\"schema\""), "{all}");
}
