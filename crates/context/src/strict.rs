//! Files in TOML, read strictly: each error names the file, the line and the key, and for an
//! unknown key the most similar one that is known.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml_edit::{Document, TableLike};
pub use toml_edit::{Item, Value};

/// Longest file that is read: a configuration has a few kilobytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is wrong with a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}: {what}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
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
    /// [`FileError`] with the line whose syntax is wrong.
    pub fn parse(path: &Path, text: String) -> Result<Self, FileError> {
        let path = path.to_owned();
        match Document::parse(text.clone()) {
            Ok(document) => Ok(Self { path, document }),
            Err(error) => {
                let line = line_of(&text, error.span());
                let what = error.message().trim().replace('\n', ": ");
                Err(FileError { path, line, what })
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
    /// [`FileError`] when the entry is no table.
    pub fn table(&self, entry: Entry<'_>) -> Result<Vec<Entry<'_>>, FileError> {
        let table = self.document.get(entry.key).and_then(Item::as_table_like);
        match table {
            Some(table) => Ok(self.entries(table)),
            None => Err(self.error(entry.line, format!("{} must be a table", entry.key))),
        }
    }

    /// Returns the entries of a table within a table.
    ///
    /// # Errors
    /// [`FileError`] when the entry is no table.
    pub fn inner<'a>(&'a self, entry: Entry<'a>) -> Result<Vec<Entry<'a>>, FileError> {
        match entry.item.as_table_like() {
            Some(table) => Ok(self.entries(table)),
            None => Err(self.error(entry.line, format!("{} must be a table", entry.key))),
        }
    }

    /// Makes the error of a line.
    #[must_use]
    pub fn error(&self, line: usize, what: impl Into<String>) -> FileError {
        FileError { path: self.path.clone(), line, what: what.into() }
    }

    /// Makes the error of a key that is none of `known`.
    #[must_use]
    pub fn unknown<'k>(
        &self,
        entry: Entry<'_>,
        place: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> FileError {
        let what = match nearest(entry.key, known) {
            Some(near) => format!("unknown key {:?}{place}: the nearest is {near:?}", entry.key),
            None => format!("unknown key {:?}{place}", entry.key),
        };
        self.error(entry.line, what)
    }

    /// Returns a value that must be a text.
    ///
    /// # Errors
    /// [`FileError`] when it is none.
    pub fn text<'a>(&self, entry: Entry<'a>) -> Result<&'a str, FileError> {
        entry.item.as_str().ok_or_else(|| {
            let what = format!("{} must be a text, not {}", entry.key, kind(entry.item));
            self.error(entry.line, what)
        })
    }

    /// Returns a value that must be a text or a list of texts, which are joined with commas.
    ///
    /// # Errors
    /// [`FileError`] when it is neither.
    pub fn joined(&self, entry: Entry<'_>) -> Result<String, FileError> {
        let Some(values) = entry.item.as_array() else {
            return self.text(entry).map(str::to_owned);
        };
        let texts: Option<Vec<&str>> = values.iter().map(|value| value.as_str()).collect();
        let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(|| {
            self.error(entry.line, format!("{} must be a text or a list of texts", entry.key))
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

/// Returns what a value is, for messages.
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
