//! Reads in slices: the same answers as at once, and no slice that visits more than it may.

use sanderling_protocol::message::{
    Attributes, BlockCount, Create, CreateKind, CreateMode, Entry, ObjectKind, Usage,
};
use sanderling_protocol::{BlockId, NodeId, Refusal, Reply, Request};

use super::{Rig, path};
use crate::namenode::FrameRead;

impl Rig {
    /// Makes a tree with directories, files and a table, some of them unlisted.
    pub(super) fn tree(&mut self) {
        for directory in ["/a", "/a/b", "/a/b/c", "/empty"] {
            self.make(directory, ObjectKind::Directory, true);
        }
        self.make("/a/table", ObjectKind::Table, true);
        self.make("/a/hidden", ObjectKind::Directory, false);
        for number in 0..40 {
            for directory in ["/a", "/a/b/c", "/a/hidden"] {
                self.keep(&format!("{directory}/{number}"), CreateKind::File, number % 3 != 0);
            }
            self.keep(&format!("/a/table/{number}"), CreateKind::KeyValue, true);
        }
    }

    pub(super) fn make(&mut self, name: &str, kind: ObjectKind, is_listed: bool) {
        let path = path(name);
        self.call(Request::MakeDirectory { path, kind, parents: false, is_listed }).unwrap();
    }

    fn keep(&mut self, name: &str, kind: CreateKind, is_listed: bool) {
        let inline = Some(vec![7; 10]);
        let request = Create { kind, inline, is_listed, ..self.file(name) };
        self.call(Request::Create(request)).unwrap();
    }

    fn in_slices(&self, requests: Vec<Request>, entries: usize) -> (usize, Vec<Reply>) {
        let mut reading = FrameRead::new(requests, None);
        let mut slices = 1;
        while !reading.slice(self.now, &self.namenode, entries) {
            slices += 1;
        }
        (slices, reading.finish().1.into_iter().map(Result::unwrap).collect())
    }
}

fn list(name: &str) -> Request {
    let (path, after, limit) = (path(name), String::new(), 1000);
    Request::List { path, after, limit, with_attributes: true }
}

#[test]
fn answers_are_the_same_in_slices_of_any_size() {
    let mut rig = Rig::with_nodes(1);
    rig.tree();
    let mut requests: Vec<Request> = ["/", "/a", "/a/b", "/a/table", "/empty", "/a/7"]
        .map(|it| Request::Usage { path: path(it) })
        .into();
    requests.extend(["/", "/a", "/a/hidden", "/empty"].map(list));
    requests.push(Request::Stat { path: path("/a/table") });
    requests.push(Request::Nodes { all: true });
    let whole: Vec<Reply> = requests
        .iter()
        .map(|request| rig.namenode.read(rig.now, request).unwrap().unwrap())
        .collect();
    let Reply::Usage(usage) = &whole[0] else { panic!("{whole:?}") };
    let sum = Usage { files: 160, directories: 7, bytes: 1600, lost_bytes: 0 };
    assert_eq!(*usage, sum);
    let mut last = usize::MAX;
    for entries in [1, 2, 7, 39, 40, 41] {
        let (slices, answers) = rig.in_slices(requests.clone(), entries);
        assert_eq!(answers, whole, "in slices of {entries}");
        assert!(slices <= last, "larger slices are fewer");
        last = slices;
    }
    assert!(last > 1, "more is visited than one slice may");
    let (slices, _) = rig.in_slices(vec![Request::Usage { path: path("/") }], 1);
    assert!(slices >= 166, "a slice of one entry visits one: {slices}");
}

#[test]
fn walk_survives_what_changes_between_its_slices() {
    let mut rig = Rig::with_nodes(1);
    rig.tree();
    let (usage, page) = (Request::Usage { path: path("/") }, list("/a"));
    let mut reading = FrameRead::new(vec![usage, page], None);
    let mut number = 100;
    while !reading.slice(rig.now, &rig.namenode, 8) {
        rig.keep(&format!("/a/{number}"), CreateKind::File, true);
        let victim = path(&format!("/a/b/c/{}", number - 100));
        let delete = Request::Delete { path: victim, recursive: false };
        let _ = rig.call(delete);
        if number == 104 {
            rig.call(Request::Delete { path: path("/a/hidden"), recursive: true }).unwrap();
        }
        number += 1;
    }
    let (_, answers) = reading.finish();
    let Ok(Reply::Usage(usage)) = &answers[0] else { panic!("{answers:?}") };
    // What was there all the time: /a with 40 files, its table's 40 parts.
    assert!(usage.files >= 80, "{usage:?}");
    let Ok(Reply::Entries { entries, is_more: false }) = &answers[1] else { panic!("{answers:?}") };
    let names: Vec<&str> = entries.iter().map(|Entry { name, .. }| name.as_str()).collect();
    assert!(names.is_sorted(), "{names:?}");
    for number in 0..40 {
        let is_listed = number % 3 != 0;
        assert_eq!(names.contains(&number.to_string().as_str()), is_listed, "{number}");
    }
}

