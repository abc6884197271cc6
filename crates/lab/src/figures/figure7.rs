//! Figure 7: how long a whole instance's memory takes to leave, and what the exposure bound makes
//! of it.
//!
//! Brodmann et al., "An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources",
//! section 4.5 and figure 7: egress does not grow with memory, so large instances cannot leave
//! within a notice. With the bound, what is on one machine only never exceeds what fits.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use sanderling_core::exposure::budget_bytes;
use sanderling_protocol::Millis;
use serde::Serialize;

use crate::figures::{Figure, Written};
use crate::output::{Align, Table};
use crate::page::csv::Csv;
use crate::page::{self, Section};
use crate::units::{Rate, Span};
use crate::units::{bytes, duration};

/// A machine type: its name, virtual processors, GiB of memory, Mbit/s of egress.
type MachineSize = (&'static str, u32, u64, u64);

/// Google Cloud, "General-purpose machine family for Compute Engine", N2 standard machine types,
/// default egress at most: 2 Gbit/s per virtual processor, at most 32 Gbit/s, at least 10 Gbit/s.
/// The size of 16 is that of Brodmann et al., table 1. Memory is counted in binary units there.
const N2_STANDARD: [MachineSize; 10] = [
    ("n2-standard-2", 2, 8, 10_000),
    ("n2-standard-4", 4, 16, 10_000),
    ("n2-standard-8", 8, 32, 16_000),
    ("n2-standard-16", 16, 64, 32_000),
    ("n2-standard-32", 32, 128, 32_000),
    ("n2-standard-48", 48, 192, 32_000),
    ("n2-standard-64", 64, 256, 32_000),
    ("n2-standard-80", 80, 320, 32_000),
    ("n2-standard-96", 96, 384, 32_000),
    ("n2-standard-128", 128, 512, 32_000),
];

/// Amazon EC2, "General purpose instances", M6i: the baseline bandwidth, which is what is sure; the
/// smaller sizes send faster for minutes, as long as they have credits.
const M6I: [MachineSize; 9] = [
    ("m6i.large", 2, 8, 781),
    ("m6i.xlarge", 4, 16, 1_562),
    ("m6i.2xlarge", 8, 32, 3_125),
    ("m6i.4xlarge", 16, 64, 6_250),
    ("m6i.8xlarge", 32, 128, 12_500),
    ("m6i.12xlarge", 48, 192, 18_750),
    ("m6i.16xlarge", 64, 256, 25_000),
    ("m6i.24xlarge", 96, 384, 37_500),
    ("m6i.32xlarge", 128, 512, 50_000),
];

/// A family of machine types whose memory and egress are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
pub(crate) enum Family {
    /// Google Cloud: egress at most, as in the paper
    #[serde(rename = "n2-standard")]
    N2Standard,
    /// Amazon EC2: the baseline bandwidth
    #[serde(rename = "m6i")]
    M6i,
}

/// `sanderling lab figure7`.
#[derive(Debug, Args)]
pub struct Figure7Args {
    /// Which machine types
    #[arg(long, value_enum, value_name = "FAMILY", default_value_t = Family::N2Standard)]
    pub(crate) family: Family,
    /// Lengths of a notice to compare with
    #[arg(
        long = "notice",
        value_name = "DURATION",
        value_delimiter = ',',
        default_value = "15s,30s,2m"
    )]
    pub(crate) notices: Vec<Span>,
    /// Part of the link, in percent, that background copies may take
    #[arg(long, value_name = "PERCENT", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) background: u32,
    /// Every machine sends no faster than this [default: its egress limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) egress: Option<Rate>,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}

/// The whole figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure7 {
    /// Which machine types.
    pub(crate) family: Family,
    /// Seconds of each notice, in rising order.
    pub(crate) notice_seconds: Vec<f64>,
    /// Part of the link that background copies take, in percent.
    pub(crate) background_percent: u32,
    /// One row for each size.
    pub(crate) sizes: Vec<SizeRow>,
}

