//! Which engine counts in `systally count`, and why it is that one.

use crate::engine::{self, Availability, Engine, EngineKind};
use crate::render::CountColumn;

use super::count_args::{CountArgs, CountEngine};

/// The engine of a count.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    /// It counts.
    pub(super) engine: &'static dyn Engine,
    /// Why it is that one, where a running program could have been counted by more than one and nobody said
    /// by which.
    pub(super) why: Option<&'static str>,
}

impl Chosen {
    /// Chooses by what was asked for and what may be used here.
    pub(super) fn new(args: &CountArgs) -> Chosen {
        let named = |kind| Chosen {
            engine: engine::engine(kind),
            why: None,
        };
        match args.engine {
            CountEngine::Auto if args.attaches() => running(args, || {
                engine::engine(EngineKind::Bpf).availability() == Availability::Ready
            }),
            CountEngine::Auto | CountEngine::Ptrace => named(EngineKind::Ptrace),
            CountEngine::PtraceCounts => named(EngineKind::PtraceCounts),
            CountEngine::Bpf => named(EngineKind::Bpf),
            CountEngine::Perf => named(EngineKind::Perf),
            CountEngine::Strace => named(EngineKind::Strace),
        }
    }

    /// Which one it is.
    pub(super) fn kind(self) -> EngineKind {
        self.engine.kind()
    }
}

/// The engine for programs that run already: others may depend on them, so they are not stopped and slowed
/// down where that can be helped.
fn running(args: &CountArgs, bpf_is_ready: impl FnOnce() -> bool) -> Chosen {
    let (kind, why) = match only_by_ptrace(args) {
        Some(why) => (EngineKind::Ptrace, why),
        None if bpf_is_ready() => (
            EngineKind::Bpf,
            "auto: it does not stop the program; --engine ptrace sees CPU time, bytes, peers, and stalls by Nagle's algorithm too",
        ),
        None => (EngineKind::Ptrace, "auto: bpf may not be used here"),
    };
    Chosen {
        engine: engine::engine(kind),
        why: Some(why),
    }
}

/// What was asked for that bpf does not see.
fn only_by_ptrace(args: &CountArgs) -> Option<&'static str> {
    let shows = |column| args.columns.contains(&column);
    if args.asks_for_peers() {
        Some("auto: bpf does not see where descriptors lead")
    } else if shows(CountColumn::Cpu) {
        Some("auto: bpf does not see CPU time")
    } else if shows(CountColumn::Bytes) {
        Some("auto: bpf does not see bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(words: &[&str]) -> CountArgs {
        let words = ["systally", "count"].iter().chain(words);
        match Cli::parse_from(words).command {
            Command::Count(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_running_program_is_not_stopped_where_that_can_be_helped() {
        let kind = |words: &[&str], ready| running(&args(words), || ready).kind();
        for plain in [
            &["-p", "1"][..],
            &["--name", "php", "-w", "--tree", "--for", "1s"],
            &["--cgroup", "/x", "-e", "read", "-Z", "--no-pin"],
            &[
                "-p",
                "1",
                "-U",
                "calls,errors,name",
                "--server",
                "redis://127.0.0.1",
            ],
        ] {
            assert_eq!(kind(plain, true), EngineKind::Bpf, "{plain:?}");
            assert_eq!(kind(plain, false), EngineKind::Ptrace, "{plain:?}");
        }
        for more in [
            &["-p", "1", "--peers"][..],
            &["-p", "1", "--connections"],
            &["-p", "1", "--only-peer", "x"],
            &["-p", "1", "-U", "calls,cpu"],
            &["-p", "1", "-U", "bytes"],
        ] {
            assert_eq!(kind(more, true), EngineKind::Ptrace, "{more:?}");
        }
    }

    #[test]
    fn a_program_that_is_started_and_a_choice_are_what_they_were() {
        let kind = |words: &[&str]| Chosen::new(&args(words)).kind();
        assert_eq!(kind(&["--", "true"]), EngineKind::Ptrace);
        assert_eq!(kind(&["-p", "1", "--engine", "ptrace"]), EngineKind::Ptrace);
        assert_eq!(kind(&["-p", "1", "--engine", "bpf", "--peers"]), EngineKind::Bpf);
    }
}
