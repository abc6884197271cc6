//! Walking the namespace.

use sanderling_protocol::{BlockId, ObjectId, Path, Refusal};

use super::Catalog;
use super::memory::texts;
use super::name::Name;
use super::object::{Object, ObjectBody, ROOT, path_of};
use super::orders::Orders;
use super::timers::Timer;

impl Catalog {
    /// Finds a bound object by its exact name.
    pub(crate) fn resolve(&self, path: &Path) -> Result<ObjectId, Refusal> {
        self.walk(path.components()).map_err(|at| self.not_found(at, path))
    }

    /// Walks down from the root. Returns the object, or the last one on the way to it.
    pub(super) fn walk<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<ObjectId, ObjectId> {
        let mut at = ROOT;
        for name in names {
            at = self.container_child(at, name).ok_or(at)?;
        }
        Ok(at)
    }

    /// Returns why a path leads to nothing, which ends at an object.
    pub(super) fn not_found(&self, at: ObjectId, path: &Path) -> Refusal {
        match self.objects[&at].container() {
            Some(_) if let Err(refusal) = self.check_adopted_at(at) => refusal,
            Some(_) => Refusal::NotFound { path: path.clone() },
            None => Refusal::NotADirectory { path: self.path_or_root(at) },
        }
    }

    /// Returns the path under which an object is, or will be, named; `None` if it is gone or a
    /// directory above it is.
    pub(super) fn path_of(&self, id: ObjectId) -> Option<Path> {
        path_of(&self.objects, id)
    }

    pub(super) fn path_or_root(&self, object: ObjectId) -> Path {
        self.path_of(object).unwrap_or_else(Path::root)
    }

    /// Returns an object and everything in it, each container before what it holds.
    pub(super) fn subtree(&self, root: ObjectId) -> Vec<ObjectId> {
        let mut found = vec![root];
        let mut next = 0;
        while next < found.len() {
            found.extend(self.names.children(found[next]));
            next += 1;
        }
        found
    }

    /// Takes an object out of its container.
    pub(super) fn unbind(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get(&id).filter(|object| object.is_bound) else { return };
        self.names.unbind(&self.objects, id, object);
        self.sum_object(id, false);
        let object = &self.objects[&id];
        let (parent, now) = (object.parent, self.now);
        self.objects.get_mut(&id).expect("just found").is_bound = false;
        if let Some(parent) = self.objects.get_mut(&parent) {
            parent.modified_at = now;
        }
    }

    /// Puts an object into a container under a name that is free there.
    pub(super) fn bind(&mut self, id: ObjectId, parent: ObjectId, name: &str) {
        let now = self.now;
        let object = self.objects.get_mut(&id).expect("a present object is bound");
        object.parent = parent;
        let before = std::mem::replace(&mut object.name, Name::from(name));
        object.is_bound = true;
        self.objects.get_mut(&parent).expect("the container was resolved").modified_at = now;
        self.names.bind(&self.objects, id, &self.objects[&id]);
        self.memory.count(name.len() as u64, before.as_bytes().len() as u64);
        self.sum_object(id, true);
    }

    /// Notes that an object came into its container with its bytes, or that it leaves.
    pub(super) fn sum_object(&mut self, id: ObjectId, comes: bool) {
        if let Some(object) = self.objects.get(&id) {
            self.sums.count(&self.objects, object, comes);
        }
    }

    /// Notes that the bytes of an object change.
    pub(super) fn sum_bytes(&mut self, id: ObjectId, bytes: i64, lost_bytes: i64) {
        if let Some(object) = self.objects.get(&id) {
            self.sums.change(&self.objects, object, bytes, lost_bytes);
        }
    }

    /// Returns whether a container holds nothing that its deletion would take from a writer.
    pub(super) fn is_empty_container(&self, id: ObjectId) -> bool {
        let is_awaited = self.reaping.rules.keeps_open_directories() && self.unnamed.has(id);
        self.names.count(id) == 0 && !is_awaited
    }

    /// Notes that an object gets its name, or goes without one.
    pub(super) fn awaits_no_name(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get(&id) {
            self.unnamed.remove(object);
        }
    }

    /// Removes an object with everything in it at once, as logs without rules want it. Returns how
    /// many objects and how many published bytes went.
    pub(super) fn remove_tree(&mut self, root: ObjectId, orders: &mut Orders) -> (u64, u64) {
        self.awaits_no_name(root);
        self.durable_goes(root);
        self.unbind(root);
        let (mut objects, mut bytes) = (0, 0);
        for id in self.subtree(root) {
            let Some(object) = self.objects.remove(&id) else { continue };
            if object.is_bound {
                self.names.forget(id, &object);
            }
            self.names.close(id);
            self.sums.remove(&id);
            objects += 1;
            bytes += self.free(id, object, orders);
        }
        (objects, bytes)
    }

    /// Forgets a block and frees its places.
    pub(super) fn remove_block(&mut self, id: BlockId, orders: &mut Orders) {
        self.blocks.remove(id, &mut self.nodes, &mut self.jobs, orders);
        self.shown_moves.remove(id);
    }

    /// Frees what an object, already taken out of the map, holds. Returns its published bytes.
    pub(super) fn free(&mut self, id: ObjectId, object: Object, orders: &mut Orders) -> u64 {
        self.appends.end(id);
        self.durables.forget_object(id);
        self.renamed.forget(id);
        if let Some(job) = object.job
            && self.jobs.is_root(job, id)
        {
            self.jobs.remove(job);
            self.accounts.close(job);
        }
        self.accounts.add(object.job, -1, -self.attributes.bytes_of(id).cast_signed());
        self.memory.count(0, texts(&object) + self.attributes.memory_of(id));
        self.attributes.forget(id);
        if let Some(at) = object.expires_at {
            self.service.cancel(at, Timer::Object(id));
        }
        let ObjectBody::Data(data) = object.body else { return 0 };
        if data.inline.is_some() {
            self.jobs.charge(object.job, -data.inline_bytes().cast_signed());
        }
        for block in data.blocks.iter() {
            self.remove_block(*block, orders);
        }
        data.bytes
    }
}
