//! The task whose checkpoints are measured: a process that changes its memory in a known way, and
//! can verify every byte of it.
//!
//! The content of a chunk follows from its number and its version, and the version from the number
//! of steps that the task has done. So a restored process finds each byte that is not of the moment
//! of its checkpoint, and one that has reached its end each byte that it would not have there if it
//! had never ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::obstacle::{HeldObstacle, Obstacle};
use crate::failure::{Exit, Failure, FailureKind};
use crate::session;
use crate::units::Span;

/// Bytes of a chunk: those of checkpoints, so that a changed chunk is one to store.
const CHUNK: usize = sanderling_core::checkpoint::CHUNK_BYTES;

/// Time from one step to the next: 50 changes of the state a second. Chosen, not measured.
pub(crate) const STEP: Duration = Duration::from_millis(20);

/// One of so many chunks changes in a sparse writer, and is appended in a second: 1 %, as the image
/// of CRIU changed in half a second (`CHUNK_BYTES` of the core).
const SPARSE: usize = 100;

/// Files in the control directory. The task answers an order once: while the answer is not there.
pub(crate) const READY: &str = "ready";
pub(crate) const VERIFY: &str = "verify";
pub(crate) const VERIFIED: &str = "verified";
pub(crate) const COUNT: &str = "count";
pub(crate) const COUNTED: &str = "counted";
pub(crate) const ENDED: &str = "ended";
/// Why the task does not have what cannot be dumped.
pub(crate) const UNTRIED: &str = "untried";

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
    /// Verify the memory after the last step
    #[arg(long)]
    pub(crate) verify_end: bool,
    /// Have what cannot be dumped
    #[arg(long, value_enum)]
    pub(crate) obstacle: Option<Obstacle>,
}

/// The memory.
struct CheckedMemory {
    kind: WriterKind,
    memory: Vec<u8>,
    versions: Vec<u32>,
    /// Chunks that there will be.
    chunks: usize,
    /// Steps in which a dense writer changes all of it, and a sparse one its part.
    turn_steps: f64,
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
    let _held = held(args)?;
    // One thread alone: CRIU dumps as little as there is beside the memory.
    let mut writer = CheckedMemory::new(args.kind, args.bytes, args.turn.0);
    begun(args)?;
    let mut at = std::time::Instant::now();
    while writer.goes_on(args)? {
        at = (at + STEP).max(std::time::Instant::now() - STEP);
        std::thread::sleep(at.saturating_duration_since(std::time::Instant::now()));
    }
    writer.ended(args)
}

async fn with_hook(args: &CheckpointTask) -> Result<(), Failure> {
    let state = std::env::var_os("SANDERLING_TASK_STATE").map(PathBuf::from);
    let state = state.ok_or_else(|| Failure::usage("a runner starts this task"))?;
    let is_restored = std::env::var_os("SANDERLING_TASK_RESTORED").is_some();
    let mut writer = match is_restored {
        true => CheckedMemory::read(args, &state)?,
        false => CheckedMemory::new(args.kind, args.bytes, args.turn.0),
    };
    let failed =
        |error: std::io::Error| Failure::caused(Exit::Failure, FailureKind::Process, error);
    let mut signals = signal(SignalKind::user_defined1()).map_err(failed)?;
    // As with CRIU, a task that goes on has begun before.
    if !is_restored {
        begun(args)?;
    }
    let mut at = Instant::now();
    while writer.goes_on(args)? {
        at = (at + STEP).max(Instant::now() - STEP);
        tokio::select! {
            _ = signals.recv() => writer.write(&state)?,
            () = sleep_until(at) => {}
        }
    }
    writer.ended(args)
}

/// Makes what cannot be dumped, and reports why it cannot be had if that is so.
fn held(args: &CheckpointTask) -> Result<Option<HeldObstacle>, Failure> {
    let Some(obstacle) = args.obstacle else { return Ok(None) };
    let made = obstacle.make(&args.control);
    if let Err(error) = &made {
        put(&args.control.join(UNTRIED), error.to_string().as_bytes())?;
    }
    made.map(Some).map_err(|error| Failure::caused(Exit::Failure, FailureKind::Process, error))
}

fn begun(args: &CheckpointTask) -> Result<(), Failure> {
    put(&args.control.join(READY), b"")
}

/// Returns in how many steps a turn is done.
fn turn_steps(turn: Duration) -> f64 {
    (turn.as_secs_f64() / STEP.as_secs_f64()).max(1.0)
}

impl CheckedMemory {
    fn new(kind: WriterKind, bytes: usize, turn: Duration) -> Self {
        let chunks = (bytes / CHUNK).max(1);
        let (memory, versions) = (Vec::with_capacity(chunks * CHUNK), Vec::new());
        let turn_steps = turn_steps(turn);
        let mut writer = Self { kind, memory, versions, chunks, turn_steps, next: 0, step: 0 };
        (0..writer.first_chunks()).for_each(|_| writer.append());
        writer
    }

    /// Returns how many chunks there are before the first step.
    fn first_chunks(&self) -> usize {
        if self.kind == WriterKind::Append { self.chunks.div_ceil(2) } else { self.chunks }
    }

    /// Returns how many chunks are changed in a turn, or appended.
    fn turn_chunks(&self) -> usize {
        match self.kind {
            WriterKind::Dense => self.chunks,
            WriterKind::Sparse | WriterKind::Append => self.chunks.div_ceil(SPARSE),
        }
    }

