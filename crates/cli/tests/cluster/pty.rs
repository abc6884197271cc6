//! A command on a terminal of its own, and what a person would see there.

use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pty_process::Size;
use pty_process::blocking::Pty;
use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};

use super::{Killed, SOON, until};

/// A command that runs on a terminal.
pub(crate) struct OnTerminal {
    child: Killed,
    pty: Arc<Pty>,
    parser: Arc<Mutex<vt100::Parser>>,
}

impl OnTerminal {
    /// Starts a command on a terminal of that size.
    pub(crate) fn start(command: Command, columns: u16, rows: u16) -> Self {
        let (pty, pts) = pty_process::blocking::open().expect("the system has terminals");
        pty.resize(Size::new(rows, columns)).expect("any size");
        let command = pty_process::blocking::Command::from(command);
        let child = Killed(command.env("TERM", "xterm-256color").spawn(pts).expect("it starts"));
        let (pty, parser) = (Arc::new(pty), vt100::Parser::new(size(rows), size(columns), 0));
        let parser = Arc::new(Mutex::new(parser));
        let (read, parsed) = (Arc::clone(&pty), Arc::clone(&parser));
        // It ends with the command, whose end of the terminal is the last one.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = (&*read).read(&mut bytes) {
                parsed.lock().process(&bytes[..count]);
            }
        });
        Self { child, pty, parser }
    }

    /// Types keys.
    pub(crate) fn keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.parser.lock().screen_mut().set_size(size(rows), size(columns));
        self.pty.resize(Size::new(rows, columns)).expect("any size");
    }

    /// Returns what stands on the screen.
    pub(crate) fn screen(&self) -> String {
        self.parser.lock().screen().contents()
    }

    /// Returns the colour of the first letter of a text on the screen.
    pub(crate) fn colour_of(&self, text: &str) -> Option<vt100::Color> {
        let parser = self.parser.lock();
        let screen = parser.screen();
        let (_, columns) = screen.size();
        let found = |(row, line): (usize, String)| Some((row, line.find(text)?));
        let (row, column) = screen.rows(0, columns.get()).enumerate().find_map(found)?;
        let (row, column) = (u16::try_from(row).ok()?, u16::try_from(column).ok()?);
        screen.cell(row, column).map(vt100::Cell::fgcolor)
    }

    /// Waits until the screen is as wanted, and returns it.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let limit = std::time::Instant::now() + SOON;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(std::time::Instant::now() < limit, "{what} is not on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a line of the screen has all of these words.
    pub(crate) fn until_line(&self, words: &[&str]) -> String {
        self.until(&words.join(" "), |screen| {
            screen.lines().any(|line| words.iter().all(|word| line.contains(word)))
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Returns whether the process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the process can be looked at").is_none()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("the command ends", SOON, || child.try_wait().expect("our own child"))
    }

    /// Checks that the terminal is as a shell needs it: lines, echo, the usual screen, a cursor.
    pub(crate) fn assert_given_back(&self) {
        until("the usual screen is back", SOON, || {
            let parser = self.parser.lock();
            let screen = parser.screen();
            (!screen.alternate_screen() && !screen.hide_cursor()).then_some(())
        });
        let modes = tcgetattr(&*self.pty).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
    }

    /// Checks that it is taken over.
    pub(crate) fn assert_taken(&self) {
        assert!(self.parser.lock().screen().alternate_screen());
        let modes = tcgetattr(&*self.pty).expect("a terminal").local_modes;
        assert!(!modes.contains(LocalModes::ICANON));
    }
}

fn size(size: u16) -> NonZero<u16> {
    NonZero::new(size).expect("a terminal has rows and columns")
}
