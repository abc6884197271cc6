use std::path::Path;

use sanderling_core::catalog::{Action, Command};
use sanderling_core::replica::{Body, Envelope};
use sanderling_protocol::{Millis, Nonce};
use sanderling_transport::{Credentials, KnownGeneration};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::super::links::Dialer;
use super::super::round;
use super::*;
use crate::files::Files;
use crate::files::disk::Disk;

const CLUSTER: ClusterId = ClusterId(7);

fn at(address: &str, nonce: u64) -> MemberAddress {
    let address = address.to_owned();
    MemberAddress { http_address: String::new(), address, nonce: Nonce(nonce) }
}

fn directory(disk: &Disk) -> Arc<Directory> {
    Arc::new(Directory::of(Path::new("/d"), Arc::new(disk.clone())).unwrap())
}

fn parts(disk: &Disk, sync: Sync) -> MemberParts {
    let (credentials, generation) = (Credentials::default(), KnownGeneration::default());
    let dialer = Dialer { cluster: CLUSTER, credentials, generation };
    MemberParts {
        directory: directory(disk),
        cluster: CLUSTER,
        sync,
        links: Links::new(dialer, Handle::current(), "127.0.0.1:1".to_owned()),
        work: Arc::new(WorkQueue::new(16, 1 << 20)),
        times: (Instant(1), Instant(1)),
        planner: PlannerOptions::new(3, 0),
        own_notice: None,
        generation: GroupGeneration::default(),
        machine: OwnMachine { is_steady: false, model: None },
    }
}

/// Founds a group of one, which serves.
fn founded(disk: &Disk, sync: Sync) -> GroupSeat {
    let mut seat = GroupSeat::found(parts(disk, sync), at("127.0.0.1:1", 1)).unwrap();
    while let Some(step) = seat.next_step().unwrap() {
        apply(&mut seat, step);
    }
    assert!(seat.is_serving());
    seat
}

/// Does what the writer does with a step; returns the message that needs an image of the catalog.
fn apply(seat: &mut GroupSeat, step: Step) -> Option<Envelope> {
    match step {
        Step::Apply(entries) => {
            for LogEntry { place, payload } in entries {
                drop(seat.applies(place, &payload));
            }
            seat.has_applied();
            None
        }
        Step::Send(envelope) => Some(envelope),
        _ => None,
    }
}

fn begin_round(seat: &mut GroupSeat) {
    let command = Command { at: Instant(5), action: Action::Tick };
    seat.begin_round(Instant(5), round::encode(0, [command].iter()));
    seat.propose();
}

#[tokio::test]
async fn member_whose_sync_has_failed_acknowledges_nothing_any_more() {
    for sync in [Sync::Always, Sync::Os] {
        let disk = Disk::default();
        let mut seat = founded(&disk, sync);
        begin_round(&mut seat);
        // Under `os` entries are not synced; a vote is, and any other write may fail as well.
        match sync {
            Sync::Always => disk.with(|image| image.faults.sync = Some(0)),
            Sync::Os => disk.with(|image| image.faults.write = Some(0)),
        }
        let failed = seat.next_step().unwrap_err();
        assert!(disk.with(|image| image.is_faultless()), "the disk works again");
        assert!(failed.to_string().contains("/d/rounds-"), "{failed}");
        let term = seat.replica.term();
        assert!(!seat.is_serving() && !seat.is_leader() && !seat.is_to_take_over());
        assert_eq!(seat.lease_until(), Instant(0));
        let (reply, confirmed) = oneshot::channel();
        seat.take([GroupInput::Confirm(reply)].into());
        for _ in 0..2 {
            let ended = seat.look_at_round(false);
            assert!(matches!(ended, RoundProgress::Ended { .. }), "{ended:?}");
            begin_round(&mut seat);
            assert!(seat.next_step().unwrap().is_none(), "nothing is put out");
        }
        assert!(confirmed.await.is_err(), "no read is confirmed");
        assert_eq!(seat.replica.term(), term);
        // An orderly end is none: a sync that succeeds now proves nothing.
        seat.close().unwrap();
        let kept = HardState::read(&directory(&disk)).unwrap().unwrap();
        assert!(!kept.boot.is_closed);
        assert_eq!(directory(&disk).is_group_suspect(), sync == Sync::Always);
    }
}

