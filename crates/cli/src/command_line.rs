//! Reads the command line: groups the commands in the help, and turns what cannot be understood
//! into a failure with the command to type instead.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use sanderling_config::ServerCommandLine;

use crate::args::Cli;
use crate::correction::{Correction, built, cause, corrections, shown};
use crate::failure::Failure;

/// Most mistakes in one command line that are corrected one after the other: each costs some reads
/// of it. Of more than these, the help is the next step.
const CORRECTIONS_MAX: usize = 16;

/// The groups of commands in `sanderling --help`. A command without a group is for operators.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Begin", &["tour"]),
    ("Data", &["fs", "job", "task"]),
    ("Operate", &["local", "namenode", "datanode", "manager", "gateway", "node", "group"]),
    ("Measure", &["demo", "bench", "sim", "lab", "mock-metadata"]),
];

/// Returns what the words mean, and where each value comes from. `help WORDS` and `version` stand
/// for the flags.
///
/// # Errors
/// clap's: help to print, or what is wrong.
pub(crate) fn read(args: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let mut command = Cli::command();
    let is_help = |word: &OsString| ["help", "--help", "-h"].iter().any(|it| word == it);
    if args.len() <= 1 || args.iter().any(is_help) {
        command = with_groups(command);
    }
    let matches = command.try_get_matches_from_mut(spelled(args, &command))?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, matches))
}

/// Gives the program a help text with its commands in groups, which clap does not have.
fn with_groups(command: Command) -> Command {
    let copy = command.clone().help_template(template(&command));
    let copy = copy.override_usage("sanderling [OPTIONS] <COMMAND>");
    // The template lists the commands itself; what is left are the options under their headings.
    let text = copy.mut_subcommands(|it| it.hide(true)).render_help();
    command.override_help(text)
}

/// Writes `help` and `version` as the flags of clap, also after options of all commands.
fn spelled(args: &[OsString], command: &Command) -> Vec<OsString> {
    let mut words = args.to_vec();
    let Some(at) = first_word(args, command) else { return words };
    match args[at].to_str() {
        Some("help") => {
            words.remove(at);
            words.push("--help".into());
        }
        Some("version") => words[at] = "--version".into(),
        _ => {}
    }
    words
}

/// Returns where the name of the command is: the first word that is neither an option nor the value
/// of one. `None` if there is none, or an option before it is unknown.
pub(crate) fn first_word(args: &[OsString], command: &Command) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = args.get(at)?.to_str()?;
        if !word.starts_with('-') {
            return Some(at);
        }
        at += if has_value_after(word, command)? { 2 } else { 1 };
    }
}

/// Returns whether the word after an option is its value; `None` for an unknown option.
pub(crate) fn has_value_after(word: &str, command: &Command) -> Option<bool> {
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    if let Some(name) = word.strip_prefix("--") {
        let (name, has_value) = name.split_once('=').map_or((name, false), |(it, _)| (it, true));
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        return Some(takes_value(arg) && !has_value);
    }
    // Short options may be written together, as `-qv`; none of them takes a value.
    let is_flag = |letter| {
        let mut arguments = command.get_arguments();
        arguments.any(|arg| arg.get_short() == Some(letter) && !takes_value(arg))
    };
    let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
    letters.chars().all(is_flag).then_some(false)
}

fn template(command: &Command) -> String {
    let group_of = |name: &str| {
        let found = GROUPS.iter().find(|(_, names)| names.contains(&name));
        found.map_or("Operate", |(group, _)| *group)
    };
    let shown: Vec<&Command> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
    let width = shown.iter().map(|it| it.get_name().len()).max().unwrap_or(0);
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (group, _) in GROUPS {
        text.push_str(&format!("\n{group}:\n"));
        for it in shown.iter().filter(|it| group_of(it.get_name()) == group) {
            let about = it.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {:width$}  {about}\n", it.get_name()));
        }
    }
    text + "\n{all-args}{after-help}"
}

/// Returns the failure of a command line that cannot be understood.
pub(crate) fn failure(error: &clap::Error, args: &[OsString]) -> Failure {
    let of_clap = || {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let cause = text.split("\n\n").next().unwrap_or_default();
        cause.lines().map(str::trim).collect::<Vec<_>>().join(" ")
    };
    let cause = cause(error, args).unwrap_or_else(of_clap);
    Failure::usage(cause).next(next(error, args, CORRECTIONS_MAX))
}

/// Returns the commands to type instead, with everything in them put right, or the one that shows
/// the help.
fn next(error: &clap::Error, args: &[OsString], left: usize) -> String {
    let corrections = corrections(error, args);
    // Each of several may need further corrections.
    let left = left / corrections.len().max(1);
    let texts = corrections.into_iter().map(|correction| match correction {
        Correction::Text(text) => text,
        Correction::Words(words) => match wrong(&words) {
            None => shown(&words),
            Some(further) if left > 1 => next(&further, &words, left - 1),
            Some(_) => help(&words),
        },
    });
    let mut texts: Vec<String> = texts.collect();
    texts.dedup();
    if texts.is_empty() { help(args) } else { texts.join(", or ") }
}

