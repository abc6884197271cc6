//! How sizes and spans of time are written for people, in every message alike.

use std::time::Duration;

/// Writes a number of bytes in IEC units with three figures: `17 B`, `1.50 MiB`, `128 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_figures(scaled), UNITS[unit])
}

/// Writes a span with the unit that suits it: `740 us`, `12.5 ms`, `4.20 s`, `3m20s`, `2m`,
/// `5h02m`, `30d`.
#[must_use]
pub fn duration(span: Duration) -> String {
    let (exact, seconds) = (span.as_secs_f64(), span.as_secs());
    if exact < 1e-3 {
        format!("{} us", span.as_micros())
    } else if exact < 0.9995 {
        format!("{} ms", three_figures(exact * 1e3))
    } else if exact < 99.95 && (exact < 60.0 || seconds % 60 != 0 || span.subsec_millis() != 0) {
        format!("{} s", three_figures(exact))
    } else if seconds < 3600 {
        two_units(seconds / 60, "m", seconds % 60, "s")
    } else if seconds < 2 * 86_400 {
        two_units(seconds / 3600, "h", seconds % 3600 / 60, "m")
    } else {
        two_units(seconds / 86_400, "d", seconds % 86_400 / 3600, "h")
    }
}

fn two_units(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small:02}{small_unit}"),
    }
}

/// Writes a number of things: `1 block`, `12 blocks`.
#[must_use]
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Writes a value below 1,000 with three digits, rounded: `1.50`, `12.0`, `345`. A larger one has
/// all of its digits before the point.
#[must_use]
pub fn three_figures(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_three_figures() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes(1023 << 20), "1.00 GiB");
        assert_eq!(count(1, "block", "blocks"), "1 block");
        assert_eq!(count(0, "block", "blocks"), "0 blocks");
    }

    #[test]
    fn spans_are_written_in_the_unit_that_suits_them() {
        for (millis, text) in [
            (12, "12.0 ms"),
            (5000, "5.00 s"),
            (60_000, "1m"),
            (90_000, "90.0 s"),
            (200_000, "3m20s"),
            (3_600_000, "1h"),
            (18_120_000, "5h02m"),
            (86_400_000, "24h"),
            (2_592_000_000, "30d"),
            (180_000_000, "2d02h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration(Duration::from_micros(740)), "740 us");
        assert_eq!(duration(Duration::from_secs_f64(3.001_349_319)), "3.00 s");
    }
}
