//! Files in TOML, read strictly: each error names the file, the line and the key, and for an
//! unknown key the most similar one that is known.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml_edit::{Document, TableLike, TomlError};
pub use toml_edit::{Item, Value};

use crate::address::AddressError;

/// Longest file that is read, in bytes: a configuration has a few KiB, and a path that leads to
/// something larger names another file. Chosen, not measured.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A line of a file is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    #[source]
    pub problem: FileProblem,
}

/// What is wrong with a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileProblem {
    /// The syntax is wrong.
    #[error("{}", in_one_line(.0))]
    Syntax(#[source] Box<TomlError>),
    /// A key is there twice, or is a value and a table.
    #[error("{}", in_one_line(.0))]
    DuplicateKey(#[source] Box<TomlError>),
    /// The key is none of the known ones.
    #[error("unknown key {key:?}{place}{}", nearest_is(.near))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it is, for messages: empty at the top.
        place: String,
        /// The most similar of the known keys.
        near: Option<String>,
    },
    /// The entry is no table.
    #[error("{key} must be a table")]
    NoTable {
        /// The key.
        key: String,
    },
    /// The value is of another type.
    #[error("{key} must be {wanted}, not {found}")]
    WrongType {
        /// The key.
        key: String,
        /// What it must be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// The value is neither a text nor a list of texts.
    #[error("{key} must be a text or a list of texts")]
    NoTexts {
        /// The key.
        key: String,
    },
    /// The address of a namenode is wrong.
    #[error("{0}")]
    Address(#[source] Box<AddressError>),
    /// A context has no namenode.
    #[error("context {context} has no namenode: add namenode = \"host:port\"")]
    NoNamenode {
        /// The name of the context.
        context: String,
    },
}

/// A file whose syntax is correct.
#[derive(Debug)]
pub struct TomlFile {
    path: PathBuf,
    document: Document<String>,
}

/// A value of a file and its line.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub item: &'a Item,
    /// The line, counted from 1.
    pub line: usize,
}

impl TomlFile {
    /// Parses a file's text.
    ///
    /// # Errors
    /// [`FileError`] with the line whose syntax is wrong: correct that line.
    pub fn parse(path: &Path, text: String) -> Result<Self, FileError> {
        let path = path.to_owned();
        match Document::parse(text.clone()) {
            Ok(document) => Ok(Self { path, document }),
            Err(error) => {
                let line = line_of(&text, error.span());
                Err(FileError { path, line, problem: syntax(error) })
            }
        }
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the entries at the top.
    #[must_use]
    pub fn top(&self) -> Vec<Entry<'_>> {
        self.entries(self.document.as_table())
    }

    /// Returns the entries of a table.
    ///
    /// # Errors
    /// [`FileError`] when the entry is no table: correct the line that it names.
    pub fn table(&self, entry: Entry<'_>) -> Result<Vec<Entry<'_>>, FileError> {
        let table = self.document.get(entry.key).and_then(Item::as_table_like);
        match table {
            Some(table) => Ok(self.entries(table)),
            None => Err(self.error(entry.line, no_table(entry))),
        }
    }

    /// Returns the entries of a table within a table.
    ///
    /// # Errors
    /// [`FileError`] when the entry is no table: correct the line that it names.
    pub fn inner<'a>(&'a self, entry: Entry<'a>) -> Result<Vec<Entry<'a>>, FileError> {
        match entry.item.as_table_like() {
            Some(table) => Ok(self.entries(table)),
            None => Err(self.error(entry.line, no_table(entry))),
        }
    }

    /// Makes the error of a line of this file, counted from 1: its text names the file and the
    /// line.
    #[must_use]
    pub fn error(&self, line: usize, problem: FileProblem) -> FileError {
        FileError { path: self.path.clone(), line, problem }
    }

    /// Makes the error of a key that is none of `known`.
    #[must_use]
    pub fn unknown<'k>(
        &self,
        entry: Entry<'_>,
        place: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> FileError {
        let near = nearest(entry.key, known).map(str::to_owned);
        let (key, place) = (entry.key.to_owned(), place.to_owned());
        self.error(entry.line, FileProblem::UnknownKey { key, place, near })
    }

    /// Returns a value that must be a text.
    ///
    /// # Errors
    /// [`FileError`] when it is none: correct the line that it names.
    pub fn text<'a>(&self, entry: Entry<'a>) -> Result<&'a str, FileError> {
        entry.item.as_str().ok_or_else(|| {
            let (key, found) = (entry.key.to_owned(), kind(entry.item));
            self.error(entry.line, FileProblem::WrongType { key, wanted: "a text", found })
        })
    }

    /// Returns a value that must be a text or a list of texts, which are joined with commas.
    ///
    /// # Errors
    /// [`FileError`] when it is neither: correct the line that it names.
    pub fn joined(&self, entry: Entry<'_>) -> Result<String, FileError> {
        let Some(values) = entry.item.as_array() else {
            return self.text(entry).map(str::to_owned);
        };
        let texts: Option<Vec<&str>> = values.iter().map(|value| value.as_str()).collect();
        let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(|| {
            self.error(entry.line, FileProblem::NoTexts { key: entry.key.to_owned() })
        })?;
        Ok(texts.join(","))
    }

    fn entries<'a>(&'a self, table: &'a dyn TableLike) -> Vec<Entry<'a>> {
        let entry = |(key, item): (&'a str, &'a Item)| {
            let named = table.get_key_value(key).and_then(|(key, _)| key.span());
            let line = line_of(self.document.raw(), named.or_else(|| item.span()));
            Entry { key, item, line }
        };
        table.iter().map(entry).collect()
    }
}

