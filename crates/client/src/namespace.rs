//! Names: list, stat, make, rename, delete.

use std::time::Duration;

use sanderling_core::client::{DurableWait, DurableWaitStep};
use sanderling_protocol::limits::{DURABLE_BACKLOG_BYTES, LIST_PAGE_MAX};
use sanderling_protocol::message::{
    Attributes, Concat, Condition, CreateMode, Durability, DurableReply, DurableRequest,
    DurableState, DurableStatus, Entry, MakeDurable, ObjectKind, ObjectStat, Usage,
};
use sanderling_protocol::{Millis, ObjectId, Path, Refusal, Reply, Request};
use tokio::time::{Instant, sleep};

use crate::client::{Client, machine_time};
use crate::error::ClientError;
use crate::options::PutOptions;

/// Returns the reply of one kind, or an error if it is of another.
macro_rules! reply_of {
    ($reply:expr, $what:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            _ => Err(ClientError::BadReply { what: $what.to_owned() }),
        }
    };
}
pub(crate) use reply_of;

impl Client {
    /// Returns an object's metadata, such as its id, kind, length in bytes and whether it is
    /// sealed. It reads none of the object's bytes.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: check the name; the object's TTL or its job may have ended.
    pub async fn stat(&self, path: &Path) -> Result<ObjectStat, ClientError> {
        let reply = self.request(Request::Stat { path: path.clone() }).await?;
        reply_of!(reply, "stat", Reply::Stat(stat) => stat)
    }

    /// Returns whether an object of any kind has this path; `false` also if a component before the
    /// last is not a directory.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer, or refuses the token for this path: whether
    /// it exists is unknown. Its `recovery` is the next step.
    pub async fn exists(&self, path: &Path) -> Result<bool, ClientError> {
        match self.stat(path).await {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(Refusal::NotFound { .. } | Refusal::NotADirectory { .. })) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns at most `limit` entries of a directory, in the order of names from the first one
    /// behind `after` on, and whether there are more. An empty `after` begins with the first entry.
    ///
    /// # Errors
    /// [`Refusal::NotADirectory`]: correct the path.
    pub async fn list(
        &self,
        path: &Path,
        after: &str,
        limit: u32,
    ) -> Result<(Vec<Entry>, bool), ClientError> {
        self.page(path, after, limit, false).await
    }

    /// Returns one page of a directory, as [`Client::list`] does, with the attributes that
    /// applications keep beside the bytes of each entry.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_with_attributes(
        &self,
        path: &Path,
        after: &str,
        limit: u32,
    ) -> Result<(Vec<Entry>, bool), ClientError> {
        self.page(path, after, limit, true).await
    }

    async fn page(
        &self,
        path: &Path,
        after: &str,
        limit: u32,
        with_attributes: bool,
    ) -> Result<(Vec<Entry>, bool), ClientError> {
        let (path, after) = (path.clone(), after.to_owned());
        let reply = self.request(Request::List { path, after, limit, with_attributes }).await?;
        reply_of!(reply, "list", Reply::Entries { entries, is_more } => (entries, is_more))
    }

