//! One set of maps with its four programs, attached: what a session owns.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use super::asm::AsmError;
use super::btf::{OWN_IDS, own_types};
use super::collect;
use super::kernel::{Kernel, KernelError};
use super::layout::{Loss, TABLE_NUMBERS, globals, key, phase, state, tally, window};
use super::programs::{self, Maps, Plan};
use crate::engine::Window;
use crate::proc::Root;
use crate::sys::bpf::{Instruction, Link, Map, MapKind, MapShape, Program, Types};
use crate::tally::PhaseTallies;
use crate::units::{Nanos, escape};

/// The helpers that tell which task is running and read its memory are for programs under the GPL or a
/// licence that the kernel holds compatible with it; ours are under the MIT licence, or that.
const LICENSE: &str = "Dual MIT/GPL";

/// The place of the program for returns among those that [`load`] makes.
const RETURN: usize = 2;

/// Kinds of failure (call, phase, errno) that there is room for.
const ERRORS: u32 = 8_192;
/// Kinds of call that are not in the table.
const OTHERS: u32 = 1_024;
/// Kinds of restarted call.
const RESTARTS: u32 = 128;
/// Kinds of unfinished call.
const UNFINISHED: u32 = 2_048;

/// Why the programs could not be put to work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TracerError {
    /// What the kernel says of itself is missing.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// The errno.
        source: Errno,
    },
    /// The verifier refused a program.
    #[error("the kernel refused the BPF program {name}: {source}: {log}")]
    Refused {
        /// Which one.
        name: &'static str,
        /// The errno.
        source: Errno,
        /// The end of what the verifier said.
        log: String,
    },
}

impl TracerError {
    /// What the kernel said, unless it was the verifier, whose errno says nothing about rights.
    pub(super) fn errno(&self) -> Option<Errno> {
        match self {
            TracerError::Kernel(_) => None,
            TracerError::Refused { log, .. } if !log.is_empty() => None,
            TracerError::System { source, .. } | TracerError::Refused { source, .. } => Some(*source),
        }
    }
}

/// Attached programs and their maps.
#[derive(Debug)]
pub(super) struct Tracer {
    maps: Maps,
    programs: Vec<Program>,
    // Only held: dropping them detaches the programs.
    links: Vec<Link>,
    markers: bool,
    /// Tasks that are followed from the middle of their lives. The kernel's counters do not have them:
    /// nothing but a BPF program could add to those safely.
    adopted: AtomicU64,
}

/// What the counters of the globals say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Census {
    /// Tasks alive.
    pub(super) live: u64,
    /// Tasks ever followed.
    pub(super) seen: u64,
}

impl Tracer {
    /// Loads and attaches everything; nothing is counted until a task is followed.
    pub(super) fn attach(programs: usize, window: Window) -> Result<Tracer, TracerError> {
        let markers = match window {
            Window::Whole => false,
            Window::Markers => true,
        };
        let programs = i32::try_from(programs.max(1)).map_err(|_| TracerError::System {
            operation: "count so many programs",
            source: Errno::E2BIG,
        })?;
        Tracer::put_to_work(load(programs, programs, markers)?, markers)
    }

    /// The same for tasks that run already; see [`Tracer::adopt`].
    pub(super) fn attach_to_running() -> Result<Tracer, TracerError> {
        Tracer::put_to_work(load(1, 0, false)?, false)
    }

