//! Walking the namespace.

use sanderling_protocol::{ObjectId, Path, Refusal};

use super::Catalog;
use super::block_map::Orders;
use super::object::{Body, Object, ROOT};

impl Catalog {
    /// Finds a bound object by its exact name.
    pub(crate) fn resolve(&self, path: &Path) -> Result<ObjectId, Refusal> {
        let mut at = ROOT;
        for name in path.components() {
            let Some(container) = self.objects[&at].container() else {
                return Err(Refusal::NotADirectory { path: self.path_or_root(at) });
            };
            at = container.child(name).ok_or_else(|| Refusal::NotFound { path: path.clone() })?;
        }
        Ok(at)
    }

    /// Returns the path under which an object is, or will be, named; `None` if it is gone or a
    /// directory above it is.
    pub(super) fn path_of(&self, object: ObjectId) -> Option<Path> {
        let mut names = Vec::new();
        let mut at = object;
        while at != ROOT {
            let object = self.objects.get(&at)?;
            names.push(&*object.name);
            at = object.parent;
        }
        if names.is_empty() {
            return Some(Path::root());
        }
        let mut text = String::new();
        for name in names.iter().rev() {
            text.push('/');
            text.push_str(name);
        }
        text.parse().ok()
    }

    pub(super) fn path_or_root(&self, object: ObjectId) -> Path {
        self.path_of(object).unwrap_or_else(Path::root)
    }

    /// Returns an object and everything in it, each container before what it holds.
    pub(super) fn subtree(&self, root: ObjectId) -> Vec<ObjectId> {
        let mut found = vec![root];
        let mut next = 0;
        while next < found.len() {
            if let Some(container) =
                self.objects.get(&found[next]).and_then(|object| object.container())
            {
                found.extend(container.children());
            }
            next += 1;
        }
        found
    }

    /// Takes an object out of its container.
    pub(super) fn unbind(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if !std::mem::take(&mut object.is_bound) {
            return;
        }
        let (parent, name) = (object.parent, object.name.clone());
        let now = self.now;
        if let Some(parent) = self.objects.get_mut(&parent) {
            parent.modified_at = now;
            if let Some(container) = parent.container_mut() {
                container.unbind(&name);
            }
        }
    }

    /// Puts an object into a container under a name that is free there.
    pub(super) fn bind(&mut self, id: ObjectId, parent: ObjectId, name: &str) {
        let now = self.now;
        let object = self.objects.get_mut(&id).expect("a present object is bound");
        object.parent = parent;
        object.name = Box::from(name);
        object.is_bound = true;
        let is_listed = object.is_listed;
        let parent = self.objects.get_mut(&parent).expect("the container was resolved");
        parent.modified_at = now;
        let container = parent.container_mut().expect("objects are bound to containers");
        container.bind(Box::from(name), id, is_listed);
    }

    /// Removes an object with everything in it. Returns how many objects and how many published
    /// bytes went.
    pub(super) fn remove_tree(&mut self, root: ObjectId, orders: &mut Orders) -> (u64, u64) {
        self.unbind(root);
        let (mut objects, mut bytes) = (0, 0);
        for id in self.subtree(root) {
            let Some(object) = self.objects.remove(&id) else { continue };
            objects += 1;
            bytes += self.free(id, object, orders);
        }
        (objects, bytes)
    }

    /// Frees what an object, already taken out of the map, holds. Returns its published bytes.
    fn free(&mut self, id: ObjectId, object: Object, orders: &mut Orders) -> u64 {
        if let Some(job) = object.job
            && self.jobs.get(&job).is_some_and(|job| job.root == id)
        {
            self.jobs.remove(&job);
        }
        let Body::Data(data) = object.body else { return 0 };
        if let Some(inline) = &data.inline {
            self.charge(object.job, -(inline.len() as i64));
        }
        for block in data.blocks {
            self.remove_block(block, orders);
        }
        data.bytes
    }
}