    /// Returns how many changes belong to all steps up to one: a part of a chunk is carried over.
    fn changes_until(&self, step: u64) -> usize {
        (step as f64 * self.turn_chunks() as f64 / self.turn_steps) as usize
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
        self.answer(args)?;
        self.step += 1;
        for _ in self.changes_until(self.step - 1)..self.changes_until(self.step) {
            if self.kind != WriterKind::Append {
                let at = self.next % self.turn_chunks();
                self.next += 1;
                self.versions[at] += 1;
                self.fill(at);
            } else if self.versions.len() < self.chunks {
                self.append();
            }
        }
        Ok(args.steps.is_none_or(|steps| self.step < steps))
    }

    /// Answers the orders that are there.
    fn answer(&self, args: &CheckpointTask) -> Result<(), Failure> {
        let (count, counted) = (args.control.join(COUNT), args.control.join(COUNTED));
        if count.exists() && !counted.exists() {
            put(&counted, format!("{}\n", self.step).as_bytes())?;
        }
        let verified = args.control.join(VERIFIED);
        if args.control.join(VERIFY).exists() && !verified.exists() {
            put(&verified, self.verified().as_bytes())?;
        }
        Ok(())
    }

    /// Reports that the last step is done, and what the memory is like then.
    fn ended(&self, args: &CheckpointTask) -> Result<(), Failure> {
        put(&args.control.join(ENDED), b"")?;
        match args.verify_end {
            true => put(&args.control.join(VERIFIED), self.verified().as_bytes()),
            false => Ok(()),
        }
    }

    /// Returns what was found in the memory.
    fn verified(&self) -> String {
        match self.bad() {
            None => format!("good {} {}", self.memory.len(), self.step),
            Some(chunk) => format!("bad chunk {chunk}"),
        }
    }

    /// Returns the first chunk that has another content than that of its version, or another
    /// version than that of the step, or that should not be there or is not.
    fn bad(&self) -> Option<usize> {
        let chunks = match self.kind {
            WriterKind::Append => {
                (self.first_chunks() + self.changes_until(self.step)).min(self.chunks)
            }
            WriterKind::Dense | WriterKind::Sparse => self.chunks,
        };
        let mut expected = vec![0; CHUNK];
        let bad = self.versions.iter().enumerate().position(|(at, version)| {
            fill(self.kind, at, *version, &mut expected);
            *version as usize != self.version_of(at)
                || self.memory[at * CHUNK..][..CHUNK] != expected[..]
        });
        bad.or_else(|| (self.versions.len() != chunks).then(|| self.versions.len().min(chunks)))
    }

    /// Returns which version a chunk has after this step.
    fn version_of(&self, at: usize) -> usize {
        let (all, changes) = (self.turn_chunks(), self.changes_until(self.step));
        match self.kind {
            WriterKind::Append => 0,
            WriterKind::Dense | WriterKind::Sparse if at >= all => 0,
            WriterKind::Dense | WriterKind::Sparse => {
                changes / all + usize::from(at < changes % all)
            }
        }
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
        let (kind, turn_steps, next) = (args.kind, turn_steps(args.turn.0), next as usize);
        Ok(Self { kind, memory, versions, chunks, turn_steps, next, step })
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

    /// A turn of two steps.
    const TURN: Duration = Duration::from_millis(40);

    const KINDS: [WriterKind; 3] = [WriterKind::Dense, WriterKind::Sparse, WriterKind::Append];

    /// Returns the arguments of a task that has so many steps.
    fn arguments(kind: WriterKind, control: &Path, steps: u64) -> CheckpointTask {
        CheckpointTask {
            kind,
            bytes: 5 * CHUNK,
            turn: Span(TURN),
            control: control.to_owned(),
            steps: Some(steps),
            hook: false,
            verify_end: true,
            obstacle: None,
        }
    }

    #[test]
    fn changed_byte_is_found() {
        for kind in KINDS {
            let mut writer = CheckedMemory::new(kind, 5 * CHUNK, TURN);
            assert_eq!(writer.bad(), None);
            writer.memory[2 * CHUNK + 9] ^= 1;
            assert_eq!(writer.bad(), Some(2), "{kind:?}");
            writer.fill(2);
            writer.versions[1] += 1;
            assert_eq!(writer.bad(), Some(1), "{kind:?}");
        }
    }

    #[test]
    fn memory_is_that_of_the_step_and_of_no_other() {
        let control = tempfile::tempdir().expect("a directory");
        for kind in KINDS {
            let args = arguments(kind, control.path(), 7);
            let mut writer = CheckedMemory::new(kind, args.bytes, TURN);
            while writer.goes_on(&args).expect("it can be written") {
                assert_eq!(writer.bad(), None, "{kind:?} after {}", writer.step);
            }
            assert_eq!((writer.step, writer.bad()), (7, None), "{kind:?}");
            writer.ended(&args).expect("it can be written");
            let verified = std::fs::read_to_string(control.path().join(VERIFIED));
            let expected = format!("good {} 7", writer.memory.len());
            assert_eq!(verified.expect("it is there"), expected, "{kind:?}");
            // As if the work of two turns was lost.
            writer.step += 4;
            assert!(kind == WriterKind::Append || writer.bad().is_some(), "{kind:?}");
        }
    }

    #[test]
    fn order_is_answered_once_with_the_steps_so_far() {
        let control = tempfile::tempdir().expect("a directory");
        let args = arguments(WriterKind::Dense, control.path(), 9);
        let mut writer = CheckedMemory::new(args.kind, args.bytes, TURN);
        assert!(writer.goes_on(&args).expect("it can be written"));
        let counted = control.path().join(COUNTED);
        assert!(!counted.exists());
        std::fs::write(control.path().join(COUNT), "").expect("written");
        for _ in 0..2 {
            assert!(writer.goes_on(&args).expect("it can be written"));
            assert_eq!(std::fs::read_to_string(&counted).expect("it is there"), "1\n");
        }
    }
}
