//! One pass after the other, with chosen outcomes; `world` has hostile ones.

mod world;

use super::*;
use crate::archive::JournalEnd;

const CLUSTER: ClusterId = ClusterId(7);
const START: Instant = Instant(1_000_000_000);

const fn of(number: u64) -> ArchiveGeneration {
    ArchiveGeneration { number, cluster: CLUSTER }
}

/// A namenode alone that serves, with the second generation of its archive.
fn serving() -> ArchivePasses {
    let mut passes = ArchivePasses::new(CLUSTER, START);
    passes.claimed(START, of(2), Millis(0));
    passes.serve(START);
    passes
}

/// A directory whose journal has one segment of so many bytes.
fn journal(bytes: u64) -> DirectoryFiles {
    let end = JournalEnd { first: 0, bytes, commands: bytes };
    DirectoryFiles { end, ..DirectoryFiles::default() }
}

/// A directory that begins with a snapshot.
fn with_snapshot(bytes: u64) -> DirectoryFiles {
    let end = JournalEnd { first: 100, bytes, commands: 100 + bytes };
    DirectoryFiles { snapshots: vec![100], end, ..DirectoryFiles::default() }
}

/// The names of all that the namenode has stored.
fn stored_names(passes: &ArchivePasses) -> BTreeSet<String> {
    let manifest = passes.newest.as_ref().map(|newest| manifest_name(newest.number));
    passes.archive.objects().map(|object| object.to_string()).chain(manifest).collect()
}

/// Does what is next until the namenode waits or ends; returns the steps. `is_ok` returns whether a
/// step succeeds. A piece whose step does not is no longer there.
fn drive(
    passes: &mut ArchivePasses,
    now: Instant,
    files: &DirectoryFiles,
    is_ok: impl Fn(&ArchiveStep) -> bool,
) -> Vec<ArchiveStep> {
    let mut done = Vec::new();
    loop {
        let step = passes.step().clone();
        if matches!(step, ArchiveStep::Wait(_) | ArchiveStep::Ended) {
            return done;
        }
        done.push(step.clone());
        let is_ok = is_ok(&step);
        match step {
            ArchiveStep::Remove(_) | ArchiveStep::RemoveOlder(_) => {
                passes.removed(now, is_ok);
            }
            ArchiveStep::StorePiece(..) => passes.piece_stored(is_ok),
            _ if !is_ok => {
                passes.failed(now);
            }
            ArchiveStep::Claim => passes.claimed(now, of(2), Millis(0)),
            ArchiveStep::Check(_) => passes.checked(now, GenerationState::Newest, true),
            ArchiveStep::ListNames(_) => {
                let names = stored_names(passes);
                assert_eq!(passes.compared(now, &names), None);
            }
            ArchiveStep::ReadDirectory => passes.looked(files),
            ArchiveStep::Upload { .. } => passes.upload_seen(UploadState::Stored),
            ArchiveStep::Describe => passes.describe(now, now.0 / 1000, GroupGeneration(0), true),
            ArchiveStep::StoreManifest { .. } => passes.manifest_stored(now),
            ArchiveStep::Wait(_) | ArchiveStep::Ended => {}
        }
    }
}

const fn always(_: &ArchiveStep) -> bool {
    true
}

/// Runs one pass in which everything succeeds.
fn pass(passes: &mut ArchivePasses, now: Instant, files: &DirectoryFiles) -> Vec<ArchiveStep> {
    passes.wake(now, ArchiveRole::Alone);
    drive(passes, now, files, always)
}

/// Goes on until a step of that kind is under way.
fn until(
    passes: &mut ArchivePasses,
    now: Instant,
    files: &DirectoryFiles,
    is_it: impl Fn(&ArchiveStep) -> bool,
) {
    for _ in 0..100 {
        if is_it(passes.step()) {
            return;
        }
        match passes.step().clone() {
            ArchiveStep::Check(_) => passes.checked(now, GenerationState::Newest, true),
            ArchiveStep::ListNames(_) => {
                let names = stored_names(passes);
                passes.compared(now, &names);
            }
            ArchiveStep::ReadDirectory => passes.looked(files),
            ArchiveStep::StorePiece(..) => passes.piece_stored(true),
            ArchiveStep::Describe => passes.describe(now, 1, GroupGeneration(0), true),
            step => panic!("{step:?} comes first"),
        }
    }
}

