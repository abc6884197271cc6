//! What the native halves of the Python and the Java client share: the schema of metadata and of
//! errors, options, and buffers that are borrowed from the other language.

mod buffers;
mod cluster;
mod errors;
mod metadata;
mod options;

pub use buffers::{Borrowed, ReleaseQueue};
pub use cluster::{resolve, split_url};
pub use errors::ErrorFields;
pub use metadata::{Field, Listed, Metadata, Value};
pub use options::{affinity, condition, credentials, register_job};
pub use sanderling_context::{Explicit, Resolved};
