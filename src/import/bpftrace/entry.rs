//! One line of what bpftrace prints: entries of maps, buckets of histograms, call stacks as keys.

use super::super::{number, text};

/// What stands behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// `count()`, `sum()`, or anything else that is one number.
    Plain(u64),
    /// `stats()`: how often, and the sum.
    Stats { count: u64, total: u64 },
    /// `hist()` or `lhist()`: the sum of the buckets.
    Buckets(u64),
}

impl Value {
    /// How often, where the value tells that.
    pub(super) fn count(self) -> u64 {
        match self {
            Value::Plain(n) | Value::Buckets(n) | Value::Stats { count: n, .. } => n,
        }
    }

    /// Both together; the kind of the first.
    pub(super) fn plus(self, other: Value) -> Value {
        match self {
            Value::Plain(n) => Value::Plain(n.saturating_add(other.count())),
            Value::Buckets(n) => Value::Buckets(n.saturating_add(other.count())),
            Value::Stats { count, total } => Value::Stats {
                count: count.saturating_add(other.count()),
                total: total.saturating_add(match other {
                    Value::Stats { total, .. } => total,
                    Value::Plain(_) | Value::Buckets(_) => 0,
                }),
            },
        }
    }
}

/// A line.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// `@[44]: 10`; without a key `@: 10`.
    Entry(&'a [u8], Option<&'a [u8]>, Value),
    /// `@us[44]: `, whose buckets follow.
    Histogram(&'a [u8], Option<&'a [u8]>),
    /// `[8, 16)   2 |@@@@   |`
    Bucket(&'a [u8], u64),
    /// `@[`, whose key is a call stack over the next lines.
    StackBegins,
    /// `]: 5`
    StackEnds,
    /// Anything else.
    Other,
}

/// Takes a line apart.
pub(super) fn line(line: &[u8]) -> Line<'_> {
    let line = text::trim(line);
    if let Some(rest) = line.strip_prefix(b"@") {
        return map(rest).unwrap_or(Line::Other);
    }
    if let Some((range, n)) = bucket(line) {
        return Line::Bucket(range, n);
    }
    if line.starts_with(b"]: ") || line.starts_with(b", ") && text::contains(line, "]: ") {
        return Line::StackEnds;
    }
    Line::Other
}

fn map(rest: &[u8]) -> Option<Line<'_>> {
    let end = rest
        .iter()
        .position(|b| !b.is_ascii_alphanumeric() && *b != b'_')?;
    let (name, rest) = rest.split_at(end);
    if rest == b"[" {
        return Some(Line::StackBegins);
    }
    if let Some(inner) = rest.strip_prefix(b"[") {
        if let Some(key) = inner.strip_suffix(b"]:") {
            return Some(Line::Histogram(name, Some(key)));
        }
        let close = memchr::memmem::rfind(inner, b"]: ")?;
        let value = value(&inner[close + 3..])?;
        return Some(Line::Entry(name, Some(&inner[..close]), value));
    }
    let rest = rest.strip_prefix(b":")?;
    if rest.is_empty() {
        return Some(Line::Histogram(name, None));
    }
    Some(Line::Entry(name, None, value(rest)?))
}

/// `10`, or `count 50, average 1, total 52`.
fn value(field: &[u8]) -> Option<Value> {
    let field = text::trim(field);
    if let Some(rest) = field.strip_prefix(b"count ") {
        let count = rest.split(|b| *b == b',').next()?;
        let total = memchr::memmem::find(rest, b"total ").map(|at| &rest[at + 6..])?;
        return Some(Value::Stats {
            count: number::uint(text::trim(count))?,
            // A sum of negative values is no time.
            total: number::uint(text::trim(total)).unwrap_or(0),
        });
    }
    Some(Value::Plain(number::uint(field)?))
}

