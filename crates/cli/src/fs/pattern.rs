//! Paths of the store as people type them: with a slash at the end, and with patterns.

use std::collections::BTreeSet;
use std::str::FromStr;

use glob::{MatchOptions, Pattern, PatternError};
use sanderling_client::Client;
use sanderling_protocol::{Path, Refusal};
use thiserror::Error;

use super::list::each_page;
use super::lookup::{joined, stat_of};
use crate::failure::{Exit, Failure, RefusalKind};
use crate::refused::shell_word;
use crate::session::Session;

/// Most objects that one pattern stands for: each takes memory and a request. A million of them
/// take some hundred MB. Chosen, not measured; name the directory instead of a pattern to go beyond
/// it.
const MATCHES_MAX: usize = 1_000_000;

/// `*` and `?` stand for no `/`, and, as in a shell, not for a dot at the start of a name.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Where an object goes: a path, and whether a slash at its end demands a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The path without the slash.
    pub(crate) path: Path,
    /// Whether it was typed with a slash at its end.
    pub(crate) is_directory: bool,
}

impl FromStr for Destination {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Ok(Self { path: typed(text)?, is_directory: text.ends_with('/') })
    }
}

/// Reads a path; a slash at its end is left out.
pub(crate) fn typed(text: &str) -> Result<Path, Refusal> {
    match text.trim_end_matches('/') {
        "" if !text.is_empty() => Ok(Path::root()),
        path => path.parse(),
    }
}

/// Some objects: a path, or a pattern with `*`, `?` or `[...]` that stands for all that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths {
    path: Path,
    is_pattern: bool,
}

/// Why a text stands for no objects.
#[derive(Debug, Error)]
pub(crate) enum PathsError {
    /// It is no path.
    #[error("{0}")]
    Path(#[from] Refusal),
    /// Its pattern is wrong.
    #[error("bad pattern: {0}")]
    Pattern(#[from] PatternError),
}

impl FromStr for Paths {
    type Err = PathsError;

    fn from_str(text: &str) -> Result<Self, PathsError> {
        let path = typed(text)?;
        let is_pattern = path.as_str().contains(['*', '?', '[']);
        // Each name is a pattern of its own: none of them reaches across a slash.
        if is_pattern {
            path.components().try_for_each(|name| Pattern::new(name).map(drop))?;
        }
        Ok(Self { path, is_pattern })
    }
}

impl Paths {
    /// Returns whether it is the root, or stands for all that is in it.
    pub(crate) fn is_everything(&self) -> bool {
        self.path.is_root() || (self.is_pattern && self.path.as_str().trim_matches('*') == "/")
    }

    /// Returns the objects that are meant, in the order of their names. A path is returned as it
    /// is, whether it exists or not.
    ///
    /// # Errors
    /// Not found (3) when no object matches.
    pub(crate) async fn expanded(
        &self,
        session: &Session,
        client: &Client,
    ) -> Result<Vec<Path>, Failure> {
        if !self.is_pattern {
            return Ok(vec![self.path.clone()]);
        }
        let mut found = vec![Path::root()];
        let mut fixed = Path::root();
        for component in self.path.components() {
            found = below(session, client, found, component).await?;
            if let [only] = found.as_slice() {
                fixed = only.clone();
            }
            if found.is_empty() {
                break;
            }
        }
        let literal = stat_of(session, client, &self.path).await?.map(|stat| stat.path);
        found.extend(literal.filter(|path| !found.contains(path)));
        if found.is_empty() {
            let cause = format!("no object matches {}", self.path);
            return Err(Failure::new(Exit::NotFound, RefusalKind::NotFound, cause)
                .tried("expanded the pattern in the store")
                .next(format_args!("sanderling fs ls {}", shell_word(fixed.as_str()))));
        }
        Ok(found)
    }
}

/// Returns all objects that several arguments stand for, each once.
pub(crate) async fn all(
    session: &Session,
    client: &Client,
    arguments: &[Paths],
) -> Result<Vec<Path>, Failure> {
    let (mut paths, mut seen) = (Vec::new(), BTreeSet::new());
    for argument in arguments {
        for path in argument.expanded(session, client).await? {
            if seen.insert(path.as_str().to_owned()) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Returns what is in the directories and matches one component.
async fn below(
    session: &Session,
    client: &Client,
    directories: Vec<Path>,
    component: &str,
) -> Result<Vec<Path>, Failure> {
    let pattern = component.contains(['*', '?', '[']).then(|| Pattern::new(component));
    let pattern = pattern.transpose().map_err(|error| Failure::usage(&error))?;
    let mut found = Vec::new();
    for directory in directories {
        let Some(pattern) = &pattern else {
            let path = joined(&directory, component)?;
            // A file has nothing below it: it is passed over, as a shell does.
            if let Ok(Some(stat)) = stat_of(session, client, &path).await {
                found.push(stat.path);
            }
            continue;
        };
        match stat_of(session, client, &directory).await {
            Ok(Some(stat)) if stat.kind.is_container() => {}
            _ => continue,
        }
        each_page(session, client, &directory, |page| {
            let matching = page
                .into_iter()
                .filter(|it| pattern.matches_with(it.path.name().unwrap_or_default(), OPTIONS));
            found.extend(matching.map(|located| located.path));
            if found.len() > MATCHES_MAX {
                return Err(Failure::usage(format_args!(
                    "the pattern stands for more than {MATCHES_MAX} objects"
                )));
            }
            Ok(())
        })
        .await?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slash_at_the_end_is_left_out_and_demands_a_directory() {
        let to: Destination = "/a/b/".parse().expect("a path");
        assert_eq!((to.path.as_str(), to.is_directory), ("/a/b", true));
        let to: Destination = "/a".parse().expect("a path");
        assert_eq!((to.path.as_str(), to.is_directory), ("/a", false));
        let root: Destination = "//".parse().expect("the root");
        assert!(root.path.is_root());
        assert!("a/".parse::<Destination>().is_err() && "".parse::<Destination>().is_err());
    }

    #[test]
    fn patterns_are_distinguished_from_paths() {
        assert!("/a/*.txt".parse::<Paths>().is_ok_and(|paths| paths.is_pattern));
        assert!("/a/b".parse::<Paths>().is_ok_and(|paths| !paths.is_pattern));
        for wrong in ["/a/[", "/a/[/x]", "/a**"] {
            assert!(matches!(wrong.parse::<Paths>(), Err(PathsError::Pattern(_))), "{wrong}");
        }
        let error = "a/*".parse::<Paths>().expect_err("it is no path");
        let cause = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<Refusal>());
        assert!(matches!(cause, Some(Refusal::BadPath { .. })), "{error}");
        for (text, is_everything) in [("/", true), ("/*", true), ("/a*", false), ("/*/*", false)] {
            let paths: Paths = text.parse().expect("a path or a pattern");
            assert_eq!(paths.is_everything(), is_everything, "{text}");
        }
    }
}
