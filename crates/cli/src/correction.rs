//! Corrects a command line that cannot be understood. Another value is proposed only if the command
//! line reads it.

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use glob::{Pattern, PatternError};
use sanderling_context::strict::nearest;
use sanderling_protocol::Refusal;
use sanderling_protocol::limits::{NAME_BYTES_MAX, PATH_DEPTH_MAX};

use crate::args::Cli;
use crate::command_line::{NamedCommand, first_word, has_value_after, read};
use crate::near_units::{RATE_EXAMPLE, SIZE_EXAMPLE, SPAN_EXAMPLE, rates, sizes, spans};
use crate::refused::shell_word;

/// Most values that are proposed side by side: a reader chooses among few lines.
const ALTERNATIVES_MAX: usize = 4;

/// Options whose values are of a few kinds: how many of the values are proposed where none is near,
/// and the values.
const KNOWN: [(&str, usize, &[&str]); 4] = [
    (
        "class",
        2,
        &[
            "dram",
            "disk",
            "dram:fall-through",
            "dram:wait",
            "dram:refuse",
            "disk:fall-through",
            "disk:wait",
            "disk:refuse",
        ],
    ),
    // Of `local start`; a group survives a loss.
    ("namenodes", 2, &["3", "1"]),
    ("notice-source", 4, &["aws", "gcp", "azure", "file:PATH"]),
    (
        "preemption-model",
        2,
        &["bathtub:n1-highcpu-16", "exponential:mean=12h", "lifetimes:FILE", "trace:FILE"],
    ),
];

/// Values of options that are required, where the name of the value is no example of one: servers
/// make these directories.
const EXAMPLES: [(&str, &str); 2] = [("dir", "catalog"), ("disk-dir", "disk")];

/// Schemes of URLs that name a host before the path.
const HOST_SCHEMES: [&str; 10] =
    ["file", "ftp", "hdfs", "http", "https", "sanderling", "sftp", "swebhdfs", "viewfs", "webhdfs"];

/// Schemes of URLs that name a bucket before the path, whose name may be that of a directory.
const BUCKET_SCHEMES: [&str; 4] = ["gs", "s3", "s3a", "s3n"];

/// Groups whose commands are typed without them, as `put` for `fs put`; the likelier first.
const OFTEN_LEFT_OUT: [&str; 3] = ["fs", "local", "node"];

/// What to type instead of words that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Correction {
    /// Other words, in which something else may still be wrong. Among them may be an example of
    /// what is missing, such as `/TO`.
    Words(Vec<OsString>),
    /// A command as `next:` has it.
    Text(String),
}

/// Returns the command as it is typed.
pub(crate) fn shown(words: &[OsString]) -> String {
    let words = words.iter().skip(1).map(|word| shell_word(&word.to_string_lossy()));
    format!("sanderling {}", words.collect::<Vec<_>>().join(" "))
}

/// Returns what to type instead, the likeliest first; nothing where only the help shows it.
pub(crate) fn corrections(error: &clap::Error, args: &[OsString]) -> Vec<Correction> {
    let root = built();
    let line = WrongLine::new(error, args, &root);
    match error.kind() {
        ErrorKind::InvalidSubcommand => line.subcommand(&root).into_iter().collect(),
        ErrorKind::UnknownArgument => line.option().into_iter().collect(),
        ErrorKind::InvalidValue => line.possible_values(),
        ErrorKind::ValueValidation => line.other_values(),
        ErrorKind::MissingRequiredArgument => line.missing(),
        _ => Vec::new(),
    }
}

/// Returns the cause, where clap reports another one than the words have.
pub(crate) fn cause(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let root = built();
    let line = WrongLine::new(error, args, &root);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let (at, option) = line.negative()?;
            let value = args[at].to_string_lossy();
            Some(format!("invalid value '{value}' for '{option}': it is negative"))
        }
        ErrorKind::ValueValidation | ErrorKind::MissingRequiredArgument => {
            let Some(last) = line.absent_last() else {
                return line.url().or_else(|| line.no_number());
            };
            Some(format!("the following required arguments were not provided: {last}"))
        }
        _ => None,
    }
}

