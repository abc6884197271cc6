//! The command line of `sanderling bench`.

pub(crate) mod bench;
pub(crate) mod noisy;
pub(crate) mod scale;
