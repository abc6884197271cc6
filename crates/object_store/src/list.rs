//! Listings.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use object_store::path::Path as Location;
use object_store::{ListResult, ObjectMeta};
use sanderling_client::ClientError;
use sanderling_protocol::Refusal;
use sanderling_protocol::limits::LIST_PAGE_MAX;
use sanderling_protocol::message::Entry;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{self, Result};
use crate::keys;
use crate::store::{SanderlingStore, meta};
use crate::version;

/// Pages that are requested together: a deep tree is not listed one round trip after the other.
/// Twice the four connections to the namenode that a client has by default. Chosen, not measured.
const PAGES_MAX: usize = 8;

impl SanderlingStore {
    pub(crate) fn list_objects(
        &self,
        prefix: Option<&Location>,
        offset: Option<Location>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let root = prefix.cloned().unwrap_or_default();
        let walk = SubtreeWalk {
            store: self.clone(),
            offset,
            found: VecDeque::new(),
            queued: Vec::new(),
            pending: FuturesUnordered::new(),
        };
        stream::once(walk.enter(root)).flat_map(SubtreeWalk::into_stream).boxed()
    }

    pub(crate) async fn list_directory(&self, prefix: Option<&Location>) -> Result<ListResult> {
        let directory = prefix.cloned().unwrap_or_default();
        let mut listed = version::list_result(Vec::new(), Vec::new());
        let mut after = String::new();
        loop {
            let (entries, is_more) = self.page(&directory, &after).await?;
            for entry in &entries {
                if entry.kind.is_container() {
                    listed.common_prefixes.push(keys::child(&directory, &entry.name)?);
                } else if entry.is_sealed {
                    listed.objects.push(entry_meta(&directory, entry)?);
                }
            }
            match entries.last() {
                Some(last) if is_more => after.clone_from(&last.name),
                _ => return Ok(listed),
            }
        }
    }

    /// Returns one page of a directory; nothing where there is none.
    pub(crate) async fn page(
        &self,
        directory: &Location,
        after: &str,
    ) -> Result<(Vec<Entry>, bool)> {
        let path = self.path(directory)?;
        let client = self.client_for(directory).await?;
        match client.list(&path, after, LIST_PAGE_MAX as u32).await {
            Ok(page) => Ok(page),
            Err(ClientError::Refused(Refusal::NotFound { .. } | Refusal::NotADirectory { .. })) => {
                Ok((Vec::new(), false))
            }
            Err(error) => Err(error::of(directory, error)),
        }
    }
}

/// Returns the metadata of an object from a line of a listing.
pub(crate) fn entry_meta(directory: &Location, entry: &Entry) -> Result<ObjectMeta> {
    let location = keys::child(directory, &entry.name)?;
    Ok(meta(location, entry.object, entry.bytes, entry.modified_at))
}

/// A page of a directory to request: what comes after a name.
struct PageRequest {
    directory: Location,
    after: String,
}

type PendingPage = AbortOnDropHandle<(PageRequest, Result<(Vec<Entry>, bool)>)>;

/// A walk through a subtree, several pages at a time. What waits is at most those pages, and the
/// names of directories that were not entered yet.
struct SubtreeWalk {
    store: SanderlingStore,
    /// Only greater locations are returned.
    offset: Option<Location>,
    found: VecDeque<Result<ObjectMeta>>,
    queued: Vec<PageRequest>,
    pending: FuturesUnordered<PendingPage>,
}

