//! The project's transcriptions of published tables (`fixtures/published/*.json`): `dtruss -c` tables of
//! several programs in one file.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use serde::Deserialize;

use super::model::{Imported, ImportedTable, Row};
use super::{Head, ImportError, ImportFormat, Importer, Sniff, text};

/// No transcription is longer.
const MOST_BYTES: u64 = 4 << 20;

/// The importer.
pub(super) struct Published;

#[derive(Debug, Deserialize)]
struct File {
    id: String,
    #[serde(default)]
    about: String,
    dtruss_counts: BTreeMap<String, Counts>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Counts {
    Table(BTreeMap<String, u64>),
    /// A remark beside the tables.
    Remark(serde::de::IgnoredAny),
}

impl Importer for Published {
    fn format(&self) -> ImportFormat {
        ImportFormat::Published
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        let first = head.lines.iter().find(|line| !text::trim(line).is_empty());
        if !first.is_some_and(|line| text::trim(line).starts_with(b"{")) {
            return Sniff::No;
        }
        head.any(|line| text::contains(line, "\"dtruss_counts\""))
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut bytes = Vec::new();
        input.take(MOST_BYTES).read_to_end(&mut bytes)?;
        let file: File = serde_json::from_slice(&bytes).map_err(|e| ImportError::Damaged {
            line: e.line() as u64,
            what: "not a transcription of published tables",
            text: text::shown(e.to_string().as_bytes(), 120),
        })?;
        let mut imported = Imported::new(self.format());
        for (name, counts) in file.dtruss_counts {
            let counts = match counts {
                Counts::Table(counts) => counts,
                Counts::Remark(_) => continue,
            };
            // As dtruss prints them: the rarest first.
            let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
            counts.sort_by_key(|(_, n)| *n);
            imported.tables.push(ImportedTable {
                label: text::shown(name.as_bytes(), 64),
                rows: counts
                    .into_iter()
                    .map(|(name, calls)| Row {
                        syscall: text::name(name.as_bytes()),
                        calls: Some(calls),
                        ..Row::default()
                    })
                    .collect(),
                stated: None,
            });
        }
        imported.notes.push(format!(
            "{}: dtruss -c of macOS, calls only: no errors and no times",
            text::shown(file.id.as_bytes(), 64)
        ));
        if !file.about.is_empty() {
            imported.notes.push(text::shown(file.about.as_bytes(), 400));
        }
        Ok(imported)
    }
}
