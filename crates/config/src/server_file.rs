//! What a configuration file adds to the command line of a server.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use sanderling_command::failure::{Exit, Failure, FailureKind, whole};
use sanderling_command::refused::shell_word;
use sanderling_context::strict::{
    Entry, FILE_BYTES_MAX, FileError, FileProblem, TomlFile, nearest,
};
use sanderling_context::{CONTEXT_KEYS, file_kind, is_ours, open_without_waiting};

use crate::keys::{ConfigKey, Program, SERVERS, ServerTable, is_common};
use crate::problem::{ConfigLineError, ConfigProblem};
use crate::values::{self, FileValue};

/// A command line with what its configuration file adds.
#[derive(Debug, Default)]
pub struct ServerCommandLine {
    /// The words of the command line, with those that stand for the values of the file.
    pub words: Vec<OsString>,
    pub(crate) path: PathBuf,
    pub(crate) values: Vec<FileValue>,
}

impl ServerCommandLine {
    /// Adds the flags that the file gives, if the command has one, and the flags that are given
    /// neither in the words nor in the environment.
    ///
    /// # Errors
    /// Usage (2): the file cannot be read, or a line is wrong.
    pub fn of(program: Program, words: Vec<OsString>) -> Result<Self, Failure> {
        let plain = |words| Ok(Self { words, ..Self::default() });
        // What is wrong with the words is reported when they are complete.
        let Ok(matches) = program().ignore_errors(true).try_get_matches_from(&words) else {
            return plain(words);
        };
        // What is done to a server, such as a backup, has no flags in its file.
        let server = ServerTable::of(&matches).filter(|(_, it)| it.subcommand_name().is_none());
        let Some((server, given)) = server else { return plain(words) };
        let Some(path) = given.get_one::<PathBuf>("config").cloned() else { return plain(words) };
        let file = read(&path)?;
        let has_context = is_given(given, "context");
        let mut line = Self { words, path, values: Vec::new() };
        for value in values_of(program, &file, server).map_err(|error| wrong(&error))? {
            // A context that is given comes before the keys of the file.
            let is_replaced = has_context && CONTEXT_KEYS.contains(&value.key.as_str());
            if !is_replaced && !is_given(given, &value.id) {
                line.words.extend(value.words.iter().cloned());
                line.values.push(value);
            }
        }
        Ok(line)
    }

    /// Returns the failure that names the line of the configuration file from which an error of the
    /// command line comes; `None` if no value of the file causes the error.
    pub fn failure(&self, error: &clap::Error) -> Option<Failure> {
        let found = file_error(error, &self.path, &self.values)?;
        Some(wrong(&found))
    }

    /// Returns the line of the file that gives a key.
    pub(crate) fn line_of(&self, key: &str) -> Option<usize> {
        self.values.iter().find(|value| value.key == key).map(|value| value.line)
    }
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    // A server without a flag has no such id.
    let source = matches.try_contains_id(id).ok().and_then(|_| matches.value_source(id));
    source.is_some_and(|source| source != ValueSource::DefaultValue)
}

