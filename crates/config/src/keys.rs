//! The keys of a configuration file: the flags of the servers, as clap has them.

use std::any::TypeId;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Arg, ArgAction, ArgMatches, Command};

/// Makes the command line of the program, of which a process has one: its keys are read once.
pub type Program = fn() -> Command;

/// Flags that no file has: the file itself, contexts, the form of output, and one that accepts a
/// loss once, not at each start.
pub const NOT_IN_FILES: [&str; 7] =
    ["help", "version", "config", "context", "json", "timeout", "accept-journal-loss"];

/// Flags of more than one server that each process has for itself.
const OF_ONE_PROCESS: [&str; 5] = ["listen", "http", "name", "memory-max", "ready-file"];

/// A server that a file configures.
#[derive(Debug)]
pub struct ServerTable {
    /// The name of its table.
    pub name: &'static str,
    /// The words of its command.
    pub words: &'static [&'static str],
}

/// The servers.
pub const SERVERS: [ServerTable; 4] = [
    ServerTable { name: "namenode", words: &["namenode"] },
    ServerTable { name: "datanode", words: &["datanode"] },
    ServerTable { name: "manager", words: &["manager"] },
    ServerTable { name: "gateway", words: &["gateway", "s3"] },
];

impl ServerTable {
    /// Returns the server of a command line, and its flags.
    pub(crate) fn of(matches: &ArgMatches) -> Option<(&'static Self, &ArgMatches)> {
        SERVERS.iter().find_map(|server| {
            let leaf = server
                .words
                .iter()
                .try_fold(matches, |matches, word| matches.subcommand_matches(word));
            leaf.map(|leaf| (server, leaf))
        })
    }

    /// Returns the keys of its table, in the order of its help.
    pub fn keys(&self, program: Program) -> &'static [ConfigKey] {
        static KEYS: OnceLock<Vec<(&'static str, Vec<ConfigKey>)>> = OnceLock::new();
        let keys = KEYS.get_or_init(|| {
            let mut all = program();
            all.build();
            SERVERS.iter().map(|server| (server.name, server.keys_of(&all))).collect()
        });
        let found = keys.iter().find(|(name, _)| *name == self.name);
        &found.expect("it is one of the servers").1
    }

    fn keys_of(&self, all: &Command) -> Vec<ConfigKey> {
        let command = self.words.iter().fold(all, |command, word| {
            command.find_subcommand(word).expect("each server is a command")
        });
        command.get_arguments().filter_map(ConfigKey::of).collect()
    }
}

/// What a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// `true` or `false`.
    Switch,
    /// How often the flag is given.
    Count,
    /// One text or number.
    Value,
    /// A list of texts or numbers.
    List,
}

/// A flag of a server.
#[derive(Debug, Clone)]
pub struct ConfigKey {
    /// The flag's name without the dashes.
    pub name: String,
    /// The flag's id in the matches.
    pub id: String,
    /// What its value is.
    pub kind: KeyKind,
    /// Whether the server does not start without it.
    pub(crate) is_required: bool,
    /// Whether relative values are relative to the file.
    pub(crate) is_path: bool,
    /// The variable of the environment that has it, too.
    pub variable: Option<String>,
}

impl ConfigKey {
    fn of(flag: &Arg) -> Option<Self> {
        let name = flag.get_long().filter(|name| !NOT_IN_FILES.contains(name))?;
        if flag.is_hide_set() {
            return None;
        }
        let kind = match flag.get_action() {
            ArgAction::SetTrue => KeyKind::Switch,
            ArgAction::Count => KeyKind::Count,
            ArgAction::Append => KeyKind::List,
            _ => KeyKind::Value,
        };
        Some(Self {
            name: name.to_owned(),
            id: flag.get_id().as_str().to_owned(),
            kind,
            is_required: flag.is_required_set(),
            is_path: flag.get_value_parser().type_id() == TypeId::of::<PathBuf>(),
            variable: flag.get_env().map(|name| name.to_string_lossy().into_owned()),
        })
    }
}

/// Returns whether a key may stand at the top, for all servers that have it: at least two do, and
/// it is not each process's own.
pub fn is_common(program: Program, name: &str) -> bool {
    let has = |server: &&ServerTable| server.keys(program).iter().any(|key| key.name == name);
    !OF_ONE_PROCESS.contains(&name) && SERVERS.iter().filter(has).count() > 1
}