#[tokio::test]
async fn failed_sync_at_the_end_makes_a_member_without_syncs_a_new_one() {
    let disk = Disk::default();
    let mut seat = founded(&disk, Sync::Os);
    let (reply, _joined) = oneshot::channel();
    seat.take([GroupInput::Join(at("127.0.0.1:2", 2), reply)].into());
    while let Some(step) = seat.next_step().unwrap() {
        apply(&mut seat, step);
    }
    assert_eq!(seat.group().members().count(), 2);
    assert!(!seat.may_have_forgotten());
    disk.with(|image| image.faults.sync = Some(0));
    let failed = seat.close().unwrap_err();
    assert!(matches!(failed, LogError::Unsynced { .. }), "{failed}");
    assert!(seat.may_have_forgotten());
    let kept = HardState::read(&directory(&disk)).unwrap().unwrap();
    assert!(!kept.boot.is_closed);
    assert_eq!(kept.start_as(&directory(&disk)), StartAs::NewMember);
    assert!(kept.has_forgotten(&directory(&disk)));
}

/// The catalog lacks a round that the log has, until all of it is agreed and applied. An image of
/// it in between would be of no place of the log.
#[tokio::test]
async fn no_image_of_the_catalog_is_sent_while_it_lacks_a_round_that_the_log_has() {
    let disk = Disk::default();
    let mut seat = founded(&disk, Sync::Os);
    begin_round(&mut seat);
    let (reply, _joined) = oneshot::channel();
    seat.take([GroupInput::Join(at("127.0.0.1:2", 2), reply)].into());
    let mut asked = Vec::new();
    while let Some(step) = seat.next_step().unwrap() {
        asked.extend(apply(&mut seat, step));
    }
    assert!(seat.rounds.is_between_pieces());
    assert_eq!(seat.group().members().count(), 2, "the spare has joined behind the round");
    // The spare has nothing: it needs an image.
    let (generation, term, last) =
        (seat.generation().0, seat.replica.term(), seat.replica.ends().0);
    let hint = LogPlace::default();
    let rejected = |before| Envelope {
        cluster: CLUSTER,
        generation,
        from: MemberId(2),
        incarnation: 1,
        to: MemberId(1),
        term,
        round: 0,
        transfers_ended: 0,
        time: None,
        body: Body::AppendRejected { before, hint, committed: 0 },
    };
    // The leader takes the one that is about what it has sent last.
    let messages = (1..=last).map(|it| GroupInput::Message(rejected(it), "127.0.0.1:2".to_owned()));
    seat.take(messages.collect());
    while let Some(step) = seat.next_step().unwrap() {
        asked.extend(apply(&mut seat, step));
    }
    assert!(asked.is_empty(), "{asked:?}");
    // The writer applies the round.
    assert_eq!(seat.look_at_round(false), RoundProgress::Agreed);
    while let Some(step) = seat.next_step().unwrap() {
        asked.extend(apply(&mut seat, step));
    }
    let [Envelope { to, body: Body::Snapshot { place, .. }, .. }] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!((to.0, place.index), (2, seat.applied_index()));
}

/// A member that the group has just taken: it has nothing.
fn joined(disk: &Disk) -> GroupSeat {
    GroupSeat::joined(parts(disk, Sync::Always), MemberId(4)).unwrap()
}

/// A snapshot of so many commands that a leader has sent, and its file with these bytes.
fn arrived(
    disk: &Disk,
    (from, term): (u64, u64),
    index: u64,
    commands: u64,
    bytes: &[u8],
) -> GroupInput {
    let address = |id: u64| at(&format!("127.0.0.1:{id}"), id);
    let group = Group::of_voters(1, (1..=4).map(address).collect());
    let envelope = Envelope {
        cluster: CLUSTER,
        generation: 0,
        from: MemberId(from),
        incarnation: 1,
        to: MemberId(4),
        term,
        round: 1,
        transfers_ended: 0,
        time: None,
        body: Body::Snapshot { place: LogPlace { term, index }, group },
    };
    let mut catalog = Catalog::new(CLUSTER, Millis(1000));
    for _ in 0..commands {
        catalog.apply(&Command { at: Instant(5), action: Action::Tick }, Millis(1000));
    }
    let path = Path::new("/d").join(format!("group-snapshot-{term}.tmp"));
    disk.create(&path).unwrap().write_at(bytes, 0).unwrap();
    GroupInput::Snapshot(envelope, Box::new(catalog), SnapshotFile::at(path))
}

