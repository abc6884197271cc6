//! Durable directories: which changes go to their stores, and what waits for that.
//!
//! An object that waits for its store is neither replaced, deleted, renamed nor appended to: the
//! caller tries again. So every change in a queue can be made when its turn comes, and what the
//! store shows is always a state that the directory has had.

use sanderling_protocol::limits::{
    DURABLE_DIRECTORIES_MAX, LIST_PAGE_MAX, STORE_CHANGES_PER_ORDER_MAX, STORE_KEY_BYTES_MAX,
    STORE_NAME_BYTES_MAX, STORES_PER_NODE_MAX, TEXT_BYTES_MAX,
};
use sanderling_protocol::message::{
    AdoptionStep, Durability, DurableChange, DurableChangeKind, DurableProgress, DurableRecord,
    DurableReply, DurableReport, DurableState, DurableStatus, DurableWork, MakeDurable, ObjectKind,
    STORE_OWN_NAME, StoreNode,
};
use sanderling_protocol::{
    EventKind, Instant, Millis, NodeId, Nonce, ObjectId, Path, Policy, Refusal, Reply, amount,
};

use super::Catalog;
use super::durable_queue::{
    Adopting, ChangePlace, DurableDirectory, QueuedChange, QueuedKind, StoreEntry,
};
use super::log::DurableAction;
use super::object::ROOT;
use super::orders::Orders;

/// Pause after which a change is tried again that waits for the store. As often as the manager
/// reads the work (`VIEW_PAUSE` of `durable`).
const STORE_PAUSE: Millis = Millis(50);

/// Most objects that one rename brings into a durable directory, or moves within one: each becomes
/// a change. A sixteenth of the changes that may wait (`DURABLE_CHANGES_MAX`), and as many as a
/// page of a listing has.
pub(super) const RENAMED_MAX: usize = 4096;

/// Changes from the first on among which a deletion that waits looks for lost objects: as many as a
/// datanode gets with one order.
const LOST_LOOKED_AT_MAX: usize = STORE_CHANGES_PER_ORDER_MAX;

impl Catalog {
    /// Makes a directory durable. It is made if it is missing.
    fn make_durable(&mut self, request: &MakeDurable) -> Result<Reply, Refusal> {
        let MakeDurable { path, store, parents, backlog_bytes_max, adopt } = request;
        check_store_name(store)?;
        if *backlog_bytes_max == 0 {
            let why = "nothing could be written with a bound of 0 bytes".to_owned();
            return Err(Refusal::BadRequest { why });
        }
        if let Ok(id) = self.resolve(path) {
            match self.durables.get(id) {
                Some(durable) if *parents && durable.store == *store => {
                    if let Some(durable) = self.durables.get_mut(id) {
                        durable.backlog_bytes_max = *backlog_bytes_max;
                    }
                    return Ok(Reply::Stat(self.stat_of(id, self.now)?));
                }
                Some(_) => return Err(Refusal::Exists { path: path.clone() }),
                None => {}
            }
        }
        if self.durables.len() >= DURABLE_DIRECTORIES_MAX {
            let (value, limit) = (self.durables.len() as u64 + 1, DURABLE_DIRECTORIES_MAX as u64);
            return Err(Refusal::TooLarge { what: "durable directories".to_owned(), value, limit });
        }
        if !self.durables.is_reached(store) {
            let why = format!(
                "no datanode has a store named {store}: start datanodes with --durable {store}=URL"
            );
            return Err(Refusal::BadRequest { why });
        }
        if let Some(other) = self.durables.of_store(store) {
            let why = format!(
                "the store {store} has the directory {}: a store has one",
                self.path_or_root(other)
            );
            return Err(Refusal::BadRequest { why });
        }
        let existing = self.resolve(path).ok();
        if let Some(id) = existing {
            let is_directory = self.objects[&id].kind() == ObjectKind::Directory;
            if !is_directory || id == ROOT {
                let why = "only a directory below the root is made durable".to_owned();
                return Err(Refusal::WrongKind { path: path.clone(), why });
            }
            if !self.is_empty_container(id) {
                return Err(Refusal::NotEmpty { path: path.clone() });
            }
        }
        self.check_not_nested(existing, path)?;
        if existing.is_none() {
            self.make_directory(path, ObjectKind::Directory, *parents, true)?;
        }
        let id = self.resolve(path)?;
        let mut durable = DurableDirectory::new(store.clone(), *backlog_bytes_max);
        durable.adoption = adopt.then(Adopting::new);
        self.durables.insert(id, durable);
        self.emit(EventKind::DirectoryDurable { path: path.clone(), store: store.clone() });
        Ok(Reply::Stat(self.stat_of(id, self.now)?))
    }

