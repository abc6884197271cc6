//! `task predict`: how long a dump takes, what it costs, and whether it fits into a notice.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::session::Session;
use sanderling_command::units::{self, Rate, Size, Span};
use sanderling_core::checkpoint::{
    CHUNK_BYTES, DumpForecast, DumpRates, NoticeChoice, PackId, Packing, StoragePrices,
};
use sanderling_protocol::Millis;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::dollars;
use crate::backend::{BackendSpec, TaskBackend};
use crate::encryption::{TaskKey, drawn};
use crate::generations::pack_name;
use crate::pack_writer::PackWriter;
use crate::state::ChunkSink;

/// Bytes of each object with which the backend is measured: a whole pack (`PACK_BYTES` of the
/// core).
const MEASURED_BYTES: usize = 32 << 20;

/// Objects with which it is measured. The slower one counts: the first may fill a buffer. More
/// would take longer than a user waits. Chosen, not measured.
const MEASURED: usize = 2;

/// Where it is measured. No task and no bag has this name: what is there is of no use to any.
const MEASURED_NAME: &str = "@@predict";

/// Age from which on a file that is not whole was left by a process that died, on file systems
/// without locks: each is written at once. Chosen, not measured.
const LEFT_AGE: Duration = Duration::from_secs(60);

/// `task predict`.
#[derive(Debug, Clone, Args)]
pub struct PredictArgs {
    /// Where checkpoints are stored: a path in Sanderling, dir:D for a directory, mount:D for one
    /// that has to be a mount point, s3://BUCKET/PREFIX, or auto for /tasks in the cluster that is
    /// configured, which is refused where none is
    #[arg(long, value_name = "BACKEND", default_value = "/tasks")]
    pub(crate) backend: BackendSpec,
    /// The memory that the task has in use
    #[arg(long, value_name = "SIZE")]
    pub(crate) rss: Size,
    /// The time between the notice and the end of the machine
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) notice: Span,
    /// Bytes per second that the backend takes [default: measured with 64 MiB]
    #[arg(long, value_name = "RATE")]
    pub(crate) put_rate: Option<Rate>,
    /// Bytes per second that this machine compresses and encrypts [default: measured]
    #[arg(long, value_name = "RATE")]
    pub(crate) pack_rate: Option<Rate>,
    /// Dollars for 10^9 stored bytes in a month; the default is that of S3
    #[arg(long, value_name = "DOLLARS", default_value = "0.023", value_parser = dollars)]
    pub(crate) price_storage: f64,
    /// Dollars for 1000 requests that write; the default is that of S3
    #[arg(long, value_name = "DOLLARS", default_value = "0.005", value_parser = dollars)]
    pub(crate) price_requests: f64,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct PredictReport {
    rss_bytes: u64,
    notice_seconds: f64,
    pack_bytes_per_second: u64,
    put_bytes_per_second: u64,
    seconds: f64,
    stored_bytes: u64,
    requests: u64,
    dollars_per_dump: f64,
    dollars_per_month: f64,
    fits: bool,
    fits_up_to_bytes: u64,
}

/// Runs `task predict`.
///
/// # Errors
/// The backend cannot be measured.
pub(crate) async fn run(session: &Session, args: &PredictArgs) -> Result<(), Failure> {
    let MeasuredBackend { rates, is_durable } = rates(session, args).await?;
    let prices = StoragePrices {
        gigabyte_month: args.price_storage,
        thousand_requests: args.price_requests,
    };
    let forecast = rates.forecast(args.rss.0, prices);
    let forecast = if is_durable { forecast.copied_to_a_bucket(prices) } else { forecast };
    let notice = args.notice.millis();
    let fits = NoticeChoice::of(forecast.takes, notice) == NoticeChoice::Dump;
    let largest = rates.largest(notice);
    let DumpForecast { takes, stored_bytes, requests, request_dollars, month_dollars, .. } =
        forecast;
    let report = PredictReport {
        rss_bytes: args.rss.0,
        notice_seconds: args.notice.0.as_secs_f64(),
        pack_bytes_per_second: rates.pack_per_second as u64,
        put_bytes_per_second: rates.put_per_second as u64,
        seconds: takes.0 as f64 / 1000.0,
        stored_bytes,
        requests,
        dollars_per_dump: request_dollars,
        dollars_per_month: month_dollars,
        fits,
        fits_up_to_bytes: largest,
    };
    session.output.result(&report, |writer| {
        let (takes, notice) = (units::millis(takes), units::millis(notice));
        let second = Duration::from_secs(1);
        let (pack, put) = (report.pack_bytes_per_second, report.put_bytes_per_second);
        writeln!(writer, "this machine packs {}", units::rate(pack, second))?;
        writeln!(writer, "the backend takes {}", units::rate(put, second))?;
        writeln!(writer, "a dump takes {takes} and {requests} requests, ${request_dollars:.4}")?;
        let stored = units::bytes(stored_bytes);
        writeln!(writer, "it stores {stored}, ${month_dollars:.3} in a month")?;
        let largest = units::bytes(largest);
        match fits {
            true => {
                writeln!(writer, "it fits into a notice of {notice}, as does all up to {largest}")
            }
            false => {
                writeln!(writer, "it does not fit into a notice of {notice}: {largest} would")
            }
        }
    })
}

