//! A bounded run of what `fuzz/` does for longer: every importer gets the seed corpus, changed at random with
//! a fixed seed, through the whole way of a user's file (`fuzz/fuzz_targets/whole_way.rs`).
//! `SYSTALLY_FUZZ_SECONDS` makes it longer, `SYSTALLY_FUZZ_SEED` another one.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../fuzz/fuzz_targets/whole_way.rs"]
mod whole_way;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use systally::import::IMPORTERS;

/// xorshift64*: the same inputs in the same order, every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            0
        } else {
            (self.next() % n as u64) as usize
        }
    }
}

/// CPU time of this thread so far: what else the machine does is not in it.
fn cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if !path.to_string_lossy().ends_with(".expected.json") {
            into.push(path);
        }
    }
}

/// The fixtures of imports, and what once made an importer fail.
fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    files(&root.join("fixtures/imports"), &mut paths);
    files(&root.join("fuzz/seeds"), &mut paths);
    paths.sort();
    assert!(paths.len() > 90, "{}", paths.len());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Bytes that formats give a meaning to.
const TOKENS: &[&str] = &[
    "\n",
    "\r\n",
    "\t",
    " ",
    "\"",
    "\\",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ",",
    ":",
    ";",
    "|",
    "=",
    " = ",
    "-1",
    "0x",
    "?",
    "...",
    "<unfinished ...>",
    "<... read resumed>",
    "resumed>",
    "+++ exited with 0 +++",
    "--- SIGINT {} ---",
    "[pid 1] ",
    "99999999999999999999",
    "18446744073709551615",
    "4294967296",
    "-9223372036854775808",
    "0.0000000001",
    "1e9",
    "1,5",
    "100.00",
    "% time seconds usecs/call calls errors syscall\n",
    "total",
    "CALL  COUNT\n",
    "@[",
    "]: ",
    "Err#35",
    "ERRNO",
    "tv_sec=18446744073709551615",
    "htons(",
    "inet_addr(\"",
    "sun_path=@\"",
    "*9999999\\r\\n",
    "$-1\\r\\n",
    "&lt;",
    "&#x1b;",
    "<pre>",
    "> ",
    "\u{1b}[31m",
    "\u{1b}]0;",
    "\u{202e}",
    "\u{feff}",
    "é",
    "\u{0}",
    "strace: ",
    "Process 9 attached",
    "{\"schema\":\"systally/1\"",
    "events",
    "msec",
    "syscalls:sys_enter_read",
];

fn change(random: &mut Random, seeds: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len() + 1);
    let span = |random: &mut Random, bytes: &[u8]| at..bytes.len().min(at + 1 + random.below(64));
    match random.below(8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            let range = span(random, bytes);
            bytes.drain(range);
        }
        2 => {
            let part = bytes[span(random, bytes)].to_vec();
            for _ in 0..=random.below(30) {
                bytes.splice(at..at, part.iter().copied());
            }
        }
        3 | 4 => {
            let token = TOKENS[random.below(TOKENS.len())];
            bytes.splice(at..at, token.bytes());
        }
        5 => bytes.truncate(at),
        6 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let to = other.len().min(from + 1 + random.below(400));
            bytes.splice(at..at, other[from..to].iter().copied());
        }
        _ => {
            // A number becomes another one.
            let digit = |b: &u8| b.is_ascii_digit();
            if let Some(begin) = bytes[at..].iter().position(digit).map(|i| at + i) {
                let length = bytes[begin..].iter().take_while(|b| digit(b)).count();
                let number = random.next().to_string();
                let keep = 1 + random.below(number.len());
                bytes.splice(begin..begin + length, number.bytes().take(keep));
            }
        }
    }
    bytes.truncate(16 << 10);
}

#[test]
fn every_seed_goes_through_every_importer() {
    for seed in seeds() {
        whole_way::run(None, &seed);
        for importer in IMPORTERS {
            whole_way::run(Some(importer.format()), &seed);
        }
    }
}

#[test]
fn changed_seeds_go_through_every_importer() {
    let seeds = seeds();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let mut random = Random(number("SYSTALLY_FUZZ_SEED").unwrap_or(0x5eed_0001).max(1));
    let end = Instant::now() + Duration::from_secs(number("SYSTALLY_FUZZ_SECONDS").unwrap_or(10));
    let mut runs = 0;
    while Instant::now() < end {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        bytes.truncate(16 << 10);
        for _ in 0..=random.below(6) {
            change(&mut random, &seeds, &mut bytes);
        }
        let from = IMPORTERS
            .get(random.below(IMPORTERS.len() + 4))
            .map(|importer| importer.format());
        let begun = cpu();
        whole_way::run(from, &bytes);
        let took = cpu() - begun;
        // 16 KiB: a second is a thousand times too long.
        assert!(
            took < Duration::from_secs(5),
            "{took:?}, {from:?}: {}",
            String::from_utf8_lossy(&bytes)
        );
        runs += 1;
    }
    println!("{runs} inputs");
    assert!(runs > 20);
}
