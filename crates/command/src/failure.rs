//! How a command fails: a documented exit code, the cause, what was tried, and the next command.

mod kind;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use sanderling_client::ClientError;
use sanderling_context::without_users;
use sanderling_protocol::Refusal;
pub use sanderling_protocol::RefusalKind;
use sanderling_transport::CallError;
use serde::Serialize;

pub use self::kind::FailureKind;
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
    /// Returns the number that the shell gets. docs/CLI.md lists them; they stay the same between
    /// releases.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// A command's failure. An error that its reader caused by leaving (a broken pipe) is silent.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// Its kind, whose stable name scripts read, such as `NotFound`.
    pub kind: FailureKind,
    /// The cause: lower case, the fact, then the values. Empty: nothing is printed.
    pub cause: String,
    /// What was tried.
    pub tried: Option<String>,
    /// The next command to type.
    pub next: Option<String>,
    /// The error that it was made from, where there is one.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
    /// Whether one local file is the reason, so that others may still be read or written.
    pub is_of_one_file: bool,
}

impl Failure {
    /// Makes a failure from its cause: lower case, the fact, then the values. Add what was tried
    /// and the next command with [`Self::tried()`] and [`Self::next()`]; where an error is the
    /// cause, use [`Self::caused`].
    #[must_use]
    pub fn new(exit: Exit, kind: impl Into<FailureKind>, cause: impl fmt::Display) -> Self {
        Self {
            exit,
            kind: kind.into(),
            cause: cause.to_string(),
            tried: None,
            next: None,
            source: None,
            is_of_one_file: false,
        }
    }

    /// Makes a failure whose cause is the text of an error, and keeps that error as the source.
    #[must_use]
    pub fn caused<E>(exit: Exit, kind: impl Into<FailureKind>, error: E) -> Self
    where
        E: StdError + Send + Sync + 'static,
    {
        Self::new(exit, kind, &error).with_source(error)
    }

    /// Returns the failure of a wrong command line, with exit code 2.
    #[must_use]
    pub fn usage(cause: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, FailureKind::Usage, cause)
    }

    /// Ends the command with a code and without a message: its output is complete.
    #[must_use]
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, FailureKind::Silent, "")
    }

    /// Makes the failure of something done to a local file. What was tried is its whole path, and
    /// the next command shows why the system refuses it.
    #[must_use]
    pub fn file(path: &Path, error: io::Error) -> Self {
        let words = error.to_string();
        let cause = format!("{}: {}", path.display(), without_number(&words));
        let (kind, number) = (error.kind(), error.raw_os_error());
        let exit = if kind == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failure };
        let failure = Self::new(exit, FailureKind::LocalFile, cause).with_source(error);
        let whole = whole(path);
        let failure = match kind {
            io::ErrorKind::PermissionDenied => {
                let user = rustix::process::geteuid().as_raw();
                failure.tried(format_args!("{whole}, as the user {user}"))
            }
            _ => failure.tried(whole),
        };
        match kind {
            io::ErrorKind::NotFound => failure.next(look_near(path)).of_one_file(),
            kind if is_without_room(kind) => failure.next(free_space(path)),
            io::ErrorKind::ReadOnlyFilesystem => failure.next(free_space(path)).of_one_file(),
            _ if number == Some(Errno::MFILE.raw_os_error()) => {
                failure.next("ulimit -n").of_one_file()
            }
            _ => failure.next(look_at(path)).of_one_file(),
        }
    }

    /// Keeps the error that it was made from.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Returns the refusal of a server that it was made from, if it was made from one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        self.source.as_deref()?.downcast_ref()
    }

    /// Returns whether a call of a server was refused, or broke.
    #[must_use]
    pub(crate) fn is_of_a_call(&self) -> bool {
        let source = self.source.as_deref();
        source
            .is_some_and(|it| it.is::<Refusal>() || it.is::<ClientError>() || it.is::<CallError>())
    }

    /// Notes that one local file is the reason.
    #[must_use]
    pub const fn of_one_file(mut self) -> Self {
        self.is_of_one_file = true;
        self
    }

    /// Adds what was tried, such as the address or the whole path. The first one given, nearest to
    /// the cause, stays.
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

    /// Returns whether there is no message: the command ends with its code and prints nothing.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.cause.is_empty()
    }

    /// Returns the failure as scripts read it with `--json`: kind, cause, what was tried, the next
    /// command and the exit code (docs/CLI.md). Passwords in URLs are left out.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        #[derive(Serialize)]
        struct FailureView<'a> {
            kind: &'a str,
            cause: String,
            tried: Option<String>,
            next: Option<String>,
            exit: i32,
        }
        let view = FailureView {
            kind: self.kind.name(),
            cause: without_users(&self.cause),
            tried: self.tried.as_deref().map(without_users),
            next: self.next.as_deref().map(without_users),
            exit: self.exit.code(),
        };
        serde_json::json!({ "schema": crate::output::SCHEMA, "error": view })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each is one line, whatever names are in it. A URL may have a password.
        write!(formatter, "error: {}", printable(&without_users(&self.cause)))?;
        if let Some(tried) = &self.tried {
            write!(formatter, "\n  tried: {}", printable(&without_users(tried)))?;
        }
        if let Some(next) = &self.next {
            write!(formatter, "\n  next:  {}", printable(&without_users(next)))?;
        }
        Ok(())
    }
}

