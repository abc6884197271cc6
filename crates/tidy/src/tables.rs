//! Whether the pages' tables are whole: every refusal and every other error, every metric, every
//! event, every checker of the simulator; and whether Python and Java have the same classes of
//! errors.

use std::collections::{BTreeMap, BTreeSet};

use crate::Problem;
use crate::tree::SourceFile;

/// The page with the metrics.
pub const PAGE: &str = "docs/OPERATING.md";

/// The page with the errors.
pub const ERRORS_PAGE: &str = "docs/ERRORS.md";

/// The page with the simulator's checkers.
pub const SIMULATION_PAGE: &str = "docs/SIMULATION.md";

const EVENTS: &str = "crates/protocol/src/event.rs";
const SIMULATOR: &str = "crates/sim/src/";
const REFUSALS: &str = "crates/protocol/src/refusal.rs";
const CLIENT_ERRORS: &str = "crates/client/src/error.rs";
const PYTHON_ERRORS: &str = "bindings/python/python/sanderling/errors.py";
const JAVA_ERRORS: &str = "jvm/client/src/main/java/io/sanderling/client/Failure.java";

/// Java's class of the errors that have no class of their own.
const JAVA_BASE: &str = "SanderlingException";

/// Python's classes whose name in Java is another one than theirs with `Exception` behind it.
const JAVA_NAMES: &[(&str, &str)] = &[
    // The base of all errors has Python's own ending.
    ("SanderlingError", JAVA_BASE),
    // Java's programs have both of these names from `java.nio.file`.
    ("Exists", "AlreadyExistsException"),
    ("NotAllowed", "AccessDeniedException"),
];

/// Finds refusals without a row `| number | ``name`` | meaning | ``recovery`` | what to do |` on
/// the page, or with another recovery than the code's.
#[must_use]
pub fn check_refusals(files: &[SourceFile], refusals: &[(u16, &str)]) -> Vec<Problem> {
    let page = text_of(files, ERRORS_PAGE);
    let recoveries = recoveries(text_of(files, REFUSALS));
    let wrong = |(code, name): &(u16, &str)| {
        let row = format!("| {code} | `{name}` |");
        let Some(line) = page.lines().find(|line| line.starts_with(&row)) else {
            return Some(format!("refusal {code} `{name}` is not explained"));
        };
        let recovery = recoveries.get(*name).map_or("fix", String::as_str);
        let is_right = line.split(" | ").nth(3) == Some(&format!("`{recovery}`"));
        (!is_right).then(|| format!("the recovery of `{name}` is `{recovery}`"))
    };
    refusals.iter().filter_map(wrong).map(|what| Problem::new(ERRORS_PAGE, 0, what)).collect()
}

/// Finds names of the client's and of Python's errors that the page does not have.
#[must_use]
pub fn check_errors(files: &[SourceFile]) -> Vec<Problem> {
    let page = text_of(files, ERRORS_PAGE);
    let client = text_of(files, CLIENT_ERRORS).split("fn name(").nth(1).unwrap_or_default();
    let client = client.split("\n    }\n").next().unwrap_or_default().split('"');
    let client = client.skip(1).step_by(2).map(|name| (CLIENT_ERRORS, name));
    let classes = text_of(files, PYTHON_ERRORS).lines();
    let classes = classes.filter_map(|line| line.strip_prefix("class ")?.split('(').next());
    let python = classes.filter(|name| *name != "Recovery").map(|name| (PYTHON_ERRORS, name));
    let missing = client.chain(python).filter(|(_, name)| !page.contains(&format!("`{name}`")));
    missing
        .map(|(file, name)| {
            Problem::new(file, 0, format!("error {name} is not explained in {ERRORS_PAGE}"))
        })
        .collect()
}

/// Finds names of errors that Python and Java map to classes of different meanings, or that only
/// one of them maps to a class.
#[must_use]
pub fn check_classes(files: &[SourceFile]) -> Vec<Problem> {
    let python = python_classes(text_of(files, PYTHON_ERRORS));
    let java = java_classes(text_of(files, JAVA_ERRORS));
    let tables = [(PYTHON_ERRORS, &python), (JAVA_ERRORS, &java)];
    let empty = tables
        .into_iter()
        .filter(|(_, classes)| classes.is_empty())
        .map(|(file, _)| Problem::new(file, 0, "no table of the errors' classes is found"));
    let names: BTreeSet<&str> = python.keys().chain(java.keys()).copied().collect();
    let wrong = names.into_iter().filter_map(|name| {
        let (expected, found) = (class_of(&python, name), class_of(&java, name));
        (expected != found).then(|| {
            let what = format!("error {name} is {found}, but {expected} by {PYTHON_ERRORS}");
            Problem::new(JAVA_ERRORS, 0, what)
        })
    });
    empty.chain(wrong).collect()
}

