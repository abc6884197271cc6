//! Values of a file as words of a command line.

use std::ffi::OsString;
use std::path::Path;

use sanderling_context::address;
use sanderling_context::strict::{Entry, FileProblem, Item, TomlFile, Value, kind};

use crate::keys::{ConfigKey, KeyKind};
use crate::problem::{ConfigLineError, ConfigProblem};

/// Values that begin with one of these name a file behind it.
const FILE_PREFIXES: [&str; 3] = ["file:", "lifetimes:", "trace:"];

/// A flag that the file gives.
#[derive(Debug, Clone)]
pub(crate) struct FileValue {
    pub(crate) key: String,
    /// The flag's id in the matches.
    pub(crate) id: String,
    pub(crate) line: usize,
    /// The words that stand for it on a command line.
    pub(crate) words: Vec<OsString>,
}

/// Returns the words that stand for an entry.
///
/// # Errors
/// The value is of a wrong type, or no address where one is needed.
pub(super) fn value(
    file: &TomlFile,
    entry: Entry<'_>,
    key: &ConfigKey,
) -> Result<FileValue, ConfigLineError> {
    let mistyped = |wanted: &'static str| {
        let (key, found) = (entry.key.to_owned(), kind(entry.item));
        let problem = FileProblem::WrongType { key, wanted, found };
        ConfigLineError::from(file.error(entry.line, problem))
    };
    let directory = file.path().parent().unwrap_or(Path::new("."));
    let flag = format!("--{}", key.name);
    let word = |text: String| {
        // An empty path is none; made absolute, it would be the file's directory.
        if key.is_path && text.is_empty() {
            return OsString::from(format!("{flag}="));
        }
        let text = absolute(directory, key, text);
        let mut word = OsString::from(format!("{flag}="));
        word.push(text);
        word
    };
    let words = match key.kind {
        KeyKind::Switch => match entry.item.as_bool() {
            Some(true) => vec![flag.into()],
            Some(false) => Vec::new(),
            None => return Err(mistyped("true or false")),
        },
        KeyKind::Count => match entry.item.as_integer() {
            Some(count @ 0..=9) => (0..count).map(|_| flag.clone().into()).collect(),
            Some(count) => {
                let problem = ConfigProblem::OutOfRange { key: entry.key.to_owned(), count };
                return Err(ConfigLineError::new(file.path(), entry.line, problem));
            }
            None => return Err(mistyped("a number from 0 to 9")),
        },
        KeyKind::Value => {
            let text = entry.item.as_value().and_then(scalar);
            vec![word(text.ok_or_else(|| mistyped("a text or a number"))?)]
        }
        KeyKind::List => {
            let texts = list(entry.item);
            let texts = texts.ok_or_else(|| mistyped("a list of texts or numbers"))?;
            if key.name == "namenode" {
                check_addresses(file, entry, &texts)?;
            }
            texts.into_iter().map(word).collect()
        }
    };
    Ok(FileValue { key: key.name.clone(), id: key.id.clone(), line: entry.line, words })
}

/// Refuses addresses of namenodes that the servers themselves would refuse.
fn check_addresses(
    file: &TomlFile,
    entry: Entry<'_>,
    texts: &[String],
) -> Result<(), ConfigLineError> {
    // An empty list gives nothing.
    if texts.is_empty() {
        return Ok(());
    }
    let checked = address(&texts.join(",")).map(drop);
    checked.map_err(|error| {
        ConfigLineError::new(file.path(), entry.line, ConfigProblem::Address(error))
    })
}

fn list(item: &Item) -> Option<Vec<String>> {
    match item.as_array() {
        Some(array) => array.iter().map(scalar).collect(),
        None => item.as_value().and_then(scalar).map(|text| vec![text]),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        _ => None,
    }
}

/// Makes a path that is relative to the file absolute.
fn absolute(directory: &Path, key: &ConfigKey, text: String) -> OsString {
    let from = |path: &str| {
        let path = directory.join(path);
        std::path::absolute(&path).unwrap_or(path).into_os_string()
    };
    // An archive that is in no store is in a directory. The URLs of `object` and `durable` have
    // absolute paths alone.
    let is_directory = key.name == "archive" && !text.is_empty() && !text.contains("://");
    if key.is_path || is_directory || key.name == "local-socket" && text != "none" {
        return from(&text);
    }
    let is_model = ["notice-source", "preemption-model"].contains(&key.name.as_str());
    let prefix = FILE_PREFIXES.iter().find(|prefix| is_model && text.starts_with(**prefix));
    match prefix {
        Some(prefix) => {
            let mut whole = OsString::from(prefix);
            whole.push(from(&text[prefix.len()..]));
            whole
        }
        None => text.into(),
    }
}
