//! The report of a benchmark. The keys of the document are in docs/BENCH.md.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use sanderling_client::ClientMetrics;
use sanderling_protocol::StorageClass;
use serde::Serialize;

use super::cpu::{Cpu, ServerCpu};
use super::plan::{BenchPlan, Switch};
use super::scenario::Measured;
use crate::failure::Failure;
use crate::output::Output;
use crate::units;

/// The roles of servers.
const SERVERS: &[&str] = &["namenode", "datanode"];

#[derive(Serialize)]
struct BenchReport<'a> {
    r#type: &'a str,
    size_bytes: u64,
    count: Option<u64>,
    duration_seconds: Option<f64>,
    warmup: u64,
    threads: u32,
    depth: u32,
    batch: u32,
    stream: Option<&'static str>,
    share_client: bool,
    checksums: bool,
    same_host: bool,
    pin: Option<u16>,
    class: StorageClass,
    operations: u64,
    items: u64,
    bytes: u64,
    same_host_bytes: u64,
    tcp_bytes: u64,
    seconds: f64,
    operations_per_second: f64,
    items_per_second: f64,
    bytes_per_second: f64,
    latency_micros: LatencySummary,
    histogram: Option<Vec<(f64, u64)>>,
    retries: u64,
    longest_stall_millis: f64,
    cpu: CpuReport<'a>,
}

#[derive(Serialize)]
struct LatencySummary {
    min: f64,
    mean: f64,
    stdev: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Serialize)]
struct CpuReport<'a> {
    client_seconds: f64,
    server_seconds: Option<f64>,
    namenode_seconds: Option<f64>,
    datanode_seconds: Option<f64>,
    client_micros_per_operation: f64,
    server_micros_per_operation: Option<f64>,
    client_seconds_per_gib: Option<f64>,
    server_seconds_per_gib: Option<f64>,
    items_per_server_second: Option<f64>,
    servers: &'a [ServerCpu],
    unmeasured: Vec<&'a str>,
}

/// How the bytes of objects went between clients and servers.
#[derive(Debug, Clone, Copy)]
struct Travelled {
    /// In memory shared with a datanode on this machine, and over TCP.
    same_host_bytes: u64,
    tcp_bytes: u64,
}

impl Travelled {
    /// Returns what clients moved while they measured. A shared one counts for all threads: its
    /// measurement is from the first thread's begin to the last one's end.
    fn of(measured: &[Measured], is_shared: bool) -> Self {
        let moved = |of: fn(&ClientMetrics) -> u64| {
            let before = measured.iter().map(|one| of(&one.before));
            let after = measured.iter().map(|one| of(&one.metrics));
            if is_shared {
                after.max().unwrap_or(0) - before.min().unwrap_or(0)
            } else {
                after.zip(before).map(|(after, before)| after - before).sum()
            }
        };
        let all = moved(|it| it.read_bytes + it.written_bytes);
        let same_host_bytes = moved(|it| it.same_host_read_bytes + it.same_host_written_bytes);
        // The counters of a shared client are read one by one while other threads go on.
        Self { same_host_bytes, tcp_bytes: all.saturating_sub(same_host_bytes) }
    }
}

/// All threads' figures together.
struct Sum {
    latency: Histogram<u64>,
    operations: u64,
    items: u64,
    bytes: u64,
    elapsed: Duration,
    metrics: ClientMetrics,
    travelled: Travelled,
}

impl Sum {
    fn of(measured: &[Measured], is_shared: bool) -> Self {
        let mut latency = Histogram::new(3).expect("three digits are allowed");
        for one in measured {
            latency.add(&one.latency).expect("all histograms resize themselves");
        }
        let began = measured.iter().map(|one| one.span.0).min();
        let ended = measured.iter().map(|one| one.span.1).max();
        let elapsed = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
        // A shared client counted for all.
        let clients = if is_shared { &measured[..1] } else { measured };
        let mut metrics = ClientMetrics::default();
        let travelled = Travelled::of(measured, is_shared);
        for one in clients {
            metrics.retries += one.metrics.retries;
            metrics.longest_stall = metrics.longest_stall.max(one.metrics.longest_stall);
        }
        let sum = |of: fn(&Measured) -> u64| measured.iter().map(of).sum();
        let (operations, items) = (sum(|one| one.operations), sum(|one| one.items));
        let bytes = sum(|one| one.bytes);
        Self { latency, operations, items, bytes, elapsed, metrics, travelled }
    }
}

/// Prints what the threads measured.
///
/// # Errors
/// The failure to write to stdout: end the command with it.
pub(super) fn print(
    output: Output,
    plan: &BenchPlan,
    measured: &[Measured],
    cpu: &Cpu,
) -> Result<(), Failure> {
    let args = &plan.args;
    let sum = Sum::of(measured, args.share_client);
    let seconds = sum.elapsed.as_secs_f64().max(1e-9);
    let per_second = |things: u64| float(things) / seconds;
    let report = BenchReport {
        r#type: plan.kind.name,
        size_bytes: plan.load.size,
        count: args.duration.is_none().then_some(args.count),
        duration_seconds: args.duration.map(|span| span.0.as_secs_f64()),
        warmup: args.warmup,
        threads: args.threads,
        depth: plan.depth,
        batch: plan.load.batch,
        stream: plan.stream(),
        share_client: args.share_client,
        checksums: args.checksums == Switch::On,
        same_host: !args.no_same_host,
        pin: args.pin,
        class: args.class,
        operations: sum.operations,
        items: sum.items,
        bytes: sum.bytes,
        same_host_bytes: sum.travelled.same_host_bytes,
        tcp_bytes: sum.travelled.tcp_bytes,
        seconds,
        operations_per_second: per_second(sum.operations),
        items_per_second: per_second(sum.items),
        bytes_per_second: per_second(sum.bytes),
        latency_micros: summary(&sum.latency),
        histogram: args.histogram.then(|| buckets(&sum.latency)),
        retries: sum.metrics.retries,
        longest_stall_millis: sum.metrics.longest_stall.as_secs_f64() * 1e3,
        cpu: cpu_report(cpu, &sum),
    };
    output.result(&report, |writer| write(writer, &report, sum.elapsed))
}

