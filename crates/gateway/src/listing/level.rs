//! One directory in the order of its keys.

use std::collections::VecDeque;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::limits::{LIST_PAGE_MAX, NAME_BYTES_MAX};
use sanderling_protocol::message::{Attributes, Entry, ObjectKind};
use sanderling_protocol::{Instant, ObjectId, Path, Refusal};

use crate::name::{DOT, DOTS, EMPTY, ESCAPE, KeyComponent, LONG, PREFIXED, before, piece_of};

/// Entries of the page that has the names of `.`, `..` and the empty piece. Names that begin as
/// they do, and nothing else, are between them; few directories have any. Chosen, not measured.
const SPECIAL_MAX: u32 = 64;

/// The next thing of a level.
#[derive(Debug)]
pub(crate) enum Head {
    /// An object with its key.
    Object(String, Box<Entry>),
    /// A directory: what its keys begin with, and its path.
    Directory(String, Path),
}

/// The names of one directory, with those that stand for pieces which no path may have put where
/// their keys belong. What is in the directories of long pieces counts to this level.
#[derive(Debug)]
pub(crate) struct Level {
    /// What all keys of this level begin with.
    base: String,
    runs: Vec<NameRun>,
    page_entries: usize,
}

/// Some names of a directory, in the order of their pieces.
#[derive(Debug)]
struct NameRun {
    directory: Path,
    /// What stands before each piece: the start of a long one.
    lead: String,
    /// What the names begin with; nothing for those that are pieces themselves.
    prefix: &'static str,
    page: VecDeque<Entry>,
    /// Where the next page starts; `None` behind the last.
    after: Option<String>,
    /// Those whose place is behind names that begin with theirs, the next one last.
    waiting: Vec<Named>,
}

/// An entry and its piece of the key, with a `/` behind a directory's.
#[derive(Debug)]
struct Named {
    piece: String,
    entry: Entry,
    is_start: bool,
}

impl Level {
    /// Opens a directory whose keys begin with `base`, to show those from `from` behind it on.
    ///
    /// # Errors
    /// [`ClientError`] of the listing.
    pub(crate) async fn open(
        client: &Client,
        directory: Path,
        base: String,
        from: &str,
        page_entries: usize,
    ) -> Result<Self, ClientError> {
        let page_entries = page_entries.clamp(1, LIST_PAGE_MAX);
        let mut level = Self { base, runs: Vec::new(), page_entries };
        level.add(client, directory, String::new(), from).await?;
        Ok(level)
    }

    /// Adds the names of a directory, whose pieces go on from `lead`.
    async fn add(
        &mut self,
        client: &Client,
        directory: Path,
        lead: String,
        from: &str,
    ) -> Result<(), ClientError> {
        let first = from.split('/').next().unwrap_or_default();
        let mut plain = NameRun::new(directory.clone(), lead.clone(), "", before(first));
        plain.wait_for(client, from, first).await?;
        plain.load(client, self.page_entries).await?;
        let is_whole = first.is_empty() && plain.after.is_none();
        let has_escaped = if is_whole {
            plain.page.iter().any(|entry| entry.name.starts_with(ESCAPE))
        } else {
            let (page, _) = client.list(&directory, &before(ESCAPE), 1).await?;
            page.first().is_some_and(|entry| entry.name.starts_with(ESCAPE))
        };
        self.runs.push(plain);
        if has_escaped {
            for prefix in [LONG, PREFIXED] {
                let (directory, lead) = (directory.clone(), lead.clone());
                self.runs.push(NameRun::new(directory, lead, prefix, before(prefix)));
            }
            self.runs.push(NameRun::special(client, directory, lead).await?);
        }
        Ok(())
    }

    /// Returns what comes next; `None` at the end.
    ///
    /// # Errors
    /// [`ClientError`] of a listing.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Option<Head>, ClientError> {
        loop {
            for run in &mut self.runs {
                run.prepare(client, self.page_entries).await?;
            }
            self.runs.retain(|run| run.peek().is_some());
            let heads = self.runs.iter().enumerate();
            let heads = heads.filter_map(|(at, run)| run.peek().map(|text| (text, at)));
            let Some((_, at)) = heads.min() else { return Ok(None) };
            let run = &mut self.runs[at];
            let (directory, lead) = (run.directory.clone(), run.lead.clone());
            let Some(Named { piece, entry, is_start }) = run.take() else { continue };
            if is_start && !entry.kind.is_container() {
                continue;
            }
            if is_start {
                let inside = directory.join(&entry.name).map_err(ClientError::Refused)?;
                match self.add(client, inside, format!("{lead}{piece}"), "").await {
                    Ok(()) | Err(ClientError::Refused(Refusal::NotFound { .. })) => continue,
                    Err(error) => return Err(error),
                }
            }
            let whole = format!("{}{lead}{piece}", self.base);
            return Ok(Some(if entry.kind.is_container() {
                let path = directory.join(&entry.name).map_err(ClientError::Refused)?;
                Head::Directory(whole, path)
            } else {
                Head::Object(whole, Box::new(entry))
            }));
        }
    }
}

impl NameRun {
    fn new(directory: Path, lead: String, prefix: &'static str, after: String) -> Self {
        let (page, waiting) = (VecDeque::new(), Vec::new());
        Self { directory, lead, prefix, page, after: Some(after), waiting }
    }

