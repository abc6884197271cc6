//! Looking up: many names at once, and huge files page by page.

use sanderling_protocol::limits::{
    BLOCK_BYTES_MAX, BLOCKS_PER_GRANT_MAX, BLOCKS_PER_LAYOUT_MAX, LOOKUPS_MAX,
};
use sanderling_protocol::message::{
    Attributes, BlockLocation, Create, Grant, Lookups, Paths, Register,
};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{
    ClusterId, Instant, LeaseId, Millis, NodeId, Nonce, ObjectId, Path, Refusal, Reply, Request,
    Tier,
};

use super::{Rig, length, path};
use crate::namenode::{Namenode, NamenodeConfig, Prepared};

impl Rig {
    fn lookup_many(&mut self, paths: &[Path]) -> Lookups {
        let request = Request::LookupMany { paths: paths.iter().collect() };
        match self.call(request).unwrap() {
            Reply::Found(lookups) => lookups,
            other => panic!("{other:?}"),
        }
    }
}

/// A small tree with everything that a path may lead to, or not.
fn tree() -> (Rig, Vec<Path>) {
    let mut rig = Rig::with_nodes(3);
    for name in ["/a/one", "/a/two", "/b/one", "/a/c/deep"] {
        rig.put(name, 700);
    }
    let open = rig.create("/a/open").unwrap();
    let (object, lease) = (open.object, open.lease);
    let lengths = vec![length(open.blocks[0].block, 5)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    let hidden = Create { is_listed: false, inline: Some(vec![1, 2, 3]), ..rig.file("/b/hidden") };
    rig.call(Request::Create(hidden)).unwrap();
    let long = format!("/b/{}", "n".repeat(200));
    let value = Create { inline: Some(vec![9; 64]), ..rig.file(&long) };
    rig.call(Request::Create(value)).unwrap();
    let mut names = vec!["/", "/a", "/b/one", "/a/two", "/a/missing", "/missing/one", "/a/one/x"];
    names.extend(["/b/hidden", long.as_str(), "/a/c/deep", "/a/open", "/a/one", "/a/c", "/c"]);
    (rig, names.into_iter().map(path).collect())
}

#[test]
fn many_names_are_found_as_each_alone_is() {
    let (mut rig, mut paths) = tree();
    same_as_alone(&mut rig, &paths);
    // Neighbours have directories in common.
    paths.sort_unstable();
    for together in 1..=3 {
        paths.windows(together).for_each(|paths| same_as_alone(&mut rig, paths));
    }
}

fn same_as_alone(rig: &mut Rig, paths: &[Path]) {
    let lookups = rig.lookup_many(paths);
    let apart = lookups.apart().unwrap();
    assert_eq!(apart.len(), paths.len());
    let mut nodes: Vec<NodeId> = Vec::new();
    for (path, together) in paths.iter().zip(apart) {
        match (rig.layout(path.as_str()), together) {
            (Ok(alone), Ok(together)) => {
                let found = together.found;
                assert_eq!(found.object, alone.stat.object, "{path}");
                assert_eq!((found.kind, found.bytes), (alone.stat.kind, alone.stat.bytes));
                assert_eq!(found.is_sealed, alone.stat.is_sealed);
                assert_eq!(together.inline, alone.inline.unwrap_or_default());
                assert_eq!(together.blocks, alone.blocks);
                assert!(found.is_whole);
                nodes.extend(alone.places.iter().map(|place| place.node));
            }
            (Err(alone), Err(together)) => assert_eq!(alone, *together),
            (alone, together) => panic!("{path}: {alone:?} alone, {together:?} together"),
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    let places: Vec<NodeId> = lookups.places.iter().map(|place| place.node).collect();
    assert_eq!(places, nodes);
}

#[test]
fn names_are_found_after_moves_and_not_after_they_are_gone() {
    let (mut rig, paths) = tree();
    rig.call(Request::Rename { from: path("/a"), to: path("/moved"), replace: false }).unwrap();
    rig.call(Request::Delete { path: path("/b"), recursive: true }).unwrap();
    let lookups = rig.lookup_many(&paths);
    let found = lookups.found.iter().filter(|found| found.object != ObjectId(0)).count();
    assert_eq!((found, lookups.refusals.len()), (1, paths.len() - 1), "only the root is there");
    let moved = [path("/moved/c/deep"), path("/moved/one"), path("/moved/c")];
    assert!(rig.lookup_many(&moved).refusals.is_empty());
}

#[test]
fn what_is_no_path_has_no_object() {
    let (mut rig, _) = tree();
    // A peer may send anything; a client sends only valid paths.
    for text in ["", "a", "//a", "/a/", "/a//one", "/a/./one"] {
        let bytes = sanderling_protocol::frame::encode_body(&(text, vec![text.len() as u32]));
        let paths: Paths = sanderling_protocol::frame::decode_body(&bytes).unwrap();
        let Ok(Reply::Found(lookups)) = rig.call(Request::LookupMany { paths }) else { panic!() };
        assert!(matches!(lookups.refusals[..], [Refusal::BadPath { .. }]), "{text:?}");
        for other in ["/", "/a", "/a/one"] {
            let both = (format!("{text}{other}"), vec![text.len() as u32, other.len() as u32]);
            let bytes = sanderling_protocol::frame::encode_body(&both);
            let paths = sanderling_protocol::frame::decode_body(&bytes).unwrap();
            let Ok(Reply::Found(both)) = rig.call(Request::LookupMany { paths }) else { panic!() };
            assert_eq!(both.found[0].object, ObjectId(0), "{text:?} beside {other}");
            assert_ne!(both.found[1].object, ObjectId(0), "{other} beside {text:?}");
        }
    }
}

#[test]
fn too_many_names_are_refused() {
    let mut rig = Rig::new();
    let paths = vec![Path::root(); LOOKUPS_MAX + 1];
    let asked = rig.call(Request::LookupMany { paths: paths.iter().collect() });
    assert!(matches!(asked, Err(Refusal::TooLarge { .. })));
}

#[test]
fn image_of_a_catalog_goes_on_as_the_catalog() {
    let (mut rig, paths) = tree();
    let image = rig.namenode.catalog().image();
    // What happens meanwhile is not in it.
    rig.call(Request::Delete { path: path("/a"), recursive: true }).unwrap();
    let bytes = sanderling_protocol::frame::encode_body(&image);
    let image = sanderling_protocol::frame::decode_body(&bytes).unwrap();
    let restored = Namenode::restore(NamenodeConfig::default(), image, rig.now);
    assert_eq!(restored.catalog().fsck().problems, Vec::<String>::new());
    let before = std::mem::replace(&mut rig.namenode, restored);
    let found = rig.lookup_many(&paths);
    assert_eq!(found.refusals.len(), 4, "{:?}", found.refusals);
    assert_eq!(rig.names("/a"), ["c", "one", "open", "two"]);
    rig.namenode = before;
}

/// Applies a change without the checks of a rig, which look at everything after each.
fn change(namenode: &mut Namenode, request: Request) -> Grant {
    let Prepared::Log(command) = namenode.prepare(Instant(1), request) else { panic!() };
    match namenode.apply(&command).result {
        Ok(Reply::Grant(grant)) => grant,
        Ok(Reply::Registered(_)) => Grant {
            object: ObjectId(0),
            lease: LeaseId(0),
            lease_millis: Millis(0),
            bytes: 0,
            blocks: Vec::new(),
            places: Vec::new(),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn huge_file_is_listed_page_by_page() {
    let mut namenode = Namenode::new(NamenodeConfig::default(), ClusterId(7));
    let register = Register {
        cluster: None,
        nonce: Nonce(1),
        name: "large".to_owned(),
        address: "large:1".to_owned(),
        http_address: String::new(),
        host: String::new(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 50 }],
        notice_min: None,
        egress_bytes_per_second: None,
    };
    change(&mut namenode, Request::Register(register));
    let create = Rig::new().file("/huge");
    let Grant { object, lease, mut blocks, .. } = change(&mut namenode, Request::Create(create));
    let mut count = 0;
    while count <= BLOCKS_PER_LAYOUT_MAX {
        let ended: Vec<_> = blocks.iter().map(|granted| length(granted.block, 1)).collect();
        count += ended.len();
        let (count, avoid) = (BLOCKS_PER_GRANT_MAX as u32, Vec::new());
        let more = Request::AddBlocks { object, lease, ended, count, avoid };
        blocks = change(&mut namenode, more).blocks;
    }
    let lookup = |offset| {
        let request = Request::LookupObject { object, offset, bytes: u64::MAX };
        match namenode.read(Instant(1), &request) {
            Some(Ok(Reply::Layout(layout))) => layout,
            other => panic!("{other:?}"),
        }
    };
    let (first, page) = (lookup(0), BLOCKS_PER_LAYOUT_MAX as u64);
    assert_eq!((first.blocks.len() as u64, first.next_offset), (page, Some(page)));
    let rest = lookup(page);
    assert_eq!((rest.blocks.len() as u64, rest.next_offset), (count as u64 - page, None));
    assert_eq!(rest.blocks[0].offset, page);
    let request = Request::LookupMany { paths: [path("/huge"), path("/")].iter().collect() };
    let Some(Ok(Reply::Found(found))) = namenode.read(Instant(1), &request) else { panic!() };
    assert_eq!((found.blocks.len() as u64, found.found[0].is_whole), (page, false));
}

/// Writes a file whose blocks have these lengths, one block after the other.
fn written(rig: &mut Rig, name: &str, lengths: &[u32]) -> ObjectId {
    let Grant { object, lease, mut blocks, .. } = rig.create(name).unwrap();
    let (last, others) = lengths.split_last().unwrap();
    for bytes in others {
        let ended = vec![length(blocks[0].block, *bytes)];
        let more = Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() };
        let Reply::Grant(grant) = rig.call(more).unwrap() else { panic!() };
        blocks = grant.blocks;
    }
    let (lengths, attributes) = (vec![length(blocks[0].block, *last)], Attributes::none());
    rig.call(Request::Seal { object, lease, lengths, attributes }).unwrap();
    object
}

#[test]
fn look_up_from_an_offset_returns_what_the_whole_layout_has_from_there_on() {
    let full = BLOCK_BYTES_MAX;
    // The first ones have blocks that are passed over without a visit, the others have not.
    let files: [&[u32]; 6] = [
        &[full, full, full, 700],
        &[full, full],
        &[700],
        &[full, 5, full, 1],
        &[5, full, full],
        &[full, full - 1, 1],
    ];
    for lengths in files {
        let mut rig = Rig::with_nodes(2);
        let object = written(&mut rig, "/a", lengths);
        let whole = rig.layout("/a").unwrap();
        assert_eq!(whole.blocks.len(), lengths.len());
        let begins = whole.blocks.iter().map(|block| block.offset);
        let around = begins.flat_map(|at| [at.saturating_sub(1), at, at + 1]);
        let end = whole.stat.bytes;
        for offset in around.chain([end - 1, end, u64::MAX]) {
            let request = Request::LookupObject { object, offset, bytes: u64::MAX };
            let Reply::Layout(found) = rig.call(request).unwrap() else { panic!() };
            let ends_behind =
                |block: &&BlockLocation| block.offset + u64::from(block.length) > offset;
            let rest: Vec<&BlockLocation> = whole.blocks.iter().filter(ends_behind).collect();
            let found: Vec<&BlockLocation> = found.blocks.iter().collect();
            assert_eq!(found, rest, "{lengths:?} from {offset} on");
        }
    }
}
