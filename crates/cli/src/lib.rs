//! The `sanderling` command: servers, tools and an embedded cluster in one program, and with the
//! feature `measure` also benchmarks, experiments and the simulator.
//!
//! Large commands are crates of their own: `serve`, `local`, `keys`, `config`, `events`, `top`,
//! `doctor`, `task`, and for what measures `lab` and `bench`. The others are here.
//!
//! [`main`] is the whole program. The binary calls it, and so does the Python package's script.

mod args;
mod command_line;
mod completions;
#[cfg(test)]
mod config_reference;
mod context;
mod correction;
mod demo;
mod fs;
mod fsck;
mod group;
mod job;
mod man;
#[cfg_attr(not(feature = "measure"), path = "measure_absent.rs")]
mod measure;
mod node;
#[cfg(test)]
mod pages;
mod watch;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use sanderling_client::ClientError;
use sanderling_command::{
    cluster, drain_plan, drain_wait, failure, fleet, global, near_units, next, notice_deadline,
    output, printable, progress, refused, session, units,
};
use sanderling_config::ServerCommandLine;
use sanderling_transport::CallError;
use sanderling_transport::trace::{begin, spanned};

use crate::args::{Cli, ClusterUse, Command};
use crate::failure::{Exit, Failure, FailureKind, RefusalKind};
use crate::global::Global;
use crate::output::Output;

/// Runs the program with its name and arguments; returns its exit code.
///
/// `sanderling --help` lists the codes. Servers run until they get a signal.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|word| word == "demo") {
        // Every word after it is the demonstration's, also where this program has such a flag.
        return ended(demo::run(args.iter().skip(2).cloned()), Output::default(), &[]);
    }
    // A runner starts this program again for its task, with these words alone.
    if let Some(result) = args.get(1..).and_then(sanderling_task::run_own) {
        return ended(result, Output::default(), &args);
    }
    let early =
        Output { is_json: args.iter().any(|it| it == "--json"), is_quiet: true, task: None };
    // What is wrong with the file is reported before what is wrong with the words.
    let line = match ServerCommandLine::of(Cli::command, args.clone()) {
        Ok(line) => line,
        Err(failure) => return ended(Err(failure), early, &args),
    };
    let (mut cli, matches) = match command_line::read(&line.words) {
        Ok(read) => read,
        Err(error) if !error.use_stderr() || is_help(&error) => {
            // Help and versions go to stdout; their reader may have gone.
            let _ = error.print();
            return error.exit_code();
        }
        Err(error) => {
            let of_file = line.failure(&error);
            let failure = of_file.unwrap_or_else(|| command_line::failure(&error, &args));
            return ended(Err(failure), early, &args);
        }
    };
    let output = Output { is_json: cli.global.json, is_quiet: cli.global.quiet, task: None };
    let found = match cli.command.cluster_use() {
        ClusterUse::Nothing => Ok(()),
        ClusterUse::Given => cli.global.resolve(&matches, false),
        ClusterUse::Current => cli.global.resolve(&matches, true),
    };
    cli.global.service = cli.command.service();
    let timeout = cli.global.timeout;
    let found = found.and_then(|()| each_flag_has_an_effect(&cli, &matches, &args));
    let result = found.and_then(|()| run(&cli.global, &matches, &args, cli.command));
    let result = result.map_err(|failure| match timeout {
        Some(_) => failure,
        None => without_deadline(failure),
    });
    let result = result.map_err(|failure| advised(failure, &cli.global.namenode));
    ended(result, output, &args)
}

/// Refuses options of all commands that have no effect on this one. In the environment they are for
/// the commands on which they have one, and for the servers that others start.
fn each_flag_has_an_effect(
    cli: &Cli,
    matches: &ArgMatches,
    args: &[OsString],
) -> Result<(), Failure> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let useless = |flag: &str, why: &str| {
        let name = flag.split(' ').next().unwrap_or_default();
        let failure = Failure::usage(format_args!("{name} has no effect: {why}"));
        Err(failure.next(format_args!("the same without {flag}")))
    };
    if is_given("context") && cli.command.cluster_use() == ClusterUse::Nothing {
        return useless("--context NAME", "this command connects to no cluster by its name");
    }
    if is_given("timeout") && matches!(cli.command, Command::Manager(_)) {
        return useless("--timeout DURATION", "a manager serves at once, without a namenode");
    }
    let collector = cli.global.otlp.as_ref().filter(|_| is_given("otlp"));
    let Some(collector) = collector.filter(|_| !cli.command.records_spans()) else {
        return Ok(());
    };
    useless("--otlp URL", "this command records no spans").map_err(|failure| {
        if !cli.command.starts_servers() {
            return failure;
        }
        let command = next::completed(failure.next.as_deref().unwrap_or_default(), args);
        let collector = refused::shell_word(&collector.to_string());
        failure.instead(format_args!("SANDERLING_OTLP={collector} {command}"))
    })
}

