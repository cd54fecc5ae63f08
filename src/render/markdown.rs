//! A report as GitHub Markdown: whole tables, findings and notes as lists.
//!
//! Every character that Markdown, HTML or GitHub's mathematics could read as markup is escaped, so that a
//! name from outside stays a name. Ordinary tables stay readable as text: an underscore within a word
//! (`epoll_wait`) is no markup and is left alone.

use super::model::{Align, Cell, Report, Table, mark};

pub(super) fn write(report: &Report) -> String {
    let mut out = String::new();
    let mut parts: Vec<String> = Vec::new();
    if let Some(banner) = &report.banner {
        parts.push(format!("**{}**", escaped(banner)));
    }
    if !report.header.is_empty() {
        parts.push(list(report.header.iter().map(|line| escaped(line))));
    }
    if !report.summary.is_empty() {
        parts.push(list(report.summary.iter().map(|line| escaped(line))));
    }
    for table in &report.tables {
        if !table.title.is_empty() {
            parts.push(format!("### {}", escaped(&table.title)));
        }
        parts.push(whole(table));
    }
    parts.extend(report.remarks.iter().map(|remark| escaped(remark)));
    if !report.limits.is_empty() {
        parts.push(list(report.limits.iter().map(|line| escaped(line))));
    }
    if !report.findings.is_empty() {
        parts.push("### Findings".to_owned());
        parts.push(list(report.findings.iter().map(|finding| {
            let mut text = format!("**{} {}**", finding.severity.name(), escaped(&finding.code));
            if !finding.strategies.is_empty() {
                text.push_str(&format!(" ({})", escaped(&finding.strategies.join(", "))));
            }
            text.push_str(&format!(": {}", escaped(&finding.says)));
            for (label, words) in [
                ("Try", finding.try_next.clone()),
                ("Not the cause", finding.not_the_cause.join("; ")),
            ] {
                if !words.is_empty() {
                    // Two blanks and a backslash-free break would be trimmed by editors; a nested list is not.
                    text.push_str(&format!("\n  - {label}: {}", escaped(&words)));
                }
            }
            text
        })));
    }
    if !report.proofs.is_empty() {
        parts.push("### Proofs".to_owned());
        parts.push(list(report.proofs.iter().map(|line| escaped(line.trim_start()))));
    }
    if !report.notes.is_empty() {
        parts.push("### Notes".to_owned());
        let notes = report.notes.iter().enumerate();
        parts.push(list(notes.map(|(i, note)| {
            format!("{} {}", escaped(&mark(Some(i + 1))), escaped(note))
        })));
    }
    out.push_str(&parts.join("\n\n"));
    out.push('\n');
    out
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| format!("- {item}")).collect();
    items.join("\n")
}

fn whole(table: &Table) -> String {
    let mut lines = Vec::new();
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    lines.push(line(
        table
            .columns
            .iter()
            .map(|column| escaped(&column.heading()))
            .collect(),
    ));
    let sides = table.columns.iter().map(|column| match column.align {
        Align::Left => ":--".to_owned(),
        Align::Right => "--:".to_owned(),
    });
    lines.push(line(sides.collect()));
    for (number, row) in table.rows.iter().enumerate() {
        let total = table.has_total && number + 1 == table.rows.len();
        let cells = row.iter().map(|cell| {
            let text = in_cell(cell);
            if total && !text.is_empty() {
                format!("**{text}**")
            } else {
                text
            }
        });
        lines.push(line(cells.collect()));
    }
    lines.join("\n")
}

fn in_cell(cell: &Cell) -> String {
    match cell {
        Cell::Name {
            name,
            ended: Some((status, note)),
        } => format!("{} **{}**{}", escaped(name), status.name(), escaped(&mark(*note))),
        // The rows of a report that have nothing to say in a column should not shout it.
        Cell::Nothing => String::new(),
        Cell::Name { ended: None, .. }
        | Cell::Text(_)
        | Cell::Number(_)
        | Cell::Moving { .. }
        | Cell::Marked(..)
        | Cell::Spread(_)
        | Cell::Missing(_) => escaped(&cell.line()),
    }
}

/// Text as Markdown that shows just that text, in one line.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    for (i, c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| chars.get(i));
        let after = chars.get(i + 1);
        let within_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric());
        let markup = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '&' | '$' | '~' => true,
            '_' => !(within_word(before) && within_word(after)),
            // Headings, lists and rulers, at the beginning only.
            '#' | '+' | '-' | '=' => i == 0,
            '.' | ')' => after == Some(&' ') && chars[..i].iter().all(char::is_ascii_digit) && i > 0,
            _ => false,
        };
        if markup {
            out.push('\\');
        }
        // `escape` leaves no line breaks; if one ever came through it would end a table.
        out.push(if c.is_control() { ' ' } else { *c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("epoll_wait"), "epoll_wait");
        assert_eq!(escaped("_newselect __x"), "\\_newselect \\_\\_x");
        assert_eq!(escaped("a|b`c`<b>&lt;*x*"), "a\\|b\\`c\\`\\<b\\>\\&lt;\\*x\\*");
        assert_eq!(escaped("# head"), "\\# head");
        assert_eq!(escaped("- 1.5%"), "\\- 1.5%");
        assert_eq!(escaped("1. item"), "1\\. item");
        assert_eq!(escaped("a\nb"), "a b");
        assert_eq!(escaped("–[1]"), "–\\[1\\]");
    }
}
