//! Fitting a table into a width: columns keep their numbers whole, so what does not fit goes into a further
//! table below, with the names of the rows repeated.

use unicode_width::UnicodeWidthStr;

use super::model::{Align, Cell, Column, Group, Table};

/// Blanks between two columns.
pub(super) const GAP: usize = 2;

/// Names and other text are not made narrower than this. It holds `phpredis/persistent/unix` in one line;
/// longer names are rather wrapped than that a table is folded once more.
const NARROWEST_TEXT: usize = 24;

/// A part of a table that fits: which columns of it, and how wide each is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Positions in [`Table::columns`], ascending, with the width of each.
    pub(super) columns: Vec<(usize, usize)>,
    /// What stands above it; empty for a table that was not folded.
    pub(super) caption: String,
}

/// Divides a table into pieces no wider than `width`, as few as its groups allow. A single column that is
/// wider than that stands alone and is not cut.
pub(super) fn fold(table: &Table, width: usize) -> Vec<Piece> {
    let folding = Folding::new(table, width);
    let all: Vec<usize> = (0..table.columns.len()).collect();
    if folding.fits(&all) || all.len() <= 2 {
        return vec![folding.piece(&all, String::new())];
    }
    folding.pieces()
}

struct Folding<'a> {
    table: &'a Table,
    width: usize,
    key: usize,
    /// The least width of every column.
    least: Vec<usize>,
    /// The width that every column would like.
    natural: Vec<usize>,
}

impl<'a> Folding<'a> {
    fn new(table: &'a Table, width: usize) -> Folding<'a> {
        let key = table.key();
        let natural: Vec<usize> = (0..table.columns.len())
            .map(|i| natural_width(table, i))
            .collect();
        let least = natural
            .iter()
            .enumerate()
            .map(|(i, natural)| {
                let column = &table.columns[i];
                if i == key || wraps(column) {
                    (*natural).min(NARROWEST_TEXT)
                } else {
                    *natural
                }
            })
            .collect();
        Folding {
            table,
            width,
            key,
            least,
            natural,
        }
    }

    /// Columns without the key, together with it.
    fn with_key(&self, columns: &[usize]) -> Vec<usize> {
        let mut all = columns.to_vec();
        all.push(self.key);
        all.sort_unstable();
        all.dedup();
        all
    }

    fn fits(&self, columns: &[usize]) -> bool {
        let gaps = GAP * columns.len().saturating_sub(1);
        columns.iter().map(|i| self.least[*i]).sum::<usize>() + gaps <= self.width
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<(Vec<usize>, Vec<Group>)> = Vec::new();
        for group in self.groups() {
            let columns = self.columns_of(group);
            if let Some((last, groups)) = pieces.last_mut() {
                let mut together = last.clone();
                together.extend(&columns);
                if self.fits(&self.with_key(&together)) {
                    *last = together;
                    groups.push(group);
                    continue;
                }
            }
            for part in self.split(&columns) {
                pieces.push((part, vec![group]));
            }
        }
        let mut last_group = None;
        pieces
            .into_iter()
            .map(|(columns, groups)| {
                let mut captions: Vec<String> = groups
                    .iter()
                    .map(|group| group.caption().to_owned())
                    .filter(|caption| !caption.is_empty())
                    .collect();
                if let Some(first) = captions.first_mut()
                    && last_group == groups.first().copied()
                {
                    first.push_str(", continued");
                }
                last_group = groups.last().copied();
                let mut caption = captions.join(" · ");
                if groups == [Group::Errors] {
                    caption.push_str(" (rows without any are left out)");
                }
                self.piece(&self.with_key(&columns), caption)
            })
            .collect()
    }

    /// The groups beside the key, in the order in which they stand.
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for column in &self.table.columns {
            if column.group != Group::Key && !groups.contains(&column.group) {
                groups.push(column.group);
            }
        }
        groups
    }

    fn columns_of(&self, group: Group) -> Vec<usize> {
        let columns = self.table.columns.iter().enumerate();
        columns
            .filter(|(_, column)| column.group == group)
            .map(|(i, _)| i)
            .collect()
    }

