//! The names in an archive: generations, their objects and their manifests.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use sanderling_core::archive::{Archive, ArchiveManifest};
use sanderling_core::replica::GroupGeneration;
use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::token::read_hex;

use super::place::{ArchiveDamage, ArchiveError, ArchiveOptions};

/// Digits of a generation's number: a start each second for three centuries.
const NUMBER_DIGITS: usize = 10;

/// The last number with so many.
const NUMBER_MAX: u64 = 9_999_999_999;

/// The object that a namenode makes when it begins a generation. It has the generation of the
/// namenode's group, or nothing.
const BEGAN: &str = "began";

/// How the names of the objects begin that describe the others; the last is the newest.
pub(super) const MANIFEST: &str = "manifest-";

/// Longest manifest: a hundred bytes for each piece of the journal, of which there are thousands
/// at most.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Generations that begin at the same time, at most: more is no coincidence. Each is one request
/// that creates an object if there is none; two supervisors that start the same namenode cause two.
const CLAIMS_MAX: u64 = 16;

/// What one start of a namenode has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) cluster: ClusterId,
}

/// Which namenode begins a generation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) cluster: ClusterId,
    /// Changes in its directory.
    pub(super) commands: u64,
    pub(super) group: GroupGeneration,
}

/// A generation that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimed {
    pub(super) generation: Generation,
    /// The age of the newest state that the archive has whole, if the namenode's is a newer one.
    pub(super) behind: Duration,
}

impl Generation {
    fn name(self) -> String {
        format!("generation-{:0NUMBER_DIGITS$}-{:016x}", self.number, self.cluster.0)
    }

    fn of(name: &str) -> Option<Self> {
        let (number, cluster) = name.strip_prefix("generation-")?.split_once('-')?;
        // A longer number is none of ours, and the one after it might not exist.
        (number.len() == NUMBER_DIGITS).then_some(())?;
        let cluster = ClusterId(read_hex(cluster)?);
        Some(Self { number: number.parse().ok()?, cluster })
    }
}

pub(super) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn failed(options: &ArchiveOptions) -> impl Fn(object_store::Error) -> ArchiveError {
    let url = options.url.clone();
    move |cause| ArchiveError::Store { url: url.clone(), cause }
}

/// Returns the path of an object.
pub(super) fn path(options: &ArchiveOptions, generation: &Generation, name: &str) -> Path {
    options.prefix.clone().join(generation.name()).join(name)
}

/// Returns the generations that are there, ascending.
pub(super) async fn generations(options: &ArchiveOptions) -> Result<Vec<Generation>, ArchiveError> {
    let prefix = Some(&options.prefix).filter(|prefix| !prefix.as_ref().is_empty());
    let listed = options.store.list_with_delimiter(prefix).await.map_err(failed(options))?;
    let names = listed.common_prefixes.iter().filter_map(|path| path.filename());
    let mut generations: Vec<Generation> = names.filter_map(Generation::of).collect();
    generations.sort_unstable();
    Ok(generations)
}

/// Begins the generation after all that are there. A namenode whose directory is behind the archive
/// gets none: it would go on without changes that were acknowledged.
///
/// # Errors
/// [`ArchiveError`]: another cluster or a later generation of the group has the archive, or the
/// directory is behind it.
pub(super) async fn claim(
    options: &ArchiveOptions,
    owner: &Owner,
) -> Result<Claimed, ArchiveError> {
    let Owner { cluster, commands, group } = *owner;
    let mut whole_at = None;
    let there = generations(options).await?;
    if let Some(other) = there.iter().find(|it| it.cluster != cluster) {
        let url = options.url.clone();
        return Err(ArchiveError::OtherCluster { url, found: other.cluster, wanted: cluster });
    }
    if let Some(newest) = there.last() {
        let found = group_of(options, newest).await?;
        if found != group && !group.is_after(found) {
            let url = options.url.clone();
            if !found.is_after(group) {
                return Err(ArchiveError::OtherRecovery { url, found, own: group });
            }
            let (found, own) = (found.number(), group.number());
            return Err(ArchiveError::LaterGroup { url, found, own });
        }
    }
    for generation in there.iter().rev() {
        if let Some(manifest) = manifest(options, generation).await? {
            let last = manifest.segments.last().map_or(0, |segment| segment.first);
            let archived = manifest.commands.unwrap_or(last);
            if archived > commands {
                let url = options.url.clone();
                return Err(ArchiveError::Ahead { url, archived, found: commands });
            }
            if archived < commands {
                let since_1970 = Duration::from_millis(manifest.at_unix_millis);
                whole_at = UNIX_EPOCH.checked_add(since_1970);
            }
            break;
        }
    }
    let first = there.last().map_or(1, |newest| newest.number + 1);
    for number in (first..first + CLAIMS_MAX).filter(|number| *number <= NUMBER_MAX) {
        let generation = Generation { number, cluster };
        if begin(options, &generation, group).await? {
            let behind = whole_at.and_then(|at| SystemTime::now().duration_since(at).ok());
            return Ok(Claimed { generation, behind: behind.unwrap_or_default() });
        }
    }
    Err(ArchiveError::Damaged {
        url: options.url.clone(),
        object: Generation { number: first, cluster }.name(),
        damage: ArchiveDamage::NoNumber,
    })
}

