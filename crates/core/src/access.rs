//! Authorization: the claims of a token, and the right that each request to the namenode and each
//! operation of a datanode needs.
//!
//! No secret is kept here. Whether a token is genuine is the shell's to check; what it then
//! allows is decided here, for the protocol and HTTP endpoints alike.

mod jwt;
mod lineage;
mod operations;
mod required_rights;
#[cfg(test)]
mod tests;

use std::fmt;

use sanderling_protocol::message::Role;
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, ObjectId, Path, Refusal, Reply, Request, TokenId};
use thiserror::Error;

pub use jwt::{Parts, TokenFault, join, parts, signed_text};
pub(crate) use lineage::is_of_servers;
pub use lineage::{Lineage, Revoked};
pub use operations::FrameAccess;
use required_rights::{RequiredRights, Right, need};

/// Longest name of a token's owner, in bytes. An address of mail fits (254 bytes, RFC 5321). A
/// revocation names one, and a token up to sixteen of them.
pub const SUBJECT_BYTES_MAX: usize = 256;

/// What the owner of a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRole {
    /// An operator: everything.
    Admin,
    /// The namenode: gives orders to datanodes.
    Namenode,
    /// A datanode: registers, and pushes blocks to others.
    Datanode,
    /// A manager: directs relocations.
    Manager,
    /// An application or an observer, limited to its rights.
    Client,
}

impl TokenRole {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Admin, "admin"),
        (Self::Namenode, "namenode"),
        (Self::Datanode, "datanode"),
        (Self::Manager, "manager"),
        (Self::Client, "client"),
    ];

    /// Returns the role's word in tokens and on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(part, _)| *part == self).map_or("", |(_, word)| word)
    }

    /// Returns the role that this word names in tokens and on the command line; `None` if none has
    /// it.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(part, _)| *part)
    }
}

impl From<Role> for TokenRole {
    /// Returns what a server claims for itself. An application has no secret to claim with.
    fn from(role: Role) -> Self {
        match role {
            Role::Client => Self::Client,
            Role::Namenode => Self::Namenode,
            Role::Datanode => Self::Datanode,
            Role::Manager => Self::Manager,
        }
    }
}

/// The error of a word that should name a right and names none: give one of [`right_words`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{word:?} is no right: {}", right_words())]
pub struct UnknownRight {
    /// The word.
    pub word: String,
}

/// The set of rights that a token gives its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Names and bytes may be read.
    pub const READ: Self = Self(1);
    /// Objects may be made, changed and deleted, jobs too.
    pub const WRITE: Self = Self(2);
    /// Nodes may be given notices, the catalog checked.
    pub const ADMIN: Self = Self(4);
    /// Metrics, nodes, events and the loss report may be read.
    pub const METRICS: Self = Self(8);
    /// All rights that can be given: to read, to write, to administrate and to read metrics.
    pub const ALL: Self = Self(15);

    /// What servers have: they move bytes and look at nodes. None of them makes, changes or deletes
    /// objects.
    const MOVE: Self = Self(9);

    const WORDS: [(Self, &'static str); 4] = [
        (Self::READ, "read"),
        (Self::WRITE, "write"),
        (Self::ADMIN, "admin"),
        (Self::METRICS, "metrics"),
    ];

    /// Returns the set of the rights that these words name, such as `read` and `write`.
    ///
    /// # Errors
    /// [`UnknownRight`] with the first word that is none: give one of [`right_words`].
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownRight> {
        let mut rights = Self::default();
        for word in words {
            let known = Self::WORDS.iter().find(|(_, known)| *known == word);
            rights = rights.and(known.ok_or_else(|| UnknownRight { word: word.to_owned() })?.0);
        }
        Ok(rights)
    }

    /// Returns the words of all rights in the set, such as `read` and `write`.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS.into_iter().filter(move |(right, _)| self.has(*right)).map(|(_, word)| word)
    }

    /// Returns the rights that are in at least one of the two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set has every right of `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The claims of a token, as its signature covers them. They allow an operation if the right is
/// among [`Self::rights`] and the path below [`Self::subtree`], until [`Self::expires_at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// A name for the logs.
    pub subject: String,
    /// What its owner is.
    pub role: TokenRole,
    /// Where its rights hold.
    pub subtree: Path,
    /// What it allows there.
    pub rights: Rights,
    /// When it ends, in seconds since 1970.
    pub expires_at: u64,
    /// Its number and the tokens that it was minted from, by which it can be revoked, and the only
    /// cluster in which it holds.
    pub lineage: Lineage,
}

/// What a page of an HTTP endpoint shows or does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpResource {
    /// Whether the server works: open without a token.
    Health,
    /// Metrics, nodes, events, losses.
    Look,
    /// Notices and what else changes what nodes are to do.
    Change,
    /// What is at a path: the page itself checks the right to read there.
    AtPath,
}