/// Returns the program's commands with all their options.
pub(crate) fn built() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// Returns whether the command line reads this value in the words. Other mistakes in them do not
/// count, unless the value stands where the name of a command does.
fn is_read(words: &[OsString], value: &str) -> bool {
    let Err(error) = read(words) else { return true };
    match error.kind() {
        ErrorKind::InvalidSubcommand => false,
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            texts(&error, ContextKind::InvalidValue).first().is_none_or(|wrong| wrong != value)
        }
        _ => true,
    }
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        _ => Vec::new(),
    }
}

/// Returns the name of an argument's value, such as DURATION.
fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(<[_]>::first).map_or("VALUE", |name| name.as_str())
}

/// Returns a value that stands for one that is missing.
fn example(arg: &Arg) -> String {
    let long = arg.get_long().unwrap_or_default();
    if let Some((_, value)) = EXAMPLES.iter().find(|(option, _)| *option == long) {
        return (*value).to_owned();
    }
    if let Some(value) = arg.get_possible_values().first() {
        return value.get_name().to_owned();
    }
    let value = match value_name(arg) {
        name if name.contains("DURATION") => SPAN_EXAMPLE,
        "SIZE" => SIZE_EXAMPLE,
        "RATE" => RATE_EXAMPLE,
        name => name,
    };
    value.to_owned()
}

/// Returns what an error is caused by, down to its origin.
fn causes(error: &clap::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// Words that cannot be understood.
struct WrongLine<'a> {
    error: &'a clap::Error,
    args: &'a [OsString],
    /// The command that they name.
    command: &'a Command,
    /// Where the words behind the command's name begin.
    values_at: usize,
}

impl<'a> WrongLine<'a> {
    fn new(error: &'a clap::Error, args: &'a [OsString], root: &'a Command) -> Self {
        let NamedCommand { command, values_at, .. } = NamedCommand::of(args, root);
        Self { error, args, command, values_at }
    }

    fn text(&self, kind: ContextKind) -> Option<String> {
        texts(self.error, kind).into_iter().next()
    }

