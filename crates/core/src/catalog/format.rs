//! What a snapshot holds, release by release.
//!
//! A catalog is written field by field. New fields are added at the end of [`Catalog`] alone, so a
//! snapshot of an earlier format is the beginning of one of this format: it is completed with what
//! the new fields are in a catalog that never used them.

use std::collections::BTreeMap;

use sanderling_protocol::frame::encode_body;
use sanderling_protocol::message::JobLimits;
use sanderling_protocol::{Instant, JobId, NodeId, ObjectId};

use super::Catalog;
use super::clients::Clients;
use super::history::History;
use super::reap::Reaping;
use super::revocations::Revocations;
use super::room::Reserve;
use super::service_time::ServiceTime;

impl Catalog {
    /// The format that this program writes.
    pub const FORMAT: u32 = 5;

    /// The oldest format that it reads: that of the release before.
    pub const FORMAT_MIN: u32 = 4;

    /// Returns what follows a catalog of an earlier format, in the snapshot's encoding, to make it
    /// one of this format: nothing for this format, `None` for one that is not read.
    #[must_use]
    pub fn completion(format: u32) -> Option<Vec<u8>> {
        match format {
            Self::FORMAT => Some(Vec::new()),
            4 => {
                let (service, history) = (ServiceTime::default(), History::default());
                let (clients, reserve) = (Clients::default(), Reserve::default());
                let appended_from: BTreeMap<ObjectId, u64> = BTreeMap::new();
                let cancelled: BTreeMap<NodeId, Instant> = BTreeMap::new();
                let journal_loss = super::JournalLoss::default();
                let revocations = Revocations::default();
                let job_limits: BTreeMap<JobId, JobLimits> = BTreeMap::new();
                Some(encode_body(&(
                    service,
                    history,
                    clients,
                    appended_from,
                    reserve,
                    cancelled,
                    journal_loss,
                    revocations,
                    job_limits,
                    Reaping::default(),
                )))
            }
            _ => None,
        }
    }

    /// Returns this catalog as a program of an earlier format would have written it, without what
    /// that does not know; `None` for a format that is not read.
    #[must_use]
    pub fn earlier(&self, format: u32) -> Option<Vec<u8>> {
        let lacks = Self::completion(format)?;
        let mut image = self.image();
        if format < Self::FORMAT {
            (image.service, image.history) = (ServiceTime::default(), History::default());
            (image.clients, image.reserve) = (Clients::default(), Reserve::default());
            (image.appended_from, image.cancelled) = (BTreeMap::new(), BTreeMap::new());
            image.journal_loss = super::JournalLoss::default();
            (image.revocations, image.job_limits) = (Revocations::default(), BTreeMap::new());
            image.reaping = Reaping::default();
        }
        let mut bytes = encode_body(&image);
        bytes.truncate(bytes.len() - lacks.len());
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::frame::decode_body;
    use sanderling_protocol::{ClusterId, Millis};

    use super::*;

    #[test]
    fn new_catalog_ends_with_what_an_earlier_format_lacks() {
        let catalog = Catalog::new(ClusterId(7), Millis(1000));
        let whole = encode_body(&catalog);
        let lacks = Catalog::completion(4).unwrap();
        let earlier = whole.strip_suffix(&lacks[..]).expect("the new fields are the last ones");
        let again: Catalog = decode_body(&[earlier, &lacks].concat()).unwrap();
        assert_eq!(again.restored(), catalog);
        assert_eq!(catalog.earlier(4).unwrap(), earlier);
        assert_eq!(catalog.earlier(Catalog::FORMAT), Some(whole));
        assert_eq!(Catalog::completion(Catalog::FORMAT), Some(Vec::new()));
        assert_eq!(Catalog::completion(3), None);
        assert_eq!(Catalog::completion(6), None);
    }
}