/// The state of a generation of the archive, as its namenode finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GenerationState {
    /// It is the newest.
    Newest,
    /// A later one has begun.
    Superseded,
    /// All of it is gone. The generation has begun once more, with nothing in it.
    Emptied,
}

/// Returns the state of a generation of the archive.
///
/// Its own mark is looked at, too: two generations later it is removed, with the mark of the one in
/// between.
pub(super) async fn generation_state(
    options: &ArchiveOptions,
    generation: &Generation,
    group: GroupGeneration,
) -> Result<GenerationState, ArchiveError> {
    let next = Generation { number: generation.number + 1, ..*generation };
    if began(options, &next).await? {
        return Ok(GenerationState::Superseded);
    }
    if began(options, generation).await? {
        return Ok(GenerationState::Newest);
    }
    let there = generations(options).await?;
    if there.iter().any(|it| it.number > generation.number) {
        return Ok(GenerationState::Superseded);
    }
    // Those before it may be there: they are removed once this one has a whole copy.
    if there.iter().any(|it| it.cluster != generation.cluster) {
        let object = path(options, generation, BEGAN).to_string();
        let (url, damage) = (options.url.clone(), ArchiveDamage::Replaced);
        return Err(ArchiveError::Damaged { url, object, damage });
    }
    match begin(options, generation, group).await? {
        true => Ok(GenerationState::Emptied),
        false => Ok(GenerationState::Newest),
    }
}

async fn began(options: &ArchiveOptions, generation: &Generation) -> Result<bool, ArchiveError> {
    match options.store.head(&path(options, generation, BEGAN)).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(failed(options)(error)),
    }
}

/// Begins a generation; returns whether it had not begun.
async fn begin(
    options: &ArchiveOptions,
    generation: &Generation,
    group: GroupGeneration,
) -> Result<bool, ArchiveError> {
    let began = path(options, generation, BEGAN);
    let mode = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    let mark = if group.0 == 0 { String::new() } else { group.0.to_string() };
    match options.store.put_opts(&began, mark.into_bytes().into(), mode).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(failed(options)(error)),
    }
}

/// Reads which generation of a group has begun a generation of the archive: the default if it was a
/// namenode alone.
pub(super) async fn group_of(
    options: &ArchiveOptions,
    generation: &Generation,
) -> Result<GroupGeneration, ArchiveError> {
    let path = path(options, generation, BEGAN);
    let read = match options.store.get(&path).await {
        Ok(found) => found.bytes().await,
        Err(object_store::Error::NotFound { .. }) => return Ok(GroupGeneration::default()),
        Err(error) => Err(error),
    };
    let bytes = read.map_err(failed(options))?;
    if bytes.is_empty() {
        return Ok(GroupGeneration::default());
    }
    let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
    number.map(GroupGeneration).ok_or_else(|| ArchiveError::Damaged {
        url: options.url.clone(),
        object: path.to_string(),
        damage: ArchiveDamage::NoGroup,
    })
}

