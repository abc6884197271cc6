//! Names: create, make directories, rename, delete.

use sanderling_protocol::limits::INLINE_BYTES_MAX;
use sanderling_protocol::message::{
    Attributes, Condition, Create, CreateKind, CreateMode, ObjectKind,
};
use sanderling_protocol::{Millis, Nonce, ObjectId, Path, Refusal, Reply};

use super::Catalog;
use super::block_allocation::{check_placed, reserved_bytes};
use super::job_limits::attribute_bytes;
use super::log::Placement;
use super::memory::{of_attributes, texts};
use super::name::Name;
use super::object::{Container, Data, Object, ObjectBody, ROOT};
use super::orders::Orders;

/// Where a new object will be named, and for how long.
pub(super) struct Destination<'a> {
    pub(super) parent: ObjectId,
    pub(super) name: &'a str,
    pub(super) is_listed: bool,
    pub(super) ttl: Option<Millis>,
}

impl Catalog {
    /// Creates a file or key-value. Refusals are found before anything is changed, except that
    /// directories made on the way stay.
    pub(super) fn create(
        &mut self,
        request: &Create,
        placed: &[Placement],
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let kind = match request.kind {
            CreateKind::File => ObjectKind::File,
            CreateKind::KeyValue => ObjectKind::KeyValue,
        };
        let (parent, name) = self.parent_for(&request.path, kind, request.parents)?;
        let existing = self.container_child(parent, name);
        if let Some(existing) = existing {
            let object = &self.objects[&existing];
            let data = object
                .data()
                .ok_or_else(|| Refusal::IsADirectory { path: request.path.clone() })?;
            if data.created_by == request.writer && request.mode == CreateMode::New {
                return self.repeat_create(existing, request.writer);
            }
            if request.mode == CreateMode::New && kind == ObjectKind::File {
                return Err(Refusal::Exists { path: request.path.clone() });
            }
        }
        self.check_condition(request.condition, parent, name)?;
        self.check_store_key(parent, name)?;
        if request.inline.is_some() {
            self.check_not_waiting_child(parent, name)?;
        }
        // A key-value replaces whatever the mode.
        let is_new = request.mode == CreateMode::New && kind == ObjectKind::File;
        if is_new && matches!(request.condition, Some(Condition::Is(_))) {
            let why = "an object that must not exist yet cannot replace a given one".to_owned();
            return Err(Refusal::BadRequest { why });
        }
        request.attributes.check()?;
        let job = self.objects[&parent].job;
        let inline = request.inline.as_ref().map(|inline| inline.len() as u64);
        let asked = inline.unwrap_or_else(|| reserved_bytes(placed));
        self.check_quota(job, asked)?;
        // What is replaced at once makes room for what replaces it.
        let replaced = existing.filter(|_| request.inline.is_some());
        let before = replaced.map_or(0, |existing| self.attributes.bytes_of(existing));
        let after = attribute_bytes(&request.attributes);
        self.check_limits(job, u64::from(replaced.is_none()), before, after)?;
        check_placed(&self.nodes, placed)?;
        if request.inline.as_ref().is_some_and(|inline| inline.len() > INLINE_BYTES_MAX) {
            let value = asked;
            let limit = INLINE_BYTES_MAX as u64;
            return Err(Refusal::TooLarge { what: "inline value".to_owned(), value, limit });
        }
        let is_new_name = existing.is_none() && kind == ObjectKind::File;
        let is_bound_now = is_new_name && request.mode == CreateMode::New;
        let id = self.insert_data(request, kind, parent, name);
        if is_bound_now {
            self.bind(id, parent, name);
        } else {
            self.unnamed.add(parent);
        }
        if let Some(inline) = &request.inline {
            return self.seal_inline(id, inline, &request.path, orders);
        }
        self.grant_lease(id, request.writer, request.condition);
        let blocks = placed.iter().map(|place| self.add_block(id, *place)).collect::<Vec<_>>();
        Ok(Reply::Grant(self.grant(id, &blocks)))
    }

