//! A report for people: tables as wide as the reader, words wrapped below them.
//!
//! Columns are laid out by [`super::layout`]; comfy-table pads, aligns and colours what it is given, and is
//! never asked to shrink anything, for it would break numbers.

use comfy_table::{Attribute, CellAlignment, Color, presets};

use super::layout::{GAP, Piece, cell_lines, fold, heading_lines, wrap, wrap_name};
use super::model::{Align, Cell, FoundText, Group, Report, Table};
use super::{DEFAULT_WIDTH, View};
use crate::explain::Severity;
use crate::record::Status;

pub(super) fn write(report: &Report, view: &View) -> String {
    let mut page = Page {
        text: String::new(),
        width: view.width.unwrap_or(DEFAULT_WIDTH).max(1),
        colour: view.colour,
        rule: if view.terminal { "─" } else { "-" },
    };
    page.banner(report);
    for line in &report.header {
        page.paragraph(line, "  ");
    }
    page.section(&report.summary, "  ");
    for table in &report.tables {
        page.table(table);
    }
    page.section(&report.remarks, "");
    page.section(&report.limits, "  ");
    for finding in &report.findings {
        page.finding(finding);
    }
    page.section(&report.proofs, "  ");
    page.notes(&report.notes);
    page.banner(report);
    page.text
}

struct Page<'a> {
    text: String,
    width: usize,
    colour: bool,
    rule: &'a str,
}

