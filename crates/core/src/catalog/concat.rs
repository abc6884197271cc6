//! Making one file of the blocks of others.

use std::collections::BTreeSet;

use sanderling_protocol::limits::CONCAT_PARTS_MAX;
use sanderling_protocol::message::{Concat, ObjectKind};
use sanderling_protocol::{ObjectId, Path, Refusal, Reply};

use super::Catalog;
use super::job_limits::attribute_bytes;
use super::namespace::Destination;
use super::object::{Data, ObjectBody};
use super::orders::Orders;

impl Catalog {
    /// Makes one sealed file of others. Refusals are found before anything is changed, except that
    /// directories made on the way stay.
    pub(super) fn concat(
        &mut self,
        request: &Concat,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        if let Ok(id) = self.resolve(&request.to) {
            let is_repeated = |data: &Data| data.created_by == request.writer;
            if self.objects[&id].data().is_some_and(is_repeated) {
                return Ok(Reply::Stat(self.stat_of(id, self.now)?));
            }
        }
        request.attributes.check()?;
        let parts = self.parts_of(&request.parts)?;
        let stored = |part: &&ObjectId| self.durables.is_restoring(**part);
        let stored: Vec<ObjectId> = parts.iter().filter(stored).copied().collect();
        if !stored.is_empty() {
            return Err(self.want(&stored));
        }
        let (parent, name) = self.parent_for(&request.to, ObjectKind::File, request.parents)?;
        self.check_condition(request.condition, parent, name)?;
        if let Some(existing) = self.container_child(parent, name)
            && self.objects[&existing].container().is_some()
        {
            return Err(Refusal::IsADirectory { path: request.to.clone() });
        }
        self.check_store_key(parent, name)?;
        self.check_not_waiting_child(parent, name)?;
        let job = self.objects[&parent].job;
        for (id, path) in parts.iter().zip(&request.parts) {
            if self.objects[id].job != job {
                let (from, to) = (path.clone(), request.to.clone());
                return Err(Refusal::CrossesJob { from, to });
            }
        }
        let before = parts.iter().map(|part| self.attributes.bytes_of(*part)).sum();
        self.check_limits(job, 0, before, attribute_bytes(&request.attributes))?;
        let id = self.insert_joined(request, &parts, parent, name);
        self.defer_durable();
        for part in parts {
            self.delete_tree(part, orders);
        }
        self.unnamed.add(parent);
        let joined = self.bind_sealed(id, None, Some(&request.to), orders);
        self.note_deferred();
        joined
    }

    /// Finds the parts and refuses what cannot be one.
    fn parts_of(&self, paths: &[Path]) -> Result<Vec<ObjectId>, Refusal> {
        if paths.is_empty() {
            let why = "a concatenation needs at least one part".to_owned();
            return Err(Refusal::BadRequest { why });
        }
        if paths.len() > CONCAT_PARTS_MAX {
            let (value, limit) = (paths.len() as u64, CONCAT_PARTS_MAX as u64);
            return Err(Refusal::TooLarge { what: "parts of one file".to_owned(), value, limit });
        }
        let mut seen = BTreeSet::new();
        let mut parts = Vec::with_capacity(paths.len());
        for path in paths {
            let id = self.resolve(path)?;
            let wrong =
                |why: &str| Err(Refusal::WrongKind { path: path.clone(), why: why.to_owned() });
            let Some(data) = self.objects[&id].data() else {
                return Err(Refusal::IsADirectory { path: path.clone() });
            };
            if data.kind != ObjectKind::File {
                return wrong("only files are parts of a file");
            }
            if !data.is_sealed {
                return wrong("a part must be sealed first");
            }
            if data.lost_bytes > 0 {
                // No file is created with bytes missing: the client writes the part again.
                let ranges = self.whole_layout(id, path).lost_ranges();
                let (path, object) = (path.clone(), id);
                return Err(Refusal::DataUnavailable { path, object, ranges });
            }
            let has_inline = data.inline.as_ref().is_some_and(|inline| !inline.is_empty());
            if has_inline && !parts.is_empty() {
                return wrong(
                    "only the first part may be a value in the catalog: write it with blocks",
                );
            }
            if !seen.insert(id) {
                return wrong("a file is a part once at most");
            }
            self.check_not_waiting(id)?;
            parts.push(id);
        }
        Ok(parts)
    }

    /// Makes the new file of the parts' bytes, which the parts have no longer.
    fn insert_joined(
        &mut self,
        request: &Concat,
        parts: &[ObjectId],
        parent: ObjectId,
        name: &str,
    ) -> ObjectId {
        let id = self.ids.next_object();
        // Not 0, which is the mark of what was never sealed.
        let sealed_by = self.ids.next_lease();
        let first = self.objects[&parts[0]].data().expect("parts are files");
        let mut data = Data {
            delete_after_read: first.delete_after_read,
            is_sealed: true,
            sealed_by,
            ..Data::new(ObjectKind::File, first.class, request.writer)
        };
        let mut moved = 0;
        for part in parts {
            self.set_stored(*part, false);
            self.sum_object(*part, false);
            let of_part = self.data_mut(*part);
            data.bytes += std::mem::take(&mut of_part.bytes);
            data.lost_bytes += std::mem::take(&mut of_part.lost_bytes);
            // The job's account goes on: the bytes only change their object.
            let inline = of_part.inline.take().filter(|inline| !inline.is_empty());
            moved += inline.as_ref().map_or(0, |inline| inline.len() as u64);
            let blocks = std::mem::take(&mut of_part.blocks);
            data.inline = data.inline.or(inline);
            for block in blocks.iter() {
                data.blocks.push(*block);
                self.blocks.set_object(*block, id);
            }
        }
        self.memory.count(0, moved);
        let (is_listed, ttl) = (request.is_listed, request.ttl);
        let place = Destination { parent, name, is_listed, ttl };
        self.insert_unbound(id, place, ObjectBody::Data(data));
        self.keep_attributes(id, &request.attributes);
        id
    }
}
