//! What a paste has in front of every line, and HTML without lines of its own.
//!
//! Line numbers, the name of a container, a time stamp of a log collector or the name of a file (`grep -H`)
//! stand on every line, so they show in the first lines together, and are taken off before anything else
//! looks at the input. Works in bounded memory, whatever the length of a line.

use std::io::{self, Read};

use super::number;

/// Lines that are looked at.
const LINES: usize = 200;
/// Bytes at the beginning of a line among which its prefix is looked for.
const PREFIX: usize = 160;
/// The longest mark of HTML that is translated.
const MARK: usize = 8;

/// What an input is wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapping {
    /// Numbers that grow from line to line.
    Numbers,
    /// `client_1  | `
    Container,
    /// `2024-01-07T10:11:12.123456789Z `
    Stamp,
    /// `Jan  7 10:11:12 host prog[1]: `
    Syslog,
    /// `trace.log:12:`
    File,
    /// HTML, whose line breaks may be marks.
    Html,
}

const PREFIXES: [Wrapping; 4] = [
    Wrapping::Container,
    Wrapping::Stamp,
    Wrapping::Syslog,
    Wrapping::File,
];

/// What the beginning of an input is wrapped in, if in anything.
pub(super) fn of(head: &[u8]) -> Option<Wrapping> {
    let lines: Vec<&[u8]> = head
        .split(|b| *b == b'\n')
        .filter(|line| line.iter().any(|b| !b.is_ascii_whitespace()))
        .take(LINES)
        .collect();
    if is_html(head) {
        return Some(Wrapping::Html);
    }
    if numbered(&lines) {
        return Some(Wrapping::Numbers);
    }
    let first = lines.first()?;
    PREFIXES.into_iter().find(|kind| {
        let fits = |line: &&&[u8]| match kind {
            // One name on all lines.
            Wrapping::File => file(first).is_some_and(|name| line.starts_with(name)),
            _ => prefix(*kind, line) > 0,
        };
        lines.len() > 1 && lines.iter().filter(fits).count() == lines.len()
    })
}

/// HTML, by its beginning or by marks of a trace that are written in it.
fn is_html(head: &[u8]) -> bool {
    let start = head.trim_ascii_start();
    let tag = start.first() == Some(&b'<')
        && start
            .get(1)
            .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'!')
        && start.iter().take(200).any(|b| *b == b'>');
    let finder = |mark: &str| memchr::memmem::find(head, mark.as_bytes()).is_some();
    tag || finder("&lt;unfinished ...") || finder("&lt;... ")
}

/// The number at the beginning of a line, what ends it, and how long both are.
fn number_of(line: &[u8]) -> Option<(u64, u8, usize)> {
    let spaces = line.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let digits = line[spaces..].iter().take_while(|b| b.is_ascii_digit()).count();
    let value = number::uint(&line[spaces..spaces + digits]).filter(|_| digits > 0 && digits < 9)?;
    let mut end = spaces + digits;
    let gap = line[end..]
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t'))
        .count();
    match line.get(end + gap) {
        Some(mark @ (b':' | b'|')) => Some((value, *mark, end + gap + 1)),
        Some(mark @ (b'.' | b')')) if matches!(line.get(end + gap + 1), Some(b' ' | b'\t') | None) => {
            Some((value, *mark, end + gap + 1))
        }
        _ if gap > 0 => {
            end += 1;
            Some((value, b' ', end))
        }
        Some(_) => None,
        None => Some((value, b' ', end)),
    }
}

/// Whether every line begins with the number after that of the line before; those of `grep -n` only grow.
fn numbered(lines: &[&[u8]]) -> bool {
    // The last line may be cut in its number.
    let whole = lines.len().saturating_sub(1).max(lines.len().min(4));
    let Some(found) = lines[..whole]
        .iter()
        .map(|line| number_of(line))
        .collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    let Some((first, mark, _)) = found.first() else {
        return false;
    };
    let one_mark = found.iter().all(|(_, m, _)| m == mark);
    let next = found.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1);
    let grows = found.windows(2).all(|pair| pair[1].0 > pair[0].0);
    let bare = *mark == b' ' && *first != 1;
    let least = if bare { 8 } else { 4 };
    // strace sets the id of a process there in the same way, and short processes have one line each.
    let may_be_pids = bare && !lines.iter().any(|line| aligned(line));
    one_mark && found.len() >= least && !may_be_pids && (next || *mark == b':' && grows)
}

/// Whether the number at the beginning of a line stands as those of lines do and process ids do not: set to
/// the right, before a tab, or with a process id of its own behind it.
fn aligned(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = line[digits..].trim_ascii_start();
    let id = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let second = id > 0 && rest.get(id) == Some(&b' ') || rest.starts_with(b"[pid ");
    digits == 0 || line.get(digits) == Some(&b'\t') || second
}

/// Terminal colours at the beginning.
fn colours(line: &[u8]) -> usize {
    let mut at = 0;
    while line[at..].starts_with(b"\x1b[") {
        match line[at..].iter().skip(2).position(|b| b.is_ascii_alphabetic()) {
            Some(end) => at += end + 3,
            None => break,
        }
    }
    at
}

