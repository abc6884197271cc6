//! Whether something is mounted where a directory is.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

/// What is mounted at a directory itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountedThere {
    /// Nothing, or there is no directory.
    Nothing,
    /// A part of the file system above it or of that of `/`, as where a directory is bound to
    /// itself.
    SameFileSystem,
    /// Another file system.
    OtherFileSystem,
}

/// A directory, as far as it shows what is mounted there.
#[derive(Debug, Clone, Copy)]
struct DirectoryLook {
    /// The major and minor number of its device.
    device: (u32, u32),
    /// Whether it is the root of a mount; `None` where the system does not show it.
    is_mount_root: Option<bool>,
}

impl From<&Statx> for DirectoryLook {
    fn from(found: &Statx) -> Self {
        // Since Linux 5.8.
        let is_shown = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
        Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            is_mount_root: is_shown
                .then(|| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        }
    }
}

/// Returns what is mounted at a directory, not above it.
///
/// # Errors
/// The system does not show it, as where the server of a file system is away.
pub(crate) fn mounted_there(directory: &Path) -> io::Result<MountedThere> {
    let Some(found) = looked_at(directory)? else { return Ok(MountedThere::Nothing) };
    // The directory above what a link leads to; a file has none.
    let Some(above) = looked_at(&directory.join(".."))? else { return Ok(MountedThere::Nothing) };
    let root = looked_at(Path::new("/"))?.ok_or(io::ErrorKind::NotFound)?;
    Ok(mounted((&found).into(), [(&above).into(), (&root).into()]))
}

/// Returns whether a path itself, and not what a link leads to, is the root of a mount; `None`
/// where the system does not show that (before Linux 5.8).
///
/// # Errors
/// The system does not show the path, as where the server of a file system is away.
pub(crate) fn is_mount_root(path: &Path) -> io::Result<Option<bool>> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
    Ok(DirectoryLook::from(&found).is_mount_root)
}

/// Decides by a directory, and by the one above it and `/`.
fn mounted(directory: DirectoryLook, others: [DirectoryLook; 2]) -> MountedThere {
    let is_same = others.iter().any(|other| other.device == directory.device);
    match directory.is_mount_root {
        Some(true) if is_same => MountedThere::SameFileSystem,
        Some(true) => MountedThere::OtherFileSystem,
        None if !is_same => MountedThere::OtherFileSystem,
        None | Some(false) => MountedThere::Nothing,
    }
}

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

    #[test]
    fn something_is_mounted_at_a_directory_and_not_at_what_is_below_it() {
        let there = |path: &str| mounted_there(Path::new(path)).expect("it can be looked at");
        assert_eq!(there("/proc"), MountedThere::OtherFileSystem);
        for path in ["/proc/self/task", "/proc/self/stat", "/none-of-this-name", "/etc/none"] {
            assert_eq!(there(path), MountedThere::Nothing, "{path}");
        }
        assert_ne!(there("/"), MountedThere::OtherFileSystem);
    }

    #[test]
    fn directory_that_is_bound_to_itself_or_to_one_of_the_root_is_no_other_file_system() {
        let look = |device, is_mount_root| DirectoryLook { device: (8, device), is_mount_root };
        let (above, root) = (look(1, Some(false)), look(2, Some(true)));
        let there = |device, is_root| mounted(look(device, is_root), [above, root]);
        assert_eq!(there(3, Some(true)), MountedThere::OtherFileSystem);
        assert_eq!(there(1, Some(true)), MountedThere::SameFileSystem);
        assert_eq!(there(2, Some(true)), MountedThere::SameFileSystem);
        // A subvolume has a device of its own.
        assert_eq!(there(3, Some(false)), MountedThere::Nothing);
        assert_eq!(there(1, Some(false)), MountedThere::Nothing);
        // Where the system does not show roots of mounts.
        assert_eq!(there(3, None), MountedThere::OtherFileSystem);
        assert_eq!([there(1, None), there(2, None)], [MountedThere::Nothing; 2]);
    }
}
