//! Words for people, which describe no code: processes, sockets and functions do not speak, listen
//! to each other, know or want anything. The field has a term for each: send, report, receive,
//! request, return, contain, require.

use std::collections::BTreeMap;

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
    ("wants", "needs or requests"),
    ("who", "which or that"),
    ("whom", "which or that"),
];

/// Names of other libraries' functions.
const FOREIGN: &[&str] = &["askSync", "wants_read", "wants_write"];

/// The product's code, by the beginnings of its paths.
const PRODUCT: [&str; 3] = ["crates/", "bindings/", "jvm/"];

/// A crate whose code still has some of the words.
pub struct KnownWords {
    /// The crate's directory.
    pub directory: &'static str,
    /// Most lines with one of them.
    pub lines_max: usize,
}

/// The crates that still have some. The numbers only go down, and none is added.
pub const KNOWN: &[KnownWords] = &[
    KnownWords { directory: "crates/client", lines_max: 5 },
    KnownWords { directory: "crates/core", lines_max: 502 },
    KnownWords { directory: "crates/datanode", lines_max: 9 },
    KnownWords { directory: "crates/sim", lines_max: 24 },
];

/// Checks the comments and the identifiers of the product's code in Rust and Java; fails on the
/// crates that have more lines than `known` allows.
#[must_use]
pub fn check(files: &[SourceFile], known: &[KnownWords]) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<Problem>> = BTreeMap::new();
    let is_checked = |file: &&SourceFile| matches!(file.language, Language::Rust | Language::Java);
    for file in files.iter().filter(is_checked) {
        if let Some((directory, path)) = file.path.split_once("/src/")
            && PRODUCT.iter().any(|start| directory.starts_with(start))
            && !path.split(['/', '.']).any(|name| name == "tests" || name == "test")
        {
            crates.entry(directory).or_default().extend(check_file(file));
        }
    }
    let allowed = |directory: &str| {
        known.iter().find(|it| it.directory == directory).map_or(0, |it| it.lines_max)
    };
    crates.retain(|directory, problems| problems.len() > allowed(directory));
    crates.into_values().flatten().collect()
}

/// Returns a problem for each line of a file that has one of the words, its unit tests apart.
fn check_file(file: &SourceFile) -> Vec<Problem> {
    let parts = split(file.language, &file.text);
    let tests = parts.code.lines().position(|line| line == "mod tests {");
    let lines = parts.code.lines().zip(parts.comments.lines()).take(tests.unwrap_or(usize::MAX));
    let found = lines.enumerate().filter_map(|(index, (code, comment))| {
        let (word, term) = word_of_code(code).or_else(|| word_of(comment))?;
        let what = format!("{word:?} describes people: write {term}");
        Some(Problem::new(&file.path, index + 1, what))
    });
    found.collect()
}

fn word_of_code(line: &str) -> Option<(&'static str, &'static str)> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let mut names = line.split(|char| !is_part(char)).filter(|name| !FOREIGN.contains(name));
    names.find_map(word_of)
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
        check(&[SourceFile::new(path, text)], &[]).len()
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
    fn strings_tests_and_longer_words_are_none() {
        let path = "crates/a/src/b.rs";
        assert_eq!(count(path, "let task = whole(\"who says\"); // a heartbeat, whose mask"), 0);
        assert_eq!(count(path, "#[cfg(test)]\nmod tests {\n    fn nobody() {}\n}\n"), 0);
        for path in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/a/src/tests/b.rs"] {
            assert_eq!(count(path, "fn nobody() {}"), 0, "{path}");
        }
        assert_eq!(count(path, "session.wants_read();"), 0);
        assert_eq!(count("jvm/a/src/test/java/B.java", "void ask() {}"), 0);
    }

    #[test]
    fn known_words_may_become_fewer_only() {
        let file = [SourceFile::new("crates/a/src/b.rs", "// told\n// told, and told again\n")];
        let known = |lines_max| [KnownWords { directory: "crates/a", lines_max }];
        assert_eq!(check(&file, &known(3)).len(), 0);
        assert_eq!(check(&file, &known(2)).len(), 0);
        assert_eq!(check(&file, &known(1)).len(), 2, "all are listed");
        assert_eq!(check(&file, &[]).len(), 2);
    }
}
