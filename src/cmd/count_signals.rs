//! What becomes of signals that systally gets while it counts a program that it started.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::unistd::{getpgrp, tcgetpgrp};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::Order;
use crate::sys::process::PidFd;

use super::{Code, CommandError, WithCode};

/// How long descendants that have outlived the program may take to end after TERM or HUP.
const TERM_PATIENCE: Duration = Duration::from_secs(3);
/// How often to look whether the program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Passes on what was sent to systally alone. What the terminal sends (Ctrl-C, Ctrl-\) reaches the
/// program by itself, and systally only stays to print the table.
///
/// When the program has ended, then or by that signal, the signal goes to all that it left behind and is still
/// counted, and what does not end by it is killed: nobody else would end it, and the table waits for it.
///
/// # Errors
/// When no thread can be started for it.
pub(super) fn forward(
    mut signals: Signals,
    targets: Vec<PidFd>,
    everything: Order,
) -> Result<signal_hook::iterator::Handle, CommandError> {
    let targets = Arc::new(targets);
    let handle = signals.handle();
    let pass_on = move || {
        for number in signals.forever() {
            let from_terminal = matches!(number, SIGINT | SIGQUIT)
                && tcgetpgrp(io::stdin())
                    .or_else(|_| tcgetpgrp(io::stderr()))
                    .is_ok_and(|group| group == getpgrp());
            if from_terminal {
                continue;
            }
            for target in targets.iter() {
                // One that has ended is no error; what it left behind is seen to below.
                let _ = target.signal(number);
            }
            if matches!(number, SIGTERM | SIGHUP | SIGINT | SIGQUIT) {
                let (program, left) = (Arc::clone(&targets), everything.clone());
                let end = move || {
                    // Until it is reaped, a signal can still be sent to it. It may take its time to end.
                    while program.iter().any(|target| target.signal(0).is_ok()) {
                        thread::sleep(LOOK_EVERY);
                    }
                    left.signal_all(number);
                    thread::sleep(TERM_PATIENCE);
                    left.signal_all(libc::SIGKILL);
                };
                // Without room for a thread nobody waits.
                if thread::Builder::new().spawn(end).is_err() {
                    everything.signal_all(number);
                }
            }
        }
    };
    thread::Builder::new()
        .spawn(pass_on)
        .context("cannot start a thread that passes signals on (ulimit -u)")
        .code(Code::CannotMeasure)?;
    Ok(handle)
}
