//! Reading queues and pressures many times a second while a run goes on, in a thread of its own.
//!
//! A full UNIX queue leaves no counter behind, and of a full TCP queue only a number: what was full, and
//! when, has to be seen while it is so. The client makes no call more for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::limits::Load;
use crate::proc::process::{Resource, Who, rlimit, same_netns};
use crate::proc::sockdiag::Listener;
use crate::proc::{Root, cgroup, net, pressure, sockdiag};
use crate::record::{Peak, Sampled, sampled};
use crate::strategy::contract::{Endpoint, Transport};
use crate::units::Nanos;

/// The shortest and the longest time between two readings: 50 and 10 Hz.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(100);

/// A reading may take this share of one CPU; where it takes longer, it is made less often.
const CPU_SHARE: u32 = 125;

/// Pressures are taken over so many readings: over a shorter time they are nearly always 0 or all.
const PRESSURE_EVERY: u64 = 10;

/// Stands for "between rows".
const NO_ROW: u64 = u64::MAX;

/// What is looked at.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// The server's addresses.
    pub endpoints: Vec<Endpoint>,
    /// Its process, when it runs on this machine.
    pub server: Option<i32>,
}

/// A thread that reads. Dropping it ends the thread.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    row: AtomicU64,
    so_far: Mutex<Sampled>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl Sampler {
    /// Begins to read. Where no thread can be started nothing is read, which is no reason to fail a run.
    pub fn start(watch: Watch) -> Sampler {
        let shared = Arc::new(Shared {
            row: AtomicU64::new(NO_ROW),
            so_far: Mutex::default(),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || {
                // Signals are for threads that know what to do with them.
                let _ = nix::sys::signal::SigSet::all().thread_block();
                run(&of_thread, Reader::new(watch));
            });
        Sampler {
            shared,
            thread: thread.ok(),
        }
    }

    /// From now on readings belong to the row with this number; `None`: to none.
    pub fn row(&self, row: Option<usize>) {
        let row = row.and_then(|row| u64::try_from(row).ok()).unwrap_or(NO_ROW);
        self.shared.row.store(row, Ordering::Relaxed);
    }

    /// What was read so far; `None` when nothing was.
    pub fn so_far(&self) -> Option<Sampled> {
        let so_far = self.shared.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        (so_far.samples > 0).then(|| so_far.clone())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        *self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, mut reader: Reader) {
    let begun = Instant::now();
    let mut cpu = cpu_time();
    let mut peaks: BTreeMap<(String, u64), Peak> = BTreeMap::new();
    loop {
        let row = shared.row.load(Ordering::Relaxed);
        let at_s = begun.elapsed().as_secs_f64();
        for reading in reader.read() {
            keep(&mut peaks, reading, row, at_s);
        }
        let now = cpu_time();
        {
            let mut so_far = shared.so_far.lock().unwrap_or_else(PoisonError::into_inner);
            so_far.samples = reader.readings;
            so_far.seconds = at_s;
            so_far.cpu_ns = Nanos::from(now);
            so_far.peaks = peaks.values().cloned().collect();
        }
        let pause = (now.saturating_sub(cpu) * CPU_SHARE).clamp(SHORTEST, LONGEST);
        cpu = now;
        let stop = shared.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let (stop, _) = shared
            .stopped
            .wait_timeout_while(stop, pause, |stop| !*stop)
            .unwrap_or_else(PoisonError::into_inner);
        if *stop {
            return;
        }
    }
}

fn keep(peaks: &mut BTreeMap<(String, u64), Peak>, reading: Reading, row: u64, at_s: f64) {
    let peak = Peak {
        name: reading.name.to_owned(),
        row: (row != NO_ROW).then_some(row),
        peak: reading.value,
        of: reading.of,
        at_s,
    };
    let known = peaks
        .entry((peak.name.clone(), row))
        .or_insert_with(|| peak.clone());
    if peak.peak > known.peak {
        *known = peak;
    }
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// One number that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    name: &'static str,
    value: u64,
    of: Option<u64>,
}

/// Reads everything once at each call.
struct Reader {
    root: Root,
    tcp: Option<Load>,
    unix: Option<Load>,
    /// Of the UNIX listener, when it has been found.
    inode: Option<u32>,
    throttle: Option<Throttle>,
    nofile: Option<u64>,
    pressure: Option<(Duration, Instant)>,
    readings: u64,
}

/// The group whose throttling is watched.
struct Throttle {
    server: i32,
    before: Option<(u64, Instant)>,
}

impl Reader {
    fn new(watch: Watch) -> Reader {
        let root = Root::live();
        // A listener of the same address in another namespace would be somebody else's.
        let here = match watch.server {
            Some(pid) => same_netns(&root, pid).unwrap_or(true),
            None => true,
        };
        let load = |transport| {
            let mut endpoints = watch.endpoints.iter();
            let endpoint = endpoints.find(|endpoint| endpoint.transport() == transport)?;
            here.then(|| Load::to(endpoint)).filter(|load| load.same_host)
        };
        Reader {
            tcp: load(Transport::Tcp),
            unix: load(Transport::Unix),
            inode: None,
            throttle: watch.server.map(|server| Throttle { server, before: None }),
            nofile: None,
            pressure: None,
            readings: 0,
            root,
        }
    }

    fn read(&mut self) -> Vec<Reading> {
        let mut readings = Vec::with_capacity(10);
        let mut put = |name, value, of| readings.push(Reading { name, value, of });
        if let Some(load) = &self.tcp
            && let Ok(listeners) = sockdiag::tcp_listeners()
            && let Some(listener) = load.listener(&listeners)
        {
            put(
                sampled::TCP_QUEUED,
                listener.queued.into(),
                Some(listener.capacity()),
            );
        }
        if let Some(listener) = self
            .unix
            .as_ref()
            .and_then(|load| unix_listener(load, &mut self.inode))
        {
            put(
                sampled::UNIX_QUEUED,
                listener.queued.into(),
                Some(listener.capacity()),
            );
        }
        if self.tcp.is_some()
            && let Ok(sockets) = net::sockstat(&self.root, Who::Me)
        {
            for name in [sampled::TIME_WAIT, sampled::TCP_IN_USE] {
                if let Some(value) = sockets.get(name) {
                    put(name, *value, None);
                }
            }
        }
        if let Ok((running, tasks)) = pressure::tasks(&self.root) {
            put(sampled::RUNNABLE, running, None);
            put(sampled::TASKS, tasks, None);
        }
        if let Some(group) = &self.throttle
            && let Some(open) = descriptors(&self.root, group.server)
        {
            put(sampled::SERVER_FDS, open, self.nofile);
        }
        if self.readings.is_multiple_of(PRESSURE_EVERY) {
            if let Some(group) = &self.throttle {
                let limit = rlimit(&self.root, Who::Pid(group.server), Resource::OpenFiles);
                self.nofile = limit.ok().and_then(|limit| limit.soft);
            }
            if let Some(percent) = self.cpu_pressure() {
                put(sampled::CPU_PRESSURE, percent, None);
            }
            if let Some(percent) = self.throttle.as_mut().and_then(|group| group.read(&self.root)) {
                put(sampled::THROTTLED, percent, None);
            }
        }
        self.readings += 1;
        readings
    }

    fn cpu_pressure(&mut self) -> Option<u64> {
        let total = pressure::cpu_some(&self.root).ok()?;
        let now = Instant::now();
        let before = self.pressure.replace((total, now));
        let (then, at) = before?;
        percent(total.saturating_sub(then), now - at)
    }
}

impl Throttle {
    fn read(&mut self, root: &Root) -> Option<u64> {
        let counters = cgroup::counters(root, Who::Pid(self.server));
        let throttled = *counters.get("cpu.stat.throttled_usec")?;
        let now = Instant::now();
        let (then, at) = self.before.replace((throttled, now))?;
        percent(Duration::from_micros(throttled.saturating_sub(then)), now - at)
    }
}

/// The UNIX listener of an address; looked for among all until it is known.
fn unix_listener(load: &Load, known: &mut Option<u32>) -> Option<Listener> {
    if let Some(inode) = *known
        && let Ok(Some(listener)) = sockdiag::unix_listener_of(inode)
    {
        return Some(listener);
    }
    let listeners = sockdiag::unix_listeners().ok()?;
    let listener = load.listener(&listeners).cloned();
    *known = listener.as_ref().map(|listener| listener.inode);
    listener
}

/// How many descriptors a process has open. Since Linux 6.2 the folder's size tells, which costs the same
/// for any number; before that it is 0, and nothing is said.
fn descriptors(root: &Root, pid: i32) -> Option<u64> {
    let folder = std::fs::metadata(root.path(&Who::Pid(pid).file("fd"))).ok()?;
    Some(folder.len()).filter(|open| *open > 0)
}

fn percent(part: Duration, whole: Duration) -> Option<u64> {
    let share = part.as_secs_f64() / whole.as_secs_f64();
    // A negative or infinite share cannot come from two readings at different times.
    share.is_finite().then(|| (share * 100.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_fills_is_seen_with_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(3).unwrap()).unwrap();
        let endpoint = Endpoint::Unix {
            path: path.to_str().unwrap().to_owned(),
            user: None,
            password: None,
        };
        if let Err(e) = sockdiag::unix_listeners() {
            return println!("SKIP: the kernel does not answer socket queries here: {e}");
        }
        let sampler = Sampler::start(Watch {
            endpoints: vec![endpoint],
            server: None,
        });
        sampler.row(Some(4));
        let waiting: Vec<_> = (0..3)
            .map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap())
            .collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let seen = loop {
            let so_far = sampler.so_far().unwrap_or_default();
            let peak = so_far.peak(sampled::UNIX_QUEUED, 4).cloned();
            match peak.filter(|peak| peak.peak == 3) {
                Some(peak) => break peak,
                None if Instant::now() > deadline => panic!("{so_far:?}"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert_eq!(seen.of, Some(4));
        drop((waiting, sampler));
    }

    #[test]
    fn only_the_largest_value_stays() {
        let mut peaks = BTreeMap::new();
        let reading = |value| Reading {
            name: sampled::TIME_WAIT,
            value,
            of: None,
        };
        for (value, at) in [(3, 0.1), (9, 0.2), (9, 0.3), (4, 0.4)] {
            keep(&mut peaks, reading(value), 0, at);
        }
        keep(&mut peaks, reading(50), NO_ROW, 0.5);
        let all: Vec<_> = peaks.values().map(|p| (p.row, p.peak, p.at_s)).collect();
        assert_eq!(all, [(Some(0), 9, 0.2), (None, 50, 0.5)]);
    }
}
