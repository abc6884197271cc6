//! The export of a command's or server's spans, if `--otlp` names a collector.

use sanderling_otlp::{Export, is_exporting};

use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;

/// Begins to record and export spans, if `--otlp` names a collector.
///
/// # Errors
/// The operating system gives no thread: raise the limit of processes (`ulimit -u`), or run without
/// `--otlp`.
pub fn start(global: &Global) -> Result<Option<Export>, Failure> {
    let Some(collector) = global.otlp.clone() else { return Ok(None) };
    if is_exporting() {
        // An earlier command of this process exports them.
        return Ok(None);
    }
    let failed = |error| Failure::caused(Exit::Failure, FailureKind::Runtime, error);
    sanderling_otlp::start(collector, global.service).map(Some).map_err(failed)
}
