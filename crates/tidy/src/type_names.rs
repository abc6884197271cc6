//! How many modules define a type of the same name: a name of three things in three modules has no
//! meaning to a reader, and neither has a name of two things within `core`.

use std::collections::{BTreeMap, BTreeSet};

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// The first number of modules that may not define one name.
const MODULES_LIMIT: usize = 3;

/// Where a name is that of one type: the other crates import these types, and a reader meets them
/// together.
const CORE: &str = "crates/core/";

/// Names that a convention gives: a crate's or operation's error, and a command's arguments.
const CONVENTIONAL: &[&str] = &["Args", "Error", "Result"];

/// The names that are in more modules nevertheless, with their number. It may only shrink.
pub const ALLOWED: &str = "crates/tidy/type_names.txt";

/// Checks the types of every module, tests apart.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut modules: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_checked(file)) {
        for name in type_names(&split(file.language, &file.text).code) {
            modules.entry(name).or_default().insert(&file.path);
        }
    }
    let list = files.iter().find(|file| file.path == ALLOWED).map_or("", |file| &file.text);
    let allowed = allowed(list);
    let mut problems = Vec::new();
    for (name, paths) in &modules {
        let count = allowed.get(name.as_str()).map_or(MODULES_LIMIT - 1, |allowed| allowed.1);
        let in_core = paths.iter().filter(|path| path.starts_with(CORE)).count();
        let is_many = paths.len() > count || in_core > 1;
        if is_many && !CONVENTIONAL.contains(&name.as_str()) {
            let others: Vec<&str> = paths.iter().copied().collect();
            let what =
                format!("{name} is defined in {}: name each specifically", others.join(", "));
            problems.push(Problem::new(others[0], 0, what));
        }
    }
    for (name, (line, count)) in allowed {
        let found = modules.get(name).map_or(0, BTreeSet::len);
        if found < count || count < MODULES_LIMIT {
            let what =
                format!("{name} is defined in {found} modules, not {count}: shrink the list");
            problems.push(Problem::new(ALLOWED, line, what));
        }
    }
    problems
}

/// Reads lines of a name and a number; returns each name's line and number.
fn allowed(list: &str) -> BTreeMap<&str, (usize, usize)> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let entries = lines.filter_map(|(index, line)| {
        let (name, count) = line.split_once(' ')?;
        Some((name, (index + 1, count.trim().parse().ok()?)))
    });
    entries.collect()
}

fn is_checked(file: &SourceFile) -> bool {
    let is_crate = file.path.starts_with("crates/") || file.path.starts_with("bindings/");
    let is_test =
        file.path.split('/').any(|part| matches!(part, "tests" | "examples" | "tests.rs"));
    file.language == Language::Rust && is_crate && !is_test
}

/// Returns the names of the types that a module defines. Those within functions, `impl`s and traits
/// are indented further than those of a module, and the module of tests is the last.
fn type_names(code: &str) -> impl Iterator<Item = String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter_map(|line| {
        let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')').map_or(rest, |(_, rest)| rest).trim_start(),
            None => rest.trim_start(),
        });
        let (keyword, rest) = line.split_once(' ')?;
        let is_type = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
        let is_name = |char: &char| char.is_alphanumeric() || *char == '_';
        let name: String = rest.chars().take_while(is_name).collect();
        (is_type && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[&str]) -> Vec<SourceFile> {
        let file = |(index, text): (usize, &&str)| {
            SourceFile::new(&format!("crates/a/src/b{index}.rs"), text)
        };
        texts.iter().enumerate().map(file).collect()
    }

    #[test]
    fn name_of_types_in_three_modules_is_a_problem() {
        let texts = ["pub struct Known;", "pub(crate) enum Known {}", "type Known<T> = Vec<T>;"];
        assert_eq!(check(&files(&texts)).len(), 1);
        assert_eq!(check(&files(&texts[..2])), []);
    }

    #[test]
    fn name_of_two_types_within_core_is_a_problem() {
        let file = |path: &str| SourceFile::new(path, "struct Known;");
        let (one, other) = (file("crates/core/src/b.rs"), file("crates/core/src/c/d.rs"));
        assert_eq!(check(&[one, other]).len(), 1);
        let (one, other) = (file("crates/core/src/b.rs"), file("crates/a/src/b.rs"));
        assert_eq!(check(&[one, other]), []);
        let (one, other) = (file("crates/core/src/b.rs"), file("crates/core/src/b/tests.rs"));
        assert_eq!(check(&[one, other]), []);
    }

    #[test]
    fn conventional_names_associated_types_and_tests_are_none() {
        assert_eq!(check(&files(&["pub enum Error {}"; 3])), []);
        assert_eq!(check(&files(&["impl A for B {\n    type Known = C;\n}"; 3])), []);
        assert_eq!(check(&files(&["#[cfg(test)]\nmod tests {\nstruct Known;\n}"; 3])), []);
        assert_eq!(check(&files(&["// struct Known;\n"; 3])), []);
    }

    #[test]
    fn allowed_name_is_none_until_it_is_in_more_or_fewer_modules() {
        let with = |count: usize, list: &str| {
            let mut files = files(&vec!["struct Known;"; count]);
            files.push(SourceFile::new(ALLOWED, list));
            check(&files)
        };
        assert_eq!(with(3, "# name, modules\nKnown 3\n"), []);
        assert_eq!(with(4, "Known 3\n").len(), 1);
        assert_eq!(with(3, "Known 4\n")[0].path, ALLOWED);
        assert_eq!(with(2, "Known 2\n")[0].path, ALLOWED);
    }
}