/// One size of instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SizeRow {
    /// The machine type.
    pub(crate) name: String,
    /// Virtual processors.
    pub(crate) processors: u32,
    /// Bytes of memory.
    pub(crate) memory_bytes: u64,
    /// Bytes per second that it can send at most.
    pub(crate) egress_bytes_per_second: u64,
    /// Seconds that its whole memory takes at that rate.
    pub(crate) seconds: f64,
    /// One for each notice.
    pub(crate) notices: Vec<NoticeRow>,
}

/// One size of instance under one notice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct NoticeRow {
    /// Length of the notice in seconds.
    pub(crate) notice_seconds: f64,
    /// Whether the whole memory leaves within it.
    pub(crate) fits: bool,
    /// Bytes that would be lost of a full machine without the bound.
    pub(crate) lost_bytes: u64,
    /// Bytes that may be on this machine only.
    pub(crate) budget_bytes: u64,
    /// Seconds that those take at the machine's rate: always below the notice.
    pub(crate) bounded_seconds: f64,
    /// Bytes of a full machine that have a copy elsewhere beforehand.
    pub(crate) copied_bytes: u64,
    /// Those over the memory.
    pub(crate) copied_share: f64,
    /// Seconds in which those copies are made in the background.
    pub(crate) background_seconds: f64,
}

/// Computes the figure.
pub(crate) fn compute(arguments: &Figure7Args) -> Figure7 {
    let mut notices: Vec<Duration> = arguments.notices.iter().map(|notice| notice.0).collect();
    notices.sort_unstable();
    let family: &[MachineSize] = match arguments.family {
        Family::N2Standard => &N2_STANDARD,
        Family::M6i => &M6I,
    };
    let sizes = family.iter().map(|(name, processors, memory, megabits)| {
        let limit = megabits * 1_000_000 / 8;
        let egress = arguments.egress.map_or(limit, |rate| rate.0.min(limit)).max(1);
        let memory_bytes = memory << 30;
        let of = |notice: &Duration| bound(memory_bytes, egress, *notice, arguments.background);
        SizeRow {
            name: (*name).to_owned(),
            processors: *processors,
            memory_bytes,
            egress_bytes_per_second: egress,
            seconds: memory_bytes as f64 / egress as f64,
            notices: notices.iter().map(of).collect(),
        }
    });
    Figure7 {
        family: arguments.family,
        notice_seconds: notices.iter().map(Duration::as_secs_f64).collect(),
        background_percent: arguments.background,
        sizes: sizes.collect(),
    }
}

fn bound(memory: u64, egress: u64, notice: Duration, background_percent: u32) -> NoticeRow {
    let could_leave = (egress as f64 * notice.as_secs_f64()) as u64;
    let budget = budget_bytes(Millis::from(notice), egress).min(memory);
    let copied = memory - budget;
    let background = egress as f64 * f64::from(background_percent) / 100.0;
    NoticeRow {
        notice_seconds: notice.as_secs_f64(),
        fits: memory <= could_leave,
        lost_bytes: memory.saturating_sub(could_leave),
        budget_bytes: budget,
        bounded_seconds: budget as f64 / egress as f64,
        copied_bytes: copied,
        copied_share: copied as f64 / memory as f64,
        background_seconds: copied as f64 / background,
    }
}

impl Figure for Figure7 {
    const NAME: &'static str = "figure7";

    fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new(&[
            ("size", Align::Left),
            ("memory", Align::Right),
            ("egress", Align::Right),
            ("all of it", Align::Right),
            ("notice", Align::Right),
            ("fits", Align::Left),
            ("lost if full", Align::Right),
            ("bound", Align::Right),
            ("leaves in", Align::Right),
            ("copied ahead", Align::Right),
            ("made in", Align::Right),
        ]);
        for size in &self.sizes {
            for (at, notice) in size.notices.iter().enumerate() {
                table.row(row(size, notice, at == 0));
            }
        }
        table.write(writer)?;
        let percent = self.background_percent;
        writeln!(
            writer,
            "\n`bound` is what may be on one machine only; the rest of a full machine has a copy \
             ahead,\nmade in the background at {percent} % of the link."
        )
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(&[
            "size",
            "processors",
            "memory_bytes",
            "egress_bytes_per_second",
            "seconds",
            "notice_seconds",
            "fits",
            "lost_bytes",
            "budget_bytes",
            "bounded_seconds",
            "copied_bytes",
            "copied_share",
            "background_seconds",
        ]);
        for size in &self.sizes {
            for notice in &size.notices {
                csv.row([
                    size.name.clone(),
                    size.processors.to_string(),
                    size.memory_bytes.to_string(),
                    size.egress_bytes_per_second.to_string(),
                    format!("{:.3}", size.seconds),
                    notice.notice_seconds.to_string(),
                    notice.fits.to_string(),
                    notice.lost_bytes.to_string(),
                    notice.budget_bytes.to_string(),
                    format!("{:.3}", notice.bounded_seconds),
                    notice.copied_bytes.to_string(),
                    format!("{:.4}", notice.copied_share),
                    format!("{:.1}", notice.background_seconds),
                ]);
            }
        }
        csv
    }

    fn section(&self) -> Section {
        page::sizes::section(self)
    }
}

fn row(size: &SizeRow, notice: &NoticeRow, is_first: bool) -> [String; 11] {
    let once = |text: String| if is_first { text } else { String::new() };
    let seconds = |value: f64| duration(Duration::from_secs_f64(value));
    let gigabits = size.egress_bytes_per_second as f64 * 8.0 / 1e9;
    let copied = notice.copied_bytes > 0;
    let some = |text: String| if copied { text } else { "-".to_owned() };
    [
        once(size.name.clone()),
        once(bytes(size.memory_bytes)),
        once(format!("{gigabits} Gbit/s")),
        once(seconds(size.seconds)),
        seconds(notice.notice_seconds),
        if notice.fits { "yes" } else { "no" }.to_owned(),
        if notice.fits { "-".to_owned() } else { bytes(notice.lost_bytes) },
        bytes(notice.budget_bytes),
        seconds(notice.bounded_seconds),
        some(format!("{} ({:.0} %)", bytes(notice.copied_bytes), notice.copied_share * 100.0)),
        some(seconds(notice.background_seconds)),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        figure: Figure7Args,
    }

    fn figure(words: &[&str]) -> Figure7 {
        let words = std::iter::once("figure7").chain(words.iter().copied());
        compute(&Line::parse_from(words).figure)
    }

    #[test]
    fn large_sizes_do_not_fit_a_short_notice_and_always_fit_with_the_bound() {
        let figure = figure(&[]);
        assert_eq!(figure.notice_seconds, [15.0, 30.0, 120.0]);
        let size = |name: &str| figure.sizes.iter().find(|size| size.name == name).unwrap();
        let middle = size("n2-standard-16");
        assert!((middle.seconds - 17.18).abs() < 0.01, "{middle:?}");
        assert_eq!(
            middle.notices.iter().map(|it| it.fits).collect::<Vec<_>>(),
            [false, true, true]
        );
        assert!(size("n2-standard-128").notices.iter().all(|it| !it.fits));
        for size in &figure.sizes {
            for notice in &size.notices {
                assert!(notice.bounded_seconds < notice.notice_seconds, "{notice:?}");
                assert_eq!(notice.budget_bytes + notice.copied_bytes, size.memory_bytes);
            }
        }
    }

    #[test]
    fn family_whose_egress_grows_with_memory_fits_two_minutes_in_every_size() {
        let figure = figure(&["--family", "m6i", "--notice", "30s,2m"]);
        for size in &figure.sizes {
            assert!((size.seconds - 88.0).abs() < 0.2, "{size:?}");
            assert_eq!(size.notices.iter().map(|it| it.fits).collect::<Vec<_>>(), [false, true]);
        }
    }

    #[test]
    fn slower_links_take_longer_and_the_table_shows_that() {
        let figure = figure(&["--egress", "1Gbit", "--notice", "30s", "--background", "50"]);
        assert!(figure.sizes.iter().all(|size| size.egress_bytes_per_second == 125_000_000));
        let mut text = Vec::new();
        figure.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("n2-standard-128") && text.contains("at 50 %"), "{text}");
        assert_eq!(figure.csv().to_string().lines().count(), 11);
    }
}