fn manifests(steps: &[ArchiveStep]) -> Vec<u64> {
    let number = |step: &ArchiveStep| match step {
        ArchiveStep::StoreManifest { number, .. } => Some(*number),
        _ => None,
    };
    steps.iter().filter_map(number).collect()
}

const fn is_comparison(step: &ArchiveStep) -> bool {
    matches!(step, ArchiveStep::ListNames(_))
}

const fn is_removal_of_older(step: &ArchiveStep) -> bool {
    matches!(step, ArchiveStep::RemoveOlder(_))
}

fn lag(passes: &ArchivePasses, now: Instant) -> Millis {
    passes.status().unwrap().lag(now)
}

#[test]
fn pass_checks_reads_stores_describes_and_then_removes() {
    let mut passes = serving();
    let piece = |from, to| ArchiveStep::StorePiece(0, JournalPiece { from, to });
    let first = pass(&mut passes, START, &journal(10));
    let [check, read, stored, describe, ArchiveStep::StoreManifest { number: 1, .. }, older] =
        &first[..]
    else {
        panic!("{first:?}");
    };
    assert_eq!(*check, ArchiveStep::Check(of(2)));
    assert_eq!((read, stored), (&ArchiveStep::ReadDirectory, &piece(0, 10)));
    assert_eq!((describe, older), (&ArchiveStep::Describe, &ArchiveStep::RemoveOlder(of(2))));
    assert_eq!(*passes.step(), ArchiveStep::Wait(START + Millis(500)));
    // Without a change nothing is stored.
    let second = pass(&mut passes, START + Millis(500), &journal(10));
    let nothing = [ArchiveStep::Check(of(2)), ArchiveStep::ReadDirectory, ArchiveStep::Describe];
    assert_eq!(second, nothing);
    let third = pass(&mut passes, START + Millis(1000), &journal(12));
    assert_eq!(third[2], piece(10, 12));
    let removal = ArchiveStep::Remove(SurplusObject::Manifest(1));
    assert_eq!((manifests(&third), third.last()), (vec![2], Some(&removal)));
}

#[test]
fn piece_is_not_described_before_it_is_stored() {
    let mut passes = serving();
    passes.wake(START, ArchiveRole::Alone);
    let fails = |step: &ArchiveStep| *step != ArchiveStep::ReadDirectory;
    let steps = drive(&mut passes, START, &journal(10), fails);
    assert_eq!(steps, [ArchiveStep::Check(of(2)), ArchiveStep::ReadDirectory]);
    assert_eq!(*passes.step(), ArchiveStep::Wait(START + Millis(500)));
    pass(&mut passes, START + Millis(500), &journal(10));
    passes.wake(START + Millis(1000), ArchiveRole::Alone);
    until(&mut passes, START, &journal(20), |step| matches!(step, ArchiveStep::StorePiece(..)));
    passes.failed(START + Millis(1000));
    assert!(matches!(passes.step(), ArchiveStep::Wait(_)), "the pass is over");
}

/// A recovery takes the manifest of the newest generation that has one.
#[test]
fn first_manifest_of_a_generation_waits_for_all_that_the_directory_has() {
    let mut passes = serving();
    let end = JournalEnd { first: 15, bytes: 1, commands: 16 };
    let segments = [(0, 10), (10, 5)].into_iter().collect();
    let files = DirectoryFiles { segments, end, ..DirectoryFiles::default() };
    passes.wake(START, ArchiveRole::Alone);
    // The second segment goes between the look and the read.
    let is_there = |step: &ArchiveStep| !matches!(step, ArchiveStep::StorePiece(10, _));
    let steps = drive(&mut passes, START, &files, is_there);
    assert_eq!(steps.last(), Some(&ArchiveStep::Describe), "{steps:?}");
    let later = START + Millis(500);
    assert_eq!(manifests(&pass(&mut passes, later, &files)), [1]);
    // A later one goes as far as it can.
    let end = JournalEnd { first: 30, bytes: 1, commands: 31 };
    let segments = [(0, 10), (10, 5), (15, 8), (23, 7)].into_iter().collect();
    let files = DirectoryFiles { segments, end, ..DirectoryFiles::default() };
    passes.wake(START + Millis(1000), ArchiveRole::Alone);
    let is_there = |step: &ArchiveStep| !matches!(step, ArchiveStep::StorePiece(23, _));
    let steps = drive(&mut passes, START + Millis(1000), &files, is_there);
    assert_eq!(manifests(&steps), [2]);
}

