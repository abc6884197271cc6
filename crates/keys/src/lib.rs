//! Secrets, tokens and certificates: `sanderling token` and `sanderling tls`, and what `sanderling
//! local` makes of them for a secure cluster.

mod private_file;
pub mod tls;
pub mod token;

pub use private_file::write_private;
