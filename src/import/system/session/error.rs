//! What programs print when a call failed, and on which system a number stands for it.

use serde_json::Value;

use super::super::super::{errnos, number, text};
use super::Session;
use crate::tally::Errno;

impl Session {
    /// A number beside its words tells on which system the text was made.
    fn number_is_of(&mut self, number: u64, name: &str) {
        let Ok(number) = u32::try_from(number) else { return };
        let linux = i32::try_from(number).is_ok_and(|n| Errno(n).name() == name);
        let bsd = errnos::name_of(errnos::System::Bsd, number) == Some(name);
        let solaris = errnos::name_of(errnos::System::Solaris, number) == Some(name);
        let system = match (linux, bsd, solaris) {
            (true, false, _) => "Linux",
            (false, true, _) => "a BSD or macOS (on Linux that number is another error)",
            (false, false, true) => "Solaris",
            _ => return,
        };
        self.set("error_numbers_of", system);
    }

    /// What programs print when a call failed: the words, or a bare number.
    pub(super) fn error_text(&mut self, line: &[u8]) -> bool {
        // The order matters: one text contains the other.
        let texts = [
            ("Too many open files in system", "ENFILE"),
            ("file table overflow", "ENFILE"),
            ("Too many open files", "EMFILE"),
            ("Cannot assign requested address", "EADDRNOTAVAIL"),
            ("assign requested address", "EADDRNOTAVAIL"),
            ("Resource temporarily unavailable", "EAGAIN"),
            ("Connection refused", "ECONNREFUSED"),
            ("Connection timed out", "ETIMEDOUT"),
            ("Operation now in progress", "EINPROGRESS"),
            ("No buffer space available", "ENOBUFS"),
            ("Cannot allocate memory", "ENOMEM"),
            ("Connection reset by peer", "ECONNRESET"),
            ("Broken pipe", "EPIPE"),
        ];
        let by_words = texts
            .iter()
            .find(|(words, _)| text::contains(line, words))
            .map(|(_, name)| *name);
        let went_away = text::contains(line, "went away");
        let number = error_number(line);
        if let (Some(number), Some(name)) = (number, by_words) {
            self.number_is_of(number, name);
        }
        let name = match (by_words, number) {
            (Some(name), _) => name.to_owned(),
            (None, _) if went_away => "WENT_AWAY".to_owned(),
            // A number without words: Linux's, until something says otherwise.
            (None, Some(number)) => match i32::try_from(number) {
                Ok(number) => Errno(number).name().into_owned(),
                Err(_) => return false,
            },
            (None, None) => return false,
        };
        let mut list = match self.values.get("error_texts") {
            Some(Value::Object(list)) => list.clone(),
            Some(_) | None => serde_json::Map::new(),
        };
        let n = list.get(&name).and_then(Value::as_u64).unwrap_or(0);
        if list.len() >= 32 && n == 0 {
            return true;
        }
        list.insert(name, Value::from(n + 1));
        self.set("error_texts", list);
        true
    }
}

/// The errno in a client's text: `(99)`, `[115]`, `(61: Connection refused)`, `os error 24`, `Error 111`.
fn error_number(line: &[u8]) -> Option<u64> {
    let words = [
        "fail", "error", "Error", "connect", "progress", "refused", "assign",
    ];
    if !words.iter().any(|word| text::contains(line, word)) {
        return None;
    }
    for (i, byte) in line.iter().enumerate() {
        if !matches!(byte, b'(' | b'[') {
            continue;
        }
        let rest = &line[i + 1..];
        let rest = rest.strip_prefix(b"os error ").unwrap_or(rest);
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if (1..=3).contains(&digits) && matches!(rest.get(digits), Some(b')' | b']' | b':')) {
            return number::uint(&rest[..digits]).filter(|n| (1..=150).contains(n));
        }
    }
    None
}
