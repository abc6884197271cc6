//! What the lab leaves behind: one HTML page that needs nothing else, and the figures as CSV and
//! JSON beside it.

mod bandwidth;
pub(crate) mod checkpoint;
pub(crate) mod cost;
pub(crate) mod csv;
mod exposure;
pub(crate) mod lifetimes;
pub(crate) mod measured;
mod plot;
pub(crate) mod run;
mod runtimes;
pub(crate) mod sizes;
mod targets;
mod timeline;

use std::path::Path;

use sanderling_plot::{Headline, escaped};
use serde::Serialize;

use crate::failure::Failure;
use crate::figures::Figure;
use crate::record::PolicyName;

/// The policies in the order in which they are shown.
const POLICIES: [PolicyName; 2] = [PolicyName::Sanderling, PolicyName::Baseline];

/// One part of a page: HTML under a heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// The heading.
    pub(crate) title: String,
    /// What stands under it, as HTML.
    pub(crate) body: String,
}

/// Returns a page of these sections.
pub(crate) fn page(title: &str, verdict: Option<&Headline>, sections: &[Section]) -> String {
    let section = |it: &Section| {
        format!("<section>\n<h2>{}</h2>\n{}</section>\n", escaped(&it.title), it.body)
    };
    let body: String = sections.iter().map(section).collect();
    sanderling_plot::page(title, verdict, &body)
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
    made.map_err(|error| Failure::file(&path, error))
}

/// Returns a policy's colour.
const fn colour_of(policy: PolicyName) -> &'static str {
    match policy {
        PolicyName::Sanderling => "blue",
        PolicyName::Baseline => "amber",
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
    fn texts_of_a_page_are_not_markup() {
        let body = table(&["what", "#how much"], [vec!["a < b".to_owned(), "1".to_owned()]]);
        let page = page("Lab", None, &[Section { title: "One & two".to_owned(), body }]);
        assert!(page.contains("<h2>One &amp; two</h2>") && page.contains("a &lt; b"));
        assert!(page.contains("<th class=number>how much</th>"));
    }
}
