//! Whether the `# Errors` section of a public function has more than the names of variants: when
//! they come, or the caller's next step. Which step is right is for a reader to judge.

use crate::Problem;
use crate::tree::{Language, SourceFile};

/// Words that join names.
const JOINTS: [&str; 3] = ["and", "or", "the"];

/// Checks the public functions of every crate.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let is_source =
        |file: &&SourceFile| file.language == Language::Rust && file.path.contains("/src/");
    files.iter().filter(is_source).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut section: Option<(usize, String)> = None;
    let mut is_open = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        match line.strip_prefix("///").map(str::trim) {
            Some("# Errors") => {
                section = Some((index + 1, String::new()));
                is_open = true;
            }
            Some(text) if text.starts_with("# ") => is_open = false,
            Some(text) => {
                if is_open && let Some((_, whole)) = &mut section {
                    whole.push(' ');
                    whole.push_str(text);
                }
            }
            None if line.starts_with("#[") => {}
            None => {
                is_open = false;
                if let Some((start, text)) = section.take()
                    && line.starts_with("pub ")
                    && is_bare(&text)
                {
                    let what = "names errors alone: state the caller's next step after each";
                    problems.push(Problem::new(&file.path, start, what));
                }
            }
        }
    }
    problems
}

/// Returns whether a section has no word beside names in backquotes.
fn is_bare(section: &str) -> bool {
    let prose: String = section.split('`').step_by(2).collect();
    let mut words = prose.split(|char: char| !char.is_alphabetic()).filter(|it| !it.is_empty());
    words.all(|word| JOINTS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(section: &str, item: &str) -> usize {
        let text = format!("/// Does it.\n///\n/// # Errors\n{section}\n#[must_use]\n{item}\n");
        check(&[SourceFile::new("crates/a/src/b.rs", &text)]).len()
    }

    #[test]
    fn section_of_names_alone_is_a_problem() {
        assert_eq!(count("/// [`Refusal::Moved`].", "pub fn a() {}"), 1);
        let several = "/// [`A::B`],\n/// `C` or [`D`].\n///\n/// # Panics\n/// Never.";
        assert_eq!(count(several, "pub fn a() {}"), 1);
        assert_eq!(count("/// [`Refusal::Moved`].", "pub async fn a() {}"), 1);
    }

    #[test]
    fn section_with_a_next_step_is_none() {
        assert_eq!(count("/// [`Refusal::Moved`]: go on in a new block.", "pub fn a() {}"), 0);
        assert_eq!(count("/// As [`Self::b`].", "pub fn a() {}"), 0);
        assert_eq!(count("/// [`A::B`]\n/// when it ends.", "pub fn a() {}"), 0);
        assert_eq!(count("/// [`Refusal::Moved`].", "pub(crate) fn a() {}"), 0, "not public");
    }
}
