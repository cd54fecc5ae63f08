//! Why an engine could not run or count.

use super::EngineKind;

/// Why an engine could not run or count.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program could not be started.
    #[error("cannot run {program}: {source}{hint}")]
    Exec {
        /// Program as it was given, escaped.
        program: String,
        /// What execvp said.
        source: nix::errno::Errno,
        /// The next step, beginning with a separator; may be empty.
        hint: String,
    },
    /// Tracing is not permitted.
    #[error("cannot trace: {why}; {fix}")]
    Denied {
        /// What forbids it.
        why: String,
        /// What would allow it.
        fix: String,
    },
    /// The processes to attach to ended before they could be.
    #[error("there is nothing to count: the processes to attach to have ended")]
    NoneLeft,
    /// The engine can only start programs.
    #[error("the {engine} engine cannot attach to running programs; use --engine ptrace")]
    CannotAttach {
        /// Which engine.
        engine: EngineKind,
    },
    /// A system call of the engine itself failed.
    #[error("{operation} (pid {pid}): {source}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// To which process; 0 when there was none yet.
        pid: i32,
        /// The errno.
        source: nix::errno::Errno,
    },
    /// What it takes to start a process could not be had.
    #[error("{operation}: {errno}{}", next.as_ref().map(|next| format!("; {next}")).unwrap_or_default())]
    NoProcess {
        /// What was being done.
        operation: &'static str,
        /// What the kernel said.
        errno: nix::errno::Errno,
        /// The limit that is in the way and how to raise it.
        next: Option<String>,
    },
    /// The engine's thread ended in a way it should not.
    #[error("the {engine} engine stopped unexpectedly: {what}")]
    Broken {
        /// Which engine.
        engine: EngineKind,
        /// What is known.
        what: String,
    },
}