    fn insert_data(
        &mut self,
        request: &Create,
        kind: ObjectKind,
        parent: ObjectId,
        name: &str,
    ) -> ObjectId {
        let id = self.ids.next_object();
        let hints = self.jobs.hints(self.objects[&parent].job);
        let data = Data {
            delete_after_read: request.delete_after_read
                || hints.is_some_and(|hints| hints.delete_after_read),
            ..Data::new(kind, request.class, request.writer)
        };
        let (is_listed, ttl) = (request.is_listed, request.ttl);
        let place = Destination { parent, name, is_listed, ttl };
        self.insert_unbound(id, place, ObjectBody::Data(data));
        self.keep_attributes(id, &request.attributes);
        id
    }

    /// Puts an object into the map that no name leads to yet.
    pub(super) fn insert_unbound(
        &mut self,
        id: ObjectId,
        place: Destination<'_>,
        body: ObjectBody,
    ) {
        let Destination { parent, name, is_listed, ttl } = place;
        let object = Object {
            parent,
            name: Name::from(name),
            is_bound: false,
            is_listed,
            created_at: self.now,
            modified_at: self.now,
            expires_at: None,
            job: self.objects[&parent].job,
            body,
        };
        self.accounts.add(object.job, 1, 0);
        self.memory.count(texts(&object), 0);
        self.objects.insert(id, object);
        if let Some(ttl) = ttl {
            self.set_expiry(id, Some(self.served() + ttl));
        }
    }

    /// Sets what is kept beside an object's bytes.
    pub(super) fn keep_attributes(&mut self, id: ObjectId, attributes: &Attributes) {
        let change =
            attribute_bytes(attributes).cast_signed() - self.attributes.bytes_of(id).cast_signed();
        self.accounts.add(self.objects[&id].job, 0, change);
        self.memory.count(of_attributes(attributes), self.attributes.memory_of(id));
        self.attributes.set(id, attributes);
    }

    /// Refuses when what is under a name is not what was expected there.
    pub(super) fn check_condition(
        &self,
        condition: Option<Condition>,
        parent: ObjectId,
        name: &str,
    ) -> Result<(), Refusal> {
        let Some(condition) = condition else { return Ok(()) };
        let path = || self.path_or_root(parent).join(name).unwrap_or_else(|_| Path::root());
        match (condition, self.container_child(parent, name)) {
            (Condition::Absent, Some(_)) => Err(Refusal::Exists { path: path() }),
            (Condition::Is(expected), found) if found != Some(expected) => {
                Err(Refusal::Changed { path: path(), expected })
            }
            _ => Ok(()),
        }
    }

    /// Sets what is kept beside an object's bytes, in place of all that was.
    pub(super) fn set_attributes(
        &mut self,
        path: &Path,
        expected: Option<ObjectId>,
        attributes: &Attributes,
    ) -> Result<Reply, Refusal> {
        attributes.check()?;
        let id = self.resolve(path)?;
        if self.objects[&id].data().is_none() {
            return Err(Refusal::IsADirectory { path: path.clone() });
        }
        if let Some(expected) = expected.filter(|expected| *expected != id) {
            return Err(Refusal::Changed { path: path.clone(), expected });
        }
        let (job, before) = (self.objects[&id].job, self.attributes.bytes_of(id));
        self.check_limits(job, 0, before, attribute_bytes(attributes))?;
        self.keep_attributes(id, attributes);
        Ok(Reply::Stat(self.stat_of(id, self.now)?))
    }

    /// Answers a create that arrives again because its reply was lost. If it took so long that the
    /// lease ended, the object may be another writer's by now.
    fn repeat_create(&self, id: ObjectId, writer: Nonce) -> Result<Reply, Refusal> {
        let data = self.objects[&id].data().expect("only data is created by a writer");
        match &data.lease {
            Some(lease) if lease.writer == writer && !lease.is_recovering => {
                Ok(Reply::Grant(self.grant(id, data.blocks.as_slice())))
            }
            None if data.inline.is_some() => Ok(Reply::Stat(self.stat_of(id, self.now)?)),
            _ => Err(Refusal::LeaseEnded { object: id }),
        }
    }