/// Where objects are, according to the catalog.
pub trait PathLookup {
    /// Returns an object's path; `None` when it is gone.
    fn path_of_object(&self, object: ObjectId) -> Option<Path>;

    /// Returns the root of a job's subtree; `None` when it has ended.
    fn path_of_job(&self, job: JobId) -> Option<Path>;
}

impl Claims {
    /// Returns whether no place is closed to its owner: neither names nor blocks need to be looked
    /// up to know whether they are in its subtree.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        self.role != TokenRole::Client || self.subtree.is_root()
    }

    /// Returns whether its owner has that right, where it holds. Datanodes and managers read the
    /// blocks of all objects; an owner with the right to administrate may still not read them.
    #[must_use]
    pub const fn allows(&self, right: Rights) -> bool {
        match self.role {
            TokenRole::Admin => true,
            TokenRole::Namenode | TokenRole::Datanode | TokenRole::Manager => {
                Rights::MOVE.has(right)
            }
            TokenRole::Client => self.rights.has(right),
        }
    }

    /// Returns whether its owner may look at nodes, events, losses and metrics.
    #[must_use]
    pub fn may_observe(&self) -> bool {
        let reads_everything = self.is_everywhere() && self.allows(Rights::READ);
        reads_everything || self.allows(Rights::METRICS) || self.may_administrate()
    }

    /// Returns whether its owner may change what nodes are to do.
    #[must_use]
    pub fn may_administrate(&self) -> bool {
        self.is_everywhere() && self.allows(Rights::ADMIN)
    }

    /// Checks whether a page of HTTP is allowed, as its request over the protocol would be.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: use a token that has the right.
    pub fn check_page(&self, page: HttpResource) -> Result<(), Refusal> {
        match page {
            HttpResource::Health | HttpResource::AtPath => Ok(()),
            HttpResource::Look if self.may_observe() => Ok(()),
            HttpResource::Change if self.may_administrate() => Ok(()),
            HttpResource::Look => Err(self.forbidden("may not look at the cluster")),
            HttpResource::Change => Err(self.forbidden("may not change what nodes are to do")),
        }
    }

    /// Returns whether there is anything that its owner may change.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.allows(Rights::WRITE) || self.may_administrate()
    }

    /// Returns whether its owner may read what a job holds beside its bytes: whoever may run jobs,
    /// read what is in them, or look at the cluster.
    fn may_see_accounts(&self) -> bool {
        self.allows(Rights::WRITE) || self.allows(Rights::READ) || self.may_observe()
    }

    /// Returns whether its owner may give orders to datanodes.
    #[must_use]
    pub const fn may_order(&self) -> bool {
        matches!(self.role, TokenRole::Admin | TokenRole::Namenode | TokenRole::Manager)
    }

    /// Returns whether its owner may store whole blocks beside their writers.
    #[must_use]
    pub const fn may_store(&self) -> bool {
        matches!(self.role, TokenRole::Admin | TokenRole::Datanode | TokenRole::Manager)
    }

    /// Checks whether a token with these claims allows a request. `names` has the paths of the
    /// objects that the request names by id.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]: a token with more rights, or for another subtree, is needed.
    pub fn check(&self, request: &Request, names: &impl PathLookup) -> Result<(), Refusal> {
        match need(request) {
            RequiredRights::Nothing => Ok(()),
            RequiredRights::Path(right, path) => self.check_path(right, path),
            RequiredRights::Paths(rights) => rights
                .into_iter()
                .flatten()
                .try_for_each(|(right, path)| self.check_path(right, path)),
            RequiredRights::Joined(parts, to) => {
                self.check_right(Right::Read)?;
                let mut paths = parts.iter().chain([to]);
                paths.try_for_each(|path| self.check_path(Right::Write, path))
            }
            RequiredRights::Lookups(paths) => {
                self.check_right(Right::Read)?;
                if self.is_everywhere() {
                    return Ok(());
                }
                paths.iter().try_for_each(|path| {
                    let path = path.parse::<Path>()?;
                    self.check_path(Right::Read, &path)
                })
            }
            RequiredRights::Object(right, object) => self.check_object(right, object, names),
            RequiredRights::Leases(leases) => leases
                .iter()
                .try_for_each(|(object, _)| self.check_object(Right::Write, *object, names)),
            RequiredRights::Job(job) => {
                self.check_right(Right::Write)?;
                self.check_job(job, names)
            }
            RequiredRights::Account(job) if self.may_see_accounts() => self.check_job(job, names),
            RequiredRights::Change if self.may_change() => Ok(()),
            RequiredRights::Observe if self.may_observe() => Ok(()),
            RequiredRights::Administrate if self.may_administrate() => Ok(()),
            RequiredRights::Notice
                if self.role == TokenRole::Datanode || self.may_administrate() =>
            {
                Ok(())
            }
            RequiredRights::Datanode
                if matches!(self.role, TokenRole::Datanode | TokenRole::Admin) =>
            {
                Ok(())
            }
            RequiredRights::Manager
                if matches!(self.role, TokenRole::Manager | TokenRole::Admin) =>
            {
                Ok(())
            }
            // Which of the two it is depends on the change, which is still to come.
            RequiredRights::Change => {
                Err(self.forbidden("has no right to write, and none to administrate"))
            }
            RequiredRights::Account(_)
            | RequiredRights::Observe
            | RequiredRights::Administrate
            | RequiredRights::Notice
            | RequiredRights::Datanode
            | RequiredRights::Manager => {
                Err(self.forbidden(&format!("may not {}", request.kind())))
            }
        }
    }

    /// Takes out of an answer what its owner may not see.
    pub fn narrow(&self, reply: &mut Reply) {
        if let Reply::Jobs(jobs) = reply
            && !self.is_everywhere()
        {
            jobs.retain(|job| self.subtree.contains(&job.path));
        }
    }

    /// Returns the claims of a token that its owner requests, at `now` in seconds since 1970. `id`
    /// was drawn for it.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] when they would allow more than its own, or it is a server's: request
    /// less, or with another token. [`Refusal::BadRequest`] when they are none: correct them.
    pub fn narrower(&self, asked: &MintToken, now: u64, id: TokenId) -> Result<Self, Refusal> {
        let bad = |why: String| Refusal::BadRequest { why };
        if !matches!(self.role, TokenRole::Admin | TokenRole::Client) {
            return Err(self.forbidden("may not mint tokens"));
        }
        let rights = Rights::of_words(asked.rights.iter().map(String::as_str))
            .map_err(|error| bad(error.to_string()))?;
        if asked.subject.len() > SUBJECT_BYTES_MAX {
            return Err(bad(format!("a subject has at most {SUBJECT_BYTES_MAX} bytes")));
        }
        if is_of_servers(&asked.subject) {
            return Err(bad(format!("{:?} is a subject of servers", asked.subject)));
        }
        if rights == Rights::default() || asked.lifetime.0 == 0 {
            return Err(bad("a token has at least one right and some time".to_owned()));
        }
        if !self.allows(rights) {
            return Err(self.forbidden("has not all of these rights itself"));
        }
        self.check_in(&asked.subtree)?;
        let expires_at = now.saturating_add(asked.lifetime.0.div_ceil(1000)).min(self.expires_at);
        let (subject, subtree) = (asked.subject.clone(), asked.subtree.clone());
        let lineage = self.child(id)?;
        Ok(Self { subject, role: TokenRole::Client, subtree, rights, expires_at, lineage })
    }

    fn check_path(&self, right: Right, path: &Path) -> Result<(), Refusal> {
        self.check_right(right)?;
        self.check_in(path)
    }

    /// Refuses a path outside the subtree.
    fn check_in(&self, path: &Path) -> Result<(), Refusal> {
        if self.is_everywhere() || self.subtree.contains(path) {
            return Ok(());
        }
        Err(self.forbidden(&format!("may not go to {path}, only below {}", self.subtree)))
    }

    fn check_object(
        &self,
        right: Right,
        object: ObjectId,
        names: &impl PathLookup,
    ) -> Result<(), Refusal> {
        self.check_right(right)?;
        if self.is_everywhere() {
            return Ok(());
        }
        match names.path_of_object(object) {
            // The answer does not reveal whether another owner's object exists: what is gone and
            // what is elsewhere look the same.
            Some(path) if self.subtree.contains(&path) => Ok(()),
            _ => Err(Refusal::ObjectGone { object }),
        }
    }

    fn check_job(&self, job: JobId, names: &impl PathLookup) -> Result<(), Refusal> {
        if self.is_everywhere() {
            return Ok(());
        }
        match names.path_of_job(job) {
            Some(path) if self.subtree.contains(&path) => Ok(()),
            // As with objects: another's job, one that has ended and one that is still to come look
            // the same.
            _ => Err(Refusal::UnknownJob { job }),
        }
    }

    /// Checks a right on names and objects. A datanode has none: it reads blocks at other
    /// datanodes, at the places that the manager's orders name.
    fn check_right(&self, right: Right) -> Result<(), Refusal> {
        let (set, word) = match right {
            Right::Read => (Rights::READ, "read"),
            Right::Write => (Rights::WRITE, "write"),
        };
        if self.allows(set) && self.role != TokenRole::Datanode {
            return Ok(());
        }
        Err(self.forbidden(&format!("has no right to {word}")))
    }

    /// Returns the refusal that names what a token's owner may not do.
    #[must_use]
    pub fn forbidden(&self, what: &str) -> Refusal {
        let name = if self.subject.is_empty() { "its owner" } else { &self.subject };
        Refusal::Forbidden { why: format!("the token of {name} ({}) {what}", self.role) }
    }
}

impl fmt::Display for TokenRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

/// Returns the words of all rights, for messages.
#[must_use]
pub fn right_words() -> String {
    Rights::ALL.words().collect::<Vec<_>>().join(", ")
}
