//! The words around the tables: server, host and plan above; limits, findings and notes below.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::FILES_SHOWN_WHOLE;
use super::model::FoundText;
use super::shown;
use crate::explain::{Finding, Severity};
use crate::limits::{self, Unit};
use crate::record::label::{difference, label};
use crate::record::{Host, Kind, LimitReading, Record, ServerOrigin, Status, StrategyResult, Verdict};
use crate::units::{Bytes, Grouped, Measured};

/// What was measured, where and how: the server first, then the machine, then the plan with its long flag
/// names. A line each, without a newline.
pub fn header(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(server) = &record.server {
        let origin = match server.origin {
            ServerOrigin::External => "not started by systally; others may use it too",
            ServerOrigin::Private => "started for this run alone",
            ServerOrigin::BuiltIn => "systally's built-in responder: it serves the run, it is not Redis",
        };
        let mut line = format!("server: {} {} ({origin})", server.kind, server.version);
        if !server.addresses.is_empty() {
            line.push_str(" at ");
            line.push_str(&server.addresses.join(", "));
        }
        lines.push(shown(&line));
    }
    lines.push(shown(&format!(
        "host: {}; systally {}",
        host(&record.host),
        record.tool_version
    )));
    if !record.plan.settings.is_empty() {
        let settings = record.plan.settings.iter();
        let plan: String = match record.kind {
            Kind::Bench | Kind::Count | Kind::Preflight => settings
                .map(|(name, value)| format!(" --{name} {value}").trim_end().to_owned())
                .collect(),
            Kind::Import => {
                let facts: Vec<String> = settings
                    .map(|(name, value)| format!(" {name}: {value}"))
                    .collect();
                facts.join(";")
            }
        };
        lines.push(shown(&format!("plan:{plan}")));
    }
    lines
}