impl SubtreeWalk {
    fn into_stream(self) -> BoxStream<'static, Result<ObjectMeta>> {
        let next = |mut walk: Self| async move { walk.next().await.map(|next| (next, walk)) };
        stream::unfold(self, next).boxed()
    }

    async fn next(&mut self) -> Option<Result<ObjectMeta>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(found);
            }
            while self.pending.len() < PAGES_MAX
                && let Some(page) = self.queued.pop()
            {
                self.request(page);
            }
            match self.pending.next().await? {
                Ok((page, Ok((entries, is_more)))) => self.take(page, entries, is_more).await,
                Ok((_, Err(error))) => self.found.push_back(Err(error)),
                Err(ended) => self.found.push_back(Err(error::bad(ended))),
            }
        }
    }

    fn request(&self, page: PageRequest) {
        let store = self.store.clone();
        // In a task: the caller may do other things for long between two entries.
        let listing = AbortOnDropHandle::new(tokio::spawn(async move {
            let listed = store.page(&page.directory, &page.after).await;
            (page, listed)
        }));
        self.pending.push(listing);
    }

    async fn take(&mut self, page: PageRequest, entries: Vec<Entry>, is_more: bool) {
        let PageRequest { directory, .. } = page;
        for entry in &entries {
            if entry.kind.is_container() {
                match keys::child(&directory, &entry.name) {
                    Ok(child) => self.want(child).await,
                    Err(error) => self.found.push_back(Err(error)),
                }
            } else if keys::is_listed_object(entry) {
                let found = entry_meta(&directory, entry);
                let is_wanted = |meta: &ObjectMeta| {
                    self.offset.as_ref().is_none_or(|offset| meta.location > *offset)
                };
                if found.as_ref().map_or(true, is_wanted) {
                    self.found.push_back(found);
                }
            }
        }
        if let (true, Some(last)) = (is_more, entries.last()) {
            self.queued.push(PageRequest { directory, after: last.name.clone() });
        }
    }

    async fn enter(mut self, directory: Location) -> Self {
        self.want(directory).await;
        self
    }

    /// Requests what is in a directory and comes after the offset.
    async fn want(&mut self, directory: Location) {
        let mut directories = vec![directory];
        while let Some(directory) = directories.pop() {
            match start(&directory, self.offset.as_ref()) {
                ListStart::Nowhere => {}
                ListStart::First => {
                    self.queued.push(PageRequest { directory, after: String::new() })
                }
                ListStart::After(name) => {
                    directories.extend(self.entered_before(&directory, &name).await);
                    self.queued.push(PageRequest { directory, after: name });
                }
            }
        }
    }

    /// Returns the directories whose names are not after `name`, but some of whose locations are
    /// after the offset.
    async fn entered_before(&mut self, directory: &Location, name: &str) -> Vec<Location> {
        // In `a b/c` and `a/c` the space comes before the slash, and so `a b/c` before `a/c`,
        // although `a` comes before `a b`.
        let cuts = name.char_indices().filter(|(at, letter)| *at > 0 && *letter < '/');
        let names = cuts.map(|(at, _)| &name[..at]).chain([name]);
        let locations: Vec<Location> =
            names.filter_map(|name| keys::child(directory, name).ok()).collect();
        match containers(&self.store, &locations).await {
            Ok(found) => found,
            Err(error) => {
                self.found.push_back(Err(error));
                Vec::new()
            }
        }
    }
}

/// Returns the locations, among these, that name directories.
async fn containers(store: &SanderlingStore, locations: &[Location]) -> Result<Vec<Location>> {
    // A name that no object can have names no directory either.
    let paths = locations.iter().filter_map(|it| Some((store.path(it).ok()?, it)));
    let (paths, locations): (Vec<_>, Vec<_>) = paths.unzip();
    let Some(first) = locations.first() else { return Ok(Vec::new()) };
    let client = store.client_for(first).await?;
    let found = client.lookup_many(&paths).await.map_err(|error| error::of(first, error))?;
    let found = locations.into_iter().zip(found);
    let containers = found.filter(|(_, it)| it.as_ref().is_ok_and(|it| it.kind.is_container()));
    Ok(containers.map(|(location, _)| location.clone()).collect())
}

/// Where the listing of a directory starts.
#[derive(Debug, PartialEq, Eq)]
enum ListStart {
    /// Nothing in it comes after the offset.
    Nowhere,
    /// At its first name.
    First,
    /// After that name.
    After(String),
}

fn start(directory: &Location, offset: Option<&Location>) -> ListStart {
    let Some(offset) = offset.map(AsRef::<str>::as_ref) else { return ListStart::First };
    let within =
        if directory.is_root() { String::new() } else { format!("{}/", directory.as_ref()) };
    match offset.strip_prefix(&within) {
        Some("") => ListStart::First,
        Some(rest) => ListStart::After(rest.split('/').next().unwrap_or_default().to_owned()),
        None if within.as_str() < offset => ListStart::Nowhere,
        None => ListStart::First,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_starts_where_the_offset_can_be_passed() {
        let at = |directory: &str, offset: &str| {
            start(&Location::from(directory), Some(&Location::from(offset)))
        };
        assert_eq!(at("", ""), ListStart::First);
        assert_eq!(at("", "a/b"), ListStart::After("a".to_owned()));
        assert_eq!(at("a", "a/b/c"), ListStart::After("b".to_owned()));
        assert_eq!(at("a", "a"), ListStart::First);
        assert_eq!(at("a", "a b"), ListStart::First);
        assert_eq!(at("a", "ab"), ListStart::Nowhere);
        assert_eq!(at("b", "a/x"), ListStart::First);
        assert_eq!(start(&Location::from("a"), None), ListStart::First);
    }
}
