//! What a trace covers and what it leaves out: before anything is concluded from it.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, traces};
use crate::import::ImportFormat;
use crate::record::Record;
use crate::tally::{Abi, Syscall};

pub(super) struct Scope;

const DOCS: &[Doc] = &[
    Doc {
        code: "INCOMPLETE_TRACE",
        means: "Parts of the run are missing from the file.",
        measured: "A log that begins or ends in the middle of a call or line; a table whose total is larger than its rows or \
                   missing; events that the tool says it lost.",
        wrong_when: "Somebody cut rows on purpose that do not matter.",
        todo: "Ask for the whole file; absent calls are not zero.",
    },
    Doc {
        code: "ONE_THREAD_OF_MANY",
        means: "The program made threads or processes that the trace does not show (strace without -f).",
        measured: "Clones that returned in a log with lines of one thread only.",
        wrong_when: "The children do no work that matters.",
        todo: "Trace with -f.",
    },
    Doc {
        code: "PARTIAL_COUNTS",
        means: "The tool prints a choice of calls only, or estimates: the top ten, the events asked for, values scaled up.",
        measured: "What the tool says in its output.",
        wrong_when: "Fewer calls were made than the tool would print.",
        todo: "A longer list (-T), or a tool that counts everything.",
    },
    Doc {
        code: "WHOLE_MACHINE",
        means: "The counts are, or may be, of the whole machine and not of one program.",
        measured: "The tool's default when no process is named in its output.",
        wrong_when: "The tool was given a process that its output does not show.",
        todo: "Count again for one process (-p).",
    },
    Doc {
        code: "SUMMED_OVER_THREADS",
        means: "Tables of several threads were added up; their times can exceed the length of the run.",
        measured: "One table per thread in the file.",
        wrong_when: "Never.",
        todo: "Read times as sums over threads.",
    },
    Doc {
        code: "LIBRARY_CALLS",
        means: "The rows are library functions, not system calls.",
        measured: "A table of ltrace -c; only SYS_ rows are system calls.",
        wrong_when: "Never.",
        todo: "Do not put them in one table with system calls without saying so.",
    },
    Doc {
        code: "NUMBERS_ASSUMED",
        means: "The file has system call numbers, and their names were taken from one machine's table.",
        measured: "Numeric keys of a bpftrace map, read as x86_64's.",
        wrong_when: "The trace is from x86_64, then nothing is wrong.",
        todo: "Ask for the machine (uname -m).",
    },
    Doc {
        code: "UNKNOWN_SYSCALLS",
        means: "Calls newer than the tool appear by number only.",
        measured: "Names like syscall_0x1ce.",
        wrong_when: "Never; the likely names are those of x86_64.",
        todo: "A newer strace; before 7.1 its -c tables leave such calls out without a word.",
    },
    Doc {
        code: "COUNTS_PER_PROCESS",
        means: "The table counts calls per process and does not say which calls.",
        measured: "syscount -P.",
        wrong_when: "Never.",
        todo: "syscount without -P gives calls by name.",
    },
];

impl Rule for Scope {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| {
                [
                    forbidden(&trace),
                    incomplete(&trace),
                    one_thread(&trace),
                    partial(&trace),
                    machine(&trace),
                    threads(&trace),
                    library(&trace),
                    numbers(&trace),
                    unknown(&trace),
                    per_process(&trace),
                ]
            })
            .flatten()
            .collect()
    }
}

/// The code is described where the rule for live runs stands.
fn forbidden(trace: &Trace<'_>) -> Option<Finding> {
    let refusal = trace
        .imported
        .notes
        .iter()
        .find(|note| note.contains("was not allowed to trace"))?;
    Some(
        trace
            .finding("NO_PTRACE", Severity::Error)
            .with("calls", trace.tables().map(|table| table.table.sum_calls()).fold(0, u64::saturating_add))
            .says(format!("one text, several causes: {refusal}"))
            .try_next(
                "in a container --cap-add=SYS_PTRACE, and a seccomp or AppArmor profile that allows ptrace; on a host \
                 kernel.yama.ptrace_scope=0 or root; or trace from outside the container",
            ),
    )
}

