//! The task whose checkpoints are measured: a process that changes its memory in a known way, and
//! can verify every byte of it.
//!
//! The content of a chunk follows from its number and its version, and the versions are in the
//! memory too. So a restored process finds each byte that is not of the moment of its checkpoint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::failure::{Exit, Failure, FailureKind};
use crate::session;
use crate::units::Span;

/// Bytes of a chunk: those of checkpoints.
const CHUNK: usize = sanderling_core::checkpoint::CHUNK_BYTES;

/// Time from one step to the next.
pub(crate) const STEP: Duration = Duration::from_millis(20);

/// One of so many chunks changes in a sparse writer, and is appended in a second.
const SPARSE: usize = 100;

/// Files in the control directory.
pub(crate) const READY: &str = "ready";
pub(crate) const VERIFY: &str = "verify";
pub(crate) const VERIFIED: &str = "verified";
pub(crate) const ENDED: &str = "ended";

/// How a task changes its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WriterKind {
    /// All of it again and again; half of each chunk can be compressed
    Dense,
    /// The same hundredth of it again and again; half of each chunk can be compressed
    Sparse,
    /// It appends what cannot be compressed, as a log
    Append,
}

/// `sanderling lab checkpoint-task`.
#[derive(Debug, Args)]
pub struct CheckpointTask {
    /// How it changes its memory
    #[arg(long, value_enum)]
    pub(crate) kind: WriterKind,
    /// Bytes of its memory
    #[arg(long)]
    pub(crate) bytes: usize,
    /// Time in which a dense writer changes all of it, and a sparse one its part
    #[arg(long, default_value = "1s")]
    pub(crate) turn: Span,
    /// Where it looks for orders, and reports
    #[arg(long)]
    pub(crate) control: PathBuf,
    /// End after so many steps of 20 ms
    #[arg(long)]
    pub(crate) steps: Option<u64>,
    /// Write the state at SIGUSR1, for the hook
    #[arg(long)]
    pub(crate) hook: bool,
}

/// The memory.
struct CheckedMemory {
    kind: WriterKind,
    memory: Vec<u8>,
    versions: Vec<u32>,
    /// Chunks that there will be.
    chunks: usize,
    next: usize,
    step: u64,
}

/// Runs the task.
///
/// # Errors
/// Its files cannot be read or written.
pub(crate) fn run(args: &CheckpointTask) -> Result<(), Failure> {
    if args.hook {
        return session::block_on(with_hook(args));
    }
    // One thread alone: CRIU dumps as little as there is beside the memory.
    let mut writer = CheckedMemory::new(args.kind, args.bytes);
    begun(args)?;
    let mut at = std::time::Instant::now();
    while writer.goes_on(args)? {
        at = (at + STEP).max(std::time::Instant::now() - STEP);
        std::thread::sleep(at.saturating_duration_since(std::time::Instant::now()));
    }
    ended(args)
}

async fn with_hook(args: &CheckpointTask) -> Result<(), Failure> {
    let state = std::env::var_os("SANDERLING_TASK_STATE").map(PathBuf::from);
    let state = state.ok_or_else(|| Failure::usage("a runner starts this task"))?;
    let mut writer = match std::env::var_os("SANDERLING_TASK_RESTORED") {
        Some(_) => CheckedMemory::read(args, &state)?,
        None => CheckedMemory::new(args.kind, args.bytes),
    };
    let failed =
        |error: std::io::Error| Failure::caused(Exit::Failure, FailureKind::Process, error);
    let mut signals = signal(SignalKind::user_defined1()).map_err(failed)?;
    begun(args)?;
    let mut at = Instant::now();
    while writer.goes_on(args)? {
        at = (at + STEP).max(Instant::now() - STEP);
        tokio::select! {
            _ = signals.recv() => writer.write(&state)?,
            () = sleep_until(at) => {}
        }
    }
    ended(args)
}

fn begun(args: &CheckpointTask) -> Result<(), Failure> {
    put(&args.control.join(READY), b"")
}

fn ended(args: &CheckpointTask) -> Result<(), Failure> {
    put(&args.control.join(ENDED), b"")
}

impl CheckedMemory {
    fn new(kind: WriterKind, bytes: usize) -> Self {
        let chunks = (bytes / CHUNK).max(1);
        let begin = if kind == WriterKind::Append { chunks.div_ceil(2) } else { chunks };
        let memory = Vec::with_capacity(chunks * CHUNK);
        let mut writer = Self { kind, memory, versions: Vec::new(), chunks, next: 0, step: 0 };
        (0..begin).for_each(|_| writer.append());
        writer
    }

