//! Whether every number of the product that has a name has a comment, too: its unit, and why it has
//! that value. That is a source, a measurement with its command, or that it was chosen and why.
//! Whether the reason is a good one is for a reader to judge.

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// Types of numbers and of spans of time.
const NUMBERS: [&str; 16] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64", "Duration", "Millis",
];

/// Units in the names of constants. A constant that is named after two of them converts one into
/// the other, and its name has both its unit and its reason.
const UNITS: [&str; 9] =
    ["NANOS", "MICROS", "MILLIS", "SECONDS", "SECOND", "MINUTE", "HOUR", "DAY", "BYTE"];

/// Checks the constants and statics of every crate, tests apart.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    files.iter().filter(|file| is_checked(file)).flat_map(check_file).collect()
}

fn is_checked(file: &SourceFile) -> bool {
    let is_crate = file.path.starts_with("crates/") || file.path.starts_with("bindings/");
    let is_product = file.path.split_once("/src/").is_some_and(|(_, path)| {
        !path.split(['/', '.']).any(|name| matches!(name, "tests" | "test"))
    });
    file.language == Language::Rust && is_crate && is_product
}

fn check_file(file: &SourceFile) -> Vec<Problem> {
    let parts = split(file.language, &file.text);
    let code: Vec<&str> = parts.code.lines().collect();
    let comments: Vec<&str> = parts.comments.lines().collect();
    let end = code.iter().position(|line| *line == "mod tests {").unwrap_or(code.len());
    // One behind code is about that.
    let is_comment =
        |line: usize| code[line].trim().is_empty() && !comments[line].trim().is_empty();
    let has_comment = |line: usize| above_attributes(&code, line).is_some_and(is_comment);
    let mut problems = Vec::new();
    for (line, text) in code[..end].iter().enumerate() {
        if let Some(name) = number_of(text)
            && !is_conversion(name)
            && !has_comment(line)
        {
            let what = format!("{name} has no comment: state its unit, and why it has that value");
            problems.push(Problem::new(&file.path, line + 1, what));
        }
    }
    problems
}

/// Returns the line above the attributes of what begins at a line.
fn above_attributes(code: &[&str], line: usize) -> Option<usize> {
    let mut above = line.checked_sub(1)?;
    while let Some(first) = attribute_that_ends_at(code, above) {
        above = first.checked_sub(1)?;
    }
    Some(above)
}

/// Returns the first line of the attribute that ends at a line, if one does.
fn attribute_that_ends_at(code: &[&str], end: usize) -> Option<usize> {
    if !code[end].trim_end().ends_with(']') {
        return None;
    }
    let mut open = 0_i32;
    for line in (0..=end).rev() {
        open += code[line].matches(']').count() as i32 - code[line].matches('[').count() as i32;
        if open <= 0 {
            return code[line].trim_start().starts_with("#[").then_some(line);
        }
    }
    None
}

/// Returns the name of the constant that a line of code defines, if it is a number or has some.
fn number_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let scoped = rest.strip_prefix('(').and_then(|scope| scope.split_once(')'));
        scoped.map_or(rest, |(_, rest)| rest).trim_start()
    });
    let line = line.strip_prefix("const ").or_else(|| line.strip_prefix("static "))?;
    let (name, rest) = line.split_once(':')?;
    let (kind, _) = rest.split_once('=').or_else(|| rest.rsplit_once(';'))?;
    let is_name = |char: char| char.is_ascii_uppercase() || char.is_ascii_digit() || char == '_';
    let mut words = kind.split(|char: char| !char.is_alphanumeric());
    let is_number = words.any(|word| NUMBERS.contains(&word));
    (is_number && name != "_" && name.chars().all(is_name)).then_some(name)
}

/// Returns whether a constant has so many of one unit as make another one.
fn is_conversion(name: &str) -> bool {
    let units = name.split_once("_PER_");
    units.is_some_and(|(small, large)| UNITS.contains(&small) && UNITS.contains(&large))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = SourceFile::new("crates/a/src/b.rs", text);
        check(&[file]).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn number_without_a_comment_is_a_problem() {
        assert_eq!(lines("const A: u64 = 1;\n"), [1]);
        assert_eq!(
            lines("fn a() {\n    const PAUSE: Duration = Duration::from_secs(1);\n}\n"),
            [2]
        );
        assert_eq!(
            lines("/// Of both.\npub const A: u8 = 1;\npub(crate) const B: usize = 2;\n"),
            [3]
        );
        assert_eq!(
            lines("// It is far.\n\nconst ALL: [(&str, f64); 1] =\n    [(\"a\", 1.0)];\n"),
            [3]
        );
        assert_eq!(lines("trait A {\n    const B: Millis;\n}\n"), [2]);
        assert_eq!(
            lines("impl A {\n    #[expect(b, reason = \"c\")]\n    const B: i32 = 1;\n}\n"),
            [3]
        );
    }

    #[test]
    fn comment_of_the_line_before_is_none_of_the_number() {
        assert_eq!(lines("/// One.\nconst A: u8 = 1; // Few.\nconst B: u8 = 2;\n"), [3]);
        assert!(lines("/// One.\n#[a] // Why.\nconst A: u8 = 1;\n").is_empty());
        assert_eq!(lines("fn a() {} // Why.\n#[a]\nconst A: u8 = 1;\n"), [3]);
    }

    #[test]
    fn attributes_of_several_lines_are_between_a_number_and_its_comment() {
        let attribute = "#[expect(\n    b,\n    reason = \"[c]\"\n)]\n#[d]\n";
        assert!(lines(&format!("/// Chosen.\n{attribute}const A: u8 = 1;\n")).is_empty());
        assert_eq!(lines(&format!("\n{attribute}const A: u8 = 1;\n")), [7]);
        assert_eq!(lines("/// B.\nfn b() -> u8 {\n    c[0]\n}\nconst A: u8 = 1;\n"), [5]);
    }

    #[test]
    fn number_that_is_a_static_needs_a_comment() {
        assert_eq!(lines("static A: u64 = 1;\npub(crate) static B: Mutex<u8> = c();\n"), [1, 2]);
        assert!(lines("/// Chosen.\npub static A: u64 = 1;\n").is_empty());
        assert!(lines("pub fn a(b: &'static str, c: u64) {}\n").is_empty());
        assert!(lines("static A: Mutex<B> = C;\n").is_empty());
    }

    #[test]
    fn number_with_a_comment_and_other_constants_are_none() {
        let text = "/// Chosen: few.\n#[expect(b, reason = \"c\")]\nconst A: u64 = 1;\n";
        assert!(lines(text).is_empty());
        assert!(lines("// Chosen: few.\nconst B: u8 = 2;\n").is_empty());
        assert!(
            lines("const A: &str = \"const B: u8 = 1\";\nconst fn c() -> u64 { 1 }\n").is_empty()
        );
        assert!(
            lines("const _: () = assert!(1_u64 > 0);\nstruct D<\n    const N: usize,\n>;")
                .is_empty()
        );
        assert!(lines("const MILLIS_PER_HOUR: u64 = 3_600_000;\n").is_empty());
        assert_eq!(lines("const CALLS_PER_HOUR: u64 = 7;\n"), [1]);
    }

    #[test]
    fn tests_are_none() {
        assert!(lines("#[cfg(test)]\nmod tests {\n    const A: u64 = 1;\n}\n").is_empty());
        for path in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/a/src/tests/b.rs"] {
            assert!(check(&[SourceFile::new(path, "const A: u64 = 1;")]).is_empty(), "{path}");
        }
    }
}
