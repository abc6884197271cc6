//! A small model of the namespace: a flat map of paths, against the catalog's tree.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::message::{
    Attributes, Concat, Condition, Create, CreateKind, CreateMode, ObjectKind, RegisterJob,
};
use sanderling_protocol::{Instant, JobId, LeaseId, Millis, Nonce, ObjectId, Path, Refusal, Reply};

use crate::runtime::CheckResult;

/// The model.
#[derive(Debug, Default)]
pub(super) struct NameModel {
    pub(super) entries: BTreeMap<String, EntryModel>,
    /// Objects that get their name when they are sealed: where they will be.
    pending: BTreeMap<ObjectId, Pending>,
    jobs: BTreeMap<JobId, JobModel>,
    /// Leases that ended with a seal: the same seal again changes nothing.
    sealed: BTreeSet<LeaseId>,
    now: Instant,
    /// The absences in the log, and the time of the last start on the service clock.
    absent: Millis,
    resumed_at: Instant,
    /// How long a namenode has really served.
    pub(super) served_millis: u64,
}

#[derive(Debug, Clone)]
pub(super) struct EntryModel {
    pub(super) object: ObjectId,
    pub(super) kind: ObjectKind,
    pub(super) is_listed: bool,
    /// By service time, and not before so much was really served.
    expires_at: Option<(Instant, u64)>,
    created_by: Nonce,
    pub(super) attributes: Attributes,
}

impl EntryModel {
    /// Returns a directory that a change makes beside its own object: no answer has its id.
    const fn directory() -> Self {
        Self {
            object: UNKNOWN,
            kind: ObjectKind::Directory,
            is_listed: true,
            expires_at: None,
            created_by: Nonce(0),
            attributes: Attributes::none(),
        }
    }
}

#[derive(Debug, Clone)]
struct Pending {
    above: String,
    container: ObjectId,
    name: String,
    entry: EntryModel,
    condition: Option<Condition>,
}

#[derive(Debug, Clone)]
struct JobModel {
    path: String,
    root: ObjectId,
    lease_millis: u64,
    until: Instant,
    /// What was really served when it was renewed.
    renewed_millis: u64,
    is_kept: bool,
}

/// Stands for an id that the model takes over from the catalog.
const UNKNOWN: ObjectId = ObjectId(0);

/// The root's id.
const ROOT: ObjectId = sanderling_core::catalog::ROOT;

pub(super) fn differs(
    what: &str,
    expected: impl std::fmt::Debug,
    found: impl std::fmt::Debug,
) -> CheckResult {
    Err(("names", format!("{what}: the model has {expected:?}, the catalog {found:?}")))
}

pub(super) fn parent_of(path: &str) -> &str {
    path.rfind('/').map_or("", |cut| &path[..cut])
}

