//! Everything that reads a body of a cloud's metadata service or of who gives notice.

use super::{aws, azure, file, gcp, moment, webhook};

/// Reads one text in every way there is; says in how many it was understood.
pub(crate) fn read_everything(text: &str) -> usize {
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
