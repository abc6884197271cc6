//! Words for people, which describe no code: processes, sockets and functions do not speak, listen
//! to each other, know or want anything. The field has a term for each: send, report, receive,
//! request, return, contain, require.

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};
use crate::words::words;

/// The words, each with the field's terms.
const WORDS: &[(&str, &str)] = &[
    ("anybody", "a named actor"),
    ("ask", "request, call or require"),
    ("asking", "request, call or require"),
    ("asks", "request, call or require"),
    ("everybody", "every client, node or process"),
    ("he", "it"),
    ("hear", "receive"),
    ("heard", "received or confirmed"),
    ("hearing", "receive"),
    ("hears", "receives"),
    ("him", "it"),
    ("his", "its"),
    ("knew", "had, contained or supported"),
    ("knows", "has, contains or supports"),
    ("nobody", "no client, node or process"),
    ("said", "sent, reported or logged"),
    ("say", "send, report, log or state"),
    ("saying", "send, report, log or state"),
    ("says", "sends, reports, logs or states"),
    ("somebody", "another client, node or process"),
    ("tell", "report, return or distinguish"),
    ("telling", "report, return or distinguish"),
    ("tells", "reports, returns or distinguishes"),
    ("told", "reported, returned or distinguished"),
    ("unheard", "unanswered or silent"),
    ("wants", "needs or requests"),
    ("who", "which or that"),
    ("whom", "which or that"),
];

/// What is a problem in comments and messages alone: as a name it stands for what was requested.
const IN_PROSE: (&str, &str) = ("asked", "requested, called or required");

/// Names of other libraries' functions: Spark's, rustls'.
const FOREIGN: &[&str] = &["askSync", "wants_read", "wants_write"];

/// A method of Python's files.
const OF_PYTHONS_FILES: &str = "tell";

/// This check's own words, and those that its tests must find, are strings.
const OWN: &str = "crates/tidy/";

/// Files whose strings are texts of others: the licence of a package that brings none.
const TEXTS_OF_OTHERS: [&str; 1] = ["scripts/licences.py"];

/// Checks the comments and the identifiers of all code (the product, its tests, benchmarks and
/// scripts), the messages of that in Rust, and the docstrings of that in Python.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    files.iter().filter(|file| file.language.is_code()).flat_map(check_file).collect()
}

/// Returns a problem for each line of a file that has one of the words.
fn check_file(file: &SourceFile) -> Vec<Problem> {
    let parts = split(file.language, &file.text);
    let is_python = file.language == Language::Python;
    let has_docstrings = is_python && !TEXTS_OF_OTHERS.contains(&file.path.as_str());
    let strings = if is_python { docstrings(&parts.messages) } else { parts.messages };
    let lines = parts.code.lines().zip(parts.comments.lines()).zip(strings.lines());
    let has_messages = file.language == Language::Rust && !file.path.starts_with(OWN);
    let found = lines.enumerate().filter_map(|(index, ((code, comment), strings))| {
        let of_strings = || {
            let of_messages = has_messages.then(|| word_of_messages(strings)).flatten();
            of_messages.or_else(|| has_docstrings.then(|| word_of_prose(strings)).flatten())
        };
        let of_code = word_of_code(code, is_python);
        let (word, term) = of_code.or_else(|| word_of_prose(comment)).or_else(of_strings)?;
        let what = format!("{word:?} describes people: write {term}");
        Some(Problem::new(&file.path, index + 1, what))
    });
    found.collect()
}

/// Returns what is inside triple quotes, with every line break where it was: docstrings, and a few
/// texts that a reader sees as well.
fn docstrings(messages: &str) -> String {
    let blank = |char: char| if char == '\n' { '\n' } else { ' ' };
    let parts = messages.split("\"\"\"").enumerate();
    let of_part = |(index, part): (usize, &str)| -> String {
        let is_inside = index % 2 == 1;
        part.chars().map(|char| if is_inside { char } else { blank(char) }).collect()
    };
    parts.map(of_part).collect()
}

fn word_of_code(line: &str, is_python: bool) -> Option<(&'static str, &'static str)> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let is_foreign = |name: &&str| FOREIGN.contains(name) || is_python && *name == OF_PYTHONS_FILES;
    let mut names = line.split(|char| !is_part(char)).filter(|name| !is_foreign(name));
    names.find_map(word_of)
}

