//! Checks that the glossary has every term that the pages define, each once.
//!
//! On all pages, bold text that begins with a small letter defines a term ("a **fence** rejects
//! writes"). Bold text that begins with a capital, or ends with a full stop, is the lead of a
//! paragraph and defines nothing. Neither does bold text in a table: it marks a cell.

use std::collections::BTreeSet;

use crate::Problem;
use crate::tree::{Language, SourceFile};

/// The page with the terms: the bold first cells of its tables.
pub const PAGE: &str = "docs/GLOSSARY.md";

/// Checks the pages that define terms against the glossary.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut terms = BTreeSet::new();
    for file in files.iter().filter(|file| file.path == PAGE) {
        let rows = file.text.lines().enumerate();
        for (index, term) in rows.filter_map(|(index, row)| Some((index, term_of(row)?))) {
            if !terms.insert(term) {
                problems.push(Problem::new(PAGE, index + 1, format!("{term:?} is defined twice")));
            }
        }
    }
    for page in files.iter().filter(|file| defines_terms(file)) {
        for (line, term) in definitions(&page.text) {
            let singular = term.strip_suffix('s').unwrap_or(term);
            if !terms.contains(term) && !terms.contains(singular) {
                let what = format!("the term {term:?} is not in {PAGE}");
                problems.push(Problem::new(&page.path, line, what));
            }
        }
    }
    problems
}

fn defines_terms(file: &SourceFile) -> bool {
    file.language == Language::Markdown && file.path.starts_with("docs/") && file.path != PAGE
}

fn term_of(row: &str) -> Option<&str> {
    row.strip_prefix("| **")?.split("**").next()
}

/// Finds the bold spans that begin with a small letter, outside of code blocks and tables.
fn definitions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with('|')
    });
    prose.flat_map(|(index, line)| {
        let spans = line.split("**").skip(1).step_by(2);
        let terms = spans.filter(|span| {
            span.starts_with(|first: char| first.is_lowercase()) && !span.ends_with('.')
        });
        terms.map(move |term| (index + 1, term))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(glossary: &str, page: &str) -> Vec<String> {
        let files =
            [SourceFile::new(PAGE, glossary), SourceFile::new("docs/mechanisms/a.md", page)];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn term_that_is_missing_is_a_problem() {
        let page =
            "A **fence** and two **epochs**.\n\n**Lead.** **gRPC.** Prose.\n```\n**code**\n```\n";
        assert_eq!(problems("| **fence** | a |\n| **epoch** | b |\n", page).len(), 0);
        assert_eq!(
            problems("| **fence** | a |\n", page),
            ["docs/mechanisms/a.md:1: the term \"epochs\" is not in docs/GLOSSARY.md"]
        );
    }

    #[test]
    fn every_page_but_the_glossary_defines_terms_outside_of_tables() {
        let page = SourceFile::new("docs/TASKS.md", "a **task**\n\n| a | **backend** |\n");
        let glossary = SourceFile::new(PAGE, "| **fence** | by a **node** |\n\nA **lock**.\n");
        let found = check(&[page, glossary]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["docs/TASKS.md:1: the term \"task\" is not in docs/GLOSSARY.md"]);
    }

    #[test]
    fn term_that_is_defined_twice_is_a_problem() {
        assert_eq!(problems("| **fence** | a |\n| **fence** | b |\n", "").len(), 1);
    }
}
