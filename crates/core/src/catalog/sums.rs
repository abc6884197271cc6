//! What the parts of multifiles and tables have together.
//!
//! The sums follow from the objects and are made anew when a snapshot is read. Without them, facts
//! about a table of a million parts would visit all of them.

use std::collections::BTreeMap;

use sanderling_protocol::ObjectId;
use sanderling_protocol::message::ObjectKind;

use super::Catalog;
use super::object::Object;

/// Published and lost bytes of the parts of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    pub(super) lost_bytes: u64,
}

impl Catalog {
    /// Returns what the parts of a container have together.
    pub(super) fn sum_of(&self, container: ObjectId) -> Sum {
        self.sums.get(&container).copied().unwrap_or_default()
    }

    /// Notes that an object came into its container with its bytes, or that it leaves.
    pub(super) fn sum_object(&mut self, id: ObjectId, comes: bool) {
        let Some(data) = self.objects.get(&id).and_then(Object::data) else { return };
        let (bytes, lost) = (data.bytes.cast_signed(), data.lost_bytes.cast_signed());
        let sign = if comes { 1 } else { -1 };
        self.sum_bytes(id, sign * bytes, sign * lost);
    }

    /// Notes that the bytes of an object change, if a container holds it.
    pub(super) fn sum_bytes(&mut self, id: ObjectId, bytes: i64, lost_bytes: i64) {
        let Some(object) = self.objects.get(&id).filter(|object| object.is_bound) else { return };
        let parent = object.parent;
        if !self.objects.get(&parent).is_some_and(has_sum) {
            return;
        }
        let sum = self.sums.entry(parent).or_default();
        sum.bytes = sum.bytes.saturating_add_signed(bytes);
        sum.lost_bytes = sum.lost_bytes.saturating_add_signed(lost_bytes);
        if *sum == Sum::default() {
            self.sums.remove(&parent);
        }
    }

    /// Returns the sums as they follow from the objects. Cost: linear in the objects.
    pub(super) fn derived_sums(&self) -> BTreeMap<ObjectId, Sum> {
        let mut sums: BTreeMap<ObjectId, Sum> = BTreeMap::new();
        for object in self.objects.values().filter(|object| object.is_bound) {
            let Some(data) = object.data() else { continue };
            let is_empty = data.bytes == 0 && data.lost_bytes == 0;
            if !is_empty && self.objects.get(&object.parent).is_some_and(has_sum) {
                let sum = sums.entry(object.parent).or_default();
                sum.bytes += data.bytes;
                sum.lost_bytes += data.lost_bytes;
            }
        }
        sums
    }
}

const fn has_sum(container: &Object) -> bool {
    matches!(container.kind(), ObjectKind::Multifile | ObjectKind::Table)
}
