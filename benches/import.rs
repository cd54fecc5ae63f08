//! How fast a log of strace is imported, and in how much memory: `cargo bench --bench import`.
//!
//! Each shape is written to a temporary file until it has `SYSTALLY_BENCH_MB` megabytes (200 unless set),
//! imported once by a process of its own, and reported in megabytes per second of that process's user CPU
//! time, which other work on the machine does not change, with its peak memory.
//!
//! `SYSTALLY_BENCH_LOG=FILE` repeats a log of your own as one more shape.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};

/// A shape: its name, and what makes its n-th few lines.
type Shape = (&'static str, Box<dyn Fn(u64) -> String>);

fn shapes() -> Vec<Shape> {
    let stamp = |n: u64| {
        let us = n % 1_000_000;
        format!("10:{:02}:{:02}.{us:06}", n / 60_000_000 % 60, n / 1_000_000 % 60)
    };
    let mut shapes: Vec<Shape> = vec![
        (
            "strace -f -tt -T of a client",
            Box::new(move |n| {
                let (pid, at) = (1000 + n % 8, stamp(n));
                format!(
                    "{pid} {at} sendto(4, \"*2\\r\\n$3\\r\\nGET\\r\\n$7\\r\\nkey:{:03}\\r\\n\", 26, MSG_DONTWAIT, NULL, 0) = 26 <0.000019>\n\
                     {pid} {at} poll([{{fd=4, events=POLLIN|POLLERR|POLLHUP}}], 1, 60000) = 1 ([{{fd=4, revents=POLLIN}}]) <0.000008>\n\
                     {pid} {at} recvfrom(4, \"$16\\r\\nvvvvvvvvvvvvvvvv\\r\\n\", 8192, MSG_DONTWAIT, NULL, NULL) = 23 <0.000011>\n",
                    n % 1000
                )
            }),
        ),
        (
            "strace -f without times",
            Box::new(|n| {
                format!(
                    "[pid {:5}] write(7, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14) = 14\n[pid {:5}] read(7, \"+PONG\\r\\n\", 16384) = 7\n",
                    1000 + n % 8,
                    1000 + n % 8
                )
            }),
        ),
        (
            "interleaved threads",
            Box::new(move |n| {
                let (a, b, at) = (1000 + n % 50, 1000 + (n + 1) % 50, stamp(n));
                format!(
                    "{a} {at} epoll_wait(5,  <unfinished ...>\n{b} {at} <... epoll_wait resumed>[{{events=EPOLLIN, data={{u32=9, u64=9}}}}], 1024, -1) = 1 <0.000022>\n"
                )
            }),
        ),
        (
            "a process per operation",
            Box::new(|n| {
                let child = 2000 + n % 4_000_000;
                format!(
                    "1000 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = {child}\n\
                     {child} socket(AF_INET, SOCK_STREAM, 0) = 5\n{child} close(5) = 0\n{child} exit_group(0) = ?\n{child} +++ exited with 0 +++\n"
                )
            }),
        ),
        (
            "a million descriptors",
            Box::new(|n| {
                let fd = n % 1_000_000;
                format!(
                    "7 socket(AF_INET, SOCK_STREAM, 0) = {fd}\n7 connect({fd}, {{sa_family=AF_INET, sin_port=htons({}), sin_addr=inet_addr(\"10.1.2.3\")}}, 16) = 0\n",
                    n % 65_536
                )
            }),
        ),
        (
            "threads that never come back",
            Box::new(|n| {
                format!(
                    "{} poll([{{fd=4, events=POLLIN}}], 1, 60000 <unfinished ...>\n",
                    1000 + n % 4_000_000
                )
            }),
        ),
    ];
    if let Some(path) = std::env::var_os("SYSTALLY_BENCH_LOG") {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        shapes.push(("SYSTALLY_BENCH_LOG", Box::new(move |_| text.clone())));
    }
    shapes
}

fn user_cpu() -> f64 {
    let time = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().user_time();
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

fn main() {
    let megabytes: u64 = std::env::var("SYSTALLY_BENCH_MB")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200);
    let folder = tempfile::tempdir().unwrap();
    println!(
        "{:<32} {:>8} {:>12} {:>10}",
        "log", "MB", "MB/s of CPU", "peak MiB"
    );
    for (name, lines) in shapes() {
        let path = folder.path().join("trace.log");
        let mut out = BufWriter::new(std::fs::File::create(&path).unwrap());
        let (mut size, mut n) = (0u64, 0);
        while size < megabytes * 1_000_000 {
            let text = lines(n);
            size += text.len() as u64;
            out.write_all(text.as_bytes()).unwrap();
            n += 1;
        }
        out.flush().unwrap();
        let before = user_cpu();
        let mut child = Command::new(env!("CARGO_BIN_EXE_systally"))
            .args(["import", "--format", "json"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        // The peak is read when everything has been imported and the result begins to be printed.
        let mut result = child.stdout.take().unwrap();
        let mut first = [0];
        std::io::Read::read_exact(&mut result, &mut first).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        std::io::copy(&mut result, &mut std::io::sink()).unwrap();
        // 5: threads that never come back leave the log incomplete.
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 5)), "{name}");
        let seconds = user_cpu() - before;
        let peak = status.lines().find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        let peak = peak.map_or("?".to_owned(), |kib| format!("{:.1}", kib as f64 / 1024.0));
        println!(
            "{name:<32} {:>8} {:>12.0} {peak:>10}",
            size / 1_000_000,
            size as f64 / 1e6 / seconds
        );
    }
}