    /// Refuses a durable directory above or below another one: a name would be in two stores.
    fn check_not_nested(&self, id: Option<ObjectId>, path: &Path) -> Result<(), Refusal> {
        let mut above = Some(path.clone());
        while let Some(at) = above {
            let found = self.resolve(&at).ok();
            let is_durable = |it| self.durables.contains(it);
            if found.filter(|it| Some(*it) != id).is_some_and(is_durable) {
                let why = format!("it is below the durable directory {at}");
                return Err(Refusal::WrongKind { path: path.clone(), why });
            }
            above = at.parent();
        }
        Ok(())
    }

    /// Does what concerns stores.
    pub(super) fn act_on_stores(&mut self, action: &DurableAction) -> Result<Reply, Refusal> {
        match action {
            DurableAction::Make(request) => self.make_durable(request),
            DurableAction::ServeStores { node, stores } => {
                self.durables.set_stores(*node, stores);
                Ok(Reply::Done)
            }
            DurableAction::Progress { holder, progress } => {
                self.durable_progress(*holder, progress)
            }
            DurableAction::Want { objects } => Err(self.want(objects)),
            DurableAction::Report { holder, report } => self.durable_report(*holder, report),
            DurableAction::Record { holder, record } => self.durable_record(*holder, record),
        }
    }

    /// Notes what a manager has done, unless that does not follow on what is recorded.
    fn durable_record(&mut self, holder: Nonce, record: &DurableRecord) -> Result<Reply, Refusal> {
        self.check_manager(holder, self.now)?;
        if !self.durables.iter().all(|(id, durable)| durable.is_followed_by(id, record)) {
            // A process of the same holder may have led before. One that leads now begins anew.
            return Err(Refusal::NotManager { remaining: Millis(0) });
        }
        self.durable_report(holder, &record.clone().without_comparison().report)
    }

    /// Notes what a manager has done, and what stores lack.
    fn durable_report(&mut self, holder: Nonce, report: &DurableReport) -> Result<Reply, Refusal> {
        let reply = self.durable_progress(holder, &report.progress)?;
        report.missing.iter().for_each(|missing| self.missing_from_store(missing));
        Ok(reply)
    }

    /// Refuses a list of stores that no datanode has.
    pub(crate) fn check_stores(stores: &[String]) -> Result<(), Refusal> {
        if stores.len() > STORES_PER_NODE_MAX {
            let (value, limit) = (stores.len() as u64, STORES_PER_NODE_MAX as u64);
            return Err(Refusal::TooLarge { what: "stores of a node".to_owned(), value, limit });
        }
        stores.iter().try_for_each(|store| check_store_name(store))
    }

    /// Returns whether a node has reported these stores.
    pub(crate) fn has_stores(&self, node: NodeId, stores: &[String]) -> bool {
        self.durables.has_stores(node, stores)
    }

