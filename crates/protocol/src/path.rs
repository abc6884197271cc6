//! Exact names. A path is a list of components; nothing in it is folded, trimmed or resolved.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::limits::{NAME_BYTES_MAX, PATH_DEPTH_MAX};
use crate::refusal::Refusal;

/// The checked, absolute path of an object: `/` or `/a/b/c`.
///
/// A component is any UTF-8 text of 1 to [`NAME_BYTES_MAX`] bytes without `/`, except `.` and `..`;
/// there are at most [`PATH_DEPTH_MAX`] of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Path(String);

impl Path {
    /// Returns `/`, the path of the root directory.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Returns the path of components that come from checked paths, root first. It is not checked
    /// again: its length and depth are the caller's to bound.
    #[must_use]
    pub fn of_components<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut text = String::new();
        for name in names {
            text.push('/');
            text.push_str(name);
        }
        if text.is_empty() { Self::root() } else { Self(text) }
    }

    /// Returns the path as text, with the leading `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is `/`, the path of the root directory.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Returns the components from the root on; none for the root itself.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// Returns the last component; `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.components().next_back()
    }

    /// Returns the directory that holds this object; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let cut = self.0.rfind('/')?;
        match (self.is_root(), cut) {
            (true, _) => None,
            (false, 0) => Some(Self::root()),
            (false, cut) => Some(Self(self.0[..cut].to_owned())),
        }
    }

    /// Returns the path of `name` inside this directory.
    ///
    /// # Errors
    /// [`Refusal::BadPath`] when the name is not a valid component or the path becomes too deep:
    /// choose another name.
    pub fn join(&self, name: &str) -> Result<Self, Refusal> {
        if name.is_empty() || name.contains('/') {
            let why = "a name is not empty and has no slash".to_owned();
            return Err(Refusal::BadPath { path: clipped(name), why });
        }
        if self.is_root() { format!("/{name}").parse() } else { format!("{self}/{name}").parse() }
    }

    /// Returns whether `other` lies in this directory at any depth, or is the same path.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.is_root()
            || other.0 == self.0
            || (other.0.starts_with(&self.0) && other.0.as_bytes()[self.0.len()] == b'/')
    }
}

impl Serialize for Path {
    /// Writes the text: `into = "String"` would copy it first.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl FromStr for Path {
    type Err = Refusal;

    /// # Errors
    /// [`Refusal::BadPath`] names the wrong component and the reason; the caller corrects the path.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::check(text).map(|()| Self(text.to_owned()))
    }
}

impl Path {
    fn check(text: &str) -> Result<(), Refusal> {
        let bad = |why: &str| Err(Refusal::BadPath { path: clipped(text), why: why.to_owned() });
        let Some(rest) = text.strip_prefix('/') else {
            return bad("a path starts with /");
        };
        if rest.is_empty() {
            return Ok(());
        }
        // Byte by byte: to search a few bytes for a slash by the word takes longer.
        for (depth, component) in rest.as_bytes().split(|byte| *byte == b'/').enumerate() {
            if component.is_empty() {
                return bad("a component is empty");
            }
            if component == b"." || component == b".." {
                return bad("a component is . or ..");
            }
            if component.len() > NAME_BYTES_MAX {
                return bad(Refusal::LONG_COMPONENT);
            }
            if depth >= PATH_DEPTH_MAX {
                return bad(Refusal::DEEP_PATH);
            }
        }
        Ok(())
    }
}

/// Returns at most the first 200 characters, so that a refusal never carries a megabyte back.
fn clipped(text: &str) -> String {
    text.chars().take(200).collect()
}

impl TryFrom<String> for Path {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::check(&text).map(|()| Self(text))
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_parents_come_apart_and_together() {
        let path: Path = "/a/ b/ü".parse().unwrap();
        assert_eq!(path.components().collect::<Vec<_>>(), ["a", " b", "ü"]);
        assert_eq!(path.parent().unwrap().as_str(), "/a/ b");
        assert_eq!(path.parent().unwrap().join("ü").unwrap(), path);
        assert_eq!("/a".parse::<Path>().unwrap().parent(), Some(Path::root()));
        assert_eq!(Path::root().parent(), None);
        assert_eq!(Path::root().name(), None);
    }

    #[test]
    fn bad_paths_are_refused() {
        let long = format!("/{}", "x".repeat(256));
        let deep = "/d".repeat(129);
        for text in ["", "a", "a/b", "//", "/a//b", "/a/", "/./a", "/a/..", &long, &deep] {
            assert!(matches!(text.parse::<Path>(), Err(Refusal::BadPath { .. })), "{text}");
        }
        assert!("/d".repeat(128).parse::<Path>().is_ok());
        assert!(format!("/{}", "x".repeat(255)).parse::<Path>().is_ok());
    }

    #[test]
    fn what_is_joined_is_one_name() {
        let directory: Path = "/a".parse().unwrap();
        for name in ["", "b/c", "/b", "b/", "/", ".", "..", &"x".repeat(256)] {
            let joined = directory.join(name);
            assert!(matches!(joined, Err(Refusal::BadPath { .. })), "{name}");
            assert!(matches!(Path::root().join(name), Err(Refusal::BadPath { .. })), "{name}");
        }
        assert_eq!(directory.join("b").unwrap().as_str(), "/a/b");
    }

    #[test]
    fn contains_means_the_subtree_not_the_prefix() {
        let directory: Path = "/job".parse().unwrap();
        assert!(directory.contains(&"/job/a".parse().unwrap()));
        assert!(directory.contains(&directory));
        assert!(!directory.contains(&"/job2".parse().unwrap()));
        assert!(Path::root().contains(&directory));
    }
}
