//! `sanderling config`: what a server would run with, and whether a file is correct.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::output::{Align, Output, Table};
use sanderling_command::pages;
use sanderling_command::session::block_on;
use sanderling_context::CONTEXT_KEYS;
use serde_json::json;

use crate::keys::{ConfigKey, KeyKind, Program, SERVERS, ServerTable};
use crate::problem::{ConfigLineError, ConfigProblem};
use crate::server_file::{ServerCommandLine, all_values_of, file_error, read};
use crate::values::FileValue;

/// The page with all keys, in a checkout.
pub const PAGE: &str = "docs/CONFIGURATION.md";

/// Returns the end of the help, which cites [`PAGE`] as the reader finds it.
pub fn after_help(page: &str) -> String {
    format!(
        "\
A key is a flag's name. Keys of all servers stand at the top, those of one in
its table:

  namenode = \"10.0.0.1:7600\"
  [datanode]
  dram = \"8GiB\"
  memory-max = \"10GiB\"

A flag comes before the environment, the environment before the file, the file
before the default. Relative paths are relative to the file.
{page} has all keys."
    )
}

/// Commands on configuration files.
#[derive(Debug, Subcommand)]
#[command(after_help = after_help(&pages::cited(PAGE)))]
pub enum ConfigCommand {
    /// Show each value that a server would run with, and where it comes from
    Show(ConfigShow),
    /// Check a file: its keys, their types and their values
    Check(ConfigCheck),
}

/// A server that a file configures.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ServerName {
    /// sanderling namenode
    Namenode,
    /// sanderling datanode
    Datanode,
    /// sanderling manager
    Manager,
    /// sanderling gateway s3
    Gateway,
}

impl ServerName {
    const fn server(self) -> &'static ServerTable {
        &SERVERS[self as usize]
    }
}

/// `config show`.
#[derive(Debug, Args)]
pub struct ConfigShow {
    /// The server
    pub(crate) server: ServerName,
    /// Its flags, as --config FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub(crate) flags: Vec<OsString>,
}

/// `config check`.
#[derive(Debug, Args)]
pub struct ConfigCheck {
    /// The file
    pub(crate) file: PathBuf,
}

/// Runs a command on configuration files; `words` are those of the whole command line.
///
/// # Errors
/// Usage (2) for a wrong file.
pub fn run(
    program: Program,
    global: &Global,
    words: &[OsString],
    command: ConfigCommand,
) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    match command {
        ConfigCommand::Show(args) => show(program, words, args.server.server(), output),
        ConfigCommand::Check(args) => check(program, &args.file, output),
    }
}

/// A key with its value and where it comes from.
struct ValueRow {
    key: &'static str,
    value: Option<String>,
    origin: String,
}

fn show(
    program: Program,
    words: &[OsString],
    server: &ServerTable,
    output: Output,
) -> Result<(), Failure> {
    // As the server itself reads them: what follows its name.
    let after = words.iter().skip_while(|word| *word != "show").skip(1);
    let flags = after.skip_while(|word| *word != server.name).skip(1);
    let start = std::iter::once("sanderling").chain(server.words.iter().copied());
    let words = start.map(OsString::from).chain(flags.cloned()).collect();
    let line = ServerCommandLine::of(program, words)?;
    let matches = parsed(program, &line)?;
    let (_, given) = ServerTable::of(&matches).expect("it is the server's own command");
    let keys = server.keys(program).iter();
    let mut rows: Vec<ValueRow> = keys.map(|key| row(key, given, &line)).collect();
    if server.name != "namenode" {
        resolve(&matches, &mut rows, server.name == "gateway")?;
    }
    let values =
        rows.iter().map(|row| json!({ "key": row.key, "value": row.value, "origin": row.origin }));
    // Behind the server's name, the flag is one of its words.
    let output = Output { is_json: output.is_json || given.get_flag("json"), ..output };
    let document = json!({ "server": server.name, "values": values.collect::<Vec<_>>() });
    output.result(&document, |writer| {
        let columns = ["key", "value", "origin"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for row in rows {
            let value = row.value.unwrap_or_else(|| "-".to_owned());
            table.row([row.key.to_owned(), value, row.origin]);
        }
        table.write(writer)
    })
}

/// Parses the words of a server, from which required flags may still be missing.
fn parsed(program: Program, line: &ServerCommandLine) -> Result<ArgMatches, Failure> {
    let lenient = || program().ignore_errors(true).try_get_matches_from(&line.words);
    let matches = match program().try_get_matches_from(&line.words) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => lenient(),
        matches => matches,
    };
    matches.map_err(|error| line.failure(&error).unwrap_or_else(|| usage(&error)))
}

fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default().replace("error: ", "");
    Failure::usage(first).next("sanderling config show --help")
}

