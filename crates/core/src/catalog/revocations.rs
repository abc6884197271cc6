//! Tokens that were taken back before their end.
//!
//! A revocation is kept until the tokens that it names have ended everywhere: a day after their end
//! by the log's time, because servers go by clocks of their own. There are at most
//! [`REVOCATIONS_MAX`]; a further one is refused, and none is ever dropped to make room.

use std::collections::BTreeMap;

use sanderling_protocol::frame::encode_body;
use sanderling_protocol::limits::REVOCATIONS_MAX;
use sanderling_protocol::token::Revocation;
use sanderling_protocol::{Instant, Refusal, Reply, TokenSelector, checksum};
use serde::{Deserialize, Serialize};

use crate::access::{Claims, Revoked, SUBJECT_BYTES_MAX, is_of_servers};

/// How much later than by the log's time a token may end at a server, in seconds: clocks of
/// machines that differ by a day are wrong.
const CLOCKS_DIFFER_MAX: u64 = 24 * 3600;

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Revocations {
    /// When the tokens have ended by themselves, in seconds since 1970.
    until: BTreeMap<TokenSelector, u64>,
    /// Identifies this list among all that the cluster ever had; 0 for the first, empty one.
    version: u64,
}

impl Revocations {
    /// Checks whether tokens may be revoked at `now`, or hold again.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`], [`Refusal::TooLarge`].
    pub(crate) fn check(
        &self,
        now: Instant,
        tokens: &TokenSelector,
        until: Option<u64>,
    ) -> Result<(), Refusal> {
        let bad = |why: &str| Err(Refusal::BadRequest { why: why.to_owned() });
        let is_known = self.until.contains_key(tokens);
        match (tokens, until) {
            (_, None) if is_known => return Ok(()),
            (_, None) => return bad(&format!("{tokens} was not revoked")),
            (TokenSelector::Subject(subject), _) if subject.is_empty() => {
                return bad("tokens without a subject are revoked one by one, by their numbers");
            }
            (TokenSelector::Subject(subject), _) if is_of_servers(subject) => {
                return bad("servers make tokens of this subject themselves: change the secret");
            }
            (TokenSelector::Subject(subject), _) if subject.len() > SUBJECT_BYTES_MAX => {
                let (value, limit) = (subject.len() as u64, SUBJECT_BYTES_MAX as u64);
                let what = "a subject".to_owned();
                return Err(Refusal::TooLarge { what, value, limit });
            }
            (_, Some(until)) if until <= seconds(now) => {
                return bad("the tokens have ended by then: there is nothing to revoke");
            }
            _ => {}
        }
        let needed = |until: &&u64| !is_over(now, **until);
        let kept = self.until.values().filter(needed);
        if is_known || kept.clone().count() < REVOCATIONS_MAX {
            return Ok(());
        }
        let first = kept.min().copied().unwrap_or(0).saturating_sub(seconds(now)) / 3600 + 24;
        bad(&format!(
            "{REVOCATIONS_MAX} revocations are kept, and there may be no more: one ends in {first} \
             hours. Take some back (`sanderling token revoked`), revoke a subject, or change the \
             secret, which ends all tokens"
        ))
    }

    /// Revokes tokens, or lets them hold again, by the command with the number `index`.
    pub(super) fn revoke(
        &mut self,
        now: Instant,
        index: u64,
        tokens: &TokenSelector,
        until: Option<u64>,
    ) -> Result<Reply, Refusal> {
        self.check(now, tokens, until)?;
        let kept = &mut self.until;
        kept.retain(|_, until| !is_over(now, *until));
        match until {
            Some(until) => {
                // A second revocation shortens no first one.
                let kept = kept.entry(tokens.clone()).or_default();
                *kept = until.max(*kept);
            }
            None => {
                kept.remove(tokens);
            }
        }
        // The place in the log alone would not do: a log that lost its end has places twice.
        let checksum = checksum::crc32c(&encode_body(kept));
        self.version = u64::from(checksum) << 32 | index & u64::from(u32::MAX);
        Ok(Reply::Done)
    }

    /// Returns the version of the list of revoked tokens: it changes when the list does.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Refuses the owner of a token that was taken back.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: get another token.
    pub(crate) fn check_token(&self, claims: &Claims) -> Result<(), Refusal> {
        let kept = &self.until;
        claims.check_names(kept.is_empty(), |name| kept.contains_key(name))
    }

    /// Returns the tokens that do not hold any more.
    pub(super) fn revoked(&self) -> Revoked {
        self.until.keys().cloned().collect()
    }

    /// Returns the answer to a server that has the list of this version.
    pub(crate) fn since(&self, known: u64) -> Reply {
        let each = |(tokens, until): (&TokenSelector, &u64)| Revocation {
            tokens: tokens.clone(),
            until: *until,
        };
        let list = (self.version != known).then(|| self.until.iter().map(each).collect());
        Reply::Revocations { version: self.version, list }
    }
}

const fn seconds(at: Instant) -> u64 {
    at.0 / 1_000_000
}

const fn is_over(now: Instant, until: u64) -> bool {
    until.saturating_add(CLOCKS_DIFFER_MAX) < seconds(now)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::TokenId;

    use super::*;

    fn revoke(kept: &mut Revocations, at: u64, id: u64, until: Option<u64>) -> Result<(), Refusal> {
        let (at, tokens) = (Instant(at * 1_000_000), TokenSelector::Id(TokenId(id)));
        kept.revoke(at, kept.version + 1, &tokens, until).map(|_| ())
    }

    #[test]
    fn revocations_are_bounded_and_kept_until_the_tokens_have_ended() {
        let mut kept = Revocations::default();
        assert_eq!(kept.version(), 0);
        for id in 0..REVOCATIONS_MAX as u64 {
            revoke(&mut kept, 1000, id, Some(2000)).unwrap();
        }
        let version = kept.version();
        let refused = revoke(&mut kept, 1000, 5000, Some(2000)).unwrap_err();
        assert!(refused.to_string().contains("change the secret"), "{refused}");
        assert_eq!(kept.version(), version);
        // One that is known already may be revoked for longer, never for less.
        revoke(&mut kept, 1000, 3, Some(9000)).unwrap();
        revoke(&mut kept, 1000, 3, Some(8000)).unwrap();
        // The tokens have ended here, and may not have elsewhere.
        assert!(revoke(&mut kept, 2001, 5000, Some(3000)).is_err());
        revoke(&mut kept, 2001 + CLOCKS_DIFFER_MAX, 5000, Some(3000 + CLOCKS_DIFFER_MAX)).unwrap();
        let Reply::Revocations { list: Some(list), version } = kept.since(0) else {
            panic!("there are some")
        };
        assert_eq!(list.iter().map(|it| it.until).collect::<Vec<_>>(), [9000, 89400]);
        assert_eq!(kept.since(version), Reply::Revocations { version, list: None });
        revoke(&mut kept, 90_000, 3, None).unwrap();
        assert!(revoke(&mut kept, 90_000, 3, None).is_err(), "it is not there any more");
        assert_ne!(kept.version(), version);
    }

    #[test]
    fn servers_and_the_nameless_are_not_locked_out_by_their_subject() {
        let kept = Revocations::default();
        let check = |subject: &str, until| {
            let tokens = TokenSelector::Subject(subject.to_owned());
            kept.check(Instant(1_000_000_000), &tokens, Some(until))
        };
        for subject in ["", "datanode", "namenode", "manager", &"x".repeat(257)] {
            assert!(check(subject, 2000).is_err(), "{subject}");
        }
        assert!(check("x", 1000).is_err());
        assert_eq!(check("x", 1001), Ok(()));
    }
}
