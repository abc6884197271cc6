//! Deletions that are freed slice by slice: names go at once, everything else in its turn.

use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Create, CreateMode, ObjectKind};
use sanderling_protocol::{EventKind, Millis, Refusal, Reply, Request};

use super::once::{once, open};
use super::{MIB, Rig, length, path};
use crate::catalog::{Action, Catalog, Command};

impl Rig {
    /// A rig whose log frees so many entries of what is deleted in a slice.
    pub(super) fn with_slices(nodes: u32, slice: u32) -> Self {
        Self::with_rules(nodes, Catalog::RULES, slice)
    }

    fn with_rules(nodes: u32, rules: u32, slice: u32) -> Self {
        let mut rig = Self::with_nodes(nodes);
        let action = Action::Rules { rules, slice };
        rig.log_and_apply(Command { at: rig.now, action }).unwrap();
        rig
    }

    /// Frees everything that is deleted. Returns in how many slices.
    fn reap_all(&mut self) -> usize {
        let mut slices = 0;
        while let Some(at) = self.namenode.catalog().reaps_at() {
            let before = self.entries();
            assert!(self.namenode.deadline().is_some_and(|due| due <= at), "nothing wakes it");
            self.pass(Millis(1));
            let freed = before - self.entries();
            assert!((1..=self.namenode.catalog().rules().1 as usize).contains(&freed));
            slices += 1;
        }
        slices
    }

    fn entries(&self) -> usize {
        self.namenode.catalog().object_count() + self.namenode.catalog().block_count()
    }

    fn is_gone(&mut self, name: &str) {
        let found = self.stat(name);
        assert!(matches!(found, Err(Refusal::NotFound { .. })), "{found:?}");
    }
}

#[test]
fn names_go_at_once_and_the_rest_in_slices() {
    let mut rig = Rig::with_slices(2, 7);
    rig.tree();
    for number in 0..20 {
        rig.put(&format!("/a/b/block{number}"), 1000);
    }
    let (before, used) = (rig.entries(), rig.used_bytes());
    let Reply::Deleted { objects, .. } = rig.delete("/a", true).unwrap() else { panic!() };
    assert_eq!((objects, before - rig.entries()), (7, 7), "what a slice frees is counted");
    rig.is_gone("/a");
    rig.is_gone("/a/b/c/0");
    assert_eq!(rig.names("/"), ["empty"]);
    assert!(rig.used_bytes() <= used);
    // The name is free, and what is new there is not freed.
    rig.put("/a", 10);
    let slices = rig.reap_all();
    assert_eq!(slices, (before - 3 - 7_usize).div_ceil(7));
    assert_eq!(rig.names("/"), ["a", "empty"]);
    assert_eq!((rig.used_bytes(), rig.namenode.catalog().object_count()), (4096, 3));
}

#[test]
fn no_lease_holds_below_what_is_deleted() {
    let mut rig = Rig::with_slices(1, 1);
    rig.make("/d", ObjectKind::Directory, true);
    rig.put("/d/old", 10);
    let open = rig.create("/d/open").unwrap();
    let request = Create { mode: CreateMode::Replace, ..rig.file("/d/old") };
    let pending = rig.create_with(request).unwrap();
    let job = rig.job("/d/job", None).unwrap();
    rig.put("/d/job/file", 10);
    rig.delete("/d", true).unwrap();
    let (object, lease) = (open.object, open.lease);
    let gone = Refusal::ObjectGone { object };
    let lengths = vec![length(open.blocks[0].block, 5)];
    let publish = Request::Publish { object, lease, lengths: lengths.clone() };
    assert_eq!(rig.call(publish), Err(gone.clone()));
    let more = Request::AddBlocks { object, lease, ended: lengths, count: 1, avoid: vec![] };
    assert_eq!(rig.call(more), Err(gone.clone()));
    assert_eq!(rig.seal(&open, &[5]), Err(gone.clone()));
    let read = Request::LookupObject { object, offset: 0, bytes: 1 };
    assert_eq!(rig.call(read), Err(gone));
    let renewed = rig.call(Request::RenewLeases { leases: vec![(object, lease)] });
    assert_eq!(renewed, Ok(Reply::Renewed { ended: vec![object] }));
    assert_eq!(rig.call(Request::Abort { object, lease }), Ok(Reply::Done));
    // Its directory is there no longer, whether it is freed or not.
    let object = pending.object;
    assert_eq!(rig.seal(&pending, &[5]), Err(Refusal::ObjectGone { object }));
    let unknown = Err(Refusal::UnknownJob { job: job.job });
    assert_eq!(rig.call(Request::RenewJob { job: job.job }), unknown);
    assert_eq!(rig.call(Request::EndJob { job: job.job }), unknown);
    assert_eq!(rig.call(Request::Jobs), Ok(Reply::Jobs(vec![])));
    // Leases end and jobs expire meanwhile.
    assert!(rig.namenode.catalog().reaps_at().is_some());
    rig.pass(Millis(60_000));
    rig.reap_all();
    assert_eq!((rig.used_bytes(), rig.namenode.catalog().object_count()), (0, 1));
    let ended = |kind: &EventKind| matches!(kind, EventKind::JobEnded { .. });
    assert!(!rig.namenode.events_after(0, 100).iter().any(|event| ended(&event.kind)));
}

