//! What a command prints: data to stdout, progress and notes to stderr.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::failure::Failure;
use crate::logs;
use crate::printable::{Printable, printable, printable_json};

pub use sanderling_transport::SCHEMA;

/// Prints what a command has: results to stdout, as text or as JSON; notes and failures to stderr.
#[derive(Debug, Clone, Copy, Default)]
pub struct Output {
    /// Print JSON instead of text.
    pub is_json: bool,
    /// Print nothing on stderr but errors.
    pub is_quiet: bool,
    /// The number of a bag's task, for what its run prints beside others: notes begin with it, and
    /// there are no results.
    pub task: Option<u32>,
}

impl Output {
    /// Returns the output of a run of the task with this number in a bag.
    #[must_use]
    pub const fn of_task(self, number: u32) -> Self {
        Self { task: Some(number), ..self }
    }

    /// Prints one result: the JSON document, or the text that `human` writes.
    ///
    /// # Errors
    /// A silent one with exit code 0 when the reader of stdout has gone; else the cause. End the
    /// command with either: nothing more can be printed.
    pub fn result<T: Serialize>(
        self,
        value: &T,
        human: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match self.is_json || self.task.is_some() {
            true => self.document(value),
            false => written(human),
        }
    }

    /// Prints one JSON document on a line, with the schema's version in it.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub fn document<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        if self.task.is_some() {
            return Ok(());
        }
        let document = printable_json(&with_schema(value));
        written(|stdout| writeln!(stdout, "{document}"))
    }

    /// Prints a note for the person at the terminal.
    pub fn note(self, text: impl std::fmt::Display) {
        if !self.is_quiet {
            // A terminal that has gone away is no failure.
            let _ = logs::Stderr.write_all(&self.noted(&text));
        }
    }

    /// Returns a note as it is printed.
    fn noted(self, text: &dyn std::fmt::Display) -> Vec<u8> {
        match self.task {
            Some(number) => printed(&format_args!("task {number}: {text}")),
            None => printed(text),
        }
    }

    /// Reports a failure that is not the first of a command which goes on: its cause in a line, or
    /// with `--json` an object in a line, as [`Self::failure`] prints the first at the end.
    pub fn further(self, failure: &Failure) {
        if self.is_json {
            self.failure(failure);
        } else {
            self.note(sanderling_context::without_users(&failure.cause));
        }
    }

    /// Reports a failure on stderr, unless it is silent.
    pub fn failure(self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        let text = match self.is_json {
            true => format!("{}\n", printable_json(&failure.json())).into_bytes(),
            false => printed(failure),
        };
        let _ = logs::Stderr.write_all(&text);
        logs::flush();
    }
}

/// Returns a text as it is printed on a line.
fn printed(text: &dyn std::fmt::Display) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A vector takes everything.
    let _ = writeln!(Printable(&mut bytes), "{text}");
    bytes
}

/// Writes to stdout through a buffer and flushes it.
fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut stdout = Printable(io::BufWriter::new(io::stdout().lock()));
    write(&mut stdout)?;
    Ok(stdout.flush()?)
}

fn with_schema<T: Serialize>(value: &T) -> Value {
    let mut document = serde_json::Map::from_iter([("schema".to_owned(), Value::from(SCHEMA))]);
    match serde_json::to_value(value).expect("results have string keys") {
        Value::Object(fields) => document.extend(fields),
        Value::Null => {}
        other => {
            document.insert("result".to_owned(), other);
        }
    }
    Value::Object(document)
}

/// Returns whether stdout is a terminal that may be coloured.
#[must_use]
pub fn is_coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stdout().is_terminal()
}

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For figures.
    Right,
}

/// Lays rows out for people: each column is as wide as its widest cell, counted in the columns of a
/// terminal, of which a wide letter takes two.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<TableCell>>,
}

#[derive(Debug, Default)]
struct TableCell {
    text: String,
    /// The number of its colour (ECMA-48, 8.3.117).
    colour: Option<u8>,
}

impl Table {
    /// Starts a table with these headings, from left to right. A heading is also the name by which
    /// [`Self::fit`] removes its column.
    #[must_use]
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell for each column. It is one line and has no colours, whatever names
    /// are in it.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |text: String| TableCell { text: printable(&text).into_owned(), colour: None };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// Colours a cell of the last row, counted from 0, on a terminal that has colours.
    pub fn colour(&mut self, column: usize, colour: u8) {
        if is_coloured()
            && let Some(cell) = self.rows.last_mut().and_then(|row| row.get_mut(column))
        {
            cell.colour = Some(colour);
        }
    }

