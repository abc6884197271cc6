//! Names in a store that are no objects'.

/// The directory of a store that has no objects: uploads, and whose the store is.
pub(super) const OWN_NAME: &str = ".sanderling";

/// Where the store names its durable directory, below [`OWN_NAME`].
pub(super) const OWNER_NAME: &str = "owner";
