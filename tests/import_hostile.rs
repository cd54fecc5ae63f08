//! Bad input: empty, binary, endless, mixed, cut, overflowing. No panic, no wrong silence, no quadratic time.

#![allow(clippy::unwrap_used)] // A test that cannot read its own files has failed.

use std::fs;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use proptest::prelude::*;
use systally::explain::explain;
use systally::import::{IMPORTERS, ImportError, ImportFormat, Imported, import, into_record};

fn read(bytes: impl Into<Vec<u8>>) -> Result<Imported, ImportError> {
    import(Box::new(Cursor::new(bytes.into())), None)
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/imports");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    files.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Everything that a user's file goes through, whatever it holds.
fn whole_way(bytes: Vec<u8>) {
    for from in std::iter::once(None).chain(IMPORTERS.iter().map(|i| Some(i.format()))) {
        if let Ok(imported) = import(Box::new(Cursor::new(bytes.clone())), from) {
            let mut record = into_record(vec![("hostile".to_owned(), imported)], None);
            record.findings = explain(&record);
            let json = systally::record::wire::to_json(&record).unwrap();
            assert!(systally::record::wire::from_json(&json).is_ok(), "{json}");
            assert!(!json.contains('\u{1b}'));
        }
    }
}

#[test]
fn empty_and_blank_inputs_say_so() {
    for text in ["", "\n", "  \n\t\n"] {
        assert!(matches!(read(text), Err(ImportError::Empty)), "{text:?}");
    }
}

#[test]
fn what_is_not_text_is_named() {
    assert!(matches!(
        read(&b"PERFILE2\0\0\0"[..]),
        Err(ImportError::Binary { offset: 8 })
    ));
    let utf16: Vec<u8> = "\u{feff}% time seconds\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(matches!(read(utf16), Err(ImportError::Utf16)));
    let bare: Vec<u8> = "% time     seconds  usecs/call"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    assert!(matches!(read(bare), Err(ImportError::Utf16)));
}

#[test]
fn an_unknown_text_is_an_error_with_its_first_line() {
    match read("\n\nDear diary,\ntoday I traced a client.\n") {
        Err(ImportError::Unrecognised { line: 3, text }) => assert_eq!(text, "Dear diary,"),
        other => panic!("{other:?}"),
    }
    let forced = import(Box::new(Cursor::new("Dear diary,\n")), Some(ImportFormat::Kdump));
    assert!(matches!(forced, Err(ImportError::NotThisFormat { line: 1, .. })));
}

#[test]
fn latin_1_and_control_characters_are_escaped() {
    let table = b"% time     seconds  usecs/call     calls    errors syscall\n 99.00    0.000012           4         3           re\xe9d\n  1.00    0.000001           1         1           \x07bell\n";
    let imported = read(&table[..]).unwrap();
    let names: Vec<&str> = imported.tables[0]
        .rows
        .iter()
        .map(|r| r.syscall.as_str())
        .collect();
    assert_eq!(names, ["re\\xe9d", "\\u{7}bell"]);
    let imported = read("close(3) = 0\nsay \u{1b}[2J\u{202e}hello\n").unwrap();
    let (line, text) = &imported.unknown_lines.first[0];
    assert_eq!(*line, 2);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
}

#[test]
fn two_formats_in_one_file_are_counted_apart() {
    let mixed = "close(3) = 0\n54928/0x1a2b:       310      12 read(0x5, \"x\", 0x1000)\t\t = -1 Err#35\nclose(4) = 0\n";
    let imported = read(mixed).unwrap();
    let taken: u64 = imported.tables.iter().map(|t| t.sum_calls()).sum();
    assert!(taken > 0);
    assert!(imported.unknown_lines.count > 0);
    assert_eq!(taken + imported.unknown_lines.count, 3);
}

#[test]
fn a_hundred_megabytes_in_one_line() {
    /// The same bytes for ever, up to a length.
    struct Endless {
        unit: &'static [u8],
        left: usize,
    }
    impl Read for Endless {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = out
                .len()
                .min(self.left)
                .min(8192 / self.unit.len() * self.unit.len());
            for (i, byte) in out[..n].iter_mut().enumerate() {
                *byte = self.unit[i % self.unit.len()];
            }
            self.left -= n;
            Ok(n)
        }
    }
    let begun = Instant::now();
    let inputs: [(&str, &'static [u8]); 5] = [
        ("", b"a"),
        ("write(1, \"", b"a\\\""),
        ("% time ", b"9 "),
        ("@[", b"@["),
        ("<", b"&lt"),
    ];
    for (head, unit) in inputs {
        for (from, megabytes) in [
            (None, 100),
            (Some(ImportFormat::StraceLog), 4),
            (Some(ImportFormat::StraceSummary), 4),
            (Some(ImportFormat::TrussLog), 4),
        ] {
            let endless = Endless {
                unit,
                left: megabytes << 20,
            };
            let _ = import(Box::new(Cursor::new(head.as_bytes()).chain(endless)), from);
        }
    }
    // Minutes would be quadratic; this is a matter of seconds even unoptimised.
    assert!(
        begun.elapsed() < Duration::from_secs(300),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_pipe_that_trickles() {
    /// One byte at a time.
    struct Trickle(Cursor<Vec<u8>>);
    impl Read for Trickle {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = out.len().min(1);
            self.0.read(&mut out[..n])
        }
    }
    for bytes in corpus() {
        let at_once = read(bytes.clone()).unwrap();
        let trickled = import(Box::new(Trickle(Cursor::new(bytes))), None).unwrap();
        assert_eq!(at_once, trickled);
    }
}

#[test]
fn packed_files_are_unpacked_and_damaged_ones_are_errors() {
    let plain = corpus().swap_remove(0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let want = read(plain).unwrap();
    assert_eq!(read(gzip.clone()).unwrap(), want);
    assert_eq!(read(zstd.clone()).unwrap(), want);
    // Two members behind each other, as `cat a.gz b.gz` makes them.
    assert!(read([gzip.clone(), gzip.clone()].concat()).is_ok());
    assert_eq!(
        read([zstd.clone(), zstd.clone()].concat()).unwrap().tables.len(),
        2
    );
    for packed in [gzip, zstd] {
        // What a cut file still holds counts, and is marked as a part.
        let half = packed[..packed.len() / 2].to_vec();
        match read(half) {
            Ok(part) => assert!(
                part.incomplete_because
                    .iter()
                    .any(|why| why.contains("compressed data ends in the middle")),
                "{:?}",
                part.incomplete_because
            ),
            Err(error) => assert!(
                matches!(error, ImportError::Io(_)) && error.to_string().contains("ends in the middle"),
                "{error}"
            ),
        }
        let mut bent = packed;
        let middle = bent.len() / 2;
        bent[middle] ^= 0xff;
        let _ = read(bent);
    }
}

#[test]
fn many_names_threads_and_descriptors_stay_bounded() {
    let mut text = String::new();
    for i in 0..20_000 {
        text.push_str(&format!(
            "[pid {i}] call_{i}(3) = 0\n[pid {i}] socket(AF_INET, SOCK_STREAM, 0) = {i}\n"
        ));
    }
    let imported = read(text).unwrap();
    assert!(imported.tables[0].rows.len() <= 4096);
    assert!(imported.unknown_lines.count > 15_000);
}

#[test]
fn the_command_exits_with_two_and_one_message() {
    let run = |args: &[&str], input: &[u8]| {
        Command::cargo_bin("systally")
            .unwrap()
            .args(args)
            .write_stdin(input.to_vec())
            .timeout(Duration::from_secs(60))
            .output()
            .unwrap()
    };
    for (args, input, words) in [
        (&["import", "-"][..], &b""[..], "the input is empty"),
        (&["import", "-"], b"hello\n", "line 1 is of no format"),
        (&["explain", "-"], b"hello\n", "line 1 is of no format"),
        (&["import", "/"], b"", "is a directory"),
        (&["import", "/nonexistent/trace"], b"", "/nonexistent/trace"),
        (
            &["import", "--from", "kdump", "-"],
            b"close(3) = 0\n",
            "nothing here is of the format kdump",
        ),
    ] {
        let output = run(args, input);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(words), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty());
    }
    let output = run(&["import", "-"], b"close(3) = 0\nhello\n");
    assert_eq!(output.status.code(), Some(0));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("1 line: line 2 \u{201c}hello\u{201d}"), "{shown}");
}

#[test]
fn a_fifo_and_split_logs() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("trace.fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::write(fifo, "close(3) = 0\n"))
    };
    let output = Command::cargo_bin("systally")
        .unwrap()
        .arg("import")
        .arg(&fifo)
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    writer.join().unwrap().unwrap();
    for (pid, text) in [
        (7, "clone(child_stack=NULL, flags=SIGCHLD) = 8\nclose(3) = 0\n"),
        (8, "close(3) = 0\nclose(4) = 0\n"),
    ] {
        fs::write(folder.path().join(format!("out.{pid}")), text).unwrap();
    }
    let output = Command::cargo_bin("systally")
        .unwrap()
        .args(["import", "--format", "json"])
        .arg(folder.path().join("out.7"))
        .arg(folder.path().join("out.8"))
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["imports"].as_array().unwrap().len(), 1);
    assert_eq!(record["imports"][0]["imported"]["processes"], 2);
    assert_eq!(
        record["strategies"][0]["counted"]["phases"]["loop"]["syscalls"]["close"]["calls"],
        3
    );
}

