//! Listings in S3's order: keys by their bytes, page by page, with prefix and delimiter.

mod level;
mod walk;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::Path;
use sanderling_protocol::message::Entry;

use crate::name::behind;
use walk::{BucketWalk, WalkStep};

/// What is listed of a bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    /// Only keys that begin so.
    pub(crate) prefix: String,
    /// Keys that have it behind the prefix are listed together, up to its first place.
    pub(crate) delimiter: Option<String>,
    /// Only keys from here on.
    pub(crate) from: String,
    /// Most keys and common prefixes together.
    pub(crate) items_max: usize,
}

/// A key, or what many keys begin with.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// An object.
    Key(String, Box<Entry>),
    /// Keys that begin so.
    Prefix(String),
}

impl Item {
    /// Returns the key or prefix.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Key(text, _) | Self::Prefix(text) => text,
        }
    }

    /// Returns where a listing goes on behind this item.
    fn behind(&self) -> Option<String> {
        match self {
            Self::Key(key, _) => Some(format!("{key}\0")),
            Self::Prefix(prefix) => behind(prefix),
        }
    }
}

/// One page of a listing.
#[derive(Debug, Default)]
pub(crate) struct ListingPage {
    /// In S3's order.
    pub(crate) items: Vec<Item>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<String>,
}

/// Returns where a listing starts that is to show what is behind `after`. What ends with the
/// delimiter is a common prefix that was listed already, and all of it is passed over.
pub(crate) fn start_behind(after: &str, prefix: &str, delimiter: Option<&str>) -> String {
    let is_prefix = delimiter.is_some_and(|delimiter| {
        let cut = after.strip_prefix(prefix).and_then(|rest| Some((rest.find(delimiter)?, rest)));
        cut.is_some_and(|(cut, rest)| cut + delimiter.len() == rest.len())
    });
    match behind(after).filter(|_| is_prefix) {
        Some(next) => next,
        None => format!("{after}\0"),
    }
}

/// Lists a page of a bucket.
///
/// # Errors
/// [`ClientError`] of a listing; that the prefix leads nowhere is an empty page.
pub(crate) async fn page(
    client: &Client,
    bucket: &Path,
    query: &Query,
) -> Result<ListingPage, ClientError> {
    let mut page = ListingPage::default();
    if query.items_max == 0 {
        return Ok(page);
    }
    let from = query.from.clone().max(query.prefix.clone());
    let mut walk = BucketWalk::new(client, bucket, &query.prefix, from, query.items_max + 1)?;
    let is_by_directory = query.delimiter.as_deref() == Some("/");
    let prefix = query.prefix.as_str();
    loop {
        let mut is_inside = true;
        let step = walk.next(|whole| is_by_directory && is_common_prefix(whole, prefix)).await?;
        let item = match step {
            None => return Ok(page),
            Some(WalkStep::Directory(whole)) => {
                is_inside = false;
                Item::Prefix(whole)
            }
            Some(WalkStep::Key(key, entry)) => match common_prefix(&key, query) {
                Some(common) => Item::Prefix(common),
                None => Item::Key(key, entry),
            },
        };
        if !item.text().starts_with(prefix) {
            return Ok(page);
        }
        if page.items.len() == query.items_max {
            page.next = page.items.last().and_then(Item::behind);
            return Ok(page);
        }
        if let Item::Prefix(common) = &item
            && is_inside
        {
            match behind(common) {
                Some(next) => walk.seek(next),
                None => {
                    page.items.push(item);
                    return Ok(page);
                }
            }
        }
        page.items.push(item);
    }
}

/// Returns whether the keys of a directory, which all begin with `whole`, are listed together: its
/// `/` is the first one behind the prefix. A listing that starts inside of a common prefix comes to
/// the deeper ones, too.
fn is_common_prefix(whole: &str, prefix: &str) -> bool {
    whole
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.find('/').is_some_and(|at| at + 1 == rest.len()))
}

/// Returns the part of a key up to the first delimiter behind the prefix.
fn common_prefix(key: &str, query: &Query) -> Option<String> {
    let delimiter = query.delimiter.as_deref().filter(|it| !it.is_empty())?;
    let rest = key.strip_prefix(query.prefix.as_str())?;
    let cut = rest.find(delimiter)? + delimiter.len();
    Some(key[..query.prefix.len() + cut].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_a_common_prefix_up_to_the_first_slash_behind_the_prefix() {
        assert!(is_common_prefix("p/", "") && is_common_prefix("p/q/", "p/"));
        assert!(is_common_prefix("p/q/", "p/q") && is_common_prefix("p//", "p/"));
        for (whole, prefix) in [("p/q/", ""), ("p/", "p/"), ("p/", "p/q"), ("p/q/r/", "p/")] {
            assert!(!is_common_prefix(whole, prefix), "{whole} {prefix}");
        }
    }

    #[test]
    fn marker_that_is_a_common_prefix_passes_over_all_of_it() {
        assert_eq!(start_behind("a/", "", Some("/")), "a0");
        assert_eq!(start_behind("a/b", "", Some("/")), "a/b\0");
        assert_eq!(start_behind("a/", "a/", Some("/")), "a/\0");
        assert_eq!(start_behind("a/", "", None), "a/\0");
        assert_eq!(start_behind("", "", Some("/")), "\0");
        assert_eq!(start_behind(".", "", Some("//")), ".\0");
    }
}
