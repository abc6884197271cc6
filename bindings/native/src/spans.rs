//! The export of spans of a program that uses a client, and the span of each call.

use std::{io, process};

use parking_lot::Mutex;
use sanderling_otlp::{
    Collector, CollectorError, Export, forget_pending, is_exporting, refused, start,
};
use sanderling_transport::trace;
use thiserror::Error;

pub use sanderling_transport::trace::in_span;

/// One for the whole process, whose clients may be many.
static EXPORT: Mutex<Option<Exporting>> = Mutex::new(None);

struct Exporting {
    process: u32,
    collector: Collector,
    export: Export,
}

/// Why spans are not exported to a collector.
#[derive(Debug, Error)]
pub enum SpansError {
    /// The text is no address of a collector.
    #[error("{address:?} is no collector of OTLP: {cause}")]
    BadAddress {
        /// The text.
        address: String,
        /// What an address looks like.
        #[source]
        cause: CollectorError,
    },
    /// The process has another collector already.
    #[error("this process exports its spans to {current}: it has one collector")]
    Another {
        /// The collector that it has.
        current: Collector,
    },
    /// The operating system gives no thread.
    #[error("{0}")]
    Start(#[source] io::Error),
}

/// Records the spans of all clients of this process from now on, and exports them to a collector,
/// `http://HOST[:PORT][/PATH]`.
///
/// # Errors
/// [`SpansError::BadAddress`] and [`SpansError::Another`]: give another collector.
/// [`SpansError::Start`]: the system has no thread for it now; try again later.
pub fn export_spans(collector: &str, service: &'static str) -> Result<(), SpansError> {
    let wrong = |cause| SpansError::BadAddress { address: collector.to_owned(), cause };
    let collector: Collector = collector.parse().map_err(wrong)?;
    let mut slot = EXPORT.lock();
    match slot.as_ref() {
        Some(now) if now.process != process::id() => {
            // The parent's thread did not come along, and its spans are the parent's.
            forget_pending();
            std::mem::forget(slot.take());
        }
        Some(now) if now.collector == collector => return Ok(()),
        Some(now) => return Err(SpansError::Another { current: now.collector.clone() }),
        // A command line in this process does.
        None if is_exporting() => return Ok(()),
        None => {}
    }
    let export = start(collector.clone(), service).map_err(SpansError::Start)?;
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

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn wrong_collector_is_the_source_of_the_error() {
        let error = export_spans("ftp://x", "test").unwrap_err();
        let text = "\"ftp://x\" is no collector of OTLP: give http://HOST[:PORT][/PATH]";
        assert_eq!(error.to_string(), text);
        let source = error.source().and_then(|source| source.downcast_ref());
        assert_eq!(source, Some(&CollectorError));
    }
}