#[test]
fn published_tables_import_as_what_dtruss_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/imports/php-cache-clients-2018.json");
    let text = fs::read_to_string(path).unwrap();
    let imported = read(text.clone()).unwrap();
    assert_eq!(imported.format, ImportFormat::Published);
    let source: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tables = source["dtruss_counts"].as_object().unwrap();
    assert_eq!(imported.tables.len(), tables.len());
    for table in &imported.tables {
        // The same table as dtruss -c printed it.
        let mut printed = String::from("\nCALL                                        COUNT\n");
        for row in &table.rows {
            printed.push_str(&format!("{:<40} {:>8}\n", row.syscall, row.calls()));
        }
        let again = read(printed).unwrap();
        assert_eq!(again.format, ImportFormat::DtrussC);
        assert_eq!(again.tables[0].rows, table.rows, "{}", table.label);
        for (name, calls) in tables[&table.label].as_object().unwrap() {
            assert_eq!(table.row(name).map(|row| row.calls()), calls.as_u64(), "{name}");
        }
    }
}

/// A small change to one of the corpus' files.
#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize, u8),
    Insert(usize, &'static str),
    Truncate(usize),
    Splice(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || any::<prop::sample::Index>().prop_map(|i| i.index(1 << 16));
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(i, b)| Change::Set(i, b)),
        (at(), 0..200_usize).prop_map(|(i, n)| Change::Remove(i, n)),
        (at(), 1..100_usize, 1..5_u8).prop_map(|(i, n, k)| Change::Repeat(i, n, k)),
        (
            at(),
            prop::sample::select(vec![
                "99999999999999999999",
                "-",
                "\"",
                "\\",
                "(",
                ")",
                " = ",
                "<unfinished ...>",
                "<... x resumed>",
                "\n",
                "\r",
                "\t",
                "0x",
                "[pid 1] ",
                "\u{1b}[0m",
                "&lt;",
                "<br>",
                "> ",
                "% time seconds calls syscall\n",
                "@[",
                "]: ",
                "$1048576\\r\\n",
                "*9\\r\\n",
                "strace: Process 9 attached",
                "\u{fffd}",
                "é",
                "{fd=",
                "tv_sec=18446744073709551615",
                "CALL  COUNT\n",
            ])
        )
            .prop_map(|(i, s)| Change::Insert(i, s)),
        at().prop_map(Change::Truncate),
        (any::<prop::sample::Index>().prop_map(|i| i.index(64)), at())
            .prop_map(|(f, i)| Change::Splice(f, i)),
    ]
}