fn host(host: &Host) -> String {
    let known: Vec<String> = [
        host.kernel.known().map(|kernel| format!("kernel {kernel}")),
        host.cpu.known().cloned(),
        host.cores.known().map(|cores| match cores {
            1 => "1 CPU".to_owned(),
            cores => format!("{cores} CPUs"),
        }),
        host.memory_bytes
            .known()
            .map(|bytes| format!("{:.1} GiB of memory", *bytes as f64 / f64::from(1_u32 << 30))),
        host.clocksource.known().map(|name| format!("clocksource {name}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if known.is_empty() {
        let reason = host.kernel.reason().unwrap_or("no reason given");
        return format!("not known ({reason})");
    }
    known.join(", ")
}

/// The line that a run which is not complete begins and ends with.
pub(super) fn banner(record: &Record) -> Option<String> {
    let rows = match record.strategies.len() {
        1 => "1 row was".to_owned(),
        n => format!("{n} rows were"),
    };
    if record.kind == Kind::Import {
        return (!record.complete).then(|| {
            "INCOMPLETE: parts of the traced run are not in the file; what is missing is not zero".to_owned()
        });
    }
    (!record.complete).then(|| {
        format!(
            "INCOMPLETE: the run ended before its plan did; {rows} begun, and what is missing is not zero"
        )
    })
}

/// All limits in one line, then a line for each that does not fit or could not be read.
pub(super) fn limits(record: &Record) -> Vec<String> {
    let bearing: Vec<&LimitReading> = record
        .limits
        .iter()
        .filter(|limit| limit.verdict != Verdict::NotApplicable)
        .collect();
    if bearing.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    // The table of a preflight says this already.
    if record.kind != Kind::Preflight {
        let all: Vec<String> = bearing.iter().map(|limit| in_short(limit)).collect();
        lines.push(shown(&format!("limits: {}", all.join(" · "))));
    }
    for limit in bearing {
        match limit.verdict {
            Verdict::Ok | Verdict::NotApplicable => {}
            Verdict::Warn | Verdict::Fail | Verdict::Unknown => lines.push(shown(&at_length(limit))),
        }
    }
    lines
}

/// What a limit is called.
pub(super) fn title(limit: &LimitReading) -> String {
    shown(limits::limit(&limit.id).map_or(limit.id.as_str(), |known| known.title()))
}

fn in_short(limit: &LimitReading) -> String {
    let title = title(limit);
    let numbers = match (limit.demand.known(), limit.capacity.known()) {
        (Some(_), Some(_)) => format!(" (needs {})", needs_of(limit)),
        (None, Some(capacity)) => format!(" ({})", with_unit(limit, *capacity)),
        (Some(demand), None) => format!(" (needs {})", with_unit(limit, *demand)),
        (None, None) => String::new(),
    };
    format!("{title} {}{numbers}", limit.verdict.name().replace('_', " "))
}

/// What demand and capacity of a limit count; `None` for a limit of another version of systally.
pub(super) fn unit_of(limit: &LimitReading) -> Option<Unit> {
    limits::limit(&limit.id).map(|known| known.unit())
}

/// An amount of a limit, without the name of what it counts.
fn counted(unit: Option<Unit>, value: u64) -> String {
    match unit {
        _ if value >= AS_GOOD_AS_NONE => amount(value),
        Some(Unit::Bytes) => Bytes(value).to_string(),
        Some(Unit::Of(_) | Unit::Pages | Unit::CpuMicros) | None => Grouped(value).to_string(),
    }
}

/// The word that follows an amount of a limit; memory has its own.
fn word(unit: Option<Unit>) -> String {
    match unit {
        Some(Unit::Bytes) | None => String::new(),
        Some(unit @ (Unit::Of(_) | Unit::Pages | Unit::CpuMicros)) => format!(" {unit}"),
    }
}

/// An amount of a limit and what it counts.
pub(super) fn with_unit(limit: &LimitReading, value: u64) -> String {
    let unit = unit_of(limit);
    let word = if value >= AS_GOOD_AS_NONE {
        String::new()
    } else {
        word(unit)
    };
    format!("{}{word}", counted(unit, value))
}

/// Demand and capacity, as far as they are known: `2 000 of 10 000 clients`.
pub(super) fn needs_of(limit: &LimitReading) -> String {
    match (limit.demand.known(), limit.capacity.known()) {
        (Some(demand), Some(capacity)) if *capacity < AS_GOOD_AS_NONE => format!(
            "{} of {}",
            counted(unit_of(limit), *demand),
            with_unit(limit, *capacity)
        ),
        (Some(demand), Some(capacity)) => {
            format!("{}, {}", with_unit(limit, *demand), amount(*capacity))
        }
        (Some(demand), None) => with_unit(limit, *demand),
        (None, _) => String::new(),
    }
}

fn at_length(limit: &LimitReading) -> String {
    let unread = [&limit.capacity, &limit.demand]
        .into_iter()
        .find_map(Measured::reason);
    let mut details: Vec<String> = Vec::new();
    // Of a limit that could not be decided the reason is the effect as well.
    details.extend(unread.filter(|reason| *reason != limit.effect).map(str::to_owned));
    details.extend((!limit.effect.is_empty()).then(|| limit.effect.clone()));
    details.extend((!limit.fix.now.is_empty()).then(|| format!("raise it: {}", limit.fix.now)));
    format!("{} {}: {}", limit.verdict.name(), limit.id, details.join("; "))
}

/// Capacities from here on are no limits.
pub(super) const AS_GOOD_AS_NONE: u64 = 1 << 60;

/// A capacity; what is as good as none is called that.
pub(super) fn amount(value: u64) -> String {
    if value >= AS_GOOD_AS_NONE {
        "no limit".to_owned()
    } else {
        Grouped(value).to_string()
    }
}

/// Findings in words, equal ones about several rows as one, the gravest first.
pub(super) fn findings(record: &Record) -> Vec<FoundText> {
    let files = record.imports.len() > FILES_SHOWN_WHOLE;
    let mut texts: Vec<(FoundText, Vec<&Finding>)> = Vec::new();
    for finding in &record.findings {
        let text = FoundText {
            severity: finding.severity,
            code: shown(&finding.code),
            strategies: Vec::new(),
            says: shown(&finding.says),
            try_next: shown(&finding.try_next),
            not_the_cause: finding.not_the_cause.iter().map(|one| shown(one)).collect(),
        };
        // Only rows join rows: something said of the whole run stays by itself.
        let same = texts.iter_mut().find(|(known, about)| {
            finding.strategy.is_some() && about.iter().all(|one| one.strategy.is_some()) && *known == text
        });
        match same {
            Some((_, about)) => about.push(finding),
            None => texts.push((text, vec![finding])),
        }
    }
    let texts = match record.kind {
        Kind::Bench => examples_of_info(texts, &record.strategies),
        Kind::Count | Kind::Import | Kind::Preflight => texts,
    };
    let mut texts: Vec<FoundText> = in_short_where_many(texts, files)
        .into_iter()
        .map(|(text, about)| FoundText {
            strategies: match names(record, &about) {
                names if files && names.len() > 1 => {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    vec![several_files(&names)]
                }
                names => names,
            },
            ..text
        })
        .collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.severity));
    texts
}

