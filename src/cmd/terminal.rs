//! What standard output is: how wide, and whether colours and drawn lines are welcome there.

use std::io::{self, IsTerminal};

use crate::render::View;

/// How to show a table on standard output: folded to a terminal's width, plain everywhere else. COLUMNS,
/// NO_COLOR and TERM=dumb are honoured.
pub fn view() -> View {
    view_of(io::stdout().is_terminal())
}

/// The same for what goes to standard error.
pub fn view_of_stderr() -> View {
    view_of(io::stderr().is_terminal())
}

fn view_of(terminal: bool) -> View {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dumb = set("TERM").is_none_or(|term| term == "dumb");
    let columns = set("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
    View {
        width: columns.or_else(|| {
            let (width, _) = terminal_size::terminal_size()?;
            terminal.then_some(usize::from(width.0))
        }),
        colour: terminal && !dumb && set("NO_COLOR").is_none(),
        terminal: terminal && !dumb,
        ..View::default()
    }
}
