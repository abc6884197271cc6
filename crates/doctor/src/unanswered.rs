//! A namenode that does not answer, or not as it should: how bad that is, and the next step.

use sanderling_protocol::Refusal;
use sanderling_transport::{
    CallError, CredentialsFault, ValidityState, WrongPeer, unix_seconds, worst,
};

use super::certificates::{OTHER_AUTHORITY, RENEW, SET_THE_CLOCK};
use super::check::Check;
use super::observations::CertificateLook;

const NAME: &str = "namenode";

const RIGHT_ADDRESS: &str = "--namenode with the namenode's address";

const START_IT: &str = "start it on its directory: docs/DAY-TWO.md#sanderlingnamenodemissing; or \
                        --namenode with the right address";

/// What is known of a call to the namenode that failed.
#[derive(Debug)]
pub(super) struct FailedCall<'a> {
    pub(super) error: &'a CallError,
    /// Whether a flag, the environment or a context names a cluster.
    pub(super) is_configured: bool,
    /// What the cluster on this machine has to do with it.
    pub(super) advice: Option<String>,
    /// The next command with the keys of the cluster on this machine, if the address is its.
    pub(super) keys: Option<String>,
    /// The certificates that the server shows; `None` if it shows none.
    pub(super) certificates: Option<CertificateLook>,
}