    /// Notes what a manager has done.
    fn durable_progress(
        &mut self,
        holder: Nonce,
        progress: &DurableProgress,
    ) -> Result<Reply, Refusal> {
        self.check_manager(holder, self.now)?;
        for (id, number, upload) in &progress.uploads {
            if let Some(durable) = self.durables.get_mut(*id) {
                durable.uploaded(*number, upload);
            }
        }
        for (id, number) in &progress.done {
            let Some(durable) = self.durables.get_mut(*id) else { continue };
            durable.stalled.clear();
            let store = durable.store.clone();
            let (stored, report) = durable.done(self.now, *number);
            // What was passed over because it was deleted with bytes missing claims no store.
            let mut is_claimed = !self.reaping.rules.claims_by_objects();
            for object in stored {
                self.renamed.forget(object);
                let is_there = self.objects.contains_key(&object) && !self.is_deleted(object);
                is_claimed |= is_there;
                self.set_stored(object, is_there && self.is_in_store(object));
            }
            if is_claimed && let Some(durable) = self.durables.get_mut(*id) {
                durable.is_claimed = true;
            }
            if let Some((objects, bytes)) = report {
                let path = self.path_or_root(*id);
                self.emit(EventKind::ObjectsDurable { path, store, objects, bytes });
            }
        }
        progress.restored.iter().for_each(|restored| self.restored_block(restored));
        for (id, why) in &progress.gone {
            self.gone_from_store(*id, why);
        }
        progress.adopted.iter().for_each(|adopted| self.adopted(adopted));
        for (id, why) in &progress.stalled {
            let Some(durable) = self.durables.get_mut(*id) else { continue };
            let was_stalled = !durable.stalled.is_empty();
            durable.stalled = why.chars().take(TEXT_BYTES_MAX / 4).collect();
            if !was_stalled && !why.is_empty() {
                let (store, why) = (durable.store.clone(), durable.stalled.clone());
                let path = self.path_or_root(*id);
                self.emit(EventKind::DurableStalled { path, store, why });
            }
        }
        Ok(Reply::Done)
    }

    /// Returns the first changes of every durable directory, and which nodes reach the stores.
    pub(crate) fn durable_work(&self) -> Reply {
        let work = |(directory, durable): (ObjectId, &DurableDirectory)| {
            // In a store that has got nothing yet there is nothing to remove, nor the file that
            // names its owner.
            let mut is_empty = !durable.is_claimed;
            let change = |(number, change): (u64, &QueuedChange)| {
                let kind = match self.change_kind(change.kind) {
                    DurableChangeKind::Remove | DurableChangeKind::RemoveTree if is_empty => {
                        DurableChangeKind::Skip
                    }
                    kind => kind,
                };
                is_empty &= kind == DurableChangeKind::Skip && change.upload.is_none();
                let (key, upload) = (change.key.clone(), change.upload.clone());
                DurableChange { number, key, kind, upload }
            };
            DurableWork {
                directory,
                store: durable.store.clone(),
                may_claim: !durable.is_claimed,
                adoption: durable.adoption_step().cloned(),
                changes: durable.changes().take(STORE_CHANGES_PER_ORDER_MAX).map(change).collect(),
            }
        };
        let directories = self.durables.iter().map(work).collect();
        let node = |(id, stores): (NodeId, &[String])| {
            let node = self.nodes.get(id).filter(|node| node.policy != Policy::Gone)?;
            let (address, stores) = (node.address.clone(), stores.to_vec());
            Some(StoreNode { node: id, address, stores })
        };
        let nodes = self.durables.nodes().filter_map(node).collect();
        let losses = self.durable_losses();
        Reply::Durable(Box::new(DurableReply::Work { directories, losses, nodes }))
    }

    /// Returns whether a change still waits for its store.
    pub(crate) fn durable_waits(&self, directory: ObjectId, number: u64) -> Reply {
        let durable = self.durables.get(directory);
        let waits = durable.is_some_and(|durable| durable.waits(number));
        Reply::Durable(Box::new(DurableReply::Waits(waits)))
    }

