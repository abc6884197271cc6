//! Whether all languages have one version.

use crate::Problem;
use crate::tree::SourceFile;

/// Compares the workspace's version with the Python package's and the change log's newest.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let Some(version) = find("Cargo.toml").and_then(|it| value(it, "[workspace.package]")) else {
        return vec![Problem::new("Cargo.toml", 0, "the workspace has no version")];
    };
    let mut problems = Vec::new();
    if let Some(project) = find("bindings/python/pyproject.toml") {
        let is_dynamic = project
            .text
            .lines()
            .any(|line| line.starts_with("dynamic") && line.contains("\"version\""));
        let theirs = value(project, "[project]");
        if !is_dynamic && theirs.as_ref() != Some(&version) {
            let what = format!("version {theirs:?}, the workspace has {version}");
            problems.push(Problem::new(&project.path, 0, what));
        }
    }
    if let Some(pom) = find("jvm/pom.xml") {
        let theirs = pom.text.split("<version>").nth(1).and_then(|it| it.split('<').next());
        if theirs != Some(&version) {
            let what = format!("version {theirs:?}, the workspace has {version}");
            problems.push(Problem::new(&pom.path, 0, what));
        }
    }
    if let Some(log) = find("CHANGELOG.md")
        && !log.text.lines().any(|line| line.starts_with("## ") && line.contains(&version))
    {
        problems.push(Problem::new(&log.path, 0, format!("version {version} has no heading")));
    }
    problems
}

/// Returns the `version` of one section of a TOML file.
fn value(file: &SourceFile, section: &str) -> Option<String> {
    let lines = file.text.lines().skip_while(|line| line.trim() != section).skip(1);
    let mut lines = lines.take_while(|line| !line.starts_with('['));
    let line = lines.find(|line| line.starts_with("version") && line.contains('='))?;
    line.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(project: &str, log: &str) -> usize {
        let workspace =
            "[workspace.package]\nversion = \"1.2.3\"\n[dependencies]\nversion = \"9\"\n";
        let files = [
            SourceFile::new("Cargo.toml", workspace),
            SourceFile::new("bindings/python/pyproject.toml", project),
            SourceFile::new("CHANGELOG.md", log),
        ];
        check(&files).len()
    }

    #[test]
    fn another_version_is_a_problem() {
        assert_eq!(count("[project]\nversion = \"1.2.4\"\n", "## 1.2.3\n"), 1);
        assert_eq!(count("[project]\nversion = \"1.2.3\"\n", "## 1.2.2\n"), 1);
        assert_eq!(count("[project]\nname = \"a\"\n", "## 1.2.3\n"), 1);
        assert_eq!(check(&[]).len(), 1);
    }

    #[test]
    fn one_version_is_none() {
        assert_eq!(count("[project]\nversion = \"1.2.3\"\n", "## 1.2.3 - today\n"), 0);
        assert_eq!(count("[project]\ndynamic = [\"version\"]\n", "## 1.2.3\n"), 0);
    }
}
