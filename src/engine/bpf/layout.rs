//! What programs and user space share: the byte offsets in the values and keys of the maps. They are
//! plain numbers because the programs address memory by number.

/// Task storage: what is known of one task that is followed.
pub(super) mod state {
    /// Index of the program it descends from (4 bytes).
    pub(in crate::engine::bpf) const PROGRAM: i16 = 0;
    /// The flags below (4 bytes).
    pub(in crate::engine::bpf) const FLAGS: i16 = 4;
    /// Number of the call it is in, without the x32 bit (8).
    pub(in crate::engine::bpf) const NUMBER: i16 = 8;
    /// Where the call is counted in the table; no less than the table's length for the hash (4).
    pub(in crate::engine::bpf) const PLACE: i16 = 16;
    /// Phase in the low byte, ABI in the next one (4).
    pub(in crate::engine::bpf) const KIND: i16 = 20;
    /// When it entered, CLOCK_MONOTONIC in nanoseconds (8).
    pub(in crate::engine::bpf) const ENTERED: i16 = 24;
    /// The buffer of a call that may be a marker (8).
    pub(in crate::engine::bpf) const BUFFER: i16 = 32;
    /// Errno of a call that the kernel may restart (8).
    pub(in crate::engine::bpf) const RESTART: i16 = 40;
    /// How long that call took (8).
    pub(in crate::engine::bpf) const ELAPSED: i16 = 48;
    /// All of it.
    pub(in crate::engine::bpf) const BYTES: u32 = 56;

    /// It is in a call.
    pub(in crate::engine::bpf) const IN_CALL: i32 = 1;
    /// Its next return belongs to a call that it did not make: the fork it was born by.
    pub(in crate::engine::bpf) const NEWBORN: i32 = 1 << 1;
    /// Nothing is counted until it enters execve.
    pub(in crate::engine::bpf) const BEFORE_EXEC: i32 = 1 << 2;
    /// Its last call returned with a restart code; whether it came back to the program is not known yet.
    pub(in crate::engine::bpf) const RESTARTING: i32 = 1 << 3;
    /// It is in a `read(0)`.
    pub(in crate::engine::bpf) const MAYBE_GO: i32 = 1 << 4;
    /// It is in a write to descriptor 1 whose buffer could not be read at its entry.
    pub(in crate::engine::bpf) const MAYBE_DONE: i32 = 1 << 5;
    /// It is in a receive that only peeks.
    pub(in crate::engine::bpf) const PEEK: i32 = 1 << 6;
    /// Its call was never seen to enter: a seccomp filter of its own refused it.
    pub(in crate::engine::bpf) const REFUSED: i32 = 1 << 7;
}

/// What is counted for one call.
pub(super) mod tally {
    /// Calls that returned.
    pub(in crate::engine::bpf) const CALLS: i16 = 0;
    /// Nanoseconds in the call.
    pub(in crate::engine::bpf) const TIME: i16 = 8;
    /// Sum of positive results.
    pub(in crate::engine::bpf) const SUM: i16 = 16;
    /// Successful receives that only peeked.
    pub(in crate::engine::bpf) const PEEKS: i16 = 24;
    /// Returns with EAGAIN, the only errno that is frequent enough to need a place of its own.
    pub(in crate::engine::bpf) const AGAIN: i16 = 32;
    /// Calls by duration: [`BUCKETS`] counters.
    pub(in crate::engine::bpf) const TIMES: i16 = 40;
    /// Counters of durations. The first is for less than 2^(FIRST_LOG2 + 1) ns, each further one for twice
    /// as long, the last for everything longer.
    pub(in crate::engine::bpf) const BUCKETS: i32 = 32;
    /// Log2 of the nanoseconds of the first counter.
    pub(in crate::engine::bpf) const FIRST_LOG2: i32 = 5;
    /// All of it.
    pub(in crate::engine::bpf) const BYTES: i32 = TIMES as i32 + 8 * BUCKETS;
}

