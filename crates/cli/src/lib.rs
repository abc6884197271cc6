//! The `sanderling` command: servers, tools and an embedded cluster in one program, and with the
//! feature `measure` also benchmarks, experiments and the simulator.
//!
//! [`main`] is the whole program. The binary calls it, and so does the Python package's script.

mod args;
mod completions;
mod demo;
mod doctor;
mod events;
mod fs;
mod fsck;
mod job;
mod local;
#[cfg_attr(not(feature = "measure"), path = "absent.rs")]
mod measure;
mod node;
#[cfg(test)]
mod pages;
mod security;
mod serve;
mod tls;
mod token;

use std::ffi::OsString;

use clap::Parser;
use sanderling_console::{
    credentials, failure, global, output, policy, printable, process, progress, ready, refused,
    server, session, units,
};

use crate::args::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;

/// Runs the program with its name and arguments; returns its exit code.
///
/// `sanderling --help` lists the codes. Servers run until they get a signal.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|word| word == "demo") {
        // Every word after it is the demonstration's, also where this program has such a flag.
        return ended(demo::run(args.into_iter().skip(2)), Output::default());
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions go to stdout; their reader may have gone.
            let _ = error.print();
            return error.exit_code();
        }
    };
    let output = Output { is_json: cli.global.json, is_quiet: cli.global.quiet };
    ended(run(&cli.global, cli.command), output)
}

/// Prints what failed, if anything did; returns the exit code.
fn ended(result: Result<(), Failure>, output: Output) -> i32 {
    match result {
        Ok(()) => Exit::Ok.code(),
        Err(failure) => {
            output.failure(&failure);
            failure.exit.code()
        }
    }
}

fn run(global: &Global, command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args.arguments),
        Command::Local(command) => local::run(global, command),
        Command::Namenode(args) => serve::namenode(global, args),
        Command::Datanode(args) => serve::datanode(global, *args),
        Command::Manager(args) => serve::manager(global, args),
        Command::Gateway(command) => serve::gateway(global, command),
        Command::Fs(command) => session::run(global, |session| fs::run(session, command)),
        Command::Node(command) => session::run(global, |session| node::run(session, command)),
        Command::Job(command) => session::run(global, |session| job::run(session, command)),
        Command::Events(args) => session::run(global, |session| events::run(session, args)),
        Command::Fsck(args) => session::run(global, |session| fsck::run(session, args)),
        Command::Token(command) => token::run(global, command),
        Command::Tls(command) => tls::run(global, command),
        Command::Doctor(args) => session::run(global, |session| doctor::run(session, args)),
        Command::Completions(args) => completions::run(args.shell),
        Command::Measure(command) => measure::run(global, command),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