#[test]
fn what_is_stored_is_compared_with_what_is_there_once_a_minute() {
    let mut passes = serving();
    let mut compared = Vec::new();
    for second in 0..150 {
        let now = START + Millis(second * 1000);
        if pass(&mut passes, now, &journal(10 + second)).iter().any(is_comparison) {
            compared.push(second);
        }
    }
    assert_eq!(compared, [60, 120]);
    passes.close(START + Millis(151_000), EndedWriter::Last);
    let last = drive(&mut passes, START + Millis(151_000), &journal(200), always);
    assert!(last.iter().any(is_comparison), "{last:?}");
}

#[test]
fn manifest_that_is_gone_is_stored_again_under_the_next_number() {
    let mut passes = serving();
    pass(&mut passes, START, &journal(10));
    let later = START + Millis(60_000);
    passes.wake(later, ArchiveRole::Alone);
    until(&mut passes, later, &journal(10), is_comparison);
    let mut names = stored_names(&passes);
    assert!(names.remove(&manifest_name(1)));
    let loss = passes.compared(later, &names);
    assert_eq!(loss, Some(ArchiveLoss::Manifest(manifest_name(1))));
    let steps = drive(&mut passes, later, &journal(10), always);
    assert_eq!(manifests(&steps), [2], "{steps:?}");
    assert!(!steps.iter().any(|step| matches!(step, ArchiveStep::StorePiece(..))), "{steps:?}");
    assert!(manifests(&pass(&mut passes, later + Millis(500), &journal(10))).is_empty());
}

#[test]
fn everything_is_stored_again_if_a_part_or_the_mark_is_gone() {
    let mut passes = serving();
    pass(&mut passes, START, &journal(10));
    let later = START + Millis(60_000);
    passes.wake(later, ArchiveRole::Alone);
    until(&mut passes, later, &journal(10), is_comparison);
    let piece = ArchiveObject::Piece(0, JournalPiece { from: 0, to: 10 });
    let mut names = stored_names(&passes);
    assert!(names.remove(&piece.to_string()));
    assert_eq!(passes.compared(later, &names), Some(ArchiveLoss::Part(piece.to_string())));
    let steps = drive(&mut passes, later, &journal(10), always);
    assert!(steps.iter().any(|step| matches!(step, ArchiveStep::StorePiece(..))), "{steps:?}");
    // An earlier manifest may come late.
    assert_eq!(manifests(&steps), [2]);
    passes.wake(later + Millis(500), ArchiveRole::Alone);
    passes.checked(later + Millis(500), GenerationState::Emptied, true);
    let steps = drive(&mut passes, later + Millis(500), &journal(10), always);
    assert_eq!(manifests(&steps), [3]);
}