#[test]
fn snapshot_goes_on_freeing_where_the_catalog_was() {
    let mut rig = Rig::with_slices(2, 5);
    rig.tree();
    rig.put("/a/b/file", 1000);
    rig.delete("/a", true).unwrap();
    rig.pass(Millis(1));
    let image = encode_body(&rig.namenode.catalog().image());
    let read: Catalog = decode_body(&image).unwrap();
    let mut again = read.restored();
    assert_eq!(again, *rig.namenode.catalog());
    let from = rig.log.len();
    rig.reap_all();
    for command in &rig.log[from..] {
        again.apply(command, Millis(500)).result.unwrap();
    }
    assert!(again == *rig.namenode.catalog());
    assert_eq!(again.fsck().problems, Vec::<String>::new());
}

#[test]
fn everything_that_one_millisecond_deletes_shares_its_slice() {
    let mut rig = Rig::with_slices(1, 10);
    for number in 0..50 {
        let inline = Some(vec![7; 10]);
        let request = Create { inline, parents: true, ..rig.file(&format!("/{number}/file")) };
        rig.call(Request::Create(request)).unwrap();
    }
    let before = rig.entries();
    for number in 0..50 {
        // A file is counted whole although it waits.
        let deleted = rig.delete(&format!("/{number}/file"), false);
        assert_eq!(deleted, Ok(Reply::Deleted { objects: 1, freed_bytes: 10 }));
        rig.delete(&format!("/{number}"), true).unwrap();
    }
    assert_eq!(before - rig.entries(), 10);
    rig.reap_all();
    assert_eq!(rig.entries(), 1);
}

#[test]
fn file_of_many_blocks_is_freed_in_slices() {
    let mut rig = Rig::with_slices(4, 3);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let mut last = grant.blocks[0].block;
    for _ in 0..9 {
        let ended = vec![length(last, MIB)];
        let more = Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![] };
        let Ok(Reply::Grant(more)) = rig.call(more) else { panic!("not granted") };
        last = more.blocks[0].block;
    }
    let (lengths, attributes) = (vec![length(last, MIB)], Default::default());
    rig.call(Request::Seal { object, lease, lengths, attributes }).unwrap();
    let freed_bytes = 10 * u64::from(MIB);
    assert_eq!(rig.delete("/file", false), Ok(Reply::Deleted { objects: 1, freed_bytes }));
    assert_eq!(rig.used_bytes(), 7 * u64::from(MIB));
    assert_eq!(rig.reap_all(), 3);
    assert_eq!((rig.used_bytes(), rig.entries()), (0, 1));
}

#[test]
fn job_has_ended_at_once_and_is_reported_when_it_is_freed() {
    let mut rig = Rig::with_slices(2, 2);
    let job = rig.job("/job", None).unwrap();
    for number in 0..10 {
        rig.put(&format!("/job/{number}"), 100);
    }
    rig.call(Request::EndJob { job: job.job }).unwrap();
    rig.is_gone("/job");
    assert_eq!(rig.call(Request::Jobs), Ok(Reply::Jobs(vec![])));
    let count = |rig: &Rig| {
        let ended = |kind: EventKind| match kind {
            EventKind::JobEnded { freed_bytes, .. } => Some(freed_bytes),
            _ => None,
        };
        let events = rig.namenode.events_after(0, 100).into_iter();
        events.filter_map(|event| ended(event.kind)).collect::<Vec<u64>>()
    };
    assert_eq!(count(&rig), Vec::<u64>::new());
    // The same name is another job's meanwhile.
    rig.job("/job", None).unwrap();
    rig.reap_all();
    assert_eq!(count(&rig), [1000]);
    assert!(rig.stat("/job").is_ok());
}

