//! The names in an archive: generations, their objects and their manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use sanderling_core::archive::{
    ArchiveClaim, ArchiveGeneration, ArchiveManifest, ArchiveOwner, ArchiveReplaced, CheckStep,
    ClaimRefusal, ClaimStep, GenerationCheck, GenerationRemoval, GenerationState, MANIFEST,
    manifest_name, removals,
};
use sanderling_core::replica::GroupGeneration;
use sanderling_protocol::checksum::crc32c;

use super::place::{ArchiveDamage, ArchiveError, ArchiveOptions};

/// The object that a namenode makes when it begins a generation, the generation's mark. It has the
/// generation of the namenode's group, or nothing.
const BEGAN: &str = "began";

/// How the name of the object begins by which a namenode finds out whether the store refuses to
/// create one that exists.
const PROBE: &str = "probe-";

/// Longest manifest: a hundred bytes for each piece of the journal, of which there are thousands
/// at most.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// A generation that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimed {
    pub(super) generation: ArchiveGeneration,
    /// The age of the newest state that the archive has whole, if the namenode's is a newer one.
    pub(super) behind: Duration,
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
pub(super) fn path(options: &ArchiveOptions, generation: &ArchiveGeneration, name: &str) -> Path {
    options.prefix.clone().join(generation.to_string()).join(name)
}

/// Returns the generations that are there, ascending.
pub(super) async fn generations(
    options: &ArchiveOptions,
) -> Result<Vec<ArchiveGeneration>, ArchiveError> {
    let prefix = Some(&options.prefix).filter(|prefix| !prefix.as_ref().is_empty());
    let listed = options.store.list_with_delimiter(prefix).await.map_err(failed(options))?;
    let names = listed.common_prefixes.iter().filter_map(|path| path.filename());
    let mut generations: Vec<_> = names.filter_map(ArchiveGeneration::of_name).collect();
    generations.sort_unstable();
    Ok(generations)
}

/// Begins the generation after all that are there, as [`ArchiveClaim`] decides.
///
/// # Errors
/// [`ArchiveError`]: another cluster or a later generation of the group has the archive, the
/// directory is behind it, or its store has no conditions.
pub(super) async fn claim(
    options: &ArchiveOptions,
    owner: &ArchiveOwner,
) -> Result<Claimed, ArchiveError> {
    let mut claim = ArchiveClaim::new(*owner);
    loop {
        let taken = match claim.step() {
            ClaimStep::List => {
                let there = generations(options).await?;
                claim.listed(there)
            }
            ClaimStep::ReadGroup(newest) => {
                let found = group_of(options, &newest).await?;
                claim.found_group(found)
            }
            ClaimStep::ReadManifest(generation) => {
                let found = manifest(options, &generation).await?;
                claim.found_manifest(found.as_ref().map(ArchiveManifest::state))
            }
            ClaimStep::ProbeCondition => {
                let is_refused = refuses_existing(options).await?;
                claim.probed(is_refused)
            }
            ClaimStep::Create(generation) => {
                let is_created = begin(options, &generation, owner.group).await?;
                claim.created(is_created)
            }
            ClaimStep::Begun { generation, whole_at_unix_millis } => {
                let behind = whole_at_unix_millis.map(age).unwrap_or_default();
                return Ok(Claimed { generation, behind });
            }
        };
        taken.map_err(|refusal| refused(options, owner, refusal))?;
    }
}

/// Returns how long ago a time was, by this machine's clock.
fn age(unix_millis: u64) -> Duration {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(unix_millis));
    at.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default()
}

fn refused(options: &ArchiveOptions, owner: &ArchiveOwner, refusal: ClaimRefusal) -> ArchiveError {
    let url = options.url.clone();
    match refusal {
        ClaimRefusal::OtherCluster { found } => {
            ArchiveError::OtherCluster { url, found, wanted: owner.cluster }
        }
        ClaimRefusal::LaterGroup { found } => {
            ArchiveError::LaterGroup { url, found: found.number(), own: owner.group.number() }
        }
        ClaimRefusal::OtherRecovery { found } => {
            ArchiveError::OtherRecovery { url, found, own: owner.group }
        }
        ClaimRefusal::Ahead { archived } => {
            ArchiveError::Ahead { url, archived, found: owner.commands }
        }
        ClaimRefusal::Overtaken { later } => {
            ArchiveError::Overtaken { url, generation: later.number }
        }
        ClaimRefusal::Unconditional => ArchiveError::Unconditional { url },
        ClaimRefusal::NoNumber { generation } => {
            let (object, damage) = (generation.to_string(), ArchiveDamage::NoNumber);
            ArchiveError::Damaged { url, object, damage }
        }
    }
}