/// Does what the member puts out; returns the commands of the catalogs that the writer gets.
fn restored(seat: &mut GroupSeat) -> Vec<u64> {
    let mut restored = Vec::new();
    while let Some(step) = seat.next_step().unwrap() {
        if let Step::Restore(catalog) = &step {
            restored.push(catalog.index());
        }
        apply(seat, step);
    }
    restored
}

/// Returns what the snapshot of so many commands has, if it is in the directory.
fn published(disk: &Disk, seat: &GroupSeat, commands: u64) -> Option<Vec<u8>> {
    let path = seat.directory.file(FileKind::Snapshot, commands);
    disk.with(|image| {
        let is_there = image.list().iter().any(|(name, _)| *name == path);
        is_there.then(|| image.contents(&path))
    })
}

/// The snapshot of the leader before arrives behind the next leader's.
#[tokio::test]
async fn snapshot_that_is_ignored_does_not_take_the_place_of_the_one_that_is_taken() {
    let disk = Disk::default();
    let mut seat = joined(&disk);
    let next = arrived(&disk, (2, 6), 120, 3, b"next");
    let earlier = arrived(&disk, (1, 5), 100, 1, b"earlier");
    seat.take([next, earlier].into());
    assert_eq!(seat.arrived.len(), 1);
    assert_eq!(restored(&mut seat), [3]);
    assert_eq!(seat.applied_index(), 120);
    assert_eq!(published(&disk, &seat, 3).as_deref(), Some(&b"next"[..]));
    assert_eq!(published(&disk, &seat, 1), None);
    assert!(seat.arrived.is_empty() && !seat.has_failed());
}

#[tokio::test]
async fn two_snapshots_that_arrive_at_once_are_taken_one_after_the_other() {
    let disk = Disk::default();
    let mut seat = joined(&disk);
    let earlier = arrived(&disk, (1, 5), 100, 1, b"earlier");
    let next = arrived(&disk, (2, 6), 120, 3, b"next");
    seat.take([earlier, next].into());
    assert_eq!(restored(&mut seat), [1, 3]);
    assert_eq!(seat.applied_index(), 120);
    assert_eq!(published(&disk, &seat, 1).as_deref(), Some(&b"earlier"[..]));
    assert_eq!(published(&disk, &seat, 3).as_deref(), Some(&b"next"[..]));
    assert!(seat.arrived.is_empty() && !seat.has_failed());
}

#[tokio::test]
async fn file_of_a_snapshot_that_is_not_taken_is_removed_at_once() {
    let disk = Disk::default();
    let mut seat = joined(&disk);
    seat.take([arrived(&disk, (2, 6), 120, 3, b"next")].into());
    assert_eq!(restored(&mut seat), [3]);
    let place = tempfile::tempdir().unwrap();
    // Late, repeated, of an earlier leader, and of another generation.
    for (number, term, index) in [(1, 6, 110), (2, 6, 120), (3, 5, 130), (4, 6, 140)] {
        let path = place.path().join(number.to_string());
        std::fs::write(&path, b"bytes").unwrap();
        let from = if term == 6 { 2 } else { 1 };
        let GroupInput::Snapshot(mut envelope, catalog, _) =
            arrived(&disk, (from, term), index, 9, b"bytes")
        else {
            unreachable!("it is a snapshot");
        };
        envelope.generation = u64::from(number == 4);
        let file = SnapshotFile::at(path.clone());
        seat.take([GroupInput::Snapshot(envelope, catalog, file)].into());
        assert!(seat.arrived.is_empty() && !path.exists(), "{number}");
        assert_eq!(restored(&mut seat), Vec::<u64>::new(), "{number}");
    }
}

/// Its receiver could not restore it, and would end.
#[tokio::test]
async fn message_of_a_snapshot_without_its_catalog_changes_nothing() {
    let disk = Disk::default();
    let mut seat = joined(&disk);
    let GroupInput::Snapshot(envelope, ..) = arrived(&disk, (2, 6), 120, 3, b"next") else {
        unreachable!("it is a snapshot");
    };
    seat.take([GroupInput::Message(envelope, "127.0.0.1:2".to_owned())].into());
    assert_eq!(restored(&mut seat), Vec::<u64>::new());
    assert!(!seat.has_failed() && seat.applied_index() == 0);
}