impl FailedCall<'_> {
    /// Judges it.
    pub(super) fn check(&self) -> Check {
        let text = self.error.to_string();
        match self.error {
            CallError::Refused(refusal) => self.refused(refusal, text),
            CallError::WrongAddress { found: WrongPeer::Tls, .. } => self.without_tls(text),
            CallError::WrongAddress { .. } | CallError::OtherCluster { .. } => {
                let next = "the same with --namenode HOST:PORT";
                Check::fail(NAME, text, RIGHT_ADDRESS).with_next(next)
            }
            CallError::Credentials { cause: CredentialsFault::Token(_), .. } => {
                let next = "the same with --token-file FILE";
                Check::fail(NAME, text, "--token-file FILE with a token").with_next(next)
            }
            CallError::Credentials { cause: CredentialsFault::Peer(_), .. } => {
                self.distrusted(text)
            }
            CallError::Unreachable { .. } => self.unreachable(text),
            CallError::TimedOut { .. }
            | CallError::Closed { .. }
            | CallError::TooBusy { .. }
            | CallError::BadReply { .. } => Check::fail(NAME, text, "its log, its load"),
        }
    }

    fn refused(&self, refusal: &Refusal, text: String) -> Check {
        match refusal {
            Refusal::UnknownVersion { .. } => {
                Check::fail(NAME, text, "the same version on both sides")
            }
            Refusal::Unauthenticated { .. } if refusal.requires_tls() => self.without_tls(text),
            Refusal::Unauthenticated { .. } => {
                let mend = "--token-file FILE, and --tls-ca PEM where the port uses TLS";
                Check::fail(NAME, text, mend).with_next(self.with_keys("--token-file FILE"))
            }
            _ => Check::fail(NAME, text, "its log"),
        }
    }

    /// Judges a caller that does not use TLS where the server does.
    fn without_tls(&self, text: String) -> Check {
        let mend = "--tls-ca PEM with the authority of its certificates";
        Check::fail(NAME, text, mend).with_next(self.with_keys("--tls-ca PEM"))
    }

    fn with_keys(&self, flag: &str) -> String {
        self.keys.clone().unwrap_or_else(|| format!("the same with {flag}"))
    }

    /// Judges a server whose certificate is not trusted. It runs: to start it is no mend.
    fn distrusted(&self, text: String) -> Check {
        let Some(shown) = &self.certificates else {
            let mend = "the same without --tls-ca, or start it with --tls-cert and --tls-key: \
                        docs/SECURITY.md#certificates";
            return Check::fail(NAME, text, mend).with_next("the same without --tls-ca PEM");
        };
        let now = unix_seconds();
        match worst(&shown.validities, now).map(|validity| validity.life(now)) {
            Some(ValidityState::Ended) => Check::fail(NAME, text, RENEW),
            Some(ValidityState::Early) => Check::fail(NAME, text, SET_THE_CLOCK),
            _ => {
                let check = Check::fail(NAME, text, OTHER_AUTHORITY);
                check.with_next(self.with_keys("--tls-ca PEM"))
            }
        }
    }

    /// Judges an address at which nothing listens. Where no cluster is configured, that is no
    /// problem yet.
    fn unreachable(&self, text: String) -> Check {
        let Some(next) = &self.advice else {
            if self.is_configured {
                return Check::fail(NAME, text, START_IT);
            }
            let mend = "sanderling local start, or --namenode with the right address";
            return Check::warn(NAME, text, mend);
        };
        let mend = next.trim_start_matches("the same with ");
        // A command of its own starts what is down of the cluster on this machine.
        let is_its_cluster = mend == next.as_str();
        if self.is_configured || is_its_cluster {
            return Check::fail(NAME, text, mend).with_next(next);
        }
        Check::warn(NAME, text, mend)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use sanderling_transport::Validity;

    use super::super::check::CheckLevel::{Fail, Warn};
    use super::*;

    fn failed(error: &CallError, is_configured: bool) -> FailedCall<'_> {
        FailedCall { error, is_configured, advice: None, keys: None, certificates: None }
    }

    fn unreachable() -> CallError {
        CallError::unreachable("127.0.0.1:7600", io::ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn dead_namenode_is_a_warning_only_where_no_cluster_is_configured() {
        let error = unreachable();
        let check = failed(&error, false).check();
        assert_eq!(check.verdict, Warn);
        assert!(check.mend.is_some_and(|mend| mend.contains("local start")));
        let check = failed(&error, true).check();
        assert_eq!(check.verdict, Fail);
        assert!(check.mend.is_some_and(|mend| !mend.contains("local start")));
    }

    #[test]
    fn local_cluster_that_is_down_is_a_problem_and_another_one_is_not() {
        let error = unreachable();
        let with = |is_configured, advice: &str| {
            let advice = Some(advice.to_owned());
            FailedCall { advice, ..failed(&error, is_configured) }.check()
        };
        let restart = "sanderling local restart namenode";
        let check = with(false, restart);
        assert_eq!((check.verdict, check.next.as_deref()), (Fail, Some(restart)));
        let other = "the same with --namenode 127.0.0.1:9";
        let check = with(false, other);
        assert_eq!((check.verdict, check.mend.as_deref()), (Warn, Some("--namenode 127.0.0.1:9")));
        let check = with(true, other);
        assert_eq!((check.verdict, check.next.as_deref()), (Fail, Some(other)));
    }

    #[test]
    fn silent_namenode_is_always_a_problem() {
        let (address, waited) = ("127.0.0.1:7600".to_owned(), Duration::from_secs(2));
        let error = CallError::TimedOut { address, waited };
        let check = failed(&error, false).check();
        assert_eq!((check.verdict, check.mend.as_deref()), (Fail, Some("its log, its load")));
    }

    #[test]
    fn caller_without_tls_is_given_the_flag_for_it() {
        for (why, flag) in [
            ("this port speaks TLS: give --tls-ca", "the same with --tls-ca PEM"),
            ("a token is needed here", "the same with --token-file FILE"),
        ] {
            let error = CallError::Refused(Refusal::Unauthenticated { why: why.to_owned() });
            let call = failed(&error, true);
            assert_eq!(call.check().next.as_deref(), Some(flag));
            let keys = Some("the same with --tls-ca a --token-file b".to_owned());
            let call = FailedCall { keys: keys.clone(), ..call };
            assert_eq!(call.check().next, keys);
        }
    }

    #[test]
    fn namenode_that_runs_with_another_certificate_is_not_started() {
        let now = i64::try_from(unix_seconds()).expect("a time");
        let shown = |begins, ends| {
            let validities = vec![Validity { begins: now + begins, ends: now + ends }];
            Some(CertificateLook { validities, distrust: None })
        };
        let error = unreachable();
        for (certificates, part) in [
            (shown(-9, -5), "tls renew"),
            (shown(5, 9), "set the clock"),
            (shown(-9, 9_000_000), "--tls-ca PEM of the authority"),
            (None, "the same without --tls-ca"),
        ] {
            let call = FailedCall { certificates, ..failed(&error, true) };
            let check = call.distrusted("it runs".to_owned());
            let mend = check.mend.expect("a next step");
            assert!(check.verdict == Fail && mend.contains(part), "{mend}");
            assert!(!mend.contains("on its directory"), "{mend}");
        }
    }
}
