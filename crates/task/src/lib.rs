//! `sanderling task`: runs a task, takes checkpoints of it, and starts it from the newest one.
//!
//! What a checkpoint consists of and what is kept is decided in `core::checkpoint`.

mod args;
mod backend;
mod bag;
mod boot_clock;
mod bucket;
mod compaction;
mod criu;
mod descriptors;
mod driver;
mod driver_args;
mod dump_gate;
mod dump_policy;
mod dump_turns;
mod encryption;
mod generation_reader;
mod generations;
mod guard;
mod hook;
mod ignored_signals;
mod image_ahead;
mod image_queue;
mod image_server;
mod image_stream;
mod inherited;
mod init;
mod init_command;
mod lease;
mod lease_watch;
mod lock;
mod machine_notices;
mod mounts;
mod namespaces;
mod offers;
mod own_program;
mod pack_cache;
mod pack_writer;
mod predict;
mod private_directory;
mod process_tree;
mod report;
mod reserved_memory;
mod run_log;
mod run_record;
mod runner;
mod running;
mod state;
mod state_lock;
mod state_replacement;
mod supervise;
mod task_failure;
mod unfinished;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use clap::Subcommand;
use rustix::process::{Pid, setsid};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::{server, session};

use crate::args::{ChildArgs, GcArgs, LsArgs, PlaceArgs, RestoreArgs, RunArgs};
use crate::backend::BackendSpec;
pub use crate::driver_args::usable_criu;
use crate::predict::PredictArgs;

/// `sanderling task`.
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Run a command, take checkpoints of it, and start it from the newest one if there is one
    Run(RunArgs),
    /// List the tasks that have checkpoints
    Ls(LsArgs),
    /// Unpack the newest good checkpoint, and start a command with it if one is given
    Restore(RestoreArgs),
    /// Read all checkpoints of a task and verify every chunk
    Verify(PlaceArgs),
    /// Remove old checkpoints, and what interrupted ones left behind
    Gc(GcArgs),
    /// Forecast how long a checkpoint takes, what it costs, and whether it fits into a notice
    Predict(PredictArgs),
    /// Submit a bag of equal tasks with a deadline
    Submit(bag::SubmitArgs),
    /// Run tasks of a bag on this machine until all have ended
    Agent(bag::AgentArgs),
    /// Show the tasks of a bag, its agents, and what they cost
    Bag(bag::BagArgs),
    /// Become a command that ends with its runner.
    #[command(hide = true)]
    Child(ChildArgs),
    /// Be process 1 of a task's namespaces.
    #[command(hide = true)]
    Init,
    /// End a task's process when the runner has ended, and stop it while its lock is not confirmed.
    #[command(hide = true)]
    Guard {
        /// Let what is stopped go on, too: a guard before this one may have stopped it
        #[arg(long)]
        replaces: bool,
    },
}

impl TaskCommand {
    /// Returns whether it connects to a cluster.
    #[must_use]
    pub const fn uses_cluster(&self) -> bool {
        let backend = match self {
            Self::Child(_) | Self::Init | Self::Guard { .. } => return false,
            Self::Predict(args) => &args.backend,
            Self::Run(args) => &args.storage.backend,
            Self::Ls(args) => &args.backend,
            Self::Restore(args) => &args.place.storage.backend,
            Self::Verify(args) => &args.storage.backend,
            Self::Gc(args) => &args.place.storage.backend,
            Self::Submit(args) => &args.backend,
            Self::Agent(args) => &args.storage.backend,
            Self::Bag(args) => &args.backend,
        };
        matches!(backend, BackendSpec::Auto | BackendSpec::Store(_))
    }
}

/// Runs `sanderling task ...`.
///
/// # Errors
/// The backend or the key cannot be used; no checkpoint is good; the command failed. End the
/// command with the failure.
pub fn run(global: &Global, command: TaskCommand) -> Result<(), Failure> {
    match &command {
        TaskCommand::Child(args) => return Err(become_command(args)),
        TaskCommand::Init => return init::run(),
        TaskCommand::Guard { replaces } => return guard::run(*replaces),
        _ => {}
    }
    session::run(global, |session| async move {
        match command {
            TaskCommand::Run(args) => runner::run(session, args).await,
            TaskCommand::Ls(args) => report::list(&session, &args).await,
            TaskCommand::Restore(args) => runner::restore(session, args).await,
            TaskCommand::Verify(args) => report::verify(&session, &args).await,
            TaskCommand::Gc(args) => report::collect(&session, &args).await,
            TaskCommand::Predict(args) => predict::run(&session, &args).await,
            TaskCommand::Submit(args) => bag::submit(session, args).await,
            TaskCommand::Agent(args) => bag::agent(session, args).await,
            TaskCommand::Bag(args) => bag::show(session, args).await,
            TaskCommand::Child(_) | TaskCommand::Init | TaskCommand::Guard { .. } => Ok(()),
        }
    })
}