/// Stores a manifest: a line with its checksum, and JSON. Each has a number of its own: a request
/// for an earlier one that the store executes late replaces nothing.
pub(super) async fn put_manifest(
    options: &ArchiveOptions,
    generation: &Generation,
    number: u64,
    manifest: &ArchiveManifest,
) -> Result<(), ArchiveError> {
    let json = serde_json::to_vec(manifest).map_err(std::io::Error::other)?;
    let mut bytes = format!("{:08x}\n", crc32c(&json)).into_bytes();
    bytes.extend(json);
    let name = |number: u64| path(options, generation, &format!("{MANIFEST}{number:012}"));
    options.store.put(&name(number), bytes.into()).await.map_err(failed(options))?;
    if let Some(before) = number.checked_sub(1) {
        // One that stays is not the last.
        let _ = options.store.delete(&name(before)).await;
    }
    Ok(())
}

/// Returns the names of a generation's objects.
async fn names(
    options: &ArchiveOptions,
    generation: &Generation,
) -> Result<BTreeSet<String>, ArchiveError> {
    let prefix = options.prefix.clone().join(generation.name());
    let mut objects = options.store.list(Some(&prefix));
    let mut names = BTreeSet::new();
    while let Some(object) = objects.next().await {
        let object = object.map_err(failed(options))?;
        names.extend(object.location.filename().map(str::to_owned));
    }
    Ok(names)
}

/// Returns the first object that was stored and that is gone.
pub(super) async fn missing(
    options: &ArchiveOptions,
    generation: &Generation,
    archive: &Archive,
) -> Result<Option<String>, ArchiveError> {
    let there = names(options, generation).await?;
    let mut needed = archive.objects().map(|object| object.to_string());
    Ok(needed.find(|name| !there.contains(name)))
}

/// Reads a generation's newest manifest; `None` where it has none.
pub(super) async fn manifest(
    options: &ArchiveOptions,
    generation: &Generation,
) -> Result<Option<ArchiveManifest>, ArchiveError> {
    let names = names(options, generation).await?;
    let Some(name) = names.iter().rev().find(|name| name.starts_with(MANIFEST)) else {
        return Ok(None);
    };
    let path = path(options, generation, name);
    let damaged = |damage| ArchiveError::Damaged {
        url: options.url.clone(),
        object: path.to_string(),
        damage,
    };
    let found = options.store.get(&path).await.map_err(failed(options))?;
    if found.meta.size > MANIFEST_BYTES_MAX {
        return Err(damaged(ArchiveDamage::Size { bytes: found.meta.size }));
    }
    let bytes = found.bytes().await.map_err(failed(options))?;
    let (sum, json) = bytes.split_at_checked(9).ok_or_else(|| damaged(ArchiveDamage::Cut))?;
    if sum != format!("{:08x}\n", crc32c(json)).as_bytes() {
        return Err(damaged(ArchiveDamage::Checksum));
    }
    let manifest: ArchiveManifest =
        serde_json::from_slice(json).map_err(|error| damaged(error.into()))?;
    manifest.check().map_err(|error| damaged(error.into()))?;
    if manifest.cluster != generation.cluster {
        return Err(damaged(ArchiveDamage::OtherCluster(manifest.cluster)));
    }
    Ok(Some(manifest))
}

/// Removes the older generations but the newest of them that has a catalog.
pub(super) async fn remove_older(
    options: &ArchiveOptions,
    generation: &Generation,
) -> Result<(), ArchiveError> {
    let there = generations(options).await?;
    let mut is_kept = false;
    for older in there.iter().rev().filter(|it| it.number < generation.number) {
        let names = names(options, older).await?;
        if !is_kept && names.iter().any(|name| name.starts_with(MANIFEST)) {
            is_kept = true;
            continue;
        }
        for name in names {
            let path = path(options, older, &name);
            options.store.delete(&path).await.map_err(failed(options))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_generation_is_read_back() {
        let generation = Generation { number: 12, cluster: ClusterId(0xab) };
        assert_eq!(Generation::of(&generation.name()), Some(generation));
        for text in [
            "",
            "generation-1",
            "generation-000000000x-1",
            "generation-0000000001-g",
            "generation-0000000001-1",
            "generation-0000000001-+0000000000000ab",
            "generation-0000000001-00000000000000AB",
            "generation-18446744073709551615-1",
            "other-0000000001-1",
        ] {
            assert_eq!(Generation::of(text), None, "{text}");
        }
    }
}
