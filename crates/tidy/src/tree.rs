//! The working tree as the checks see it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// What a file is written in, as far as the checks distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `.rs`
    Rust,
    /// `.py` and `.pyi`
    Python,
    /// `.java`
    Java,
    /// `.js` and `.mjs`
    JavaScript,
    /// `.sh`, and files that start with a shell's `#!`
    Shell,
    /// `.md`
    Markdown,
    /// `.toml`
    Toml,
    /// Anything else that is text.
    Other,
}

impl Language {
    /// Returns whether names and comments are checked in it. Of JavaScript, only lengths are.
    #[must_use]
    pub const fn is_code(self) -> bool {
        matches!(self, Self::Rust | Self::Python | Self::Java | Self::Shell)
    }
}

/// One text file of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Relative to the root, with `/` between components.
    pub path: String,
    /// What it is written in.
    pub language: Language,
    /// All of it.
    pub text: String,
}

/// Directories that hold what was built or installed, not what was written.
const BUILT: [&str; 9] = [
    "target",
    ".git",
    ".cache",
    ".hypothesis",
    "dist",
    "demo-out",
    "__pycache__",
    ".pytest_cache",
    "node_modules",
];

/// With what the names of environments begin that packages are installed into.
const ENVIRONMENT: &str = ".venv";

fn is_built(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    BUILT.contains(&&*name) || name.starts_with(ENVIRONMENT)
}

impl SourceFile {
    /// Makes a file from its path and its text.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), language: language_of(path, text), text: text.to_owned() }
    }
}

fn language_of(path: &str, text: &str) -> Language {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => Language::Rust,
        Some("py" | "pyi") => Language::Python,
        Some("java") => Language::Java,
        Some("js" | "mjs") => Language::JavaScript,
        Some("sh") => Language::Shell,
        Some("md") => Language::Markdown,
        Some("toml") => Language::Toml,
        _ if text.starts_with("#!") && text.lines().next().is_some_and(|it| it.contains("sh")) => {
            Language::Shell
        }
        _ => Language::Other,
    }
}

/// Returns the root of the repository whose tests run: that of the crate that Cargo runs them for.
///
/// Not the place of compilation: several working trees may share one directory of built things.
#[must_use]
pub fn root() -> PathBuf {
    let crate_root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    crate_root.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR"))).join("../..")
}

/// Reads every text file under `root`, in the order of their paths. Files that are not UTF-8 and
/// directories of built things are passed over.
///
/// # Errors
/// What reading a directory or a file gives: end the check with it.
pub fn read(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_built(&name) {
                directories.push(entry.path());
            } else if kind.is_file() && name != ".git" {
                files.extend(read_text(root, &entry.path())?);
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

fn read_text(root: &Path, path: &Path) -> io::Result<Option<SourceFile>> {
    let Ok(text) = String::from_utf8(std::fs::read(path)?) else {
        return Ok(None);
    };
    let relative = path.strip_prefix(root).unwrap_or(path);
    Ok(relative.to_str().map(|relative| SourceFile::new(relative, &text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_distinguished() {
        let language = |path, text| SourceFile::new(path, text).language;
        assert_eq!(language("a/b.rs", ""), Language::Rust);
        assert_eq!(language("a/b.pyi", ""), Language::Python);
        assert_eq!(language("a/B.java", ""), Language::Java);
        assert_eq!(language("a/b.mjs", ""), Language::JavaScript);
        assert_eq!(language(".ci/run", "#!/usr/bin/env bash\n"), Language::Shell);
        assert_eq!(language("LICENSE", "text"), Language::Other);
    }

    #[test]
    fn the_tree_holds_this_file_and_nothing_built() {
        let files = read(&root()).unwrap();
        assert!(files.iter().any(|file| file.path == "crates/tidy/src/tree.rs"));
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }
}
