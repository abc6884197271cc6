//! Names: exact, listed in order, moved and removed whole.

use std::collections::BTreeSet;

use sanderling_protocol::message::{Create, CreateKind, CreateMode, ObjectKind};
use sanderling_protocol::{Millis, NodeId, Refusal, Reply, Request};

use super::{Rig, path};

impl Rig {
    fn mkdir(&mut self, name: &str, kind: ObjectKind) -> Result<Reply, Refusal> {
        let path = path(name);
        self.call(Request::MakeDirectory { path, kind, parents: false, is_listed: true })
    }

    fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<Reply, Refusal> {
        self.call(Request::Rename { from: path(from), to: path(to), replace })
    }

    pub(super) fn delete(&mut self, name: &str, recursive: bool) -> Result<Reply, Refusal> {
        self.call(Request::Delete { path: path(name), recursive })
    }

    fn value(&mut self, name: &str, value: &[u8]) -> Result<Reply, Refusal> {
        let kind = CreateKind::KeyValue;
        let request = Create { kind, inline: Some(value.to_vec()), ..self.file(name) };
        self.call(Request::Create(request))
    }
}

#[test]
fn names_are_exact_and_listed_in_order() {
    let mut rig = Rig::with_nodes(1);
    for name in ["/d/b", "/d/a", "/d/ a", "/d/A", "/d/ä", "/d/a "] {
        rig.put(name, 10);
    }
    assert_eq!(rig.names("/d"), [" a", "A", "a", "a ", "b", "ä"]);
    let Reply::Entries { entries, is_more } = rig
        .call(Request::List {
            path: path("/d"),
            after: "A".to_owned(),
            limit: 2,
            with_attributes: false,
        })
        .unwrap()
    else {
        panic!("not a listing");
    };
    assert_eq!(entries.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), ["a", "a "]);
    assert!(is_more);
    assert!(matches!(rig.create("/d/a"), Err(Refusal::Exists { .. })));
    assert!(matches!(rig.create("/d"), Err(Refusal::IsADirectory { .. })));
    assert!(matches!(rig.create("/d/a/x"), Err(Refusal::NotADirectory { .. })));
    assert!(matches!(rig.stat("/d/c"), Err(Refusal::NotFound { .. })));
}

#[test]
fn numbered_names_are_listed_in_order_whatever_goes_between_them() {
    let (mut rig, mut model) = (Rig::with_nodes(1), BTreeSet::new());
    rig.mkdir("/d", ObjectKind::Directory).unwrap();
    for number in 0..900_usize {
        let name = format!("new-{number}");
        let request = Create { inline: Some(Vec::new()), ..rig.file(&format!("/d/{name}")) };
        rig.call(Request::Create(request)).unwrap();
        model.insert(name);
        // Sometimes one of the last, at the place of the next insertion, and sometimes any.
        let back = if number % 2 == 0 { number % 5 } else { number * 31 % (number + 1) };
        let gone = format!("new-{}", number - back);
        if number % 3 == 0 && model.remove(&gone) {
            rig.delete(&format!("/d/{gone}"), false).unwrap();
        }
    }
    let entries = rig.names("/d");
    assert!(entries.len() > 512, "more than two runs of a list");
    assert_eq!(entries, Vec::from_iter(model));
}

#[test]
fn missing_directories_are_made_only_when_asked() {
    let mut rig = Rig::with_nodes(1);
    let request = Create { parents: false, ..rig.file("/a/b/c") };
    assert!(matches!(rig.create_with(request), Err(Refusal::NotFound { .. })));
    assert!(matches!(rig.stat("/a"), Err(Refusal::NotFound { .. })));
    rig.put("/a/b/c", 1);
    assert_eq!(rig.stat("/a/b").unwrap().entries, 1);
}

#[test]
fn containers_hold_only_their_kind() {
    let mut rig = Rig::with_nodes(1);
    rig.mkdir("/parts", ObjectKind::Multifile).unwrap();
    rig.mkdir("/table", ObjectKind::Table).unwrap();
    rig.put("/parts/0", 10);
    rig.put("/parts/1", 20);
    rig.value("/table/key", b"value").unwrap();
    assert_eq!(rig.stat("/parts").unwrap().bytes, 30);
    assert!(matches!(rig.value("/parts/key", b""), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.value("/key", b""), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.create("/table/file"), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.create("/parts/sub/file"), Err(Refusal::WrongKind { .. })));
    let file = rig.mkdir("/x", ObjectKind::File);
    assert!(matches!(file, Err(Refusal::WrongKind { .. })));
}

#[test]
fn multifile_has_lost_what_all_its_parts_have_lost() {
    let mut rig = Rig::with_nodes(1);
    rig.mkdir("/parts", ObjectKind::Multifile).unwrap();
    rig.put("/parts/0", 10);
    rig.put("/parts/1", 20);
    rig.notice(NodeId(1), 1000).unwrap();
    rig.pass(Millis(1001));
    rig.register("another").unwrap();
    rig.put("/parts/2", 5);
    let stat = rig.stat("/parts").unwrap();
    assert_eq!((stat.bytes, stat.lost_bytes), (35, 30));
}

#[test]
fn unlisted_objects_are_found_but_not_listed() {
    let mut rig = Rig::with_nodes(1);
    let request = Create { is_listed: false, ..rig.file("/d/hidden") };
    let grant = rig.create_with(request).unwrap();
    rig.seal(&grant, &[5]).unwrap();
    assert!(rig.names("/d").is_empty());
    assert_eq!(rig.stat("/d/hidden").unwrap().bytes, 5);
    assert!(matches!(rig.delete("/d", false), Err(Refusal::NotEmpty { .. })));
    rig.delete("/d/hidden", false).unwrap();
    rig.delete("/d", false).unwrap();
}

