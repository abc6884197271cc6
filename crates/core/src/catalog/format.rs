//! What a snapshot holds, release by release.
//!
//! A catalog is written field by field. New fields are added at the end of [`Catalog`] alone, so a
//! snapshot of an earlier format is the beginning of one of this format: it is completed with what
//! the new fields are in a catalog that never used them.

use sanderling_protocol::frame::encode_body;
use sanderling_protocol::{ClusterId, Millis};

use super::Catalog;

impl Catalog {
    /// The format that this program writes: it grows by one when fields are added to [`Catalog`]
    /// (docs/UPGRADING.md).
    pub const FORMAT: u32 = 9;

    /// The oldest format of a catalog that this program reads. An older one needs a program in
    /// between (docs/UPGRADING.md).
    pub const FORMAT_MIN: u32 = 4;

    /// Returns what follows a catalog of an earlier format, in the snapshot's encoding, to make it
    /// one of this format: nothing for this format, `None` for one that is not read.
    #[must_use]
    pub fn completion(format: u32) -> Option<Vec<u8>> {
        Self::new(ClusterId(0), Millis(0)).since(format)
    }

    /// Returns this catalog as a program of an earlier format would have written it, without what
    /// that does not know; `None` for a format that is not read.
    #[must_use]
    pub fn earlier(&self, format: u32) -> Option<Vec<u8>> {
        let lacks = self.since(format)?;
        let mut bytes = encode_body(self);
        bytes.truncate(bytes.len() - lacks.len());
        Some(bytes)
    }

    /// Returns the fields that an earlier format lacks: the last ones, in their order.
    fn since(&self, format: u32) -> Option<Vec<u8>> {
        let of_9 = (&self.renamed, &self.shown_moves);
        match format {
            Self::FORMAT => Some(Vec::new()),
            8 => Some(encode_body(&of_9)),
            7 => Some(encode_body(&(&self.claims, of_9))),
            6 => Some(encode_body(&(&self.durables, &self.claims, of_9))),
            5 => Some(encode_body(&(&self.reap_queue, &self.durables, &self.claims, of_9))),
            4 => Some(encode_body(&(
                &self.service,
                &self.history,
                &self.clients,
                &self.appends,
                &self.reserve,
                &self.cancelled,
                &self.journal_loss,
                &self.revocations,
                &self.accounts,
                &self.reaping,
                &self.reap_queue,
                &self.durables,
                &self.claims,
                of_9,
            ))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::frame::decode_body;

    use super::*;

    #[test]
    fn new_catalog_ends_with_what_an_earlier_format_lacks() {
        let catalog = Catalog::new(ClusterId(7), Millis(1000));
        let whole = encode_body(&catalog);
        for format in Catalog::FORMAT_MIN..Catalog::FORMAT {
            let lacks = Catalog::completion(format).unwrap();
            let earlier = whole.strip_suffix(&lacks[..]).expect("the new fields are the last ones");
            let again: Catalog = decode_body(&[earlier, &lacks].concat()).unwrap();
            assert_eq!(again.restored(), catalog);
            assert_eq!(catalog.earlier(format).unwrap(), earlier);
        }
        assert_eq!(catalog.earlier(Catalog::FORMAT), Some(whole));
        assert_eq!(Catalog::completion(Catalog::FORMAT), Some(Vec::new()));
        assert_eq!(Catalog::completion(Catalog::FORMAT_MIN - 1), None);
        assert_eq!(Catalog::completion(Catalog::FORMAT + 1), None);
    }
}