/// Returns the state of a generation of the archive, as [`GenerationCheck`] finds it.
pub(super) async fn generation_state(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
    group: GroupGeneration,
) -> Result<GenerationState, ArchiveError> {
    let mut check = GenerationCheck::new(*generation);
    loop {
        match check.step() {
            CheckStep::FindMark(of) => {
                let is_there = began(options, &of).await?;
                check.found_mark(is_there);
            }
            CheckStep::List => {
                let there = generations(options).await?;
                check.listed(&there).map_err(|ArchiveReplaced| ArchiveError::Damaged {
                    url: options.url.clone(),
                    object: path(options, generation, BEGAN).to_string(),
                    damage: ArchiveDamage::Replaced,
                })?;
            }
            CheckStep::Create(own) => {
                let is_created = begin(options, &own, group).await?;
                check.created(is_created);
            }
            CheckStep::Ended(state) => return Ok(state),
        }
    }
}

async fn began(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
) -> Result<bool, ArchiveError> {
    match options.store.head(&path(options, generation, BEGAN)).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(failed(options)(error)),
    }
}

/// Begins a generation; returns whether it had not begun.
async fn begin(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
    group: GroupGeneration,
) -> Result<bool, ArchiveError> {
    let mark = if group.0 == 0 { String::new() } else { group.0.to_string() };
    create(options, &path(options, generation, BEGAN), mark).await
}

/// Returns whether the store refuses to create an object that exists. S3 servers that do not
/// support the condition replace it.
async fn refuses_existing(options: &ArchiveOptions) -> Result<bool, ArchiveError> {
    let number: u64 = rand::random();
    let probe = options.prefix.clone().join(format!("{PROBE}{number:016x}"));
    // It does not exist yet, unless the request was repeated: then the second one is refused, too.
    create(options, &probe, String::new()).await?;
    let is_created = create(options, &probe, String::new()).await?;
    // One that stays is empty, and is read by no namenode.
    let _ = options.store.delete(&probe).await;
    Ok(!is_created)
}

/// Creates an object if there is none of its name; returns whether it was created.
async fn create(options: &ArchiveOptions, path: &Path, text: String) -> Result<bool, ArchiveError> {
    let mode = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match options.store.put_opts(path, text.into_bytes().into(), mode).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(failed(options)(error)),
    }
}

/// Reads which generation of a group has begun a generation of the archive: the default if it was a
/// namenode alone.
pub(super) async fn group_of(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
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
    generation: &ArchiveGeneration,
    number: u64,
    manifest: &ArchiveManifest,
) -> Result<(), ArchiveError> {
    let json = serde_json::to_vec(manifest).map_err(std::io::Error::other)?;
    let mut bytes = format!("{:08x}\n", crc32c(&json)).into_bytes();
    bytes.extend(json);
    let path = path(options, generation, &manifest_name(number));
    options.store.put(&path, bytes.into()).await.map(drop).map_err(failed(options))
}

/// Removes an object that no manifest names, if it is there.
pub(super) async fn remove(options: &ArchiveOptions, path: &Path) -> Result<(), ArchiveError> {
    match options.store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed(options)(error)),
    }
}

/// Returns the names of a generation's objects.
pub(super) async fn names(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
) -> Result<BTreeSet<String>, ArchiveError> {
    let prefix = options.prefix.clone().join(generation.to_string());
    let mut objects = options.store.list(Some(&prefix));
    let mut names = BTreeSet::new();
    while let Some(object) = objects.next().await {
        let object = object.map_err(failed(options))?;
        names.extend(object.location.filename().map(str::to_owned));
    }
    Ok(names)
}

/// Reads a generation's newest manifest; `None` where it has none.
pub(super) async fn manifest(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
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

/// Removes of the older generations what [`removals`] names.
pub(super) async fn remove_older(
    options: &ArchiveOptions,
    generation: &ArchiveGeneration,
) -> Result<(), ArchiveError> {
    let there = generations(options).await?;
    let mut objects = BTreeMap::new();
    for older in there.into_iter().filter(|it| it.number < generation.number) {
        objects.insert(older, names(options, &older).await?);
    }
    let has_manifest =
        |names: &BTreeSet<String>| names.iter().any(|name| name.starts_with(MANIFEST));
    let there = objects.iter().map(|(older, names)| (*older, has_manifest(names))).collect();
    for (older, removal) in removals(*generation, &there) {
        let keeps_mark = removal == GenerationRemoval::AllButMark;
        let names = objects.get(&older).into_iter().flatten();
        for name in names.filter(|name| !(keeps_mark && name.as_str() == BEGAN)) {
            let path = path(options, &older, name);
            options.store.delete(&path).await.map_err(failed(options))?;
        }
    }
    Ok(())
}
