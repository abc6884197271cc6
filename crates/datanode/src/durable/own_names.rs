//! Names in a store that are no objects'.

/// Where the store names its durable directory, below `STORE_OWN_NAME` of the protocol.
pub(super) const OWNER_NAME: &str = "owner";