fn cpu_report<'a>(cpu: &'a Cpu, sum: &Sum) -> CpuReport<'a> {
    let client = cpu.client.as_secs_f64();
    let server = cpu.seconds(SERVERS);
    let operations = float(sum.operations.max(1));
    let gib = (sum.bytes > 0).then(|| float(sum.bytes) / float(1 << 30));
    CpuReport {
        client_seconds: client,
        server_seconds: server,
        namenode_seconds: cpu.seconds(&["namenode"]),
        datanode_seconds: cpu.seconds(&["datanode"]),
        client_micros_per_operation: client * 1e6 / operations,
        server_micros_per_operation: server.map(|seconds| seconds * 1e6 / operations),
        client_seconds_per_gib: gib.map(|gib| client / gib),
        server_seconds_per_gib: server.zip(gib).map(|(seconds, gib)| seconds / gib),
        items_per_server_second: server
            .filter(|seconds| *seconds > 0.0)
            .map(|seconds| float(sum.items) / seconds),
        servers: &cpu.servers,
        unmeasured: cpu.unmeasured.iter().map(|(name, _)| name.as_str()).collect(),
    }
}

fn write(writer: &mut dyn Write, report: &BenchReport<'_>, elapsed: Duration) -> io::Result<()> {
    let BenchReport { threads, depth, operations, .. } = report;
    // Operations on names have no size and no bandwidth.
    let (size, rate) = match report.bytes {
        0 => (String::new(), String::new()),
        bytes => (
            format!(" of {}", units::bytes(report.size_bytes)),
            format!(", {}", units::rate(bytes, elapsed)),
        ),
    };
    let load = format!("{threads} threads, {depth} in flight each");
    writeln!(writer, "{}: {operations} operations{size} by {load}", report.r#type)?;
    let each = report.operations_per_second;
    writeln!(writer, "  {each:.0} operations/s{rate}, {}", units::duration(elapsed))?;
    if report.items != *operations {
        writeln!(writer, "  {:.0} items/s, {} in all", report.items_per_second, report.items)?;
    }
    write_travelled(writer, report)?;
    write_latency(writer, &report.latency_micros)?;
    write_cpu(writer, &report.cpu)?;
    if report.retries > 0 {
        let stall = units::duration(Duration::from_secs_f64(report.longest_stall_millis / 1e3));
        writeln!(writer, "  {} retries, longest stall {stall}", report.retries)?;
    }
    for (bound, count) in report.histogram.iter().flatten() {
        writeln!(writer, "  {:>12} {count}", time(*bound))?;
    }
    Ok(())
}

/// Names have no bytes that travel.
fn write_travelled(writer: &mut dyn Write, report: &BenchReport<'_>) -> io::Result<()> {
    match (report.same_host_bytes, report.tcp_bytes) {
        (0, 0) => Ok(()),
        (0, _) => writeln!(writer, "  all bytes over TCP"),
        (_, 0) => writeln!(writer, "  all bytes in memory shared with a datanode"),
        (here, tcp) => {
            let (here, tcp) = (units::bytes(here), units::bytes(tcp));
            writeln!(writer, "  {here} in memory shared with a datanode, {tcp} over TCP")
        }
    }
}

fn write_latency(writer: &mut dyn Write, it: &LatencySummary) -> io::Result<()> {
    let (mean, p50, p90, p99) = (time(it.mean), time(it.p50), time(it.p90), time(it.p99));
    let (p999, max) = (time(it.p999), time(it.max));
    writeln!(
        writer,
        "  latency: mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}"
    )
}

fn write_cpu(writer: &mut dyn Write, cpu: &CpuReport<'_>) -> io::Result<()> {
    let per_gib = |seconds: Option<f64>| {
        seconds.map_or_else(String::new, |seconds| format!(", {seconds:.3} s/GiB"))
    };
    let (client, gib) =
        (time(cpu.client_micros_per_operation), per_gib(cpu.client_seconds_per_gib));
    write!(writer, "  CPU: client {client}/operation{gib}")?;
    if let Some(micros) = cpu.server_micros_per_operation {
        let (server, gib) = (time(micros), per_gib(cpu.server_seconds_per_gib));
        write!(writer, "; servers {server}/operation{gib}")?;
    }
    if !cpu.unmeasured.is_empty() {
        write!(writer, "; not measured: {}", cpu.unmeasured.join(", "))?;
    }
    writeln!(writer)
}

fn time(micros: f64) -> String {
    units::duration(Duration::from_secs_f64(micros / 1e6))
}

fn micros(nanos: u64) -> f64 {
    float(nanos) / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are enough")]
fn float(number: u64) -> f64 {
    number as f64
}

fn summary(latency: &Histogram<u64>) -> LatencySummary {
    let at = |quantile| micros(latency.value_at_quantile(quantile));
    LatencySummary {
        min: micros(latency.min()),
        mean: latency.mean() / 1e3,
        stdev: latency.stdev() / 1e3,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: micros(latency.max()),
    }
}

fn buckets(latency: &Histogram<u64>) -> Vec<(f64, u64)> {
    let recorded = latency.iter_recorded();
    let bucket = |value: hdrhistogram::iterators::IterationValue<u64>| {
        (micros(value.value_iterated_to()), value.count_at_value())
    };
    recorded.map(bucket).collect()
}
