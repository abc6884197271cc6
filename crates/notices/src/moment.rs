//! Moments as clouds write them, as the time that is left until then.

use std::time::{Duration, SystemTime};

/// What is left of a notice whose moment has passed: the machine still answers, so there is some
/// time. Whatever moves in it is saved.
const LEFT_MIN: Duration = Duration::from_millis(500);

/// Returns the time until a moment, at least [`LEFT_MIN`].
pub(crate) fn until(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::now()).unwrap_or_default().max(LEFT_MIN)
}

/// Reads `2026-01-02T03:04:05Z`, also with a fraction of the second.
pub(crate) fn from_rfc3339(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text.trim()).ok()
}

/// Reads `Fri, 02 Jan 2026 03:04:05 GMT`.
pub(crate) fn from_http(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// Reads `2026-01-02 03:04:05 +0000 UTC`, as programs in Go print moments, with or without a
/// fraction. Only universal time is read.
pub(crate) fn from_go(text: &str) -> Option<SystemTime> {
    let mut words = text.split_whitespace();
    let (day, time, zone) = (words.next()?, words.next()?, words.next()?);
    if zone != "+0000" {
        return None;
    }
    from_rfc3339(&format!("{day}T{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_moment_is_read_in_each_spelling() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(1_505_722_920);
        assert_eq!(from_rfc3339("2017-09-18T08:22:00Z"), Some(moment));
        assert_eq!(from_http("Mon, 18 Sep 2017 08:22:00 GMT"), Some(moment));
        assert_eq!(from_go("2017-09-18 08:22:00 +0000 UTC"), Some(moment));
        let fraction = from_go("2017-09-18 08:22:00.25 +0000 UTC m=+0.1");
        assert_eq!(fraction, Some(moment + Duration::from_millis(250)));
    }

    #[test]
    fn what_is_no_moment_is_not_read() {
        for text in ["", "soon", "2017-09-18", "2017-09-18 08:22:00 +0200 CEST"] {
            assert_eq!(from_rfc3339(text), None, "{text}");
            assert_eq!(from_http(text), None, "{text}");
            assert_eq!(from_go(text), None, "{text}");
        }
    }

    #[test]
    fn a_moment_that_has_passed_leaves_a_little() {
        assert_eq!(until(SystemTime::UNIX_EPOCH), LEFT_MIN);
        assert!(until(SystemTime::now() + Duration::from_secs(60)) > Duration::from_secs(59));
    }
}
