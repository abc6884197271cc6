//! Durable directories: whether their stores take what is sealed below them.

use sanderling_command::units;
use sanderling_protocol::message::DurableStatus;

use super::check::{Check, listed};
use super::fleet::not_seen;
use super::observations::ClusterLook;

/// Judges the durable directories; a cluster without any has nothing to be judged.
pub(super) fn all(look: &ClusterLook) -> Option<Check> {
    let directories = match &look.durable {
        Ok(directories) if directories.is_empty() => return None,
        Ok(directories) => directories,
        Err(unseen) => return Some(not_seen("durable.unseen", "durable directories", unseen)),
    };
    let is_stalled = |status: &&DurableStatus| !status.stalled.is_empty();
    let stalled: Vec<String> = directories.iter().filter(is_stalled).map(reason).collect();
    let count = units::count(directories.len() as u64, "directory", "directories");
    let waiting = directories.iter().map(|status| status.backlog_bytes).sum();
    let oldest = directories.iter().filter_map(|status| status.backlog_age).max();
    let waiting = match oldest {
        None => "all is in the stores".to_owned(),
        Some(age) => {
            let (bytes, age) = (units::bytes(waiting), units::millis(age));
            format!("{bytes} wait for the stores, since {age} ago")
        }
    };
    Some(match stalled.is_empty() {
        true => Check::ok("durable", format!("{count}; {waiting}")),
        false => {
            let count = units::count(stalled.len() as u64, "directory stalls", "directories stall");
            let found = format!("{count}, {waiting}: {}", listed(&stalled));
            let mend = "docs/DAY-TWO.md#sanderlingdurablestalled";
            Check::warn("durable.stalled", found, mend)
        }
    })
}

fn reason(status: &DurableStatus) -> String {
    format!("{} ({})", status.directory, status.stalled)
}
