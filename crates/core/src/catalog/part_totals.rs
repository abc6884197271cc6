//! What the parts of multifiles and tables have together.
//!
//! The sums follow from the objects and are made anew when a snapshot is read. Without them, the
//! metadata of a table of a million parts would visit all of them.

use std::collections::BTreeMap;

use sanderling_protocol::ObjectId;
use sanderling_protocol::message::ObjectKind;

use super::object::{Object, Objects};

/// The sums of the containers whose parts have any bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sums(BTreeMap<ObjectId, Sum>);

/// Published and lost bytes of the parts of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    pub(super) lost_bytes: u64,
}

impl Sums {
    /// Returns the sums as they follow from the objects. Cost: linear in the objects.
    pub(super) fn of(objects: &Objects) -> Self {
        let mut sums = Self::default();
        objects.values().for_each(|object| sums.count(objects, object, true));
        sums
    }

    /// Returns what the parts of a container have together.
    pub(super) fn get(&self, container: ObjectId) -> Sum {
        self.0.get(&container).copied().unwrap_or_default()
    }

    /// Notes that an object came into its container with its bytes, or that it leaves.
    pub(super) fn count(&mut self, objects: &Objects, object: &Object, comes: bool) {
        let Some(data) = object.data() else { return };
        let (bytes, lost) = (data.bytes.cast_signed(), data.lost_bytes.cast_signed());
        let sign = if comes { 1 } else { -1 };
        self.change(objects, object, sign * bytes, sign * lost);
    }

    /// Notes that the bytes of an object change, if a container holds it.
    pub(super) fn change(
        &mut self,
        objects: &Objects,
        object: &Object,
        bytes: i64,
        lost_bytes: i64,
    ) {
        let is_nothing = !object.is_bound || (bytes, lost_bytes) == (0, 0);
        if is_nothing || !objects.get(&object.parent).is_some_and(has_sum) {
            return;
        }
        let sum = self.0.entry(object.parent).or_default();
        sum.bytes = sum.bytes.saturating_add_signed(bytes);
        sum.lost_bytes = sum.lost_bytes.saturating_add_signed(lost_bytes);
        if *sum == Sum::default() {
            self.0.remove(&object.parent);
        }
    }

    /// Forgets a container that goes.
    pub(super) fn remove(&mut self, container: &ObjectId) {
        self.0.remove(container);
    }

    /// Adds where the sums are not what follows from the objects.
    pub(super) fn check(&self, objects: &Objects, problems: &mut Vec<String>) {
        if *self != Self::of(objects) {
            problems.push("the sums of containers are not what their parts have".to_owned());
        }
    }
}

const fn has_sum(container: &Object) -> bool {
    matches!(container.kind(), ObjectKind::Multifile | ObjectKind::Table)
}
