//! How many of its assumptions the code of decisions asserts.

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// Where decisions are made.
const DECISIONS: &str = "crates/core/src/";

/// Fewest assertions in 1,000 lines of it, tests not counted. There were 4.6 when this was written:
/// the bound is for code that grows without them, not a figure to reach.
pub const ASSERTS_PER_1000_LINES_MIN: usize = 3;

/// What asserts, also as `debug_assert!` and so on.
const MACROS: [&str; 3] = ["assert!", "assert_eq!", "assert_ne!"];

/// Counts the assertions of all decisions together.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let decides = |file: &&SourceFile| {
        let inner = file.path.strip_prefix(DECISIONS);
        file.language == Language::Rust && inner.is_some_and(|path| !is_test(path))
    };
    let (mut lines, mut asserts) = (0, 0);
    for file in files.iter().filter(decides) {
        let code = split(file.language, &file.text).code;
        let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        lines += code.lines().count();
        asserts += MACROS.iter().map(|name| code.matches(name).count()).sum::<usize>();
    }
    if asserts * 1000 >= lines * ASSERTS_PER_1000_LINES_MIN {
        return Vec::new();
    }
    let what = format!(
        "{asserts} assertions in {lines} lines, at least {ASSERTS_PER_1000_LINES_MIN} in 1,000: \
         assert what the new code takes for granted"
    );
    vec![Problem::new(DECISIONS, 0, what)]
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
        assert_eq!(problems("crates/client/src/client.rs", &silent), 0);
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