    /// Returns whether the store of a directory is to be taken over: the adoption's first step.
    pub(crate) fn durable_waits_to_take(&self, directory: ObjectId) -> Reply {
        let step = self.durables.get(directory).and_then(|it| it.adoption_step());
        Reply::Durable(Box::new(DurableReply::Waits(step == Some(&AdoptionStep::Take))))
    }

    /// Returns what is to be done. An object is gone only if it was deleted with bytes missing.
    fn change_kind(&self, kind: QueuedKind) -> DurableChangeKind {
        match kind {
            QueuedKind::Put { object, bytes } => {
                if !self.objects.contains_key(&object) || self.is_deleted(object) {
                    return DurableChangeKind::Skip;
                }
                DurableChangeKind::Put { object, bytes }
            }
            QueuedKind::Remove => DurableChangeKind::Remove,
            QueuedKind::RemoveTree => DurableChangeKind::RemoveTree,
        }
    }

    /// Returns how far what is at a path is copied to its store; `None` if that is no concern of
    /// any store.
    pub(crate) fn durability(&self, path: &Path, now: Instant) -> Result<Reply, Refusal> {
        let id = self.resolve(path)?;
        let Some((directory, key)) = self.durable_at(id) else {
            return Ok(Reply::Durable(Box::new(DurableReply::Durability(None))));
        };
        let durable = &self.durables[&directory];
        let next = self.numbers().object;
        let is_sealed = self.objects[&id].data().is_none_or(|data| data.is_sealed);
        let waits =
            if key.is_empty() { durable.backlog_changes() > 0 } else { durable.is_pending(&key) };
        let found = Durability {
            directory: self.path_or_root(directory),
            store: durable.store.clone(),
            key,
            is_durable: is_sealed && !waits && durable.adoption_step().is_none(),
            backlog_changes: durable.backlog_changes(),
            backlog_bytes: durable.backlog_bytes(),
            backlog_age: durable.oldest().map(|at| at.until(now)),
            done_below: durable.first().unwrap_or(next),
            next,
            stalled: durable.stalled.clone(),
            stored_bytes: self.durables.restoring_bytes(id),
            adoption: durable.adoption.as_ref().map(Adopting::reported),
        };
        Ok(Reply::Durable(Box::new(DurableReply::Durability(Some(found)))))
    }

    /// Returns how far all durable directories are copied.
    pub(crate) fn durable_overview(&self, now: Instant) -> Reply {
        let status = |(id, durable): (ObjectId, &DurableDirectory)| DurableStatus {
            directory: self.path_or_root(id),
            store: durable.store.clone(),
            backlog_changes: durable.backlog_changes(),
            backlog_bytes: durable.backlog_bytes(),
            backlog_bytes_max: durable.backlog_bytes_max,
            backlog_age: durable.oldest().map(|at| at.until(now)),
            stalled: durable.stalled.clone(),
            adoption: durable.adoption.as_ref().map(Adopting::reported),
        };
        let all = self.durables.iter().map(status).collect();
        Reply::Durable(Box::new(DurableReply::Overview(all)))
    }

    /// Returns how far entries of a directory are copied to its store.
    pub(crate) fn durable_states(&self, path: &Path, names: &[String]) -> Result<Reply, Refusal> {
        if names.len() > LIST_PAGE_MAX {
            let (value, limit) = (names.len() as u64, LIST_PAGE_MAX as u64);
            return Err(Refusal::TooLarge { what: "names of entries".to_owned(), value, limit });
        }
        let parent = self.resolve(path)?;
        let is_durable = self.durable_at(parent).is_some();
        let state = |name: &String| {
            let child = self.container_child(parent, name);
            child.map_or(DurableState::Volatile, |id| self.durable_state(id))
        };
        let states = is_durable.then(|| names.iter().map(state).collect());
        Ok(Reply::Durable(Box::new(DurableReply::States(states))))
    }

