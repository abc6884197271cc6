//! Watches the certificates of a process: when they end, and when to warn; and its secret.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use super::validity::{Validity, ValidityState, worst};
use super::{ClientTls, ServerTls};
use crate::keyring::POLL_INTERVAL;
use crate::secret::{Secret, unix_seconds};

/// Time between two warnings of the same: one a day is seen and fills no log. A certificate of 90
/// days has 18 of them.
const WARN_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The certificates of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Expiries {
    own: Option<ServerTls>,
    authorities: Option<ClientTls>,
    secret: Option<Secret>,
}

impl Expiries {
    /// Watches the certificates that a process shows, and the authorities that it trusts.
    #[must_use]
    pub const fn new(own: Option<ServerTls>, authorities: Option<ClientTls>) -> Self {
        Self { own, authorities, secret: None }
    }

    /// Also watches the file of the secret: callers make a server look at it, and none may arrive.
    #[must_use]
    pub fn with_secret(self, secret: Option<Secret>) -> Self {
        Self { secret, ..self }
    }

    /// Returns for each kind of certificate, `own` and `authority`, when the first of them ends, in
    /// seconds since 1970. Files that have changed are read again before.
    #[must_use]
    pub fn timestamps(&self) -> Vec<(&'static str, i64)> {
        let first = |validities: Vec<Validity>| validities.iter().map(|it| it.ends).min();
        let all = self.validities().into_iter();
        all.filter_map(|(kind, _, all)| Some((kind, first(all)?))).collect()
    }

    /// Reads files that have changed, and logs a warning of certificates that end soon: when it
    /// begins, then once a day, and when one has ended. A secret whose file has changed is read
    /// again, too. It never returns.
    pub async fn watch(self) -> Infallible {
        let mut warnings = [Warnings::default(); 2];
        loop {
            let now = unix_seconds();
            for (warnings, (kind, file, all)) in warnings.iter_mut().zip(self.validities()) {
                let Some(validity) = worst(&all, now) else { continue };
                if warnings.is_due(validity.life(now), Instant::now()) {
                    warn(kind, &file, validity, now);
                }
            }
            self.secret.iter().for_each(Secret::look);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Always both kinds, in the same order.
    fn validities(&self) -> [(&'static str, String, Vec<Validity>); 2] {
        let own = self.own.as_ref().map(|own| (own.file(), own.validities()));
        let authorities = self.authorities.as_ref().map(|it| (it.file(), it.validities()));
        [("own", own), ("authority", authorities)].map(|(kind, found)| {
            let (file, validities) = found.unwrap_or_default();
            (kind, file, validities)
        })
    }
}

/// The last warning: its state and its time.
#[derive(Debug, Clone, Copy, Default)]
struct Warnings(Option<(ValidityState, Instant)>);

impl Warnings {
    /// Returns whether it is time for a warning, and takes it as given.
    fn is_due(&mut self, life: ValidityState, now: Instant) -> bool {
        // What got worse is worth another: a clock that jumps to and fro gives no more.
        let is_warned = self.0.is_some_and(|(warned, at)| {
            life <= warned && now.saturating_duration_since(at) < WARN_INTERVAL
        });
        let is_due = life > ValidityState::Good && !is_warned;
        if is_due {
            self.0 = Some((life, now));
        }
        is_due
    }
}

fn warn(kind: &str, file: &str, validity: Validity, now: u64) {
    let next = match kind {
        "own" => "replace the certificate and its key with ones that `sanderling tls renew` makes",
        _ => {
            "add a new authority to the file, renew the servers' certificates, take the old one out"
        }
    };
    let days_left = validity.days_left(now);
    match validity.life(now) {
        ValidityState::Good => {}
        ValidityState::Ending => {
            let ends = validity.end_date();
            tracing::warn!(kind, file, ends, days_left, next, "a certificate ends soon");
        }
        ValidityState::Early => {
            let begins = validity.begin_date();
            let next = "set the clock, or wait";
            tracing::warn!(kind, file, begins, next, "a certificate is not valid yet");
        }
        ValidityState::Ended => {
            let ended = validity.end_date();
            tracing::warn!(kind, file, ended, next, "a certificate has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_comes_once_a_day_and_when_it_gets_worse() {
        let (mut warnings, begin) = (Warnings::default(), Instant::now());
        let mut at = |seconds, life| warnings.is_due(life, begin + Duration::from_secs(seconds));
        assert!(!at(0, ValidityState::Good));
        assert!(at(10, ValidityState::Ending));
        assert!(!at(12, ValidityState::Ending) && !at(3_600, ValidityState::Ending));
        assert!(at(86_411, ValidityState::Ending));
        assert!(at(86_413, ValidityState::Ended));
        // The clock steps back and forth, and the certificate is replaced by another such.
        assert!(
            !at(86_415, ValidityState::Ending)
                && !at(86_417, ValidityState::Ended)
                && !at(86_419, ValidityState::Good)
        );
        assert!(!at(86_421, ValidityState::Ending));
        assert!(at(2 * 86_420, ValidityState::Ended));
    }
}
