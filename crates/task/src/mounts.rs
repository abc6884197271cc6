//! Whether something is mounted where a directory is.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;

/// Returns whether a directory is on the mount of `/`, or would be if it were made now: nothing
/// that survives this machine is mounted there.
///
/// # Errors
/// The system does not show it, as where the server of a file system is away.
pub(crate) fn is_on_root(directory: &Path) -> io::Result<bool> {
    let whole = std::path::absolute(directory)?;
    let root = looked_at(Path::new("/"))?.ok_or(io::ErrorKind::NotFound)?;
    for above in whole.ancestors() {
        if let Some(found) = looked_at(above)? {
            return Ok(are_on_one_mount(&found, &root));
        }
    }
    Ok(true)
}

/// Looks at a directory, and mounts what the system mounts at such a look; `None` if there is none.
fn looked_at(path: &Path) -> io::Result<Option<Statx>> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    match statx(CWD, path, AtFlags::empty(), wanted) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn are_on_one_mount(one: &Statx, other: &Statx) -> bool {
    let has_mount = |it: &Statx| it.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if has_mount(one) && has_mount(other) {
        return one.stx_mnt_id == other.stx_mnt_id;
    }
    // Linux before 5.8: a directory of one device that is mounted twice looks as if it were not.
    let device = |it: &Statx| (it.stx_dev_major, it.stx_dev_minor);
    device(one) == device(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_do_not_exist_are_where_they_would_be_made() {
        assert!(is_on_root(Path::new("/")).expect("the root"));
        assert!(is_on_root(Path::new("/none-of-this-name/below")).expect("the root above it"));
        assert!(!is_on_root(Path::new("/proc/none-of-this-name/below")).expect("a mount"));
    }
}