    fn append(&mut self) {
        let at = self.versions.len();
        self.memory.resize(self.memory.len() + CHUNK, 0);
        self.versions.push(0);
        self.fill(at);
    }

    /// Gives a chunk the content of its version.
    fn fill(&mut self, at: usize) {
        let (kind, version) = (self.kind, self.versions[at]);
        fill(kind, at, version, &mut self.memory[at * CHUNK..][..CHUNK]);
    }

    /// Does one step; returns whether there is another one.
    fn goes_on(&mut self, args: &CheckpointTask) -> Result<bool, Failure> {
        let verified = args.control.join(VERIFIED);
        if args.control.join(VERIFY).exists() && !verified.exists() {
            let text = match self.bad() {
                None => format!("good {} {}", self.memory.len(), self.step),
                Some(chunk) => format!("bad chunk {chunk}"),
            };
            put(&verified, text.as_bytes())?;
        }
        self.step += 1;
        let turns = (args.turn.0.as_secs_f64() / STEP.as_secs_f64()).max(1.0);
        let all = match self.kind {
            WriterKind::Dense => self.chunks,
            WriterKind::Sparse | WriterKind::Append => self.chunks.div_ceil(SPARSE),
        };
        // As many in all steps so far as belong to them: a part of a chunk is carried over.
        let until = |step: u64| (step as f64 * all as f64 / turns) as usize;
        for _ in until(self.step - 1)..until(self.step) {
            if self.kind != WriterKind::Append {
                let at = self.next % all;
                self.next += 1;
                self.versions[at] += 1;
                self.fill(at);
            } else if self.versions.len() < self.chunks {
                self.append();
            }
        }
        Ok(args.steps.is_none_or(|steps| self.step < steps))
    }

    /// Returns the first chunk that has another content than that of its version.
    fn bad(&self) -> Option<usize> {
        let mut expected = vec![0; CHUNK];
        self.versions.iter().enumerate().position(|(at, version)| {
            fill(self.kind, at, *version, &mut expected);
            self.memory[at * CHUNK..][..CHUNK] != expected[..]
        })
    }

    fn write(&self, state: &Path) -> Result<(), Failure> {
        let versions: Vec<u8> = self.versions.iter().flat_map(|it| it.to_le_bytes()).collect();
        put(&state.join("memory"), &self.memory)?;
        put(&state.join("versions"), &versions)?;
        put(&state.join("steps"), format!("{} {}", self.step, self.next).as_bytes())?;
        put(&state.join("done"), b"")
    }

    fn read(args: &CheckpointTask, state: &Path) -> Result<Self, Failure> {
        let read = |name: &str| {
            let path = state.join(name);
            std::fs::read(&path).map_err(|error| Failure::file(&path, error))
        };
        let (memory, versions) = (read("memory")?, read("versions")?);
        let versions: Vec<u32> = versions
            .chunks_exact(4)
            .map(|it| u32::from_le_bytes(it.try_into().expect("four bytes")))
            .collect();
        let steps = String::from_utf8_lossy(&read("steps")?).into_owned();
        let mut numbers = steps.split(' ').filter_map(|it| it.parse::<u64>().ok());
        let (Some(step), Some(next)) = (numbers.next(), numbers.next()) else {
            return Err(Failure::new(Exit::Failure, FailureKind::TaskState, "no number of steps"));
        };
        if memory.len() != versions.len() * CHUNK {
            return Err(Failure::new(Exit::Failure, FailureKind::TaskState, "the memory is cut"));
        }
        let chunks = (args.bytes / CHUNK).max(1);
        Ok(Self { kind: args.kind, memory, versions, chunks, next: next as usize, step })
    }
}

/// Writes the content of a chunk's version: random bytes, and for kinds that can be compressed the
/// second half repeats one word.
fn fill(kind: WriterKind, chunk: usize, version: u32, target: &mut [u8]) {
    let mut state = ((chunk as u64) << 32 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29 | 1;
    let first = state;
    let random = if kind == WriterKind::Append { target.len() } else { target.len() / 2 };
    for (at, word) in target.chunks_exact_mut(8).enumerate() {
        if at * 8 < random {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        } else {
            word.copy_from_slice(&first.to_le_bytes());
        }
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_byte_is_found() {
        for kind in [WriterKind::Dense, WriterKind::Sparse, WriterKind::Append] {
            let mut writer = CheckedMemory::new(kind, 5 * CHUNK);
            assert_eq!(writer.bad(), None);
            writer.memory[2 * CHUNK + 9] ^= 1;
            assert_eq!(writer.bad(), Some(2), "{kind:?}");
            writer.fill(2);
            writer.versions[1] += 1;
            assert_eq!(writer.bad(), Some(1), "{kind:?}");
        }
    }
}
