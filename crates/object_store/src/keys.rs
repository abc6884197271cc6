//! Locations of `object_store` and paths of the cluster.

use object_store::path::{Path as Location, PathPart};
use sanderling_client::ClientError;
use sanderling_protocol::Path;
use sanderling_protocol::message::{Entry, ObjectStat};

use crate::error::{self, Result};

/// Returns the path of a location below `prefix`, letter for letter.
///
/// # Errors
/// `Generic` with `BadPath` when a part is longer than 255 bytes or there are more than 128.
pub(crate) fn path(prefix: &Path, location: &Location) -> Result<Path> {
    if location.is_root() {
        return Ok(prefix.clone());
    }
    let above = if prefix.is_root() { "" } else { prefix.as_str() };
    let path = format!("{above}/{location}").parse();
    path.map_err(|refusal| error::of(location, ClientError::Refused(refusal)))
}

/// Returns the location of a name in a directory.
///
/// # Errors
/// `InvalidPath` for a name with control characters, which a location cannot have.
pub(crate) fn child(directory: &Location, name: &str) -> Result<Location> {
    let part = PathPart::parse(name).map_err(|source| {
        let path = format!("{directory}/{name}");
        object_store::path::Error::BadSegment { path, source }
    })?;
    Ok(directory.clone().join(part))
}

/// Returns whether there is an object for this interface: a directory is none, nor is what is still
/// being written.
pub(crate) fn is_object(stat: &ObjectStat) -> bool {
    !stat.kind.is_container() && stat.is_sealed
}

/// Returns whether a line of a listing is an object for this interface: neither a directory nor
/// still being written.
pub(crate) fn is_listed_object(entry: &Entry) -> bool {
    !entry.kind.is_container() && entry.is_sealed
}
