//! How many of their assumptions the decisions and the servers assert.

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// Fewest assertions in 100,000 lines of each directory, tests not counted. Each had a few more
/// when its bound was set: `core`, where decisions are made, 317, and the others 19, 133, 83, 82,
/// 64, 19 and 46. The bounds are for code that grows without assertions, not figures to reach.
pub const ASSERTS_PER_100_000_LINES_MIN: [(&str, usize); 8] = [
    ("crates/core/src/", 300),
    ("crates/client/src/", 15),
    ("crates/datanode/src/", 100),
    ("crates/gateway/src/", 70),
    ("crates/manager/src/", 60),
    ("crates/namenode/src/", 55),
    ("crates/task/src/", 15),
    ("crates/transport/src/", 40),
];

/// What asserts, also as `debug_assert!` and so on.
const MACROS: [&str; 3] = ["assert!", "assert_eq!", "assert_ne!"];

/// Counts the assertions of each directory's files together.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let bounds = ASSERTS_PER_100_000_LINES_MIN.into_iter();
    bounds.filter_map(|(directory, min)| check_directory(files, directory, min)).collect()
}

fn check_directory(files: &[SourceFile], directory: &str, min: usize) -> Option<Problem> {
    let is_counted = |file: &&SourceFile| {
        let inner = file.path.strip_prefix(directory);
        file.language == Language::Rust && inner.is_some_and(|path| !is_test(path))
    };
    let (mut lines, mut asserts) = (0, 0);
    for file in files.iter().filter(is_counted) {
        let code = split(file.language, &file.text).code;
        let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        lines += code.lines().count();
        asserts += MACROS.iter().map(|name| code.matches(name).count()).sum::<usize>();
    }
    if asserts * 100_000 >= lines * min {
        return None;
    }
    let what = format!(
        "{asserts} assertions in {lines} lines, at least {min} in 100,000: assert what the new \
         code takes for granted"
    );
    Some(Problem::new(directory, 0, what))
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[SourceFile::new(path, text)]).len()
    }

    #[test]
    fn code_that_asserts_nothing_is_a_problem() {
        let path = "crates/core/src/fence.rs";
        let silent = "let a = 1;\n".repeat(997);
        let three = "assert!(a);\ndebug_assert_eq!(a, b);\nassert_ne!(a, b);\n";
        assert_eq!(problems(path, &format!("{silent}{three}")), 0);
        assert_eq!(problems(path, &format!("{silent}{three}{silent}")), 1);
        assert_eq!(problems(path, &silent), 1);
        assert_eq!(problems("crates/cli/src/main.rs", &silent), 0);
    }

    #[test]
    fn every_directory_has_a_bound_of_its_own() {
        let one = |lines: usize| format!("assert!(a);\n{}", "let a = 1;\n".repeat(lines - 1));
        for (directory, min) in ASSERTS_PER_100_000_LINES_MIN {
            let path = format!("{directory}a.rs");
            let lines = 100_000 / min;
            assert_eq!(problems(&path, &one(lines)), 0, "{directory}");
            assert_eq!(problems(&path, &one(lines + 1)), 1, "{directory}");
        }
    }

    #[test]
    fn assertions_of_tests_comments_and_strings_do_not_count() {
        let silent = "let a = 1;\n".repeat(1000);
        let asserts = "assert!(a);\n".repeat(9);
        let of = |end: String| problems("crates/core/src/fence.rs", &format!("{silent}{end}"));
        assert_eq!(of(asserts.clone()), 0);
        assert_eq!(of(format!("#[cfg(test)]\nmod tests {{\n{asserts}}}\n")), 1);
        assert_eq!(of(asserts.replace("assert!(a);", "// assert!(a);")), 1);
        assert_eq!(of(asserts.replace("assert!(a);", "let b = \"assert!\";")), 1);
        for path in ["crates/core/src/fence/tests.rs", "crates/core/src/fence/tests/a.rs"] {
            let tests = SourceFile::new(path, &asserts);
            let code = SourceFile::new("crates/core/src/fence.rs", &silent);
            assert_eq!(check(&[code, tests]).len(), 1, "{path}");
        }
    }
}
