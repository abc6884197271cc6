//! Splits a source text into its code and its comments.

use crate::tree::Language;

/// A text taken apart. Both parts keep every line break, and everything that belongs to the other
/// part, as well as the inside of every string, is spaces: lines and columns stay what they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The code without comments and without what is inside strings.
    pub code: String,
    /// The comments alone.
    pub comments: String,
    /// What is inside strings, with the quotes before and behind it.
    pub messages: String,
}

/// Takes a source text apart. Texts that are not code are all comment.
#[must_use]
pub fn split(language: Language, text: &str) -> Split {
    let mut splitter = Splitter::new(text);
    match language {
        Language::Rust => splitter.rust(),
        Language::Java => splitter.java(),
        Language::Python => splitter.hash_comments(true),
        Language::Shell | Language::Toml => splitter.hash_comments(false),
        Language::JavaScript | Language::Markdown | Language::Other => {
            splitter.take_comment(usize::MAX)
        }
    }
    Split { code: splitter.code, comments: splitter.comments, messages: splitter.messages }
}

struct Splitter {
    rest: Vec<char>,
    at: usize,
    code: String,
    comments: String,
    messages: String,
}

impl Splitter {
    fn new(text: &str) -> Self {
        let (code, comments, messages) = (String::new(), String::new(), String::new());
        Self { rest: text.chars().collect(), at: 0, code, comments, messages }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(index, wanted)| self.peek(index) == Some(wanted))
    }

    fn is_done(&self) -> bool {
        self.at >= self.rest.len()
    }

    /// Takes one character into the code, the comments, or neither.
    fn take(&mut self, to_code: bool, to_comments: bool) {
        let Some(char) = self.peek(0) else { return };
        let blank = if char == '\n' { '\n' } else { ' ' };
        self.code.push(if to_code { char } else { blank });
        self.comments.push(if to_comments { char } else { blank });
        let is_message = !to_comments && (!to_code || char == '"');
        self.messages.push(if is_message { char } else { blank });
        self.at += 1;
    }

    fn take_code(&mut self, count: usize) {
        (0..count).for_each(|_| self.take(true, false));
    }

    fn take_comment(&mut self, count: usize) {
        let left = self.rest.len() - self.at;
        (0..count.min(left)).for_each(|_| self.take(false, true));
    }

    fn take_line_comment(&mut self) {
        while !self.is_done() && self.peek(0) != Some('\n') {
            self.take(false, true);
        }
    }

    /// Takes a string whose opening quote comes next, up to its closing quote.
    fn take_string(&mut self, quote: &str, has_escapes: bool) {
        self.take_code(quote.chars().count());
        while !self.is_done() && !self.starts_with(quote) {
            if has_escapes && self.peek(0) == Some('\\') {
                self.take(false, false);
            }
            self.take(false, false);
        }
        self.take_code(quote.chars().count());
    }

    fn rust(&mut self) {
        while !self.is_done() {
            if self.starts_with("//") {
                self.take_line_comment();
            } else if self.starts_with("/*") {
                self.take_block_comment();
            } else if self.starts_with("\"") {
                self.take_string("\"", true);
            } else if let Some(hashes) = self.raw_string_hashes() {
                self.take_raw_string(hashes);
            } else if self.starts_with("'") {
                self.take_char_or_lifetime();
            } else {
                self.take_code(1);
            }
        }
    }

    fn java(&mut self) {
        while !self.is_done() {
            if self.starts_with("//") {
                self.take_line_comment();
            } else if self.starts_with("/*") {
                self.take_comment(2);
                while !self.is_done() && !self.starts_with("*/") {
                    self.take_comment(1);
                }
                self.take_comment(2);
            } else if let Some(quote) =
                ["\"\"\"", "\"", "'"].into_iter().find(|quote| self.starts_with(quote))
            {
                self.take_string(quote, true);
            } else {
                self.take_code(1);
            }
        }
    }

    fn take_block_comment(&mut self) {
        let mut depth = 0;
        while !self.is_done() {
            if self.starts_with("/*") {
                depth += 1;
                self.take_comment(2);
            } else if self.starts_with("*/") {
                depth -= 1;
                self.take_comment(2);
                if depth == 0 {
                    return;
                }
            } else {
                self.take_comment(1);
            }
        }
    }

    /// Returns the number of `#` when a raw string comes next.
    fn raw_string_hashes(&self) -> Option<usize> {
        let before = self.at.checked_sub(1).and_then(|at| self.rest.get(at));
        if before.is_some_and(|char| char.is_alphanumeric() && *char != 'b' || *char == '_') {
            return None;
        }
        (self.peek(0) == Some('r')).then_some(())?;
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn take_raw_string(&mut self, hashes: usize) {
        self.take_code(2 + hashes);
        let close = format!("\"{}", "#".repeat(hashes));
        while !self.is_done() && !self.starts_with(&close) {
            self.take(false, false);
        }
        self.take_code(close.chars().count());
    }

    fn take_char_or_lifetime(&mut self) {
        if self.peek(1) == Some('\\') {
            self.take_code(1);
            self.take(false, false);
            self.take(false, false);
            while !self.is_done() && self.peek(0) != Some('\'') {
                self.take(false, false);
            }
            self.take_code(1);
        } else if self.peek(2) == Some('\'') {
            self.take_code(1);
            self.take(false, false);
            self.take_code(1);
        } else {
            self.take_code(1);
        }
    }

    /// Python, shell and TOML: comments run from `#` to the end of the line.
    fn hash_comments(&mut self, is_python: bool) {
        while !self.is_done() {
            let triple = ["\"\"\"", "'''"].into_iter().find(|quote| self.starts_with(quote));
            if let Some(quote) = triple.filter(|_| is_python) {
                self.take_string(quote, true);
            } else if self.starts_with("#") && (is_python || self.is_word_start()) {
                self.take_line_comment();
            } else if self.starts_with("\"") {
                self.take_string("\"", true);
            } else if self.starts_with("'") {
                self.take_string("'", is_python);
            } else if self.starts_with("\\") {
                self.take_code(2);
            } else {
                self.take_code(1);
            }
        }
    }

    fn is_word_start(&self) -> bool {
        self.at == 0 || self.rest[self.at - 1].is_whitespace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(language: Language, text: &str) -> String {
        split(language, text).code
    }

    #[test]
    fn rust_comes_apart() {
        let parts = split(Language::Rust, "let a = \"// no\"; // yes\n/* b /* c */ d */ e");
        assert_eq!(
            parts.code.split_whitespace().collect::<Vec<_>>(),
            ["let", "a", "=", "\"", "\";", "e"]
        );
        assert!(parts.comments.contains("// yes\n/* b /* c */ d */"));
        assert!(!parts.comments.contains("no"));
    }

    #[test]
    fn raw_strings_characters_and_lifetimes_are_known() {
        assert_eq!(code(Language::Rust, "r#\"{ \" }\"# {"), "r#\"     \"# {");
        assert_eq!(code(Language::Rust, "('{', '\\'', b'\"') {"), "(' ', '  ', b' ') {");
        assert_eq!(code(Language::Rust, "fn a<'b>(c: &'b str) {"), "fn a<'b>(c: &'b str) {");
    }

    #[test]
    fn java_comes_apart() {
        let text = "a('{', \"b\\\"{\"); // c\n/* /* d */ e";
        let parts = split(Language::Java, text);
        assert_eq!(parts.code, "a(' ', \"    \");     \n           e");
        assert_eq!(parts.comments.trim_start(), "// c\n/* /* d */  ");
    }

    #[test]
    fn python_and_shell_come_apart() {
        let parts = split(Language::Python, "a = '#1' # two\n\"\"\"three\n# four\"\"\"\n");
        assert!(parts.comments.contains("# two") && !parts.comments.contains("four"));
        let parts = split(Language::Shell, "echo $# \"${#a}\" # tail\n");
        assert!(parts.code.contains("echo $#") && parts.comments.contains("# tail"));
    }

    #[test]
    fn both_parts_keep_the_shape_of_the_text() {
        let text = "fn a() {\n    // b\n    \"c\nd\"\n}\n";
        let parts = split(Language::Rust, text);
        assert_eq!(parts.code.len(), text.len());
        assert_eq!(parts.code.lines().count(), text.lines().count());
        assert_eq!(parts.comments.lines().count(), text.lines().count());
    }
}