    fn durable_state(&self, id: ObjectId) -> DurableState {
        let Some((directory, key)) = self.durable_at(id) else { return DurableState::Volatile };
        let is_container = self.objects[&id].container().is_some();
        let is_copied = match is_container {
            true => !self.durables[&directory].is_pending(&key),
            false => self.is_in_store(id),
        };
        match (is_copied, self.durables.is_restoring(id)) {
            (false, _) => DurableState::Volatile,
            (true, false) => DurableState::Durable,
            (true, true) => DurableState::Stored,
        }
    }

    /// Returns changes, bytes and the age of the oldest change that wait for each store's
    /// directory, for metrics: path, store, changes, bytes, age, whether it is stalled.
    #[must_use]
    pub fn durable_backlogs(&self, now: Instant) -> Vec<DurableBacklog> {
        let backlog = |(id, durable): (ObjectId, &DurableDirectory)| DurableBacklog {
            directory: self.path_or_root(id),
            store: durable.store.clone(),
            changes: durable.backlog_changes(),
            bytes: durable.backlog_bytes(),
            age: durable.oldest().map_or(Millis(0), |at| at.until(now)),
            is_stalled: !durable.stalled.is_empty(),
        };
        self.durables.iter().map(backlog).collect()
    }

    /// Returns the durable directory at or above an object, and the object's name in its store.
    /// Cost: the object's depth, while any directory is durable.
    pub(super) fn durable_at(&self, id: ObjectId) -> Option<(ObjectId, String)> {
        if self.durables.is_empty() {
            return None;
        }
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT {
            if self.durables.contains(at) {
                names.reverse();
                return Some((at, names.join("/")));
            }
            let object = self.objects.get(&at)?;
            names.push(object.name.as_str());
            at = object.parent;
        }
        None
    }

    fn change_place(&mut self) -> ChangePlace {
        let number = self.ids.next_object().0;
        ChangePlace { number, command: self.index, at: self.now }
    }

    /// Notes that a named object was sealed, or a sealed one was named.
    pub(super) fn durable_comes(&mut self, id: ObjectId) {
        let Some((directory, key)) = self.durable_at(id).filter(|(_, key)| !key.is_empty()) else {
            return;
        };
        let mut found = vec![(id, key)];
        let mut next = 0;
        while let Some((at, key)) = found.get(next).cloned() {
            next += 1;
            let object = &self.objects[&at];
            if let Some(data) = object.data().filter(|data| data.is_sealed) {
                let bytes = data.bytes;
                self.set_stored(at, false);
                let place = self.change_place();
                let durable = self.durables.get_mut(directory);
                durable.expect("just found").put(place, key, at, bytes);
            } else if object.container().is_some() {
                let child =
                    |child| (child, format!("{key}/{}", self.objects[&child].name.as_str()));
                found.extend(self.names.children(at).map(child));
            }
        }
    }

    /// Notes that a named object is deleted.
    pub(super) fn durable_goes(&mut self, id: ObjectId) {
        if self.objects.get(&id).is_none_or(|object| !object.is_bound) {
            return;
        }
        if self.durables.is_empty() {
            return;
        }
        if self.objects[&id].container().is_some() {
            self.drop_durables(id);
        }
        if let Some(left) = self.durable_leaves(id)
            && let Some(left) = self.durables.unless_deferred(left)
        {
            self.durable_left(left);
        }
    }

    /// Notes what loses its name from now on after what gets one: the store has both for a moment,
    /// never neither.
    pub(super) fn defer_durable(&mut self) {
        self.durables.defer();
    }

    /// Notes what has lost its name meanwhile, but for a name that has another object now.
    pub(super) fn note_deferred(&mut self) {
        for left in self.durables.take_deferred() {
            let durable = self.durables.get(left.directory);
            if durable.is_some_and(|durable| !durable.is_pending(&left.key)) {
                self.durable_left(left);
            }
        }
    }