    /// Returns all entries of a directory in the order of names, page by page. An entry that is
    /// created or deleted meanwhile may be among them or not.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_all(&self, path: &Path) -> Result<Vec<Entry>, ClientError> {
        self.pages(path, false).await
    }

    /// Returns all entries of a directory, as [`Client::list_all`] does, with the attributes that
    /// applications keep beside the bytes of each.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_all_with_attributes(&self, path: &Path) -> Result<Vec<Entry>, ClientError> {
        self.pages(path, true).await
    }

    async fn pages(&self, path: &Path, with_attributes: bool) -> Result<Vec<Entry>, ClientError> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map_or("", |entry| entry.name.as_str());
            let (entries, is_more) =
                self.page(path, after, LIST_PAGE_MAX as u32, with_attributes).await?;
            all.extend(entries);
            if !is_more {
                return Ok(all);
            }
        }
    }

    /// Makes a directory, multifile or table. With `parents` missing directories above it are made,
    /// and it may exist already.
    ///
    /// # Errors
    /// [`Refusal::Exists`]: choose another name. [`Refusal::NotFound`] of the directory above: make
    /// it first, or set `parents`.
    pub async fn make_directory(
        &self,
        path: &Path,
        kind: ObjectKind,
        parents: bool,
        is_listed: bool,
    ) -> Result<ObjectStat, ClientError> {
        let request = Request::MakeDirectory { path: path.clone(), kind, parents, is_listed };
        let reply = self.request(request).await?;
        reply_of!(reply, "mkdir", Reply::Stat(stat) => stat)
    }

    /// Makes a directory whose sealed objects are copied to a store outside of the cluster. One
    /// that has this store already gets the bound of the request; [`Self::durable_backlog_max`]
    /// returns its present one.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`]: no datanode has a store of this name, or the store has a directory;
    /// choose another store. [`Refusal::NotEmpty`], [`Refusal::Exists`], [`Refusal::WrongKind`]:
    /// choose another path.
    pub async fn make_durable(&self, request: MakeDurable) -> Result<ObjectStat, ClientError> {
        let reply = self.request(Request::Durable(Box::new(DurableRequest::Make(request)))).await?;
        reply_of!(reply, "mkdir", Reply::Stat(stat) => stat)
    }

    /// Returns how far an object, or everything in a directory, is copied to its store; `None` if
    /// the path is in no durable directory.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: check the path.
    pub async fn durability(&self, path: &Path) -> Result<Option<Durability>, ClientError> {
        let request = DurableRequest::Look { path: path.clone() };
        let reply = self.request(Request::Durable(Box::new(request))).await?;
        let reply = reply_of!(reply, "durability", Reply::Durable(reply) => *reply)?;
        reply_of!(reply, "durability", DurableReply::Durability(found) => found)
    }

    /// Returns how far all durable directories are copied to their stores.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: the token must allow to look at the cluster.
    pub async fn durable_overview(&self) -> Result<Vec<DurableStatus>, ClientError> {
        let reply = self.request(Request::Durable(Box::new(DurableRequest::Overview))).await?;
        let reply = reply_of!(reply, "durability", Reply::Durable(reply) => *reply)?;
        reply_of!(reply, "durability", DurableReply::Overview(all) => all)
    }

    /// Returns the bytes that may wait for the store of a directory: its present bound if it is a
    /// durable one, else the default.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: the token must allow to look at the cluster.
    pub async fn durable_backlog_max(&self, path: &Path) -> Result<u64, ClientError> {
        let all = self.durable_overview().await?;
        let found = all.into_iter().find(|status| status.directory == *path);
        Ok(found.map_or(DURABLE_BACKLOG_BYTES, |status| status.backlog_bytes_max))
    }

    /// Returns how far entries of a directory are copied to its store, one for each name; `None` if
    /// it is in no durable directory.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: check the path.
    pub async fn durable_states(
        &self,
        path: &Path,
        names: Vec<String>,
    ) -> Result<Option<Vec<DurableState>>, ClientError> {
        let request = DurableRequest::States { path: path.clone(), names };
        let reply = self.request(Request::Durable(Box::new(request))).await?;
        let reply = reply_of!(reply, "durability", Reply::Durable(reply) => *reply)?;
        reply_of!(reply, "durability", DurableReply::States(states) => states)
    }

    /// Waits until the store has everything that was sealed at or below a path before the call, and
    /// until the objects of a store that is adopted are there.
    /// Returns `None` then; if the time is over before, how far it is. The wait goes on while the
    /// namenode does not answer: only `within` ends it, and not the deadline of calls. Its first
    /// look may take a second, however short `within` is.
    ///
    /// # Errors
    /// [`Refusal::WrongKind`]: the path is in no durable directory; make one with
    /// [`Client::make_durable`]. [`Refusal::NotFound`]: check the path. [`ClientError::TimedOut`]:
    /// the namenode did not answer in this time; wait again.
    pub async fn wait_durable(
        &self,
        path: &Path,
        within: Duration,
    ) -> Result<Option<Durability>, ClientError> {
        let began = Instant::now();
        let mut wait = DurableWait::new(machine_time(within));
        loop {
            let look_within = wait.look_within(machine_time(began.elapsed()));
            let looked = self.with_deadline(look_within.into()).durability(path).await;
            let now = machine_time(began.elapsed());
            let next = match looked {
                Ok(Some(found)) => wait.found(now, found),
                Ok(None) => {
                    let why = "it is in no durable directory".to_owned();
                    return Err(Refusal::WrongKind { path: path.clone(), why }.into());
                }
                Err(error) => match wait.failed(now, error.recovery()) {
                    Some(next) => next,
                    None => return Err(error),
                },
            };
            match next {
                DurableWaitStep::Again { pause } => sleep(pause.into()).await,
                DurableWaitStep::Copied => return Ok(None),
                DurableWaitStep::TimeOver(found) => return Ok(Some(*found)),
            }
        }
    }

    /// Moves an object, with everything in it, to another name at once.
    ///
    /// # Errors
    /// [`Refusal::Exists`] unless `replace` and both are files: choose another name.
    pub async fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), ClientError> {
        let request = Request::Rename { from: from.clone(), to: to.clone(), replace };
        let reply = self.request(request).await?;
        reply_of!(reply, "rename", Reply::Done => ())
    }

    /// Deletes an object. Returns how many objects went and how many bytes they had; of a directory
    /// with more than some hundred entries what was freed at once, the rest is freed afterwards.
    ///
    /// # Errors
    /// [`Refusal::NotEmpty`] for a directory that holds something: set `recursive` to delete that,
    /// too.
    pub async fn delete(&self, path: &Path, recursive: bool) -> Result<(u64, u64), ClientError> {
        let reply = self.request(Request::Delete { path: path.clone(), recursive }).await?;
        reply_of!(
            reply,
            "delete",
            Reply::Deleted { objects, freed_bytes } => (objects, freed_bytes)
        )
    }

    /// Deletes an object if it still has that name: of what another client has put there meanwhile
    /// nothing is deleted. Returns how many objects went and how many bytes they had.
    ///
    /// # Errors
    /// [`Refusal::Changed`] when another object than `expected` has the name by now: look it up and
    /// decide again. [`Refusal::WrongKind`] for an empty directory that is durable or the root of a
    /// job: set `recursive` to delete it nevertheless. Else as [`Client::delete`].
    pub async fn delete_object(
        &self,
        path: &Path,
        expected: ObjectId,
        recursive: bool,
    ) -> Result<(u64, u64), ClientError> {
        let (path, object) = (path.clone(), expected);
        let reply = self.request(Request::DeleteObject { path, object, recursive }).await?;
        reply_of!(
            reply,
            "delete",
            Reply::Deleted { objects, freed_bytes } => (objects, freed_bytes)
        )
    }

    /// Sets the time that is left until an object is deleted; `None` takes an earlier TTL back.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: check the name; an earlier TTL may have ended.
    pub async fn set_ttl(&self, path: &Path, ttl: Option<Millis>) -> Result<(), ClientError> {
        let reply = self.request(Request::SetTtl { path: path.clone(), ttl }).await?;
        reply_of!(reply, "set TTL", Reply::Done => ())
    }

    /// Replaces all attributes that applications keep beside an object's bytes, and returns the
    /// object's metadata. With `expected` only if that object still has the path.
    ///
    /// # Errors
    /// [`Refusal::Changed`] when another object than `expected` has the name by now: look it up and
    /// decide again. [`Refusal::TooLarge`]: set fewer or shorter attributes.
    pub async fn set_attributes(
        &self,
        path: &Path,
        expected: Option<ObjectId>,
        attributes: Attributes,
    ) -> Result<ObjectStat, ClientError> {
        let request = Request::SetAttributes { path: path.clone(), expected, attributes };
        let reply = self.request(request).await?;
        reply_of!(reply, "set attributes", Reply::Stat(stat) => stat)
    }

    /// Makes one sealed file of the blocks of others, in their order, and takes the others away,
    /// all in one step and without moving a byte. It replaces what has the name unless the mode is
    /// [`CreateMode::New`]. Of the options, condition, parents, listing, TTL and attributes count.
    ///
    /// # Errors
    /// [`Refusal::WrongKind`] of a part that is no sealed file, or is a value in the catalog and
    /// not the first: seal it, or leave it out. [`Refusal::CrossesJob`]: copy the part instead.
    /// [`Refusal::Exists`] and [`Refusal::Changed`] by the condition: choose another name, or look
    /// it up and decide again. Nothing has changed then.
    pub async fn concat(
        &self,
        parts: &[Path],
        to: &Path,
        options: &PutOptions,
    ) -> Result<ObjectStat, ClientError> {
        let is_new = options.mode == CreateMode::New;
        let request = Concat {
            parts: parts.to_vec(),
            to: to.clone(),
            condition: options.condition.or(is_new.then_some(Condition::Absent)),
            parents: options.parents,
            is_listed: options.is_listed,
            ttl: options.ttl,
            attributes: options.all_attributes(),
            writer: self.shared.nonces.draw(),
        };
        let reply = self.request(Request::Concat(request)).await?;
        reply_of!(reply, "concat", Reply::Stat(stat) => stat)
    }

    /// Returns how many files, directories, bytes and lost bytes a subtree holds.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: check the path.
    pub async fn usage(&self, path: &Path) -> Result<Usage, ClientError> {
        let reply = self.request(Request::Usage { path: path.clone() }).await?;
        reply_of!(reply, "usage", Reply::Usage(usage) => usage)
    }
}
