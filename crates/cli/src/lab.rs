//! `sanderling lab`: real processes behind shaped links are preempted, and what that costs is
//! measured.

#[allow(dead_code, reason = "the experiments fill it and the pages read it")]
pub(crate) mod record;
