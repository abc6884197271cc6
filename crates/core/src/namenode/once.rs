//! Changes that are made once, however often their requests arrive.

use sanderling_protocol::message::{Once, Repetition};
use sanderling_protocol::{Instant, Refusal, Reply, Request};

use super::prepare::Answered;
use super::{Namenode, Prepared};
use crate::access::Claims;
use crate::catalog::{Action, ChangeKey, Command, LoggedOnce, is_passing};

impl Namenode {
    /// Answers a change that was made before as it was answered then; makes the command of one that
    /// is new.
    ///
    /// What is refused here for good becomes a command as well: it is the change's outcome, and a
    /// copy of the request that is still on its way must not be done after the client received the
    /// refusal. The command is logged only if [`Namenode::refuses`] does not remember it.
    pub(super) fn prepare_once(&mut self, now: Instant, once: Box<Once>) -> Prepared {
        let (client, sequence, settled_below) = (once.client, once.sequence, once.settled_below);
        let fingerprint = once.change.fingerprint();
        if once.change.request().repeat() != Repetition::Once {
            let kind = once.change.request().kind();
            let why = format!("{kind} is no change that is made once");
            return Prepared::Answer(Err(Refusal::BadRequest { why }));
        }
        let sent = ChangeKey { client, sequence, settled_below, fingerprint };
        if let Some(mut answer) = self.catalog.answered(&sent) {
            if let Ok(Reply::Node(info)) = &mut answer {
                self.add_heartbeat(info, now);
            }
            return Prepared::Answer(answer);
        }
        if let Some(refusal) = self.refused.find(&sent) {
            return Prepared::Answer(Err(refusal));
        }
        self.room_waits.begin(&sent, &self.catalog);
        let action = self.action(now, once.change.into_request());
        self.room_waits.end();
        let action = match action {
            Ok(action) => action,
            // It makes room, and then the change is sent again.
            Err(Answered::First(action)) => {
                return Prepared::Log(Command { at: now, action: *action });
            }
            Err(Answered::Reply(reply)) => return Prepared::Answer(Ok(*reply)),
            Err(Answered::Refused(refusal)) if is_passing(&refusal) => {
                return Prepared::Answer(Err(refusal));
            }
            Err(Answered::Refused(refusal)) => {
                self.room_waits.remove(&sent);
                Action::Refuse(Box::new(refusal))
            }
        };
        let once = LoggedOnce { client, sequence, settled_below, fingerprint, action };
        Prepared::Log(Command { at: now, action: Action::Once(Box::new(once)) })
    }

    /// Returns the refusal of a command that would change nothing, and remembers it as the outcome
    /// of its change: such a command is not logged. `None` if it is to be logged, as every final
    /// refusal of a group's leader is.
    ///
    /// Only a command before which nothing of the same frame waits may be given, and no copy of the
    /// same change: those are decided when what is before them was applied.
    pub fn refuses(&mut self, command: &Command) -> Option<Refusal> {
        let Action::Once(once) = &command.action else {
            return self.catalog.refuses(&command.action);
        };
        let refusal = self.catalog.refuses(&once.action)?;
        // Now and then the log records that the client lives.
        if !is_passing(&refusal) {
            let is_kept = !self.config.logs_refusals
                && self.catalog.is_noted(command.at, once.client)
                && self.refused.keep(&self.catalog, &once.sent(), &refusal);
            if !is_kept {
                return None;
            }
            self.room_waits.remove(&once.sent());
        }
        Some(refusal)
    }

    /// Checks whether the owner of a token may make a request now. The repeat of a change that was
    /// made is allowed, although its object or job may have gone since. Nothing is allowed once the
    /// token was taken back.
    ///
    /// # Errors
    /// As [`Claims::check`], and [`Refusal::Unauthenticated`].
    pub fn allows(&self, claims: &Claims, request: &Request) -> Result<(), Refusal> {
        self.catalog.revocations().check_token(claims)?;
        match claims.check(request, &self.catalog) {
            Err(Refusal::ObjectGone { .. } | Refusal::UnknownJob { .. })
                if self.is_repeated(request) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }

    /// Returns whether a request is a change that was made before. It is answered then whatever has
    /// become of the object.
    fn is_repeated(&self, request: &Request) -> bool {
        let Request::Once(once) = request else { return false };
        let Once { client, sequence, settled_below, change } = &**once;
        let sent = ChangeKey {
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