    /// Makes a directory, multifile or table.
    pub(super) fn make_directory(
        &mut self,
        path: &Path,
        kind: ObjectKind,
        parents: bool,
        is_listed: bool,
    ) -> Result<Reply, Refusal> {
        if !kind.is_container() {
            let why = "only directories, multifiles and tables are made".to_owned();
            return Err(Refusal::WrongKind { path: path.clone(), why });
        }
        if path.is_root() {
            if parents {
                return Ok(Reply::Stat(self.stat_of(ROOT, self.now)?));
            }
            return Err(Refusal::Exists { path: path.clone() });
        }
        let (parent, name) = self.parent_for(path, kind, parents)?;
        let id = match self.container_child(parent, name) {
            Some(existing) if parents && self.objects[&existing].kind() == kind => existing,
            Some(_) => return Err(Refusal::Exists { path: path.clone() }),
            None => {
                self.check_store_key(parent, name)?;
                self.check_limits(self.objects[&parent].job, 1, 0, 0)?;
                self.insert_container(parent, name, kind, is_listed)
            }
        };
        Ok(Reply::Stat(self.stat_of(id, self.now)?))
    }

    pub(super) fn insert_container(
        &mut self,
        parent: ObjectId,
        name: &str,
        kind: ObjectKind,
        is_listed: bool,
    ) -> ObjectId {
        let id = self.ids.next_object();
        let place = Destination { parent, name, is_listed, ttl: None };
        self.insert_unbound(id, place, ObjectBody::Container(Container { kind }));
        self.bind(id, parent, name);
        id
    }