/// How fast a backend is, and what copies it.
struct MeasuredBackend {
    rates: DumpRates,
    /// Whether it is in a durable directory, as far as it was looked at.
    is_durable: bool,
}

async fn rates(session: &Session, args: &PredictArgs) -> Result<MeasuredBackend, Failure> {
    let given = |rate: Option<Rate>| rate.map(|rate| rate.0 as f64);
    let zero = |rate: Option<f64>| rate.is_some_and(|rate| rate <= 0.0);
    let (pack, put) = (given(args.pack_rate), given(args.put_rate));
    if zero(pack) || zero(put) {
        return Err(Failure::usage("a rate is above 0"));
    }
    if let (Some(pack_per_second), Some(put_per_second)) = (pack, put) {
        let rates = DumpRates { pack_per_second, put_per_second, request: Millis(0) };
        return Ok(MeasuredBackend { rates, is_durable: false });
    }
    let backend = TaskBackend::open(session, &args.backend).await?.of_task(MEASURED_NAME)?;
    backend.prepare().await?;
    let removals = remove_left(&backend).await?;
    let measured = measure(&backend, true).await?;
    removals.join_all().await;
    let is_durable = backend.durable("packs", Vec::new()).await?.is_some();
    let rates = DumpRates {
        pack_per_second: pack.unwrap_or(measured.pack_per_second),
        put_per_second: put.unwrap_or(measured.put_per_second),
        request: measured.request,
    };
    Ok(MeasuredBackend { rates, is_durable })
}

/// Begins to remove what killed processes left that measured a backend. Of one that measures now
/// it removes only what is written already, which that one removes next and never reads. What
/// cannot be removed now is met again by the next.
///
/// # Errors
/// The backend cannot be read.
async fn remove_left(backend: &TaskBackend) -> Result<JoinSet<()>, Failure> {
    backend.clear_checks(LEFT_AGE);
    backend.clear_drafts(&["packs"], LEFT_AGE);
    let mut removals = JoinSet::new();
    for (name, _) in backend.list("packs").await? {
        remove(backend, format!("packs/{name}"), &mut removals);
    }
    Ok(removals)
}

/// Removes an object meanwhile: below a durable directory that waits for the store, which may be
/// away.
fn remove(backend: &TaskBackend, place: String, removals: &mut JoinSet<()>) {
    let backend = backend.clone();
    removals.spawn(async move {
        let _ = backend.remove(&place).await;
    });
}

/// Measures this machine and a backend, with objects that are removed again.
///
/// # Errors
/// The backend cannot be used.
pub(crate) async fn measure(backend: &TaskBackend, compresses: bool) -> Result<DumpRates, Failure> {
    let packing = tokio::task::spawn_blocking(move || pack_rate(compresses));
    let packing =
        packing.await.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?;
    let pack_per_second = packing?;
    let mut removals = JoinSet::new();
    let measured = put_times(backend, &mut removals).await;
    // Also after a failure: a backend without room needs it.
    removals.join_all().await;
    let (request, slowest) = measured?;
    let seconds = slowest.saturating_sub(request).as_secs_f64().max(1e-6);
    let put_per_second = MEASURED_BYTES as f64 / seconds;
    Ok(DumpRates { pack_per_second, put_per_second, request: request.into() })
}

/// Returns how long a backend takes for an object without a size, and for a pack.
async fn put_times(
    backend: &TaskBackend,
    removals: &mut JoinSet<()>,
) -> Result<(Duration, Duration), Failure> {
    let request = put(backend, vec![1; 100], removals).await?;
    let mut slowest = Duration::ZERO;
    for _ in 0..MEASURED {
        let took = put(backend, incompressible(MEASURED_BYTES), removals).await?;
        slowest = slowest.max(took);
    }
    Ok((request, slowest))
}

/// Writes an object and returns how long that took. It is removed meanwhile.
async fn put(
    backend: &TaskBackend,
    bytes: Vec<u8>,
    removals: &mut JoinSet<()>,
) -> Result<Duration, Failure> {
    // The name of a pack: what stays behind is removed as any pack of no use.
    let place = pack_name(PackId(drawn()));
    let begun = Instant::now();
    let written = backend.put_absent(&place, bytes).await;
    let took = begun.elapsed();
    remove(backend, place, removals);
    written.map(|_| took)
}

/// Packs contents that do not repeat and cannot be compressed, which takes longest.
fn pack_rate(compresses: bool) -> Result<f64, Failure> {
    let bytes = incompressible(MEASURED_BYTES / 2);
    let (sender, _packs) = mpsc::channel(2);
    let packing = Packing::new(None, &BTreeSet::new());
    let begun = std::time::Instant::now();
    let mut writer = PackWriter::new(packing, TaskKey::of_nothing(), compresses, sender)?;
    bytes.chunks(CHUNK_BYTES).try_for_each(|chunk| writer.add(chunk))?;
    writer.finish()?;
    Ok(bytes.len() as f64 / begun.elapsed().as_secs_f64().max(1e-6))
}

/// Returns bytes without a pattern.
fn incompressible(bytes: usize) -> Vec<u8> {
    let seed = drawn::<8>();
    let mut state = u64::from_le_bytes(seed) | 1;
    let mut words = Vec::with_capacity(bytes);
    while words.len() < bytes {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend(state.to_le_bytes());
    }
    words
}