fn name_of(path: &str) -> &str {
    path.rfind('/').map_or("", |cut| &path[cut + 1..])
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether what is under a name is what must be there.
fn holds(condition: Option<Condition>, existing: Option<&EntryModel>) -> bool {
    match condition {
        None => true,
        Some(Condition::Absent) => existing.is_none(),
        Some(Condition::Is(object)) => existing.is_some_and(|entry| entry.object == object),
    }
}

const fn is_about_a_condition(result: &Result<Reply, Refusal>) -> bool {
    matches!(result, Err(Refusal::Exists { .. } | Refusal::Changed { .. }))
}

const fn accepts(container: ObjectKind, kind: ObjectKind) -> bool {
    match container {
        ObjectKind::Multifile => matches!(kind, ObjectKind::File),
        ObjectKind::Table => matches!(kind, ObjectKind::KeyValue),
        ObjectKind::Directory => !matches!(kind, ObjectKind::KeyValue),
        ObjectKind::File | ObjectKind::KeyValue => false,
    }
}

impl NameModel {
    /// Returns whether an object has a name.
    pub(super) fn is_alive(&self, object: ObjectId) -> bool {
        self.entries.values().any(|entry| entry.object == object)
    }

    /// Does to the model what the command does to the catalog, and compares the outcomes.
    pub(super) fn apply(
        &mut self,
        command: &Command,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        self.now = self.now.max(command.at);
        if let Err(Refusal::OutcomeUnknown { .. }) = result {
            // A change that came after its client had moved on: it is not made.
            return self.adopt(catalog);
        }
        self.act(&command.action, result, catalog)?;
        self.adopt(catalog)
    }

    /// Takes over the ids of what was made without being named in an answer.
    fn adopt(&mut self, catalog: &Catalog) -> CheckResult {
        for (path, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.object == UNKNOWN) {
            let at: Path = path.parse().expect("the model's paths are good");
            match catalog.stat(&at, self.now) {
                Ok(stat) => entry.object = stat.object,
                Err(refusal) => return differs(path, "there", refusal),
            }
        }
        let entries = &self.entries;
        for pending in self.pending.values_mut().filter(|it| it.container == UNKNOWN) {
            let container = entries.get(&pending.above);
            pending.container = container.map_or(UNKNOWN, |entry| entry.object);
        }
        for job in self.jobs.values_mut().filter(|job| job.root == UNKNOWN) {
            job.root = entries.get(&job.path).map_or(UNKNOWN, |entry| entry.object);
        }
        Ok(())
    }

    fn act(
        &mut self,
        action: &Action,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        match action {
            Action::Create { request, .. } => self.create(request, result),
            Action::MakeDirectory { path, kind, parents, is_listed } => {
                self.make_directory(path, *kind, *parents, *is_listed, result)
            }
            // Bytes of its writer are lost: it is given up, and what it was to replace stays.
            Action::Seal { object, .. }
                if matches!(result, Err(Refusal::DataUnavailable { .. })) =>
            {
                self.resync(*object, catalog);
                Ok(())
            }
            Action::Seal { object, lease, attributes, .. } => {
                self.sealed(*object, *lease, attributes, result)
            }
            Action::Abort { object, .. } => {
                self.resync(*object, catalog);
                Ok(())
            }
            Action::Rename { from, to, replace } => self.rename(from, to, *replace, result),
            Action::Delete { path, recursive } => self.delete(path, *recursive, result, catalog),
            Action::DeleteObject { path, object, recursive } => {
                self.delete_object(path, *object, *recursive, result, catalog)
            }
            Action::SetTtl { path, ttl } => self.set_ttl(path, *ttl, result),
            Action::SetAttributes { path, expected, attributes } => {
                self.set_attributes(path, *expected, attributes, result)
            }
            Action::BeginTerm { absence, .. } => {
                self.absent(*absence, true);
                Ok(())
            }
            Action::Absent { absence } => {
                self.absent(*absence, false);
                Ok(())
            }
            Action::Concat(request) => self.concat(request, result),
            Action::RegisterJob(request) => self.register_job(request, result),
            Action::RenewJob { job } => {
                let (served, millis) = (self.served(), self.served_millis);
                match (self.jobs.get_mut(job), result) {
                    (Some(job), Ok(_)) => {
                        job.until = served + Millis(job.lease_millis);
                        job.renewed_millis = millis;
                        Ok(())
                    }
                    (None, Err(_)) => Ok(()),
                    (job, result) => differs("renew job", job, result),
                }
            }
            Action::EndJob { job } => {
                let is_known = self.jobs.contains_key(job);
                if is_known != result.is_ok() {
                    return differs("end job", is_known, result);
                }
                self.end_job(*job);
                Ok(())
            }
            Action::Tick => self.tick(catalog),
            _ => Ok(()),
        }
    }

    fn set_ttl(
        &mut self,
        path: &Path,
        ttl: Option<Millis>,
        result: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let until = self.expiry(ttl);
        match (self.entries.get_mut(path.as_str()), result) {
            (Some(entry), Ok(_)) => {
                entry.expires_at = until;
                Ok(())
            }
            (None, Err(_)) => Ok(()),
            (entry, result) => differs("set ttl", entry, result),
        }
    }

    fn kind_at(&self, path: &str) -> Option<ObjectKind> {
        if path.is_empty() || path == "/" {
            return Some(ObjectKind::Directory);
        }
        self.entries.get(path).map(|entry| entry.kind)
    }

    /// Makes the directories above a path that are missing, as far as that goes.
    fn make_parents(&mut self, path: &str, kind: ObjectKind, parents: bool) -> bool {
        let parent = parent_of(path).to_owned();
        if let Some(found) = self.kind_at(&parent) {
            return accepts(found, kind);
        }
        // The nearest thing above that exists must be able to hold directories.
        let mut missing = vec![parent.clone()];
        let mut above = parent_of(&parent).to_owned();
        while self.kind_at(&above).is_none() {
            missing.push(above.clone());
            above = parent_of(&above).to_owned();
        }
        let holds = self.kind_at(&above).is_some_and(|found| accepts(found, ObjectKind::Directory));
        if !parents || !holds {
            return false;
        }
        for path in missing.into_iter().rev() {
            self.entries.insert(path, EntryModel::directory());
        }
        accepts(ObjectKind::Directory, kind)
    }

    fn create(&mut self, request: &Create, result: &Result<Reply, Refusal>) -> CheckResult {
        let kind = match request.kind {
            CreateKind::File => ObjectKind::File,
            CreateKind::KeyValue => ObjectKind::KeyValue,
        };
        let path = request.path.as_str().to_owned();
        let may = self.make_parents(&path, kind, request.parents);
        let existing = self.entries.get(&path).cloned();
        let is_container = existing.as_ref().is_some_and(|entry| entry.kind.is_container());
        let is_repeat = existing.as_ref().is_some_and(|entry| {
            entry.created_by == request.writer && request.mode == CreateMode::New
        });
        let is_taken = existing.is_some()
            && request.mode == CreateMode::New
            && kind == ObjectKind::File
            && !is_repeat;
        let is_contradiction = request.mode == CreateMode::New
            && kind == ObjectKind::File
            && matches!(request.condition, Some(Condition::Is(_)));
        let is_expected = holds(request.condition, existing.as_ref()) && !is_contradiction;
        let is_good = may && !is_container && !is_taken && (is_repeat || is_expected);
        let object = match result {
            // A repeated create whose lease has ended since.
            Err(Refusal::LeaseEnded { .. }) if is_repeat => return Ok(()),
            Err(
                Refusal::QuotaPassed { .. }
                | Refusal::RetryAfter { .. }
                | Refusal::Full { .. }
                | Refusal::ReserveKept { .. },
            ) if is_good => {
                return Ok(());
            }
            Ok(Reply::Grant(grant)) if is_good => grant.object,
            Ok(Reply::Stat(stat)) if is_good => stat.object,
            Err(_) if !is_good => return Ok(()),
            result => return differs(&format!("create {path}"), is_good, result),
        };
        if is_repeat {
            return Ok(());
        }
        let expires_at = self.expiry(request.ttl);
        let (is_listed, created_by) = (request.is_listed, request.writer);
        let attributes = request.attributes.clone();
        let entry = EntryModel { object, kind, is_listed, expires_at, created_by, attributes };
        let is_bound =
            kind == ObjectKind::File && existing.is_none() && request.mode == CreateMode::New;
        if is_bound {
            self.entries.insert(path, entry);
            return Ok(());
        }
        let condition = request.condition;
        let above = parent_of(&path).to_owned();
        let container = self.object_at(&above);
        let name = name_of(&path).to_owned();
        self.pending.insert(object, Pending { above, container, name, entry, condition });
        if request.inline.is_some() {
            self.bind(object);
        }
        Ok(())
    }

    fn object_at(&self, path: &str) -> ObjectId {
        self.entries.get(path).map_or(ROOT, |entry| entry.object)
    }

    fn path_of(&self, object: ObjectId) -> Option<String> {
        if object == ROOT {
            return Some(String::new());
        }
        let found = self.entries.iter().find(|(_, entry)| entry.object == object);
        found.map(|(path, _)| path.clone())
    }

    /// Gives a sealed object its name.
    fn bind(&mut self, object: ObjectId) -> bool {
        let Some(Pending { container, name, entry, .. }) = self.pending.remove(&object) else {
            return true;
        };
        let Some(above) = self.path_of(container) else { return false };
        let path = format!("{above}/{name}");
        match self.entries.get(&path) {
            Some(existing) if existing.kind.is_container() => false,
            // Of key-values the last created wins.
            Some(existing) if entry.kind == ObjectKind::KeyValue && existing.object > object => {
                true
            }
            _ => {
                self.entries.insert(path, entry);
                true
            }
        }
    }

    /// Returns whether the condition holds under which an object gets its name.
    fn may_bind(&self, pending: &Pending) -> bool {
        let Some(above) = self.path_of(pending.container) else { return true };
        holds(pending.condition, self.entries.get(&format!("{above}/{}", pending.name)))
    }

    fn sealed(
        &mut self,
        object: ObjectId,
        lease: LeaseId,
        attributes: &Attributes,
        result: &Result<Reply, Refusal>,
    ) -> CheckResult {
        if let Some(pending) = self.pending.get(&object)
            && (result.is_ok() || is_about_a_condition(result))
        {
            let may = self.may_bind(pending);
            if may != result.is_ok() {
                return differs("seal", may, result);
            }
        }
        if result.is_ok() && self.sealed.insert(lease) {
            let pending = self.pending.get_mut(&object).map(|pending| &mut pending.entry);
            let bound = self.entries.values_mut().find(|entry| entry.object == object);
            if let Some(entry) = pending.or(bound) {
                entry.attributes.set_all(attributes);
            }
        }
        match result {
            Err(_) if is_about_a_condition(result) => {
                self.pending.remove(&object);
                Ok(())
            }
            Ok(_) if self.pending.contains_key(&object) => {
                if self.bind(object) {
                    Ok(())
                } else {
                    differs("seal", "refused", result)
                }
            }
            Err(Refusal::ObjectGone { .. } | Refusal::IsADirectory { .. }) => {
                self.pending.remove(&object);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An aborted object is gone unless it was sealed once: the model does not know, the catalog
    /// does.
    fn resync(&mut self, object: ObjectId, catalog: &Catalog) {
        self.pending.remove(&object);
        let Some(path) = self.path_of(object) else { return };
        let at: Path = path.parse().expect("the model's paths are good");
        if catalog.stat(&at, self.now).is_err() {
            self.entries.remove(&path);
        }
    }

    fn make_directory(
        &mut self,
        path: &Path,
        kind: ObjectKind,
        parents: bool,
        is_listed: bool,
        result: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let path = path.as_str();
        let may = self.make_parents(path, kind, parents);
        let existing = self.entries.get(path).map(|entry| entry.kind);
        let is_good = may && existing.is_none_or(|existing| parents && existing == kind);
        let Ok(Reply::Stat(stat)) = result else {
            return if is_good { differs(path, "made", result) } else { Ok(()) };
        };
        if !is_good {
            return differs(path, "refused", result);
        }
        let object = stat.object;
        let (expires_at, created_by, attributes) = (None, Nonce(0), Attributes::none());
        let entry = EntryModel { object, kind, is_listed, expires_at, created_by, attributes };
        self.entries.entry(path.to_owned()).or_insert(entry);
        Ok(())
    }

    fn set_attributes(
        &mut self,
        path: &Path,
        expected: Option<ObjectId>,
        attributes: &Attributes,
        result: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let entry = self.entries.get_mut(path.as_str());
        let is_it = |entry: &&mut EntryModel| {
            !entry.kind.is_container() && expected.is_none_or(|object| object == entry.object)
        };
        match (entry.filter(is_it), result) {
            (Some(entry), Ok(_)) => {
                entry.attributes = attributes.clone();
                Ok(())
            }
            (None, Err(_)) => Ok(()),
            (entry, result) => differs("set attributes", entry, result),
        }
    }

    fn concat(&mut self, request: &Concat, result: &Result<Reply, Refusal>) -> CheckResult {
        let to = request.to.as_str();
        let existing = self.entries.get(to).cloned();
        if existing.as_ref().is_some_and(|entry| entry.created_by == request.writer) {
            return if result.is_ok() { Ok(()) } else { differs(to, "done", result) };
        }
        let paths: BTreeSet<&str> = request.parts.iter().map(Path::as_str).collect();
        let is_file = |path: &&str| self.kind_at(path) == Some(ObjectKind::File);
        let are_files = paths.len() == request.parts.len() && paths.iter().all(is_file);
        // Whether a part is sealed and whole the model does not know.
        let is_of_part = match result {
            Err(Refusal::WrongKind { path, .. } | Refusal::DataUnavailable { path, .. }) => {
                paths.contains(path.as_str())
            }
            _ => false,
        };
        if !are_files || is_of_part {
            return if result.is_err() { Ok(()) } else { differs(to, "refused", result) };
        }
        let may = self.make_parents(to, ObjectKind::File, request.parents);
        let job = self.job_of(parent_of(to));
        let is_free = existing.as_ref().is_none_or(|entry| !entry.kind.is_container());
        let same_job = paths.iter().all(|path| self.job_of(parent_of(path)) == job);
        let is_good = may && is_free && same_job && holds(request.condition, existing.as_ref());
        let Ok(Reply::Stat(stat)) = result else {
            return if is_good { differs(&format!("concat {to}"), "done", result) } else { Ok(()) };
        };
        if !is_good {
            return differs(&format!("concat {to}"), "refused", result);
        }
        self.entries.retain(|path, _| !paths.contains(path.as_str()));
        let entry = EntryModel {
            object: stat.object,
            kind: ObjectKind::File,
            is_listed: request.is_listed,
            expires_at: self.expiry(request.ttl),
            created_by: request.writer,
            attributes: request.attributes.clone(),
        };
        self.entries.insert(to.to_owned(), entry);
        Ok(())
    }

    fn job_of(&self, path: &str) -> Option<JobId> {
        let is_above =
            |job: &JobModel| self.path_of(job.root).is_some_and(|root| is_below(path, &root));
        self.jobs.iter().find(|(_, job)| is_above(job)).map(|(id, _)| *id)
    }

    fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        replace: bool,
        result: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let (from, to) = (from.as_str(), to.as_str());
        let moved = self.entries.get(from).cloned();
        let target = self.entries.get(to).map(|entry| entry.kind);
        let is_good = moved.as_ref().is_some_and(|moved| {
            let holds = self.kind_at(parent_of(to)).is_some_and(|kind| accepts(kind, moved.kind));
            let both = !moved.kind.is_container();
            let is_free = target.is_none_or(|kind| replace && both && !kind.is_container());
            let same_job = self.job_of(parent_of(to)) == self.job_of(parent_of(from));
            from == to || (holds && is_free && same_job && !is_below(to, from))
        });
        if is_good != result.is_ok() {
            return differs(&format!("rename {from} {to}"), is_good, result);
        }
        if !is_good || from == to {
            return Ok(());
        }
        let below: Vec<String> =
            self.entries.keys().filter(|path| is_below(path, from)).cloned().collect();
        for path in below {
            let entry = self.entries.remove(&path).expect("listed just now");
            self.entries.insert(format!("{to}{}", &path[from.len()..]), entry);
        }
        Ok(())
    }

    /// Returns whether an object is written that will be named in a container by its seal.
    fn is_written_in(&self, path: &str, catalog: &Catalog) -> bool {
        let Some(container) = self.entries.get(path).map(|entry| entry.object) else {
            return false;
        };
        // The model does not know whose lease has ended.
        let is_there = |object: &ObjectId| catalog.class_of(*object).is_some();
        self.pending.iter().any(|(id, it)| it.container == container && is_there(id))
    }

    fn delete(
        &mut self,
        path: &Path,
        recursive: bool,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        let path = path.as_str();
        let is_full = self.entries.keys().any(|other| other != path && is_below(other, path))
            || self.is_written_in(path, catalog);
        let is_good = self.entries.contains_key(path) && (recursive || !is_full);
        if is_good != result.is_ok() {
            return differs(&format!("delete {path}"), is_good, result);
        }
        if is_good {
            self.remove(path);
        }
        Ok(())
    }

    fn delete_object(
        &mut self,
        path: &Path,
        expected: ObjectId,
        recursive: bool,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        let found = self.entries.get(path.as_str()).map(|entry| entry.object);
        let is_root = self.jobs.values().any(|job| job.root == expected);
        match (found == Some(expected), result) {
            (true, Ok(_)) if is_root && !recursive => {
                differs(&format!("delete {path}"), "the root of a job", result)
            }
            (true, Err(Refusal::WrongKind { .. })) if is_root && !recursive => Ok(()),
            (true, result) => self.delete(path, recursive, result, catalog),
            (false, Err(_)) => Ok(()),
            (false, result) => differs(&format!("delete {expected}"), found, result),
        }
    }

    fn remove(&mut self, root: &str) {
        self.entries.retain(|path, _| !is_below(path, root));
        let alive: BTreeSet<ObjectId> = self.entries.values().map(|entry| entry.object).collect();
        self.jobs.retain(|_, job| alive.contains(&job.root));
    }

    fn register_job(
        &mut self,
        request: &RegisterJob,
        result: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let path = request.path.as_str();
        let may = self.make_parents(path, ObjectKind::Directory, true);
        let existing = self.entries.get(path).map(|entry| entry.kind);
        let is_directory = existing.is_none_or(|kind| kind == ObjectKind::Directory);
        let is_empty = !self.entries.keys().any(|other| other != path && is_below(other, path));
        let is_good = may && is_directory && is_empty && self.job_of(path).is_none();
        if is_good != result.is_ok() {
            return differs(&format!("register job {path}"), is_good, result);
        }
        if may && is_directory {
            self.entries.entry(path.to_owned()).or_insert_with(EntryModel::directory);
        }
        if let Ok(Reply::Job(info)) = result {
            let job = JobModel {
                path: path.to_owned(),
                root: UNKNOWN,
                lease_millis: request.lease.0,
                until: self.served() + request.lease,
                renewed_millis: self.served_millis,
                is_kept: request.hints.keep_after_job,
            };
            self.jobs.insert(info.job, job);
        }
        Ok(())
    }

    fn end_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if !job.is_kept
            && let Some(root) = self.path_of(job.root)
        {
            self.remove(&root);
        }
    }

    /// Returns the service time.
    fn served(&self) -> Instant {
        self.now - self.absent
    }

    fn expiry(&self, ttl: Option<Millis>) -> Option<(Instant, u64)> {
        ttl.map(|ttl| (self.served() + ttl, self.served_millis + ttl.0))
    }

    /// Records a time in which no namenode served, as the log has it.
    fn absent(&mut self, absence: Millis, is_start: bool) {
        self.absent = Millis(self.absent.0 + absence.0);
        if is_start {
            self.resumed_at = self.served();
        }
    }

    /// Removes what has expired. Nothing may expire before it was served for its time. Of what is
    /// due, a tick does so much at most: the rest is left for the next one.
    fn tick(&mut self, catalog: &Catalog) -> CheckResult {
        let (served, really) = (self.served(), self.served_millis + ABSENCE_UNSEEN_MILLIS);
        let is_cut = catalog.deadline().is_some_and(|due| due <= self.now);
        let is_over = |entry: &EntryModel| {
            entry.expires_at.is_some_and(|(at, _)| at <= served)
                && !(is_cut && catalog.has_object(entry.object))
        };
        let expired: Vec<(String, u64)> = self
            .entries
            .iter()
            .filter(|(_, entry)| is_over(entry))
            .filter_map(|(path, entry)| Some((path.clone(), entry.expires_at?.1)))
            .collect();
        for (path, millis) in expired {
            if millis > really {
                return early(&path, millis - really);
            }
            self.remove(&path);
        }
        self.pending.retain(|_, pending| !is_over(&pending.entry));
        let resumed_at = self.resumed_at;
        let end = |job: &JobModel| job.until.max(resumed_at + Millis(job.lease_millis));
        let ended = self.jobs.iter().filter(|(_, job)| end(job) <= served).map(|(id, _)| *id);
        let ended: Vec<JobId> = ended.filter(|id| !(is_cut && catalog.has_job(*id))).collect();
        for id in ended {
            let job = self.jobs.get(&id);
            let millis = job.map_or(0, |job| job.renewed_millis + job.lease_millis);
            if millis > really {
                return early(&format!("job {id}"), millis - really);
            }
            self.end_job(id);
        }
        Ok(())
    }
}

/// Absences that are too short for the namenode to see: several of half a second, and rounding.
const ABSENCE_UNSEEN_MILLIS: u64 = 1500;

fn early(what: &str, millis: u64) -> CheckResult {
    let text = format!("{what} ended {millis} ms early: no namenode served in that time");
    Err(("absence", text))
}