fn digits_and(line: &[u8], marks: &[u8]) -> usize {
    line.iter()
        .take_while(|b| b.is_ascii_digit() || marks.contains(b))
        .count()
}

/// `trace.log:`, what `grep -H` sets before a line.
fn file(line: &[u8]) -> Option<&[u8]> {
    let end = line
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || b"._/-".contains(b)))?;
    let name = line.get(..=end).filter(|_| line[end] == b':' && end <= 100)?;
    name.iter().any(u8::is_ascii_alphabetic).then_some(name)
}

/// How many bytes of a line are its prefix.
fn prefix(kind: Wrapping, line: &[u8]) -> usize {
    match kind {
        Wrapping::Numbers => number_of(line).map_or(0, |(_, _, length)| length),
        Wrapping::Container => container(line),
        Wrapping::Stamp => stamp(line),
        Wrapping::Syslog => syslog(line).unwrap_or(0),
        Wrapping::File => file(line).map_or(0, |name| {
            let rest = &line[name.len()..];
            let number = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            match rest.get(number) {
                Some(b':') if number > 0 => name.len() + number + 1,
                _ => name.len(),
            }
        }),
        Wrapping::Html => 0,
    }
}

fn container(line: &[u8]) -> usize {
    let start = colours(line);
    let name = line[start..]
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
        .count();
    let after = start + name;
    let gap = line[after..].iter().take_while(|b| **b == b' ').count();
    let letters = line[start..after].iter().any(u8::is_ascii_alphabetic);
    if !letters || gap == 0 || line.get(after + gap) != Some(&b'|') {
        return 0;
    }
    let mut at = after + gap + 1;
    at += usize::from(line.get(at) == Some(&b' '));
    at + colours(&line[at..])
}

/// A date and time as RFC 3339 has them, and what the logs of containers set behind.
fn stamp(line: &[u8]) -> usize {
    let date = digits_and(line, b"-");
    let time = digits_and(line.get(date + 1..).unwrap_or(&[]), b":.,+-");
    let mut at = date + 1 + time;
    at += usize::from(line.get(at) == Some(&b'Z'));
    let whole = date == 10 && matches!(line.get(10), Some(b'T' | b' ')) && time >= 8;
    if !whole || line.get(at) != Some(&b' ') {
        return 0;
    }
    at += 1;
    for stream in ["stdout F ", "stderr F ", "stdout P ", "stderr P "] {
        if line[at..].starts_with(stream.as_bytes()) {
            at += stream.len();
        }
    }
    at
}

fn syslog(line: &[u8]) -> Option<usize> {
    let month = line.get(..3)?;
    let clock = line.get(7..15)?;
    let fits = month[0].is_ascii_uppercase()
        && month[1..].iter().all(u8::is_ascii_lowercase)
        && clock[2] == b':'
        && clock[5] == b':'
        && line.get(15) == Some(&b' ');
    if !fits {
        return None;
    }
    let end = memchr::memmem::find(line.get(16..)?, b": ")?;
    // The host and the program.
    let words = line[16..16 + end].split(|b| *b == b' ').count();
    (words == 2).then_some(16 + end + 2)
}

/// An input with its wrapping taken off.
pub(super) struct Unwrapped<R> {
    inner: R,
    kind: Wrapping,
    /// The beginning of a line, or a mark, that is not whole yet.
    held: Vec<u8>,
    /// Whether a line break stands for a mark that was just translated.
    broke: bool,
    in_line: bool,
    ready: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<R: Read> Unwrapped<R> {
    /// Takes `kind` off what `inner` reads.
    pub(super) fn new(inner: R, kind: Wrapping) -> Unwrapped<R> {
        Unwrapped {
            inner,
            kind,
            held: Vec::new(),
            broke: false,
            in_line: false,
            ready: Vec::new(),
            at: 0,
            ended: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.kind == Wrapping::Html {
                self.html(*byte);
            } else {
                self.line(*byte);
            }
        }
    }

    fn line(&mut self, byte: u8) {
        if self.in_line {
            self.ready.push(byte);
            self.in_line = byte != b'\n';
            return;
        }
        self.held.push(byte);
        if byte == b'\n' || self.held.len() >= PREFIX {
            self.let_go();
            self.in_line = byte != b'\n';
        }
    }

    fn let_go(&mut self) {
        let whole = self.held.len() - self.held.iter().rev().take_while(|b| **b == b'\n').count();
        let length = prefix(self.kind, &self.held[..whole]);
        self.ready.extend_from_slice(&self.held[length..]);
        self.held.clear();
    }

    fn html(&mut self, byte: u8) {
        if self.held.is_empty() {
            match byte {
                b'<' | b'&' => self.held.push(byte),
                b'\n' if self.broke => self.broke = false,
                b'\r' if self.broke => {}
                _ => {
                    self.broke = false;
                    self.ready.push(byte);
                }
            }
            return;
        }
        self.held.push(byte);
        let ends = if self.held[0] == b'<' { b'>' } else { b';' };
        if byte == ends {
            match plain(&self.held) {
                Some(text) => {
                    self.broke = text == b"\n";
                    self.ready.extend_from_slice(text);
                }
                None => self.ready.extend_from_slice(&self.held),
            }
            self.held.clear();
        } else if self.held.len() > MARK || byte == b'\n' {
            self.ready.append(&mut self.held);
        }
    }
}

/// What a mark of HTML stands for; others stay as they are.
fn plain(mark: &[u8]) -> Option<&'static [u8]> {
    Some(match mark {
        b"<br>" | b"<br/>" | b"<br />" | b"<BR>" | b"</tr>" | b"</p>" | b"</div>" => b"\n",
        b"&lt;" => b"<",
        b"&gt;" => b">",
        b"&amp;" => b"&",
        b"&quot;" | b"&#34;" => b"\"",
        b"&#39;" | b"&apos;" => b"'",
        b"&nbsp;" | b"&#160;" => b" ",
        _ => return None,
    })
}