/// Reads Python's table from names of errors to classes, each by its name in Java.
fn python_classes(source: &str) -> BTreeMap<&str, String> {
    let table = source.split("_CLASSES: ").nth(1).unwrap_or_default();
    let table = table.split("\n}").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let (name, class) = line.trim().strip_prefix('"')?.split_once("\": ")?;
        Some((name, java_name(class.trim_end_matches(','))))
    });
    rows.collect()
}

/// Returns the name in Java of one of Python's classes.
fn java_name(class: &str) -> String {
    let other = JAVA_NAMES.iter().find(|(python, _)| *python == class);
    other.map_or_else(|| format!("{class}Exception"), |(_, java)| (*java).to_owned())
}

/// Reads Java's table from names of errors to classes: the cases above each `return new`.
fn java_classes(source: &str) -> BTreeMap<&str, String> {
    let mut found = BTreeMap::new();
    let mut cases: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(case) = line.strip_prefix("case \"") {
            cases.extend(case.split('"').next());
        } else if let Some(value) = line.strip_prefix("return ") {
            let class = value.strip_prefix("new ").and_then(|made| made.strip_suffix("(this);"));
            let names = cases.drain(..);
            found.extend(names.filter_map(|name| Some((name, class?.to_owned()))));
        }
    }
    found
}

/// Returns Java's class of an error: the base class if the table does not have the name.
fn class_of<'a>(classes: &'a BTreeMap<&str, String>, name: &str) -> &'a str {
    classes.get(name).map_or(JAVA_BASE, String::as_str)
}

/// Reads which refusal has which recovery out of the code; those that are not named have `fix`.
fn recoveries(source: &str) -> BTreeMap<String, String> {
    let body = source.split("fn recovery(").nth(1).unwrap_or_default();
    let body = body.split("\n    }\n").next().unwrap_or_default();
    let mut found = BTreeMap::new();
    let mut waiting: Vec<String> = Vec::new();
    for word in body.split(|letter: char| !letter.is_alphanumeric() && letter != ':') {
        if let Some(name) = word.strip_prefix("Self::") {
            waiting.push(name.to_owned());
        } else if let Some(recovery) = word.strip_prefix("Recovery::") {
            let recovery = snake(recovery);
            found.extend(waiting.drain(..).map(|name| (name, recovery.clone())));
        }
    }
    found
}

/// Writes `TwoWords` as `two_words`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// Finds metrics that a crate registers and the page does not list.
#[must_use]
pub fn check_metrics(files: &[SourceFile]) -> Vec<Problem> {
    let page = text_of(files, PAGE);
    let sources = files.iter().filter(|file| file.path.ends_with("/src/metrics.rs"));
    let registered = sources.flat_map(|file| names(&file.text).map(move |name| (file, name)));
    let missing = registered.filter(|(_, name)| !page.contains(&format!("`{name}")));
    missing
        .map(|(file, name)| {
            Problem::new(&file.path, 0, format!("metric {name} is not listed in {PAGE}"))
        })
        .collect()
}

/// Finds kinds of events that the page does not list by the names that they have in JSON.
#[must_use]
pub fn check_events(files: &[SourceFile]) -> Vec<Problem> {
    let page = text_of(files, PAGE);
    let kinds = text_of(files, EVENTS).split("pub enum EventKind {").nth(1).unwrap_or_default();
    let kinds = kinds.split("\n}").next().unwrap_or_default();
    let names = kinds.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let name = line.split([' ', ',', '(']).next()?;
        name.starts_with(|first: char| first.is_ascii_uppercase()).then(|| snake(name))
    });
    let missing = names.filter(|name| !page.contains(&format!("`{name}`")));
    missing
        .map(|name| Problem::new(EVENTS, 0, format!("event {name} is not listed in {PAGE}")))
        .collect()
}

/// Finds checkers of the simulator that the page does not list: the names of what is found.
#[must_use]
pub fn check_checkers(files: &[SourceFile]) -> Vec<Problem> {
    let page = text_of(files, SIMULATION_PAGE);
    let listed: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|names| names.split(", "))
        .collect();
    let sources = files.iter().filter(|file| file.path.starts_with(SIMULATOR));
    let found = sources.flat_map(|file| checkers(&file.text).map(move |name| (file, name)));
    let missing: BTreeSet<(&str, &str)> = found
        .filter(|(_, name)| !listed.contains(name))
        .map(|(file, name)| (file.path.as_str(), name))
        .collect();
    let what = |name| format!("checker {name} is not listed in {SIMULATION_PAGE}");
    missing.into_iter().map(|(path, name)| Problem::new(path, 0, what(name))).collect()
}

