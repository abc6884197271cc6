//! The export of spans of a program that uses a client, and the span of each call.

use std::process;

use parking_lot::Mutex;
use sanderling_otlp::{Collector, Export, forget_pending, is_exporting, refused, start};

use sanderling_transport::trace;

pub use sanderling_transport::trace::in_span;

/// One for the whole process, whose clients may be many.
static EXPORT: Mutex<Option<Exporting>> = Mutex::new(None);

struct Exporting {
    process: u32,
    collector: Collector,
    export: Export,
}

/// Records the spans of all clients of this process from now on, and exports them to a collector,
/// `http://HOST[:PORT][/PATH]`.
///
/// # Errors
/// Why the collector cannot be used: its address is none, or the process has another one already.
pub fn export_spans(collector: &str, service: &'static str) -> Result<(), String> {
    let wrong = |why| format!("{collector:?} is no collector of OTLP: {why}");
    let collector: Collector = collector.parse().map_err(wrong)?;
    let mut slot = EXPORT.lock();
    match slot.as_ref() {
        Some(now) if now.process != process::id() => {
            // The parent's thread did not come along, and its spans are the parent's.
            forget_pending();
            std::mem::forget(slot.take());
        }
        Some(now) if now.collector == collector => return Ok(()),
        Some(now) => {
            let now = &now.collector;
            return Err(format!("this process exports its spans to {now}: it has one collector"));
        }
        // A command line in this process does.
        None if is_exporting() => return Ok(()),
        None => {}
    }
    let export = start(collector.clone(), service).map_err(|error| error.to_string())?;
    *slot = Some(Exporting { process: process::id(), collector, export });
    Ok(())
}

/// Makes calls for many objects, each with an error of its own, in one span.
pub async fn many_in_span<F: Future>(name: &'static str, calls: F) -> F::Output {
    trace::run(trace::begin(name), calls).await
}

/// Sends the last spans, for at most two seconds. Returns the collector and how many spans it did
/// not take, if it is any.
pub fn end_export() -> Option<(String, u64)> {
    let exporting = EXPORT.lock().take()?;
    if exporting.process != process::id() {
        std::mem::forget(exporting);
        return None;
    }
    let collector = exporting.collector.to_string();
    drop(exporting.export);
    Some((collector, refused())).filter(|(_, spans)| *spans > 0)
}
