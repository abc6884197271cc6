//! `sanderling context`: names for clusters, in a file of the user.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Subcommand};
use sanderling_context::{
    CONTEXT_VARIABLE, Context, ContextError, Contexts, NAMENODE_VARIABLE, address, file,
    of_environment,
};
use serde_json::json;

use crate::cluster::failure;
use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;
use crate::output::{Align, Output, Table};

/// The variables that come before the current context.
const BEFORE: [&str; 2] = [NAMENODE_VARIABLE, CONTEXT_VARIABLE];

/// Commands on contexts.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
The file is contexts.toml in $SANDERLING_CONFIG_HOME, or in sanderling below
$XDG_CONFIG_HOME or ~/.config. The command line, Python, Java, fsspec, Hadoop,
Spark and the S3 gateway read it.

  sanderling context add prod --namenode 10.0.0.1 --token-file t --tls-ca ca.pem
  sanderling context use prod
  sanderling --context prod fs ls /")]
pub(crate) enum ContextCommand {
    /// Add a cluster: --namenode, and --token-file, --tls-ca and --tls-name, whose paths it records
    Add(Add),
    /// Make a context the current one, which commands use that name no other cluster
    Use(ContextName),
    /// List the contexts
    Ls,
    /// Remove a context
    Rm(ContextName),
}

/// `context add`.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The context's name: letters, digits, `-`, `_` and `.`
    pub(crate) name: String,
    /// Replace a context of this name
    #[arg(long)]
    pub(crate) force: bool,
}

/// A context's name.
#[derive(Debug, Args)]
pub(crate) struct ContextName {
    /// The context's name
    pub(crate) name: String,
}

/// Runs a command on contexts.
///
/// # Errors
/// Not found (3) for a context that does not exist, failure (1) for a file that cannot be used.
pub(crate) fn run(
    global: &Global,
    matches: &ArgMatches,
    command: ContextCommand,
) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    let path = file(&of_environment).map_err(failure)?;
    match command {
        ContextCommand::Add(args) => add(global, matches, &path, &args, output),
        ContextCommand::Use(args) => {
            change(&path, |contexts| contexts.select(&args.name))?;
            let contexts = Contexts::read(&path).map_err(failure)?;
            let namenode = contexts.context(&args.name).map(|context| context.namenode.as_str());
            output.note(format_args!("current: {}, {}", args.name, namenode.unwrap_or_default()));
            hint(output);
            Ok(())
        }
        ContextCommand::Ls => list(&path, output),
        ContextCommand::Rm(args) => {
            if change(&path, |contexts| contexts.remove(&args.name))? {
                output.note("it was the current context: now none is");
            }
            Ok(())
        }
    }
}

fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut Contexts) -> Result<T, ContextError>,
) -> Result<T, Failure> {
    Contexts::update(path, change).map_err(failure)
}

fn add(
    global: &Global,
    matches: &ArgMatches,
    path: &Path,
    args: &Add,
    output: Output,
) -> Result<(), Failure> {
    // What is only in the environment is not recorded: it may be meant for this shell alone.
    let given = global.explicit(matches);
    let next = format!("sanderling context add {} --namenode HOST:PORT", args.name);
    let namenode = given.address.ok_or_else(|| {
        Failure::usage("a context has an address: --namenode is missing").next(&next)
    })?;
    let namenode = address(&namenode).map_err(|error| {
        Failure::caused(Exit::Usage, FailureKind::BadAddress, error).next(&next)
    })?;
    let context = Context {
        namenode,
        token_file: given.token_file.as_deref().map(present).transpose()?,
        tls_ca: given.tls_ca.as_deref().map(present).transpose()?,
        tls_name: given.tls_name,
    };
    change(path, |contexts| contexts.add(&args.name, context, args.force))?;
    output.note(format_args!("next: sanderling context use {}", args.name));
    Ok(())
}

/// Returns the whole path of a file that exists.
fn present(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .and_then(|path| std::fs::metadata(&path).map(|_| path))
        .map_err(|error| Failure::file(path, error))
}

fn list(path: &Path, output: Output) -> Result<(), Failure> {
    let contexts = Contexts::read(path).map_err(failure)?;
    let current = contexts.current();
    let all = contexts.all().iter().map(|(name, context)| {
        json!({
            "name": name,
            "is_current": current == Some(name),
            "namenode": context.namenode,
            "token_file": context.token_file,
            "tls_ca": context.tls_ca,
            "tls_name": context.tls_name,
        })
    });
    let document = json!({ "file": path, "contexts": all.collect::<Vec<_>>() });
    output.result(&document, |writer| {
        if contexts.all().is_empty() {
            return Ok(());
        }
        let columns = ["current", "name", "namenode", "tls", "token file"];
        let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
        for (name, context) in contexts.all() {
            let mark = if current == Some(name) { "*" } else { "" };
            let tls = if context.tls_ca.is_some() { "yes" } else { "no" };
            let token = context.token_file.as_ref().map(|path| path.display().to_string());
            let cells = [mark, name, &context.namenode, tls, token.as_deref().unwrap_or("-")];
            table.row(cells.map(str::to_owned));
        }
        table.write(writer)
    })?;
    if contexts.all().is_empty() {
        output.note(format_args!("no contexts in {}", path.display()));
    }
    hint(output);
    Ok(())
}

/// Notes what comes before the current context.
fn hint(output: Output) {
    for name in BEFORE {
        if let Some(text) = of_environment(name).filter(|text| !text.is_empty()) {
            let text = text.to_string_lossy();
            output.note(format_args!("{name}={text} comes before the current context"));
        }
    }
}
