//! What the native halves of the Python and the Java client share: the schema of metadata and of
//! errors, options, and buffers that are borrowed from the other language.

mod buffers;
mod cluster;
mod errors;
mod metadata;
mod options;
mod spans;

pub use buffers::{Borrowed, ReleaseQueue};
pub use cluster::{resolve, split_url, with_next};
pub use errors::ErrorFields;
pub use metadata::{Field, Listed, Metadata, Value};
pub use options::{CredentialsError, affinity, condition, credentials, register_job};
pub use sanderling_context::{AddressError, ContextError, Explicit, Resolved};
pub use spans::{SpansError, end_export, export_spans, in_span, many_in_span};
