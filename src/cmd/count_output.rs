//! Whether the result of a count stands behind something else on standard output.

use std::io;

use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Whence, lseek};

/// Standard output before the program ran, which it and the result share.
#[derive(PartialEq, Eq)]
pub(super) enum SharedOutput {
    /// A file, written up to here.
    File(i64),
    /// A pipe or a socket: nobody can tell how much was written to it.
    Pipe,
    /// A terminal, where all is seen, or a device that keeps nothing.
    Other,
}

impl SharedOutput {
    /// As it is now.
    pub(super) fn now() -> SharedOutput {
        let stdout = io::stdout();
        let kind = fstat(&stdout).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        match kind {
            Ok(SFlag::S_IFREG) => {
                lseek(&stdout, 0, Whence::SeekCur).map_or(SharedOutput::Other, SharedOutput::File)
            }
            Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK) => SharedOutput::Pipe,
            Ok(_) | Err(_) => SharedOutput::Other,
        }
    }

    /// When the program has run: what to say to whoever reads the result by another program. Nothing where
    /// the program certainly wrote nothing.
    pub(super) fn hint(self) -> Option<&'static str> {
        match self {
            SharedOutput::File(_) if self == SharedOutput::now() => None,
            SharedOutput::File(_) => Some(
                "systally: on standard output the result stands behind what the program wrote; -o FILE keeps it apart \
                 (JSON; systally import FILE prints it in any form)",
            ),
            SharedOutput::Pipe => Some(
                "systally: on standard output the result stands behind whatever the program wrote; -o FILE keeps it \
                 apart (JSON; systally import FILE prints it in any form)",
            ),
            SharedOutput::Other => None,
        }
    }
}