/// The range and the count of a bucket.
fn bucket(line: &[u8]) -> Option<(&[u8], u64)> {
    if !matches!(line.first(), Some(b'[' | b'(')) || line.last() != Some(&b'|') {
        return None;
    }
    let close = line.iter().position(|b| matches!(b, b')' | b']'))?;
    let (range, rest) = line.split_at(close + 1);
    let rest = text::trim(rest);
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    text::trim(&rest[digits..])
        .starts_with(b"|")
        .then(|| Some((range, number::uint(&rest[..digits])?)))?
}

/// The maps in a line of `bpftrace -f json`: name, key and value of each entry.
pub(super) fn json(line: &[u8]) -> Option<Vec<(String, Option<String>, Value)>> {
    if !line.starts_with(b"{\"type\"") || line.len() > 1 << 20 {
        return None;
    }
    let object: serde_json::Value = serde_json::from_slice(line).ok()?;
    let kind = object.get("type")?.as_str()?;
    if !matches!(kind, "map" | "hist" | "stats") {
        return Some(Vec::new());
    }
    let plain = |value: &serde_json::Value| -> Option<Value> {
        match value {
            serde_json::Value::Array(buckets) => Some(Value::Buckets(
                buckets
                    .iter()
                    .filter_map(|b| b.get("count")?.as_u64())
                    .fold(0, u64::saturating_add),
            )),
            serde_json::Value::Object(stats) => Some(Value::Stats {
                count: stats.get("count")?.as_u64()?,
                total: stats
                    .get("total")
                    .and_then(serde_json::Value::as_u64)
                    .unwrap_or(0),
            }),
            other => other.as_u64().map(Value::Plain),
        }
    };
    let mut out = Vec::new();
    for (name, value) in object.get("data")?.as_object()? {
        let name = name.strip_prefix('@').unwrap_or(name);
        if let Some(value) = plain(value) {
            out.push((name.to_owned(), None, value));
            continue;
        }
        for (key, value) in value.as_object()? {
            if let Some(value) = plain(value) {
                out.push((name.to_owned(), Some(key.clone()), value));
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line() {
        assert_eq!(
            line(b"@[44]: 10"),
            Line::Entry(b"", Some(b"44"), Value::Plain(10))
        );
        assert_eq!(
            line(b"@us[55]: count 50, average 1, total 52"),
            Line::Entry(b"us", Some(b"55"), Value::Stats { count: 50, total: 52 })
        );
        assert_eq!(line(b"@calls: 7"), Line::Entry(b"calls", None, Value::Plain(7)));
        assert_eq!(line(b"@us[a, 218]: "), Line::Histogram(b"us", Some(b"a, 218")));
        assert_eq!(line(b"[8, 16)        2 |@@@@     |"), Line::Bucket(b"[8, 16)", 2));
        assert_eq!(
            line(b"(..., 0)     185 |@@@@@@@@@|"),
            Line::Bucket(b"(..., 0)", 185)
        );
        assert_eq!(line(b"[1]            1 |@|"), Line::Bucket(b"[1]", 1));
        assert_eq!(line(b"@["), Line::StackBegins);
        assert_eq!(line(b"]: 5"), Line::StackEnds);
        for other in [
            "@[a]: \"text\"",
            "@",
            "@[",
            "[10:11:12]",
            "user@host:~$",
            "@[x]: 1e9",
        ] {
            assert!(
                matches!(line(other.as_bytes()), Line::Other | Line::StackBegins),
                "{other}"
            );
        }
    }

    #[test]
    fn json_holds_the_same() {
        let text = br#"{"type": "map", "data": {"@": {"44": 1, "a,7": 2}}}"#;
        assert_eq!(json(text).unwrap().len(), 2);
        let text =
            br#"{"type": "hist", "data": {"@us": {"44": [{"min": 1, "max": 1, "count": 3}, {"min": 2, "count": 4}]}}}"#;
        assert_eq!(json(text).unwrap()[0].2, Value::Buckets(7));
        assert!(json(b"{\"type\": ").is_none());
    }
}
