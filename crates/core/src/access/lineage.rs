//! Where a token comes from: its number, its cluster and the tokens that it was minted from; and
//! which tokens were taken back.

use std::collections::BTreeSet;

use sanderling_protocol::{ClusterId, Refusal, TokenId, TokenSelector};

use super::{Claims, TokenRole};

/// The fields that distinguish a token from others. Tokens of earlier releases have none of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage {
    /// The token's number.
    pub id: Option<TokenId>,
    /// The only cluster in which it holds; `None` for every cluster with its secret.
    pub cluster: Option<ClusterId>,
    /// What names the tokens that it was minted from: it ends with each of them.
    pub parents: Vec<TokenSelector>,
}

impl Lineage {
    /// Most names of parents: eight generations that have numbers and subjects. Every request of a
    /// minted token may be compared with all of them.
    pub const PARENTS_MAX: usize = 16;
}

/// The set of revoked tokens, by number or subject.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revoked(BTreeSet<TokenSelector>);

impl FromIterator<TokenSelector> for Revoked {
    fn from_iter<T: IntoIterator<Item = TokenSelector>>(tokens: T) -> Self {
        Self(tokens.into_iter().collect())
    }
}

impl Revoked {
    /// Returns whether no token is revoked: then no request need be compared with the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether a subject is what servers call themselves in the tokens that they make: those
/// can only be taken back with the secret.
pub(crate) fn is_of_servers(subject: &str) -> bool {
    [TokenRole::Namenode, TokenRole::Datanode, TokenRole::Manager]
        .iter()
        .any(|part| part.word() == subject)
}

impl Claims {
    /// Returns whether its token can be taken back: all can but those that servers make for
    /// themselves.
    #[must_use]
    pub fn is_revocable(&self) -> bool {
        self.role == TokenRole::Client || self.lineage.id.is_some() || !is_of_servers(&self.subject)
    }

    /// Checks whether its token, or one that it was minted from, was taken back.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: another token is needed.
    pub fn check_revoked(&self, revoked: &Revoked) -> Result<(), Refusal> {
        self.check_names(revoked.is_empty(), |name| revoked.0.contains(name))
    }

    /// Checks its token, and those that it was minted from, against a list of revocations that
    /// `is_revoked` looks up. With `is_empty` nothing is looked up.
    pub(crate) fn check_names(
        &self,
        is_empty: bool,
        is_revoked: impl Fn(&TokenSelector) -> bool,
    ) -> Result<(), Refusal> {
        if is_empty || !self.is_revocable() {
            return Ok(());
        }
        match self.names().find(|name| is_revoked(name)) {
            None => Ok(()),
            Some(name) => {
                let why = format!("{name} was revoked: get another token from an administrator");
                Err(Refusal::Unauthenticated { why })
            }
        }
    }

    /// Checks whether its token is for the cluster `here`. A token that names no cluster is
    /// accepted by each.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: a token of this cluster is needed.
    pub fn check_cluster(&self, here: ClusterId) -> Result<(), Refusal> {
        match self.lineage.cluster {
            Some(there) if there != here => {
                let (here, there) = (here.0, there.0);
                let why = format!(
                    "the token is for cluster {there:016x} and this is {here:016x}: show a token \
                     that was made with `sanderling token new --cluster {here:016x}`"
                );
                Err(Refusal::Unauthenticated { why })
            }
            _ => Ok(()),
        }
    }

    /// Returns the lineage of a token that is minted from this one.
    pub(super) fn child(&self, id: TokenId) -> Result<Lineage, Refusal> {
        let mut parents = self.lineage.parents.clone();
        for name in self.own_names() {
            if !parents.contains(&name) {
                parents.push(name);
            }
        }
        if parents.len() > Lineage::PARENTS_MAX {
            let why = "the token was minted from one that was minted, and so on, too often: mint \
                       from an earlier one"
                .to_owned();
            return Err(Refusal::BadRequest { why });
        }
        Ok(Lineage { id: Some(id), cluster: self.lineage.cluster, parents })
    }

    /// Returns what names the token that an operator made and this one was minted from, or this
    /// one; `None` of a token without number and subject.
    #[must_use]
    pub fn root(&self) -> Option<TokenSelector> {
        // Parents are in the order in which they were made.
        self.lineage.parents.first().cloned().or_else(|| self.own_names().next())
    }

    fn own_names(&self) -> impl Iterator<Item = TokenSelector> {
        let subject = Some(&self.subject).filter(|subject| !subject.is_empty());
        let id = self.lineage.id.map(TokenSelector::Id);
        id.into_iter().chain(subject.map(|subject| TokenSelector::Subject(subject.clone())))
    }

    fn names(&self) -> impl Iterator<Item = TokenSelector> {
        self.own_names().chain(self.lineage.parents.iter().cloned())
    }
}