#[test]
fn what_cannot_be_removed_keeps_nothing_from_being_stored() {
    let mut passes = serving();
    passes.wake(START, ArchiveRole::Alone);
    drive(&mut passes, START, &journal(10), |step| !is_removal_of_older(step));
    let status = passes.status().unwrap();
    assert!(!status.is_failing && status.lag(START) == Millis(0), "{status:?}");
    let mut tried = Vec::new();
    for second in 1..130 {
        let now = START + Millis(second * 1000);
        passes.wake(now, ArchiveRole::Alone);
        let is_ok = |step: &ArchiveStep| {
            !matches!(step, ArchiveStep::Remove(_) | ArchiveStep::RemoveOlder(_))
        };
        let steps = drive(&mut passes, now, &journal(10 + second), is_ok);
        assert_eq!((manifests(&steps), lag(&passes, now)), (vec![second + 1], Millis(0)));
        if steps.iter().any(is_removal_of_older) {
            tried.push(second);
        }
    }
    assert_eq!(tried, [60, 120], "once a minute");
    let steps = pass(&mut passes, START + Millis(180_000), &journal(500));
    assert_eq!(steps.last(), Some(&ArchiveStep::RemoveOlder(of(2))));
    let steps = pass(&mut passes, START + Millis(300_000), &journal(501));
    assert!(!steps.iter().any(is_removal_of_older), "they are removed once");
}

#[test]
fn first_object_that_stays_is_logged() {
    let mut passes = serving();
    passes.step = ArchiveStep::Remove(SurplusObject::Manifest(1));
    assert!(passes.removed(START, false));
    passes.step = ArchiveStep::Remove(SurplusObject::Manifest(1));
    assert!(!passes.removed(START, false));
    // Those of older generations are tried once a minute, between removals that succeed.
    passes.step = ArchiveStep::RemoveOlder(of(2));
    assert!(passes.removed(START, false));
    passes.step = ArchiveStep::Remove(SurplusObject::Manifest(2));
    assert!(!passes.removed(START, true));
    passes.step = ArchiveStep::RemoveOlder(of(2));
    assert!(!passes.removed(START, false), "it is logged already");
    passes.step = ArchiveStep::Remove(SurplusObject::Manifest(3));
    assert!(passes.removed(START, false), "one was removed between");
}

#[test]
fn older_generations_stay_until_there_is_a_manifest() {
    let mut passes = serving();
    passes.wake(START, ArchiveRole::Alone);
    until(&mut passes, START, &with_snapshot(5), |step| matches!(step, ArchiveStep::Upload { .. }));
    assert_eq!(*passes.step(), ArchiveStep::Upload { index: 100, waits: false });
    passes.upload_seen(UploadState::UnderWay);
    let steps = drive(&mut passes, START, &with_snapshot(5), always);
    assert_eq!(steps, [ArchiveStep::Describe]);
    assert_eq!(passes.uploading(), Some(100));
    let steps = pass(&mut passes, START + Millis(500), &with_snapshot(5));
    assert_eq!((manifests(&steps), steps.iter().any(is_removal_of_older)), (vec![1], true));
    assert_eq!(passes.uploading(), None);
}

#[test]
fn upload_that_failed_keeps_the_journal_from_nothing_and_begins_again() {
    let mut passes = serving();
    pass(&mut passes, START, &journal(10));
    let mut files = with_snapshot(5);
    files.segments.insert(0, 12);
    let later = START + Millis(500);
    passes.wake(later, ArchiveRole::Alone);
    let is_no_upload = |step: &ArchiveStep| !matches!(step, ArchiveStep::Upload { .. });
    let steps = drive(&mut passes, later, &files, is_no_upload);
    assert_eq!((manifests(&steps), passes.uploading()), (vec![2], None));
    let status = passes.status().unwrap();
    assert!(status.is_failing && status.lag(later) == Millis(0), "{status:?}");
    let steps = pass(&mut passes, later + Millis(500), &files);
    assert!(steps.contains(&ArchiveStep::Upload { index: 100, waits: false }), "{steps:?}");
    assert!(!passes.status().unwrap().is_failing);
}

#[test]
fn namenode_alone_that_was_superseded_ends_and_a_leader_claims_again() {
    let mut alone = serving();
    alone.wake(START, ArchiveRole::Alone);
    alone.checked(START, GenerationState::Superseded, true);
    assert_eq!(*alone.step(), ArchiveStep::Ended);
    alone.close(START, EndedWriter::Last);
    assert_eq!((alone.step(), alone.closed()), (&ArchiveStep::Ended, ArchiveClose::Left));
    let mut leader = serving();
    leader.wake(START, ArchiveRole::Leads);
    leader.checked(START, GenerationState::Superseded, false);
    assert_eq!(*leader.step(), ArchiveStep::Wait(START + Millis(500)));
    leader.wake(START + Millis(500), ArchiveRole::Leads);
    assert_eq!(*leader.step(), ArchiveStep::Claim);
    leader.refused();
    assert_eq!(*leader.step(), ArchiveStep::Ended);
    leader.close(START, EndedWriter::Last);
    assert_eq!(leader.closed(), ArchiveClose::Left);
}

