//! Whether the lints that the rules rely on are on, in every crate.

use crate::Problem;
use crate::tree::SourceFile;

/// The workspace's own manifest.
const WORKSPACE: &str = "Cargo.toml";

/// Lints that the compiler and clippy check: every public item is documented, and every exception
/// to a lint states its reason.
const REQUIRED: [(&str, &str); 3] = [
    ("[workspace.lints.rust]", "missing_docs = \"deny\""),
    ("[workspace.lints.rust]", "unsafe_code = \"deny\""),
    ("[workspace.lints.clippy]", "allow_attributes_without_reason = \"deny\""),
];

/// Finds lints that the workspace's manifest lacks, and crates that take none of them.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|it| &*it.text);
    let workspace = text_of(WORKSPACE).unwrap_or_default();
    let is_missing = |(table, lint): &&(&str, &str)| !has(workspace, table, lint);
    let missing = REQUIRED.iter().filter(is_missing).map(|(table, lint)| {
        Problem::new(WORKSPACE, 0, format!("{lint} is not in {table}: the rules rely on it"))
    });
    let members = files.iter().filter(|file| {
        let is_member = file.path.starts_with("crates/") || file.path.starts_with("bindings/");
        is_member && file.path.ends_with("/Cargo.toml")
    });
    let without = members
        .filter(|file| !has(&file.text, "[lints]", "workspace = true"))
        .map(|file| Problem::new(&file.path, 0, "takes no lints: [lints] workspace = true"));
    missing.chain(without).collect()
}

/// Returns whether a table of a manifest has a line.
fn has(manifest: &str, table: &str, line: &str) -> bool {
    let lines = manifest.lines().skip_while(|it| *it != table).skip(1);
    lines.take_while(|it| !it.starts_with('[')).any(|it| it == line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lint_that_is_off_is_a_problem() {
        let workspace = "[workspace.lints.rust]\n\
                         missing_docs = \"deny\"\n\
                         unsafe_code = \"deny\"\n\n\
                         [workspace.lints.clippy]\n\
                         allow_attributes_without_reason = \"deny\"\n";
        let problems = |text: &str| check(&[SourceFile::new(WORKSPACE, text)]).len();
        assert_eq!(problems(workspace), 0);
        assert_eq!(problems(&workspace.replace("missing_docs = \"deny\"\n", "")), 1);
        assert_eq!(
            problems(&workspace.replace("unsafe_code = \"deny\"", "unsafe_code = \"warn\"")),
            1
        );
        assert_eq!(problems(&workspace.replace("allow_attr", "# allow_attr")), 1);
        assert_eq!(problems(&workspace.replace("clippy]", "rustdoc]")), 1);
        assert_eq!(problems(""), REQUIRED.len());
        let of = |text: &str| {
            let member = SourceFile::new("crates/a/Cargo.toml", text);
            check(&[SourceFile::new(WORKSPACE, workspace), member]).len()
        };
        assert_eq!(of("[package]\n\n[lints]\nworkspace = true\n"), 0);
        assert_eq!(of("[package]\nworkspace = true\n"), 1);
    }
}
