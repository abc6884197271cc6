//! Checkpoints of tasks: how a state becomes chunks, packs and a manifest, and what is kept.
//!
//! A dump is a stream of bytes. It is cut into chunks of [`CHUNK_BYTES`]; each is named by a keyed
//! hash of its content. Chunks that the generation before has are not written again. New ones are
//! appended to packs, and a [`CheckpointManifest`] names everything that the generation consists
//! of. It is written last, so a generation exists as a whole or not at all.
//!
//! Everything is pure. What reads files, encrypts and stores is the crate `task`.

mod agent_work;
mod bag;
mod bag_agent;
mod bag_looks;
mod bag_presence;
mod bag_replay;
mod chunk;
mod command_lease;
mod compaction;
mod driver;
mod dump_interval;
mod dump_turns;
mod end_recorder;
mod expectation;
mod forecast;
mod framing;
mod generation_offers;
mod generation_rank;
mod given_up;
mod images;
mod interval;
mod lock;
mod lock_holder;
mod lock_observer;
mod manifest;
mod optimum;
mod own_record;
mod packing;
mod release_checksum;
mod replay;
mod retention;
mod runner_work;
mod supervisor;
#[cfg(test)]
mod test_draws;

pub use agent_work::{
    AgentEnd, AgentInput, AgentLoad, AgentNote, AgentOutput, AgentStatus, AgentView, AgentWork,
    TaskRunEnd,
};
pub use bag::{
    AgentOffer, BAG_TASKS_MAX, BagState, BagTask, BagTerms, KeyEvidence, Market, RunProgress,
    TaskProgress, is_task_lost, next_task, on_demand_from, runs_again,
};
pub use bag_agent::{AgentSettings, BagAgent, LAST_RECORD_WITHIN, READS_AT_ONCE};
pub use bag_looks::{BAG_ROUND, BagLooks, LEAVES_URGENT, LOOKS_PER_ROUND};
pub use bag_presence::{BagPresence, BagSight};
pub use bag_replay::{BagPolicy, BagReplay, DumpCopies, ReplayedBag, ReplayedBagRun};
pub use chunk::{CHUNK_BYTES, ChunkKey, ChunkName, content_of};
pub use command_lease::{CommandLease, CommandOrder};
pub use compaction::{PackCompaction, StateDigest};
pub use driver::{
    CriuRecord, CriuVersion, CriuVersionError, DriverRecord, MachineView, RestoreRefusal,
};
pub use dump_interval::{DumpInterval, MachineLives};
pub use dump_turns::{DumpTurn, DumpTurns, LastDump};
pub use end_recorder::{EndInput, EndRecorder, EndWork};
pub use expectation::DumpExpectation;
pub use forecast::{DumpForecast, DumpRates, NoticeChoice, StoragePrices, UnderWayChoice};
pub use framing::{EntryKind, FramingError, StateEntry, StateLayout};
pub use generation_offers::{GenerationOffers, GenerationVerdict, OfferEnd, OfferInput, OfferWork};
pub use generation_rank::GenerationRank;
pub use given_up::GivenUpGenerations;
pub use images::{
    JoinedImages, StreamedImage, dump_pack_bytes, has_dump_memory, held_pack_bytes, image_buffers,
    join_images, packs_image_now, waiting_chunks,
};
pub use interval::{DumpTimes, young_daly};
pub use lock::{LockRecord, LockView};
pub use lock_holder::{LockClaim, LockHolder, LockLook, LockProtection, LockWrite, LockWritten};
pub use lock_observer::{BackendAnswers, LockObserver, SeenLock};
pub use manifest::{
    CHUNKS_MAX, CheckpointManifest, CheckpointManifestError, CheckpointManifestFault, ChunkCodec,
    MANIFEST_BYTES_MAX, ManifestPack, PackId, StoredChunk, StoredContent,
};
pub use optimum::AgedIntervals;
pub use packing::{ChunkView, GenerationHead, PACK_BYTES, Packing, TAG_BYTES};
pub use release_checksum::{has_release_checksum, release_checksum};
pub use replay::{IntervalPolicy, Replay, ReplayedRun, ReplayedTask, hads_interval};
pub use retention::{
    FoundGeneration, ListedGenerations, RemovalPlan, removal_plan, sparse_packs, unnamed_packs,
};
pub use runner_work::{
    DumpEnd, RunnerEnd, RunnerInput, RunnerNote, RunnerNotice, RunnerOutput, RunnerView, RunnerWork,
};
pub use supervisor::{RunStart, TaskSupervisor};