#[test]
fn member_stores_nothing_unless_it_leads_and_leaves_its_generation_when_it_follows() {
    let mut passes = serving();
    passes.wake(START, ArchiveRole::Leads);
    drive(&mut passes, START, &journal(10), always);
    let later = START + Millis(500);
    passes.wake(later, ArchiveRole::Waits);
    assert_eq!(*passes.step(), ArchiveStep::Wait(later + Millis(500)));
    assert_eq!((passes.generation(), passes.status().is_some()), (Some(of(2)), true));
    passes.wake(later + Millis(500), ArchiveRole::Follows);
    assert_eq!((passes.generation(), passes.status()), (None, None));
    passes.wake(later + Millis(1000), ArchiveRole::Leads);
    assert_eq!(*passes.step(), ArchiveStep::Claim);
    let now = later + Millis(3000);
    assert_eq!(lag(&passes, now), Millis(2500), "since it began to lead");
    passes.claimed(now, of(5), Millis(0));
    assert_eq!(*passes.step(), ArchiveStep::Check(of(5)));
    let steps = drive(&mut passes, now, &journal(12), always);
    assert_eq!(manifests(&steps), [1], "nothing of the generation before is part of it");
    assert_eq!(steps[2], ArchiveStep::StorePiece(0, JournalPiece { from: 0, to: 12 }));
}

#[test]
fn archive_is_behind_by_what_the_claim_found_until_a_pass_has_stored_everything() {
    let mut passes = ArchivePasses::new(CLUSTER, START);
    assert_eq!(passes.status(), None);
    passes.claimed(START, of(2), Millis(70_000));
    assert_eq!(passes.status(), None, "nothing is shown before it serves");
    let served_at = START + Millis(1000);
    passes.serve(served_at);
    assert_eq!(lag(&passes, served_at + Millis(250)), Millis(70_250));
    passes.wake(served_at, ArchiveRole::Alone);
    until(&mut passes, served_at, &journal(10), |step| {
        matches!(step, ArchiveStep::StoreManifest { .. })
    });
    assert_eq!(lag(&passes, served_at), Millis(70_000));
    let end = served_at + Millis(300);
    drive(&mut passes, end, &journal(10), always);
    assert_eq!(lag(&passes, end), Millis(300), "changes may have come since the pass began");
}

#[test]
fn first_failure_is_logged_and_a_pass_that_succeeds_ends_it() {
    let mut passes = serving();
    let mut fail = |second: u64| {
        let now = START + Millis(second * 1000);
        passes.wake(now, ArchiveRole::Alone);
        let failure = passes.failed(now);
        assert!(passes.status().unwrap().is_failing);
        failure
    };
    assert_eq!([fail(1), fail(2)], [ArchiveFailure::First, ArchiveFailure::Repeated]);
    passes.wake(START + Millis(3000), ArchiveRole::Waits);
    assert!(passes.status().unwrap().is_failing, "nothing was stored");
    pass(&mut passes, START + Millis(4000), &journal(10));
    assert!(!passes.status().unwrap().is_failing);
}

#[test]
fn last_pass_is_tried_again_until_the_archive_is_closed() {
    let mut passes = serving();
    pass(&mut passes, START, &journal(10));
    let mut now = START + Millis(700);
    passes.close(now, EndedWriter::Last);
    assert_eq!(passes.failed(now), ArchiveFailure::FirstOfClose);
    assert_eq!(*passes.step(), ArchiveStep::Wait(now + Millis(500)));
    assert_eq!(passes.closed(), ArchiveClose::UnderWay);
    now = now + Millis(500);
    passes.wake(now, ArchiveRole::Follows);
    assert_eq!(passes.failed(now), ArchiveFailure::Repeated);
    now = now + Millis(500);
    passes.wake(now, ArchiveRole::Alone);
    let steps = drive(&mut passes, now, &journal(20), always);
    assert_eq!(manifests(&steps), [2]);
    assert_eq!((passes.step(), passes.closed()), (&ArchiveStep::Ended, ArchiveClose::Closed));
    assert!(passes.newest.as_ref().unwrap().manifest.is_closed);
}