fn row(key: &'static ConfigKey, given: &ArgMatches, line: &ServerCommandLine) -> ValueRow {
    let id = key.id.as_str();
    let value = match key.kind {
        KeyKind::Switch => Some(given.get_flag(id).to_string()),
        KeyKind::Count => Some(given.get_count(id).to_string()),
        KeyKind::Value | KeyKind::List => given.get_raw(id).map(|values| {
            let texts = values.map(|value| value.to_string_lossy().into_owned());
            texts.collect::<Vec<_>>().join(", ")
        }),
    };
    let origin = match (line.line_of(&key.name), given.value_source(id)) {
        (Some(at), _) => format!("{}:{at}", line.path.display()),
        (None, Some(ValueSource::CommandLine)) => format!("--{}", key.name),
        (None, Some(ValueSource::EnvVariable)) => key.variable.clone().unwrap_or_default(),
        (None, _) => "default".to_owned(),
    };
    ValueRow { key: &key.name, value: value.filter(|text| !text.is_empty()), origin }
}

/// Replaces defaults by what a context has.
fn resolve(matches: &ArgMatches, rows: &mut [ValueRow], has_current: bool) -> Result<(), Failure> {
    let Ok(mut global) = Global::from_arg_matches(matches) else { return Ok(()) };
    global.resolve(matches, has_current)?;
    let Some(_) = global.origin.context() else { return Ok(()) };
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let values = [
        Some(global.namenode.clone()),
        path(&global.shown.token_file),
        path(&global.shown.tls_ca),
        Some(global.shown.tls_name.clone()),
    ];
    for (key, value) in CONTEXT_KEYS.iter().zip(values) {
        let row = rows.iter_mut().find(|row| row.key == *key && row.value != value);
        if let Some(row) = row {
            (row.value, row.origin) = (value, global.origin.to_string());
        }
    }
    Ok(())
}

/// Returns the words that start a server with the values of a file.
fn words_of(program: Program, server: &ServerTable, values: &[FileValue]) -> Vec<OsString> {
    let start = std::iter::once("sanderling").chain(server.words.iter().copied());
    let own = values.iter().flat_map(|value| value.words.iter().cloned());
    // A flag that the file leaves out may be given when the server starts.
    let has = |key: &ConfigKey| values.iter().any(|value| value.key == key.name);
    let missing = server.keys(program).iter().filter(|key| key.is_required && !has(key));
    let others = missing.map(|key| OsString::from(format!("--{}=.", key.name)));
    start.map(OsString::from).chain(own).chain(others).collect()
}

/// Returns a value that the server refuses, if there is one.
fn refused_of(
    program: Program,
    server: &ServerTable,
    path: &Path,
    values: &[FileValue],
) -> Option<ConfigLineError> {
    let error = program().try_get_matches_from(words_of(program, server, values)).err()?;
    file_error(&error, path, values)
}

/// Returns the refusal of the durable stores by the datanode, if there is one.
fn refused_stores(
    program: Program,
    server: &ServerTable,
    path: &Path,
    values: &[FileValue],
) -> Result<Option<ConfigLineError>, Failure> {
    let Some(given) = values.iter().find(|value| value.key == "durable") else { return Ok(None) };
    // What is wrong with the words is a problem of its own.
    let matches = program().try_get_matches_from(words_of(program, server, values)).ok();
    let Some((_, flags)) = matches.as_ref().and_then(ServerTable::of) else { return Ok(None) };
    let mut refused = None;
    block_on(async {
        refused = sanderling_serve::check_stores(flags).await.err();
        Ok(())
    })?;
    Ok(refused.map(|error| {
        let problem = ConfigProblem::DurableStores { cause: error.to_string() };
        ConfigLineError::new(path, given.line, problem)
    }))
}

fn check(program: Program, path: &Path, output: Output) -> Result<(), Failure> {
    let next = format!("sanderling config --help, or {} with all keys", pages::cited(PAGE));
    // Its own next command, when a server read the file, is this one.
    let file = read(path).map_err(|failure| match failure.exit {
        Exit::Usage => failure.instead(&next),
        _ => failure,
    })?;
    let mut problems: Vec<ConfigLineError> = Vec::new();
    let mut lines = BTreeSet::new();
    for server in &SERVERS {
        let (mut values, errors) = all_values_of(program, &file, server);
        lines.extend(values.iter().map(|value| value.line));
        let mut found = errors;
        // clap reports one error: without its line, the next one is found.
        while let Some(error) = refused_of(program, server, path, &values) {
            let left = values.len();
            values.retain(|value| value.line != error.line);
            found.push(error);
            if values.len() == left {
                break;
            }
        }
        found.extend(refused_stores(program, server, path, &values)?);
        found.retain(|error| !problems.contains(error));
        problems.append(&mut found);
    }
    problems.sort_by_key(|problem| problem.line);
    let shown =
        problems.iter().map(|it| json!({ "line": it.line, "what": it.problem.to_string() }));
    let document = json!({ "file": path, "problems": shown.collect::<Vec<_>>() });
    output.result(&document, |writer| {
        problems.iter().try_for_each(|problem| writeln!(writer, "{problem}"))
    })?;
    if problems.is_empty() {
        output.note(format_args!("{}: {} values, no errors", path.display(), lines.len()));
        return Ok(());
    }
    let cause = format!("{} has errors", path.display());
    Err(Failure::new(Exit::Usage, FailureKind::BadConfig, cause).next(next))
}
