//! Helpers that several test files share.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The first executable of that name in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Whether a program is there; otherwise says `SKIP:` with the reason.
pub(crate) fn have(program: &str) -> bool {
    let found = find(program).is_some();
    if !found {
        println!("SKIP: {program} is not installed");
    }
    found
}

/// Compiles a guest program from `tests/guests`, once per name and test process; `None`, with a `SKIP:`
/// line, when there is no C compiler.
pub(crate) fn guest(name: &str) -> Option<PathBuf> {
    static COMPILING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if !have("cc") {
        return None;
    }
    let _one_at_a_time = COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/guests/{name}.c"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("{name}-{}", std::process::id()));
    if !program.exists() {
        let output = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .args([&program, &source])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Some(program)
}
