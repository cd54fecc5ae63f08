//! What every target does: the input goes the whole way of a user's file, through the importer, the
//! record, the rules and the JSON and back. Nothing may panic, and nothing may be lost on the way back.

use systally::explain::explain;
use systally::import::{ImportFormat, import, into_record};
use systally::record::wire;

/// Runs one input; `from` names the importer, else the content does.
pub(crate) fn run(from: Option<ImportFormat>, data: &[u8]) {
    let Ok(imported) = import(Box::new(std::io::Cursor::new(data.to_vec())), from) else {
        return;
    };
    let mut record = into_record(vec![("fuzz".to_owned(), imported)], None);
    record.findings = explain(&record);
    let Ok(text) = wire::to_json(&record) else {
        panic!("a record that does not become JSON");
    };
    assert!(!text.contains('\u{1b}'), "an escape character got through");
    match wire::from_json(&text) {
        Ok(back) => assert_eq!(back.findings, record.findings),
        Err(e) => panic!("a record that cannot be read back: {e}"),
    }
}
