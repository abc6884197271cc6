//! Changes that are made once, however often their requests arrive.

use sanderling_protocol::message::{Once, Repetition};
use sanderling_protocol::{Instant, Refusal, Reply, Request};

use super::prepare::Answered;
use super::{Namenode, Prepared};
use crate::access::Claims;
use crate::catalog::{Action, Command, LoggedOnce, Sent, is_passing};

impl Namenode {
    /// Answers a change that was made before as it was answered then; makes the command of one that
    /// is new.
    ///
    /// What is refused here for good becomes a command as well: it is the change's outcome, and a
    /// copy of the request that is still on its way must not be done after the client was told
    /// that it is refused.
    pub(super) fn prepare_once(&mut self, now: Instant, once: Once) -> Prepared {
        let Once { client, sequence, settled_below, change } = once;
        let (request, fingerprint) = change.into_parts();
        if request.repeat() != Repetition::Once {
            let why = format!("{} is no change that is made once", request.kind());
            return Prepared::Answer(Err(Refusal::BadRequest { why }));
        }
        let sent = Sent { client, sequence, settled_below, fingerprint };
        if let Some(mut answer) = self.catalog.answered(&sent) {
            if let Ok(Reply::Node(info)) = &mut answer {
                self.add_heartbeat(info, now);
            }
            return Prepared::Answer(answer);
        }
        let action = match self.action(now, request) {
            Ok(action) => action,
            // It makes room, and then the change is sent again.
            Err(Answered::First(action)) => {
                return Prepared::Log(Command { at: now, action: *action });
            }
            Err(Answered::Reply(reply)) => return Prepared::Answer(Ok(*reply)),
            Err(Answered::Refused(refusal)) if is_passing(&refusal) => {
                return Prepared::Answer(Err(refusal));
            }
            Err(Answered::Refused(refusal)) => Action::Refuse(Box::new(refusal)),
        };
        let once = LoggedOnce { client, sequence, settled_below, fingerprint, action };
        Prepared::Log(Command { at: now, action: Action::Once(Box::new(once)) })
    }

    /// Says whether the owner of a token may make a request now. The repeat of a change that was
    /// made is allowed, although its object or job may have gone since.
    ///
    /// # Errors
    /// As [`Claims::check`].
    pub fn allows(&self, claims: &Claims, request: &Request) -> Result<(), Refusal> {
        self.catalog.check_token(claims)?;
        match claims.check(request, &self.catalog) {
            Err(Refusal::ObjectGone { .. } | Refusal::UnknownJob { .. })
                if self.is_repeated(request) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }

    /// Tells whether a request is a change that was made before. It is answered then whatever has
    /// become of the object.
    fn is_repeated(&self, request: &Request) -> bool {
        let Request::Once(once) = request else { return false };
        let Once { client, sequence, settled_below, change } = &**once;
        let sent = Sent {
            client: *client,
            sequence: *sequence,
            settled_below: *settled_below,
            fingerprint: change.fingerprint(),
        };
        !matches!(
            self.catalog.answered(&sent),
            None | Some(Err(Refusal::OutcomeUnknown { .. } | Refusal::BadRequest { .. }))
        )
    }
}
