//! How long files, functions and lines are.

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// Longest file in lines. What is longer is several things: split it by noun.
pub const FILE_LINES_MAX: usize = 800;

/// Longest function in lines, from the line that names it to the one that ends it.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Longest line of code in characters.
pub const LINE_COLUMNS_MAX: usize = 100;

/// Checks the lengths of every file that a person writes.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| is_written(file)) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} lines, at most {FILE_LINES_MAX}: split it by noun");
            problems.push(Problem::new(&file.path, 0, what));
        }
        if file.language.is_code() || file.language == Language::JavaScript {
            problems.extend(check_columns(file));
            problems.extend(check_functions(file));
        }
    }
    problems
}

fn is_written(file: &SourceFile) -> bool {
    file.language.is_code()
        || matches!(file.language, Language::JavaScript | Language::Markdown)
        || [".html", ".css", "Makefile"].iter().any(|end| file.path.ends_with(end))
}

fn check_columns(file: &SourceFile) -> impl Iterator<Item = Problem> {
    let is_link = |line: &str| line.contains("https://") || line.contains("http://");
    let long = file
        .text
        .lines()
        .enumerate()
        .filter(move |(_, line)| line.chars().count() > LINE_COLUMNS_MAX && !is_link(line));
    long.map(|(index, line)| {
        let what = format!("{} columns, at most {LINE_COLUMNS_MAX}", line.chars().count());
        Problem::new(&file.path, index + 1, what)
    })
}

fn check_functions(file: &SourceFile) -> Vec<Problem> {
    let code = split(file.language, &file.text).code;
    let functions = match file.language {
        Language::Rust => rust_functions(&code),
        Language::Java => java_functions(&code),
        Language::JavaScript => javascript_functions(&file.text),
        Language::Python => python_functions(&code),
        _ => shell_functions(&code),
    };
    let long = functions.into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.map(|function| {
        let Function { name, line, lines } = function;
        let what = format!("function {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
        Problem::new(&file.path, line, what)
    })
    .collect()
}

/// One function of a text.
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Finds `fn name ... { ... }`; declarations that end in `;` have no length.
fn rust_functions(code: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let is_word = !code[..start].ends_with(|char: char| char.is_alphanumeric() || char == '_');
        let rest = &code[start + 3..];
        let name: String =
            rest.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect();
        if !is_word || name.is_empty() {
            continue;
        }
        if let Some(end) = body_end(rest) {
            let line = code[..start].matches('\n').count() + 1;
            let lines = rest[..end].matches('\n').count() + 1;
            functions.push(Function { name, line, lines });
        }
    }
    functions
}

/// Returns where the braces that open next close again; `None` when a `;` comes first.
fn body_end(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    for (at, char) in code.char_indices() {
        match char {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return None,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Words before a brace in brackets that do not make it a method's.
const JAVA_BLOCKS: [&str; 8] =
    ["if", "for", "while", "switch", "catch", "synchronized", "try", "record"];

/// Finds methods and constructors: braces after a name with brackets, outside of expressions.
fn java_functions(code: &str) -> Vec<Function> {
    let opening = code.match_indices('{').map(|(at, _)| at);
    let functions = opening.filter_map(|at| {
        let start = code[..at].rfind([';', '{', '}']).map_or(0, |before| before + 1);
        let head = &code[start..at];
        let (before, _) = head.split_once('(')?;
        let name = before.split_whitespace().last()?;
        let is_name = name.chars().all(|char| char.is_alphanumeric() || char == '_');
        let is_expression = ["=", "->", "new ", "return "].iter().any(|it| head.contains(it));
        if !is_name || is_expression || JAVA_BLOCKS.contains(&name) {
            return None;
        }
        let end = at + body_end(&code[at..])?;
        let named = start + before.rfind(name)?;
        let line = code[..named].matches('\n').count() + 1;
        let lines = code[named..end].matches('\n').count() + 1;
        Some(Function { name: name.to_owned(), line, lines })
    });
    functions.collect()
}

/// Finds functions and methods by their indentation: each begins with a line that names it and ends
/// before a brace, and ends with the next line that closes a brace in the same column.
fn javascript_functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = javascript_name(line.trim()) else { continue };
        let is_end =
            |other: &&str| other.trim_start().starts_with('}') && indent(other) == indent(line);
        if let Some(inner) = lines[start + 1..].iter().position(is_end) {
            functions.push(Function { name, line: start + 1, lines: inner + 2 });
        }
    }
    functions
}

/// Returns the name of the function or method that a line begins.
fn javascript_name(line: &str) -> Option<String> {
    let words = ["export ", "default ", "async ", "static ", "get ", "set ", "function "];
    let head = words.iter().fold(line, |head, word| head.strip_prefix(word).unwrap_or(head));
    let (name, _) = head.split_once('(')?;
    let is_name = |char: char| char.is_alphanumeric() || "#_$".contains(char);
    let begins = head.ends_with(") {") && !name.is_empty() && name.chars().all(is_name);
    begins.then(|| name.to_owned())
}

/// Finds `def`s; each ends before the next line that is not indented further.
fn python_functions(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let Some(rest) = text.strip_prefix("def ").or_else(|| text.strip_prefix("async def "))
        else {
            continue;
        };
        let mut last = start;
        for (index, other) in lines.iter().enumerate().skip(start + 1) {
            if other.trim().is_empty() {
                continue;
            }
            if indent(other) <= indent(line) && !other.trim_start().starts_with(')') {
                break;
            }
            last = index;
        }
        let name = rest.split('(').next().unwrap_or_default().to_owned();
        functions.push(Function { name, line: start + 1, lines: last - start + 1 });
    }
    functions
}