fn incomplete(trace: &Trace<'_>) -> Option<Finding> {
    let imported = trace.imported;
    if !imported.incomplete {
        return None;
    }
    let starts = imported
        .incomplete_because
        .iter()
        .any(|why| why.contains("begins in the middle"));
    let ends = imported
        .incomplete_because
        .iter()
        .any(|why| why.contains("ends in the middle"));
    let both = if starts && ends {
        "the log is cut at both ends: "
    } else {
        ""
    };
    Some(
        trace
            .finding("INCOMPLETE_TRACE", Severity::Warning)
            .with("unfinished_calls", imported.unfinished)
            .says(format!("{both}{}", imported.incomplete_because.join("; ")))
            .try_next("ask for the whole file; what is missing is not zero"),
    )
}

fn one_thread(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    (facts.children > 0 && trace.imported.processes == Some(1)).then(|| {
        trace
            .finding("ONE_THREAD_OF_MANY", Severity::Warning)
            .with("children", facts.children)
            .says(format!(
                "{} threads or processes were made and only one is in the log: the trace does not follow them",
                facts.children
            ))
            .try_next("strace -f")
    })
}

fn partial(trace: &Trace<'_>) -> Option<Finding> {
    let imported = trace.imported;
    let (says, next) = match imported.format {
        ImportFormat::Syscount | ImportFormat::SyscountByProcess => {
            let top = imported
                .notes
                .iter()
                .find(|note| note.contains("prints the top"))?;
            (top.clone(), "syscount -T 1000")
        }
        ImportFormat::PerfStatCsv if !imported.not_counted.is_empty() || !imported.scaled.is_empty() => {
            let mut parts = Vec::new();
            if !imported.scaled.is_empty() {
                // The importer's own sentence has the shares.
                let told = imported
                    .notes
                    .iter()
                    .find(|note| note.starts_with("scaled up by perf"));
                parts.push(told.cloned().unwrap_or_else(|| {
                    format!(
                        "{} scaled up by perf and so estimates, not exact",
                        imported.scaled.join(", ")
                    )
                }));
            }
            if !imported.not_counted.is_empty() {
                parts.push(format!(
                    "{} not counted, which is not zero",
                    imported.not_counted.join(", ")
                ));
            }
            (
                parts.join("; "),
                "fewer events at a time, so that each is counted all the time",
            )
        }
        ImportFormat::PerfScript if !imported.scaled.is_empty() => (
            format!(
                "{} sampled by perf and so estimates, not exact",
                imported.scaled.join(", ")
            ),
            "perf record -c 1 keeps every event",
        ),
        ImportFormat::PerfStatCsv => (
            "perf stat counts only the calls it was asked for".to_owned(),
            "perf trace -s or strace -c counts all",
        ),
        _ => return None,
    };
    Some(
        trace
            .finding("PARTIAL_COUNTS", Severity::Info)
            .says(says)
            .try_next(next),
    )
}

fn machine(trace: &Trace<'_>) -> Option<Finding> {
    let imported = trace.imported;
    let says = match imported.format {
        ImportFormat::Syscount | ImportFormat::SyscountByProcess => {
            "system-wide unless syscount was given -p: the counts may be of many programs"
        }
        ImportFormat::BpftraceMap => {
            "a bpftrace script counts the whole machine unless it filters by process"
        }
        ImportFormat::PerfTraceSummary
            if imported.notes.iter().any(|note| note.contains("whole machine")) =>
        {
            "system-wide: this is the whole machine, not one program"
        }
        _ => return None,
    };
    Some(
        trace
            .finding("WHOLE_MACHINE", Severity::Info)
            .says(says)
            .try_next("count again for one process"),
    )
}

fn threads(trace: &Trace<'_>) -> Option<Finding> {
    let groups = trace.imported.groups.len();
    let clones = trace
        .imported
        .notes
        .iter()
        .any(|note| note.contains("only its return"));
    (groups > 1).then(|| {
        let more = if clones {
            "; a new thread shows the clone that made it with 0.000 ms (only its return), so the real number of clones is lower"
        } else {
            ""
        };
        trace
            .finding("SUMMED_OVER_THREADS", Severity::Info)
            .with("threads", groups)
            .says(format!(
                "the time is wall time, summed over {groups} threads; “N events” in the headings counts entries and exits, not \
                 calls{more}"
            ))
    })
}

fn library(trace: &Trace<'_>) -> Option<Finding> {
    let says_so = |note: &String| note.contains("log of library calls");
    let of_library =
        trace.imported.format == ImportFormat::LtraceC || trace.imported.notes.iter().any(says_so);
    of_library.then(|| {
        trace
            .finding("LIBRARY_CALLS", Severity::Info)
            .says(
                "these are library calls, not system calls: only SYS_ rows (ltrace -S) are, so they do not belong in one table with \
                 system calls",
            )
            .try_next("strace -c counts the system calls of the same run")
    })
}