/// Of a code that is only good to know and was found in several rows with other numbers, one text with the first row
/// as an example: the numbers of the others are in the notes and in the record.
fn examples_of_info<'a>(
    texts: Vec<(FoundText, Vec<&'a Finding>)>,
    rows: &[StrategyResult],
) -> Vec<(FoundText, Vec<&'a Finding>)> {
    let mut kept: Vec<(FoundText, Vec<&Finding>)> = Vec::new();
    let mut differ: BTreeSet<String> = BTreeSet::new();
    for (text, about) in texts {
        let of_rows = |about: &[&Finding]| about.iter().all(|one| one.strategy.is_some());
        let same = kept.iter_mut().find(|(known, those)| {
            text.severity == Severity::Info
                && known.severity == Severity::Info
                && known.code == text.code
                && of_rows(&about)
                && of_rows(those)
        });
        match same {
            Some((known, those)) => {
                differ.insert(known.code.clone());
                those.extend(about);
            }
            None => kept.push((text, about)),
        }
    }
    for (text, about) in &mut kept {
        if text.severity != Severity::Info || !differ.contains(&text.code) {
            continue;
        }
        let Some(first) = about.first() else { continue };
        let row = first.row.and_then(|place| rows.get(place));
        let name = match row {
            Some(row) => label(row, rows),
            None => first.strategy.clone().unwrap_or_default(),
        };
        text.says = format!(
            "in {}: {}; the other rows have numbers of their own: see the notes, or the record (-o FILE)",
            shown(&name),
            text.says
        );
        text.not_the_cause.clear();
    }
    kept
}

/// The names of files: all of them where they are few, else the first, the last and how many.
pub fn several_files(names: &[&str]) -> String {
    match names {
        [first, .., last] if names.len() > 3 => {
            format!("{first} … {last} ({} files)", Grouped(names.len() as u64))
        }
        few => few.join(", "),
    }
}

/// Texts of one code that differ in numbers alone, shown whole; the rest is told in one more.
const SHOWN_WHOLE: usize = 3;

/// Of a code that was found with other numbers in row after row, or in many files, the first texts and one for all
/// others: their numbers are in the table and in the record.
fn in_short_where_many(
    texts: Vec<(FoundText, Vec<&Finding>)>,
    files: bool,
) -> Vec<(FoundText, Vec<&Finding>)> {
    let mut kept: Vec<(FoundText, Vec<&Finding>)> = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut more: Vec<(FoundText, Vec<&Finding>)> = Vec::new();
    for (text, about) in texts {
        let of_rows = about.iter().all(|one| one.strategy.is_some());
        let so_far = seen.entry(text.code.clone()).or_default();
        *so_far += 1;
        if !of_rows || *so_far <= SHOWN_WHOLE {
            kept.push((text, about));
            continue;
        }
        match more.iter_mut().find(|(known, _)| known.code == text.code) {
            Some((_, all)) => all.extend(about),
            None => more.push((text, about)),
        }
    }
    for (text, about) in more {
        let text = match about.len() {
            1 => text,
            n => FoundText {
                says: if files {
                    format!(
                        "the same in {n} more places, each with numbers of its own: see the record (-o FILE)"
                    )
                } else {
                    format!(
                        "the same in {n} more rows, each with numbers of its own: see the notes, or the record (-o FILE)"
                    )
                },
                not_the_cause: Vec::new(),
                ..text
            },
        };
        let last = kept.iter().rposition(|(known, _)| known.code == text.code);
        kept.insert(last.map_or(kept.len(), |at| at + 1), (text, about));
    }
    kept
}

/// Rows that one list names; what is beyond is only counted, for a list of a hundred says less than its length.
const MOST_NAMES: usize = 8;

