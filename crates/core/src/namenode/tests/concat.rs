//! One file of the blocks of others.

use sanderling_protocol::limits::CONCAT_PARTS_MAX;
use sanderling_protocol::message::{
    Attributes, Concat, Condition, Create, ObjectKind, RegisterJob,
};
use sanderling_protocol::{Millis, ObjectId, Refusal, Reply, Request};

use super::{MIB, Rig, path};

impl Rig {
    fn joining(&mut self, parts: &[&str], to: &str) -> Concat {
        Concat {
            parts: parts.iter().map(|part| path(part)).collect(),
            to: path(to),
            condition: None,
            parents: true,
            is_listed: true,
            ttl: None,
            attributes: Attributes::none(),
            writer: self.nonce(),
        }
    }

    fn concat(&mut self, parts: &[&str], to: &str) -> Result<ObjectId, Refusal> {
        let request = self.joining(parts, to);
        self.concat_with(request)
    }

    fn concat_with(&mut self, request: Concat) -> Result<ObjectId, Refusal> {
        match self.call(Request::Concat(request))? {
            Reply::Stat(stat) => Ok(stat.object),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn parts_become_one_file_whose_blocks_stay_where_they_are() {
    let mut rig = Rig::with_nodes(3);
    let mut blocks = Vec::new();
    for (name, bytes) in [("/up/2", MIB), ("/up/1", 700), ("/up/3", 30_000)] {
        let mut layout = rig.put(name, bytes);
        blocks.append(&mut layout.blocks);
    }
    let attributes: Attributes = [("etag", "x-3")].into_iter().collect();
    let request = rig.joining(&["/up/2", "/up/1", "/up/3"], "/b/whole");
    rig.concat_with(Concat { attributes: attributes.clone(), ..request }).unwrap();
    let whole = rig.layout("/b/whole").unwrap();
    assert_eq!(whole.stat.bytes, u64::from(MIB) + 700 + 30_000);
    assert!(whole.stat.is_sealed);
    assert_eq!(whole.stat.attributes, attributes);
    let places = |blocks: &[sanderling_protocol::message::BlockLocation]| {
        blocks.iter().map(|block| (block.block, block.home, block.epoch)).collect::<Vec<_>>()
    };
    assert_eq!(places(&whole.blocks), places(&blocks));
    let offsets: Vec<u64> = whole.blocks.iter().map(|block| block.offset).collect();
    assert_eq!(offsets, [0, u64::from(MIB), u64::from(MIB) + 700]);
    assert!(rig.names("/up").is_empty());
    assert!(rig.orders.is_empty(), "no datanode has anything to do: {:?}", rig.orders);
}

#[test]
fn what_cannot_be_a_part_is_refused_and_nothing_changes() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/a", 1000);
    rig.put("/b", 1000);
    let value = Create { inline: Some(b"value".to_vec()), ..rig.file("/value") };
    rig.call(Request::Create(value)).unwrap();
    let empty = Create { inline: Some(Vec::new()), ..rig.file("/empty") };
    rig.call(Request::Create(empty)).unwrap();
    rig.create("/open").unwrap();
    let (parents, is_listed) = (true, true);
    let kind = ObjectKind::Directory;
    rig.call(Request::MakeDirectory { path: path("/d"), kind, parents, is_listed }).unwrap();
    let before = rig.namenode.catalog().object_count();
    assert!(matches!(rig.concat(&[], "/to"), Err(Refusal::BadRequest { .. })));
    assert!(matches!(rig.concat(&["/a", "/value"], "/to"), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.concat(&["/a", "/open"], "/to"), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.concat(&["/a", "/a"], "/to"), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.concat(&["/a", "/d"], "/to"), Err(Refusal::IsADirectory { .. })));
    assert!(matches!(rig.concat(&["/a", "/none"], "/to"), Err(Refusal::NotFound { .. })));
    assert!(matches!(rig.concat(&["/a", "/b"], "/d"), Err(Refusal::IsADirectory { .. })));
    let conditional = Concat { condition: Some(Condition::Absent), ..rig.joining(&["/a"], "/b") };
    assert!(matches!(rig.concat_with(conditional), Err(Refusal::Exists { .. })));
    let condition = Some(Condition::Is(ObjectId(999)));
    let conditional = Concat { condition, ..rig.joining(&["/a"], "/b") };
    assert!(matches!(rig.concat_with(conditional), Err(Refusal::Changed { .. })));
    assert_eq!(rig.namenode.catalog().object_count(), before);
    // A value may come first, and one without bytes anywhere.
    rig.concat(&["/value", "/empty", "/a"], "/to").unwrap();
    assert_eq!(rig.stat("/to").unwrap().bytes, 1005);
    assert_eq!(rig.layout("/to").unwrap().inline.as_deref(), Some(b"value".as_slice()));
}

#[test]
fn concatenation_takes_as_many_parts_as_its_limit_and_no_more() {
    let mut rig = Rig::with_nodes(1);
    let names: Vec<String> = (0..=CONCAT_PARTS_MAX).map(|number| format!("/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let more = rig.concat(&names, "/to");
    assert!(matches!(more, Err(Refusal::TooLarge { value: 10_001, limit: 10_000, .. })));
    // None of them is there, which is found only of parts that are not too many.
    let most = rig.concat(&names[1..], "/to");
    assert!(matches!(most, Err(Refusal::NotFound { .. })));
}

#[test]
fn repeated_concatenation_is_answered_alike() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/a", 1000);
    rig.put("/b", 1000);
    let request = rig.joining(&["/a", "/b"], "/a");
    let made = rig.concat_with(request.clone()).unwrap();
    assert_eq!(rig.concat_with(request).unwrap(), made);
    assert_eq!(rig.stat("/a").unwrap().bytes, 2000);
    assert!(matches!(rig.concat(&["/b"], "/c"), Err(Refusal::NotFound { .. })));
    // It is written on and given up like any other file.
    let append = Request::Append { path: path("/a"), writer: rig.nonce() };
    let Reply::Grant(grant) = rig.call(append).unwrap() else { panic!("no grant") };
    rig.call(Request::Abort { object: grant.object, lease: grant.lease }).unwrap();
    assert_eq!(rig.stat("/a").unwrap().bytes, 2000);
}

#[test]
fn whole_is_deleted_after_a_read_if_its_first_part_was_to_be() {
    let mut rig = Rig::with_nodes(1);
    let request = Create { delete_after_read: true, ..rig.file("/once") };
    let grant = rig.create_with(request).unwrap();
    rig.seal(&grant, &[1000]).unwrap();
    for name in ["/a", "/b", "/c"] {
        rig.put(name, 1000);
    }
    rig.concat(&["/once", "/a"], "/read-once").unwrap();
    rig.concat(&["/b", "/c"], "/read-often").unwrap();
    assert!(rig.stat("/read-once").unwrap().delete_after_read);
    assert!(!rig.stat("/read-often").unwrap().delete_after_read);
}

#[test]
fn bytes_of_parts_stay_on_their_jobs_account_and_in_its_subtree() {
    let mut rig = Rig::with_nodes(1);
    let register = RegisterJob {
        path: path("/job"),
        lease: Millis(60_000),
        quota_bytes: Some(4 << 20),
        hints: Default::default(),
    };
    rig.call(Request::RegisterJob(register)).unwrap();
    rig.put("/job/a", 5000);
    rig.put("/job/b", 5000);
    rig.put("/outside", 5000);
    assert!(matches!(
        rig.concat(&["/job/a", "/outside"], "/job/c"),
        Err(Refusal::CrossesJob { .. })
    ));
    assert!(matches!(rig.concat(&["/job/a", "/job/b"], "/c"), Err(Refusal::CrossesJob { .. })));
    rig.concat(&["/job/a", "/job/b"], "/job/c").unwrap();
    // The rig compares the account with what is there after each step.
    rig.call(Request::Delete { path: path("/job/c"), recursive: false }).unwrap();
}

#[test]
fn parts_that_are_moving_or_lost_stay_so() {
    let mut rig = Rig::with_nodes(2);
    rig.put("/a", 1000);
    rig.put("/b", 2000);
    rig.put("/c", 3000);
    let lost = rig.layout("/b").unwrap().blocks[0].home.unwrap();
    let lost_bytes: u64 = ["/a", "/b", "/c"]
        .iter()
        .map(|name| rig.layout(name).unwrap())
        .filter(|layout| layout.blocks[0].home == Some(lost))
        .map(|layout| layout.stat.bytes)
        .sum();
    let notice =
        Request::Notice { node: lost.into(), deadline_millis: 1000, reason: "spot".to_owned() };
    rig.call(notice).unwrap();
    rig.concat(&["/a", "/b", "/c"], "/whole").unwrap();
    rig.pass(Millis(2000));
    let stat = rig.stat("/whole").unwrap();
    assert_eq!((stat.bytes, stat.lost_bytes), (6000, lost_bytes));
    let report = rig.namenode.catalog().report();
    assert_eq!(report.bytes, lost_bytes);
    // What has lost bytes is no part of anything else: the caller writes it again.
    rig.put("/d", 1000);
    assert!(matches!(
        rig.concat(&["/d", "/whole"], "/other"),
        Err(Refusal::DataUnavailable { path: at, ranges, .. })
            if at == path("/whole") && !ranges.is_empty()
    ));
}

#[test]
fn lost_ranges_of_a_file_that_begins_with_a_value_lie_behind_the_value() {
    let mut rig = Rig::with_nodes(2);
    let value = Create { inline: Some(b"value".to_vec()), ..rig.file("/value") };
    rig.call(Request::Create(value)).unwrap();
    let layout = rig.put("/bytes", 700);
    rig.concat(&["/value", "/bytes"], "/whole").unwrap();
    let node = layout.blocks[0].home.unwrap();
    rig.call(Request::Notice { node: node.into(), deadline_millis: 1000, reason: String::new() })
        .unwrap();
    rig.pass(Millis(1001));
    let report = rig.namenode.catalog().report();
    let ranges: Vec<_> = report.losses.iter().flat_map(|loss| &loss.ranges).collect();
    assert_eq!((ranges[0].offset, ranges[0].bytes, ranges.len()), (5, 700, 1));
}
