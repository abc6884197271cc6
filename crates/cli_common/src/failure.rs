//! How a command fails: a documented exit code, the cause, what was tried, and the next command.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::printable::printable;
use crate::refused::shell_word;

/// The exit codes, as `sanderling --help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// It failed, and trying again will not help.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The named thing does not exist.
    NotFound = 3,
    /// A server cannot be reached or has no room now: try again.
    Unavailable = 4,
    /// Some of the data is lost; the rest was done.
    Partial = 5,
    /// The deadline passed.
    Deadline = 124,
    /// Interrupted by the user.
    Interrupted = 130,
}

impl Exit {
    /// Returns the number given to the shell.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// The kind of the failure of something done to a local file.
pub const LOCAL_FILE: &str = "LocalFile";

/// The kind of the failure when no server answers.
pub const UNREACHABLE: &str = "Unreachable";

/// The kind of the failure when a server refuses a caller without a token that it accepts.
pub const UNAUTHENTICATED: &str = "Unauthenticated";

/// The kind of the failure when a token does not allow what was requested.
pub const FORBIDDEN: &str = "Forbidden";

/// The kind of the failure when an address is none, or not that of the server that is meant.
pub const BAD_ADDRESS: &str = "BadAddress";

/// The kind of the failure when a token, a secret or a certificate cannot be used.
pub const CREDENTIALS: &str = "Credentials";

/// A command's failure. An error that its reader caused by leaving (a broken pipe) is silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// Its stable name for scripts, such as `NotFound`.
    pub kind: String,
    /// The cause: lower case, the fact, then the values. Empty: nothing is printed.
    pub cause: String,
    /// What was tried.
    pub tried: Option<String>,
    /// The next command to type.
    pub next: Option<String>,
    /// The object that it is about, if it is about one.
    pub path: Option<Box<str>>,
    /// Whether one local file is the reason, so that others may still be read or written.
    pub is_of_one_file: bool,
}

impl Failure {
    /// Makes a failure from its cause.
    #[must_use]
    pub fn new(exit: Exit, kind: &str, cause: impl fmt::Display) -> Self {
        Self {
            exit,
            kind: kind.to_owned(),
            cause: cause.to_string(),
            tried: None,
            next: None,
            path: None,
            is_of_one_file: false,
        }
    }

    /// Returns the failure of a wrong command line, with exit code 2.
    #[must_use]
    pub fn usage(cause: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, "Usage", cause)
    }

    /// Ends the command with a code and without a message: its output is complete.
    #[must_use]
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "", "")
    }

    /// Makes the failure of something done to a local file.
    #[must_use]
    pub fn file(path: &Path, error: &io::Error) -> Self {
        // Without the number of the error, which its words repeat.
        let words = error.to_string();
        let words = words.split(" (os error ").next().unwrap_or_default();
        let cause = format!("{}: {words}", path.display());
        let failure = Self::new(Exit::Failure, LOCAL_FILE, cause.clone());
        match error.kind() {
            io::ErrorKind::NotFound => {}
            kind if is_without_room(kind) => return failure.next(free_space(path)),
            _ => return failure.of_one_file(),
        }
        let failure = Self::new(Exit::NotFound, LOCAL_FILE, cause);
        failure.next(look_near(path)).of_one_file()
    }

    /// Notes that one local file is the reason.
    #[must_use]
    pub const fn of_one_file(mut self) -> Self {
        self.is_of_one_file = true;
        self
    }

    /// Adds what was tried.
    #[must_use]
    pub fn tried(mut self, tried: impl fmt::Display) -> Self {
        self.tried.get_or_insert_with(|| tried.to_string());
        self
    }

    /// Adds the next command to type. The first one given, nearest to the cause, stays.
    #[must_use]
    pub fn next(mut self, next: impl fmt::Display) -> Self {
        self.next.get_or_insert_with(|| next.to_string());
        self
    }

    /// Replaces the next command by a better one.
    #[must_use]
    pub fn instead(mut self, next: impl fmt::Display) -> Self {
        self.next = Some(next.to_string());
        self
    }

    /// Returns whether there is no message.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.cause.is_empty()
    }

    /// Returns the failure as scripts read it.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        #[derive(Serialize)]
        struct FailureView<'a> {
            kind: &'a str,
            cause: &'a str,
            tried: &'a Option<String>,
            next: &'a Option<String>,
            exit: i32,
        }
        let view = FailureView {
            kind: &self.kind,
            cause: &self.cause,
            tried: &self.tried,
            next: &self.next,
            exit: self.exit.code(),
        };
        serde_json::json!({ "schema": crate::output::SCHEMA, "error": view })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each is one line, whatever names are in it.
        write!(formatter, "error: {}", printable(&self.cause))?;
        if let Some(tried) = &self.tried {
            write!(formatter, "\n  tried: {}", printable(tried))?;
        }
        if let Some(next) = &self.next {
            write!(formatter, "\n  next:  {}", printable(next))?;
        }
        Ok(())
    }
}

/// Returns whether a write failed because a disk, a quota or a limit of files has no room.
#[must_use]
pub const fn is_without_room(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
}

/// Returns the command that shows how full the disk of a file is.
fn free_space(path: &Path) -> String {
    let directory = path.ancestors().skip(1).find(|part| part.is_dir()).unwrap_or(Path::new("."));
    format!("df -h {}", shell_word(&directory.to_string_lossy()))
}

/// Returns the command that lists the nearest directory to a file that is not there.
#[must_use]
pub fn look_near(path: &Path) -> String {
    let near = path.ancestors().skip(1).find(|near| near.is_dir());
    let near = near.filter(|near| !near.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!("ls {}", shell_word(&near.to_string_lossy()))
}

/// Writing to stdout fails like this: quietly when the reader has gone.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Ok);
        }
        Self::new(Exit::Failure, "Output", format_args!("cannot write the output: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Refusal;

    use super::*;

    #[test]
    fn kind_of_a_refused_caller_is_the_name_of_the_refusal() {
        let refusal = Refusal::Unauthenticated { why: String::new() };
        assert_eq!(refusal.name(), UNAUTHENTICATED);
        let refusal = Refusal::Forbidden { why: String::new() };
        assert_eq!(refusal.name(), FORBIDDEN);
    }

    #[test]
    fn failure_names_cause_attempt_and_next_command() {
        let failure = Failure::new(Exit::NotFound, "NotFound", "/a does not exist")
            .tried("looked it up at 127.0.0.1:7600")
            .next("sanderling fs ls /")
            .next("ignored: the first one stays");
        assert_eq!(
            failure.to_string(),
            "error: /a does not exist\n  tried: looked it up at 127.0.0.1:7600\n  \
             next:  sanderling fs ls /"
        );
        assert_eq!(failure.json()["error"]["exit"], 3);
    }

    #[test]
    fn broken_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.is_silent());
        assert_eq!(failure.exit, Exit::Ok);
    }
}
