//! The namenode's configuration.

use std::path::PathBuf;
use std::time::Duration;

use sanderling_core::Mechanism;
use sanderling_core::namenode::{CHANGES_WAITING, NamenodeConfig};
use sanderling_notices::NoticeOptions;
use sanderling_protocol::ports::{NAMENODE_ADDRESS, NAMENODE_HTTP_ADDRESS};
use sanderling_transport::{MEMORY_MAX, Security};

use crate::archive::place::ArchiveOptions;

/// The point at which a change counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// Once the kernel has it; the disk follows within [`NamenodeOptions::unsynced_age_max`] and
    /// [`NamenodeOptions::unsynced_bytes_max`], or no more changes are taken. A killed namenode
    /// loses nothing, a crashed machine loses what the disk had not got.
    #[default]
    Os,
    /// Once the disk has it.
    Always,
}

/// The options of a namenode that is a member of a replicated group.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// A member of the group to join; `None` to be the only namenode until another one joins.
    pub join: Option<String>,
    /// Where other machines reach the protocol and HTTP; `None` for where it listens.
    pub advertise: Option<String>,
    /// Where other machines reach HTTP; `None` for where it listens.
    pub advertise_http: Option<String>,
    /// Voters that the group should have. Those beyond are spares.
    pub voters: usize,
    /// Spares that should be ready to take the place of a voter. Fewer are shown, and refuse
    /// nothing.
    pub spares: usize,
    /// The cloud does not take this machine back: it leads before those that it does.
    pub is_steady: bool,
}

impl Default for GroupOptions {
    fn default() -> Self {
        // Three survive the loss of one.
        Self {
            join: None,
            advertise: None,
            advertise_http: None,
            voters: 3,
            spares: 1,
            is_steady: false,
        }
    }
}

/// The options with which a namenode starts.
#[derive(Debug, Clone)]
pub struct NamenodeOptions {
    /// Where it serves the protocol: `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Where it serves HTTP; `None` for nowhere.
    pub http_listen: Option<String>,
    /// Where the journal and the snapshots are; made if it does not exist.
    pub directory: PathBuf,
    /// When a change counts as written.
    pub sync: Sync,
    /// How long after a change its sync begins under [`Sync::Os`].
    pub sync_every: Duration,
    /// Longest time that an acknowledged change may wait for the disk under [`Sync::Os`]. When the
    /// disk takes longer, changes are refused with `RetryAfter` until it has caught up.
    pub unsynced_age_max: Duration,
    /// Most bytes of acknowledged changes that may wait for the disk under [`Sync::Os`].
    pub unsynced_bytes_max: u64,
    /// The damage of the journal whose loss the operator accepts, as the refusal of the start names
    /// it: a segment's file name, a colon, and the offset.
    pub accepted_loss: Option<String>,
    /// Where snapshots and journal are copied; `None` for nowhere.
    pub archive: Option<ArchiveOptions>,
    /// The replicated group that it is in, or may get into.
    pub group: GroupOptions,
    /// Times of leases, heartbeats and verdicts.
    pub core: NamenodeConfig,
    /// Where notices of this namenode's own machine come from.
    pub notices: Vec<NoticeOptions>,
    /// Time left after a notice over HTTP that has no deadline of its own.
    pub posted_notice: Duration,
    /// How notices are met. [`Mechanism::configure`] sets the times in `core` that belong to it.
    pub mechanism: Mechanism,
    /// The clients and nodes it admits, and the credentials it shows to datanodes.
    pub security: Security,
    /// Bytes of journal after which a snapshot is taken. Reading them back takes well under a
    /// second.
    pub snapshot_after_bytes: u64,
    /// Most bytes of journal on disk, what is kept for the older of two snapshots included. It is
    /// reached only when snapshots fail; changes are refused then, so that a full disk does not
    /// meet a namenode that cannot stop writing.
    pub journal_bytes_max: u64,
    /// Most bytes of long requests that are received and of long answers that wait to be taken.
    pub memory_on_the_way_max: usize,
    /// Frames with changes that wait for the journal. More are refused with `RetryAfter`.
    pub waiting_frames_max: usize,
    /// Bytes of those frames.
    pub waiting_bytes_max: usize,
}

impl Default for NamenodeOptions {
    fn default() -> Self {
        Self {
            listen: NAMENODE_ADDRESS.to_owned(),
            http_listen: Some(NAMENODE_HTTP_ADDRESS.to_owned()),
            directory: PathBuf::from("sanderling-namenode"),
            sync: Sync::default(),
            // A machine that crashes takes its datanodes' memory along anyway.
            sync_every: Duration::from_millis(200),
            // Ten times that: a disk that is busy for a moment stops no writer.
            unsynced_age_max: Duration::from_secs(2),
            // What the slowest disks take in about that time.
            unsynced_bytes_max: 64 << 20,
            accepted_loss: None,
            archive: None,
            group: GroupOptions::default(),
            core: NamenodeConfig::default(),
            notices: Vec::new(),
            // Google's and Azure's shortest.
            posted_notice: Duration::from_secs(30),
            mechanism: Mechanism::default(),
            security: Security::default(),
            snapshot_after_bytes: 64 << 20,
            journal_bytes_max: 4 << 30,
            memory_on_the_way_max: MEMORY_MAX,
            waiting_frames_max: CHANGES_WAITING.pieces_max,
            waiting_bytes_max: CHANGES_WAITING.bytes_max as usize,
        }
    }
}