impl<R: Read> Read for Unwrapped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.ready.len() && !self.ended {
            self.ready.clear();
            self.at = 0;
            let mut chunk = [0; 16 << 10];
            let n = self.inner.read(&mut chunk)?;
            self.take(&chunk[..n]);
            if n == 0 {
                self.ended = true;
                if self.kind == Wrapping::Html {
                    self.ready.append(&mut self.held);
                } else {
                    self.let_go();
                }
            }
        }
        let n = buffer.len().min(self.ready.len() - self.at);
        buffer[..n].copy_from_slice(&self.ready[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(text: &str) -> String {
        let Some(kind) = of(text.as_bytes()) else {
            return text.to_owned();
        };
        let mut out = String::new();
        Unwrapped::new(text.as_bytes(), kind)
            .read_to_string(&mut out)
            .unwrap();
        out
    }

    #[test]
    fn what_stands_before_every_line_comes_off() {
        let plain = "read(3) = 1\nclose(3) = 0\nread(4) = 1\nclose(4) = 0\nexit_group(0) = ?\n";
        type Wrap = fn((usize, &str)) -> String;
        let wraps: [Wrap; 9] = [
            |(i, line)| format!("{:5}\t{line}\n", i + 1),
            |(i, line)| format!("{} {line}\n", i + 1),
            |(i, line)| format!("{}: {line}\n", 7 * i + 3),
            |(i, line)| format!("{:3} | {line}\n", i + 1),
            |(_, line)| format!("client_1  | {line}\n"),
            |(_, line)| format!("\u{1b}[36mclient-1  | \u{1b}[0m{line}\n"),
            |(i, line)| format!("2024-01-07T10:11:1{i}.123456789Z stdout F {line}\n"),
            |(_, line)| format!("Jan  7 10:11:12 host strace[12]: {line}\n"),
            |(i, line)| format!("a/trace.log:{}:{line}\n", 5 * i),
        ];
        for wrap in wraps {
            let text: String = plain.lines().enumerate().map(wrap).collect();
            let got: String = unwrapped(&text)
                .lines()
                .map(|line| format!("{}\n", line.trim_start()))
                .collect();
            assert_eq!(got, plain, "{text}");
        }
    }

    #[test]
    fn columns_of_traces_are_no_wrapping() {
        for text in [
            "100 read(3) = 1\n100 close(3) = 0\n101 read(3) = 1\n102 close(3) = 0\n103 x() = 1\n",
            "101 execve(a) = 0\n102 execve(b) = 0\n103 execve(c) = 0\n104 execve(d) = 0\n105 execve(e) = 0\n\
             106 execve(f) = 0\n107 execve(g) = 0\n108 execve(h) = 0\n109 execve(i) = 0\n",
            "1234: close(3)\t= 0\n1234: close(4)\t= 0\n1234: close(5)\t= 0\n1234: close(6)\t= 0\n",
            "10:11:12 read(3) = 1\n10:11:13 read(3) = 1\n10:11:14 read(3) = 1\n10:11:15 read(3) = 1\n",
            "     0.000000 read(3) = 1\n     1.000000 read(3) = 1\n     2.000000 read(3) = 1\n     3.000000 read(3) = 1\n",
            "| % time | calls | syscall |\n| 1 | 2 | read |\n",
            "[pid 7] read(3) = 1\n[pid 7] read(3) = 1\n",
            "CALL   COUNT\nread   3\n",
            "read(3, \"<br>\", 4) = 4\nwrite(1, \"<p>&quot;\", 4) = 4\n",
        ] {
            assert_eq!(of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn marks_become_lines() {
        assert_eq!(
            unwrapped("<p>a &lt;0.1&gt;<br />b<br>\nc</p>"),
            "<p>a <0.1>\nb\nc\n"
        );
        assert_eq!(
            unwrapped("<pre>x &unknown; <b>y</pre>"),
            "<pre>x &unknown; <b>y</pre>"
        );
        let long = format!("<pre>{}\n", "<".repeat(100_000));
        assert_eq!(unwrapped(&long), long);
    }
}
