//! Opening what the user names: a file, a pipe, standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a file, or standard input for `-`.
///
/// # Errors
/// What opening says, with the path, and that a directory is none.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(named)?;
    if file.metadata().map_err(named)?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            format!(
                "{} is a directory: name the files in it (of strace -ff, all of them together)",
                path.display()
            ),
        ));
    }
    Ok(Box::new(file))
}
