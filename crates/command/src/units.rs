//! Sizes and durations as people write and read them.
//!
//! The parsers are our own: the usual crates take other texts than the documented `64M` (a power of
//! 1024), `1e9` and a bare number of seconds.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use sanderling_protocol::Millis;
pub use sanderling_protocol::amount::{bytes, count, duration};
use thiserror::Error;

/// The last instant with a year of four digits: humantime writes no later one.
const INSTANT_MAX_MICROS: u64 = 253_402_300_799_999_999;

/// The shortest interval between two looks: heartbeats come every 500 ms (200 ms from a node that
/// drains), so they bring nothing new more often.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The reason why a text is no size or duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnitError {
    /// The number in front cannot be read.
    #[error("{text:?} does not begin with a number")]
    NoNumber {
        /// What was given.
        text: String,
    },
    /// What follows the number is no unit.
    #[error("{unit:?} is no unit: use {known}")]
    UnknownUnit {
        /// What was given.
        unit: String,
        /// What is understood.
        known: &'static str,
    },
    /// The value is negative or beyond 64 bits.
    #[error("{text:?} is out of range{}", why(text))]
    OutOfRange {
        /// What was given.
        text: String,
    },
    /// A span is negative or longer than [`SPAN_MAX`].
    #[error("{text:?} is out of range: {}", span_why(text))]
    SpanOutOfRange {
        /// What was given.
        text: String,
    },
}

fn why(text: &str) -> &'static str {
    if text.starts_with('-') { ": it is negative" } else { "" }
}

fn span_why(text: &str) -> String {
    match text.starts_with('-') {
        true => "it is negative".to_owned(),
        false => format!("the longest is {}d", SPAN_MAX.as_secs() / DAY_SECONDS),
    }
}

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// The longest span: a hundred years. Instants of clocks and deadlines, which are counted in
/// nanoseconds and microseconds, do not overflow when such a span is added to them.
pub const SPAN_MAX: Duration = Duration::from_secs(36_500 * DAY_SECONDS);

/// The units of spans.
const SPANS: &str = "ms, s, m, h, d, w";

/// A number of bytes: `64MiB`, `64M`, `1.5G`, `1e9`.
///
/// `K M G T P` and `KiB MiB ...` are powers of 1024, `kB MB GB ...` powers of 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A span of time: `30s`, `2m`, `500ms`, `1.5h`, `3m20s`; a bare number is seconds. A text with a
/// span above [`SPAN_MAX`] is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let factor = match unit {
            "" | "B" => 1.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            "PB" => 1e15,
            _ => binary_factor(unit)?,
        };
        let bytes = (number * factor).round();
        if !(0.0..1.8e19).contains(&bytes) {
            return Err(UnitError::OutOfRange { text: text.to_owned() });
        }
        Ok(Self(bytes as u64))
    }
}

fn binary_factor(unit: &str) -> Result<f64, UnitError> {
    let letter = unit.strip_suffix("iB").unwrap_or(unit);
    let power = ["K", "M", "G", "T", "P"]
        .iter()
        .position(|known| known.eq_ignore_ascii_case(letter))
        .ok_or_else(|| UnitError::UnknownUnit {
            unit: unit.to_owned(),
            known: "KiB, MiB, GiB, TiB, kB, MB, GB, TB",
        })?;
    Ok((0..=power).fold(1.0, |factor, _| factor * 1024.0))
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, rest) = split(text)?;
        // `3m20s`, as spans are printed: another number follows the unit.
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, further) = rest.split_at(end);
        if !further.is_empty() && further.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(UnitError::UnknownUnit { unit: rest.to_owned(), known: SPANS });
        }
        let further = match further {
            "" => Duration::ZERO,
            further => further.parse::<Self>()?.0,
        };
        let factor = match unit.trim() {
            "us" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            unit => {
                return Err(UnitError::UnknownUnit { unit: unit.to_owned(), known: SPANS });
            }
        };
        let span = Duration::try_from_secs_f64(number * factor).ok();
        span.and_then(|span| span.checked_add(further))
            .filter(|span| *span <= SPAN_MAX)
            .map(Self)
            .ok_or_else(|| UnitError::SpanOutOfRange { text: text.to_owned() })
    }
}

/// Splits a text into its number and its unit. `1e9` is a number, not `1` of unit `e9`.
pub(crate) fn split(text: &str) -> Result<(f64, &str), UnitError> {
    let text = text.trim();
    let none = || UnitError::NoNumber { text: text.to_owned() };
    let candidates = (1..=text.len()).rev().filter(|cut| text.is_char_boundary(*cut));
    for cut in candidates {
        if !text.as_bytes()[cut - 1].is_ascii_digit() && text.as_bytes()[cut - 1] != b'.' {
            continue;
        }
        if let Ok(number) = text[..cut].parse::<f64>() {
            return Ok((number, text[cut..].trim()));
        }
    }
    Err(none())
}

/// Bytes per second: `200Mbit` (powers of 1000, as networks count), `25MB` or `25MB/s`, `64MiB/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let factor = match unit.strip_suffix("/s").unwrap_or(unit) {
            "bit" => 1.0,
            "kbit" | "Kbit" => 1e3,
            "Mbit" => 1e6,
            "Gbit" => 1e9,
            _ => {
                let text = text.trim().strip_suffix("/s").unwrap_or(text);
                return text.parse::<Size>().map(|size| Self(size.0));
            }
        };
        let bytes = (number * factor / 8.0).round();
        if !(0.0..1.8e19).contains(&bytes) {
            return Err(UnitError::OutOfRange { text: text.to_owned() });
        }
        Ok(Self(bytes as u64))
    }
}

