//! What a benchmark says.

use std::time::Duration;

use hdrhistogram::Histogram;
use sanderling_client::ClientMetrics;
use serde::Serialize;

use super::Measured;
use super::scenario::Kind;
use crate::args::bench::Bench;
use crate::failure::Failure;
use crate::session::Session;
use crate::units;

#[derive(Serialize)]
struct Report<'a> {
    r#type: &'a str,
    size_bytes: u64,
    count: u64,
    threads: u32,
    depth: u32,
    operations: u64,
    bytes: u64,
    seconds: f64,
    operations_per_second: f64,
    bytes_per_second: f64,
    latency_micros: Latency,
    retries: u64,
    longest_stall_millis: f64,
}

#[derive(Serialize)]
struct Latency {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

pub(super) fn print(
    session: &Session,
    kind: &Kind,
    args: &Bench,
    measured: &[Measured],
    metrics: &ClientMetrics,
) -> Result<(), Failure> {
    let mut latency = Histogram::<u64>::new(3).expect("three digits are allowed");
    for one in measured {
        latency.add(&one.latency).expect("all histograms resize themselves");
    }
    let began = measured.iter().map(|one| one.span.0).min();
    let ended = measured.iter().map(|one| one.span.1).max();
    let elapsed = match (began, ended) {
        (Some(began), Some(ended)) => ended.duration_since(began),
        _ => Duration::ZERO,
    };
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let bytes = measured.iter().map(|one| one.bytes).sum::<u64>();
    let operations = measured.iter().map(|one| one.operations).sum::<u64>();
    #[expect(clippy::cast_precision_loss)]
    let report = Report {
        r#type: kind.name,
        size_bytes: args.size.0,
        count: args.count,
        threads: args.threads,
        depth: if kind.is_deep { args.depth } else { 1 },
        operations,
        bytes,
        seconds,
        operations_per_second: operations as f64 / seconds,
        bytes_per_second: bytes as f64 / seconds,
        latency_micros: summary(&latency),
        retries: metrics.retries,
        longest_stall_millis: metrics.longest_stall.as_secs_f64() * 1e3,
    };
    let time = |micros: f64| units::duration(Duration::from_secs_f64(micros / 1e6));
    session.output.result(&report, |writer| {
        // Operations on names have no size and no bandwidth.
        let (size, rate) = match bytes {
            0 => (String::new(), String::new()),
            _ => (
                format!(" of {}", units::bytes(args.size.0)),
                format!(", {}", units::rate(bytes, elapsed)),
            ),
        };
        let (name, threads, depth) = (kind.name, args.threads, report.depth);
        let who = format!("{threads} threads, {depth} in flight each");
        writeln!(writer, "{name}: {operations} operations{size} by {who}")?;
        let each = report.operations_per_second;
        writeln!(writer, "  {each:.0} operations/s{rate}, {}", units::duration(elapsed))?;
        let it = &report.latency_micros;
        writeln!(
            writer,
            "  latency: mean {}, p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
            time(it.mean),
            time(it.p50),
            time(it.p90),
            time(it.p99),
            time(it.p999),
            time(it.max)
        )?;
        if metrics.retries > 0 {
            let stall = units::duration(metrics.longest_stall);
            writeln!(writer, "  {} retries, longest stall {stall}", metrics.retries)?;
        }
        Ok(())
    })
}

#[expect(clippy::cast_precision_loss)]
fn summary(latency: &Histogram<u64>) -> Latency {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let at = |quantile| micros(latency.value_at_quantile(quantile));
    Latency {
        min: micros(latency.min()),
        mean: latency.mean() / 1e3,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: micros(latency.max()),
    }
}
