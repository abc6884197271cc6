//! Which generation of its group a directory was recovered or restored as. It counts for a namenode
//! that is alone; a member's own state has its generation besides.

use sanderling_core::group_generation::RestoredGeneration;
use sanderling_core::replica::GroupGeneration;
use serde::{Deserialize, Serialize};

use super::log::LogError;
use crate::directory::Directory;
use crate::file_names::{GROUP_FLOOR, GROUP_GENERATION};

/// Longest file: more than its one number needs. A longer file is damage.
const BYTES_MAX: usize = 4096;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryOrigin {
    generation: GroupGeneration,
}

/// Reads the generation of a directory; that of one that was never recovered is the default.
pub(crate) fn read(directory: &Directory) -> Result<GroupGeneration, LogError> {
    Ok(read_file(directory, GROUP_GENERATION)?.unwrap_or_default())
}

/// Returns the generation of a group that the namenode of a directory without one founds so many
/// seconds after 1970.
pub(crate) fn founding(
    directory: &Directory,
    unix_seconds: u64,
) -> Result<GroupGeneration, LogError> {
    Ok(match read_file(directory, GROUP_FLOOR)? {
        None => GroupGeneration::first(unix_seconds),
        Some(floor) => floor.after_restore(unix_seconds, rand::random()),
    })
}

fn read_file(directory: &Directory, name: &str) -> Result<Option<GroupGeneration>, LogError> {
    let path = directory.path().join(name);
    let fail = |cause| LogError::Io { path: path.clone(), cause };
    let names = directory.files().names(directory.path()).map_err(fail)?;
    if !names.iter().any(|found| found == name) {
        return Ok(None);
    }
    let mut bytes = vec![0; BYTES_MAX];
    let file = directory.files().open(&path).map_err(fail)?;
    let count = file.read_at(&mut bytes, 0).map_err(fail)?;
    let origin = serde_json::from_slice::<DirectoryOrigin>(&bytes[..count]);
    let origin =
        origin.map_err(|error| LogError::Damaged { path: path.clone(), damage: error.into() })?;
    Ok(Some(origin.generation))
}

/// Writes the generation of a directory. The disk has it when this returns.
pub(crate) fn write(directory: &Directory, generation: GroupGeneration) -> Result<(), LogError> {
    write_file(directory, GROUP_GENERATION, generation)
}

/// Writes what a directory is that is restored. The disk has it when this returns.
pub(crate) fn write_restored(
    directory: &Directory,
    restored: RestoredGeneration,
) -> Result<(), LogError> {
    match restored {
        RestoredGeneration::Alone(floor) => write_file(directory, GROUP_FLOOR, floor),
        RestoredGeneration::Anew(generation) => write(directory, generation),
    }
}

fn write_file(
    directory: &Directory,
    name: &str,
    generation: GroupGeneration,
) -> Result<(), LogError> {
    let path = directory.path().join(name);
    let json = serde_json::to_vec(&DirectoryOrigin { generation });
    let json = json.map_err(|error| LogError::Io { path: path.clone(), cause: error.into() })?;
    let written = directory.publish(&path, &[&json]);
    written.map(drop).map_err(|error| LogError::Io { path, cause: error.into() })
}