/// A share from 1 to 100 percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u64);

/// The reason why a text is no [`Percent`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("give a share from 1% to 100%")]
pub struct PercentError {
    /// What was given.
    pub text: String,
}

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, PercentError> {
        let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
        let percent = number.filter(|percent| (1..=100).contains(percent));
        percent.map(Self).ok_or_else(|| PercentError { text: text.to_owned() })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&bytes(self.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&duration(self.0))
    }
}

impl Span {
    /// Returns the span in whole milliseconds; a part of one is dropped.
    #[must_use]
    pub fn millis(self) -> Millis {
        self.0.into()
    }
}

/// Writes bytes per second in IEC units, such as MiB/s; `-` where no time has passed.
#[must_use]
pub fn rate(bytes_moved: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds <= 0.0 {
        return "-".to_owned();
    }
    let per_second = (bytes_moved as f64 / seconds) as u64;
    format!("{}/s", bytes(per_second))
}

/// Writes a span given in milliseconds as people do: `12.5 ms`, `4.20 s`, `3m20s`.
#[must_use]
pub fn millis(span: Millis) -> String {
    span.to_string()
}

/// Writes how many there are: `1 object`, `2 objects`. The plural of the noun has an `s` more.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Writes an instant of the wall clock as `2026-01-31T12:34:56.789Z`; one after the year 9999 as
/// the last millisecond of that year.
#[must_use]
pub fn instant(at: sanderling_protocol::Instant) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(at.0.min(INSTANT_MAX_MICROS));
    humantime::format_rfc3339_millis(at).to_string()
}

/// Why a text is no time between two lists or frames.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PollIntervalError {
    /// It is no span.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// It is below 100 ms.
    #[error("at least {}", duration(INTERVAL_MIN))]
    TooShort,
}

/// Parses the time between two lists or frames, each of which costs the namenode a request.
///
/// # Errors
/// [`PollIntervalError`]: correct the text as the error states.
pub fn interval(text: &str) -> Result<Span, PollIntervalError> {
    let span: Span = text.parse()?;
    if span.0 < INTERVAL_MIN {
        return Err(PollIntervalError::TooShort);
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Instant;

    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|it| counted(it, "task")), ["0 tasks", "1 task", "2 tasks"]);
    }

    #[test]
    fn interval_that_is_refused_keeps_its_reason() {
        assert_eq!(interval("1s"), Ok(Span(Duration::from_secs(1))));
        assert_eq!(interval("50ms"), Err(PollIntervalError::TooShort));
        assert_eq!(PollIntervalError::TooShort.to_string(), "at least 100 ms");
        let unit = "x".parse::<Span>().unwrap_err();
        assert_eq!(interval("x").unwrap_err().to_string(), unit.to_string());
        assert_eq!(interval("x"), Err(PollIntervalError::Unit(unit)));
    }

    #[test]
    fn sizes_are_read_in_every_spelling() {
        for (text, expected) in [
            ("64MiB", 64 << 20),
            ("64M", 64 << 20),
            ("64m", 64 << 20),
            ("64MB", 64_000_000),
            ("1e9", 1_000_000_000),
            ("1.5G", 3 << 29),
            ("4 KiB", 4096),
            ("7", 7),
            ("7B", 7),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(expected)), "{text}");
        }
        for text in ["", "M", "64X", "-1M", "1e99", "64Mi B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_in_every_spelling() {
        for (text, expected) in [
            ("30s", 30_000),
            ("2m", 120_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            ("3", 3000),
            ("3m20s", 200_000),
            ("1h30m", 5_400_000),
            ("4.20 s", 4200),
            ("1w", 604_800_000),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(expected))), "{text}");
        }
        for text in ["", "s", "-5s", "3 parsecs", "3m20", "3m-20s", "1m 2x"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn longest_duration_is_named_where_a_longer_one_is_refused() {
        assert_eq!("36500d".parse(), Ok(Span(SPAN_MAX)));
        for text in ["36501d", "1e19s", "1e300", "36500d1s", "1s36500d"] {
            let refused = text.parse::<Span>().unwrap_err().to_string();
            assert_eq!(refused, format!("{text:?} is out of range: the longest is 36500d"));
        }
        let refused = "-5s".parse::<Span>().unwrap_err().to_string();
        assert_eq!(refused, "\"-5s\" is out of range: it is negative");
    }

    #[test]
    fn rates_are_read_as_bits_and_as_bytes() {
        for (text, expected) in
            [("200Mbit", 25_000_000), ("1Gbit/s", 125_000_000), ("64MiB/s", 64 << 20), ("8", 8)]
        {
            assert_eq!(text.parse(), Ok(Rate(expected)), "{text}");
        }
        for text in ["", "Mbit", "-1Mbit", "3 parsecs/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_written_per_second() {
        assert_eq!(rate(10 << 20, Duration::from_secs(2)), "5.00 MiB/s");
    }

    #[test]
    fn instants_are_written_as_utc() {
        assert_eq!(instant(Instant(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(instant(Instant(1_709_208_000_123_000)), "2024-02-29T12:00:00.123Z");
        assert_eq!(instant(Instant(1_798_761_599_999_000)), "2026-12-31T23:59:59.999Z");
        assert_eq!(instant(Instant(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn shares_are_whole_percents() {
        assert_eq!("20%".parse(), Ok(Percent(20)));
        assert_eq!("100".parse(), Ok(Percent(100)));
        for bad in ["0", "101%", "", "%", "2.5%", "-1"] {
            assert!(bad.parse::<Percent>().is_err(), "{bad}");
        }
    }
}
