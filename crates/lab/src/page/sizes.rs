//! Figure 7 on the page.

use std::time::Duration;

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{Section, paragraph, rerun, table};
use crate::figures::figure7::{Family, Figure7, SizeRow};
use crate::units::{bytes, duration};

/// Numbers on the axis of seconds: one, two and five of each power of ten, whose distances are
/// about equal on a logarithmic axis.
const SECONDS: [f64; 9] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];

/// Shades of the notices, the shortest first.
const SHADES: [&str; 4] = ["blue", "blue pale", "green", "green pale"];

/// Returns the part of the page about sizes of instances.
pub(crate) fn section(figure: &Figure7) -> Section {
    let mut body = paragraph(
        "How long everything in an instance's memory takes to leave it at its egress limit. Where \
         egress does not grow with memory, a large instance cannot leave within a notice, and what \
         does not fit is lost. With the exposure bound no instance ever holds more bytes that are \
         nowhere else than its link can send within the shortest notice: the excess gets a copy \
         on another node in the background, and every size fits.",
    );
    let notices: Vec<String> = figure.notice_seconds.iter().map(|it| seconds(*it)).collect();
    let bounded: Vec<String> =
        notices.iter().map(|notice| format!("with the bound for a notice of {notice}")).collect();
    let mut colours = vec![("amber", "the whole memory")];
    colours.extend(bounded.iter().enumerate().map(|(at, words)| (shade(at), words.as_str())));
    body += &legend(colours);
    body += &times(figure);
    body += "<h3>What needs a copy ahead of the notice</h3>\n";
    body += &shares(figure);
    body += &details(figure);
    body += &paragraph(&format!(
        "Copies are made in the background at {} % of the link; the time is for a machine that is \
         filled at once. Copies take that much room on other nodes.",
        figure.background_percent
    ));
    body += &format!("<p class=note>{}</p>\n", source(figure.family));
    let family = match figure.family {
        Family::N2Standard => "",
        Family::M6i => " --family m6i",
    };
    body += &rerun(&format!("sanderling lab figure7{family} --out D"));
    Section { title: "Which sizes fit which notice (figure 7)".to_owned(), body }
}

/// Describes the sources of memory and egress of a family.
const fn source(family: Family) -> &'static str {
    match family {
        Family::N2Standard => {
            "Memory and egress: Google Cloud, general-purpose machine family, N2 standard machine \
             types (memory in GiB, default egress “up to”); the size of 16 as in Brodmann et al., \
             table 1. The bound: notice minus a reaction of 0.25 s, times egress, times 0.7."
        }
        Family::M6i => {
            "Memory and egress: Amazon EC2, general purpose instances, M6i (memory in GiB, \
             baseline bandwidth; the smaller sizes may send faster for some minutes). The bound: \
             notice minus a reaction of 0.25 s, times egress, times 0.7."
        }
    }
}

fn shade(notice: usize) -> &'static str {
    SHADES[notice % SHADES.len()]
}

fn names(figure: &Figure7) -> impl Iterator<Item = String> {
    figure.sizes.iter().map(|size| size.name.trim_start_matches("n2-").to_owned())
}

fn times(figure: &Figure7) -> String {
    let longest = figure.sizes.iter().map(|size| size.seconds).fold(1.0, f64::max);
    let least = figure.sizes.iter().flat_map(|size| &size.notices).map(|it| it.bounded_seconds);
    let low = least.fold(1.0, f64::min).max(0.5) * 0.8;
    let numbers = SECONDS.map(|it| (it, seconds(it)));
    let y = Axis::log("time until the memory has left", (low, longest * 1.5), numbers);
    let mut plot = Plot::new(344.0, Axis::places(names(figure)), y);
    let wide = 0.8 / (figure.notice_seconds.len() + 1) as f64;
    for (at, size) in figure.sizes.iter().enumerate() {
        let from = |place: usize| at as f64 + 0.1 + wide * place as f64;
        let title =
            format!("{}: {} in {}", size.name, bytes(size.memory_bytes), seconds(size.seconds));
        plot.bar((from(0), from(1) - 0.02), (low, size.seconds), "amber", &title);
        for (place, it) in size.notices.iter().enumerate() {
            let title = format!(
                "{}: {} in {}",
                size.name,
                bytes(it.budget_bytes),
                seconds(it.bounded_seconds)
            );
            let x = (from(place + 1), from(place + 2) - 0.02);
            plot.bar(x, (low, it.bounded_seconds), shade(place), &title);
        }
    }
    for notice in &figure.notice_seconds {
        plot.level(*notice, "cut", &format!("notice of {}", seconds(*notice)));
    }
    plot.figure("seconds that each size of instance takes to leave, with and without the bound")
}

fn shares(figure: &Figure7) -> String {
    let name = "part of a full memory that has a copy elsewhere";
    let y = Axis::linear(name, (0.0, 1.0), 5, NumberFormat::PERCENT);
    let mut plot = Plot::new(224.0, Axis::places(names(figure)), y);
    for (place, notice) in figure.notice_seconds.iter().enumerate() {
        let points: Vec<(f64, f64)> = figure
            .sizes
            .iter()
            .enumerate()
            .map(|(at, size)| (at as f64 + 0.5, size.notices[place].copied_share))
            .collect();
        plot.curve(points.iter().copied(), shade(place));
        plot.dots(points.iter().copied(), shade(place));
        if let Some(last) = points.last() {
            plot.label(*last, (10.0, 4.0), "start", &seconds(*notice));
        }
    }
    plot.figure("part of the memory that needs a copy ahead of the notice")
}

fn details(figure: &Figure7) -> String {
    let columns = [
        "size",
        "#memory",
        "#egress",
        "#notice",
        "without the bound",
        "#lost if full",
        "#bound",
        "#leaves in",
        "#copied ahead",
        "#copies made in",
    ];
    let rows = figure.sizes.iter().flat_map(|size| {
        size.notices.iter().enumerate().map(move |(at, it)| {
            let copied =
                if it.copied_bytes == 0 { "–".to_owned() } else { bytes(it.copied_bytes) };
            let made = if it.copied_bytes == 0 {
                "–".to_owned()
            } else {
                seconds(it.background_seconds)
            };
            let mut cells = first(size, at == 0);
            cells.extend([
                seconds(it.notice_seconds),
                if it.fits { "fits" } else { "does not fit" }.to_owned(),
                if it.fits { "–".to_owned() } else { bytes(it.lost_bytes) },
                bytes(it.budget_bytes),
                seconds(it.bounded_seconds),
                copied,
                made,
            ]);
            cells
        })
    });
    table(&columns, rows)
}

fn first(size: &SizeRow, is_first: bool) -> Vec<String> {
    if !is_first {
        return vec![String::new(); 3];
    }
    let gigabits = size.egress_bytes_per_second as f64 * 8.0 / 1e9;
    vec![size.name.clone(), bytes(size.memory_bytes), format!("{gigabits} Gbit/s")]
}

fn seconds(value: f64) -> String {
    if value >= 60.0 && value % 60.0 == 0.0 {
        return format!("{:.0} min", value / 60.0);
    }
    let is_whole = (1.0..60.0).contains(&value) && value.fract() == 0.0;
    if is_whole { format!("{value:.0} s") } else { duration(Duration::from_secs_f64(value)) }
}