    /// Returns the argument that clap shows like this.
    fn argument(&self, shown: &str) -> Option<&'a Arg> {
        self.command.get_arguments().find(|arg| arg.to_string() == shown)
    }

    /// Returns where the words are that belong to no option; `None` if an option is unknown.
    fn positionals(&self) -> Option<Vec<usize>> {
        let (mut found, mut at) = (Vec::new(), self.values_at);
        while let Some(word) = self.args.get(at) {
            let text = word.to_string_lossy();
            if text == "--" {
                found.extend(at + 1..self.args.len());
                break;
            }
            let is_option = text.starts_with('-') && text != "-";
            if !is_option {
                found.push(at);
            }
            let has_value = is_option && has_value_after(&text, self.command)?;
            at += if has_value { 2 } else { 1 };
        }
        Some(found)
    }

    /// Returns the words with another one at a place.
    fn with(&self, at: usize, word: &str) -> Vec<OsString> {
        let mut words = self.args.to_vec();
        words[at] = word.into();
        words
    }

    fn subcommand(&self, root: &Command) -> Option<Correction> {
        let wrong = self.text(ContextKind::InvalidSubcommand)?;
        if let Some(at) = first_word(self.args, root).filter(|at| self.args[*at] == *wrong)
            && let Some(group) = group_with(root, &wrong)
        {
            // They delete the data of a local cluster that is there, one of them with `--yes`.
            if group == "local" && ["start", "stop"].contains(&wrong.as_str()) {
                return Some(Correction::Text("sanderling local --help".to_owned()));
            }
            let mut words = self.args.to_vec();
            words.insert(at, group.into());
            return Some(Correction::Words(words));
        }
        // clap puts the most similar one at the end.
        let right = texts(self.error, ContextKind::SuggestedSubcommand).pop()?;
        // clap takes `frobnicate` for `concat`: a first letter is rarely the wrong one.
        right.chars().next().filter(|first| wrong.starts_with(*first))?;
        let at = self.args.iter().skip(1).position(|word| *word == *wrong)? + 1;
        Some(Correction::Words(self.with(at, &right)))
    }

    fn option(&self) -> Option<Correction> {
        if let Some((at, _)) = self.negative() {
            let word = self.args[at].to_string_lossy();
            let value = word.trim_start_matches('-');
            let words = self.with(at, value);
            return is_read(&words, value).then_some(Correction::Words(words));
        }
        let name = |text: String| text.split([' ', '=']).next().unwrap_or_default().to_owned();
        let wrong = name(self.text(ContextKind::InvalidArg)?);
        let right = name(self.text(ContextKind::SuggestedArg)?);
        let words = self.args.iter().map(|word| match word.to_str() {
            Some(text) if text == wrong => OsString::from(&right),
            Some(text) => match text.split_once('=') {
                Some((name, value)) if name == wrong => format!("{right}={value}").into(),
                _ => word.clone(),
            },
            None => word.clone(),
        });
        Some(Correction::Words(words.collect()))
    }

    /// Returns where a negative number is, which clap takes for an unknown option, and the option
    /// whose value it is.
    fn negative(&self) -> Option<(usize, String)> {
        // Only its first digit is named.
        let wrong = self.text(ContextKind::InvalidArg)?;
        let is_number = wrong.strip_prefix('-')?.starts_with(|char: char| char.is_ascii_digit());
        let is_it = |word: &OsString| word.to_string_lossy().starts_with(&wrong);
        let at = self.args.iter().skip(1).position(is_it).filter(|_| is_number)? + 1;
        let option = self.args[at - 1].to_str()?.strip_prefix("--")?;
        let is_it = |arg: &&Arg| arg.get_long() == Some(option) && arg.get_action().takes_values();
        Some((at, self.command.get_arguments().find(is_it)?.to_string()))
    }

    /// Returns what is wrong with a value that has to be a whole number, in other words than those
    /// of the standard library, which have no subject.
    fn no_number(&self) -> Option<String> {
        let cause = self.error.source()?.to_string();
        let value = self.text(ContextKind::InvalidValue)?;
        let shown = self.text(ContextKind::InvalidArg)?;
        let is_negative = value.parse::<i128>().is_ok_and(|number| number < 0);
        let why = if is_negative { "it is negative" } else { "it is no whole number" };
        (cause == "invalid digit found in string")
            .then(|| format!("invalid value '{value}' for '{shown}': {why}"))
    }

    /// Returns what is wrong with a URL where a path of the cluster is needed.
    fn url(&self) -> Option<String> {
        let value = self.text(ContextKind::InvalidValue).filter(|_| self.is_bad_path())?;
        let shown = self.text(ContextKind::InvalidArg)?;
        let path = paths(without_host(&value)?).pop().unwrap_or_else(|| "/PATH".to_owned());
        let why = format!("it is a URL; a path of the cluster is needed, such as {path}");
        Some(format!("invalid value '{value}' for '{shown}': {why}"))
    }

    fn possible_values(&self) -> Vec<Correction> {
        let shown = self.text(ContextKind::InvalidArg);
        let arg = shown.and_then(|shown| self.argument(&shown));
        let (Some(arg), Some(wrong)) = (arg, self.text(ContextKind::InvalidValue)) else {
            return Vec::new();
        };
        if wrong.is_empty() {
            return self.with_example(arg).into_iter().collect();
        }
        let near = texts(self.error, ContextKind::SuggestedValue);
        let values =
            if near.is_empty() { texts(self.error, ContextKind::ValidValue) } else { near };
        if values.len() > ALTERNATIVES_MAX {
            return Vec::new();
        }
        values.iter().filter_map(|value| self.with_value(arg, &wrong, value)).collect()
    }

    /// Returns the words with a value behind an option at their end that lacks one.
    fn with_example(&self, arg: &Arg) -> Option<Correction> {
        let last = self.args.last()?.to_str()?.strip_prefix("--")?;
        let words = [self.args, &[OsString::from(example(arg))]].concat();
        (arg.get_long() == Some(last)).then(|| Correction::Text(shown(&words)))
    }

    fn other_values(&self) -> Vec<Correction> {
        if self.absent_last().is_some() {
            return self.missing();
        }
        let shown = self.text(ContextKind::InvalidArg);
        let arg = shown.and_then(|shown| self.argument(&shown));
        let (Some(arg), Some(wrong)) = (arg, self.text(ContextKind::InvalidValue)) else {
            return Vec::new();
        };
        let known = KNOWN.iter().find(|(option, ..)| arg.get_long() == Some(*option));
        if let Some((_, count, values)) = known {
            let near = nearest(&wrong, values.iter().copied());
            let values = near.as_ref().map_or(&values[..*count], std::slice::from_ref);
            return values.iter().filter_map(|it| self.with_value(arg, &wrong, it)).collect();
        }
        match value_name(arg) {
            "JOB" => return vec![Correction::Text("sanderling job ls".to_owned())],
            "NAME=TEXT" => return self.attributes(arg, &wrong),
            _ => {}
        }
        let candidates = self.candidates(arg, &wrong);
        let found = candidates.iter().find_map(|value| self.with_value(arg, &wrong, value));
        found.or_else(|| self.shorter(&wrong)).into_iter().collect()
    }

    /// Returns values that may be meant, the likeliest first.
    fn candidates(&self, arg: &Arg, wrong: &str) -> Vec<String> {
        let mut found = match value_name(arg) {
            name if name.contains("DURATION") => spans(wrong),
            "SIZE" => sizes(wrong),
            "RATE" => rates(wrong),
            _ => Vec::new(),
        };
        if self.is_bad_path() {
            found.extend(paths(without_host(wrong).unwrap_or(wrong)));
        }
        if causes(self.error).any(|cause| cause.is::<PatternError>()) {
            let names: Vec<String> = wrong.split('/').map(pattern).collect();
            found.push(names.join("/"));
        }
        found.extend(self.numbers(wrong));
        let defaults = arg.get_default_values().iter();
        found.extend(defaults.map(|value| value.to_string_lossy().into_owned()));
        found
    }

    fn is_bad_path(&self) -> bool {
        let mut refusals = causes(self.error).filter_map(|cause| cause.downcast_ref::<Refusal>());
        refusals.any(|refusal| matches!(refusal, Refusal::BadPath { .. }))
    }

    /// Returns numbers near one that is refused: the bound of the range that clap names, as in
    /// `9 is not in 1..=7`, the number without its sign, and the one before it.
    fn numbers(&self, wrong: &str) -> Vec<String> {
        let Ok(number) = wrong.parse::<i128>() else { return Vec::new() };
        let cause = self.error.source().map(ToString::to_string).unwrap_or_default();
        let range = cause.rsplit(' ').next().and_then(|range| range.split_once(".."));
        let bound = range.and_then(|(low, high)| {
            let high: i128 = high.trim_start_matches('=').parse().ok()?;
            Some(number.min(high).max(low.parse().ok()?))
        });
        let near = [number.saturating_abs(), number.saturating_sub(1)];
        bound.into_iter().chain(near).map(|number| number.to_string()).collect()
    }

    /// Returns the command that shows all attributes, if that was meant, and the one that sets the
    /// attribute.
    fn attributes(&self, arg: &Arg, wrong: &str) -> Vec<Correction> {
        let (name, text) = wrong.split_once('=').unwrap_or((wrong, "TEXT"));
        let name = if name.is_empty() { "NAME" } else { name };
        let set = self.with_value(arg, wrong, &format!("{name}={text}"));
        let mut show = self.args.to_vec();
        show.retain(|word| *word != *wrong);
        let is_shown = arg.get_long().is_none() && !wrong.is_empty() && read(&show).is_ok();
        let show = is_shown.then_some(Correction::Words(show));
        show.into_iter().chain(set).collect()
    }

    /// Returns what to do about a path that is too long or too deep.
    fn shorter(&self, wrong: &str) -> Option<Correction> {
        let names: Vec<&str> = wrong.split('/').filter(|name| !name.is_empty()).collect();
        let limit = if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            format!("names of at most {NAME_BYTES_MAX} bytes")
        } else if names.len() > PATH_DEPTH_MAX {
            format!("a path of at most {PATH_DEPTH_MAX} names")
        } else {
            return None;
        };
        self.is_bad_path().then(|| Correction::Text(format!("the same with {limit}")))
    }

    /// Returns the words with another value of an argument, if the command line reads it.
    fn with_value(&self, arg: &Arg, wrong: &str, right: &str) -> Option<Correction> {
        let is_option = arg.get_long().is_some();
        let places = if is_option { None } else { self.positionals() };
        let replaced = |(at, word): (usize, &OsString)| {
            let Some(text) = word.to_str().filter(|_| at > 0) else { return word.clone() };
            let is_place = match &places {
                Some(places) => places.contains(&at),
                None if is_option => is_named(arg, &self.args[at - 1].to_string_lossy()),
                None => at >= self.values_at,
            };
            match text.split_once('=') {
                _ if is_place && text == wrong => right.into(),
                Some((name, value)) if is_option && is_named(arg, name) && value == wrong => {
                    format!("{name}={right}").into()
                }
                _ => word.clone(),
            }
        };
        let words: Vec<OsString> = self.args.iter().enumerate().map(replaced).collect();
        if words == self.args {
            return self.in_environment(arg, right);
        }
        is_read(&words, right).then_some(Correction::Words(words))
    }

    /// Returns the command with another value of a variable of the environment, which had the wrong
    /// one.
    fn in_environment(&self, arg: &Arg, right: &str) -> Option<Correction> {
        let variable = arg.get_env()?.to_str()?;
        std::env::var_os(variable)?;
        // An option comes before the variable.
        let mut words = self.args.to_vec();
        words.insert(self.values_at, format!("--{}={right}", arg.get_long()?).into());
        let text = format!("{variable}={} {}", shell_word(right), shown(self.args));
        is_read(&words, right).then_some(Correction::Text(text))
    }

    /// Returns the last argument of a command like `fs cp` if it is missing: clap reads the only
    /// path as the last, and reports that those before it are missing.
    fn absent_last(&self) -> Option<&'a Arg> {
        let mut all = self.command.get_positionals().filter(|arg| arg.is_required_set());
        let (first, last) = (all.next()?, all.next()?);
        let of_error = match self.error.kind() {
            ErrorKind::MissingRequiredArgument => first,
            _ => last,
        };
        let is_of_error = self.text(ContextKind::InvalidArg)? == of_error.to_string();
        (is_of_error && all.next().is_none() && self.positionals()?.len() == 1).then_some(last)
    }

    /// Returns the words with examples of what is missing.
    fn missing(&self) -> Vec<Correction> {
        let shown = texts(self.error, ContextKind::InvalidArg);
        let arguments: Option<Vec<&Arg>> = match self.absent_last() {
            Some(last) => Some(vec![last]),
            None => shown.iter().map(|shown| self.argument(shown)).collect(),
        };
        if let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) {
            // Its owner has the file, or makes one.
            let is_secret = arguments.iter().any(|arg| arg.get_long() == Some("secret-file"));
            let secret = Correction::Text("sanderling token secret --out FILE".to_owned());
            return [self.with_missing(&arguments)]
                .into_iter()
                .chain(is_secret.then_some(secret))
                .collect();
        }
        // One of several, as in `<--subject <NAME>|--id <ID>>`.
        let [group] = shown.as_slice() else { return Vec::new() };
        let options = group.strip_prefix('<').and_then(|group| group.strip_suffix('>'));
        let options = options.unwrap_or_default().split('|');
        let options: Vec<&Arg> = options.filter_map(|shown| self.argument(shown)).collect();
        options.iter().take(ALTERNATIVES_MAX).map(|arg| self.with_missing(&[*arg])).collect()
    }

    fn with_missing(&self, arguments: &[&Arg]) -> Correction {
        let mut words = self.args.to_vec();
        let given = self.positionals().unwrap_or_default();
        let after = given.last().map_or(words.len(), |last| last + 1);
        let (mut options, mut is_whole) = (Vec::new(), true);
        let positionals = arguments.iter().filter(|arg| arg.get_long().is_none());
        for (at, arg) in (after..).zip(positionals) {
            let (value, is_read) = self.positional(&words, at, arg);
            words.insert(at, value.into());
            is_whole &= is_read;
        }
        for arg in arguments {
            let Some(long) = arg.get_long() else { continue };
            options.push(OsString::from(format!("--{long}")));
            if arg.get_action().takes_values() {
                let value = example(arg);
                is_whole &= value != value_name(arg);
                options.push(value.into());
            }
        }
        // What follows `--` is no option.
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(end..end, options);
        // A word that its reader fills in need not be right.
        if is_whole { Correction::Words(words) } else { Correction::Text(shown(&words)) }
    }

    /// Returns what stands for a word that is missing at a place, and whether the command line
    /// reads it.
    fn positional(&self, words: &[OsString], at: usize, arg: &Arg) -> (String, bool) {
        let name = value_name(arg);
        // What is stored keeps its name, unless it comes from stdin.
        let stored = self.positionals().unwrap_or_default().first().and_then(|first| {
            let file = Path::new(&self.args[*first]).file_name()?.to_str()?;
            let is_stored = self.command.get_name() == "put" && name == "PATH" && file != "-";
            is_stored.then(|| format!("/{file}"))
        });
        let mut values = stored.into_iter().chain([example(arg), format!("/{name}")]);
        let found = values.find(|value| {
            let mut words = words.to_vec();
            words.insert(at, value.into());
            is_read(&words, value)
        });
        let is_found = found.is_some();
        (found.unwrap_or_else(|| name.to_owned()), is_found)
    }
}

