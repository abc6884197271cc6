//! What must hold of a cluster and of a store alone, whatever was killed. Each check returns what
//! is broken; `injected_bugs.rs` shows that each can.

use std::path::Path as LocalPath;

use serde_json::Value;

use crate::cluster::Ran;
use crate::store::Objects;
use crate::task::{Backend, ChaosTask};

/// What is expected of the newest generation of a backend.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Expected {
    /// The generation that must be there, or a later one.
    pub(crate) floor: u64,
    /// The newest generation that is listed.
    pub(crate) listed: u64,
    /// The last generation that may have lost bytes with a datanode.
    pub(crate) lost_up_to: u64,
}

/// Restores the newest generation of a backend and verifies its bytes. Returns its number, and its
/// count if it shows one.
///
/// # Errors
/// None restores, its bytes are others, or the newest one that is there is passed over.
pub(crate) fn newest_good(
    task: &ChaosTask,
    backend: &Backend,
    into: &LocalPath,
    expected: Expected,
) -> Result<(u64, Option<u32>), String> {
    let Expected { floor, listed, lost_up_to } = expected;
    let (generation, count) = task.restored(backend, into)?;
    let least = if listed > lost_up_to { floor.max(listed) } else { floor };
    if generation >= least {
        return Ok((generation, count));
    }
    Err(format!("{}: generation {generation} was restored instead of {least}", backend.place))
}

/// Checks what `task verify` has read: of no generation anything is missing or damaged, but for
/// those that may have lost bytes with a datanode.
///
/// # Errors
/// A manifest is there without all that it names, or the backend could not be read.
pub(crate) fn all_whole(verified: &Ran, lost_up_to: u64) -> Result<(), String> {
    if !matches!(verified.code, 0 | 5) {
        return Err(verified.to_string());
    }
    let document: Value =
        serde_json::from_str(&verified.stdout).map_err(|error| format!("{error}: {verified}"))?;
    let rows = document["generations"].as_array().cloned().unwrap_or_default();
    for row in rows {
        let number = row["generation"].as_u64().expect("a number");
        if row["is_good"] != true && number > lost_up_to {
            return Err(format!("generation {number} is not whole: {}", row["why"]));
        }
    }
    Ok(())
}

/// Checks what `task verify` has read while its store was killed: it may have failed, but not have
/// taken what it did not get for what is not there.
///
/// # Errors
/// As [`all_whole`], or it found no checkpoint although there was one.
pub(crate) fn read_while_killed(
    verified: &Ran,
    has_any: bool,
    lost_up_to: u64,
) -> Result<(), String> {
    match verified.code {
        4 => Ok(()),
        3 if !has_any => Ok(()),
        _ => all_whole(verified, lost_up_to),
    }
}

/// Returns the names of durable objects that the store does not have, or has with another length.
pub(crate) fn missing(durable: &Objects, store: &Objects) -> Vec<String> {
    let is_missing = |(name, bytes): &(&String, &u64)| store.get(*name) != Some(*bytes);
    durable.iter().filter(is_missing).map(|(name, _)| name.clone()).collect()
}

/// Checks the counts of a task whose last run wrote those from the place `since` on. Returns the
/// first count of that run, which no later run may be behind.
///
/// # Errors
/// A count was left out, or the last run has begun before `floor`: work was lost.
pub(crate) fn went_on(counts: &[u32], since: usize, floor: u32) -> Result<u32, String> {
    if let Some(pair) = counts.windows(2).find(|pair| pair[1] > pair[0] + 1) {
        return Err(format!("{} follows {}", pair[1], pair[0]));
    }
    match counts[since..].iter().min().copied() {
        Some(first) if first >= floor => Ok(first),
        Some(first) => Err(format!("it began at {first}, and {floor} was stored")),
        None => Err("it did not count".to_owned()),
    }
}
