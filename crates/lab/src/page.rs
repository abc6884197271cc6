//! What the lab leaves behind: one HTML page that needs nothing else, and the figures as CSV and
//! JSON beside it.

mod bandwidth;
pub(crate) mod cost;
pub(crate) mod csv;
mod exposure;
pub(crate) mod lifetimes;
mod plot;
pub(crate) mod run;
mod runtimes;
pub(crate) mod sizes;
mod targets;
mod timeline;

use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;
use crate::figures::Figure;
use crate::record::PolicyName;
use plot::escaped;

/// The policies in the order in which they are shown.
const POLICIES: [PolicyName; 2] = [PolicyName::Sanderling, PolicyName::Seed];

const STYLE: &str = include_str!("page/page.css");
const FRAME: &str = include_str!("page/page.html");

/// One part of a page: HTML under a heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// The heading.
    pub(crate) title: String,
    /// What stands under it, as HTML.
    pub(crate) body: String,
}

/// What leads a page: what was found, and whether it is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Headline {
    /// One or two sentences.
    pub(crate) text: String,
    /// Whether everything was reached.
    pub(crate) is_good: bool,
}

/// Returns a page. It loads nothing and runs nothing.
pub(crate) fn page(title: &str, verdict: Option<&Headline>, sections: &[Section]) -> String {
    let verdict = verdict.map_or_else(String::new, |it| {
        let class = if it.is_good { "verdict" } else { "verdict bad" };
        format!("<p class=\"{class}\">{}</p>", escaped(&it.text))
    });
    let sections: String = sections
        .iter()
        .map(|it| format!("<section>\n<h2>{}</h2>\n{}</section>\n", escaped(&it.title), it.body))
        .collect();
    FRAME
        .replace("<!--title-->", &escaped(title))
        .replace("<!--style-->", STYLE)
        .replace("<!--version-->", env!("CARGO_PKG_VERSION"))
        .replace("<!--verdict-->", &verdict)
        .replace("<!--sections-->", &sections)
}

/// Writes a figure's page, CSV and JSON into a directory, making it if need be.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_figure<F: Figure>(figure: &F, directory: &Path) -> Result<(), Failure> {
    let section = figure.section();
    write_rows(figure, directory)?;
    write(directory, &format!("{}.html", F::NAME), &page("Sanderling lab", None, &[section]))
}

/// Writes a figure's CSV and JSON.
fn write_rows<F: Figure>(figure: &F, directory: &Path) -> Result<(), Failure> {
    write(directory, &format!("{}.csv", F::NAME), &figure.csv().to_string())?;
    write(directory, &format!("{}.json", F::NAME), &json(figure))
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("records have string keys") + "\n"
}

fn write(directory: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    let made = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, text));
    made.map_err(|error| Failure::file(&path, &error))
}

/// Returns a policy's colour.
const fn colour_of(policy: PolicyName) -> &'static str {
    match policy {
        PolicyName::Sanderling => "sanderling",
        PolicyName::Seed => "seed",
    }
}

/// Returns a paragraph.
fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escaped(text))
}

/// Returns the line with the command that makes a figure again.
fn rerun(command: &str) -> String {
    format!("<p class=rerun>Made by <code>{}</code></p>\n", escaped(command))
}

/// Returns a table; columns whose heading begins with `#` hold numbers.
fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let class = |at: usize| if columns[at].starts_with('#') { " class=number" } else { "" };
    let mut text = String::from("<div class=scroll><table><thead><tr>");
    for (at, column) in columns.iter().enumerate() {
        let name = escaped(column.trim_start_matches('#'));
        text.push_str(&format!("<th{}>{name}</th>", class(at)));
    }
    text.push_str("</tr></thead><tbody>\n");
    for row in rows {
        text.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let class = match cell.as_str() {
                "reached" | "fits" => " class=yes",
                "not reached" | "does not fit" => " class=no",
                "not measured" => " class=unknown",
                _ => class(at),
            };
            text.push_str(&format!("<td{class}>{}</td>", escaped(cell)));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_needs_nothing_from_elsewhere() {
        let body = table(&["what", "#how much"], [vec!["a < b".to_owned(), "1".to_owned()]]);
        let section = Section { title: "One & two".to_owned(), body };
        let verdict = Headline { text: "all is well".to_owned(), is_good: true };
        let page = page("Lab", Some(&verdict), &[section]);
        assert!(!page.contains("<!--"), "a part is missing");
        assert!(
            !page.contains("http://") && !page.contains("https://") && !page.contains("<script")
        );
        assert!(page.contains("One &amp; two") && page.contains("a &lt; b"));
        assert!(page.contains("prefers-color-scheme: dark"));
    }
}