fn no_table(entry: Entry<'_>) -> FileProblem {
    FileProblem::NoTable { key: entry.key.to_owned() }
}

/// Returns what is wrong with the syntax. The library gives the reason as text alone.
fn syntax(error: TomlError) -> FileProblem {
    match error.message().contains("duplicate key") {
        true => FileProblem::DuplicateKey(Box::new(error)),
        false => FileProblem::Syntax(Box::new(error)),
    }
}

fn in_one_line(error: &TomlError) -> String {
    error.message().trim().replace('\n', ": ")
}

fn nearest_is(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": the nearest is {near:?}")).unwrap_or_default()
}

/// Returns what a value is, in words for messages, such as `a text` or `a list`.
#[must_use]
pub fn kind(item: &Item) -> &'static str {
    match item.type_name() {
        "string" => "a text",
        "integer" | "float" => "a number",
        "boolean" => "true or false",
        "array" | "array of tables" => "a list",
        "datetime" => "a date",
        _ => "a table",
    }
}

/// Returns the most similar of the known words, if one is similar enough to be meant.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let similarity = |known: &str| strsim::jaro_winkler(word, known);
    let scored = known.into_iter().map(|known| (similarity(known), known));
    let best = scored.max_by(|(first, _), (second, _)| first.total_cmp(second));
    best.filter(|(score, _)| *score > 0.75).map(|(_, known)| known)
}

fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start.min(text.len()));
    text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TomlFile, FileError> {
        TomlFile::parse(Path::new("a.toml"), text.to_owned())
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse("a = 1\n\nb = = 2\n").expect_err("the syntax is wrong");
        assert_eq!(error.line, 3, "{error}");
        assert!(matches!(error.problem, FileProblem::Syntax(_)), "{error}");
        let error = parse("a = 1\na = 2\n").expect_err("the key is there twice");
        assert!(matches!(error.problem, FileProblem::DuplicateKey(_)), "{error}");
        assert!(error.to_string().starts_with("a.toml:2: duplicate key"), "{error}");
        let file = parse("# first\n[t]\nlisten = 1\n").expect("the syntax is right");
        let table = file.top()[0];
        assert_eq!((table.key, table.line), ("t", 2));
        let entry = file.table(table).expect("a table")[0];
        assert_eq!((entry.key, entry.line), ("listen", 3));
        let error = file.text(entry).expect_err("a number");
        assert_eq!(error.to_string(), "a.toml:3: listen must be a text, not a number");
        let error = file.unknown(entry, " of [t]", ["listne", "other"]);
        let text = "a.toml:3: unknown key \"listen\" of [t]: the nearest is \"listne\"";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn what_is_not_similar_is_not_suggested() {
        assert_eq!(nearest("memory-mx", ["memory-max", "dram"]), Some("memory-max"));
        assert_eq!(nearest("zzz", ["memory-max", "dram"]), None);
    }
}
