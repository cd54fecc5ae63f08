//! The number of operations, taken from what a counted program prints.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;

use regex::bytes::Regex;

use crate::units::{Ops, escape};

/// The longest line of a program's output that is searched.
const LONGEST_LINE: u64 = 1 << 20;

/// What the program's output says of its operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Their number.
    Ops(Ops),
    /// Something that is no number of operations, escaped.
    Unusable(String),
    /// No line matched, or no number was in the match.
    Nothing,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::Ops(ops) => write!(f, "found {ops}"),
            Found::Unusable(text) => write!(f, "found '{text}', which is no number of operations"),
            Found::Nothing => f.write_str("found no number in the program's output"),
        }
    }
}

/// Copies the program's output as it comes, and returns what the expression finds last.
pub(super) fn copy_and_search(output: OwnedFd, search: &Regex) -> Found {
    let mut reader = BufReader::new(std::fs::File::from(output));
    let mut found = Found::Nothing;
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return found,
            Ok(_) => {}
        }
        let mut out = io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            // Nobody reads any more (`| head`). Closing our end lets the program's own next write say so.
            return found;
        }
        match ops_in(&line, search) {
            Found::Nothing => {}
            something => found = something,
        }
    }
}

/// The first group of the match, or the first digits in it. What a sign makes negative is no number of
/// operations.
fn ops_in(line: &[u8], search: &Regex) -> Found {
    let Some(captures) = search.captures(line) else {
        return Found::Nothing;
    };
    let Some(group) = captures.get(1).or_else(|| captures.get(0)) else {
        return Found::Nothing;
    };
    let Some(first) = group.as_bytes().iter().position(u8::is_ascii_digit) else {
        return Found::Nothing;
    };
    // The sign may stand before the group: `ops=(\d+)` finds the 5 of `ops=-5` with `ops=-?(\d+)`.
    let at = group.start() + first;
    let digits: Vec<u8> = line[at..group.end()]
        .iter()
        .copied()
        .take_while(|b| b.is_ascii_digit() || matches!(b, b',' | b'_'))
        .collect();
    let negative = at > 0
        && line[at - 1] == b'-'
        && (at < 2
            || line[at - 2].is_ascii_whitespace()
            || matches!(line[at - 2], b'=' | b':' | b'(' | b','));
    let text = String::from_utf8_lossy(&digits);
    let number = text
        .chars()
        .filter(char::is_ascii_digit)
        .collect::<String>()
        .parse::<u64>();
    match number {
        Ok(number) if number > 0 && !negative => Found::Ops(Ops(number)),
        Ok(_) | Err(_) => Found::Unusable(format!(
            "{}{}",
            if negative { "-" } else { "" },
            escape(&text, 40)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_the_first_group_or_the_first_number() {
        let find = |regex: &str, line: &str| ops_in(line.as_bytes(), &Regex::new(regex).expect("a regex"));
        let unusable = |text: &str| Found::Unusable(text.to_owned());
        assert_eq!(
            find(r"(\d+) requests completed", "  100000 requests completed in 1 s"),
            Found::Ops(Ops(100_000))
        );
        assert_eq!(find("ops.*", "ops: 1,234 in 5 s"), Found::Ops(Ops(1_234)));
        assert_eq!(find("done", "done"), Found::Nothing);
        assert_eq!(
            find(r"(\d+)", "99999999999999999999999"),
            unusable("99999999999999999999999")
        );
        assert_eq!(find(r"(\d+)", "0"), unusable("0"));
        assert_eq!(find(r"ops: (\S+)", "ops: -5"), unusable("-5"));
        assert_eq!(find(r"ops=-?(\d+)", "ops=-5"), unusable("-5"));
        // A dash that is no sign.
        assert_eq!(find(r"run-(\d+)", "run-7"), Found::Ops(Ops(7)));
    }
}
