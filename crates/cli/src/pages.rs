//! Checks that every command in the pages parses.

use std::collections::BTreeSet;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use sanderling_tidy::{commands, tree};

use crate::args::Cli;

/// Returns what is wrong with a command line, if anything is.
fn wrong(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help).then(|| error.to_string())
}

fn flags_of(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|flag| flag.get_long());
    let mut flags: BTreeSet<String> = own.map(|flag| format!("--{flag}")).collect();
    flags.extend(command.get_subcommands().flat_map(flags_of));
    flags
}

/// Returns the flags that a text speaks of.
fn flags_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
    words.filter(|word| word.len() > 3 && word.starts_with("--")).collect()
}

#[test]
fn every_command_of_the_pages_is_understood() {
    let files = tree::read(&tree::root()).expect("the working tree can be read");
    let found = commands::of_pages(&files, "sanderling");
    assert!(found.len() > 10, "the pages hold commands: {}", found.len());
    let problems: Vec<String> = found
        .iter()
        .filter_map(|command| {
            let why = wrong(&command.words)?;
            Some(format!("{}:{}: {why}", command.path, command.line))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_flag_of_the_operators_page_exists() {
    let files = tree::read(&tree::root()).expect("the working tree can be read");
    let page = files.iter().find(|file| file.path == "docs/OPERATING.md").expect("it is there");
    let mut known = flags_of(&Cli::command());
    known.insert("--help".to_owned());
    let unknown: Vec<&str> =
        flags_in(&page.text).into_iter().filter(|flag| !known.contains(*flag)).collect();
    assert!(unknown.is_empty(), "docs/OPERATING.md speaks of {unknown:?}");
}

#[test]
fn every_flag_of_a_server_is_explained() {
    let files = tree::read(&tree::root()).expect("the working tree can be read");
    let page = files.iter().find(|file| file.path == "docs/OPERATING.md").expect("it is there");
    let explained = flags_in(&page.text);
    let cli = Cli::command();
    let servers = ["namenode", "datanode", "manager"];
    let servers = cli.get_subcommands().filter(|it| servers.contains(&it.get_name()));
    let shown = servers.flat_map(clap::Command::get_arguments).filter(|flag| !flag.is_hide_set());
    let flags: BTreeSet<String> =
        shown.filter_map(|flag| flag.get_long()).map(|flag| format!("--{flag}")).collect();
    assert!(flags.len() > 10);
    let missing: Vec<_> = flags.iter().filter(|flag| !explained.contains(flag.as_str())).collect();
    assert!(missing.is_empty(), "docs/OPERATING.md does not explain {missing:?}");
}

#[test]
fn every_alert_has_its_section_of_the_page_for_operators() {
    let files = tree::read(&tree::root()).expect("the working tree can be read");
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("it is there").text;
    let rules = text("deploy/prometheus/rules.yml");
    let alerts: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let sections: BTreeSet<&str> =
        text("docs/DAY-TWO.md").lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert_eq!(alerts, sections, "alerts, and sections of docs/DAY-TWO.md");
    for section in text("docs/DAY-TWO.md").split("\n### ").skip(1) {
        assert!(section.lines().nth(2).is_some_and(|line| line.len() > 20), "empty: {section}");
    }
}

#[test]
fn command_that_does_not_exist_is_noticed() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(wrong(&words("sanderling fs lsx /")).is_some());
    assert!(wrong(&words("sanderling node notice a --deadline never")).is_some());
    assert!(wrong(&words("sanderling fs --help")).is_none());
    assert_eq!(flags_in("give `--dram SIZE` - or --no-such"), ["--dram", "--no-such"].into());
}