#[test]
fn rename_moves_a_whole_directory_at_once() {
    let mut rig = Rig::with_nodes(1);
    let before = rig.put("/a/b/file", 10);
    rig.rename("/a", "/z", false).unwrap();
    let after = rig.layout("/z/b/file").unwrap();
    assert_eq!((before.stat.object, before.blocks), (after.stat.object, after.blocks));
    assert!(matches!(rig.stat("/a"), Err(Refusal::NotFound { .. })));
    assert!(matches!(rig.rename("/z", "/z/b/c", false), Err(Refusal::IntoItself { .. })));
    assert!(matches!(rig.rename("/z", "/no/where", false), Err(Refusal::NotFound { .. })));
    rig.put("/other", 1);
    assert!(matches!(rig.rename("/z/b/file", "/other", false), Err(Refusal::Exists { .. })));
    assert!(matches!(rig.rename("/z", "/other", true), Err(Refusal::Exists { .. })));
    rig.rename("/z/b/file", "/other", true).unwrap();
    assert_eq!(rig.stat("/other").unwrap().bytes, 10);
    rig.rename("/other", "/other", false).unwrap();
}

#[test]
fn rename_cannot_make_a_path_too_deep() {
    let mut rig = Rig::with_nodes(1);
    let deep = "/d".repeat(100);
    rig.put(&format!("{deep}/file"), 1);
    rig.put(&format!("/e{}/file", "/e".repeat(99)), 1);
    let refused = rig.rename("/d", &format!("/e{}/d", "/e".repeat(99)), false);
    assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
}

#[test]
fn deletion_frees_the_space_at_once() {
    let mut rig = Rig::with_nodes(3);
    for number in 0..10 {
        rig.put(&format!("/d/{number}"), 100_000);
    }
    rig.create("/d/open").unwrap();
    assert_eq!(rig.used_bytes(), 10 * 102_400 + (1 << 20));
    assert!(matches!(rig.delete("/d", false), Err(Refusal::NotEmpty { .. })));
    assert!(matches!(rig.delete("/", true), Err(Refusal::BadPath { .. })));
    let Reply::Deleted { objects, freed_bytes } = rig.delete("/d", true).unwrap() else {
        panic!("not deleted");
    };
    assert_eq!((objects, freed_bytes), (12, 1_000_000));
    assert_eq!(rig.used_bytes(), 0);
    assert_eq!(rig.namenode.catalog().block_count(), 0);
}

#[test]
fn replacement_is_seen_whole_or_not_at_all() {
    let mut rig = Rig::with_nodes(2);
    rig.put("/file", 10);
    let request = Create { mode: CreateMode::Replace, ..rig.file("/file") };
    let grant = rig.create_with(request).unwrap();
    assert_eq!(rig.stat("/file").unwrap().bytes, 10);
    rig.seal(&grant, &[20]).unwrap();
    assert_eq!(rig.stat("/file").unwrap().bytes, 20);
    assert_eq!(rig.used_bytes(), 4096);
}

#[test]
fn of_key_values_the_last_created_wins() {
    let mut rig = Rig::with_nodes(2);
    rig.mkdir("/table", ObjectKind::Table).unwrap();
    let first = Create { kind: CreateKind::KeyValue, ..rig.file("/table/key") };
    let second = Create { kind: CreateKind::KeyValue, ..rig.file("/table/key") };
    let first = rig.create_with(first).unwrap();
    let second = rig.create_with(second).unwrap();
    rig.seal(&second, &[22]).unwrap();
    rig.seal(&first, &[11]).unwrap();
    assert_eq!(rig.stat("/table/key").unwrap().bytes, 22);
    rig.value("/table/key", b"small").unwrap();
    let layout = rig.layout("/table/key").unwrap();
    assert_eq!(layout.inline.as_deref(), Some(&b"small"[..]));
    assert_eq!(rig.used_bytes(), 0);
}

#[test]
fn replacement_of_a_deleted_directory_is_gone() {
    let mut rig = Rig::with_nodes(2);
    rig.put("/d/file", 10);
    let request = Create { mode: CreateMode::Replace, ..rig.file("/d/file") };
    let grant = rig.create_with(request).unwrap();
    rig.delete("/d", true).unwrap();
    assert!(matches!(rig.seal(&grant, &[20]), Err(Refusal::ObjectGone { .. })));
    assert_eq!(rig.used_bytes(), 0);
}

#[test]
fn time_to_live_ends_an_object_and_can_be_taken_back() {
    let mut rig = Rig::with_nodes(1);
    let request = Create { ttl: Some(Millis(5000)), ..rig.file("/short") };
    let grant = rig.create_with(request).unwrap();
    rig.seal(&grant, &[10]).unwrap();
    rig.put("/d/long", 10);
    rig.call(Request::SetTtl { path: path("/d"), ttl: Some(Millis(5000)) }).unwrap();
    rig.pass(Millis(4000));
    assert_eq!(rig.stat("/short").unwrap().expires_in, Some(Millis(1000)));
    rig.call(Request::SetTtl { path: path("/d"), ttl: None }).unwrap();
    rig.pass(Millis(1500));
    assert!(matches!(rig.stat("/short"), Err(Refusal::NotFound { .. })));
    assert!(rig.stat("/d/long").is_ok());
}