/// Returns whether a word names an option, alone or as the last of several short ones.
fn is_named(arg: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(name) => arg.get_long() == Some(name),
        None => word.starts_with('-') && arg.get_short().is_some_and(|it| word.ends_with(it)),
    }
}

/// Returns the group of commands in which one with this name is, where it is often typed without
/// its group.
fn group_with(root: &Command, name: &str) -> Option<&'static str> {
    let has = |group: &str| root.find_subcommand(group)?.find_subcommand(name);
    OFTEN_LEFT_OUT.into_iter().find(|&group| has(group).is_some())
}

/// Returns what of a URL may be a path of the cluster, as `bucket/x` of `s3://bucket/x` and `/x` of
/// `hdfs://host/x`; `None` of another text.
fn without_host(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if scheme.is_empty() || !scheme.bytes().all(is_of_scheme) {
        return None;
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let scheme = scheme.to_ascii_lowercase();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, it)| it.parse::<u16>().is_ok());
    let has_host = HOST_SCHEMES.contains(&scheme.as_str())
        || (has_port && !BUCKET_SCHEMES.contains(&scheme.as_str()));
    Some(if has_host { path } else { rest })
}

/// Returns the paths that a text may mean, without empty names, `.` and `..`; none for one that
/// would be the root and with it everything.
fn paths(text: &str) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    let path = format!("/{}", names.join("/"));
    match (names.is_empty(), text.ends_with('/')) {
        (true, _) => Vec::new(),
        // A destination that has to be a directory; other paths have no slash at their end.
        (false, true) => vec![format!("{path}/"), path],
        (false, false) => vec![path],
    }
}

