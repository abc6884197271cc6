//! Everything that reads a body of a cloud's metadata service or of a posted notice.

use crate::{aws, azure, file, gcp, moment, webhook};

/// Reads one text as every source would; returns how many of them understood it.
#[must_use]
pub fn read_everything(text: &str) -> usize {
    [
        aws::notice(text).is_ok(),
        aws::recommendation(text).is_ok(),
        azure::taking(text).is_ok(),
        gcp::read(text).is_ok(),
        file::understands(text),
        webhook::read(text.as_bytes()).is_ok(),
        moment::from_rfc3339(text).is_some(),
        moment::from_http(text).is_some(),
        moment::from_go(text).is_some(),
    ]
    .into_iter()
    .filter(|is_understood| *is_understood)
    .count()
}
