//! Ctrl-C and its kin as a flag that every wait looks at, so that a run that is cut short still saves
//! what it has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::process::{ENDING, default_signals, is_ignored};

/// Whether the user asked to stop. Cheap to clone and to ask.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// A flag that nothing sets; for tests and for runs that end by themselves.
    pub fn never() -> Interrupt {
        Interrupt::default()
    }

    /// Takes over SIGINT, SIGTERM, SIGHUP and SIGQUIT for the rest of the process, but for those that whoever
    /// started it wants ignored, as nohup(1) does with SIGHUP.
    ///
    /// # Errors
    /// When the handlers cannot be installed (sigaction(2)).
    pub fn install() -> io::Result<Interrupt> {
        let flag = Interrupt::default();
        for signal in ENDING {
            if is_ignored(signal) {
                continue;
            }
            signal_hook::flag::register_usize(signal, Arc::clone(&flag.0), signal as usize)?;
        }
        Ok(flag)
    }

    /// Gives these signals their usual effect again: the run is over and everything that it started is gone, so
    /// that whoever ends the process while it writes its results (to a pipe that nobody empties) is heard.
    pub fn release(&self) {
        default_signals();
    }

    /// The signal that came, if one came.
    pub fn signal(&self) -> Option<i32> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Whether to stop.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }
}