fn numbers(trace: &Trace<'_>) -> Option<Finding> {
    let abi = trace.imported.abi_assumed.as_deref()?;
    Some(
        trace
            .finding("NUMBERS_ASSUMED", Severity::Info)
            .with("abi", abi)
            .says(format!(
                "the numbers are taken as {abi}'s; another CPU has other numbers (44 is sendto on x86_64 and fstatfs on arm64)"
            ))
            .try_next("uname -m of the traced machine"),
    )
}

fn unknown(trace: &Trace<'_>) -> Option<Finding> {
    let hex = |name: &str| {
        let digits = name.strip_prefix("syscall_0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let rows = || {
        trace
            .imported
            .tables
            .iter()
            .flat_map(|table| &table.rows)
            .filter_map(|row| Some((row, hex(&row.syscall)?)))
    };
    let calls: u64 = rows().map(|(row, _)| row.calls()).fold(0, u64::saturating_add);
    if calls == 0 {
        return None;
    }
    let total: u64 = trace
        .imported
        .tables
        .iter()
        .map(|t| t.sum_calls())
        .fold(0, u64::saturating_add);
    // Prefixes of the tables that strace has for other systems.
    let foreign = trace
        .imported
        .tables
        .iter()
        .flat_map(|table| &table.rows)
        .find(|row| {
            ["svr4_", "ibcs2_", "osf_"]
                .iter()
                .any(|prefix| row.syscall.starts_with(prefix))
        })
        .map(|row| {
            format!(
                "; {} is a name of another ABI: strace took the program for one of another system",
                row.syscall
            )
        })
        .unwrap_or_default();
    let names: Vec<String> = rows()
        .take(8)
        .filter_map(|(row, number)| {
            let call = Syscall {
                abi: Abi::X86_64,
                number,
            };
            Some(format!("{} may be {} ({number})", row.syscall, call.bare_name()?))
        })
        .collect();
    let log = trace.imported.format == ImportFormat::StraceLog;
    let dropped = if log {
        format!(
            "strace -c drops calls that this strace does not know: a table of the same run would miss {calls} of {total} calls"
        )
    } else {
        format!("{calls} of {total} calls are known by number only")
    };
    let names = if names.is_empty() {
        String::new()
    } else {
        format!("; on x86_64 {}", names.join(", "))
    };
    Some(
        trace
            .finding("UNKNOWN_SYSCALLS", Severity::Info)
            .with("calls", calls)
            .says(format!("{dropped}{names}{foreign}"))
            .try_next("a newer strace"),
    )
}

fn per_process(trace: &Trace<'_>) -> Option<Finding> {
    let first = trace
        .imported
        .by_process
        .iter()
        .max_by_key(|process| process.calls)?;
    Some(
        trace
            .finding("COUNTS_PER_PROCESS", Severity::Info)
            .with("processes", trace.imported.by_process.len())
            .says(format!(
                "counts per process and not per system call; {} has most, {} calls",
                first.name(),
                crate::units::Grouped(first.calls)
            ))
            .try_next(match trace.imported.format {
                ImportFormat::BpftraceMap => "a map by args->id or by probe counts calls",
                _ => "syscount without -P",
            }),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, found, has};

    #[test]
    fn a_whole_log_of_one_thread_has_no_gaps() {
        let codes: Vec<String> = found(&clean(3))
            .into_iter()
            .map(|f| f.code.into_owned())
            .collect();
        for code in super::DOCS.iter().map(|doc| doc.code) {
            assert!(!codes.iter().any(|found| found == code), "{code}");
        }
    }

    #[test]
    fn threads_that_are_not_followed() {
        let text = "clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 102\nclose(3) = 0\n";
        assert!(has(text, "ONE_THREAD_OF_MANY"));
        let followed = format!("{text}[pid 102] close(4) = 0\n");
        assert!(!has(&followed, "ONE_THREAD_OF_MANY"));
    }

    #[test]
    fn chosen_events_are_not_all() {
        assert!(has(
            "1250,,syscalls:sys_enter_poll,12117319,50.00,,\n",
            "PARTIAL_COUNTS"
        ));
    }
}
