//! Processes of the built program.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{SOON, until};

/// A server that serves.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) http_address: String,
    /// A datanode's incarnation.
    pub(crate) node: u32,
    child: Child,
    log: PathBuf,
}

/// A server that was spawned.
pub(crate) struct Starting {
    server: Server,
    ready_file: PathBuf,
}

/// Returns the built program, without the user's environment.
pub(crate) fn sanderling() -> Command {
    program_at(Path::new(env!("CARGO_BIN_EXE_sanderling")))
}

/// Returns a command of another program than the present one.
pub(crate) fn program_at(at: &Path) -> Command {
    let mut command = Command::new(at);
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("SANDERLING_")) {
        command.env_remove(name);
    }
    // There are no contexts of the user.
    command.env("SANDERLING_CONFIG_HOME", "/nonexistent");
    command.env("NO_COLOR", "1");
    command
}

/// Spawns a server with its ready file and log in `directory`.
pub(crate) fn spawn(directory: &Path, name: &str, words: &[&str]) -> Starting {
    spawn_with(directory, name, words, &[])
}

/// The same with variables in its environment.
pub(crate) fn spawn_with(
    directory: &Path,
    name: &str,
    words: &[&str],
    variables: &[(&str, &Path)],
) -> Starting {
    let mut program = sanderling();
    program.envs(variables.iter().copied());
    Starting::by(program, directory, name, words)
}

impl Starting {
    /// Returns it without waiting until it serves, which it may never do.
    pub(crate) fn unready(self) -> Server {
        self.server
    }

    /// Starts a server by a command that becomes the program, as [`spawn_with`] does.
    pub(crate) fn by(mut program: Command, directory: &Path, name: &str, words: &[&str]) -> Self {
        let ready_file = directory.join(format!("{name}.ready"));
        let _ = std::fs::remove_file(&ready_file);
        let log = directory.join(format!("{name}.log"));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let child = program
            .args(words)
            .args(["--exit-with-parent", "--ready-file"])
            .arg(&ready_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file.expect("the log can be written"))
            .spawn()
            .expect("the program can be started");
        let (name, address, http_address) = (name.to_owned(), String::new(), String::new());
        let server = Server { name, address, http_address, node: 0, child, log };
        Self { server, ready_file }
    }

    /// Waits until it serves.
    pub(crate) fn serves(mut self) -> Server {
        let what = format!("{} serves", self.server.name);
        let ready = until(&what, SOON, || {
            if let Ok(Some(status)) = self.server.child.try_wait() {
                panic!("{} ended with {status}: {}", self.server.name, self.server.log());
            }
            let text = std::fs::read(&self.ready_file).ok()?;
            Some(serde_json::from_slice::<serde_json::Value>(&text).expect("the file is whole"))
        });
        let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        self.server.address = text("address");
        self.server.http_address = text("http_address");
        self.server.node = u32::try_from(ready["node"].as_u64().unwrap_or(0)).expect("a node's id");
        assert_eq!(ready["pid"], self.server.child.id());
        self.server
    }
}

impl Server {
    /// Ends it as the cloud does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stops it without ending it: its connections stay open and it does not answer. Returns when
    /// all of its threads stand still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        until(&format!("{} stands still", self.name), SOON, || {
            let mut tasks = std::fs::read_dir(&tasks).ok()?;
            let stands = |task: &Path| {
                let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
            };
            tasks.all(|task| task.is_ok_and(|task| stands(&task.path()))).then_some(())
        });
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        let child = &mut self.child;
        until(&what, within, || child.try_wait().expect("our own child"))
    }

    /// Returns how it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(15)..];
            eprintln!("--- the end of {}'s log\n{}", self.name, last.join("\n"));
        }
    }
}

/// A process that is killed when its test is over, also by a failure.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    /// Returns its exit code if it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = self.0.try_wait().expect("our own child");
        status.map(|status| status.code().unwrap_or(-1))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.ended().is_some()
    }

    /// Waits until it has ended by itself. Returns its exit code, unless a signal ended it.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let ended = || self.0.try_wait().expect("our own child");
        until("the process ends", SOON, ended).code()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended. One that is stopped is killed as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that has ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl fmt::Display for Ran {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "exit code {}\n{}{}", self.code, self.stdout, self.stderr)
    }
}

/// Runs a command to its end, which must come within a limit.
pub(crate) fn run(command: &mut Command) -> Ran {
    let began = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let ended = receiver.recv_timeout(SOON + SOON);
    let Ok(ended) = ended else {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let _ = kill_process(pid.expect("a pid"), Signal::KILL);
        panic!("{command:?} hangs");
    };
    let Output { status, stdout, stderr } = ended.expect("its output can be read");
    Ran {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        took: began.elapsed(),
    }
}
