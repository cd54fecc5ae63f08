//! The measured window of a program tree: opened by a word on its standard input, closed by a line on its
//! standard output, as the worker contract says.

use std::time::Instant;

use super::Window;
use crate::tally::Phase;
use crate::units::Nanos;

/// How much of a read has to be looked at to know the opening word.
pub(super) const OPENING: usize = 3;
/// How the line begins that closes the window.
pub(super) const CLOSING: &[u8] = br#"{"event":"done""#;

/// Where a program stands.
#[derive(Debug)]
pub(super) struct WindowState {
    markers: bool,
    phase: Phase,
    opened: Option<Instant>,
    length: Option<Nanos>,
}

impl WindowState {
    /// At the start of a program.
    pub(super) fn new(window: Window) -> WindowState {
        let (markers, phase) = match window {
            Window::Whole => (false, Phase::Loop),
            Window::Markers => (true, Phase::Startup),
        };
        WindowState {
            markers,
            phase,
            opened: None,
            length: None,
        }
    }

    /// The phase that calls entered now belong to.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether a read from descriptor 0 might open it.
    pub(super) fn may_open(&self) -> bool {
        self.markers && self.phase != Phase::Loop
    }

    /// Whether a write to descriptor 1 might close it.
    pub(super) fn may_close(&self) -> bool {
        self.markers && self.phase == Phase::Loop
    }

    /// A read has returned these first bytes.
    pub(super) fn has_read(&mut self, bytes: &[u8], now: Instant) {
        if self.may_open() && matches!(bytes, b"go" | [b'g', b'o', b'\n' | b'\r', ..]) {
            self.phase = Phase::Loop;
            self.opened = Some(now);
        }
    }

    /// A write of these first bytes is being entered.
    pub(super) fn will_write(&mut self, bytes: &[u8], now: Instant) {
        if self.may_close() && bytes == CLOSING {
            self.phase = Phase::Shutdown;
            self.stop_clock(now);
        }
    }

    /// The program's tree has ended. A window that was never closed ends here.
    pub(super) fn end(&mut self, now: Instant) {
        self.stop_clock(now);
    }

    fn stop_clock(&mut self, now: Instant) {
        if let Some(opened) = self.opened.take() {
            let span = Nanos::from(now.saturating_duration_since(opened));
            self.length = Some(self.length.unwrap_or_default() + span);
        }
    }

    /// How long it was open, all openings together; `None` when it never was.
    pub(super) fn length(&self) -> Option<Nanos> {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_word_opens_and_a_line_closes_and_another_word_opens_again() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut window = WindowState::new(Window::Markers);
        window.will_write(CLOSING, at(0));
        assert_eq!(window.phase(), Phase::Startup);
        for other in [&b"exi"[..], b"g", b"got", b""] {
            window.has_read(other, at(1));
            assert_eq!(window.phase(), Phase::Startup);
        }
        window.has_read(b"go\n", at(10));
        assert_eq!(window.phase(), Phase::Loop);
        window.will_write(br#"{"event":"ready"#, at(15));
        assert_eq!(window.phase(), Phase::Loop);
        window.will_write(CLOSING, at(20));
        assert_eq!(window.phase(), Phase::Shutdown);
        window.has_read(b"go", at(30));
        assert_eq!(window.phase(), Phase::Loop);
        window.end(at(35));
        assert_eq!(window.length(), Some(Nanos::from(Duration::from_millis(15))));
    }

    #[test]
    fn without_markers_everything_is_the_loop() {
        let mut window = WindowState::new(Window::Whole);
        window.will_write(CLOSING, Instant::now());
        assert_eq!(window.phase(), Phase::Loop);
        assert!(!window.may_open() && !window.may_close());
        assert_eq!(window.length(), None);
    }
}
