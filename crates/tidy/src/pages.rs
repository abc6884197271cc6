//! Whether the pages hang together: every page can be reached, every link leads somewhere.

use std::collections::BTreeSet;

use crate::Problem;
use crate::tree::{Language, SourceFile};

/// Pages from which a reader finds all others.
const ENTRANCES: [&str; 2] = ["README.md", "docs/ARCHITECTURE.md"];

/// What every page of a mechanism has.
const SECTIONS: [&str; 4] =
    ["## Problem", "## Decision", "## Failure by failure", "## Alternatives considered"];

/// Checks the links of every page.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut reached = BTreeSet::new();
    for page in files.iter().filter(|file| file.language == Language::Markdown) {
        for link in links(&page.text).filter(|link| !link.target.contains("://")) {
            let (target, anchor) = link.target.split_once('#').unwrap_or((link.target, ""));
            let path = resolve(&page.path, target);
            if ENTRANCES.contains(&page.path.as_str()) {
                reached.insert(path.clone());
            }
            if let Some(what) = broken(files, &path, anchor) {
                problems.push(Problem::new(&page.path, link.line, what));
            }
        }
    }
    problems.extend(unreached(files, &reached));
    problems.extend(files.iter().flat_map(missing_sections));
    problems
}

fn missing_sections(page: &SourceFile) -> impl Iterator<Item = Problem> + '_ {
    let is_mechanism =
        page.path.starts_with("docs/mechanisms/") && page.language == Language::Markdown;
    let missing =
        SECTIONS.into_iter().filter(|section| !page.text.lines().any(|it| it == *section));
    missing
        .filter(move |_| is_mechanism)
        .map(|section| Problem::new(&page.path, 0, format!("the page has no section {section:?}")))
}

fn unreached<'a>(
    files: &'a [SourceFile],
    reached: &'a BTreeSet<String>,
) -> impl Iterator<Item = Problem> + 'a {
    let pages = files.iter().filter(|file| {
        file.path.starts_with("docs/")
            && file.language == Language::Markdown
            && !ENTRANCES.contains(&file.path.as_str())
    });
    pages.filter(|page| !reached.contains(&page.path)).map(|page| {
        let what = format!("no link leads here from {}", ENTRANCES.join(" or "));
        Problem::new(&page.path, 0, what)
    })
}

/// One link of a page.
struct Link<'a> {
    line: usize,
    target: &'a str,
}

/// Finds `[text](target)` outside of code blocks and code spans.
fn links(text: &str) -> impl Iterator<Item = Link<'_>> {
    let mut is_code = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    prose.flat_map(|(index, line)| {
        let starts =
            line.match_indices("](").filter(|(at, _)| line[..*at].matches('`').count() % 2 == 0);
        starts.filter_map(move |(at, _)| {
            let target = line[at + 2..].split(')').next()?.split(' ').next()?;
            Some(Link { line: index + 1, target })
        })
    })
}

/// Returns the path that `target` names on the page at `page`.
fn resolve(page: &str, target: &str) -> String {
    if target.is_empty() {
        return page.to_owned();
    }
    let mut components: Vec<&str> = page.split('/').collect();
    components.pop();
    for component in target.split('/') {
        match component {
            "." | "" => {}
            ".." => drop(components.pop()),
            name => components.push(name),
        }
    }
    components.join("/")
}

/// Returns what is wrong with a link to `anchor` of the file or directory at `path`.
fn broken(files: &[SourceFile], path: &str, anchor: &str) -> Option<String> {
    let Some(file) = files.iter().find(|file| file.path == path) else {
        let is_directory = files.iter().any(|file| file.path.starts_with(&format!("{path}/")));
        return (!is_directory || !anchor.is_empty())
            .then(|| format!("the link leads nowhere: there is no {path}"));
    };
    let is_found = anchor.is_empty()
        || file.language != Language::Markdown
        || headings(&file.text).any(|heading| heading == anchor);
    (!is_found).then(|| format!("the link leads nowhere: {path} has no heading #{anchor}"))
}

/// Returns the anchors of a page's headings, made as GitHub makes them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(readme: &str, page: &str) -> Vec<String> {
        let files = [SourceFile::new("README.md", readme), SourceFile::new("docs/A.md", page)];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn page_without_a_link_to_it_is_a_problem() {
        assert_eq!(site("", "").len(), 1);
        assert_eq!(site("[a](docs/A.md)", "").len(), 0);
    }

    #[test]
    fn link_that_leads_nowhere_is_a_problem() {
        assert_eq!(site("[a](docs/A.md) [b](docs/B.md)", "").len(), 1);
        assert_eq!(site("[a](docs/A.md)", "[r](../README.md) [x](README.md)").len(), 1);
        assert_eq!(site("[a](docs/A.md#what-it-is)", "## What, it is?").len(), 0);
        assert_eq!(site("[a](docs/A.md#what-it-was)", "## What it is").len(), 1);
    }

    #[test]
    fn mechanism_without_its_alternatives_is_a_problem() {
        let readme = SourceFile::new("README.md", "[a](docs/mechanisms/a.md)");
        let mut text = "## Problem\n## Decision\n## Failure by failure\n".to_owned();
        let files = [readme.clone(), SourceFile::new("docs/mechanisms/a.md", &text)];
        assert_eq!(check(&files).len(), 1);
        text.push_str("## Alternatives considered\n");
        let files = [readme, SourceFile::new("docs/mechanisms/a.md", &text)];
        assert_eq!(check(&files), []);
    }

    #[test]
    fn code_and_the_web_hold_no_links_of_ours() {
        let text = "[a](docs/A.md) `[x](y)` [w](https://example.org/x)\n```\n[b](c)\n```\n";
        assert_eq!(site(text, "").len(), 0);
    }
}
