//! Text that others chose, on a terminal: names, reasons and messages may hold control characters,
//! which would move the cursor, colour what follows or end a line that was not over.

use std::borrow::Cow;
use std::io::{self, Write};

/// What the commands themselves send to a terminal: the colours of states.
const OURS: [&str; 3] = ["\u{1b}[31m", "\u{1b}[33m", "\u{1b}[0m"];

/// Returns text for one line of a terminal: control characters, and those that turn the direction
/// of writing, as Rust writes them (`\u{1b}`, `\n`).
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), escaped))
}

fn escaped(mut line: String, character: char) -> String {
    if is_unsafe(character) {
        line.extend(character.escape_default());
    } else {
        line.push(character);
    }
    line
}

/// Returns a JSON document for one line of a terminal: the same document, with all such characters
/// as JSON escapes them.
#[must_use]
pub fn printable_json(document: &serde_json::Value) -> String {
    printable_json_text(&document.to_string()).into_owned()
}

/// Returns a line of JSON as [`printable_json`] returns its document.
pub(crate) fn printable_json_text(text: &str) -> Cow<'_, str> {
    let is_escaped = |character| is_unsafe(character) && character != '\n';
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), |mut line, character| {
        if is_escaped(character) {
            // All of them have one unit in UTF-16. Those below U+0020 are escaped by now, but for
            // the line's end.
            line.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            line.push(character);
        }
        line
    }))
}

fn is_unsafe(character: char) -> bool {
    // The second are the embeddings, overrides and isolates of the bidirectional algorithm (UAX 9).
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Passes text on, with control characters made printable: all but line ends, tabs and the colours
/// of states. What is no UTF-8 passes as it is.
#[derive(Debug)]
pub struct Printable<W>(pub W);

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) if text.chars().any(|it| is_unsafe(it) && it != '\n') => text,
            _ => return self.0.write(bytes),
        };
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            if let Some(ours) = OURS.iter().find(|ours| rest.starts_with(**ours)) {
                self.0.write_all(ours.as_bytes())?;
                rest = &rest[ours.len()..];
                continue;
            }
            let line = match character {
                '\n' | '\t' => character.to_string(),
                _ => escaped(String::new(), character),
            };
            self.0.write_all(line.as_bytes())?;
            rest = &rest[character.len_utf8()..];
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_stays_on_its_line_and_moves_no_cursor() {
        assert_eq!(printable("plain ä 😀"), "plain ä 😀");
        assert_eq!(
            printable("a\nb\u{1b}[2Jc\u{9b}d\u{202e}e"),
            "a\\nb\\u{1b}[2Jc\\u{9b}d\\u{202e}e"
        );
    }

    #[test]
    fn document_stays_the_same_and_moves_no_cursor() {
        let document =
            serde_json::json!({ "name": "a\nb\u{1b}[2J\u{7f}\u{9b}d\u{202e}e\u{2069}ä😀" });
        let line = printable_json(&document);
        assert!(!line.chars().any(is_unsafe), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), document);
        assert_eq!(printable_json(&serde_json::json!(["plain ä"])), "[\"plain ä\"]");
    }

    #[test]
    fn text_passes_with_its_lines_and_the_colours_of_states() {
        let mut out = Printable(Vec::new());
        let text = "\u{1b}[31mgone\u{1b}[0m\n\ta\u{1b}]0;title\u{7}\u{1b}[2J\n";
        out.write_all(text.as_bytes()).unwrap();
        out.write_all(&[0xff, 0x1b]).unwrap();
        let shown = "\u{1b}[31mgone\u{1b}[0m\n\ta\\u{1b}]0;title\\u{7}\\u{1b}[2J\n";
        assert_eq!(out.0, [shown.as_bytes(), &[0xff, 0x1b]].concat());
    }
}