fn apply(mut bytes: Vec<u8>, changes: &[Change], corpus: &[Vec<u8>]) -> Vec<u8> {
    for change in changes {
        let place = |i: usize, len: usize| if len == 0 { 0 } else { i % len };
        let len = bytes.len();
        match change {
            Change::Set(i, byte) => {
                if let Some(slot) = bytes.get_mut(place(*i, len)) {
                    *slot = *byte;
                }
            }
            Change::Remove(i, n) => {
                let from = place(*i, len);
                bytes.drain(from..(from + n).min(len));
            }
            Change::Repeat(i, n, times) => {
                let from = place(*i, len);
                let part = bytes[from..(from + n).min(len)].to_vec();
                for _ in 0..*times {
                    bytes.splice(from..from, part.iter().copied());
                }
            }
            Change::Insert(i, text) => {
                let from = place(*i, len);
                bytes.splice(from..from, text.bytes());
            }
            Change::Truncate(i) => bytes.truncate(place(*i, len)),
            Change::Splice(file, i) => {
                let other = &corpus[file % corpus.len()];
                bytes.extend_from_slice(&other[place(*i, other.len())..]);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn changed_files_never_panic(file in any::<prop::sample::Index>(), changes in prop::collection::vec(change(), 1..12)) {
        let corpus = corpus();
        let bytes = corpus[file.index(corpus.len())].clone();
        whole_way(apply(bytes, &changes, &corpus));
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        whole_way(bytes);
    }

    #[test]
    fn any_printable_lines_never_panic(text in "([a-z_]{1,12}\\([ -~]{0,40}\\) = [-?0-9x]{1,4}[ -~]{0,20}\n|[ -~]{0,60}\n){0,12}") {
        whole_way(text.into_bytes());
    }
}

#[test]
fn values_that_no_run_can_have_are_counted_and_shown() {
    let log = "7 read(3, \"\", 1) = 0 <99999999999.9>\n\
               7 read(3, \"\", 1) = 0 <-1>\n\
               7 read(3, \"\", 1) = 0 <NaN>\n\
               7 read(3, \"\", 1) = 0 <1e400>\n\
               7 read(3, \"\", 1) = 99999999999999999999\n\
               7 read(3, \"\", 1 <unfinished ...>\n\
               7 <... read resumed>) = 0 <-0.5>\n\
               7 read(3, \"\", 1) = 0 <0.000001>\n\
               7 open(\"/a\", 0) = 3</a <b>>\n\
               7 exit_group(0) = ? <unavailable>\n\
               99999999999.9 read(3, \"\", 1) = 0\n\
               -1 read(3, \"\", 1) = 0\n\
               NaN read(3, \"\", 1) = 0\n";
    let imported = read(log).unwrap();
    // The calls themselves happened.
    assert_eq!(imported.tables[0].row("read").unwrap().calls(), 7);
    assert_eq!(imported.unusable_values.count, 6);
    assert_eq!(
        imported.unusable_values.first,
        [
            (1, "99999999999.9".to_owned()),
            (2, "-1".to_owned()),
            (3, "NaN".to_owned()),
            (4, "1e400".to_owned()),
            (5, "99999999999999999999".to_owned()),
        ]
    );
    // Where the clock itself is none, nothing tells what the line is.
    assert_eq!(imported.unknown_lines.count, 3);
    let kdump =
        " 1 a 99999999999999999999.5 CALL  close(4)\n 1 a 1440535961.5 RET   close 99999999999999999999\n";
    assert_eq!(read(kdump).unwrap().unusable_values.count, 2);
}

#[test]
fn numbers_that_no_table_can_have_are_not_dropped_silently() {
    // Every number of a table of each kind in turn, the share of the time left out: it is not used.
    let tables = [
        (
            ImportFormat::StraceSummary,
            "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- --------- ----------------\n 60.00    @           @         @         @ read\n 40.00    0.000001           1         1           write\n------ ----------- ----------- --------- --------- ----------------\n100.00    0.000001                     2           total\n",
        ),
        (
            ImportFormat::PerfTraceSummary,
            " php (1), 4 events, 90.0%\n\n   syscall            calls  errors  total       min       avg       max       stddev\n                                     (msec)    (msec)    (msec)    (msec)        (%)\n   --------------- --------  ------ -------- --------- --------- ---------     ------\n   read                   @      @     @     @     @     @      0.00%\n   write                  1      0     1.000     1.000     1.000     1.000      0.00%\n",
        ),
        (
            ImportFormat::DtrussC,
            "CALL                                        COUNT\nread                                            @\nwrite                                           3\n",
        ),
        (
            ImportFormat::Syscount,
            "Tracing syscalls, printing top 10... Ctrl+C to quit.\n[10:13:34]\nSYSCALL                   COUNT        TIME (us)\nread                          @            @\nwrite                         3            2.100\n",
        ),
        (
            ImportFormat::BpftraceMap,
            "@[tracepoint:syscalls:sys_enter_read]: @\n@[tracepoint:syscalls:sys_enter_write]: 3\n",
        ),
    ];
    for (format, table) in tables {
        let places = table.match_indices('@').map(|(at, _)| at).filter(|at| {
            // The mark of a map is not a place.
            !table[at + 1..].starts_with('[')
        });
        for place in places {
            for odd in ["99999999999999999999", "-1", "1e400", "nan", "-inf"] {
                let mut text = String::new();
                for (at, c) in table.char_indices() {
                    match c {
                        '@' if at == place => text.push_str(odd),
                        '@' if !table[at + 1..].starts_with('[') => text.push('1'),
                        c => text.push(c),
                    }
                }
                let imported = match import(Box::new(Cursor::new(text.clone())), Some(format)) {
                    Ok(imported) => imported,
                    Err(_) => continue,
                };
                assert!(
                    imported.unknown_lines.count + imported.unusable_values.count > 0 || imported.incomplete,
                    "{format}: {odd} in\n{text}"
                );
            }
        }
    }
}
