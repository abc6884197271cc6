//! What may be meant by a text that is no size, span or rate. The texts are proposals: the caller
//! finds out which of them its option takes.

use crate::units::{SPAN_MAX, split};

/// A span in place of a text without a number: the shortest notice of Google and Azure.
pub const SPAN_EXAMPLE: &str = "30s";

/// A size in place of a text without a number: the default memory of a datanode.
pub const SIZE_EXAMPLE: &str = "1GiB";

/// A rate in place of a text without a number: it shows the unit in which networks are sold.
pub const RATE_EXAMPLE: &str = "200Mbit";

/// How words for units of spans begin, in small letters, and how many of which unit one stands for.
/// The first that fits counts.
const SPAN_WORDS: [(&str, u32, &str); 10] = [
    ("ms", 1, "ms"),
    ("mil", 1, "ms"),
    ("mic", 1, "us"),
    ("mo", 30, "d"),
    ("m", 1, "m"),
    ("s", 1, "s"),
    ("h", 1, "h"),
    ("d", 1, "d"),
    ("w", 1, "w"),
    ("y", 365, "d"),
];

/// Returns spans that may be meant by a text, the likeliest first: without a sign, with a unit in
/// place of an unknown one, and the longest in place of a longer one.
#[must_use]
pub fn spans(text: &str) -> Vec<String> {
    let text = unsigned(text);
    let Ok((number, unit)) = split(text) else { return vec![SPAN_EXAMPLE.to_owned()] };
    let digits = digits(text, unit);
    let lower = unit.to_ascii_lowercase();
    let written = match SPAN_WORDS.iter().find(|(start, ..)| lower.starts_with(start)) {
        Some((_, 1, unit)) => format!("{digits}{unit}"),
        Some((_, times, unit)) => format!("{}{unit}", number * f64::from(*times)),
        // A bare number is seconds.
        None => format!("{digits}s"),
    };
    vec![text.to_owned(), written, format!("{}d", SPAN_MAX.as_secs() / 86_400)]
}

/// Returns sizes that may be meant by a text, the likeliest first: without a sign, and with a unit
/// in place of an unknown one.
#[must_use]
pub fn sizes(text: &str) -> Vec<String> {
    let text = unsigned(text);
    let Ok((_, unit)) = split(text) else { return vec![SIZE_EXAMPLE.to_owned()] };
    let digits = digits(text, unit);
    let lower = unit.to_ascii_lowercase();
    let written = match prefix(&lower) {
        Some(letter) if lower.contains("ib") => format!("{digits}{letter}iB"),
        Some(letter) => format!("{digits}{letter}B"),
        None if lower.starts_with('b') => format!("{digits}B"),
        None => format!("{digits}MiB"),
    };
    vec![text.to_owned(), written]
}

/// Returns rates that may be meant by a text, as [`sizes`] does, and in bits per second.
#[must_use]
pub fn rates(text: &str) -> Vec<String> {
    let text = unsigned(text);
    let Ok((_, unit)) = split(text) else { return vec![RATE_EXAMPLE.to_owned()] };
    let lower = unit.to_ascii_lowercase();
    if !lower.contains("bit") && !unit.contains("bps") {
        return sizes(text);
    }
    let letter = prefix(&lower).map(String::from).unwrap_or_default();
    vec![text.to_owned(), format!("{}{letter}bit", digits(text, unit))]
}

fn unsigned(text: &str) -> &str {
    text.trim().trim_start_matches('-').trim_start()
}

/// Returns the number in front of the unit, as it was written.
fn digits<'t>(text: &'t str, unit: &str) -> &'t str {
    text.strip_suffix(unit).unwrap_or(text).trim_end()
}

/// Returns the letter of the power of 1000 or 1024 with which a unit begins.
fn prefix(unit: &str) -> Option<char> {
    let letter = unit.chars().next()?.to_ascii_uppercase();
    "KMGTP".contains(letter).then_some(letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Rate, Size, Span};

    /// Returns the first proposal that is read.
    fn first<T: std::str::FromStr>(texts: Vec<String>) -> Option<String> {
        texts.into_iter().find(|text| text.parse::<T>().is_ok())
    }

    #[test]
    fn spans_with_other_words_and_signs_are_found() {
        for (text, near) in [
            ("5x", "5s"),
            ("-5s", "5s"),
            ("5 minutes", "5m"),
            ("2 Hours", "2h"),
            ("20msec", "20ms"),
            ("1.5Days", "1.5d"),
            ("2months", "60d"),
            ("1y", "365d"),
            ("1e19s", "36500d"),
            ("900y", "36500d"),
            ("soon", SPAN_EXAMPLE),
            ("", SPAN_EXAMPLE),
        ] {
            assert_eq!(first::<Span>(spans(text)).as_deref(), Some(near), "{text}");
        }
    }

    #[test]
    fn sizes_with_other_units_are_found() {
        for (text, near) in [
            ("64X", "64MiB"),
            ("64mb", "64MB"),
            ("64gib", "64GiB"),
            ("64 Gigabytes", "64GB"),
            ("10bytes", "10B"),
            ("-1G", "1G"),
            ("lots", SIZE_EXAMPLE),
        ] {
            assert_eq!(first::<Size>(sizes(text)).as_deref(), Some(near), "{text}");
        }
        assert_eq!(first::<Size>(sizes("1e99")), None);
    }

    #[test]
    fn rates_with_other_units_are_found() {
        for (text, near) in [
            ("200Mbps", "200Mbit"),
            ("1gbit/s", "1Gbit"),
            ("300bps", "300bit"),
            ("25MBps", "25MB"),
            ("fast", RATE_EXAMPLE),
        ] {
            assert_eq!(first::<Rate>(rates(text)).as_deref(), Some(near), "{text}");
        }
    }
}