    fn put_to_work((maps, programs): (Maps, Vec<Program>), markers: bool) -> Result<Tracer, TracerError> {
        let links = programs
            .iter()
            .map(|program| {
                program
                    .attach()
                    .map_err(failed("attach a BPF program to its tracepoint"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Tracer {
            maps,
            programs,
            links,
            markers,
            adopted: AtomicU64::new(0),
        })
    }

    /// Whether [`Tracer::attach`] would work, without a moment's cost to the rest of the machine.
    pub(super) fn try_out() -> Result<(), TracerError> {
        load(1, 1, true).map(drop)
    }

    /// Follows the process of a pidfd, which must not have executed its program yet, as program `index`.
    pub(super) fn follow(&self, pidfd: &impl AsFd, index: usize) -> Result<(), TracerError> {
        let mut value = [0u8; state::BYTES as usize];
        let flags = state::NEWBORN | state::BEFORE_EXEC;
        value[state::PROGRAM as usize..][..4].copy_from_slice(&(index as u32).to_ne_bytes());
        value[state::FLAGS as usize..][..4].copy_from_slice(&flags.to_ne_bytes());
        self.maps
            .tasks
            .put_task(pidfd.as_fd(), &value)
            .map_err(failed("follow a process with BPF"))
    }

    /// Whether the process of a pidfd is followed. One that has ended meanwhile is not.
    pub(super) fn follows(&self, pidfd: &impl AsFd) -> bool {
        self.maps.tasks.holds_task(pidfd.as_fd()).unwrap_or(false)
    }

    /// Follows a task from where it is: a call that it is in is not counted. False when it was followed
    /// already.
    pub(super) fn adopt(&self, pidfd: &impl AsFd) -> Result<bool, Errno> {
        let mut value = [0u8; state::BYTES as usize];
        // As after its birth: a return without an entry is not its own.
        value[state::FLAGS as usize..][..4].copy_from_slice(&state::NEWBORN.to_ne_bytes());
        let new = self.maps.tasks.make_task(pidfd.as_fd(), &value)?;
        if new {
            self.adopted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(new)
    }

    /// Ends the counting while tasks run on, at the moment from which returns are not seen any more. What a
    /// task is in the middle of stays as it is. Returns what was lost, as [`Tracer::losses`].
    pub(super) fn stop(&mut self) -> Result<Option<String>, TracerError> {
        let lost = self.losses()?;
        // Entries that are still seen after that look like calls within calls, and are not.
        if self.links.len() > RETURN {
            drop(self.links.remove(RETURN));
        }
        // The entries next, then what follows tasks.
        while let Some(link) = self.links.pop() {
            drop(link);
        }
        match lost {
            Some(lost) => Ok(Some(lost)),
            None => self.losses_but(&[Loss::Nested]),
        }
    }

    /// Adds the call that the task of a pidfd is in to the unfinished ones. Only once counting has ended.
    pub(super) fn add_unfinished(
        &self,
        pidfd: &impl AsFd,
        tallies: &mut PhaseTallies,
    ) -> Result<(), TracerError> {
        let state = self.maps.tasks.task(pidfd.as_fd());
        if let Some(state) = state.map_err(failed("ask what a task is in the middle of"))? {
            collect::unfinished(tallies, &state);
        }
        Ok(())
    }

    /// How many tasks there are and were.
    pub(super) fn census(&self) -> Result<Census, TracerError> {
        let globals = self.globals()?;
        let adopted = self.adopted.load(Ordering::Relaxed);
        Ok(Census {
            // The kernel's number goes below zero when adopted tasks end.
            live: number(&globals, globals::LIVE).wrapping_add(adopted),
            seen: number(&globals, globals::SEEN) + adopted,
        })
    }

    /// What was lost, in words; `None` when every event was counted.
    pub(super) fn losses(&self) -> Result<Option<String>, TracerError> {
        self.losses_but(&[])
    }

    fn losses_but(&self, harmless: &[Loss]) -> Result<Option<String>, TracerError> {
        let globals = self.globals()?;
        let mut lost: Vec<String> = Loss::ALL
            .into_iter()
            .filter(|loss| !harmless.contains(loss))
            .map(|loss| (number(&globals, loss.offset()), loss.says()))
            .filter(|(n, _)| *n > 0)
            .map(|(n, says)| format!("{n} {says}"))
            .collect();
        let mut misses = 0;
        for program in &self.programs {
            misses += program
                .misses()
                .map_err(failed("ask how often a BPF program was skipped"))?;
        }
        if misses > 0 {
            lost.push(format!(
                "{misses} events came while the kernel was already counting one"
            ));
        }
        Ok((!lost.is_empty()).then(|| lost.join(", ")))
    }

    /// How long each program's window was open; `None` when it never was.
    pub(super) fn windows(&self, programs: usize, now: Nanos) -> Result<Vec<Option<Nanos>>, TracerError> {
        let globals = self.globals()?;
        Ok((0..programs as i32)
            .map(|program| {
                let at = globals::WINDOWS + program * window::BYTES;
                let opened = number(&globals, at + i32::from(window::OPENED));
                let length = number(&globals, at + i32::from(window::LENGTH));
                // A window that nothing closed is open up to now.
                let is_open = word(&globals, at + i32::from(window::PHASE)) == phase::LOOP as u32;
                let length = if is_open {
                    length + now.0.saturating_sub(opened)
                } else {
                    length
                };
                (opened > 0).then_some(Nanos(length))
            })
            .collect())
    }

    /// Everything that was counted.
    pub(super) fn tallies(&self) -> Result<PhaseTallies, TracerError> {
        collect::tallies(&self.maps, self.markers).map_err(failed("read what BPF has counted"))
    }

    fn globals(&self) -> Result<Vec<u8>, TracerError> {
        let value = self
            .maps
            .globals
            .get(&0u32.to_ne_bytes())
            .map_err(failed("read the BPF counters"))?;
        value.ok_or(TracerError::System {
            operation: "read the BPF counters",
            source: Errno::ENOENT,
        })
    }
}

/// Makes the maps, and loads the programs in the order in which they have to be attached: what follows
/// tasks comes before what counts their calls. `tasks` are followed before anything happens.
fn load(count: i32, tasks: i32, markers: bool) -> Result<(Maps, Vec<Program>), TracerError> {
    type Text = fn(Plan<'_>) -> Result<Vec<Instruction>, AsmError>;
    let kernel = Kernel::running()?;
    let maps = make_maps(count, tasks, markers)?;
    let plan = Plan {
        kernel,
        maps: &maps,
        programs: count,
        markers,
    };
    let texts: [(&'static str, u32, Text); 4] = [
        ("systally_end", kernel.end, programs::end),
        ("systally_fork", kernel.fork, programs::fork),
        ("systally_exit", kernel.exit, programs::leave_call),
        ("systally_enter", kernel.enter, programs::enter),
    ];
    let load = |(name, id, text): (&'static str, u32, Text)| {
        let refused = |source, log| TracerError::Refused { name, source, log };
        let code = text(plan).map_err(|error| refused(Errno::EINVAL, error.to_string()))?;
        Program::load(name, &code, LICENSE, id)
            .map_err(|rejected| refused(rejected.errno, verdict(&rejected.log)))
    };
    let programs = texts.into_iter().map(load).collect::<Result<_, _>>()?;
    Ok((maps, programs))
}

/// Eight bytes of the globals.
fn number(globals: &[u8], at: i32) -> u64 {
    collect::number(globals, at as usize)
}

/// Four bytes of the globals.
fn word(globals: &[u8], at: i32) -> u32 {
    number(globals, at) as u32
}

fn make_maps(programs: i32, tasks_at_start: i32, markers: bool) -> Result<Maps, TracerError> {
    let cpus = possible_cpus()?;
    let types = Types::load(&own_types(state::BYTES)).map_err(failed("load BPF type information"))?;
    let make = |name, kind, key: i32, value: i32, entries: u32| {
        let shape = MapShape {
            kind,
            key: key as u32,
            value: value as u32,
            entries,
        };
        Map::create(name, shape, cpus).map_err(failed("make a BPF map"))
    };
    let table_length = TABLE_NUMBERS * if markers { phase::COUNT } else { 1 };
    let globals_bytes = globals::WINDOWS + programs * window::BYTES;
    let tasks = Map::task_storage("systally_tasks", state::BYTES, &types, OWN_IDS)
        .map_err(failed("make BPF task storage"))?;
    let globals = make("systally_global", MapKind::Array, 4, globals_bytes, 1)?;
    // Programs that are started are followed before any of them executes.
    let mut start = vec![0u8; globals_bytes as usize];
    for counter in [globals::LIVE, globals::SEEN] {
        start[counter as usize..][..8].copy_from_slice(&u64::from(tasks_at_start as u32).to_ne_bytes());
    }
    globals
        .put(&0u32.to_ne_bytes(), &start)
        .map_err(failed("set the BPF counters"))?;
    Ok(Maps {
        tasks,
        globals,
        table: make(
            "systally_table",
            MapKind::PerCpuArray,
            4,
            tally::BYTES,
            table_length as u32,
        )?,
        others: make(
            "systally_others",
            MapKind::PerCpuHash,
            key::BYTES,
            tally::BYTES,
            OTHERS,
        )?,
        errors: make("systally_errors", MapKind::PerCpuHash, key::BYTES, 8, ERRORS)?,
        restarts: make(
            "systally_again",
            MapKind::PerCpuHash,
            key::BYTES,
            tally::BYTES,
            RESTARTS,
        )?,
        unfinished: make("systally_never", MapKind::Hash, key::BYTES, 8, UNFINISHED)?,
    })
}

/// One more than the greatest number of a CPU that there may ever be: per-CPU values have a copy for each.
fn possible_cpus() -> Result<usize, TracerError> {
    let text = Root::live()
        .read("sys/devices/system/cpu/possible")
        .unwrap_or_default();
    let last = text
        .trim()
        .rsplit([',', '-'])
        .next()
        .and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or(TracerError::System {
        operation: "read how many CPUs there may be (/sys/devices/system/cpu/possible)",
        source: Errno::ENODATA,
    })
}

fn failed(operation: &'static str) -> impl Fn(Errno) -> TracerError {
    move |source| TracerError::System { operation, source }
}

/// The end of the verifier's protocol, which says what it did not like.
fn verdict(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    escape(&lines[lines.len().saturating_sub(3)..].join(" / "), 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_before_a_program_is_followed() {
        for window in [Window::Whole, Window::Markers] {
            let tracer = match Tracer::attach(3, window) {
                Ok(tracer) => tracer,
                Err(error) => return println!("SKIP: BPF programs cannot be loaded here: {error}"),
            };
            assert_eq!(tracer.census(), Ok(Census { live: 3, seen: 3 }));
            assert_eq!(tracer.tallies(), Ok(PhaseTallies::default()));
            assert_eq!(tracer.losses(), Ok(None));
            assert_eq!(tracer.windows(3, Nanos(1)), Ok(vec![None; 3]));
        }
    }

    #[test]
    fn the_verifier_s_verdict_is_the_end_of_its_words() {
        assert_eq!(verdict("a\n\nb\nc\nd\n"), "b / c / d");
        assert_eq!(verdict(""), "");
    }
}