#[test]
fn only_reads_are_read() {
    let mut rig = Rig::with_nodes(1);
    rig.tree();
    let delete = Request::Delete { path: path("/a/1"), recursive: false };
    assert!(!rig.namenode.is_read(&delete));
    assert!(rig.namenode.read(rig.now, &delete).is_none());
    let mut reading = FrameRead::new(vec![delete], None);
    assert!(reading.slice(rig.now, &rig.namenode, 1));
    assert!(reading.finish().1[0].is_err());
    assert!(rig.stat("/a/1").is_ok());
    for name in ["/a/1", "/a", "/a/table"] {
        assert!(!rig.namenode.is_long(&Request::Stat { path: path(name) }), "{name}");
    }
    assert!(rig.namenode.is_long(&list("/a")));
}

#[test]
fn stat_of_a_table_visits_no_part_and_returns_their_sums() {
    let mut rig = Rig::with_nodes(1);
    rig.tree();
    let bytes = |rig: &mut Rig| rig.stat("/a/table").unwrap().bytes;
    assert_eq!(bytes(&mut rig), 400);
    rig.call(Request::Delete { path: path("/a/table/7"), recursive: false }).unwrap();
    assert_eq!(bytes(&mut rig), 390);
    let (from, to) = (path("/a/table"), path("/a/b/table"));
    rig.call(Request::Rename { from, to, replace: false }).unwrap();
    assert_eq!(rig.stat("/a/b/table").unwrap().bytes, 390);
    let again = Request::MakeDirectory {
        path: path("/a/b/table"),
        kind: ObjectKind::Table,
        parents: true,
        is_listed: true,
    };
    assert!(matches!(rig.call(again), Ok(Reply::Stat(stat)) if stat.bytes == 390));
    assert_eq!(rig.namenode.catalog().image().restored().fsck().problems, Vec::<String>::new());
}

#[test]
fn page_of_a_listing_ends_before_its_attributes_are_too_much_to_decode() {
    let mut rig = Rig::with_nodes(1);
    rig.tree();
    let letters = || (0..64_u8).map(|at| char::from(b'0' + at));
    let names = letters().flat_map(|first| letters().map(move |last| format!("{first}{last}")));
    let attributes: Attributes = names.map(|name| (name, "")).collect();
    for number in 0..20 {
        let (path, attributes) = (path(&format!("/a/table/{number}")), attributes.clone());
        rig.call(Request::SetAttributes { path, expected: None, attributes }).unwrap();
    }
    let page = rig.call(list("/a/table")).unwrap();
    let Reply::Entries { entries, is_more: true } = &page else { panic!("{page:?}") };
    assert_eq!(entries.len(), 6, "of 400 KiB each");
    let body = sanderling_protocol::frame::encode_body(&vec![Ok::<_, Refusal>(page)]);
    type Answers = Vec<Result<Reply, Refusal>>;
    assert!(sanderling_protocol::frame::decode_body::<Answers>(&body).is_ok());
}

#[test]
fn stat_of_a_file_visits_none_of_its_blocks_and_counts_those_with_bytes() {
    const BLOCKS: usize = 100;
    let mut rig = Rig::with_nodes(4);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let mut blocks = vec![grant.blocks[0].block];
    for _ in 1..BLOCKS {
        let (count, avoid) = (1, vec![]);
        let more = Request::AddBlocks { object, lease, ended: vec![], count, avoid };
        let Ok(Reply::Grant(more)) = rig.call(more) else { panic!("not granted") };
        blocks.push(more.blocks[0].block);
    }
    let by_path = Request::Lookup { path: path("/file"), offset: 0, bytes: u64::MAX };
    let by_number = Request::LookupObject { object, offset: 0, bytes: u64::MAX };
    let are_long = |rig: &Rig| [&by_path, &by_number].map(|it| rig.namenode.is_long(it));
    assert_eq!(are_long(&rig), [true, true]);
    let blocks_of = |rig: &mut Rig| rig.stat("/file").unwrap().blocks as usize;
    assert_eq!(blocks_of(&mut rig), 0, "none has bytes");
    let bytes = |place: usize| if place.is_multiple_of(2) { 10 } else { 0 };
    let lengths = blocks.iter().enumerate();
    let lengths = lengths.map(|(place, block)| super::length(*block, bytes(place))).collect();
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    assert_eq!(blocks_of(&mut rig), BLOCKS / 2);
    let again = rig.namenode.catalog().image().restored();
    assert_eq!(again, *rig.namenode.catalog());
    assert_eq!(again.fsck().problems, Vec::<String>::new());
    let (lengths, attributes) = (vec![], Attributes::none());
    rig.call(Request::Seal { object, lease, lengths, attributes }).unwrap();
    assert_eq!(blocks_of(&mut rig), BLOCKS / 2, "what has no bytes is given back");
    let stat = Request::Stat { path: path("/file") };
    assert!(!rig.namenode.is_long(&stat));
    let (slices, _) = rig.in_slices(vec![stat; 8], 8);
    assert_eq!(slices, 1, "each visits one entry");
    assert_eq!(are_long(&rig), [false, false], "half of the blocks are left");
    let (slices, _) = rig.in_slices(vec![by_path; 8], 8);
    assert_eq!(slices, 8);
}