/// Returns the names in `("name", what was seen)`, as checkers return them, and in
/// `violate("name"`.
fn checkers(text: &str) -> impl Iterator<Item = &str> {
    let starts = ["((\"", "violate(\"", "| (\""];
    let starts = starts
        .into_iter()
        .flat_map(move |start| text.match_indices(start).map(move |(at, _)| at + start.len()));
    starts.filter_map(move |at| {
        let (name, rest) = text[at..].split_once('"')?;
        let is_name = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
        (is_name && rest.starts_with(',')).then_some(name)
    })
}

fn text_of<'a>(files: &'a [SourceFile], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str())
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
        let page = SourceFile::new(ERRORS_PAGE, "| 1 | `BadFrame` | ... | `fix` | ... |\n");
        assert_eq!(check_refusals(&[page], &[(1, "BadFrame"), (2, "NoHello")]).len(), 1);
        assert_eq!(check_refusals(&[], &[(1, "BadFrame")]).len(), 1);
    }

    #[test]
    fn other_recovery_than_the_codes_is_a_problem() {
        let code = "fn recovery(&self) -> Recovery {\n match self {\n Self::Busy { after } => \
                    Recovery::RetryAfter(*after),\n Self::A\n | Self::B { .. } => \
                    Recovery::Report,\n _ => Recovery::Fix,\n }\n    }\n";
        let code = SourceFile::new(REFUSALS, code);
        let page = "| 1 | `Busy` | m | `retry_after` | w |\n| 2 | `A` | m | `fix` | w |\n\
                    | 3 | `B` | m | `report` | w |\n| 4 | `C` | m | `fix` | w |\n";
        let page = SourceFile::new(ERRORS_PAGE, page);
        let problems = check_refusals(&[code, page], &[(1, "Busy"), (2, "A"), (3, "B"), (4, "C")]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("`A` is `report`"));
    }

    #[test]
    fn error_of_client_or_python_that_is_not_explained_is_a_problem() {
        let client = "fn name(&self) -> &str {\n Self::Late => \"TimedOut\",\n    }\n \"other\"";
        let client = SourceFile::new(CLIENT_ERRORS, client);
        let python = SourceFile::new(PYTHON_ERRORS, "class Full(SanderlingError):\n    x = 1\n");
        assert_eq!(check_errors(&[client.clone(), python.clone()]).len(), 2);
        let page = SourceFile::new(ERRORS_PAGE, "`TimedOut`, `Full`");
        assert_eq!(check_errors(&[client, python, page]), []);
    }

    #[test]
    fn error_with_different_classes_in_python_and_java_is_a_problem() {
        let python = "_CLASSES: dict[str, type] = {\n    \"Forbidden\": NotAllowed,\n    \
                      \"Gone\": NotFound,\n    \"Late\": TimedOut,\n    \
                      \"Sealed\": Closed,\n}\n_OTHER = {\n    \"Elsewhere\": Closed,\n}\n";
        let java = "switch (name) {\n case \"Forbidden\":\n case \"Sealed\":\n \
                    return new AccessDeniedException(this);\n case \"Full\":\n \
                    return new FullException(this);\n case \"Late\":\n \
                    return new TimedOutException(this);\n case \"Busy\":\n default:\n \
                    return exceptionOfState();\n}\n return new SanderlingException(this);\n";
        let python = SourceFile::new(PYTHON_ERRORS, python);
        let problems = check_classes(&[python, SourceFile::new(JAVA_ERRORS, java)]);
        let starts = [
            "error Full is FullException, but SanderlingException by",
            "error Gone is SanderlingException, but NotFoundException by",
            "error Sealed is AccessDeniedException, but ClosedException by",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.what.starts_with(start), "{}", problem.what);
        }
        assert_eq!(check_classes(&[]).len(), 2, "both tables are missing");
    }

    #[test]
    fn event_that_is_not_listed_is_a_problem() {
        let source = "pub enum EventKind {\n    /// A.\n    NodeGone { node: u8 },\n    Other,\n}\n\
                      pub struct Later {\n    Field: u8,\n}\n";
        let source = SourceFile::new(EVENTS, source);
        let page = SourceFile::new(PAGE, "| `node_gone` | it is gone |");
        let problems = check_events(&[source.clone(), page]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("event other"), "{}", problems[0].what);
        assert_eq!(check_events(&[source]).len(), 2);
    }

    #[test]
    fn checker_that_is_not_listed_is_a_problem() {
        let source = "Err((\"one-home\", text)); Some((\"room\", text)); \
                      self.violate(\"names\", text); found.map(|text| (\"balance\", text)); \
                      call((\"Not this\", 1));";
        let source = SourceFile::new("crates/sim/src/check.rs", source);
        let page = SourceFile::new(SIMULATION_PAGE, "| one-home, room | x |\n| names | y |\n");
        let problems = check_checkers(&[source.clone(), page]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("checker balance"), "{}", problems[0].what);
        assert_eq!(check_checkers(&[source]).len(), 4);
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