/// Runs `task init`, `task guard` and `task child` as this program starts itself with them; `None`
/// if the words are others. Its command line takes a while to build: a restored task waits for the
/// first and the last one, and before the guard runs nothing stops the command.
pub fn run_own(words: &[OsString]) -> Option<Result<(), Failure>> {
    match words {
        [task, init] if task == "task" && init == "init" => Some(init::run()),
        [task, guard] if task == "task" && guard == "guard" => Some(guard::run(false)),
        [task, guard, flag] if task == "task" && guard == "guard" && flag == guard::REPLACES => {
            Some(guard::run(true))
        }
        [task, child, rest @ ..] if task == "task" && child == "child" => {
            Some(Err(become_command(&child_args(rest)?)))
        }
        _ => None,
    }
}

/// Returns what the words of `task child` mean; `None` if its command line has to read them.
fn child_args(words: &[OsString]) -> Option<ChildArgs> {
    let end = words.iter().position(|word| word == "--")?;
    let (flags, command) = (&words[..end], words[end + 1..].to_vec());
    let (flags, init) = match flags {
        [flags @ .., last] if last == "--init" => (flags, true),
        flags => (flags, false),
    };
    let (session, parent) = match flags {
        [] => (false, None),
        [flag] if flag == "--session" => (true, None),
        [flag, pid] if flag == "--parent" => {
            let pid = pid.to_str()?.parse::<i32>().ok().filter(|pid| *pid > 0)?;
            (false, Some(pid))
        }
        _ => return None,
    };
    (!command.is_empty()).then_some(ChildArgs { session, parent, init, command })
}

/// Replaces this process by a command that gets SIGKILL when its parent ends, or that has a session
/// of its own. Returns why that failed.
fn become_command(args: &ChildArgs) -> Failure {
    let prepared = match args.session {
        true => setsid().map(|_| ()).map_err(|error| {
            Failure::new(Exit::Failure, FailureKind::Process, format_args!("setsid: {error}"))
        }),
        false => match args.parent {
            Some(parent) => server::die_with(Pid::from_raw(parent)),
            None => server::die_with_parent(),
        },
    };
    if let Err(failure) = prepared {
        return failure;
    }
    let mut words = args.command.clone();
    if args.init {
        match own_program::inherited_program() {
            Ok(own) => {
                words.push(own.get_program().to_owned());
                words.extend(own.get_args().map(ToOwned::to_owned));
                words.extend(["task", "init"].map(OsString::from));
            }
            Err(failure) => return failure,
        }
    }
    let [program, arguments @ ..] = &words[..] else {
        return Failure::usage("no command");
    };
    let error = std::process::Command::new(program).args(arguments).exec();
    let cause = format!("cannot start {}: {error}", program.to_string_lossy());
    Failure::new(Exit::Failure, FailureKind::Process, cause)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ChildArgs,
    }

    #[test]
    fn words_of_a_child_mean_what_its_command_line_reads() {
        for words in [
            &["--session", "--", "sh", "-c", "exit 3"][..],
            &["--parent", "77", "--init", "--", "unshare", "--fork", "--"],
            &["--init", "--", "true"],
            &["--init", "--parent", "77", "--", "true"],
            &["--", "true", "--json"],
            &["--parent=77", "--", "true"],
            &["--session", "--parent", "77", "--", "true"],
            &["--parent", "0", "--", "true"],
            &["--parent", "x", "--", "true"],
            &["--help"],
            &["--session", "--"],
            &[],
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let Some(args) = child_args(&words) else { continue };
            let line = Line::try_parse_from([OsString::from("child")].into_iter().chain(words));
            let read = line.expect("the command line takes them, too").args;
            let all = |it: ChildArgs| (it.session, it.parent, it.init, it.command);
            assert_eq!(all(args), all(read));
        }
        let is_read = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            child_args(&words).is_some()
        };
        assert!(is_read(&["--session", "--", "true"]) && is_read(&["--parent", "1", "--", "true"]));
        assert!(!is_read(&["--parent", "0", "--", "true"]) && !is_read(&["--session", "--"]));
    }
}