    /// The columns of one group in parts that fit, filled from the left.
    fn split(&self, columns: &[usize]) -> Vec<Vec<usize>> {
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for column in columns {
            if let Some(part) = parts.last_mut() {
                part.push(*column);
                if self.fits(&self.with_key(part)) {
                    continue;
                }
                part.pop();
            }
            parts.push(vec![*column]);
        }
        parts
    }

    /// Columns that fit, with the width that is left given to those that were made narrow.
    fn piece(&self, columns: &[usize], caption: String) -> Piece {
        let gaps = GAP * columns.len().saturating_sub(1);
        let used = columns.iter().map(|i| self.least[*i]).sum::<usize>() + gaps;
        let mut left = self.width.saturating_sub(used);
        let columns = columns
            .iter()
            .map(|i| {
                let extra = (self.natural[*i] - self.least[*i]).min(left);
                left -= extra;
                (*i, self.least[*i] + extra)
            })
            .collect();
        Piece { columns, caption }
    }
}

/// Whether the cells of a column may be broken into lines.
fn wraps(column: &Column) -> bool {
    match column.group {
        Group::Key | Group::Errors => true,
        Group::Speed | Group::Published | Group::Work | Group::Calls | Group::Summary => {
            column.align == Align::Left
        }
    }
}

fn natural_width(table: &Table, column: usize) -> usize {
    let heading = &table.columns[column];
    table
        .rows
        .iter()
        .filter_map(|row| row.get(column))
        .flat_map(cell_lines)
        .chain(heading_lines(heading))
        .map(|line| line.width())
        .max()
        .unwrap_or_default()
}

/// A heading in lines: long names of calls are broken at underscores, and the unit stands below.
pub(super) fn heading_lines(column: &Column) -> Vec<String> {
    const LONG: usize = 8;
    let mut lines: Vec<String> = match column.group {
        Group::Calls if column.title.width() > LONG => {
            column.title.split_inclusive('_').map(str::to_owned).collect()
        }
        Group::Key
        | Group::Speed
        | Group::Published
        | Group::Work
        | Group::Calls
        | Group::Summary
        | Group::Errors => {
            vec![column.title.clone()]
        }
    };
    lines.extend((!column.unit.is_empty()).then(|| column.unit.clone()));
    lines
}

/// A cell in lines, before it is wrapped: how a row ended stands below its name.
pub(super) fn cell_lines(cell: &Cell) -> Vec<String> {
    match cell {
        Cell::Name {
            name,
            ended: Some((status, note)),
        } => vec![
            name.clone(),
            format!("  {}{}", status.name(), super::model::mark(*note)),
        ],
        Cell::Name { .. }
        | Cell::Text(_)
        | Cell::Number(_)
        | Cell::Moving { .. }
        | Cell::Marked(..)
        | Cell::Spread(_)
        | Cell::Nothing
        | Cell::Missing(_) => vec![cell.line()],
    }
}

/// Breaks words into lines of at most `width` columns: at blanks where it can, and anywhere where it must.
/// A number in groups (`25 400`) is one word. Nothing is lost but the blanks at the breaks.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_pieces(text.split_inclusive(' '), width, |line, next| {
        let digits = next.bytes().take_while(u8::is_ascii_digit).count();
        digits == 3 && line.trim_end_matches(' ').ends_with(|c: char| c.is_ascii_digit())
    })
}

/// As [`wrap`], for names: also after slashes.
pub(super) fn wrap_name(name: &str, width: usize) -> Vec<String> {
    wrap_pieces(name.split_inclusive([' ', '/']), width, |_, _| false)
}

