//! The errors of the command line as they are shown: what the user wrote stands in them, and may be anything.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::units::escape;

/// How much of a word of the command line is shown.
const SHOWN: usize = 120;

/// The error with each echo of the command line cut and escaped. Help and version are left as they are.
pub fn escaped(mut error: clap::Error) -> clap::Error {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion
    ) {
        return error;
    }
    let changed: Vec<(ContextKind, ContextValue)> = error
        .context()
        // These are systally's own words, and have lines.
        .filter(|(kind, _)| !matches!(kind, ContextKind::Usage | ContextKind::ValidValue))
        .filter_map(|(kind, value)| Some((kind, safe(value)?)))
        .collect();
    for (kind, value) in changed {
        error.insert(kind, value);
    }
    error
}

/// The value without what must not be shown; `None` when nothing of that is in it.
fn safe(value: &ContextValue) -> Option<ContextValue> {
    match value {
        ContextValue::String(text) => cut(text).map(ContextValue::String),
        ContextValue::Strings(texts) => {
            let safe = |text: &String| cut(text).unwrap_or_else(|| text.clone());
            texts
                .iter()
                .any(|text| cut(text).is_some())
                .then(|| ContextValue::Strings(texts.iter().map(safe).collect()))
        }
        // Without its colours, which cannot be told from what the user wrote.
        ContextValue::StyledStr(text) => {
            cut(&text.to_string()).map(|text| ContextValue::StyledStr(text.into()))
        }
        ContextValue::StyledStrs(texts) => {
            let plain: Vec<String> = texts.iter().map(ToString::to_string).collect();
            plain.iter().any(|text| cut(text).is_some()).then(|| {
                let safe = |text: String| cut(&text).unwrap_or(text).into();
                ContextValue::StyledStrs(plain.into_iter().map(safe).collect())
            })
        }
        _ => None,
    }
}

/// The text cut and escaped, where that changes it.
fn cut(text: &str) -> Option<String> {
    let safe = escape(text, SHOWN);
    (safe != text).then_some(safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn said(words: &[&str]) -> String {
        let error = Cli::try_parse_from(["systally"].iter().chain(words)).expect_err("wrong usage");
        escaped(error).to_string()
    }

    #[test]
    fn what_was_written_is_cut_and_escaped_wherever_it_is_echoed() {
        let long = "x".repeat(65_536);
        let flag = format!("--{long}");
        let odd = "a\u{1b}[2Jb\u{7}\rc\u{202e}";
        let odd_flag = format!("--{odd}");
        for words in [
            &["bench", "--clients"][..],
            &["bench", "--format"],
            &["bench", "--duration"],
            &["bench", "--scenario", "x", "--scale"],
            &["count", "--ops"],
            &["count", "--engine"],
            &["count", "-p"],
            &["list"],
            &[],
        ] {
            for value in [&long, odd, &flag, &odd_flag] {
                let text = said(&[words, &[value]].concat());
                assert!(text.len() < 2_000, "{words:?}: {} bytes", text.len());
                let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
                assert!(!text.contains(bad), "{words:?}: {text:?}");
                if value == odd {
                    assert!(text.contains("\\u{1b}[2Jb"), "{words:?}: {text:?}");
                }
            }
        }
    }

    #[test]
    fn usual_words_stay_as_they_are() {
        let words = ["systally", "bench", "--fromat", "md"];
        let before = Cli::try_parse_from(words).expect_err("wrong usage");
        let text = before.render().ansi().to_string();
        assert_eq!(escaped(before).render().ansi().to_string(), text);
        assert!(text.contains("--format"), "{text:?}");
    }
}