impl Page<'_> {
    fn banner(&mut self, report: &Report) {
        if let Some(banner) = &report.banner {
            self.blank();
            for line in wrap(banner, self.width) {
                self.line(&self.styled(&line, "1;31"));
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// An empty line between two parts, none before the first.
    fn blank(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    /// Text in an SGR style when colours may be used (ECMA-48, 8.3.117).
    fn styled(&self, text: &str, sgr: &str) -> String {
        if self.colour {
            format!("\u{1b}[{sgr}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Words wrapped to the width; lines after the first begin with `indent`.
    fn paragraph(&mut self, words: &str, indent: &str) {
        self.hanging("", words, indent);
    }

    /// As [`Page::paragraph`], with `head` before the first line, which takes the place of its indent.
    fn hanging(&mut self, head: &str, words: &str, indent: &str) {
        let room = self.width.saturating_sub(indent.chars().count()).max(20);
        for (i, line) in wrap(words, room).into_iter().enumerate() {
            let begin = if i == 0 { head } else { indent };
            self.line(&format!("{begin}{line}"));
        }
    }

    fn section(&mut self, lines: &[String], indent: &str) {
        if lines.is_empty() {
            return;
        }
        self.blank();
        for line in lines {
            // A line that begins with spaces belongs to the one above and keeps that place.
            let words = line.trim_start_matches(' ');
            let lead = &line[..line.len() - words.len()];
            self.hanging(lead, words, &format!("{lead}{indent}"));
        }
    }

    fn finding(&mut self, finding: &FoundText) {
        const INDENT: &str = "    ";
        self.blank();
        let (word, sgr) = (finding.severity.name(), colour_of(finding.severity));
        self.line(&format!(
            "{}: {}",
            self.styled(word, sgr),
            self.styled(&finding.code, "1")
        ));
        let parts = [
            ("in: ", finding.strategies.join(", ")),
            ("", finding.says.clone()),
            ("try: ", finding.try_next.clone()),
            ("not the cause: ", finding.not_the_cause.join("; ")),
        ];
        for (label, words) in parts {
            if !words.is_empty() {
                self.hanging(INDENT, &format!("{label}{words}"), INDENT);
            }
        }
    }

    fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            self.blank();
        }
        for (i, note) in notes.iter().enumerate() {
            self.paragraph(&format!("[{}] {note}", i + 1), "    ");
        }
    }

    fn table(&mut self, table: &Table) {
        self.blank();
        if !table.title.is_empty() {
            self.line(&self.styled(&table.title, "1"));
        }
        for (i, piece) in fold(table, self.width).iter().enumerate() {
            if i > 0 {
                self.blank();
            }
            if !piece.caption.is_empty() {
                self.line(&self.styled(&piece.caption, "1"));
            }
            let text = self.piece(table, piece);
            self.line(&text);
        }
    }

    fn piece(&self, table: &Table, piece: &Piece) -> String {
        let mut out = comfy_table::Table::new();
        out.load_style(presets::NOTHING).force_no_tty();
        if self.colour {
            out.enforce_styling();
        }
        let rule = || {
            piece
                .columns
                .iter()
                .map(|(_, width)| comfy_table::Cell::new(self.rule.repeat(*width)))
        };
        out.set_header(piece.columns.iter().map(|(i, width)| {
            let column = &table.columns[*i];
            let heading: Vec<String> = heading_lines(column)
                .iter()
                .flat_map(|line| wrap(line, *width))
                .collect();
            aligned(column.align, &heading.join("\n")).add_attribute(Attribute::Bold)
        }));
        // As wide as the column is to be: it also keeps comfy-table from finding a width of its own.
        out.add_row(rule());
        let errors_only = piece
            .columns
            .iter()
            .all(|(i, _)| matches!(table.columns[*i].group, Group::Key | Group::Errors));
        for (number, row) in table.rows.iter().enumerate() {
            if table.has_total && number + 1 == table.rows.len() {
                out.add_row(rule());
            }
            let silent = |(i, _): &(usize, usize)| *i == table.key() || row.get(*i) == Some(&Cell::Nothing);
            if errors_only && piece.columns.len() > 1 && piece.columns.iter().all(silent) {
                continue;
            }
            out.add_row(piece.columns.iter().map(|(i, width)| {
                let nothing = Cell::Text(String::new());
                let cell = row.get(*i).unwrap_or(&nothing);
                let align = table.columns[*i].align;
                coloured(cell, aligned(align, &lines_of(cell, *width, align).join("\n")))
            }));
        }
        let last = piece.columns.len().saturating_sub(1);
        for (i, column) in out.column_iter_mut().enumerate() {
            let gap = if i == last { 0 } else { GAP };
            column.set_padding((0, u16::try_from(gap).unwrap_or_default()));
        }
        out.trim_fmt()
    }
}

/// Text is broken where it does not fit; numbers never.
fn lines_of(cell: &Cell, width: usize, align: Align) -> Vec<String> {
    let lines = cell_lines(cell).into_iter();
    match (cell, align) {
        // How a row ended stands below its name and fits wherever a name does.
        (Cell::Name { .. }, _) => lines
            .enumerate()
            .flat_map(|(i, line)| {
                if i == 0 {
                    wrap_name(&line, width)
                } else {
                    vec![line]
                }
            })
            .collect(),
        (_, Align::Left) => lines.flat_map(|line| wrap(&line, width)).collect(),
        (_, Align::Right) => lines.collect(),
    }
}

fn aligned(align: Align, text: &str) -> comfy_table::Cell {
    let side = match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    };
    comfy_table::Cell::new(text).set_alignment(side)
}

fn coloured(cell: &Cell, out: comfy_table::Cell) -> comfy_table::Cell {
    match cell {
        Cell::Name {
            ended: Some((status, _)),
            ..
        } => match status {
            Status::Ok => out,
            Status::Failed => out.fg(Color::Red),
            Status::Skipped => out.add_attribute(Attribute::Dim),
            Status::Unverified => out.fg(Color::Yellow),
        },
        Cell::Missing(_) | Cell::Nothing => out.add_attribute(Attribute::Dim),
        Cell::Name { ended: None, .. }
        | Cell::Text(_)
        | Cell::Number(_)
        | Cell::Moving { .. }
        | Cell::Marked(..)
        | Cell::Spread(_) => out,
    }
}

fn colour_of(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "36",
        Severity::Warning => "33",
        Severity::Error => "31",
    }
}