/// The rows that findings are about, by name. Where they are some of several rows of one name, what tells
/// those apart stands behind it.
fn names(record: &Record, about: &[&Finding]) -> Vec<String> {
    let rows = &record.strategies;
    let mut by_name: Vec<(&str, Vec<&StrategyResult>)> = Vec::new();
    for finding in about {
        let Some(name) = finding.strategy.as_deref() else {
            continue;
        };
        let at = match by_name.iter().position(|(known, _)| *known == name) {
            Some(at) => at,
            None => {
                by_name.push((name, Vec::new()));
                by_name.len() - 1
            }
        };
        let row = finding.row.and_then(|place| rows.get(place));
        by_name[at].1.extend(row.filter(|row| row.name == name));
    }
    let ran = |name: &str| {
        let of_name = rows.iter().filter(|row| row.name == name);
        of_name.filter(|row| row.status != Status::Skipped).count()
    };
    // A name as it is, or with what tells the rows apart, each of which is one more to read.
    let entries: Vec<(String, Vec<String>)> = by_name
        .into_iter()
        .map(|(name, those)| {
            let ran = ran(name);
            if those.is_empty() || ran < 2 {
                return (shown(name), Vec::new());
            }
            if those.len() == ran && ran > 2 {
                return (format!("{} ({ran} rows, all)", shown(name)), Vec::new());
            }
            let each = those.into_iter();
            let each = each.map(|row| shown(difference(row, rows).trim_start()));
            (shown(name), each.collect())
        })
        .collect();
    let all: usize = entries.iter().map(|(_, each)| each.len().max(1)).sum();
    // One more is named as quickly as it is counted.
    let mut room = if all <= MOST_NAMES + 1 { all } else { MOST_NAMES };
    let more = all - room;
    let mut names = Vec::new();
    for (name, mut each) in entries {
        if room == 0 {
            break;
        }
        if each.is_empty() {
            room -= 1;
            names.push(name);
            continue;
        }
        each.truncate(room);
        room -= each.len();
        names.push(format!("{name} ({})", each.join("; ")));
    }
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names
}

/// What engines said of their counts, equal sentences of several rows as one.
pub(super) fn counted_notes(record: &Record) -> Vec<String> {
    let mut notes: Vec<(&str, Vec<&StrategyResult>)> = Vec::new();
    for row in &record.strategies {
        let Some(counted) = row.counted.known() else {
            continue;
        };
        for note in &counted.notes {
            match notes.iter_mut().find(|(known, _)| known == note) {
                Some((_, rows)) => rows.push(row),
                None => notes.push((note, vec![row])),
            }
        }
    }
    notes
        .into_iter()
        .map(|(note, rows)| {
            if rows.len() == record.strategies.len() {
                return shown(note);
            }
            let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            let mut seen = BTreeSet::new();
            names.retain(|name| seen.insert(*name));
            shown(&format!("{}: {note}", names.join(", ")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{empty, row};

    fn found(code: &'static str, severity: Severity, place: usize, says: &str) -> Finding {
        Finding {
            code: code.into(),
            severity,
            strategy: Some(format!("client{place}/persistent/tcp")),
            row: Some(place),
            evidence: BTreeMap::new(),
            says: says.to_owned(),
            try_next: "look".to_owned(),
            not_the_cause: Vec::new(),
        }
    }

    fn of(findings: Vec<Finding>, rows: usize) -> Record {
        let mut record = empty();
        record.strategies = (0..rows)
            .map(|n| row(&format!("client{n}/persistent/tcp")))
            .collect();
        record.findings = findings;
        record
    }

    #[test]
    fn findings_of_one_code_that_are_good_to_know_are_one_with_its_rows() {
        let mut all: Vec<Finding> = (0..20)
            .map(|n| found("TRACER_CHANGED", Severity::Info, n, &format!("poll {n}\u{1b}[1m")))
            .collect();
        all.push(found("LOST", Severity::Error, 3, "it was lost"));
        let texts = findings(&of(all, 20));
        let codes: Vec<&str> = texts.iter().map(|text| text.code.as_str()).collect();
        assert_eq!(codes, ["LOST", "TRACER_CHANGED"]);
        let changed = &texts[1];
        assert_eq!(changed.strategies.len(), MOST_NAMES + 1);
        assert_eq!(changed.strategies[MOST_NAMES], "and 12 more");
        assert!(
            changed
                .says
                .starts_with("in client0/persistent/tcp: poll 0\\u{1b}[1m; the other rows have numbers"),
            "{}",
            changed.says
        );
        // One alone is told as it is.
        let one = findings(&of(vec![found("TRACER_CHANGED", Severity::Info, 0, "poll 0")], 1));
        assert_eq!(one[0].says, "poll 0");
    }

    #[test]
    fn errors_are_told_whole_before_they_are_only_counted() {
        let all = (0..20)
            .map(|n| found("LOST", Severity::Error, n, &format!("{n} were lost")))
            .collect();
        let texts = findings(&of(all, 20));
        assert_eq!(texts.len(), SHOWN_WHOLE + 1);
        assert!(
            texts[3].says.starts_with("the same in 17 more rows"),
            "{}",
            texts[3].says
        );
        assert_eq!(texts[3].strategies.len(), MOST_NAMES + 1);
    }
}
