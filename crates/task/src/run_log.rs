//! What checkpoints and restores took, as lines of JSON in a file: `--record`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use sanderling_command::failure::Failure;
use serde::Serialize;

use crate::pack_writer::PackCost;

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct RunLog(pub(crate) PathBuf);

/// One checkpoint.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CheckpointLine {
    pub(crate) task: String,
    pub(crate) generation: u64,
    pub(crate) driver: &'static str,
    /// How long the task stood still, at most: from the request for its state.
    pub(crate) frozen_seconds: f64,
    /// From the look at the backend before that, until the generation was published.
    pub(crate) dump_seconds: f64,
    pub(crate) state_bytes: u64,
    /// Bytes that were added to the backend, but for the manifest.
    pub(crate) stored_bytes: u64,
    #[serde(flatten)]
    pub(crate) packing: PackCost,
}

/// A line of the file.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Checkpoint(&'a CheckpointLine),
    Restore { task: &'a str, generation: u64, seconds: f64 },
}

impl RunLog {
    /// Records a checkpoint.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn checkpoint(&self, line: &CheckpointLine) -> Result<(), Failure> {
        self.append(&Line::Checkpoint(line))
    }

    /// Records a restore: from the look at the generations' packs until the task ran.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn restored(
        &self,
        task: &str,
        generation: u64,
        took: Duration,
    ) -> Result<(), Failure> {
        self.append(&Line::Restore { task, generation, seconds: took.as_secs_f64() })
    }

    fn append(&self, line: &Line<'_>) -> Result<(), Failure> {
        let text = serde_json::to_string(line).expect("a line can be encoded") + "\n";
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.0);
        // One write: a reader sees whole lines.
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::file(&self.0, error))
    }
}
