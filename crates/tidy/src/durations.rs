//! Spans of time in the messages of errors: `sanderling_protocol::amount` writes them as people do,
//! `5.00 s`, and not as `Debug` does, `5s` or `1.250341ms`.

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// The types of spans.
const SPANS: [&str; 2] = ["Duration", "Millis"];

/// With what the attribute begins that has an error's message.
const ATTRIBUTE: &str = "#[error(";

/// Checks the messages of all types of errors. It follows fields by name or by number: an
/// expression in the message's arguments is not followed.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    files.iter().filter(|file| file.language == Language::Rust).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Problem> {
    let code = split(file.language, &file.text).code;
    let code: Vec<&str> = code.lines().collect();
    let text: Vec<&str> = file.text.lines().collect();
    let mut problems = Vec::new();
    let starts = (0..code.len()).filter(|line| code[*line].trim_start().starts_with(ATTRIBUTE));
    for start in starts {
        let ends = |line: &&str| line.trim_end().ends_with(")]");
        let Some(length) = code[start..].iter().position(ends) else { continue };
        let fields_at = start + length + 1;
        let message = text[start..fields_at].join("\n");
        let fields = fields(&code[fields_at..]);
        for field in debugged(&message).filter(|field| is_span(&fields, field)) {
            let what = format!(
                "the span {field:?} is written with {{:?}} in a message: write it with \
                 amount::duration"
            );
            problems.push(Problem::new(&file.path, start + 1, what));
        }
    }
    problems
}

/// Returns the lines of the variant, or of the type, that they begin with.
fn fields(code: &[&str]) -> String {
    let ends = |line: &str| ["}", "},", "),", ");"].iter().any(|end| line.ends_with(*end));
    let lines = code.iter().map(|line| line.trim());
    let length = lines.clone().position(ends).map_or(code.len(), |last| last + 1);
    lines.take(length).collect::<Vec<_>>().join("\n")
}

/// Returns the fields that a message writes with `Debug`.
fn debugged(message: &str) -> impl Iterator<Item = &str> {
    let places = message.split('{').skip(1).filter_map(|place| place.split_once('}'));
    places.filter_map(|(place, _)| {
        let (field, format) = place.split_once(':')?;
        (format.ends_with('?') && !field.is_empty()).then_some(field)
    })
}

/// Returns whether a field, named or counted from 0, is a span.
fn is_span(fields: &str, field: &str) -> bool {
    let fields = fields.replace("pub(crate)", "").replace("pub(super)", "");
    if let Ok(number) = field.parse::<usize>() {
        let tuple = fields.split_once('(').map_or("", |(_, types)| types);
        return tuple.split(',').nth(number).is_some_and(has_span);
    }
    let mut parts = fields.split([',', '{', '}', '\n']).filter_map(|part| part.split_once(':'));
    parts.any(|(name, kind)| name.split_whitespace().next_back() == Some(field) && has_span(kind))
}

fn has_span(kind: &str) -> bool {
    let mut words = kind.split(|char: char| !char.is_alphanumeric());
    words.any(|word| SPANS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&[SourceFile::new("a.rs", text)]).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn span_that_a_message_writes_with_debug_is_a_problem() {
        let text = "enum Late {\n    /// It is late.\n    #[error(\"late by {waited:?}\")]\n    \
                    Late {\n        /// How much.\n        waited: Duration,\n    },\n}\n";
        assert_eq!(lines(text), [3]);
        assert_eq!(lines("#[error(\"{0}: {1:?}\")]\nLate(String, std::time::Duration),\n"), [1]);
        assert_eq!(lines("#[error(\n    \"a {span:?}\"\n)]\nLate { id: u8, span: Millis },"), [1]);
        assert_eq!(lines("#[error(\"{0:?}\")]\npub(crate) struct Late(Option<Millis>);"), [1]);
    }

    #[test]
    fn other_fields_and_spans_that_people_read_are_none() {
        let text = "#[error(\"{name:?}\")]\nBad { name: String, span: Duration },";
        assert!(lines(text).is_empty());
        let text = "#[error(\"{url:?}\")]\nA { url: String },\n#[error(\"b\")]\n\
                    B { url: Duration },";
        assert!(lines(text).is_empty());
        let text = "#[error(\"late by {}\", amount::duration(*span))]\nLate { span: Duration },";
        assert!(lines(text).is_empty());
        assert!(lines("let a = \"#[error(\\\"{0:?}\\\")] A(Duration)\";").is_empty());
    }
}
