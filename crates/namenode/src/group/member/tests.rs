use std::path::Path;

use sanderling_core::catalog::{Action, Command};
use sanderling_core::replica::{Body, Envelope};
use sanderling_protocol::Nonce;
use sanderling_transport::{Credentials, KnownGeneration};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::super::links::Dialer;
use super::super::round;
use super::*;
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
    seat.served_term = seat.replica.term();
    while let Some(step) = seat.next_step().unwrap() {
        apply(&mut seat, step);
    }
    assert!(seat.is_serving());
    seat
}

/// Does what the writer does with a step; returns the message that wants an image of the catalog.
fn apply(seat: &mut GroupSeat, step: Step) -> Option<Envelope> {
    match step {
        Step::Apply(entries) => {
            for LogEntry { place, payload } in entries {
                seat.applies(place, &payload);
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
    seat.take_off(round::encode(0, [command].iter()));
    seat.propose(Instant(5));
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
        begin_round(&mut seat);
        assert!(seat.next_step().unwrap().is_none(), "nothing is put out");
        assert!(confirmed.await.is_err(), "no read is confirmed");
        assert_ne!(seat.flight(), FlightState::Agreed);
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
    assert_eq!(seat.flight(), FlightState::Agreed);
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
    seat.land();
    while let Some(step) = seat.next_step().unwrap() {
        asked.extend(apply(&mut seat, step));
    }
    let [Envelope { to, body: Body::Snapshot { place, .. }, .. }] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!((to.0, place.index), (2, seat.applied_index()));
}
