//! Rows of comma-separated values (RFC 4180). They are only written, which needs no further crate.

use std::fmt::{self, Write};

/// A table that becomes a file for spreadsheets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Csv {
    columns: usize,
    text: String,
}

impl Csv {
    /// Starts a table with its header.
    #[must_use]
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut csv = Self { columns: columns.len(), text: String::new() };
        csv.row(columns.iter().map(|column| (*column).to_owned()));
        csv
    }

    /// Adds a row with one field for each column.
    pub(crate) fn row(&mut self, fields: impl IntoIterator<Item = String>) {
        let mut count = 0;
        for field in fields {
            if count > 0 {
                self.text.push(',');
            }
            count += 1;
            if field.contains([',', '"', '\n', '\r']) {
                let _ = write!(self.text, "\"{}\"", field.replace('"', "\"\""));
            } else {
                self.text.push_str(&field);
            }
        }
        assert_eq!(count, self.columns, "a row has one field for each column");
        self.text.push('\n');
    }
}

impl fmt::Display for Csv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Writes a figure that may be missing.
pub(crate) fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        let mut csv = Csv::new(&["name", "value"]);
        csv.row(["a, \"b\"".to_owned(), optional(Some(7))]);
        csv.row(["c".to_owned(), optional::<u32>(None)]);
        assert_eq!(csv.to_string(), "name,value\n\"a, \"\"b\"\"\",7\nc,\n");
    }
}