    /// Makes the run of empty, `.` and `..`.
    async fn special(client: &Client, directory: Path, lead: String) -> Result<Self, ClientError> {
        let mut run = Self::new(directory, lead, "", String::new());
        run.after = None;
        let (page, _) =
            client.list_with_attributes(&run.directory, &before(DOT), SPECIAL_MAX).await?;
        for entry in page.into_iter().filter(|it| [EMPTY, DOT, DOTS].contains(&it.name.as_str())) {
            let Some(KeyComponent::Whole(mut piece)) = piece_of(&entry.name) else { continue };
            if entry.kind.is_container() {
                piece.push('/');
            }
            run.waiting.push(Named { piece, entry, is_start: false });
        }
        run.waiting.sort_by(|a, b| b.piece.cmp(&a.piece));
        Ok(run)
    }

    /// Looks for directories whose names are before the start of the listing and whose keys are
    /// not.
    async fn wait_for(
        &mut self,
        client: &Client,
        from: &str,
        first: &str,
    ) -> Result<(), ClientError> {
        let is_inside = from.len() > first.len();
        let cuts = first.char_indices().filter(|(at, char)| *at > 0 && *char < '/');
        let mut names: Vec<&str> = cuts.map(|(at, _)| &first[..at]).collect();
        if is_inside {
            names.push(first);
        }
        names.retain(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
        names.retain(|name| !name.starts_with(ESCAPE) && !matches!(*name, "." | ".."));
        if names.is_empty() {
            return Ok(());
        }
        let paths: Result<Vec<Path>, Refusal> =
            names.iter().map(|name| self.directory.join(name)).collect();
        let found = client.lookup_many(&paths.map_err(ClientError::Refused)?).await?;
        for (name, found) in names.into_iter().zip(found) {
            let Ok(found) = found else { continue };
            if found.kind.is_container() {
                let entry = directory_entry(name, found.kind, found.object);
                self.waiting.push(Named { piece: format!("{name}/"), entry, is_start: false });
            }
        }
        if is_inside {
            // What is listed from here on is behind the directory itself.
            self.after = Some(first.to_owned());
        }
        Ok(())
    }

    async fn load(&mut self, client: &Client, entries: usize) -> Result<(), ClientError> {
        let Some(after) = self.after.take() else { return Ok(()) };
        let limit = u32::try_from(entries).unwrap_or(u32::MAX);
        let (page, is_more) = client.list_with_attributes(&self.directory, &after, limit).await?;
        self.after = page.last().filter(|_| is_more).map(|entry| entry.name.clone());
        self.page = page.into();
        Ok(())
    }

    /// Makes sure that the next name is known, and sets directories aside whose place is behind it.
    async fn prepare(&mut self, client: &Client, entries: usize) -> Result<(), ClientError> {
        loop {
            while let Some(entry) = self.page.front() {
                let name = entry.name.as_str();
                let is_ours = match self.prefix {
                    "" => !name.starts_with(ESCAPE),
                    prefix => name.starts_with(prefix),
                };
                let piece = piece_of(name).filter(|_| is_ours);
                if piece.is_none() && !self.prefix.is_empty() && name > self.prefix {
                    self.page.clear();
                    self.after = None;
                    return Ok(());
                }
                let text = match piece {
                    None => {
                        self.page.pop_front();
                        continue;
                    }
                    Some(KeyComponent::Start(_)) => return Ok(()),
                    Some(KeyComponent::Whole(text)) => text,
                };
                let is_due = self.waiting.last().is_some_and(|it| it.piece < text);
                if is_due || !entry.kind.is_container() {
                    return Ok(());
                }
                let entry = self.page.pop_front().expect("just seen");
                self.waiting.push(Named { piece: format!("{text}/"), entry, is_start: false });
            }
            if self.after.is_none() {
                return Ok(());
            }
            self.load(client, entries).await?;
        }
    }

    /// Returns the next piece, with what stands before it.
    fn peek(&self) -> Option<String> {
        let page =
            self.page.front().and_then(|entry| piece_of(&entry.name)).map(KeyComponent::into_text);
        let waiting = self.waiting.last().map(|named| named.piece.clone());
        let piece = match (page, waiting) {
            (Some(page), Some(waiting)) => page.min(waiting),
            (page, waiting) => page.or(waiting)?,
        };
        Some(format!("{}{piece}", self.lead))
    }

    fn take(&mut self) -> Option<Named> {
        let page = self.page.front().and_then(|entry| piece_of(&entry.name));
        let waiting = self.waiting.last().map(|named| named.piece.as_str());
        match page {
            Some(piece) if waiting.is_none_or(|waiting| piece.text() <= waiting) => {
                let entry = self.page.pop_front()?;
                let is_start = matches!(piece, KeyComponent::Start(_));
                Some(Named { piece: piece.into_text(), entry, is_start })
            }
            _ => self.waiting.pop(),
        }
    }
}

/// Returns an entry of which only the kind counts.
fn directory_entry(name: &str, kind: ObjectKind, object: ObjectId) -> Entry {
    Entry {
        name: name.to_owned(),
        kind,
        object,
        bytes: 0,
        lost_bytes: 0,
        is_sealed: true,
        modified_at: Instant(0),
        attributes: Attributes::none(),
    }
}
