//! The namenode: serves the catalog and places blocks.
//!
//! The decisions are those of [`sanderling_core::namenode`]. This crate writes them to a journal
//! before they count, serves them over TCP and HTTP, and sends orders to datanodes.

mod archive;
mod authorize;
mod backup;
mod caller;
mod checks;
mod clock;
mod console;
mod damage;
mod directory;
mod error;
#[doc(hidden)]
pub mod file_names;
mod files;
mod group;
mod http;
mod injected_bug;
mod journal;
mod long_reads;
mod metrics;
mod next_task;
mod options;
mod orders;
mod own_notices;
#[doc(hidden)]
pub mod parsers;
mod recovery;
mod requests;
mod server;
mod service;
mod snapshot;
mod state;
mod writer;
mod writer_queue;

pub use archive::{
    ArchiveDamage, ArchiveError, ArchiveOptions, RecoverError, RecoverOptions, RecoveredArchive,
    recover_from_archive,
};
pub use backup::{
    BackupDamage, BackupDescription, BackupError, JOURNAL_FREE_BYTES_MIN, RestoreError,
    RestoreOptions, RestoredBackup, check as check_backup, is_restore_unfinished, restore,
};
pub use damage::{JournalDamage, RecordDamage, SnapshotDamage};
pub use error::{ForgottenCause, NamenodeFailure, NamenodeStartError};
pub use group::join::{GroupCallLimit, JoinError, group_page, notice_member, order_group};
pub use group::log::{GroupFileDamage, LogError, MemberFilesError};
pub use group::recover::{RecoverMemberError, RecoveredMember, recover_from_member};
pub use group::round::RoundError;
pub use group::wire::{GroupPage, MemberPage};
pub use group::{GroupOrder, ServingState};
pub use journal::{AppendError, AppendRefusal, JournalFailure, RecordTooLong};
pub use options::{GroupOptions, NamenodeOptions, Sync};
pub use sanderling_core::replica::{MachineLife, MoveView, SeenLeader};
pub use server::NamenodeServer;
