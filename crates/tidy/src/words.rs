//! Words that do not belong into code: other systems' terms, unfinished work, one machine's paths.

use crate::Problem;
use crate::code::split;
use crate::tree::SourceFile;

/// How terms of other systems begin, each with ours. Words and parts of identifiers are looked at,
/// in code and in comments, not in strings: those may have to speak to another system.
const TERMS: &[(&str, &str)] = &[
    ("master", "namenode"),
    ("slave", "datanode"),
    ("evacuat", "relocate"),
    ("migrat", "relocate"),
    ("whitelist", "allow"),
    ("blacklist", "deny"),
];

/// What files that speak to Spark have in their paths: its interfaces are named with its words.
const SPARK: &str = "spark";

/// Unfinished work, and a world of its own for tests.
const UNFINISHED: &[(&str, &str)] = &[
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("cfg(sim)", "the product has no code for the simulation"),
    ("cfg(not(sim))", "the product has no code for the simulation"),
    ("feature = \"sim\"", "the product has no code for the simulation"),
];

/// Marks of unfinished work, as whole words of a comment.
const MARKS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Directories of one machine. Written in two parts, so that this file passes its own check.
const MACHINE: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/tm", "p/"), concat!("/ho", "me/"), concat!("/roo", "t/")];

/// Checks every text of the repository.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    files.iter().filter(|file| !file.path.ends_with(".lock")).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let parts = split(file.language, &file.text);
    let is_this_file = file.path == "crates/tidy/src/words.rs";
    for (index, line) in file.text.lines().enumerate() {
        let found = MACHINE.iter().filter(|path| line.contains(**path));
        problems.extend(found.map(|path| {
            Problem::new(&file.path, index + 1, format!("{path} is a path of one machine"))
        }));
    }
    if !file.language.is_code() || is_this_file {
        return problems;
    }
    for (index, line) in parts.code.lines().enumerate() {
        problems.extend(check_terms(file, index, line));
        let found = UNFINISHED.iter().filter(|(word, _)| line.contains(word));
        problems.extend(found.map(|(word, why)| {
            Problem::new(&file.path, index + 1, format!("no {word} here: {why}"))
        }));
    }
    for (index, line) in parts.comments.lines().enumerate() {
        problems.extend(check_terms(file, index, line));
        let mut letters = line.split(|letter: char| !letter.is_alphanumeric());
        if let Some(mark) = letters.find(|word| MARKS.contains(word)) {
            let what = format!("no {mark} here: finish it, or write what is and why");
            problems.push(Problem::new(&file.path, index + 1, what));
        }
        if let Some(number) = issue_number(line) {
            let what = format!("{number} means nothing to a reader: state the reason itself");
            problems.push(Problem::new(&file.path, index + 1, what));
        }
    }
    problems
}

fn check_terms<'a>(
    file: &'a SourceFile,
    index: usize,
    line: &'a str,
) -> impl Iterator<Item = Problem> + 'a {
    let is_ours = !file.path.contains(SPARK);
    words(line).filter(move |_| is_ours).filter_map(move |word| {
        let word = word.to_lowercase();
        let (_, ours) = TERMS.iter().find(|(term, _)| word.starts_with(term))?;
        let what = format!("{word:?} is another system's term: use {ours:?}");
        Some(Problem::new(&file.path, index + 1, what))
    })
}

/// Cuts a line into words; identifiers are cut at `_` and before capitals.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|char: char| !char.is_alphabetic()).flat_map(|word| {
        let mut starts: Vec<usize> = vec![0];
        let pairs = word.char_indices().zip(word.chars().skip(1));
        let capitals =
            pairs.filter(|((_, before), char)| before.is_lowercase() && char.is_uppercase());
        starts.extend(capitals.map(|((at, before), _)| at + before.len_utf8()));
        starts.push(word.len());
        starts.windows(2).map(|ends| &word[ends[0]..ends[1]]).collect::<Vec<_>>()
    })
}

/// Returns the first `#` with a number behind it.
fn issue_number(line: &str) -> Option<String> {
    line.match_indices('#').find_map(|(at, _)| {
        let digits: String = line[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then(|| format!("#{digits}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&[SourceFile::new(path, text)]).len()
    }

    #[test]
    fn terms_of_other_systems_are_problems() {
        assert_eq!(count("a.rs", "struct SlaveNode;"), 1);
        assert_eq!(count("a.rs", "let old_master = 1; // migrates"), 2);
        assert_eq!(count("a.py", "def evacuate(self): pass"), 1);
        assert_eq!(count("a.java", "conf.setMaster(a);"), 1);
        assert_eq!(count("jvm/spark/a.java", "conf.setMaster(a);"), 0);
        assert_eq!(count("a.rs", "let remastered = \"master\";"), 0);
    }

    #[test]
    fn unfinished_work_is_a_problem() {
        assert_eq!(count("a.rs", "fn a() { todo!() }"), 1);
        assert_eq!(count("a.rs", "#[cfg(sim)]\nfn a() {}"), 1);
        assert_eq!(count("a.rs", "// todo! is a macro"), 0);
        for mark in MARKS {
            assert_eq!(count("a.rs", &format!("/// {mark}(name): later\n")), 1, "{mark}");
            assert_eq!(count("a.sh", &format!("a # {mark}\n")), 1, "{mark}");
            assert_eq!(count("a.toml", &format!("# {mark}\n")), 0, "not looked at");
            assert_eq!(count("a.rs", &format!("let a = \"{mark}\"; // {mark}S\n")), 0, "{mark}");
        }
    }

    #[test]
    fn path_of_a_machine_is_a_problem() {
        for path in MACHINE {
            assert_eq!(count("a.md", &format!("see {path}x")), 1, "{path}");
        }
        assert_eq!(count("a.md", "see /var/lib/sanderling"), 0);
    }

    #[test]
    fn issue_number_in_a_comment_is_a_problem() {
        assert_eq!(count("a.rs", "// see #12\n"), 1);
        assert_eq!(count("a.py", "a = '#123456'  # as in #7\n"), 1);
        assert_eq!(count("a.rs", "let a = \"#12\"; // r# and # 3\n"), 0);
    }
}