    /// Removes columns in this order until the table is no wider than a terminal, and returns those
    /// that it removed.
    pub fn fit(&mut self, terminal: usize, order: &[&'static str]) -> Vec<&'static str> {
        let mut removed = Vec::new();
        for name in order {
            if self.whole_width() <= terminal {
                break;
            }
            if let Some(at) = self.columns.iter().position(|(column, _)| column == name) {
                self.columns.remove(at);
                for row in self.rows.iter_mut().filter(|row| at < row.len()) {
                    row.remove(at);
                }
                removed.push(*name);
            }
        }
        removed
    }

    /// Writes the headings, then the rows.
    ///
    /// # Errors
    /// The writer's error: end the command with it, nothing more can be written there.
    pub fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        let heading = |name: &str| TableCell { text: name.to_owned(), colour: None };
        let headings = self.columns.iter().map(|(name, _)| heading(name)).collect();
        for cells in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), width) in cells.iter().zip(&self.columns).zip(&widths) {
                let gap = " ".repeat(width.saturating_sub(cell.text.width()));
                let shown = match cell.colour {
                    Some(colour) => format!("\u{1b}[{colour}m{}\u{1b}[0m", cell.text),
                    None => cell.text.clone(),
                };
                match align {
                    Align::Left => line.extend([shown.as_str(), gap.as_str(), "  "]),
                    Align::Right => line.extend([gap.as_str(), shown.as_str(), "  "]),
                }
            }
            writeln!(writer, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Returns the width of the widest line.
    fn whole_width(&self) -> usize {
        let gaps = 2 * self.columns.len().saturating_sub(1);
        (0..self.columns.len()).map(|at| self.width(at)).sum::<usize>() + gaps
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column).map(|it| it.text.as_str()));
        cells.chain([self.columns[column].0]).map(UnicodeWidthStr::width).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lines_up_its_columns() {
        let mut table = Table::new(&[("name", Align::Left), ("bytes", Align::Right)]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["longer".to_owned(), "1000000".to_owned()]);
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "name      bytes\na             1\nlonger  1000000\n"
        );
    }

    #[test]
    fn wide_letters_and_marks_take_the_columns_they_are_shown_in() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        for name in ["日本", "e\u{301}", "abcd"] {
            table.row([name.to_owned(), "1".to_owned()]);
        }
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        let shown = "name  n\n日本  1\ne\u{301}     1\nabcd  1\n";
        assert_eq!(String::from_utf8(text).unwrap(), shown);
    }

    #[test]
    fn table_is_no_wider_than_a_terminal_while_columns_can_be_removed() {
        let shown = |terminal: usize| {
            let columns = ["id", "name", "place"].map(|name| (name, Align::Left));
            let mut table = Table::new(&columns);
            table.row(["1", "first", "here"].map(str::to_owned));
            let removed = table.fit(terminal, &["absent", "place", "id"]);
            let mut text = Vec::new();
            table.write(&mut text).unwrap();
            (String::from_utf8(text).unwrap(), removed)
        };
        assert_eq!(shown(16), ("id  name   place\n1   first  here\n".to_owned(), Vec::new()));
        assert_eq!(shown(15), ("id  name\n1   first\n".to_owned(), vec!["place"]));
        assert_eq!(shown(9).1, ["place"]);
        assert_eq!(shown(8), ("name\nfirst\n".to_owned(), vec!["place", "id"]));
        assert_eq!(shown(0), shown(8));
    }

    #[test]
    fn notes_of_a_bags_task_begin_with_its_number_and_it_has_no_results() {
        let output = Output { is_json: true, ..Output::default() };
        assert_eq!(output.noted(&"no checkpoint"), b"no checkpoint\n");
        let task = output.of_task(7);
        assert_eq!(task.noted(&"no checkpoint"), b"task 7: no checkpoint\n");
        for output in [task, Output { is_json: false, ..task }] {
            output.result(&(), |_| panic!("a result is printed")).expect("nothing is printed");
        }
    }

    #[test]
    fn documents_carry_the_schema() {
        assert_eq!(with_schema(&serde_json::json!({"a": 1}))["schema"], 1);
        assert_eq!(with_schema(&vec![1, 2])["result"][1], 2);
        assert_eq!(with_schema(&())["schema"], 1);
    }
}