    /// Returns the container for a new object of that kind and the object's name in it, making
    /// directories on the way on request.
    pub(super) fn parent_for<'a>(
        &mut self,
        path: &'a Path,
        kind: ObjectKind,
        parents: bool,
    ) -> Result<(ObjectId, &'a str), Refusal> {
        let mut names = path.components();
        let Some(name) = names.next_back() else {
            return Err(Refusal::IsADirectory { path: path.clone() });
        };
        let parent = match self.walk(names) {
            Ok(parent) => parent,
            Err(at) => {
                let above = path.parent().expect("a path with a name has a parent");
                match self.not_found(at, &above) {
                    Refusal::NotFound { .. } if parents => self.make_missing(&above)?,
                    refusal => return Err(refusal),
                }
            }
        };
        self.check_accepts(parent, kind, path)?;
        Ok((parent, name))
    }

    pub(super) fn check_accepts(
        &self,
        id: ObjectId,
        kind: ObjectKind,
        path: &Path,
    ) -> Result<(), Refusal> {
        let Some(container) = self.objects[&id].container() else {
            return Err(Refusal::NotADirectory { path: self.path_or_root(id) });
        };
        if container.accepts(kind) {
            return Ok(());
        }
        let why = format!("a {:?} cannot hold a {kind:?}", container.kind);
        Err(Refusal::WrongKind { path: path.clone(), why })
    }

    fn make_missing(&mut self, path: &Path) -> Result<ObjectId, Refusal> {
        let mut at = ROOT;
        let (mut left, mut is_checked) = (path.components().count() as u64, false);
        for name in path.components() {
            let missing = left;
            left -= 1;
            at = match self.container_child(at, name) {
                Some(child) => child,
                None => {
                    // Refused, if at all, at the first missing name: before anything is made.
                    self.check_accepts(at, ObjectKind::Directory, path)?;
                    if !std::mem::replace(&mut is_checked, true) {
                        self.check_limits(self.objects[&at].job, missing, 0, 0)?;
                    }
                    self.insert_container(at, name, ObjectKind::Directory, true)
                }
            };
        }
        Ok(at)
    }

    pub(super) fn container_child(&self, container: ObjectId, name: &str) -> Option<ObjectId> {
        self.names.find(&self.objects, container, name.as_bytes())
    }

    /// Moves an object to another name at once, with everything in it.
    pub(super) fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        replace: bool,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let id = self.resolve(from)?;
        if from == to {
            return Ok(Reply::Done);
        }
        if from.contains(to) {
            return Err(Refusal::IntoItself { from: from.clone() });
        }
        let kind = self.objects[&id].kind();
        let (parent, name) = self.parent_for(to, kind, false)?;
        if self.objects[&parent].job != self.objects[&self.objects[&id].parent].job {
            return Err(Refusal::CrossesJob { from: from.clone(), to: to.clone() });
        }
        self.check_depth(id, to)?;
        if let Some(existing) = self.container_child(parent, name) {
            let both_data =
                self.objects[&existing].data().is_some() && self.objects[&id].data().is_some();
            if !replace || !both_data {
                return Err(Refusal::Exists { path: to.clone() });
            }
        }
        self.check_store_key(parent, name)?;
        let stored = self.check_durable_rename(id, from, (parent, name))?;
        if !stored.is_empty() {
            return Err(self.want(&stored));
        }
        let existing = self.container_child(parent, name);
        if let Some(existing) = existing {
            self.check_not_waiting(existing)?;
            self.delete_tree(existing, orders);
        }
        let left = self.durable_leaves(id);
        let stored_names = self.stored_names(id, existing.is_some());
        self.unbind(id);
        self.bind(id, parent, name);
        // The store has both names for a moment, never neither.
        self.durable_comes(id);
        if let Some(left) = left {
            // What left its directory is in no store; what got another name there waits.
            for moved in self.subtree(id) {
                self.set_stored(moved, false);
            }
            self.durable_left(left);
        }
        self.keep_stored_names(stored_names);
        Ok(Reply::Done)
    }

    /// Refuses a rename that would make a path below it deeper than paths may be.
    fn check_depth(&self, id: ObjectId, to: &Path) -> Result<(), Refusal> {
        let limit = sanderling_protocol::limits::PATH_DEPTH_MAX;
        let mut level = vec![id];
        let mut depth = to.components().count();
        while !level.is_empty() {
            if depth > limit {
                let (value, limit) = (depth as u64, limit as u64);
                return Err(Refusal::TooLarge { what: "path depth".to_owned(), value, limit });
            }
            level = level.iter().flat_map(|id| self.names.children(*id)).collect();
            depth += 1;
        }
        Ok(())
    }

    pub(super) fn delete(
        &mut self,
        path: &Path,
        recursive: bool,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let id = self.resolve(path)?;
        if id == ROOT {
            let why = "the root directory cannot be deleted".to_owned();
            return Err(Refusal::BadPath { path: path.to_string(), why });
        }
        if !recursive && !self.is_empty_container(id) {
            return Err(Refusal::NotEmpty { path: path.clone() });
        }
        self.check_may_go(id, orders)?;
        let freed = self.delete_tree(id, orders);
        Ok(Reply::Deleted { objects: freed.objects, freed_bytes: freed.bytes })
    }

    /// Deletes an object if it still has that name.
    pub(super) fn delete_object(
        &mut self,
        path: &Path,
        expected: ObjectId,
        recursive: bool,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        if self.resolve(path)? != expected {
            return Err(Refusal::Changed { path: path.clone(), expected });
        }
        if !recursive && self.is_empty_container(expected) {
            self.check_unmarked(path, expected)?;
        }
        self.delete(path, recursive, orders)
    }

    /// Refuses to remove a directory as one that is empty if it stands for more than its entries.
    /// Clients that remove what their deletions leave empty name the directory by its id, and see
    /// neither its store nor its job in its entries.
    fn check_unmarked(&self, path: &Path, id: ObjectId) -> Result<(), Refusal> {
        if !self.reaping.rules.keeps_marked_directories() {
            return Ok(());
        }
        let is_root = |job| self.jobs.is_root(job, id);
        let mark = if self.durables.contains(id) {
            "a durable directory"
        } else if self.objects[&id].job.is_some_and(is_root) {
            "the root of a job"
        } else {
            return Ok(());
        };
        let why = format!("it is {mark}: delete it recursively, or without its id");
        Err(Refusal::WrongKind { path: path.clone(), why })
    }

    pub(super) fn set_ttl(&mut self, path: &Path, ttl: Option<Millis>) -> Result<Reply, Refusal> {
        let id = self.resolve(path)?;
        if id == ROOT {
            let why = "the root directory cannot expire".to_owned();
            return Err(Refusal::BadPath { path: path.to_string(), why });
        }
        self.set_expiry(id, ttl.map(|ttl| self.served() + ttl));
        Ok(Reply::Done)
    }
}