#[test]
fn last_pass_waits_for_the_snapshots_that_are_needed() {
    let mut passes = serving();
    passes.close(START, EndedWriter::Unknown);
    let steps = drive(&mut passes, START, &with_snapshot(5), always);
    assert!(steps.contains(&ArchiveStep::Upload { index: 100, waits: true }), "{steps:?}");
    assert!(!steps.iter().any(is_removal_of_older), "there is no time for it");
    assert_eq!(passes.closed(), ArchiveClose::Closed);
    // Another one is of no use at the end.
    let mut files = with_snapshot(5);
    (files.snapshots, files.end.first) = (vec![100, 105], 105);
    files.segments.insert(100, 5);
    passes.close(START, EndedWriter::Last);
    let steps = drive(&mut passes, START, &files, always);
    assert!(!steps.iter().any(|step| matches!(step, ArchiveStep::Upload { .. })), "{steps:?}");
    assert_eq!(passes.closed(), ArchiveClose::Closed);
}

#[test]
fn archive_that_has_not_everything_is_not_closed() {
    let mut passes = serving();
    passes.close(START, EndedWriter::Last);
    let is_no_piece = |step: &ArchiveStep| !matches!(step, ArchiveStep::StorePiece(..));
    drive(&mut passes, START, &journal(10), is_no_piece);
    assert_eq!(passes.closed(), ArchiveClose::Incomplete);
    // The journal has failed.
    passes.close(START, EndedWriter::Last);
    until(&mut passes, START, &journal(10), |step| *step == ArchiveStep::Describe);
    passes.describe(START, 1, GroupGeneration(0), false);
    let steps = drive(&mut passes, START, &journal(10), always);
    assert_eq!((manifests(&steps), passes.closed()), (vec![1], ArchiveClose::Unwritten));
    passes.close(START, EndedWriter::Last);
    passes.checked(START, GenerationState::Superseded, true);
    assert_eq!((passes.step(), passes.closed()), (&ArchiveStep::Ended, ArchiveClose::Superseded));
}

#[test]
fn leader_that_ends_stores_its_journal_once_and_leaves_the_archive_open() {
    let mut passes = serving();
    pass(&mut passes, START, &journal(10));
    passes.close(START, EndedWriter::Leader);
    let steps = drive(&mut passes, START, &journal(12), always);
    let ArchiveStep::StoreManifest { manifest, .. } = &steps[5] else { panic!("{steps:?}") };
    assert!(!manifest.is_closed && manifest.commands == Some(12));
    assert_eq!((passes.step(), passes.closed()), (&ArchiveStep::Ended, ArchiveClose::Left));
    passes.close(START, EndedWriter::Leader);
    assert_eq!(passes.failed(START), ArchiveFailure::Repeated);
    assert_eq!(*passes.step(), ArchiveStep::Ended, "it is not tried again");
}

#[test]
fn last_pass_of_a_member_without_a_generation_depends_on_what_it_was() {
    let ended = |ended| {
        let mut passes = ArchivePasses::new(CLUSTER, START);
        passes.close(START, ended);
        (passes.step().clone(), passes.closed())
    };
    let left = (ArchiveStep::Ended, ArchiveClose::Left);
    for other in [EndedWriter::Leader, EndedWriter::Follower, EndedWriter::Unknown] {
        assert_eq!(ended(other), left, "{other:?}");
    }
    assert_eq!(ended(EndedWriter::Last), (ArchiveStep::Claim, ArchiveClose::UnderWay));
    let mut follower = serving();
    follower.close(START, EndedWriter::Follower);
    assert_eq!((follower.step().clone(), follower.closed()), left);
}
