//! Packed files as they come: cut, damaged, with something behind their end, several behind one another.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Output};

const LOG: &str = "7 sendto(4, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, 0, NULL, 0) = 14\n";
const LINES: usize = 40_000;

/// Different lines, so that the packed data is of some length.
fn log() -> String {
    (0..LINES)
        .map(|n| LOG.replace('7', &(1 + n * n % 9_973).to_string()))
        .collect()
}

fn gzip(content: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(content.as_bytes()).unwrap();
    out.finish().unwrap()
}

fn zstd(content: &str) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
}

fn import(name: &str, content: &[u8]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["import", "--format", "json"])
        .arg(&path)
        .output()
        .unwrap()
}

fn calls(output: &Output) -> u64 {
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = &record["imports"][0]["imported"]["tables"][0];
    let rows = table["rows"].as_array().unwrap();
    rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum()
}

/// One line in plain English with the file and the place, and nothing that only a programmer reads.
fn is_refused(name: &str, content: &[u8], words: &[&str]) {
    let output = import(name, content);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{name}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words.iter().chain(&[name]) {
        assert!(said.contains(word), "{name} without “{word}”: {said}");
    }
    // The folder before it has any letters.
    let (_, after_name) = said.split_once(name).unwrap();
    for word in ["Error", "{", "}", "0x", "Some", "None", "::", "decod"] {
        assert!(!after_name.contains(word), "{name} with “{word}”: {said}");
    }
    assert!(output.stdout.is_empty(), "{name}");
}

/// The name of a packed file, what it is, and how it is made.
type Packing = (&'static str, &'static str, fn(&str) -> Vec<u8>);

/// The two ways to pack, with what the beginnings of their files are.
fn packings() -> [Packing; 2] {
    [("log.gz", "gzip", gzip), ("log.zst", "zstd", zstd)]
}

#[test]
fn members_and_frames_behind_one_another_are_one_file() {
    for (name, _, pack) in packings() {
        let log = log();
        let (first, second) = log.split_at(log.len() / 3);
        let three = [pack(first), pack(""), pack(second)].concat();
        let output = import(name, &three);
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert_eq!(calls(&output), LINES as u64, "{name}");
    }
    // A frame without data, as seekable files have, at the beginning and at the end.
    let nothing = [0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, b'a', b'b', b'c'];
    let output = import("seekable.zst", &[&nothing[..], &zstd(&log()), &nothing].concat());
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(calls(&output), LINES as u64);
    // Zeros up to the end of a block.
    let output = import("tape.gz", &[&gzip(&log())[..], &[0; 512]].concat());
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(calls(&output), LINES as u64);
}

#[test]
fn of_a_cut_file_counts_what_is_there() {
    for (name, _, pack) in packings() {
        let packed = pack(&log());
        let output = import(name, &packed[..packed.len() * 3 / 4]);
        assert_eq!(
            output.status.code(),
            Some(5),
            "{name} of {} bytes: {output:?}",
            packed.len()
        );
        let counted = calls(&output);
        assert!((1..LINES as u64).contains(&counted), "{name}: {counted}");
        // Also where only the beginning of one more member is there.
        let output = import(name, &[&packed[..], &packed[..3]].concat());
        assert_eq!(output.status.code(), Some(5), "{name}");
        assert_eq!(calls(&output), LINES as u64, "{name}");
        is_refused(name, &packed[..4], &["the compressed data ends in the middle"]);
    }
}

#[test]
fn damage_is_told_with_its_place() {
    for (name, packing, pack) in packings() {
        let packed = pack(&log());
        let length = packed.len();
        let place = format!("the {packing} data is damaged at byte ");
        // A heading that nobody writes.
        let mut bent = packed.clone();
        bent[if packing == "gzip" { 2 } else { 4 }] = 0xff;
        is_refused(name, &bent, &[&place]);
        // In the middle: what cannot be unpacked, or unpacks to something else.
        for at in [length / 3, length / 2] {
            let mut bent = packed.clone();
            bent[at..at + 16].fill(0xff);
            is_refused(name, &bent, &[&place, "copy or make the file again"]);
        }
        let mut bent = packed.clone();
        let checksum = if packing == "gzip" { length - 8 } else { length - 1 };
        bent[checksum] ^= 1;
        is_refused(name, &bent, &[&place, "checksum"]);
        // Behind the end.
        let more = [&packed[..], b"and so on\n"].concat();
        is_refused(name, &more, &[&format!("{place}{length}: "), "behind the end"]);
    }
}

#[test]
fn what_needs_too_much_memory_to_unpack_is_refused() {
    // A frame with a window of 2^30 bytes, which says nothing about its length.
    is_refused(
        "wide.zst",
        &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 1, 0, 0],
        &["more memory than systally takes", "zstd -dc --long=31"],
    );
}

#[test]
fn what_is_packed_twice_or_otherwise_is_told_with_what_unpacks_it() {
    let pack = |content: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut out, content).unwrap();
        out.finish().unwrap()
    };
    let log = log();
    is_refused(
        "a.gz.gz",
        &pack(&gzip(&log)),
        &["packed twice, gzip within gzip", "gzip -dc"],
    );
    is_refused("a.zst.gz", &pack(&zstd(&log)), &["zstd within gzip", "gzip -dc"]);
    is_refused(
        "a.xz.gz",
        &pack(b"\xfd7zXZ\0rest"),
        &["xz within gzip", "gzip -dc"],
    );
    is_refused("a.xz", b"\xfd7zXZ\0rest", &["packed with xz", "xz -dc"]);
    is_refused("a.bz2", b"BZh91AY&SY", &["packed with bzip2", "bzip2 -dc"]);
    is_refused("a.zip", b"PK\x03\x04\x14\0", &["packed with zip", "unzip -p"]);
}

/// Old Macs and some exports end lines so.
#[test]
fn lines_may_end_with_a_carriage_return_alone() {
    let log = log();
    let returns = log.replace('\n', "\r");
    let expected = calls(&import("a.log", log.as_bytes()));
    assert!(expected > 0);
    assert_eq!(calls(&import("a.log", returns.as_bytes())), expected);
    assert_eq!(calls(&import("a.log.gz", &gzip(&returns))), expected);
}
