//! The terminal of `top`: taken over at the start, given back at the end, whatever the end is.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal;
use tokio::sync::mpsc;

/// Keys that wait while a frame is drawn. Further ones stay in the terminal's own buffer. Chosen,
/// not measured: more than a person types in that time.
const KEYS_MAX: usize = 64;

/// How long the thread that reads keys waits for one until it checks whether it is to end: the end
/// of the command is late by that at most. Chosen, not measured.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Returns why there can be no screen here, if there cannot.
pub(super) fn obstacle() -> Option<&'static str> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Some("stdin and stdout must be a terminal");
    }
    match std::env::var_os("TERM") {
        Some(term) if !term.is_empty() && term != "dumb" => None,
        _ => Some("TERM names no terminal that can be drawn on"),
    }
}

/// The terminal while it shows frames. Dropped, it is as it was before; a panic restores it too.
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()? })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone away needs nothing.
        let _ = ratatui::try_restore();
    }
}

/// Gives the terminal its line mode back when it is dropped, without writing to it: a terminal that
/// accepts no more bytes must not keep the process.
#[derive(Debug)]
pub(super) struct LineModeGuard;

impl Drop for LineModeGuard {
    fn drop(&mut self) {
        let _ = terminal::disable_raw_mode();
    }
}

/// The thread that reads keys. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct KeyReader {
    pub(super) keys: mpsc::Receiver<io::Result<Event>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeyReader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("keys".to_owned());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let read = match event::poll(STOP_POLL_INTERVAL) {
                    Ok(true) => event::read(),
                    Ok(false) => continue,
                    Err(error) => Err(error),
                };
                let is_end = read.is_err();
                if sender.blocking_send(read).is_err() || is_end {
                    return;
                }
            }
        })?;
        Ok(Self { keys, stop, thread: Some(thread) })
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It may wait to send.
        self.keys.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::num::NonZero;

    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Set in the process that takes a terminal over and panics.
    const CHILD: &str = "SANDERLING_TEST_PANICS";

    #[test]
    fn panic_gives_the_terminal_back() {
        if std::env::var_os(CHILD).is_some() {
            let _screen = Screen::open().expect("stdout is a terminal");
            panic!("on purpose");
        }
        let (mut pty, pts) = pty_process::blocking::open().expect("the system has terminals");
        pty.resize(pty_process::Size::new(10, 60)).expect("any size");
        let program = std::env::current_exe().expect("the test is a program");
        let command = pty_process::blocking::Command::new(program)
            .args(["--exact", "screen::tests::panic_gives_the_terminal_back", "--nocapture"])
            .env("RUST_BACKTRACE", "0")
            .env(CHILD, "1");
        let mut child = command.spawn(pts).expect("it starts");
        let mut written = Vec::new();
        // Reading ends with an error when the child's end is closed.
        let _ = pty.read_to_end(&mut written);
        assert!(!child.wait().expect("our own child").success());
        let size = |size| NonZero::new(size).expect("it is not zero");
        let mut parser = vt100::Parser::new(size(10), size(60), 0);
        parser.process(&written);
        assert!(!parser.screen().alternate_screen());
        assert!(!parser.screen().hide_cursor());
        let written = String::from_utf8_lossy(&written);
        let place = |text| written.find(text).expect("it is written");
        assert!(place("\u{1b}[?1049h") < place("\u{1b}[?1049l"), "it was taken over");
        assert!(place("\u{1b}[?1049l") < place("on purpose"), "the panic can be read");
        let modes = tcgetattr(&pty).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    }
}
