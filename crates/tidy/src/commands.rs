//! Finds the commands in the pages.

use crate::tree::{Language, SourceFile};

/// One command of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCommand {
    /// The page.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The words of the command, its program first.
    pub words: Vec<String>,
}

/// Returns the commands in the code blocks of all pages whose program is `program`, in whatever
/// directory: a line that starts with it, after a prompt or not. A `\` at the end of a line goes on
/// in the next. A block of `text` shows what was printed, so that only a prompt makes a command
/// there.
#[must_use]
pub fn of_pages(files: &[SourceFile], program: &str) -> Vec<PageCommand> {
    let pages = files.iter().filter(|file| file.language == Language::Markdown);
    pages.flat_map(|page| of_page(page, program)).collect()
}

fn of_page(page: &SourceFile, program: &str) -> Vec<PageCommand> {
    let mut commands = Vec::new();
    let (mut is_code, mut is_text) = (false, false);
    let mut pending: Option<(usize, String)> = None;
    for (index, line) in page.text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_code = !is_code;
            is_text = language.trim() == "text";
            continue;
        }
        let (start, text) = match (pending.take(), line.trim().strip_prefix("$ ")) {
            (Some((start, text)), _) => (start, format!("{text} {}", line.trim())),
            (None, Some(typed)) => (index, typed.to_owned()),
            (None, None) if is_text => continue,
            (None, None) => (index, line.trim().to_owned()),
        };
        if is_code && text.ends_with('\\') {
            pending = Some((start, text.trim_end_matches('\\').to_owned()));
        } else if is_code {
            let found =
                cut(&text).into_iter().filter(|words| words[0].rsplit('/').next() == Some(program));
            commands.extend(found.map(|words| PageCommand {
                path: page.path.clone(),
                line: start + 1,
                words,
            }));
        }
    }
    commands
}

/// Cuts a shell line into its commands and those into words. Redirections, comments and settings of
/// variables before the program are left out.
fn cut(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut is_target = false;
    for word in words(text) {
        let command = commands.last_mut().expect("there is always one");
        match word.as_str() {
            _ if word.starts_with('#') => break,
            "|" | "&&" | "||" | ";" | "&" => commands.push(Vec::new()),
            ">" | "<" | ">>" => is_target = true,
            _ if is_target => is_target = false,
            _ if command.is_empty() && word.contains('=') => {}
            _ => command.push(word),
        }
    }
    commands.retain(|command: &Vec<String>| !command.is_empty());
    commands
}

/// Cuts a line at its spaces, except inside quotes, which are taken off.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for char in text.chars() {
        match (char, quote) {
            (_, Some(open)) if open == char => quote = None,
            ('"' | '\'', None) => quote = Some(char),
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().expect("there is always one").push(char),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_code_blocks_only() {
        let text = "sanderling no\n```sh\n$ A=1 sanderling fs ls / | head  # all\nls\n\
                    sanderling put \\\n  a 'b c' > c\n```\n\
                    ```text\n$ sanderling\nsanderling  7 rows\n```\n";
        let page = SourceFile::new("README.md", text);
        let commands = of_pages(&[page], "sanderling");
        let lines: Vec<usize> = commands.iter().map(|command| command.line).collect();
        assert_eq!(lines, [3, 5, 9]);
        assert_eq!(commands[0].words, ["sanderling", "fs", "ls", "/"]);
        assert_eq!(commands[1].words, ["sanderling", "put", "a", "b c"]);
    }
}