/// Two failures are equal if everything but their sources is equal.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        (self.exit, &self.kind, &self.cause) == (other.exit, &other.kind, &other.cause)
            && (&self.tried, &self.next) == (&other.tried, &other.next)
            && self.is_of_one_file == other.is_of_one_file
    }
}

impl Eq for Failure {}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Returns whether a write failed because a disk, a quota or a limit of files has no room.
#[must_use]
pub const fn is_without_room(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
}

/// Returns the words of an error of the system without its number, which they repeat.
pub(crate) fn without_number(words: &str) -> String {
    let Some((before, rest)) = words.split_once(" (os error ") else { return words.to_owned() };
    format!("{before}{}", rest.split_once(')').map_or("", |(_, after)| after))
}

/// Returns the whole path of a local file, also of one that is not there.
#[must_use]
pub fn whole(path: &Path) -> String {
    let whole = std::path::absolute(path);
    whole.as_deref().unwrap_or(path).display().to_string()
}

/// Returns the command that shows the owner and the mode of a file, or of the nearest directory to
/// it that is there.
#[must_use]
pub fn look_at(path: &Path) -> String {
    format!("ls -ld {}", nearest(path.ancestors(), |near| near.symlink_metadata().is_ok()))
}

/// Returns the command that shows how full the disk of a file is.
fn free_space(path: &Path) -> String {
    format!("df -h {}", nearest(path.ancestors().skip(1), Path::is_dir))
}

/// Returns the command that lists the nearest directory to a file that is not there.
#[must_use]
pub fn look_near(path: &Path) -> String {
    format!("ls {}", nearest(path.ancestors().skip(1), Path::is_dir))
}

/// Returns the word of a command for the first path that is there and that a line of text names as
/// it is, in UTF-8 and without control characters; `.` if there is none. It is no option, also if
/// the path begins like one.
fn nearest<'a>(paths: impl Iterator<Item = &'a Path>, is_there: impl Fn(&Path) -> bool) -> String {
    let mut texts = paths.filter(|near| is_there(near)).filter_map(Path::to_str);
    let text = texts.find(|text| printable(text) == *text).unwrap_or(".");
    match text.starts_with('-') {
        true => shell_word(&format!("./{text}")),
        false => shell_word(text),
    }
}

