//! Looks up at the namenode how much counts of the blocks that were written here, and trims those
//! that hold more.

use std::sync::Arc;

use sanderling_core::block_table::LookUpTimes;
use sanderling_core::datanode::{BlockEndStep, BlockEnds};
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{Path, Reply, Request, Tier};
use sanderling_transport::CallError;
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use crate::membership::Membership;
use crate::store::BlockStore;

/// Blocks in memory that are trimmed before other work has its turn. To trim one takes some
/// microseconds, for the checksum of a chunk. Chosen, not measured.
const TRIMMED_AT_ONCE: usize = 256;

/// The outcome of the look-up of a page.
enum LookedUp {
    /// The blocks that hold more than counts, each with what does.
    Surplus(Vec<(HeldBlock, u32)>),
    /// The namenode is of the previous release, and does not return what counts.
    Older,
}

/// Looks up the ends of blocks until the node stops.
pub(crate) async fn look_up_ends(
    membership: Arc<Membership>,
    store: Arc<BlockStore>,
    stop: CancellationToken,
) {
    let clock = membership.clock();
    let mut ends = BlockEnds::default();
    let mut files = None;
    loop {
        match store.next_look_up(&mut ends, clock.now()) {
            BlockEndStep::LookUp(blocks) => {
                match look_up(&membership, &store, blocks.clone()).await {
                    Ok(LookedUp::Surplus(surplus)) => trim(&store, surplus, &mut files).await,
                    Ok(LookedUp::Older) => ends.found_older(clock.now()),
                    Err(error) => {
                        tracing::debug!(%error, "the ends of blocks were not looked up");
                        store.uncounted(&blocks);
                        ends.failed(clock.now());
                    }
                }
                if stop.is_cancelled() {
                    return;
                }
            }
            BlockEndStep::Wait(at) => tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(clock.moment(at)) => {}
                () = store.much_written() => {}
            },
        }
    }
}

/// Looks up one page.
async fn look_up(
    membership: &Membership,
    store: &BlockStore,
    blocks: Vec<HeldBlock>,
) -> Result<LookedUp, CallError> {
    let (namenode, clock) = (membership.namenode(), membership.clock());
    // Not joined: no block here has an end that the namenode has.
    let Some(node) = membership.identity().node else { return Ok(LookedUp::Surplus(Vec::new())) };
    let ids = blocks.iter().map(|held| held.block).collect();
    let request = Request::CountedBlocks { node, subtree: Path::root(), blocks: ids };
    let sent = clock.now();
    match namenode.look_up_ends(request).await? {
        Reply::CountedBlocks(counts) if counts.len() == blocks.len() => {
            let look_up = LookUpTimes { sent, answered: clock.now() };
            Ok(LookedUp::Surplus(store.counted(blocks, counts, look_up)))
        }
        Reply::Within(_) => Ok(LookedUp::Older),
        other => Err(namenode.bad_reply(other)),
    }
}

/// Trims blocks. Waits for no disk: those in files are trimmed beside it, and looked up again while
/// earlier ones are not done.
async fn trim(
    store: &Arc<BlockStore>,
    surplus: Vec<(HeldBlock, u32)>,
    trimming: &mut Option<JoinHandle<()>>,
) {
    let is_file = |(held, _): &(HeldBlock, u32)| held.tier == Tier::Disk;
    let (files, others): (Vec<_>, Vec<_>) = surplus.into_iter().partition(is_file);
    for page in others.chunks(TRIMMED_AT_ONCE) {
        page.iter().for_each(|(held, length)| store.trim(held, *length));
        yield_now().await;
    }
    if !files.is_empty() && trimming.as_ref().is_none_or(JoinHandle::is_finished) {
        let store = Arc::clone(store);
        let work = move || files.iter().for_each(|(held, length)| store.trim(held, *length));
        *trimming = Some(spawn_blocking(work));
    }
}
