//! How fast a log of strace is imported, and in how much memory: `cargo bench --bench import`.
//!
//! Each shape is written to a temporary file until it has `SYSTALLY_BENCH_MB` megabytes (200 unless set),
//! imported once by a process of its own, and reported in megabytes per second of that process's user CPU
//! time, with its peak memory, as the kernel tells both when it has ended. Other work on the machine changes
//! that time only as far as it takes the caches.
//!
//! `SYSTALLY_BENCH_LOG=FILE` repeats a log of your own as one more shape.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::io::{BufWriter, Write};
use std::path::Path;
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
    let line = |name, line: &'static str| -> Shape { (name, Box::new(move |_| line.to_owned())) };
    shapes.extend([
        line("very short lines", "close(3) = 0\ngetpid() = 7\n"),
        line(
            "strace -y",
            "openat(AT_FDCWD</srv/www>, \"/etc/hosts\", O_RDONLY|O_CLOEXEC) = 5</etc/hosts>\n\
             read(5</etc/hosts>, \"127.0.0.1 localhost\\n\", 4096) = 20\nclose(5</etc/hosts>) = 0\n",
        ),
        line(
            "strace -yy",
            "7 sendto(4<TCP:[127.0.0.1:40000->127.0.0.1:6379]>, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, 0, NULL, 0) = 14\n\
             7 recvfrom(4<TCP:[127.0.0.1:40000->127.0.0.1:6379]>, \"+PONG\\r\\n\", 8192, 0, NULL, NULL) = 7\n",
        ),
        line(
            "strace -k",
            "read(3, \"x\", 1) = 1\n > /usr/lib/x86_64-linux-gnu/libc.so.6(__read+0x13) [0x10e1b2]\n \
             > /usr/bin/php8.2(main+0x11a) [0x2e1b2]\n",
        ),
        line(
            "strace -r",
            "     0.000021 read(3, \"+OK\\r\\n\", 8192) = 5\n     0.000011 write(3, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14) = 14\n",
        ),
        line("a log in a web page", "<p>read(3, &quot;x&quot;, 1) = 1</p>\n"),
        (
            "strace -ttt -T",
            Box::new(|n| {
                let at = format!("{}.{:06}", 1_700_000_000 + n / 1_000_000, n % 1_000_000);
                format!(
                    "{at} epoll_wait(5, [{{events=EPOLLIN, data={{u32=9, u64=9}}}}], 128, -1) = 1 <0.000022>\n\
                     {at} read(9, \"+OK\\r\\n\", 8192) = 5 <0.000003>\n"
                )
            }),
        ),
        (
            "100,000 threads",
            Box::new(move |n| {
                let (a, b) = (1000 + n * 7919 % 100_000, 1000 + (n + 1) * 7919 % 100_000);
                format!(
                    "{a} {at} futex(0x7f12ab340000, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>\n\
                     {b} {at} <... futex resumed>) = 0\n",
                    at = stamp(n)
                )
            }),
        ),
        (
            "strace -x",
            Box::new(|_| format!("7 sendto(4, \"{}\", 110, 0, NULL, 0) = 110 <0.000011>\n", "\\x2a\\x31\\x0d".repeat(36))),
        ),
        (
            "strace -s 4096",
            Box::new(|_| {
                format!("7 recvfrom(4, \"$4000\\r\\n{}\\r\\n\", 8192, 0, NULL, NULL) = 4009\n", "v".repeat(4000))
            }),
        ),
    ]);
    if let Some(path) = std::env::var_os("SYSTALLY_BENCH_LOG") {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        shapes.push(("SYSTALLY_BENCH_LOG", Box::new(move |_| text.clone())));
    }
    shapes
}

/// Names the file for [`import_one`]; what the kernel tells of children is of all of them together, so each import
/// has a parent of its own.
const ONE: &str = "SYSTALLY_BENCH_ONE";

/// Imports one file and prints user CPU time in seconds and peak memory in KiB.
fn import_one(path: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["import", "--format", "json"])
        .arg(path)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    // 5: threads that never come back leave the log incomplete.
    assert!(matches!(status.code(), Some(0 | 5)), "{status}");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let time = usage.user_time();
    let seconds = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    println!("{seconds} {}", usage.max_rss());
}

fn main() {
    if let Some(path) = std::env::var_os(ONE) {
        import_one(Path::new(&path));
        return;
    }
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
        let measured = Command::new(std::env::current_exe().unwrap())
            .env(ONE, &path)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let measured = String::from_utf8(measured.stdout).unwrap();
        let (seconds, kib) = measured.trim().split_once(' ').expect(name);
        let (seconds, kib): (f64, f64) = (seconds.parse().unwrap(), kib.parse().unwrap());
        println!(
            "{name:<32} {:>8} {:>12.0} {:>10.1}",
            size / 1_000_000,
            size as f64 / 1e6 / seconds,
            kib / 1024.0
        );
    }
}
