//! Whether the tables of the operators' page are whole: every refusal, every metric.

use crate::Problem;
use crate::tree::SourceFile;

/// The page.
pub const PAGE: &str = "docs/OPERATING.md";

/// Finds refusals without a row `| number | ``name`` |` on the page.
#[must_use]
pub fn check_refusals(files: &[SourceFile], refusals: &[(u16, &str)]) -> Vec<Problem> {
    let page = text_of(files);
    let is_missing = |(code, name): &&(u16, &str)| {
        let row = format!("| {code} | `{name}` |");
        !page.lines().any(|line| line.starts_with(&row))
    };
    let missing = refusals.iter().filter(is_missing);
    missing
        .map(|(code, name)| {
            Problem::new(PAGE, 0, format!("refusal {code} `{name}` is not explained"))
        })
        .collect()
}

/// Finds metrics that a crate registers and the page does not list.
#[must_use]
pub fn check_metrics(files: &[SourceFile]) -> Vec<Problem> {
    let page = text_of(files);
    let sources = files.iter().filter(|file| file.path.ends_with("/src/metrics.rs"));
    let registered = sources.flat_map(|file| names(&file.text).map(move |name| (file, name)));
    let missing = registered.filter(|(_, name)| !page.contains(&format!("`{name}")));
    missing
        .map(|(file, name)| {
            Problem::new(&file.path, 0, format!("metric {name} is not listed in {PAGE}"))
        })
        .collect()
}

fn text_of(files: &[SourceFile]) -> &str {
    files.iter().find(|file| file.path == PAGE).map_or("", |file| file.text.as_str())
}

/// Finds the names in `register("name", ...)`, on one line or two.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let calls = ["register(", "register_with_unit("];
    let starts = calls
        .into_iter()
        .flat_map(move |call| text.match_indices(call).map(move |(at, _)| at + call.len()));
    starts.filter_map(move |at| {
        let name = text[at..].trim_start().strip_prefix('"')?;
        name.split('"').next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_without_a_row_is_a_problem() {
        let page = SourceFile::new(PAGE, "| 1 | `BadFrame` | ... |\n");
        assert_eq!(check_refusals(&[page], &[(1, "BadFrame"), (2, "NoHello")]).len(), 1);
        assert_eq!(check_refusals(&[], &[(1, "BadFrame")]).len(), 1);
    }

    #[test]
    fn metric_that_is_not_listed_is_a_problem() {
        let source =
            "all.register(\"notices\", help, x);\nall.register_with_unit(\n    \"lost\", y);";
        let source = SourceFile::new("crates/a/src/metrics.rs", source);
        let page = SourceFile::new(PAGE, "| `notices` | given |");
        let problems = check_metrics(&[source.clone(), page]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("lost"));
        assert_eq!(check_metrics(&[source]).len(), 2);
    }
}