/// Describes a wrong line.
fn wrong(error: &ConfigLineError) -> Failure {
    let next = format!("sanderling config check {}", shell_word(&error.path.to_string_lossy()));
    Failure::caused(Exit::Usage, FailureKind::BadConfig, error.clone()).next(next)
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, users other than root and the caller can write it, or its syntax is wrong.
pub(crate) fn read(path: &Path) -> Result<TomlFile, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, error);
    let bad = |cause: String| {
        Failure::new(Exit::Failure, FailureKind::BadConfig, cause).tried(whole(path))
    };
    let file = open_without_waiting(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let word = shell_word(&path.to_string_lossy());
    if !found.is_file() {
        let cause = format!(
            "{} is {}: a server's flags are in a regular file",
            path.display(),
            file_kind(found.file_type())
        );
        return Err(bad(cause).next(format!("ls -l {word}")));
    }
    if found.permissions().mode() & 0o022 != 0 {
        let cause = format!("other users can write {}, which has a server's flags", path.display());
        let next = format!("chmod go-w {word}");
        return Err(bad(cause).next(next));
    }
    if !is_ours(&found) {
        let owner = found.uid();
        let cause = format!(
            "{}, which has a server's flags, belongs to user {owner}, not to root or you",
            path.display()
        );
        let next = format!("sudo chown root {word}");
        return Err(bad(cause).next(next));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(failed(std::io::Error::other("it is longer than 1 MiB")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    TomlFile::parse(path, text.clone()).map_err(|error| wrong(&with_remedy(error, &text)))
}

/// Adds what to do to the error of a file whose `namenode` is a key and a table.
fn with_remedy(error: FileError, text: &str) -> ConfigLineError {
    let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
    match error.problem {
        FileProblem::DuplicateKey(_) if line.trim_start().starts_with("[namenode]") => {
            ConfigLineError::new(&error.path, error.line, ConfigProblem::KeyAndTable(error.problem))
        }
        _ => error.into(),
    }
}

/// Returns what a file gives a server: the keys of its table, and those at the top that it has.
///
/// # Errors
/// An unknown key or a value of a wrong type, of any server.
fn values_of(
    program: Program,
    file: &TomlFile,
    server: &ServerTable,
) -> Result<Vec<FileValue>, ConfigLineError> {
    let (found, errors) = all_values_of(program, file, server);
    errors.into_iter().next().map_or(Ok(found), Err)
}

/// Returns the same, and every key and value that is wrong.
pub(crate) fn all_values_of(
    program: Program,
    file: &TomlFile,
    server: &ServerTable,
) -> (Vec<FileValue>, Vec<ConfigLineError>) {
    let (mut found, mut errors): (Vec<FileValue>, Vec<ConfigLineError>) = Default::default();
    let (tables, top): (Vec<_>, Vec<_>) =
        file.top().into_iter().partition(|entry| server_of(*entry).is_some());
    for (table, other) in tables.iter().filter_map(|entry| Some((*entry, server_of(*entry)?))) {
        let entries = match file.table(table) {
            Ok(entries) => entries,
            Err(error) => {
                errors.push(error.into());
                continue;
            }
        };
        for entry in entries {
            let keys = other.keys(program);
            let key = keys.iter().find(|key| key.name == entry.key).ok_or_else(|| {
                let known = keys.iter().map(|key| key.name.as_str());
                file.unknown(entry, &format!(" of [{}]", table.key), known).into()
            });
            match key.and_then(|key| values::value(file, entry, key)) {
                Ok(value) if other.name == server.name => found.push(value),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
    }
    for entry in top {
        let read = common(program, file, entry).and_then(|key| values::value(file, entry, key));
        let is_replaced = found.iter().any(|value| value.key == entry.key);
        match read {
            Ok(_) if is_replaced => {}
            Ok(value) if server.keys(program).iter().any(|key| key.name == entry.key) => {
                found.push(value);
            }
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
    (found, errors)
}

/// Returns the server whose table an entry is. `namenode` is a key, too.
fn server_of(entry: Entry<'_>) -> Option<&'static ServerTable> {
    let is_table = |server: &&ServerTable| server.name != "namenode" || entry.item.is_table_like();
    SERVERS.iter().find(|server| server.name == entry.key).filter(is_table)
}

/// Returns a key that may stand at the top.
fn common(
    program: Program,
    file: &TomlFile,
    entry: Entry<'_>,
) -> Result<&'static ConfigKey, ConfigLineError> {
    let keys_of = |server: &'static ServerTable| server.keys(program).iter();
    let all: Vec<(&ServerTable, &'static ConfigKey)> =
        SERVERS.iter().flat_map(|server| keys_of(server).map(move |key| (server, key))).collect();
    let with_name: Vec<_> = all.iter().filter(|(_, key)| key.name == entry.key).collect();
    match with_name[..] {
        [] => {
            let names = all.iter().map(|(_, key)| key.name.as_str());
            let known = names.chain(SERVERS.iter().map(|server| server.name));
            Err(file.unknown(entry, "", known).into())
        }
        [(_, key), ..] if is_common(program, &key.name) => Ok(*key),
        _ => {
            let tables: Vec<String> =
                with_name.iter().map(|(server, _)| format!("[{}]", server.name)).collect();
            let (key, tables) = (entry.key.to_owned(), tables.join(" or "));
            let problem = ConfigProblem::Misplaced { key, tables };
            Err(ConfigLineError::new(file.path(), entry.line, problem))
        }
    }
}

/// Returns where in the file an error of the command line is.
pub(crate) fn file_error(
    error: &clap::Error,
    path: &Path,
    values: &[FileValue],
) -> Option<ConfigLineError> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    let flag = argument.trim_start_matches('-').split([' ', '=']).next()?;
    let from = values.iter().find(|value| value.key == flag);
    // A flag that is missing belongs to one that the file has.
    let from = from.or_else(|| {
        let near = nearest(flag, values.iter().map(|value| value.key.as_str()))?;
        values.iter().find(|value| value.key == near)
    })?;
    let flag = flag.to_owned();
    let problem = match (text(ContextKind::InvalidValue), std::error::Error::source(error)) {
        (Some(value), Some(cause)) => {
            ConfigProblem::Refused { flag, value, cause: cause.to_string() }
        }
        (Some(value), None) => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) if !known.is_empty() => {
                ConfigProblem::NoneOf { flag, value, known: known.join(", ") }
            }
            _ if value.is_empty() => ConfigProblem::Empty { flag },
            _ => ConfigProblem::Invalid { flag, value },
        },
        (None, _) => {
            let whole = error.to_string();
            let lines = whole.lines().map(str::trim).take_while(|line| !line.is_empty());
            let words = lines.collect::<Vec<_>>().join(" ").replace("error: ", "");
            ConfigProblem::Flags { words }
        }
    };
    Some(ConfigLineError::new(path, from.line, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.toml");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("closed");
        read(&path).map(drop).expect_err("it is wrong").cause
    }

    #[test]
    fn namenode_as_a_key_and_a_table_is_refused_with_the_remedy() {
        let cause = refused("namenode = \"a\"\n\n[namenode]\ndir = \"d\"\n");
        assert!(cause.contains(":3: ") && cause.contains("put the key into [datanode]"), "{cause}");
        let cause = refused("quiet = true\nquiet = false\n");
        assert!(cause.contains("duplicate key") && !cause.contains("namenode"), "{cause}");
    }
}