/// A key of the hashes: eight bytes of number, then phase, ABI, two bytes of zero, errno.
pub(super) mod key {
    /// Its length.
    pub(in crate::engine::bpf) const BYTES: i32 = 16;
    /// How far the errno lies from the phase, in bits of the second half.
    pub(in crate::engine::bpf) const ERRNO_SHIFT: i32 = 32;
    /// How far the ABI lies from the phase.
    pub(in crate::engine::bpf) const ABI_SHIFT: i32 = 8;
}

/// The foreign ABIs of x86-64, as they stand in keys; 0 is the native one.
pub(super) mod abi {
    /// i386.
    pub(in crate::engine::bpf) const I386: i32 = 1;
    /// x32.
    pub(in crate::engine::bpf) const X32: i32 = 2;
}

/// Phases, as they stand in keys and in the programs' windows.
pub(super) mod phase {
    /// Up to `go`.
    pub(in crate::engine::bpf) const STARTUP: i32 = 0;
    /// The measured window.
    pub(in crate::engine::bpf) const LOOP: i32 = 1;
    /// After `done`.
    pub(in crate::engine::bpf) const SHUTDOWN: i32 = 2;
    /// How many there are.
    pub(in crate::engine::bpf) const COUNT: i32 = 3;
}

/// The one value of the array of everything else.
pub(super) mod globals {
    /// Tasks that are alive (8).
    pub(in crate::engine::bpf) const LIVE: i32 = 0;
    /// Tasks that were ever followed (8).
    pub(in crate::engine::bpf) const SEEN: i32 = 8;
    /// Counters of [`Loss`](super::Loss), 8 bytes each.
    pub(in crate::engine::bpf) const LOST: i32 = 16;
    /// A tally of zeroes, from which new ones are made.
    pub(in crate::engine::bpf) const ZEROES: i32 = LOST + 8 * super::Loss::ALL.len() as i32;
    /// The window of each program, [`window::BYTES`](super::window::BYTES) each.
    pub(in crate::engine::bpf) const WINDOWS: i32 = ZEROES + super::tally::BYTES;
}

/// Where one program stands.
pub(super) mod window {
    /// Its phase (4 bytes).
    pub(in crate::engine::bpf) const PHASE: i16 = 0;
    /// When the window was opened last, CLOCK_MONOTONIC in nanoseconds (8).
    pub(in crate::engine::bpf) const OPENED: i16 = 8;
    /// How long it was open up to the last `done`, in nanoseconds (8).
    pub(in crate::engine::bpf) const LENGTH: i16 = 16;
    /// All of it.
    pub(in crate::engine::bpf) const BYTES: i32 = 24;
}

/// System calls of the native ABI with smaller numbers are counted in a table, the others in a hash.
/// Linux 6.18 ends at 470.
pub(super) const TABLE_NUMBERS: i32 = 512;

/// Ways in which a count can be lost. None of them should ever happen; each is counted, so that a count
/// that is not exact is never taken for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// A call was entered within a call.
    Nested,
    /// There was no memory to follow a new task.
    Task,
    /// There was no room for one more kind of call.
    Call,
    /// There was no room for one more kind of failure.
    Errno,
    /// There was no room for one more kind of restarted call.
    Restart,
    /// There was no room for one more kind of unfinished call.
    Unfinished,
    /// The buffer of a call that may be a marker could not be read.
    Marker,
}

impl Loss {
    /// All of them, in the order of their counters.
    pub(super) const ALL: [Loss; 7] = [
        Loss::Nested,
        Loss::Task,
        Loss::Call,
        Loss::Errno,
        Loss::Restart,
        Loss::Unfinished,
        Loss::Marker,
    ];

    /// Where its counter lies in the globals.
    pub(super) fn offset(self) -> i32 {
        globals::LOST + 8 * self as i32
    }

    /// What was lost, for the reader of the counts.
    pub(super) fn says(self) -> &'static str {
        match self {
            Loss::Nested => "returns of calls were not seen",
            Loss::Task => "new threads or processes could not be followed (no kernel memory)",
            Loss::Call => "calls of foreign ABIs or unknown numbers found no room",
            Loss::Errno => "failures found no room",
            Loss::Restart => "restarted calls found no room",
            Loss::Unfinished => "unfinished calls found no room",
            Loss::Marker => "possible markers could not be read",
        }
    }
}