    /// Returns what [`Self::durable_left`] removes from its store of an object that is going to
    /// lose its name; `None` if no store has anything of it.
    pub(super) fn durable_leaves(&self, id: ObjectId) -> Option<StoreEntry> {
        let (directory, key) = self.durable_at(id).filter(|(_, key)| !key.is_empty())?;
        let object = &self.objects[&id];
        let is_tree = object.container().is_some();
        if is_tree && self.names.count(id) == 0 {
            return None;
        }
        // What was never sealed is not in the store.
        let has_any = |data: &super::object::Data| data.is_sealed || data.sealed_by.0 != 0;
        let is_stored = is_tree || object.data().is_some_and(has_any);
        is_stored.then_some(StoreEntry { directory, key, is_tree })
    }

    /// Queues the removal of an object, which has lost its name, from its store.
    pub(super) fn durable_left(&mut self, left: StoreEntry) {
        let place = self.change_place();
        if let Some(durable) = self.durables.get_mut(left.directory) {
            durable.remove(place, left.key, left.is_tree);
        }
    }

    /// Drops the durable directories in a tree that is going to be deleted.
    fn drop_durables(&mut self, root: ObjectId) {
        let is_below = |id: ObjectId| {
            let mut at = id;
            loop {
                if at == root {
                    return true;
                }
                match self.objects.get(&at) {
                    Some(object) if at != ROOT => at = object.parent,
                    _ => return false,
                }
            }
        };
        let ids = self.durables.iter().map(|(id, _)| id);
        let dropped: Vec<ObjectId> = ids.filter(|id| is_below(*id)).collect();
        for id in dropped {
            let path = self.path_or_root(id);
            let Some(durable) = self.durables.remove(id) else { continue };
            self.renamed.forget_directory(id);
            let (changes, bytes) = (durable.backlog_changes(), durable.backlog_bytes());
            self.emit(EventKind::DurableDropped { path, store: durable.store, changes, bytes });
        }
    }

    /// Refuses to change, move or delete what waits for its store. What has bytes missing never
    /// gets there, so it may go.
    pub(super) fn check_not_waiting(&self, id: ObjectId) -> Result<(), Refusal> {
        let Some((directory, key)) = self.durable_at(id).filter(|(_, key)| !key.is_empty()) else {
            return Ok(());
        };
        self.check_adopted(directory)?;
        let durable = &self.durables[&directory];
        let is_lost = self.objects[&id].data().is_some_and(|data| data.lost_bytes > 0);
        if is_lost || !durable.is_pending(&key) {
            return Ok(());
        }
        let mut why = format!(
            "{} is being copied to the store {}, which comes first",
            self.path_or_root(id),
            durable.store
        );
        if !durable.stalled.is_empty() {
            why = format!("{why}; that is stalled: {}", durable.stalled);
        }
        Err(Refusal::RetryAfter { after: STORE_PAUSE, why })
    }

    /// Refuses to delete a tree that waits for its store. What has bytes missing in it goes at
    /// once, as it comes first in the queue: the store gets neither that nor what comes after it,
    /// so the tree would wait for ever. So does the first object if its store refuses it for good.
    pub(super) fn check_may_go(
        &mut self,
        id: ObjectId,
        orders: &mut Orders,
    ) -> Result<(), Refusal> {
        let checked = self.check_not_waiting(id);
        if checked.is_err() && self.reaping.rules.deletes_lost_first() {
            for lost in self.first_lost_below(id) {
                self.delete_tree(lost, orders);
            }
        }
        if checked.is_err()
            && let Some(refused) = self.refused_at(id)
        {
            if refused == id {
                return Ok(());
            }
            self.delete_tree(refused, orders);
        }
        checked
    }