#[test]
fn quota_of_what_is_being_freed_is_waited_for() {
    let mut rig = Rig::with_slices(2, 1);
    rig.job("/job", Some(2 * u64::from(MIB))).unwrap();
    rig.put("/job/d/a", MIB);
    rig.put("/job/d/b", MIB);
    rig.make("/job/d/last", ObjectKind::Directory, true);
    assert!(matches!(rig.create("/job/new"), Err(Refusal::QuotaPassed { .. })));
    rig.delete("/job/d", true).unwrap();
    let refused = rig.create("/job/new");
    assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
    rig.reap_all();
    rig.create("/job/new").unwrap();
}

#[test]
fn loss_of_what_is_deleted_is_nobodys() {
    let mut rig = Rig::with_slices(1, 1);
    for number in 0..5 {
        rig.put(&format!("/d/{number}"), 100);
    }
    rig.put("/kept", 100);
    rig.delete("/d", true).unwrap();
    let node = rig.namenode.catalog().node_ids(false)[0];
    let action = Action::NodeDead { node, why: "it is gone".to_owned() };
    rig.log_and_apply(Command { at: rig.now, action }).unwrap();
    let report = rig.namenode.catalog().report().clone();
    assert_eq!((report.blocks, report.bytes, report.objects), (1, 100, 1));
    let lost = |kind: EventKind| match kind {
        EventKind::BlocksLost { blocks, bytes, objects, .. } => Some((blocks, bytes, objects)),
        _ => None,
    };
    let events = rig.namenode.events_after(0, 100).into_iter();
    assert_eq!(events.filter_map(|event| lost(event.kind)).collect::<Vec<_>>(), [(1, 100, 1)]);
    rig.reap_all();
    assert_eq!(rig.stat("/kept").unwrap().lost_bytes, 100);
}

#[test]
fn expired_directories_share_a_slice() {
    let mut rig = Rig::with_slices(1, 4);
    for number in 0..10 {
        let name = format!("/{number}");
        rig.make(&name, ObjectKind::Directory, true);
        rig.make(&format!("{name}/d"), ObjectKind::Directory, true);
        let ttl = Some(Millis(1000));
        rig.call(Request::SetTtl { path: path(&name), ttl }).unwrap();
    }
    rig.pass(Millis(1000));
    assert_eq!(rig.names("/"), Vec::<String>::new());
    assert_eq!(rig.entries(), 1 + 20 - 4);
    assert_eq!(rig.reap_all(), 4);
}

#[test]
fn object_that_is_written_keeps_its_directory() {
    let mut rig = Rig::with_slices(2, 100);
    let not_empty = |rig: &mut Rig, name: &str| {
        let refused = rig.delete(name, false);
        assert!(matches!(refused, Err(Refusal::NotEmpty { .. })), "{refused:?}");
        let object = rig.stat(name).unwrap().object;
        let delete = Request::DeleteObject { path: path(name), object, recursive: false };
        let refused = rig.call(delete);
        assert!(matches!(refused, Err(Refusal::NotEmpty { .. })), "{refused:?}");
    };
    rig.make("/d", ObjectKind::Directory, true);
    let replace = |rig: &mut Rig, name: &str| {
        let request = Create { mode: CreateMode::Replace, ..rig.file(name) };
        rig.create_with(request).unwrap()
    };
    // Sealed: it is there by its name.
    let grant = replace(&mut rig, "/d/file");
    assert_eq!(rig.names("/d"), Vec::<String>::new());
    not_empty(&mut rig, "/d");
    rig.seal(&grant, &[10]).unwrap();
    not_empty(&mut rig, "/d");
    rig.delete("/d/file", false).unwrap();
    // Given up.
    let grant = replace(&mut rig, "/d/file");
    let (object, lease) = (grant.object, grant.lease);
    not_empty(&mut rig, "/d");
    rig.call(Request::Abort { object, lease }).unwrap();
    // Its lease ends.
    let first = replace(&mut rig, "/d/file");
    replace(&mut rig, "/d/file");
    rig.call(Request::Abort { object: first.object, lease: first.lease }).unwrap();
    not_empty(&mut rig, "/d");
    let image = encode_body(&rig.namenode.catalog().image());
    let read: Catalog = decode_body(&image).unwrap();
    assert_eq!(read.restored(), *rig.namenode.catalog());
    rig.pass(Millis(10_001));
    rig.delete("/d", false).unwrap();
    // A deletion with everything below includes that as well.
    rig.make("/d", ObjectKind::Directory, true);
    let grant = replace(&mut rig, "/d/file");
    rig.delete("/d", true).unwrap();
    let object = grant.object;
    assert_eq!(rig.seal(&grant, &[10]), Err(Refusal::ObjectGone { object }));
}

