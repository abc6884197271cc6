//! When a certificate begins and ends, and what that means now.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// Seconds of a day.
const DAY: i64 = 24 * 3600;

/// The share of its life that a certificate has left when it is time for another, in percent. A
/// certificate of 90 days has 18 left then. Chosen, not measured: tools that renew begin when a
/// third is left (certbot), so it warns where they have failed.
const ENDING_PERCENT: i128 = 20;

/// The time in which a certificate is valid, in seconds since 1970, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second of the validity, since 1970.
    pub begins: i64,
    /// The last second of the validity, since 1970.
    pub ends: i64,
}

/// The state of a certificate's validity at some time, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValidityState {
    /// More than a fifth of its life is left.
    Good,
    /// A fifth of its life is left, or less: renew it.
    Ending,
    /// It is not valid yet: it was made for later, or a clock is wrong.
    Early,
    /// It is not valid any more.
    Ended,
}

impl Validity {
    /// Reads the dates of a certificate. `None` if it is no X.509 certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let validity = parsed.validity();
        let (begins, ends) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(Self { begins, ends })
    }

    /// Describes what the dates mean at a time in seconds since 1970.
    #[must_use]
    pub fn life(self, now: u64) -> ValidityState {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let left = i128::from(self.ends) - i128::from(now);
        let whole = i128::from(self.ends) - i128::from(self.begins);
        match () {
            () if left < 0 => ValidityState::Ended,
            () if now < self.begins => ValidityState::Early,
            () if left * 100 <= whole * ENDING_PERCENT => ValidityState::Ending,
            () => ValidityState::Good,
        }
    }

    /// Returns the whole days that are left at a time in seconds since 1970; negative once it has
    /// ended.
    #[must_use]
    pub fn days_left(self, now: u64) -> i64 {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        self.ends.saturating_sub(now).div_euclid(DAY)
    }

    /// Returns the first second in which the certificate is valid, as text in UTC.
    #[must_use]
    pub fn begin_date(self) -> String {
        date(self.begins)
    }

    /// Returns the last second in which the certificate is valid, as text in UTC.
    #[must_use]
    pub fn end_date(self) -> String {
        date(self.ends)
    }
}

fn date(seconds: i64) -> String {
    match ASN1Time::from_timestamp(seconds) {
        Ok(time) => {
            let time = time.to_datetime();
            format!("{} {:02}:{:02} UTC", time.date(), time.hour(), time.minute())
        }
        Err(_) => format!("{seconds} s after 1970"),
    }
}

/// Returns the one of several validities that needs looking after first: the worst at that time,
/// of equal ones the one that ends first.
#[must_use]
pub fn worst(validities: &[Validity], now: u64) -> Option<Validity> {
    let worse = |it: &&Validity| (std::cmp::Reverse(it.life(now)), it.ends);
    validities.iter().min_by_key(worse).copied()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(begins: (i32, u8, u8), ends: (i32, u8, u8)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["x".to_owned()]).unwrap();
        params.not_before = date_time_ymd(begins.0, begins.1, begins.2);
        params.not_after = date_time_ymd(ends.0, ends.1, ends.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn dates_are_read_however_far_they_are() {
        let read = |begins, ends| Validity::of(&made(begins, ends)).unwrap();
        let usual = read((2026, 11, 22), (2027, 11, 23));
        assert_eq!((usual.begins, usual.ends), (1_795_305_600, 1_826_928_000));
        assert_eq!(usual.end_date(), "2027-11-23 00:00 UTC");
        let far = read((1951, 1, 1), (9999, 12, 31));
        assert_eq!(far.begin_date(), "1951-01-01 00:00 UTC");
        assert_eq!(far.end_date(), "9999-12-31 00:00 UTC");
        assert_eq!(far.life(1_800_000_000), ValidityState::Good);
        assert_eq!(far.life(u64::MAX), ValidityState::Ended);
        let whole = made((2026, 1, 1), (2027, 1, 1));
        for length in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..length].into()), None, "{length} bytes");
        }
    }

    #[test]
    fn fifth_of_a_life_is_its_end() {
        let validity = Validity { begins: 1_000, ends: 2_000 };
        for (now, life) in [
            (0, ValidityState::Early),
            (999, ValidityState::Early),
            (1_000, ValidityState::Good),
            (1_799, ValidityState::Good),
            (1_800, ValidityState::Ending),
            (2_000, ValidityState::Ending),
            (2_001, ValidityState::Ended),
            (u64::MAX, ValidityState::Ended),
        ] {
            assert_eq!(validity.life(now), life, "at {now}");
        }
        // Dates that contradict themselves or fill all numbers are never good.
        let turned = Validity { begins: 2_000, ends: 1_000 };
        assert_eq!(turned.life(500), ValidityState::Early);
        assert_eq!(turned.life(1_500), ValidityState::Ended);
        let all = Validity { begins: i64::MIN, ends: i64::MAX };
        assert_eq!(all.life(0), ValidityState::Good);
        assert!(all.days_left(u64::MAX) >= 0 && !all.end_date().is_empty());
        assert_eq!(validity.days_left(2_001), -1);
        assert_eq!(validity.days_left(2_000), 0);
    }

    #[test]
    fn worst_is_the_one_to_look_after_first() {
        let [long, short, ended] =
            [(0, 9_000), (900, 2_000), (0, 500)].map(|(begins, ends)| Validity { begins, ends });
        assert_eq!(worst(&[], 1_000), None);
        assert_eq!(worst(&[long, short], 1_000), Some(short));
        assert_eq!(worst(&[long, short, ended], 1_000), Some(ended));
        assert_eq!(
            worst(&[long, Validity { begins: 1_001, ends: 99_000 }], 1_000).unwrap().begins,
            1_001
        );
    }
}