#[test]
fn owners_of_blocks_are_found_in_slices_that_count_what_is_above_each_block() {
    const DEEP: usize = 20;
    let mut rig = Rig::with_nodes(1);
    let above: String = (0..60).map(|at| format!("/d{at}")).collect();
    let mut blocks = Vec::new();
    for (name, is_within) in [("/a/x/f", true), ("/a/x/y/f", true), ("/a/x2/f", false)] {
        blocks.push((put_below(&mut rig, name), is_within));
    }
    for number in 0..DEEP {
        // Each in a directory of its own.
        blocks.push((put_below(&mut rig, &format!("{above}/{number}/f")), false));
    }
    blocks.push((put_below(&mut rig, "/a/x/gone/f"), false));
    rig.call(Request::Delete { path: path("/a/x/gone"), recursive: true }).unwrap();
    blocks.push((BlockId(1 << 40), false));
    let ids: Vec<BlockId> = blocks.iter().map(|(block, _)| *block).collect();
    let request = Request::Within { subtree: path("/a/x"), blocks: ids.clone() };
    assert!(rig.namenode.is_long(&request), "it is never answered among changes");
    let expected = Reply::Within(blocks.iter().map(|(_, is_within)| *is_within).collect());
    assert_eq!(rig.namenode.read(rig.now, &request), Some(Ok(expected.clone())));
    let slices = [1, 7, FrameRead::SLICE_ENTRIES, usize::MAX].map(|entries| {
        let (slices, answers) = rig.in_slices(vec![request.clone()], entries);
        assert_eq!(answers, std::slice::from_ref(&expected), "in slices of {entries}");
        slices
    });
    assert!(slices[0] >= ids.len() && slices[1] >= DEEP, "{slices:?}");
    assert!(slices[2] >= DEEP * 60 / FrameRead::SLICE_ENTRIES, "{slices:?}");
    assert_eq!(slices[3], 1);
    let (node, subtree) = (NodeId(1), path("/a/x"));
    let counted = Request::CountedBlocks { node, subtree, blocks: ids };
    assert!(rig.namenode.is_long(&counted));
    let count = |is_within| match is_within {
        true => BlockCount::Ended { length: 1000 },
        false => BlockCount::Foreign,
    };
    let counts = Reply::CountedBlocks(blocks.iter().map(|(_, it)| count(*it)).collect());
    assert_eq!(rig.namenode.read(rig.now, &counted), Some(Ok(counts.clone())));
    for (entries, at_once) in [(7, slices[1]), (usize::MAX, 1)] {
        assert_eq!(rig.in_slices(vec![counted.clone()], entries), (at_once, vec![counts.clone()]));
    }
    // Neighbours are counted once.
    let near: Vec<BlockId> =
        (0..DEEP).map(|at| put_below(&mut rig, &format!("{above}/0/{at}"))).collect();
    let near = Request::Within { subtree: path("/a/x"), blocks: near };
    assert_eq!(rig.in_slices(vec![near], FrameRead::SLICE_ENTRIES).0, 1);
}

#[test]
fn owner_of_a_block_is_found_by_the_name_that_it_will_have_and_everything_is_below_the_root() {
    let mut rig = Rig::with_nodes(1);
    let old = put_below(&mut rig, "/a/file");
    let replacing = Create { mode: CreateMode::Replace, ..rig.file("/a/file") };
    let new = rig.create_with(replacing).unwrap().blocks[0].block;
    let within = |subtree: &str| {
        let request = Request::Within { subtree: path(subtree), blocks: vec![old, new] };
        rig.namenode.read(rig.now, &request).unwrap().unwrap()
    };
    for (subtree, is_within) in
        [("/", true), ("/a", true), ("/a/file", true), ("/a/fil", false), ("/b/file", false)]
    {
        assert_eq!(within(subtree), Reply::Within(vec![is_within; 2]), "{subtree}");
    }
}

/// Makes a file with one block, and the directories above it; returns the block.
fn put_below(rig: &mut Rig, name: &str) -> BlockId {
    rig.put(name, 1000).blocks[0].block
}
