//! Finds commands that would be refused and change nothing, before they are logged.
//!
//! Only refusals that are found by a look at the command's object are found here, and none that
//! depends on time. Whatever else is refused is refused when the command is applied. In debug
//! builds, which the tests and the simulator are, each command that is applied is compared with
//! what is predicted here.

use sanderling_protocol::message::{Create, CreateKind, CreateMode, ObjectKind};
use sanderling_protocol::{LeaseId, ObjectId, Path, Refusal};

use super::Catalog;
use super::log::Action;
use super::object::ROOT;

impl Catalog {
    /// Returns why an action would be refused now without changing anything; `None` if it may be
    /// done, may change something although it is refused, or is refused for a reason that only
    /// applying it finds.
    pub(crate) fn refuses(&self, action: &Action) -> Option<Refusal> {
        match action {
            Action::Refuse(refusal) => Some((**refusal).clone()),
            Action::Create { request, .. } => self.refuses_create(request).err(),
            Action::MakeDirectory { path, kind, parents, .. } => {
                self.refuses_directory(path, *kind, *parents).err()
            }
            Action::Append { path, .. } => self.refuses_append(path).err(),
            Action::Rename { from, to, replace } => self.refuses_rename(from, to, *replace).err(),
            Action::Delete { path, recursive } => self.refuses_delete(path, *recursive).err(),
            Action::DeleteObject { path, object, recursive } => match self.resolve(path) {
                Ok(found) if found == *object => self.refuses_delete(path, *recursive).err(),
                Ok(_) => Some(Refusal::Changed { path: path.clone(), expected: *object }),
                Err(refusal) => Some(refusal),
            },
            Action::SetTtl { path, .. } | Action::SetAttributes { path, .. } => {
                // Of attributes their own faults are found first, when they are applied.
                let is_sound = match action {
                    Action::SetAttributes { attributes, .. } => attributes.check().is_ok(),
                    _ => true,
                };
                self.resolve(path).err().filter(|_| is_sound)
            }
            Action::AddBlocks { object, lease, .. } | Action::Publish { object, lease, .. } => {
                self.refuses_lease(*object, *lease).err()
            }
            Action::RenewJob { job } | Action::EndJob { job } => {
                self.job(*job).is_none().then_some(Refusal::UnknownJob { job: *job })
            }
            _ => None,
        }
    }

    /// Returns the container for a new object; `None` if it would have to be made.
    fn parent_that_is(
        &self,
        path: &Path,
        kind: ObjectKind,
        parents: bool,
    ) -> Result<Option<ObjectId>, Refusal> {
        let Some(above) = path.parent() else {
            return Err(Refusal::IsADirectory { path: path.clone() });
        };
        match self.resolve(&above) {
            Ok(parent) => {
                self.check_accepts(parent, kind, path)?;
                Ok(Some(parent))
            }
            Err(Refusal::NotFound { .. }) if parents => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    fn refuses_create(&self, request: &Create) -> Result<(), Refusal> {
        let kind = match request.kind {
            CreateKind::File => ObjectKind::File,
            CreateKind::KeyValue => ObjectKind::KeyValue,
        };
        let path = &request.path;
        let Some(parent) = self.parent_that_is(path, kind, request.parents)? else { return Ok(()) };
        let Some(name) = path.components().next_back() else { return Ok(()) };
        let is_new = request.mode == CreateMode::New;
        if let Some(existing) = self.container_child(parent, name) {
            let data = self.objects[&existing].data();
            let data = data.ok_or_else(|| Refusal::IsADirectory { path: path.clone() })?;
            if data.created_by == request.writer && is_new {
                return Ok(());
            }
            if is_new && kind == ObjectKind::File {
                return Err(Refusal::Exists { path: path.clone() });
            }
        }
        self.check_condition(request.condition, parent, name)
    }

    fn refuses_directory(
        &self,
        path: &Path,
        kind: ObjectKind,
        parents: bool,
    ) -> Result<(), Refusal> {
        if !kind.is_container() || path.is_root() {
            return Ok(());
        }
        let Some(parent) = self.parent_that_is(path, kind, parents)? else { return Ok(()) };
        let child = path.components().next_back().and_then(|it| self.container_child(parent, it));
        match child {
            Some(existing) if parents && self.objects[&existing].kind() == kind => Ok(()),
            Some(_) => Err(Refusal::Exists { path: path.clone() }),
            None => Ok(()),
        }
    }

    fn refuses_append(&self, path: &Path) -> Result<(), Refusal> {
        let id = self.resolve(path)?;
        match self.objects[&id].data() {
            Some(_) => Ok(()),
            None => Err(Refusal::IsADirectory { path: path.clone() }),
        }
    }

    fn refuses_rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), Refusal> {
        let id = self.resolve(from)?;
        if from == to || from.contains(to) {
            return Ok(());
        }
        let object = &self.objects[&id];
        let Some(parent) = self.parent_that_is(to, object.kind(), false)? else { return Ok(()) };
        let is_of_job = self.objects[&parent].job == self.objects[&object.parent].job;
        let child = to.components().next_back().and_then(|it| self.container_child(parent, it));
        match child {
            // How deep a directory is takes longer to find.
            Some(_) if is_of_job && !replace && object.data().is_some() => {
                Err(Refusal::Exists { path: to.clone() })
            }
            _ => Ok(()),
        }
    }

    fn refuses_delete(&self, path: &Path, recursive: bool) -> Result<(), Refusal> {
        let id = self.resolve(path)?;
        if id != ROOT && !recursive && !self.is_empty_container(id) {
            return Err(Refusal::NotEmpty { path: path.clone() });
        }
        Ok(())
    }

    fn refuses_lease(&self, id: ObjectId, lease: LeaseId) -> Result<(), Refusal> {
        let object = self.objects.get(&id).filter(|_| !self.is_deleted(id));
        let object = object.ok_or(Refusal::ObjectGone { object: id })?;
        let data = object.data().ok_or(Refusal::LeaseEnded { object: id })?;
        match &data.lease {
            Some(held) if held.id == lease && !held.is_recovering => Ok(()),
            None if data.is_sealed && data.sealed_by == lease => {
                Err(Refusal::Sealed { object: id })
            }
            _ => Err(Refusal::LeaseEnded { object: id }),
        }
    }
}