/// Returns what is wrong with words, if anything is, with what a configuration file adds to them.
fn wrong(words: &[OsString]) -> Option<clap::Error> {
    let line = ServerCommandLine::of(Cli::command, words.to_vec()).ok()?;
    read(&line.words).err().filter(clap::Error::use_stderr)
}

/// Returns the command that shows the help of the command that was meant.
pub(crate) fn help(args: &[OsString]) -> String {
    let root = built();
    let names = NamedCommand::of(args, &root).names;
    let words = ["sanderling"].into_iter().chain(names).chain(["--help"]);
    words.collect::<Vec<_>>().join(" ")
}

/// The command that words name.
pub(crate) struct NamedCommand<'a> {
    pub(crate) command: &'a Command,
    /// Its name behind those of the commands that it is one of.
    pub(crate) names: Vec<&'a str>,
    /// Where the words behind its name begin.
    pub(crate) values_at: usize,
}

impl<'a> NamedCommand<'a> {
    /// Returns the command that words name, of a root that is built: then each command has the
    /// options of all commands. The value of an option names none, and an unknown word is skipped.
    pub(crate) fn of(args: &[OsString], root: &'a Command) -> Self {
        let mut named = Self { command: root, names: Vec::new(), values_at: 1 };
        let mut at = 1;
        while let Some(word) = args.get(at) {
            let text = word.to_string_lossy();
            if text.starts_with('-') && has_value_after(&text, named.command) == Some(true) {
                at += 1;
            } else if let Some(found) = named.command.find_subcommand(word) {
                named.command = found;
                named.names.push(found.get_name());
                named.values_at = at + 1;
            }
            at += 1;
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use clap::error::ErrorKind;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn next(line: &str) -> Option<String> {
        let args = words(line);
        let error = read(&args).expect_err("it is wrong");
        failure(&error, &args).next
    }

    #[test]
    fn mistakes_of_typing_are_put_right() {
        for (line, right) in [
            ("sanderling fs tre /", "sanderling fs tree /"),
            ("sanderling fs cat a", "sanderling fs cat /a"),
            ("sanderling fs ls /a//b", "sanderling fs ls /a/b"),
            ("sanderling fs stat a", "sanderling fs stat /a"),
            ("sanderling task ls --backend a", "sanderling task ls --backend /a"),
            ("sanderling fs ls --recursiv /", "sanderling fs ls --recursive /"),
            ("sanderling node notice n0", "sanderling node notice n0 --deadline 30s"),
            ("sanderling fs frobnicate /", "sanderling fs --help"),
            ("sanderling fs put a /b --ttl 5x", "sanderling fs put a /b --ttl 5s"),
            ("sanderling fs rm a b /c d", "sanderling fs rm /a /b /c /d"),
            ("sanderling fs cp", "sanderling fs cp /FROM /TO"),
            ("sanderling fs copi a --ttl=5x", "sanderling fs cp /a /TO --ttl=5s"),
            ("sanderling node notce n0", "sanderling node notice n0 --deadline 30s"),
            ("sanderling fs lss -z /", "sanderling fs ls --help"),
            ("sanderling nod", "sanderling node --help"),
            ("sanderling put f /a", "sanderling fs put f /a"),
            ("sanderling put f", "sanderling fs put f /f"),
            ("sanderling get /a f", "sanderling fs get /a f"),
            ("sanderling ls", "sanderling fs ls"),
            ("sanderling cat a", "sanderling fs cat /a"),
            ("sanderling --context local rm -r /a", "sanderling --context local fs rm -r /a"),
            ("sanderling status", "sanderling local status"),
            ("sanderling stop", "sanderling local --help"),
            ("sanderling start --datanodes 2", "sanderling local --help"),
            ("sanderling --context local fs cat a", "sanderling --context local fs cat /a"),
            ("sanderling --context local fs lss -z /", "sanderling fs ls --help"),
        ] {
            assert_eq!(next(line).as_deref(), Some(right), "{line}");
        }
    }

    #[test]
    fn help_and_version_are_commands_too() {
        for (line, kind) in [
            ("sanderling help", ErrorKind::DisplayHelp),
            ("sanderling help fs ls", ErrorKind::DisplayHelp),
            ("sanderling version", ErrorKind::DisplayVersion),
            ("sanderling --json version", ErrorKind::DisplayVersion),
            ("sanderling -qv --namenode 10.0.0.1:7600 version", ErrorKind::DisplayVersion),
            ("sanderling --timeout=5s -q version --json", ErrorKind::DisplayVersion),
            ("sanderling --json help fs ls", ErrorKind::DisplayHelp),
            // A value is no command, and a command that is unknown stays one.
            ("sanderling --context version help", ErrorKind::DisplayHelp),
            ("sanderling --context version", ErrorKind::MissingSubcommand),
            ("sanderling --frobnicate version", ErrorKind::UnknownArgument),
            ("sanderling fs version", ErrorKind::InvalidSubcommand),
        ] {
            assert_eq!(read(&words(line)).err().map(|error| error.kind()), Some(kind), "{line}");
        }
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let help = template(&Cli::command());
        for command in Cli::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{}", command.get_name());
        }
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
    }
}
