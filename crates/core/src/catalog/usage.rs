//! What a subtree holds.

use sanderling_protocol::message::Usage;
use sanderling_protocol::{Path, Refusal};

use super::Catalog;
use super::object::Body;

impl Catalog {
    /// Sums up a subtree, its root among it.
    pub(crate) fn usage(&self, path: &Path) -> Result<Usage, Refusal> {
        let mut usage = Usage::default();
        for id in self.subtree(self.resolve(path)?) {
            match &self.objects[&id].body {
                Body::Container(_) => usage.directories += 1,
                Body::Data(data) => {
                    usage.files += 1;
                    usage.bytes += data.bytes;
                    usage.lost_bytes += data.lost_bytes;
                }
            }
        }
        Ok(usage)
    }
}