/// Returns the pattern that a name may mean: with brackets that stand for themselves, or else with
/// its bracket closed. A closed bracket would match other names than the one that was typed.
fn pattern(name: &str) -> String {
    if Pattern::new(name).is_ok() {
        return name.to_owned();
    }
    let mut name = name.to_owned();
    while name.contains("**") {
        name = name.replace("**", "*");
    }
    let closed = format!("{name}]");
    let all = [name.clone(), name.replace('[', "[[]"), closed];
    all.into_iter().find(|name| Pattern::new(name).is_ok()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// Returns what to type instead of a line, and what is wrong with it where clap's cause is not.
    fn corrected(line: &str) -> (Vec<String>, Option<String>) {
        let args = words(line);
        let error = read(&args).expect_err("it is wrong");
        let texts = corrections(&error, &args).into_iter().map(|correction| match correction {
            Correction::Words(words) => shown(&words),
            Correction::Text(text) => text,
        });
        (texts.collect(), cause(&error, &args))
    }

    #[test]
    fn wrong_values_are_replaced_by_the_nearest_that_is_read() {
        for (line, right) in [
            ("sanderling fs put a /b --ttl=5x", "sanderling fs put a /b --ttl=5s"),
            ("sanderling fs put 5x /b --ttl 5x", "sanderling fs put 5x /b --ttl 5s"),
            ("sanderling fs cat cat", "sanderling fs cat /cat"),
            ("sanderling fs rm /a/../b//c", "sanderling fs rm /b/c"),
            ("sanderling fs cp /a b/", "sanderling fs cp /a /b/"),
            ("sanderling job new /a/", "sanderling job new /a"),
            ("sanderling fs cat /[a/x", "sanderling fs cat '/[[]a/x'"),
            ("sanderling fs rm /run[1", "sanderling fs rm '/run[[]1'"),
            ("sanderling --context local fs cat a", "sanderling --context local fs cat /a"),
            ("sanderling fs --context=local cat a", "sanderling fs --context=local cat /a"),
            ("sanderling fs cat /a**", "sanderling fs cat '/a*'"),
            ("sanderling fs put a /b --class drm", "sanderling fs put a /b --class dram"),
            ("sanderling fs ls --timeout -5s", "sanderling fs ls --timeout 5s"),
            ("sanderling fs cat /a --bytes=-1", "sanderling fs cat /a --bytes=1"),
            ("sanderling local start --datanodes 900", "sanderling local start --datanodes 256"),
            ("sanderling namenode --dir d --voters 4", "sanderling namenode --dir d --voters 3"),
            ("sanderling fs ls s3://bucket/x", "sanderling fs ls /bucket/x"),
            ("sanderling fs ls s3a://bucket:1/x", "sanderling fs ls /bucket:1/x"),
            ("sanderling fs ls gs://bucket", "sanderling fs ls /bucket"),
            ("sanderling fs ls oss://bucket/x", "sanderling fs ls /bucket/x"),
            ("sanderling fs get file:///a b", "sanderling fs get /a b"),
            ("sanderling fs get file://localhost/a b", "sanderling fs get /a b"),
            ("sanderling fs ls hdfs://nn:8020/x/y", "sanderling fs ls /x/y"),
            ("sanderling fs ls HDFS://nn/x", "sanderling fs ls /x"),
            ("sanderling fs ls hdfs://nn:8020", "sanderling fs ls /"),
            ("sanderling fs ls https://user@h/x", "sanderling fs ls /x"),
            ("sanderling fs ls sanderling://h:7600/x", "sanderling fs ls /x"),
            ("sanderling fs ls other://h:1/x", "sanderling fs ls /x"),
            ("sanderling fs ls other://[::1]:1/x", "sanderling fs ls /x"),
            ("sanderling fs cp /a hdfs://nn/b/", "sanderling fs cp /a /b/"),
            (
                "sanderling local start --datanodes 0 --dir d --port 0",
                "sanderling local start --datanodes 1 --dir d --port 0",
            ),
            (
                "sanderling local start --port=0 --datanodes=0",
                "sanderling local start --port=0 --datanodes=1",
            ),
            ("sanderling job new /a --quota 5mb", "sanderling job new /a --quota 5MB"),
            ("sanderling local statu", "sanderling local status"),
        ] {
            assert_eq!(corrected(line).0, [right], "{line}");
        }
    }

    #[test]
    fn values_that_are_near_no_other_are_replaced_by_each_that_may_be_meant() {
        let line = "sanderling fs put a /b --class gold";
        let both = ["dram", "disk"].map(|it| format!("sanderling fs put a /b --class {it}"));
        assert_eq!(corrected(line).0, both);
        let sources = ["aws", "gcp", "azure", "file:PATH"];
        let sources = sources.map(|it| format!("sanderling datanode --notice-source {it}"));
        assert_eq!(corrected("sanderling datanode --notice-source ibm").0, sources);
        let group = "sanderling local start --port 2 --namenodes";
        let counts = ["3", "1"].map(|it| format!("{group} {it}"));
        assert_eq!(corrected(&format!("{group} 2")).0, counts);
        let modes = ["os", "always"].map(|it| format!("sanderling namenode --dir d --sync {it}"));
        assert_eq!(corrected("sanderling namenode --dir d --sync never").0, modes);
        let (attributes, _) = corrected("sanderling fs attr /a x");
        assert_eq!(attributes, ["sanderling fs attr /a", "sanderling fs attr /a x=TEXT"]);
    }

    #[test]
    fn what_is_missing_is_added() {
        for (line, right) in [
            ("sanderling datanode --disk 1GiB", "sanderling datanode --disk 1GiB --disk-dir disk"),
            ("sanderling fs put d/f --force", "sanderling fs put d/f /f --force"),
            ("sanderling fs put d/f", "sanderling fs put d/f /f"),
            ("sanderling fs put -", "sanderling fs put - /PATH"),
            ("sanderling fs cp /a", "sanderling fs cp /a /TO"),
            ("sanderling fsck --verify", "sanderling fsck --verify --deep"),
            ("sanderling fs put a /b --ttl", "sanderling fs put a /b --ttl 30s"),
            ("sanderling token secret", "sanderling token secret --out FILE"),
        ] {
            assert_eq!(corrected(line).0, [right], "{line}");
        }
        let revoked = ["--subject NAME", "--id ID", "--file FILE"];
        let revoked = revoked.map(|it| format!("sanderling token revoke {it}"));
        assert_eq!(corrected("sanderling token revoke").0, revoked);
    }

    #[test]
    fn nothing_is_proposed_that_would_mean_everything() {
        for line in [
            "sanderling fs rm -r .",
            "sanderling fs rm -r ..",
            "sanderling fs rm -r ",
            "sanderling fs rm -r hdfs://nn:8020/",
            "sanderling fs rm -r s3://",
        ] {
            assert_eq!(corrected(line).0, [""; 0], "{line}");
        }
    }

    #[test]
    fn cause_names_what_was_typed() {
        let (_, cause) = corrected("sanderling fs cat /a --offset -1");
        let negative = "invalid value '-1' for '--offset <OFFSET>': it is negative";
        assert_eq!(cause.as_deref(), Some(negative));
        assert_eq!(corrected("sanderling fs cat /a --offset=-1").1.as_deref(), Some(negative));
        let (texts, cause) = corrected("sanderling fs cat /a --offset x");
        assert!(cause.is_some_and(|cause| cause.ends_with("it is no whole number")));
        assert_eq!(texts, ["sanderling fs cat /a --offset 0"]);
        for line in ["sanderling fs put f", "sanderling fs put f --force"] {
            let missing = "the following required arguments were not provided: <PATH>";
            assert_eq!(corrected(line).1.as_deref(), Some(missing), "{line}");
        }
        assert_eq!(corrected("sanderling fs cp a /b").1, None);
        let url = corrected("sanderling fs ls s3://bucket/x").1.expect("a cause");
        assert!(url.ends_with("a path of the cluster is needed, such as /bucket/x"), "{url}");
        let url = corrected("sanderling fs cat hdfs://nn:8020/x").1.expect("a cause");
        assert!(url.ends_with("a path of the cluster is needed, such as /x"), "{url}");
        let url = corrected("sanderling fs cat hdfs://nn:8020").1.expect("a cause");
        assert!(url.ends_with("a path of the cluster is needed, such as /PATH"), "{url}");
        assert_eq!(corrected("sanderling fs ls / -z"), (Vec::new(), None));
    }
}