/// Fills lines with pieces; `joined` says whether a piece belongs to what stands before it.
fn wrap_pieces<'a>(
    pieces: impl Iterator<Item = &'a str>,
    width: usize,
    joined: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for piece in pieces {
        match words.last_mut() {
            Some(word) if joined(word, piece) => word.push_str(piece),
            _ => words.push(piece.to_owned()),
        }
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words {
        if line.width() + word.trim_end().width() > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        if word.trim_end().width() <= width {
            line.push_str(&word);
            continue;
        }
        for c in word.chars() {
            let mut longer = line.clone();
            longer.push(c);
            if longer.trim_end().width() > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
            }
            line.push(c);
        }
    }
    if !line.trim_end().is_empty() || lines.is_empty() {
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::number::Style;
    use super::*;

    fn table(calls: usize) -> Table {
        let mut columns = vec![
            Column::text("strategy", Group::Key),
            Column::number("op/s", "median", Group::Speed),
            Column::number("calls", "/op", Group::Work),
        ];
        columns.extend((0..calls).map(|i| Column::number(&format!("syscall{i}"), "/op", Group::Calls)));
        columns.push(Column::text("errors", Group::Errors));
        let mut row = vec![
            Cell::Name {
                name: "redis-rs-async/persistent/unix".to_owned(),
                ended: None,
            },
            Cell::number(25_460.0, Style::Rate),
            Cell::number(5.0, Style::PerOp),
        ];
        row.extend((0..calls).map(|_| Cell::number(1.0, Style::PerOp)));
        row.push(Cell::Text(
            "recvfrom EAGAIN 1.97/op, connect EINPROGRESS 1.00/op".to_owned(),
        ));
        Table {
            columns,
            rows: vec![row],
            ..Table::default()
        }
    }

    fn total(piece: &Piece) -> usize {
        piece.columns.iter().map(|(_, width)| width).sum::<usize>() + GAP * (piece.columns.len() - 1)
    }

    #[test]
    fn what_fits_is_one_table() {
        let pieces = fold(&table(4), 200);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].caption, "");
        assert_eq!(total(&pieces[0]), 30 + 6 + 5 + 4 * 8 + 52 + 7 * GAP);
    }

    #[test]
    fn what_does_not_fit_is_folded_between_groups() {
        let pieces = fold(&table(6), 90);
        let captions: Vec<&str> = pieces.iter().map(|piece| piece.caption.as_str()).collect();
        assert_eq!(
            captions,
            [
                "Speed, untraced · Work per operation",
                "System calls per operation",
                "Errors (rows without any are left out)"
            ]
        );
        let columns: Vec<usize> = pieces[1].columns.iter().map(|(i, _)| *i).collect();
        assert_eq!(columns, [0, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_group_that_is_too_wide_is_split_and_every_piece_names_its_rows() {
        let pieces = fold(&table(20), 80);
        assert!(pieces.len() > 3);
        for piece in &pieces {
            assert_eq!(piece.columns[0].0, 0);
            assert!(total(piece) <= 80, "{piece:?}");
        }
        assert!(pieces.iter().any(|piece| piece.caption.ends_with(", continued")));
    }

    #[test]
    fn names_break_at_slashes_and_words_at_blanks() {
        assert_eq!(
            wrap_name("redis-rs-async/persistent/unix", 26),
            ["redis-rs-async/persistent/", "unix"]
        );
        assert_eq!(wrap("see /proc/sys/fs now", 12), ["see", "/proc/sys/fs", "now"]);
        assert_eq!(wrap("one two", 3), ["one", "two"]);
        assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn numbers_in_groups_stay_together() {
        assert_eq!(
            wrap("(needs 25 400 of 1 234 567)", 13),
            ["(needs 25 400", "of 1 234 567)"]
        );
        assert_eq!(wrap("after 5 1234 s", 8), ["after 5", "1234 s"]);
    }

    proptest! {
        #[test]
        fn every_column_is_in_one_piece(calls in 0..40_usize, width in 1..250_usize) {
            let table = table(calls);
            let pieces = fold(&table, width);
            let mut seen: Vec<usize> = pieces
                .iter()
                .flat_map(|piece| piece.columns.iter().map(|(i, _)| *i).filter(|i| *i != 0))
                .collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (1..table.columns.len()).collect::<Vec<_>>());
            if width >= 60 {
                for piece in &pieces {
                    prop_assert!(total(piece) <= width);
                }
            }
        }

        #[test]
        fn wrapping_loses_only_blanks(
            text in "[a-z0-9/, é字]{0,40}",
            width in 1..20_usize,
            as_name: bool,
        ) {
            let lines = if as_name { wrap_name(&text, width) } else { wrap(&text, width) };
            let without = |s: &str| s.replace(' ', "");
            prop_assert_eq!(without(&lines.concat()), without(&text));
            for line in &lines {
                // A character of two columns does not fit into one.
                prop_assert!(line.width() <= width.max(2), "{:?} in {}", line, width);
            }
        }
    }
}