#[test]
fn log_without_the_rule_deletes_as_it_did() {
    let mut rig = Rig::with_nodes(2);
    rig.make("/d", ObjectKind::Directory, true);
    let request = Create { mode: CreateMode::Replace, ..rig.file("/d/file") };
    let grant = rig.create_with(request).unwrap();
    rig.delete("/d", false).unwrap();
    let object = grant.object;
    assert_eq!(rig.seal(&grant, &[10]), Err(Refusal::ObjectGone { object }));
}

#[test]
fn root_of_a_job_is_not_removed_as_a_directory_that_is_empty() {
    for (rules, is_kept) in [(10, false), (Catalog::RULES, true)] {
        let mut rig = Rig::with_rules(1, rules, 100);
        rig.job("/job", None).unwrap();
        rig.put("/job/file", 10);
        let object = rig.stat("/job").unwrap().object;
        let remove = |rig: &mut Rig, recursive: bool| {
            rig.call(Request::DeleteObject { path: path("/job"), object, recursive })
        };
        let refused = remove(&mut rig, false);
        assert!(matches!(refused, Err(Refusal::NotEmpty { .. })), "{refused:?}");
        rig.delete("/job/file", false).unwrap();
        let removed = remove(&mut rig, false);
        let is_refused = matches!(removed, Err(Refusal::WrongKind { .. }));
        assert_eq!(is_refused, is_kept, "{rules}: {removed:?}");
        if is_kept {
            remove(&mut rig, true).unwrap();
        }
        rig.is_gone("/job");
    }
    // A caller that names the directory alone means it.
    let mut rig = Rig::with_slices(1, 100);
    rig.job("/job", None).unwrap();
    rig.delete("/job", false).unwrap();
    rig.is_gone("/job");
}

/// Entries of a directory of [`full_directory`], itself among them.
const ENTRIES: usize = 11;

pub(super) fn full_directory(rig: &mut Rig, name: &str) {
    for number in 1..ENTRIES {
        let inline = Some(vec![7; 10]);
        let request = Create { inline, parents: true, ..rig.file(&format!("{name}/{number}")) };
        rig.call(Request::Create(request)).unwrap();
    }
}

/// Deletes many directories of one owner and then one of another. Returns after how many slices the
/// other's is freed, and how many subtrees are left then.
fn slices_for_another(rig: &mut Rig) -> (usize, usize) {
    let names: Vec<_> = (0..40).map(|number| format!("/jobs/a/{number}")).collect();
    names.iter().for_each(|name| full_directory(rig, name));
    full_directory(rig, "/jobs/b/d");
    let last = rig.put("/jobs/b/d/0", 10).blocks[0].block;
    names.iter().for_each(|name| drop(rig.delete(name, true).unwrap()));
    rig.delete("/jobs/b/d", true).unwrap();
    let mut slices = 0;
    while rig.namenode.catalog().block_home(last).is_some() {
        rig.pass(Millis(1));
        slices += 1;
    }
    (slices, rig.namenode.catalog().reaping_count())
}

#[test]
fn owner_of_one_deletion_does_not_wait_for_those_of_another() {
    let mut rig = Rig::with_slices(1, 32);
    let (slices, left) = slices_for_another(&mut rig);
    assert!(slices <= 3 && left >= 35, "{slices} slices, {left} subtrees are left");
    rig.reap_all();
    assert_eq!(rig.names("/jobs"), ["a", "b"]);
    assert_eq!(rig.namenode.catalog().fsck().problems, Vec::<String>::new());
}

#[test]
fn log_of_the_second_rules_frees_in_the_order_that_it_had() {
    let mut rig = Rig::with_rules(1, 2, 32);
    let (slices, left) = slices_for_another(&mut rig);
    assert!(slices >= 10 && left <= 25, "{slices} slices, {left} subtrees are left");
}