/// Writing to stdout fails like this: quietly when the reader has gone.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Ok);
        }
        let cause = format!("cannot write the output: {error}");
        Self::new(Exit::Failure, FailureKind::Output, cause).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn password_in_a_url_is_not_printed() {
        let url = "http://me:TOPSECRET@host/a";
        let failure = Failure::usage(format_args!("GET {url}")).tried(url).next(url);
        for text in [failure.to_string(), failure.json().to_string()] {
            assert_eq!(text.matches("http://***@host/a").count(), 3, "{text}");
            assert!(!text.contains("TOPSECRET"), "{text}");
        }
    }

    #[test]
    fn kind_of_a_refused_caller_is_the_name_of_the_refusal() {
        let refusal = Refusal::Unauthenticated { why: String::new() };
        assert_eq!(FailureKind::from(refusal.kind()).name(), refusal.name());
        let refusal = Refusal::Forbidden { why: String::new() };
        assert_eq!(FailureKind::from(refusal.kind()).name(), refusal.name());
    }

    #[test]
    fn failure_of_a_file_has_the_error_of_the_system_as_source() {
        let failure = Failure::file(Path::new("/a/b"), io::Error::from_raw_os_error(13));
        assert_eq!(failure.cause, "/a/b: Permission denied");
        let system = failure.source().and_then(|it| it.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(system.raw_os_error(), Some(13));
        assert!(failure.refusal().is_none());
        let copy = failure.clone();
        assert!(copy.source().is_some());
        assert_eq!(copy, failure);
        let tried = format!("/a/b, as the user {}", rustix::process::geteuid().as_raw());
        assert_eq!(failure.tried.as_deref(), Some(tried.as_str()));
    }

    /// Makes files in directories whose names a line of text cannot give as they are.
    fn oddly_named(place: &Path) -> Vec<PathBuf> {
        let names = [&b"no\xffutf8"[..], b"two\nlines", "turned\u{202e}".as_bytes()];
        let made = names.iter().map(|name| {
            let directory = place.join(OsStr::from_bytes(name));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("file"), "text").unwrap();
            directory.join("file")
        });
        made.collect()
    }

    #[test]
    fn next_command_of_an_odd_path_names_the_nearest_one_that_can_be_typed() {
        let always = |path: &str| nearest(Path::new(path).ancestors(), |_| true);
        assert_eq!(always("-x/y"), "./-x/y");
        assert_eq!(always("-x y"), "'./-x y'");
        assert_eq!(always("a/-x"), "a/-x");
        assert_eq!(always("a b/c\nd"), "'a b'");
        assert_eq!(nearest(Path::new("a\tb").ancestors(), |path| path.starts_with("a\tb")), ".");
        let odd = Path::new("/a").join(OsStr::from_bytes(b"\xff")).join("b");
        assert_eq!(nearest(odd.ancestors(), |_| true), "/a");
        assert_eq!(nearest(Path::new("none").ancestors(), |_| false), ".");
    }

    #[test]
    fn next_command_works_for_each_error_of_a_file() {
        let place = std::env::temp_dir().join(format!("failure of files {}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let file = place.join("file");
        std::fs::write(&file, "text").unwrap();
        let errors = [
            Errno::PERM,
            Errno::NOENT,
            Errno::IO,
            Errno::ACCESS,
            Errno::EXIST,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::INVAL,
            Errno::NFILE,
            Errno::MFILE,
            Errno::FBIG,
            Errno::NOSPC,
            Errno::ROFS,
            Errno::NAMETOOLONG,
            Errno::NOTEMPTY,
            Errno::LOOP,
        ];
        let (below, none) = (file.join("below"), place.join("none"));
        let odd = oddly_named(&place);
        let usual = [file.as_path(), below.as_path(), none.as_path(), Path::new("none")];
        for path in usual.into_iter().chain(odd.iter().map(PathBuf::as_path)) {
            for errno in errors {
                let failure = Failure::file(path, errno.into());
                let next = failure.next.as_deref().unwrap_or_default();
                let mut shell = std::process::Command::new("sh");
                let ended = shell.args(["-c", &format!("{next} > /dev/null")]).status().unwrap();
                assert!(ended.success() && !next.is_empty(), "{failure}");
                assert_eq!(printable(next), next, "it is printed as it is run");
                let tried = failure.tried.as_deref().unwrap_or_default();
                assert!(Path::new(tried).is_absolute(), "{failure}");
                assert!(!failure.cause.contains("os error"), "{failure}");
            }
        }
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn number_of_an_error_is_left_out_and_what_follows_stays() {
        assert_eq!(without_number("a: No such file (os error 2)"), "a: No such file");
        assert_eq!(without_number("a: broken (os error 104): b"), "a: broken: b");
        assert_eq!(without_number("a (b)"), "a (b)");
    }

    #[test]
    fn failure_is_small_enough_for_a_result() {
        // The limit of Clippy's `result_large_err`, below which no lint is printed.
        assert!(size_of::<Failure>() < 128, "{}", size_of::<Failure>());
    }

    #[test]
    fn failure_names_cause_attempt_and_next_command() {
        let failure = Failure::new(Exit::NotFound, RefusalKind::NotFound, "/a does not exist")
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