    /// Returns the objects below a container that have bytes missing and are among the first that
    /// their store gets. What is behind these waits for them as well.
    fn first_lost_below(&self, id: ObjectId) -> Vec<ObjectId> {
        let Some((directory, key)) = self.durable_at(id) else { return Vec::new() };
        if self.objects[&id].data().is_some() || self.check_adopted(directory).is_err() {
            return Vec::new();
        }
        let below = format!("{key}/");
        let changes = self.durables[&directory].changes().take(LOST_LOOKED_AT_MAX);
        let put = changes.filter_map(|(_, change)| match change.kind {
            QueuedKind::Put { object, .. } => Some(object),
            QueuedKind::Remove | QueuedKind::RemoveTree => None,
        });
        let is_lost = |id: &ObjectId| {
            let data = self.objects.get(id).and_then(|object| object.data());
            data.is_some_and(|data| data.lost_bytes > 0) && !self.is_deleted(*id)
        };
        // It may have been renamed since.
        let is_below = |id: &ObjectId| {
            let place = self.durable_at(*id);
            place.is_some_and(|(at, key)| at == directory && key.starts_with(&below))
        };
        put.filter(|id| is_lost(id) && is_below(id)).collect()
    }

    /// Refuses with [`Refusal::RetryAfter`] while the object that this one replaces when it is
    /// sealed waits to be copied to its store.
    pub(super) fn check_not_waiting_name(&self, id: ObjectId) -> Result<(), Refusal> {
        let object = &self.objects[&id];
        if object.is_bound {
            return Ok(());
        }
        self.check_not_waiting_child(object.parent, object.name.as_str())
    }

    /// Refuses with [`Refusal::RetryAfter`] while the object of this name in a container waits to
    /// be copied to its store, or while that store is being adopted.
    pub(super) fn check_not_waiting_child(
        &self,
        parent: ObjectId,
        name: &str,
    ) -> Result<(), Refusal> {
        let Some((directory, _)) = self.durable_at(parent) else { return Ok(()) };
        self.check_adopted(directory)?;
        self.container_child(parent, name).map_or(Ok(()), |id| self.check_not_waiting(id))
    }

    /// Refuses a rename that stores cannot follow. Returns what must be read back first. Cost: at
    /// most as many objects as one rename may bring, while any directory is durable.
    pub(super) fn check_durable_rename(
        &self,
        id: ObjectId,
        from: &Path,
        (parent, name): (ObjectId, &str),
    ) -> Result<Vec<ObjectId>, Refusal> {
        if self.durables.is_empty() {
            return Ok(Vec::new());
        }
        self.check_not_waiting(id)?;
        let from_durable = self.durable_at(id).is_some_and(|(_, key)| !key.is_empty());
        let above = self.durable_at(parent).map(|(_, key)| key);
        if !from_durable && above.is_none() {
            return Ok(Vec::new());
        }
        // Each object with the bytes of its name below the one that is renamed.
        let mut found = vec![(id, 0)];
        let mut next = 0;
        while let Some((at, below)) = found.get(next).copied() {
            next += 1;
            if self.durables.contains(at) && above.is_some() {
                let why = "a durable directory cannot be below another one".to_owned();
                return Err(Refusal::WrongKind { path: from.clone(), why });
            }
            if let Some(above) = &above {
                Self::check_key_length(above.len() + 1 + name.len() + below, name)?;
            }
            let child = |child| (child, below + 1 + self.objects[&child].name.as_bytes().len());
            found.extend(self.names.children(at).take(RENAMED_MAX + 1).map(child));
            if found.len() > RENAMED_MAX {
                let (value, limit) = (found.len() as u64, RENAMED_MAX as u64);
                let what = "objects renamed in a durable directory at once".to_owned();
                return Err(Refusal::TooLarge { what, value, limit });
            }
        }
        let found = found.into_iter().map(|(id, _)| id);
        Ok(found.filter(|id| self.durables.is_restoring(*id)).collect())
    }

