//! The next commands of a failure, as they work where the failed command was typed.
//!
//! A failure far below the command line has neither its words nor the cluster that they named. It
//! writes `the same with --force` or `sanderling fs ls /`; here the words are filled in. Several
//! commands are separated by `, or `. A name in single quotes may contain anything, also such
//! words: a quoted word is neither split nor changed.

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
    let commands = split(next, SEPARATOR).into_iter().map(|command| one(command, &words));
    commands.collect::<Vec<_>>().join(SEPARATOR)
}

/// Splits a text at each separator outside of single quotes, as [`shell_word`] writes them. An
/// apostrophe after a letter begins no quoted word.
fn split<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut is_quoted, mut before) = (false, ' ');
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\'' if is_quoted || !before.is_alphanumeric() => is_quoted = !is_quoted,
            // What follows it stands for itself.
            '\\' if !is_quoted => {
                characters.next();
            }
            _ if !is_quoted && at >= begin && text[at..].starts_with(separator) => {
                parts.push(&text[begin..at]);
                begin = at + separator.len();
            }
            _ => {}
        }
        before = character;
    }
    parts.push(&text[begin..]);
    parts
}

fn one(command: &str, words: &[String]) -> String {
    // Prose, such as `the same with another --listen`, stays as it is.
    let is_flag =
        |text: &str| text.starts_with('-') || split(text, " ").iter().all(|it| it.contains('='));
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
    let changes = split(change, " ");
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
    if is_local || split(rest, " ").last() == Some(&"--help") {
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
    // A name that contains a flag's is no flag.
    let given: Vec<&str> =
        split(rest, " ").into_iter().filter_map(|word| word.split('=').next()).collect();
    for (at, word) in words.iter().enumerate() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), words.get(at + 1).map(String::as_str)),
        };
        let is_wanted = names.contains(&name) && !given.contains(&name);
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

    #[test]
    fn text_is_split_outside_of_quoted_words_alone() {
        assert_eq!(split("a, or b, or c", SEPARATOR), ["a", "b", "c"]);
        assert_eq!(split("ls 'a, or b', or c", SEPARATOR), ["ls 'a, or b'", "c"]);
        assert_eq!(split("the node's log, or c", SEPARATOR), ["the node's log", "c"]);
        for name in ["it's, or b", "', or b", "a\\', or '", "''", "\\", "é', or 'é"] {
            let quoted = format!("ls {}", shell_word(name));
            let text = format!("{quoted}, or c");
            assert_eq!(split(&text, SEPARATOR), [quoted.as_str(), "c"], "{name}");
        }
        assert_eq!(split("--out 'a b' -x", " "), ["--out", "'a b'", "-x"]);
    }

    #[test]
    fn flags_in_a_name_are_no_flags_of_the_next_command() {
        let line = "sanderling --namenode h:1 fs ls";
        let called = "sanderling --namenode h:1 fs ls";
        for name in ["'a --namenode b'", "/--namenode", "'a --help'", "/a--help"] {
            assert_eq!(next(&format!("sanderling fs ls {name}"), line), format!("{called} {name}"));
        }
        let args = ["sanderling", "fs", "put", "a", "b", "--force"].map(OsString::from);
        let changed = completed("the same with --out 'x --force y'", &args);
        assert_eq!(changed, "sanderling fs put a b --force --out 'x --force y'");
    }

    /// Runs a text as a user does that copies it whole, without the program that it names.
    fn run_in_shell(text: &str, place: &std::path::Path) {
        let script = format!("sanderling() {{ :; }}\n{text}");
        let mut shell = std::process::Command::new("sh");
        // A text with prose in it may be no command: what counts is what it does.
        shell.args(["-c", &script]).current_dir(place).output().unwrap();
    }

    #[test]
    fn name_in_a_next_command_is_never_run_as_a_command() {
        let place = std::env::temp_dir().join(format!("odd names {}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let names = [
            "x;touch marker;, or the same with -b",
            "x;touch marker;, or the same with --force 'y",
            "x;touch marker;, or the same without -b",
            "x;touch marker;, or the same with A=1",
            "x;touch marker;, or sanderling local stop",
            "';touch marker;', or sanderling local stop",
            "it's;touch marker;, or the same with -b",
            "the same with -b;touch marker",
            "$(touch marker), or the same with -b",
            "`touch marker`, or sanderling fs df",
            "\";touch marker;\", or the same with -b",
            "\\';touch marker;, or the same with -b",
            "a\n;touch marker;, or the same with -b",
        ];
        for name in names {
            let args = ["sanderling", "fs", "put", name, "/x", "--dir", name, "--namenode", name];
            let args = args.map(OsString::from);
            let file = place.join(name);
            std::fs::write(&file, "text").unwrap();
            let looked = crate::failure::look_at(&file);
            let word = shell_word(name);
            let given = [
                format!("ls -ld {word}"),
                looked,
                format!("ls -ld {word}, or sanderling fs stat {word}, or the same with --force"),
                format!("sanderling local restart {word}, or sanderling local status"),
                format!("the same with --out {word}, or the same without --dir D"),
                format!("the same with A={word}"),
            ];
            for text in given {
                run_in_shell(&completed(&text, &args), &place);
                assert!(!place.join("marker").exists(), "{text} of {name}");
            }
            let look = format!("ls -ld {word}");
            assert_eq!(completed(&look, &args), look, "a command of others stays as it is");
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