/// Looks at the strings of a line that are sentences. A single word is a name, and what is in
/// braces is a field.
fn word_of_messages(line: &str) -> Option<(&'static str, &'static str)> {
    let sentences = line.split('"').filter(|text| text.trim().contains(' '));
    let mut parts = sentences.flat_map(|text| text.split('{')).enumerate();
    parts.find_map(|(index, part)| {
        let behind = part.split_once('}').map_or(part, |(_, behind)| behind);
        word_of_prose(if index == 0 { part } else { behind })
    })
}

fn word_of_prose(text: &str) -> Option<(&'static str, &'static str)> {
    // A name in backticks is code.
    let prose = || text.split('`').step_by(2);
    let is_in_prose = || prose().flat_map(words).any(|word| word.to_lowercase() == IN_PROSE.0);
    word_of(text).or_else(|| is_in_prose().then_some(IN_PROSE))
}

fn word_of(text: &str) -> Option<(&'static str, &'static str)> {
    words(text).find_map(|word| {
        let word = word.to_lowercase();
        WORDS.iter().find(|(bad, _)| *bad == word).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&[SourceFile::new(path, text)]).len()
    }

    #[test]
    fn word_of_people_is_a_problem_in_comments_and_identifiers() {
        let path = "crates/a/src/b.rs";
        assert_eq!(count(path, "/// Tells whether it is there.\nfn is_there() {}"), 1);
        assert_eq!(count(path, "// Sent to whom?\nlet a = 1; // Nobody reads it."), 2);
        assert_eq!(count(path, "fn heard_nothing() {}\nstruct ToldLost;"), 2);
        assert_eq!(count(path, "session.wants_write() // asks the session"), 1);
        assert_eq!(count("bindings/python/src/a.rs", "fn say() {}"), 1);
        assert_eq!(count("jvm/a/src/main/java/B.java", "/** Says why. */\nvoid ask() {}"), 2);
    }

    #[test]
    fn word_of_people_is_a_problem_in_a_message() {
        let path = "crates/a/src/b.rs";
        assert_eq!(count(path, "#[error(\"the node {name} says no\")]"), 1);
        assert_eq!(count(path, "let why = \"{name} is fine, and nobody calls\";"), 1);
        assert_eq!(count(path, "// What was asked.\nlet asked = 1; // `asked` before."), 1);
        assert_eq!(count(path, "let why = \"block {asked} is gone, {told:?}\";"), 0);
    }

    #[test]
    fn word_of_people_is_a_problem_in_python_and_its_docstrings() {
        let path = "bindings/python/python/a/b.py";
        assert_eq!(count(path, "def a():\n    \"\"\"Says\n    what it wants.\n    \"\"\"\n"), 2);
        assert_eq!(count(path, "who = 1  # Nobody reads it.\ntold = 2\n# What was asked."), 3);
        assert_eq!(count(path, "a = \"who\" + 'says'  # \"\"\"\nb = \"\"\"a\"\"\""), 0);
        assert_eq!(count(path, "def tell(self):\n    return self.file.tell()"), 0);
        assert_eq!(count("bindings/python/src/b.rs", "fn tell() {}"), 1);
    }

    #[test]
    fn word_of_people_is_a_problem_in_tests_benchmarks_and_scripts() {
        let path = "crates/a/src/b.rs";
        assert_eq!(count(path, "#[cfg(test)]\nmod tests {\n    fn nobody() {}\n}\n"), 1);
        for path in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "fuzz/targets/a.rs"] {
            assert_eq!(count(path, "fn ask() { panic!(\"nobody answers\") }"), 1, "{path}");
        }
        assert_eq!(count("jvm/a/src/test/java/B.java", "void ask() {}"), 1);
        for path in ["bindings/python/tests/b.py", "bench/b.py", "scripts/b.py"] {
            assert_eq!(count(path, "told = 1\n\"\"\"What it says.\"\"\""), 2, "{path}");
        }
        assert_eq!(count("scripts/b.sh", "say() { true; } # Nobody\necho \"who\""), 1);
    }

    #[test]
    fn names_licences_and_longer_words_are_none() {
        let path = "crates/a/src/b.rs";
        assert_eq!(count(path, "let task = whole(\"heard\"); // a heartbeat, whose mask"), 0);
        assert_eq!(count(path, "session.wants_read();"), 0);
        let licence = "MIT = \"\"\"to whom it is furnished\"\"\"\n# For whom?";
        assert_eq!(count(TEXTS_OF_OTHERS[0], licence), 1);
        assert_eq!(count("docs/A.md", "who"), 0);
    }
}
