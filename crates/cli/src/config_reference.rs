//! Checks that docs/CONFIGURATION.md has every key. `UPDATE=1 cargo test -p sanderling-cli --lib
//! reference` writes its tables anew.

use std::fmt::Write;

use clap::{Arg, CommandFactory};
use sanderling_config::{ConfigKey, KeyKind, NOT_IN_FILES, PAGE, SERVERS, ServerTable, is_common};
use sanderling_tidy::tree;

use crate::args::Cli;

const START: &str = "<!-- the tables of keys are made by a test -->\n";

fn flag<'a>(all: &'a clap::Command, server: &ServerTable, key: &ConfigKey) -> &'a Arg {
    let found = server.words.iter().fold(all, |command, word| {
        command.find_subcommand(word).expect("each server is a command")
    });
    let mut flags = found.get_arguments();
    flags.find(|flag| flag.get_id().as_str() == key.id).expect("it is a flag")
}

fn row(flag: &Arg, key: &ConfigKey) -> String {
    let kind = match key.kind {
        KeyKind::Switch => "true or false",
        KeyKind::Count => "number",
        KeyKind::List => "list",
        KeyKind::Value => "text",
    };
    let defaults = flag.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = defaults.filter(|text| !text.is_empty()).map(|text| format!("`{text}`"));
    let default = default.collect::<Vec<_>>().join(", ");
    let default = if key.kind == KeyKind::Switch { "`false`" } else { &default };
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
    let variable = key.variable.as_ref().map_or_else(String::new, |name| format!("`{name}`"));
    let default = if key.kind == KeyKind::Count { "`0`" } else { default };
    format!("| `{}` | {kind} | {default} | {variable} | {help} |\n", key.name)
}

fn tables() -> String {
    let mut all = Cli::command();
    all.build();
    let head =
        "| key | value | default | variable | what it is |\n| --- | --- | --- | --- | --- |\n";
    let mut text = format!("### Keys at the top\n\n{head}");
    let mut common: Vec<(&str, String)> = Vec::new();
    for server in &SERVERS {
        for key in server.keys(Cli::command).iter().filter(|key| is_common(Cli::command, &key.name))
        {
            if common.iter().all(|(name, _)| *name != key.name) {
                let row = row(flag(&all, server, key), key);
                text.push_str(&row);
                common.push((&key.name, row));
            }
        }
    }
    for server in &SERVERS {
        write!(text, "\n### `[{}]`\n\n{head}", server.name).expect("a text takes all");
        let rows = server.keys(Cli::command).iter().map(|key| row(flag(&all, server, key), key));
        // A key of the top that is another thing for this server has a row here, too.
        rows.filter(|row| common.iter().all(|(_, it)| it != row)).for_each(|row| text += &row);
        let is_common = |key: &&ConfigKey| common.iter().any(|(name, _)| *name == key.name);
        let also = server.keys(Cli::command).iter().filter(is_common);
        let also: Vec<String> = also.map(|key| format!("`{}`", key.name)).collect();
        write!(text, "\nAlso keys of the top: {}.\n", also.join(", ")).expect("a text takes all");
    }
    text
}

#[test]
fn page_has_every_key_of_the_command_line() {
    let path = tree::root().join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (before, found) = page.split_once(START).expect("the page has the mark");
    let wanted = format!("\n{}", tables());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{before}{START}{wanted}")).expect("written");
    } else {
        assert_eq!(found, wanted, "run this test with UPDATE=1");
    }
}

#[test]
fn each_flag_is_a_key_or_excluded_by_name() {
    let mut all = Cli::command();
    all.build();
    for server in &SERVERS {
        let command = server.words.iter().fold(&all, |command, word| {
            command.find_subcommand(word).expect("each server is a command")
        });
        for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
            let name = flag.get_long().expect("servers have no positional arguments");
            let is_key = server.keys(Cli::command).iter().any(|key| key.name == name);
            assert!(is_key != NOT_IN_FILES.contains(&name), "{}: {name}", server.name);
        }
    }
}