#[test]
fn rules_of_this_program_take_over_what_the_earlier_ones_queued() {
    let mut rig = Rig::with_rules(1, 2, 8);
    full_directory(&mut rig, "/d");
    let job = rig.job("/job", None).unwrap();
    rig.put("/job/file", 100);
    full_directory(&mut rig, "/job/d");
    rig.delete("/d", true).unwrap();
    rig.call(Request::EndJob { job: job.job }).unwrap();
    let action = Action::Rules { rules: Catalog::RULES, slice: 8 };
    rig.log_and_apply(Command { at: rig.now, action }).unwrap();
    assert_eq!(rig.namenode.catalog().reaping_count(), 2);
    assert_eq!(rig.namenode.catalog().fsck().problems, Vec::<String>::new());
    rig.reap_all();
    let ended = rig.namenode.events_after(0, 100).into_iter().any(|event| {
        matches!(event.kind, EventKind::JobEnded { freed_bytes, .. } if freed_bytes == 100 + 100)
    });
    assert!(ended, "with all that it had");
    assert_eq!(rig.entries(), 1);
}

#[test]
fn deletions_without_a_pause_leave_half_of_each_slice_to_those_that_wait() {
    let mut rig = Rig::with_slices(1, 8);
    full_directory(&mut rig, "/waits");
    let last = rig.put("/waits/0", 10).blocks[0].block;
    for number in 0..20 {
        full_directory(&mut rig, &format!("/greedy/{number}"));
    }
    rig.delete("/waits", true).unwrap();
    for number in 0..20 {
        // Each comes first in its slice, before the timer.
        rig.now = rig.now + Millis(1);
        rig.delete(&format!("/greedy/{number}"), true).unwrap();
        rig.pass(Millis(0));
        if rig.namenode.catalog().block_home(last).is_none() {
            return;
        }
    }
    panic!("it was not freed");
}

#[test]
fn change_without_room_waits_for_the_deletions_before_it_and_no_later_ones() {
    let mut rig = Rig::with_slices(1, 4);
    let client = open(&mut rig);
    for number in 0..64 {
        rig.put(&format!("/kept/{number}"), MIB);
    }
    let create = Request::Create(rig.file("/new"));
    let refused = rig.call(once(client, 1, create.clone()));
    assert!(matches!(refused, Err(Refusal::Full { .. })), "{refused:?}");
    let mut answers = Vec::new();
    for number in 0..100 {
        // Another deletes without a pause, and what frees no room.
        let name = format!("/others/{number}");
        full_directory(&mut rig, &name);
        rig.delete(&name, true).unwrap();
        answers.push(rig.call(once(client, 2, create.clone())));
        rig.pass(Millis(1));
    }
    let is_later =
        |answer: &Result<Reply, Refusal>| matches!(answer, Err(Refusal::RetryAfter { .. }));
    let waited = answers.iter().take_while(|answer| is_later(answer)).count();
    assert!((1..50).contains(&waited), "{waited} times");
    assert!(matches!(answers[waited], Err(Refusal::Full { .. })), "{:?}", answers[waited]);
    rig.delete("/kept/1", false).unwrap();
    let waits = rig.call(once(client, 3, create.clone()));
    assert!(is_later(&waits), "{waits:?}");
    rig.reap_all();
    rig.call(once(client, 3, create)).unwrap();
}

#[test]
fn quota_is_waited_for_behind_very_many_deletions_of_others() {
    let mut rig = Rig::with_slices(2, 1);
    rig.job("/job", Some(2 * u64::from(MIB))).unwrap();
    rig.put("/job/a", MIB);
    rig.put("/job/b", MIB);
    for number in 0..1100 {
        // Not by the rig, which checks the whole catalog after each command.
        let name = path(&format!("/others/{number}"));
        let (kind, parents, is_listed) = (ObjectKind::Directory, true, true);
        for action in [
            Action::MakeDirectory { path: name.clone(), kind, parents, is_listed },
            Action::Delete { path: name.clone(), recursive: true },
        ] {
            let command = Command { at: rig.now, action };
            rig.namenode.apply(&command).result.unwrap();
            rig.log.push(command);
        }
    }
    rig.delete("/job/a", false).unwrap();
    let refused = rig.create("/job/new");
    assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
}