    /// Refuses more bytes or names below a durable directory whose store does not keep up.
    pub(crate) fn check_backlog(&self, path: &Path) -> Result<(), Refusal> {
        let Some(id) = self.durable_above(path) else { return Ok(()) };
        self.check_adopted(id)?;
        let Some(durable) = self.durables.get(id).filter(|durable| durable.is_full()) else {
            return Ok(());
        };
        let why = format!(
            "{} changes with {} wait for the store {}: {}",
            durable.backlog_changes(),
            amount::bytes(durable.backlog_bytes()),
            durable.store,
            if durable.stalled.is_empty() { "it is slower" } else { &durable.stalled },
        );
        Err(Refusal::RetryAfter { after: STORE_PAUSE, why })
    }

    /// Returns the durable directory at or above a path, whose last names may be missing. Cost: the
    /// names of the path, while any directory is durable.
    fn durable_above(&self, path: &Path) -> Option<ObjectId> {
        if self.durables.is_empty() {
            return None;
        }
        let mut at = ROOT;
        for name in path.components() {
            at = self.container_child(at, name)?;
            if self.durables.contains(at) {
                return Some(at);
            }
        }
        None
    }

    /// Returns whether a path is in a durable directory; its last names may be missing.
    pub(crate) fn is_path_in_durable(&self, path: &Path) -> bool {
        self.durable_above(path).is_some()
    }

    /// Returns whether an object is in a durable directory. Cost: as [`Self::durable_at`].
    pub(crate) fn is_in_durable(&self, id: ObjectId) -> bool {
        self.durable_at(id).is_some()
    }

    /// Refuses a name right below a durable directory that its store needs itself.
    pub(super) fn check_store_key(&self, parent: ObjectId, name: &str) -> Result<(), Refusal> {
        let Some((_, above)) = self.durable_at(parent) else { return Ok(()) };
        Self::check_key_length(above.len() + 1 + name.len(), name)?;
        Self::check_key_name(name)?;
        if name != STORE_OWN_NAME || !above.is_empty() {
            return Ok(());
        }
        let why = format!("no object right below a durable directory is named {STORE_OWN_NAME}");
        Err(Refusal::BadPath { path: name.to_owned(), why })
    }

    /// Refuses a name with characters that a store does not take.
    pub(super) fn check_key_name(name: &str) -> Result<(), Refusal> {
        if !name.chars().any(char::is_control) {
            return Ok(());
        }
        let why = "stores take no control characters in names".to_owned();
        Err(Refusal::BadPath { path: name.to_owned(), why })
    }

    /// Refuses a name that would be too long in a store.
    fn check_key_length(length: usize, name: &str) -> Result<(), Refusal> {
        if length <= STORE_KEY_BYTES_MAX {
            return Ok(());
        }
        Err(Refusal::long_store_key(name, length, STORE_KEY_BYTES_MAX))
    }

    /// Adds where the durable directories contradict the objects.
    pub(super) fn check_durables(&self, problems: &mut Vec<String>) {
        for (id, _) in self.durables.iter() {
            let object = self.objects.get(&id).filter(|object| object.is_bound);
            if object.is_none_or(|object| object.kind() != ObjectKind::Directory) {
                problems.push(format!("object {id} is durable and no directory"));
            }
        }
        self.durables.check(problems);
        self.check_renamed(problems);
        self.check_restoring(problems);
    }
}

/// The changes of a durable directory that wait for its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurableBacklog {
    /// The directory.
    pub directory: Path,
    /// The name of its store.
    pub store: String,
    /// The number of changes that wait.
    pub changes: u64,
    /// The bytes of the objects among them.
    pub bytes: u64,
    /// Age of the oldest of them; 0 if none waits.
    pub age: Millis,
    /// Whether the oldest could not be made when it was tried last.
    pub is_stalled: bool,
}

fn check_store_name(store: &str) -> Result<(), Refusal> {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
    if store.is_empty() || store.len() > STORE_NAME_BYTES_MAX || !store.bytes().all(is_letter) {
        let why = format!(
            "the name of a store has 1 to {STORE_NAME_BYTES_MAX} letters, digits, '-', '_' or '.'"
        );
        return Err(Refusal::BadRequest { why });
    }
    Ok(())
}