/// Returns the failure of a call whose time was the client's own: the caller gave no deadline that
/// could have passed.
fn without_deadline(failure: Failure) -> Failure {
    if failure.exit != Exit::Deadline || failure.kind != FailureKind::TimedOut {
        return failure;
    }
    let source = failure.source.as_ref().and_then(|it| it.downcast_ref::<ClientError>());
    // Placement refuses for as long as no node takes blocks.
    let is_placing = match source {
        Some(ClientError::TimedOut { last: CallError::Refused(refusal), .. }) => {
            refusal.lacks_datanodes()
        }
        _ => false,
    };
    let failure = Failure { exit: Exit::Unavailable, ..failure };
    if is_placing { failure.instead("sanderling node ls") } else { failure }
}

/// Adds what the cluster on this machine has to do with a failure.
fn advised(failure: Failure, namenode: &str) -> Failure {
    let better = match &failure.kind {
        FailureKind::Unreachable | FailureKind::BadAddress => sanderling_local::advice(namenode),
        FailureKind::Refusal(RefusalKind::Unauthenticated) | FailureKind::Credentials => {
            sanderling_local::keys(namenode)
        }
        _ => None,
    };
    match better {
        Some(next) => failure.instead(next),
        None => failure,
    }
}

/// Returns whether it is the help of a command that lacks its words.
fn is_help(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Prints what failed, if anything did; returns the exit code.
fn ended(result: Result<(), Failure>, output: Output, args: &[OsString]) -> i32 {
    match result {
        Ok(()) => Exit::Ok.code(),
        Err(mut failure) => {
            if failure.next.is_none() && failure.exit != Exit::Interrupted && !args.is_empty() {
                failure.next = Some(command_line::help(args));
            }
            failure.next = failure.next.map(|text| next::completed(&text, args));
            output.failure(&failure);
            failure.exit.code()
        }
    }
}

fn run(
    global: &Global,
    matches: &ArgMatches,
    words: &[OsString],
    command: Command,
) -> Result<(), Failure> {
    match command {
        Command::Tour(args) => sanderling_local::tour(global, args),
        Command::Demo(args) => demo::run(args.arguments),
        Command::Local(command) => sanderling_local::run(global, command),
        Command::Namenode(args) => sanderling_serve::namenode(global, *args),
        Command::Datanode(args) => sanderling_serve::datanode(global, *args),
        Command::Manager(args) => sanderling_serve::manager(global, args),
        Command::Gateway(command) => sanderling_serve::gateway(global, command),
        Command::Fs(command) => {
            session::run(global, |session| spanned(begin("fs"), fs::run(session, command)))
        }
        Command::Node(command) => {
            session::run(global, |session| spanned(begin("node"), node::run(session, command)))
        }
        Command::Group(command) => {
            session::run(global, |session| async move { group::run(&session, command).await })
        }
        Command::Job(command) => {
            session::run(global, |session| spanned(begin("job"), job::run(session, command)))
        }
        Command::Task(command) => sanderling_task::run(global, *command),
        Command::Top(args) => session::run(global, |session| sanderling_top::run(session, args)),
        Command::Events(args) => {
            session::run(global, |session| sanderling_events::run(session, args))
        }
        Command::Fsck(args) => {
            session::run(global, |session| spanned(begin("fsck"), fsck::run(session, args)))
        }
        Command::Token(command) => sanderling_keys::token::run(global, command),
        Command::Tls(command) => sanderling_keys::tls::run(global, command),
        Command::Config(command) => sanderling_config::run(Cli::command, global, words, command),
        Command::Context(command) => context::run(global, matches, command),
        Command::Doctor(args) => {
            session::run(global, |session| sanderling_doctor::run(session, args))
        }
        Command::Completions(args) => completions::run(args.shell),
        Command::Man(args) => man::run(&args),
        Command::Measure(command) => measure::run(global, command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
