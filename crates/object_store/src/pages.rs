//! Listings page by page, which any process can continue.

use std::collections::VecDeque;

use async_trait::async_trait;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path as Location;
use object_store::{Error, ObjectMeta};
use sanderling_protocol::message::Entry;

use crate::error::Result;
use crate::keys;
use crate::list::entry_meta;
use crate::store::SanderlingStore;
use crate::version;

/// Keys of a page for which no number is given, as S3 has it.
const KEYS: usize = 1000;

#[async_trait]
impl PaginatedListStore for SanderlingStore {
    /// The order is that of the names, part by part. The only delimiter is `/`.
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        if let Some(delimiter) = options.delimiter.as_deref().filter(|it| *it != "/") {
            let source = format!("the delimiter {delimiter:?}: only / is one").into();
            return Err(Error::NotSupported { source });
        }
        let prefix = prefix.unwrap_or_default().trim_start_matches('/');
        let (directory, start) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        // What is no location has nothing in it.
        let Ok(directory) = Location::parse(directory) else {
            return Ok(ResultPage::default().result());
        };
        let is_deep = options.delimiter.is_none();
        let mut walk =
            OrderedWalk::new(self, directory, start, is_deep, options.page_token.as_deref())?;
        let keys_max = options.max_keys.unwrap_or(KEYS);
        let mut page = ResultPage::default();
        while let Some(key) = walk.next().await? {
            if options.offset.as_ref().is_some_and(|offset| key.text() <= offset.as_str()) {
                continue;
            }
            if page.keys == keys_max {
                page.is_cut = true;
                break;
            }
            page.push(key);
        }
        Ok(page.result())
    }
}

/// One line of a page.
enum PageLine {
    Object(ObjectMeta),
    Prefix(Location),
}

impl PageLine {
    fn text(&self) -> &str {
        match self {
            Self::Object(meta) => meta.location.as_ref(),
            Self::Prefix(location) => location.as_ref(),
        }
    }
}

/// What was found so far.
#[derive(Default)]
struct ResultPage {
    objects: Vec<ObjectMeta>,
    prefixes: Vec<Location>,
    keys: usize,
    last: String,
    is_cut: bool,
}

impl ResultPage {
    fn push(&mut self, key: PageLine) {
        self.keys += 1;
        key.text().clone_into(&mut self.last);
        match key {
            PageLine::Object(meta) => self.objects.push(meta),
            PageLine::Prefix(location) => self.prefixes.push(location),
        }
    }

    fn result(self) -> PaginatedListResult {
        let result = version::list_result(self.prefixes, self.objects);
        // A page of no keys would be requested again for ever.
        let page_token = (self.is_cut && self.keys > 0).then_some(self.last);
        PaginatedListResult { result, page_token }
    }
}

/// A walk in the order of names that starts behind a key.
struct OrderedWalk<'a> {
    store: &'a SanderlingStore,
    /// How names in the outermost directory must begin.
    start: &'a str,
    is_deep: bool,
    /// The directories that are being read, the innermost last.
    open: Vec<DirectoryCursor>,
}

struct DirectoryCursor {
    location: Location,
    after: String,
    entries: VecDeque<Entry>,
    is_more: bool,
}

impl DirectoryCursor {
    const fn new(location: Location, after: String) -> Self {
        Self { location, after, entries: VecDeque::new(), is_more: true }
    }
}

impl<'a> OrderedWalk<'a> {
    fn new(
        store: &'a SanderlingStore,
        directory: Location,
        start: &'a str,
        is_deep: bool,
        token: Option<&str>,
    ) -> Result<Self> {
        let mut open = Vec::new();
        match token {
            None => open.push(DirectoryCursor::new(directory, before(start))),
            Some(token) => {
                let last = Location::parse(token)?;
                let foreign =
                    || Error::NotSupported { source: "a token of another listing".into() };
                let parts = last.prefix_match(&directory).ok_or_else(foreign)?;
                let mut at = directory;
                for part in parts {
                    let name = part.as_ref().to_owned();
                    let inner = keys::child(&at, &name)?;
                    open.push(DirectoryCursor::new(at, name));
                    at = inner;
                }
            }
        }
        Ok(Self { store, start, is_deep, open })
    }

    async fn next(&mut self) -> Result<Option<PageLine>> {
        while let Some(directory) = self.open.last_mut() {
            let Some(entry) = directory.entries.pop_front() else {
                if !directory.is_more {
                    self.open.pop();
                    continue;
                }
                let page = self.store.page(&directory.location, &directory.after).await?;
                directory.is_more = page.1;
                directory.entries = page.0.into();
                continue;
            };
            directory.after.clone_from(&entry.name);
            let (location, is_outermost) = (directory.location.clone(), self.open.len() == 1);
            if is_outermost && !entry.name.starts_with(self.start) {
                if entry.name.as_str() > self.start {
                    self.open.clear();
                }
                continue;
            }
            if entry.kind.is_container() {
                let inner = keys::child(&location, &entry.name)?;
                if !self.is_deep {
                    return Ok(Some(PageLine::Prefix(inner)));
                }
                self.open.push(DirectoryCursor::new(inner, String::new()));
            } else if keys::is_listed_object(&entry) {
                return Ok(Some(PageLine::Object(entry_meta(&location, &entry)?)));
            }
        }
        Ok(None)
    }
}

/// Returns a name that comes before all that begin with `start`, and after most others.
fn before(start: &str) -> String {
    let mut chars = start.chars();
    let last = chars.next_back();
    let lower = last.and_then(|last| char::from_u32(u32::from(last).wrapping_sub(1)));
    chars.chain(lower.filter(|lower| !lower.is_control())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_begins_before_what_is_wanted() {
        assert_eq!(before(""), "");
        assert_eq!(before("fo"), "fn");
        assert_eq!(before("a "), "a");
        for start in ["fo", "a ", "ä", "\u{e000}"] {
            assert!(before(start).as_str() < start);
        }
    }
}
