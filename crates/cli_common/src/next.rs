//! The next commands of a failure, as they work where the failed command was typed.
//!
//! A failure far below the command line has neither its words nor the cluster that they named. It
//! writes `the same with --force` or `sanderling fs ls /`; here the words are filled in. Several
//! commands are separated by `, or `.

use std::ffi::OsString;

use crate::refused::shell_word;

/// The flags that choose the cluster and what is shown to it: a next command needs them, too.
const CARRIED: [&str; 5] = ["--namenode", "--token-file", "--tls-ca", "--tls-name", "--context"];

/// Commands that talk to no namenode.
const WITHOUT_CLUSTER: [&str; 9] =
    ["help", "version", "tls", "context", "config", "completions", "sim", "lab", "mock-metadata"];

const SEPARATOR: &str = ", or ";

/// Completes every command of a text with the words of the command that failed.
#[must_use]
pub fn completed(next: &str, args: &[OsString]) -> String {
    let words: Vec<String> =
        args.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let commands = next.split(SEPARATOR).map(|command| one(command, &words));
    commands.collect::<Vec<_>>().join(SEPARATOR)
}

fn one(command: &str, words: &[String]) -> String {
    // Prose, such as `the same with another --listen`, stays as it is.
    let is_flag = |text: &str| text.starts_with('-') || text.split(' ').all(|it| it.contains('='));
    if let Some(change) = command.strip_prefix("the same with ").filter(|it| is_flag(it)) {
        return with(words, change);
    }
    if let Some(flag) = command.strip_prefix("the same without ").filter(|it| is_flag(it)) {
        // `--flag VALUE` stands for a flag with any value.
        return match flag.split_once(' ') {
            Some((flag, _)) => shown(&without(words, flag, true)),
            None => shown(&without(words, flag, false)),
        };
    }
    match command.strip_prefix("sanderling ") {
        Some(rest) => carried(words, rest),
        None => command.to_owned(),
    }
}

/// Returns the command with another flag, or with another value of a flag that it has.
fn with(words: &[String], change: &str) -> String {
    let flag = change.split([' ', '=']).next().unwrap_or_default();
    if !flag.starts_with('-') {
        // A variable of the environment.
        return format!("{change} {}", shown(words));
    }
    let mut words = words.to_vec();
    let changes: Vec<&str> = change.split(' ').collect();
    for (at, flag) in changes.iter().enumerate().filter(|(_, word)| word.starts_with('-')) {
        let takes_value = changes.get(at + 1).is_some_and(|value| !value.starts_with('-'));
        words = without(&words, flag, takes_value);
    }
    // What follows `--` is no flag.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let rest =
        if end < words.len() { format!(" {}", joined(&words[end..])) } else { String::new() };
    format!("{} {change}{rest}", shown(&words[..end]))
}

/// Returns the words without a flag and its value.
fn without(words: &[String], flag: &str, takes_value: bool) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let word = &words[at];
        if word == flag {
            at += 1 + usize::from(takes_value);
            continue;
        }
        let is_joined = word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
        if !is_joined {
            kept.push(word.clone());
        }
        at += 1;
    }
    kept
}

/// Returns a command with the flags that name the cluster of the one that failed.
fn carried(words: &[String], rest: &str) -> String {
    let command = rest.split(' ').next().unwrap_or_default();
    if command == "local" || command == "tour" {
        // Only `local` has a directory of the cluster.
        let is_local = words.iter().any(|word| word == "local" || word == "tour");
        let directory = flags(words, rest, &["--dir"]);
        let directory = if is_local { directory } else { String::new() };
        return format!("sanderling {rest} {directory}").trim_end().to_owned();
    }
    let is_local = WITHOUT_CLUSTER.contains(&command) || rest.starts_with("token secret");
    if is_local || rest.ends_with("--help") {
        return format!("sanderling {rest}");
    }
    // A command that makes a token shows none.
    let carried: Vec<&str> = CARRIED
        .into_iter()
        .filter(|flag| *flag != "--token-file" || !rest.starts_with("token new"))
        .collect();
    format!("sanderling {}{rest}", flags(words, rest, &carried))
}

/// Returns those of the flags that the words have and the next command has not, each with its value
/// and a space.
fn flags(words: &[String], rest: &str, names: &[&str]) -> String {
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), words.get(at + 1).map(String::as_str)),
        };
        let is_wanted = names.contains(&name) && !rest.contains(name);
        if let Some(value) = value.filter(|_| is_wanted) {
            text.push_str(&format!("{name} {} ", shell_word(value)));
        }
    }
    text
}

fn shown(words: &[String]) -> String {
    format!("sanderling {}", joined(words))
}

fn joined(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(next: &str, line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        completed(next, &args)
    }

    #[test]
    fn same_command_is_written_out_with_its_change() {
        let line = "sanderling fs put a b --timeout 1s";
        assert_eq!(
            next("the same with --force", line),
            "sanderling fs put a b --timeout 1s --force"
        );
        assert_eq!(next("the same with --timeout 9s", line), "sanderling fs put a b --timeout 9s");
        assert_eq!(next("the same without --timeout D", line), "sanderling fs put a b");
        let other = "the same with another --listen";
        assert_eq!(next(other, line), other);
        let line_of_flag = "sanderling fs rm -f /a";
        assert_eq!(next("the same without -f", line_of_flag), "sanderling fs rm /a");
        let both = "sanderling fs put a b --force --timeout 9s";
        assert_eq!(next("the same with --force --timeout 9s", line), both);
        assert_eq!(next("the same with A=1", line), "A=1 sanderling fs put a b --timeout 1s");
        let line = "sanderling fs rm --timeout=1s -- -x";
        assert_eq!(next("the same with --timeout 9s", line), "sanderling fs rm --timeout 9s -- -x");
    }

    #[test]
    fn next_command_goes_to_the_cluster_of_the_one_that_failed() {
        let line = "sanderling --namenode h:1 fs ls /x --token-file t";
        let both = next("sanderling fs ls /, or sanderling local start", line);
        let first = "sanderling --namenode h:1 --token-file t fs ls /";
        assert_eq!(both, format!("{first}, or sanderling local start"));
        let line = "sanderling --context prod manager --secret-file none";
        let next_of = "sanderling token secret --out FILE";
        assert_eq!(next(next_of, line), next_of, "it connects to no cluster");
        let line = "sanderling local stop --dir d";
        assert_eq!(next("sanderling local start", line), "sanderling local start --dir d");
        assert_eq!(next("chmod 600 f", line), "chmod 600 f");
    }
}
