//! Promises broken by hand: for each there is an injected bug that the judge must find.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{NodeSelector, ObjectId};

use crate::cluster::path;
use crate::faults::pause;
use crate::judge::settle;
use crate::load::timed;
use crate::model::{Promise, State, Version, Violation};
use crate::rounds::rest_and_judge;
use crate::world::World;

/// A bug of the fleet, injected by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectedBug {
    /// An acknowledged file is not there.
    ForgetsFile,
    /// An acknowledged change is not made: the file is as it was before.
    ForgetsChange,
    /// What was synced is missing after a crash.
    ForgetsSynced,
    /// One byte of a file is another.
    FlipsByte,
    /// A file is there after its deletion was acknowledged.
    KeepsDeleted,
    /// An append is made twice.
    AppendsTwice,
    /// Bytes are lost with a node to which nothing happened.
    LosesForNothing,
    /// A reader got a loss that no report has.
    HidesLoss,
    /// A call ends long after its deadline.
    HangsCall,
    /// A node drains for ever.
    DrainsForEver,
    /// A process ends.
    EndsByItself,
    /// The namenode serves whatever its journal is like.
    TakesAnyJournal,
    /// A job ends although it is renewed.
    EndsJob,
    /// A call fails without an error that a program can handle.
    HidesReason,
}

pub(crate) const ALL: [(InjectedBug, Promise); 14] = [
    (InjectedBug::HidesLoss, Promise::Kept),
    (InjectedBug::HangsCall, Promise::Deadline),
    (InjectedBug::HidesReason, Promise::Typed),
    (InjectedBug::TakesAnyJournal, Promise::Damage),
    (InjectedBug::ForgetsFile, Promise::Kept),
    (InjectedBug::ForgetsChange, Promise::RightBytes),
    (InjectedBug::ForgetsSynced, Promise::Kept),
    (InjectedBug::FlipsByte, Promise::RightBytes),
    (InjectedBug::KeepsDeleted, Promise::StaysDeleted),
    (InjectedBug::AppendsTwice, Promise::Once),
    (InjectedBug::LosesForNothing, Promise::Kept),
    (InjectedBug::DrainsForEver, Promise::Settles),
    (InjectedBug::EndsByItself, Promise::StaysUp),
    (InjectedBug::EndsJob, Promise::Lease),
];

/// Injects a bug into a fleet at rest, and returns what the judge finds.
pub(crate) async fn inject(bug: InjectedBug, world: &mut World) -> Result<(), Violation> {
    settle(world).await?;
    world.works().await?;
    let shared = Arc::clone(&world.shared);
    shared.is_pausing.store(true, Ordering::Relaxed);
    let peace = shared.gate.write().await;
    rest_and_judge(world).await?;
    let held = held(world);
    bug.happens(world, &held).await?;
    let judged = rest_and_judge(world).await;
    drop(peace);
    judged
}

/// Returns files with bytes that the model is sure of.
fn held(world: &World) -> Vec<(String, Version)> {
    let model = &world.shared.model;
    let of = |name: String| match model.may(&name)[..] {
        [State::Holds(version)] if version.least == version.most && version.least > 0 => {
            Some((name, version))
        }
        _ => None,
    };
    let held: Vec<_> = model.names("/").into_iter().filter_map(of).collect();
    assert!(!held.is_empty(), "the load has stored nothing");
    held
}

impl InjectedBug {
    /// Returns whether fleet and model are as they were after it.
    pub(crate) const fn leaves_all_whole(self) -> bool {
        matches!(
            self,
            Self::HidesLoss | Self::HangsCall | Self::HidesReason | Self::TakesAnyJournal
        )
    }

    async fn happens(self, world: &mut World, held: &[(String, Version)]) -> Result<(), Violation> {
        let shared = Arc::clone(&world.shared);
        let (admin, model) = (world.admin.clone(), &shared.model);
        let (name, version) = (&held[0].0, held[0].1);
        let at = path(name);
        match self {
            Self::ForgetsFile => {
                admin.delete(&at, false).await.expect("deleted");
            }
            Self::ForgetsChange => {
                let state = State::Holds(Version::whole(version.seed + 1, version.most));
                model.acknowledged(name, vec![state]);
            }
            Self::ForgetsSynced => forget_synced(world),
            Self::FlipsByte => {
                let mut bytes = model.content(version.seed, 0, version.most).to_vec();
                bytes[version.most / 2] ^= 1;
                let options = PutOptions::replacing();
                admin.put(&at, Bytes::from(bytes), &options).await.expect("replaced");
            }
            Self::KeepsDeleted => model.acknowledged(name, vec![State::Absent]),
            Self::AppendsTwice => {
                let mut writer = admin.append(&at).await.expect("a writer");
                let part = model.content(version.seed, 0, version.most.min(1000));
                writer.write_bytes(part).await.expect("room");
                writer.close().await.expect("closed");
            }
            Self::LosesForNothing => {
                let nodes: Vec<_> =
                    world.fleet.nodes.iter().map(|node| node.name.clone()).collect();
                nodes.iter().for_each(|name| world.fleet.kill_node(name));
                world.fleet.start_nodes();
            }
            Self::HidesLoss => {
                let range = ByteRange { offset: 0, bytes: 1 };
                model.seen_lost(name, ObjectId(u64::from(u32::MAX)), &[range]);
            }
            Self::HangsCall => hang(world).await,
            Self::DrainsForEver => {
                world.rest_max = Duration::from_secs(3);
                let selector = NodeSelector("d0".to_owned());
                admin.decommission(&selector, "an injected bug").await.expect("taken");
            }
            Self::EndsByItself => {
                let node = world.fleet.server("d1");
                node.kill();
            }
            Self::TakesAnyJournal => {
                world.fleet.kill_namenode();
                let refused = world.fleet.must_refuse();
                world.fleet.start_namenode();
                refused?;
            }
            Self::EndsJob => {
                let job = world.job.as_ref().expect("a job");
                admin.end_job(job.job()).await.expect("ended");
                while !world.job.as_ref().is_some_and(|job| job.has_ended()) {
                    pause(50).await;
                }
            }
            Self::HidesReason => {
                let what = "a test".to_owned();
                let nothing = async { Err::<(), _>(ClientError::BadReply { what }) };
                let _ = timed(&world.shared, "get", 1, nothing).await;
            }
        }
        Ok(())
    }
}

/// A crash that takes more than it may: half of what was synced.
fn forget_synced(world: &mut World) {
    world.fleet.kill_namenode();
    let journal = world.fleet.journals().pop().expect("there is a journal");
    let file = std::fs::OpenOptions::new().write(true).open(journal).expect("a journal");
    let bytes = file.metadata().expect("a file").len();
    file.set_len(bytes / 2).expect("cut");
    world.tail_cut = Some(bytes / 2);
    world.any_loss = true;
    world.fleet.start_namenode();
}

/// A call that may take no time of its own, while the namenode stands still.
async fn hang(world: &mut World) {
    let (shared, admin) = (Arc::clone(&world.shared), world.admin.clone());
    let root = path("/w0");
    world.fleet.namenode().pause();
    let call = timed(&shared, "stat", 0, admin.stat(&root));
    let stands = async {
        pause(7000).await;
        world.fleet.namenode().resume();
    };
    let _ = tokio::join!(call, stands);
}