/// Finds `name() {` at the start of a line up to a `}` at the start of a line.
fn shell_functions(code: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (index, line) in code.lines().enumerate() {
        if let Some((name, _)) = line.split_once("() {") {
            open = Some((name.trim().to_owned(), index));
        } else if line.starts_with('}')
            && let Some((name, start)) = open.take()
        {
            functions.push(Function { name, line: start + 1, lines: index - start + 1 });
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&[SourceFile::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn long_file_is_a_problem() {
        assert_eq!(problems("a.rs", &"\n".repeat(801)).len(), 1);
        assert_eq!(problems("a.rs", &"\n".repeat(800)).len(), 0);
        assert_eq!(problems("data.csv", &"\n".repeat(801)).len(), 0);
    }

    #[test]
    fn long_rust_function_is_a_problem() {
        let long = format!("impl A {{\n    fn b(c: [u8; 3]) {{\n{}    }}\n}}\n", "\n".repeat(69));
        assert_eq!(problems("a.rs", &long), ["a.rs:2: function b has 71 lines, at most 70"]);
        let trap =
            format!("fn a() {{ let b = \"{{\"; }}\ntrait C {{ fn d(); }}\n{}", "\n".repeat(90));
        assert_eq!(problems("a.rs", &trap).len(), 0);
    }

    #[test]
    fn long_java_method_is_a_problem() {
        let long = "        c(() -> {\n            if (d()) {\n            }\n        });\n";
        let long = format!(
            "final class A {{\n    A(int b) throws C {{\n        d(b);\n    }}\n\n    \
             @Override public <T> T b(T c)\n            throws D {{\n{}    }}\n}}\n",
            long.repeat(18)
        );
        assert_eq!(problems("a.java", &long), ["a.java:6: function b has 75 lines, at most 70"]);
    }

    #[test]
    fn long_javascript_function_is_a_problem() {
        let body = "    if (c) {\n    }\n    d(() => {\n    });\n".repeat(18);
        let long = format!("export class A {{\n  async #b(c) {{\n{body}  }}\n}}\n");
        assert_eq!(problems("a.js", &long), ["a.js:2: function #b has 74 lines, at most 70"]);
        let long = format!("export function b(c) {{\n{body}}}\n");
        assert_eq!(problems("a.mjs", &long), ["a.mjs:1: function b has 74 lines, at most 70"]);
        let line = format!("call({});\n", "x".repeat(94));
        assert_eq!(problems("a.js", &line), ["a.js:1: 101 columns, at most 100"]);
    }

    #[test]
    fn long_python_function_is_a_problem() {
        let long = format!("class A:\n    def b(self):\n{}", "        c()\n".repeat(70));
        assert_eq!(problems("a.py", &long), ["a.py:2: function b has 71 lines, at most 70"]);
    }

    #[test]
    fn long_shell_function_is_a_problem() {
        let long = format!("a() {{\n{}}}\n", "  b\n".repeat(70));
        assert_eq!(problems("a.sh", &long).len(), 1);
    }

    #[test]
    fn long_line_is_a_problem() {
        let long = format!("// {}\n", "x".repeat(98));
        assert_eq!(problems("a.rs", &long), ["a.rs:1: 101 columns, at most 100"]);
        assert_eq!(problems("a.md", &long).len(), 0);
    }
}
