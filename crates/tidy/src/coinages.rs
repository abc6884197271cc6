//! Coined words that may not name anything in code: the field has its own for the same thing, which
//! a reader can guess.

use std::path::Path;

use crate::Problem;
use crate::code::split;
use crate::tree::SourceFile;
use crate::words::words;

/// The words, each with the field's and with what a reader would guess wrong.
const COINAGES: &[(&str, &str, &str)] = &[
    ("asker", "batcher or client", "no term; a request has a sender"),
    ("awake", "busy_poll", "a thread is always awake, what differs is whether it parks"),
    ("bury", "remove or mark dead", "a node is removed from the catalog"),
    ("crowd", "batch or queue", "requests and connections are no people"),
    ("desk", "writer handle", "furniture"),
    ("door", "endpoint, listener or interface", "furniture"),
    ("doors", "endpoints, listeners or interfaces", "furniture"),
    ("errand", "effect", "an outbound effect of a command"),
    ("errands", "effects", "outbound effects of commands"),
    ("facts", "fields, metadata or a view", "everything that code reads is a fact"),
    ("halfway", "poison guard", "it names a time, not a thing"),
    ("heir", "adopter", "the command is `Adopt`"),
    ("heirs", "adopters", "the command is `Adopt`"),
    ("keeper", "renewer or background thread", "it names neither a thing nor a way"),
    ("landing", "sink", "it receives bytes"),
    ("landings", "sinks", "they receive bytes"),
    ("lane", "queue, connection, worker or row", "a road; the vectors of MD5 have lanes"),
    ("lanes", "queues, connections, workers or rows", "roads; the vectors of MD5 have lanes"),
    ("lender", "borrowed buffer", "the borrower holds it"),
    ("lent", "borrowed", "a view borrows memory"),
    ("mailbox", "completion queue", "an actor's inbox"),
    ("news", "event, completion or change", "it does not name what has happened"),
    ("octets", "bytes", "no other word for bytes"),
    ("patience", "timeout", "processes have timeouts"),
    ("rebirth", "recovery", "a group is recovered"),
    ("shelf", "handle table", "furniture"),
    ("shelves", "handle tables", "furniture"),
    ("speaker", "source or stub", "processes do not speak"),
    ("standing", "state or role", "it also means waiting"),
    ("stranger", "unadmitted connection or unauthenticated caller", "a person"),
    ("strangers", "unadmitted connections or unauthenticated callers", "persons"),
    ("trouble", "error", "an error"),
    ("wish", "request or goal", "processes have no wishes"),
    ("wishes", "requests or goals", "processes have no wishes"),
];

/// Words that are the field's in a part of the repository: the beginning of its paths, and the
/// words. The parts of a vector register are lanes.
const FOREIGN: (&str, [&str; 2]) = ("crates/gateway/src/md5", ["lane", "lanes"]);

/// Checks the identifiers and the names of all files with code.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    files.iter().filter(|file| file.language.is_code()).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Problem> {
    let stem = Path::new(&file.path).file_stem().and_then(|stem| stem.to_str());
    let code = split(file.language, &file.text).code;
    let lines = code.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut problems = Vec::new();
    for (line, text) in stem.map(|stem| (0, stem)).into_iter().chain(lines) {
        for word in words(text) {
            let word = word.to_lowercase();
            if file.path.starts_with(FOREIGN.0) && FOREIGN.1.contains(&word.as_str()) {
                continue;
            }
            if let Some((_, ours, why)) = COINAGES.iter().find(|(coinage, ..)| *coinage == word) {
                let what = format!("{word:?} is coined ({why}): use {ours}");
                problems.push(Problem::new(&file.path, line, what));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&[SourceFile::new(path, text)]).len()
    }

    #[test]
    fn coined_identifier_is_a_problem() {
        assert_eq!(count("a.rs", "struct HttpDoor { is_open: bool }"), 1);
        assert_eq!(count("a.rs", "fn take(shelf: &Shelf) {}"), 2);
        assert_eq!(count("a.py", "self._keeper = None"), 1);
        assert_eq!(count("a.java", "int errandQueue;"), 1);
        assert_eq!(count("a.rs", "const AWAKE_MAX: u32 = 1;"), 1);
        assert_eq!(count("a.java", "Usage(Decoder facts) { files = facts.number(); }"), 2);
        assert_eq!(count("a.rs", "struct Strangers; let is_news = standing(lent, crowd);"), 5);
    }

    #[test]
    fn vectors_alone_have_them() {
        let code = "let lanes = [lane; 4];";
        assert_eq!(count("crates/gateway/src/md5/lanes.rs", code), 0);
        assert_eq!(count("crates/gateway/src/md5.rs", "mod lanes; struct Door;"), 1);
        assert_eq!(count("crates/gateway/src/copy.rs", code), 2);
    }

    #[test]
    fn coined_file_name_is_a_problem() {
        assert_eq!(count("crates/a/src/mailbox.rs", ""), 1);
        assert_eq!(count("crates/a/tests/body_landing.rs", ""), 1);
    }

    #[test]
    fn strings_comments_and_longer_words_are_none() {
        assert_eq!(count("a.rs", "let a = \"the door\"; // a door"), 0);
        assert_eq!(count("a.rs", "let outdoors = bookshelf;"), 0);
        assert_eq!(count("a.rs", "let outstanding = is_crowded; // \n\"standing\";"), 0);
        assert_eq!(count("a.md", "a door"), 0);
    }
}
