//! Programs that run untraced: what they leave behind is ended, and nothing else is.

#![allow(clippy::unwrap_used)]

mod engines_support;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use engines_support::*;
use systally::engine::{EngineKind, Exit, Session, Stdio, Window, engine};

/// Starts a daemon of another session and another parent, and ends when that has written its id.
const DAEMON: &str = r#"(setsid sh -c 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 600' "$0" >/dev/null 2>&1 </dev/null &)
while [ ! -e "$0" ]; do sleep 0.01; done"#;

fn launch(script: &str, file: &Path) -> Box<dyn Session> {
    let mut shell = program(Path::new("sh"), "", Stdio::Piped);
    shell.argv = ["sh", "-c", script].map(Into::into).to_vec();
    shell.argv.push(file.into());
    engine(EngineKind::None)
        .launch(vec![shell], &request(Window::Whole))
        .unwrap()
}

/// Whether a process is gone, or only waits to be reaped.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn pid_in(file: &Path) -> i32 {
    let began = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return text.trim().parse().unwrap();
        }
        assert!(began.elapsed() < LIMIT, "the daemon never began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_daemon_is_ended_and_told_and_a_bystander_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    // Another session's daemon is not this one's.
    let other_file = folder.path().join("other");
    let other = launch(&format!("{DAEMON}; sleep 600"), &other_file);
    let other_daemon = pid_in(&other_file);
    let outcome = launch(DAEMON, &file).finish(Some(LIMIT)).unwrap();
    assert_eq!(outcome.exits, [Exit::Code(0)]);
    let daemon = pid_in(&file);
    assert!(is_gone(daemon));
    assert_eq!(outcome.left.len(), 1, "{:?}", outcome.left);
    assert!(
        outcome.left[0].ends_with(&format!("(pid {daemon})")),
        "{:?}",
        outcome.left
    );
    assert!(!is_gone(other_daemon));
    assert!(bystander.try_wait().unwrap().is_none());
    // A session that is dropped ends its own too.
    drop(other);
    assert!(is_gone(other_daemon));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn a_program_without_daemons_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = launch("true", folder.path()).finish(Some(LIMIT)).unwrap();
    assert_eq!(outcome.left, Vec::<String>::new());
}
