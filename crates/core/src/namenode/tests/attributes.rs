//! What is kept beside bytes, and names that change hands only from what was expected there.

use sanderling_protocol::message::{
    Attributes, Condition, Create, CreateKind, CreateMode, Entry, JobHints, ObjectKind,
    RECOMPUTE_MILLIS, RegisterJob,
};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::{BlockId, Millis, ObjectId, Refusal, Reply, Request};

use super::{MIB, Rig, path};

fn of(all: &[(&str, &str)]) -> Attributes {
    all.iter().copied().collect()
}

impl Rig {
    fn replacing(&mut self, name: &str, condition: Option<Condition>) -> Create {
        Create { mode: CreateMode::Replace, condition, ..self.file(name) }
    }

    fn put_value(&mut self, request: Create) -> Result<ObjectId, Refusal> {
        let request = Create { inline: Some(b"value".to_vec()), ..request };
        match self.call(Request::Create(request))? {
            Reply::Stat(stat) => Ok(stat.object),
            other => panic!("{other:?}"),
        }
    }

    fn set_attributes(
        &mut self,
        name: &str,
        expected: Option<ObjectId>,
        attributes: Attributes,
    ) -> Result<Reply, Refusal> {
        self.call(Request::SetAttributes { path: path(name), expected, attributes })
    }

    fn listed(&mut self, name: &str, with_attributes: bool) -> Vec<Entry> {
        let (path, after) = (path(name), String::new());
        match self.call(Request::List { path, after, limit: 10, with_attributes }).unwrap() {
            Reply::Entries { entries, .. } => entries,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn attributes_are_kept_with_the_object_and_go_with_it() {
    let mut rig = Rig::with_nodes(1);
    let first = of(&[("a", "1"), ("b", "1")]);
    let create = Create { attributes: first.clone(), ..rig.file("/d/f") };
    let grant = rig.create_with(create).unwrap();
    assert_eq!(rig.stat("/d/f").unwrap().attributes, first);
    let lengths = vec![super::length(grant.blocks[0].block, 10)];
    let (object, lease) = (grant.object, grant.lease);
    let attributes = of(&[("b", "2"), ("c", "2")]);
    rig.call(Request::Seal { object, lease, lengths, attributes }).unwrap();
    let both = of(&[("a", "1"), ("b", "2"), ("c", "2")]);
    assert_eq!(rig.stat("/d/f").unwrap().attributes, both);
    rig.call(Request::Rename { from: path("/d/f"), to: path("/d/g"), replace: false }).unwrap();
    assert_eq!(rig.listed("/d", true)[0].attributes, both);
    assert_eq!(rig.listed("/d", false)[0].attributes, Attributes::none());
    rig.set_attributes("/d/g", Some(object), of(&[("z", "")])).unwrap();
    assert_eq!(rig.stat("/d/g").unwrap().attributes, of(&[("z", "")]));
    // Another object under the same name has its own.
    let request = rig.replacing("/d/g", None);
    rig.put_value(request).unwrap();
    assert_eq!(rig.stat("/d/g").unwrap().attributes, Attributes::none());
    assert!(matches!(
        rig.set_attributes("/d/g", Some(object), Attributes::none()),
        Err(Refusal::Changed { expected, .. }) if expected == object
    ));
    assert!(matches!(
        rig.set_attributes("/d", None, Attributes::none()),
        Err(Refusal::IsADirectory { .. })
    ));
}

#[test]
fn attributes_beyond_their_limit_are_refused_and_change_nothing() {
    let mut rig = Rig::with_nodes(1);
    let long = "x".repeat(5000);
    let attributes = of(&[("a", &long)]);
    let create = Create { attributes: attributes.clone(), ..rig.file("/f") };
    let grant = rig.create_with(create).unwrap();
    let lengths = vec![super::length(grant.blocks[0].block, 10)];
    let (object, lease) = (grant.object, grant.lease);
    let seal = |name: &str| {
        let (lengths, attributes) = (lengths.clone(), of(&[(name, &long)]));
        Request::Seal { object, lease, lengths, attributes }
    };
    // Each is small enough, both together are not.
    assert!(matches!(rig.call(seal("b")), Err(Refusal::TooLarge { .. })));
    assert!(!rig.stat("/f").unwrap().is_sealed);
    rig.call(seal("a")).unwrap();
    assert_eq!(rig.stat("/f").unwrap().attributes, attributes);
    let nameless = of(&[("", "x")]);
    assert!(matches!(rig.set_attributes("/f", None, nameless), Err(Refusal::BadRequest { .. })));
}

#[test]
fn cost_of_an_object_counts_instead_of_its_jobs() {
    let mut rig = Rig::with_nodes(1);
    let hints = JobHints { recompute_millis_per_mib: Some(7), ..JobHints::default() };
    let (path, lease) = (path("/job"), Millis::from_secs(60));
    let register = RegisterJob { path, lease, quota_bytes: None, hints };
    rig.call(Request::RegisterJob(register)).unwrap();
    rig.put("/job/cheap", MIB);
    let create = rig.file("/job/dear");
    let grant = rig.create_with(create).unwrap();
    let lengths = vec![super::length(grant.blocks[0].block, MIB / 2)];
    let (object, lease) = (grant.object, grant.lease);
    let attributes = of(&[(RECOMPUTE_MILLIS, "500")]);
    rig.call(Request::Seal { object, lease, lengths, attributes }).unwrap();
    let (node, after, limit) = (NodeSelector(grant.blocks[0].node.to_string()), BlockId(0), 10);
    match rig.call(Request::NodeBlocks { node, after, limit }).unwrap() {
        Reply::Candidates { candidates, .. } => {
            let costs: Vec<u64> = candidates.iter().map(|it| it.recompute_millis_per_mib).collect();
            assert_eq!(costs, [7, 1000]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn name_that_must_be_free_is_taken_by_the_first_seal() {
    let mut rig = Rig::with_nodes(1);
    let absent = Some(Condition::Absent);
    let (one, two) = (rig.replacing("/f", absent), rig.replacing("/f", absent));
    let (one, two) = (rig.create_with(one).unwrap(), rig.create_with(two).unwrap());
    assert!(matches!(rig.stat("/f"), Err(Refusal::NotFound { .. })));
    rig.seal(&two, &[20]).unwrap();
    assert!(matches!(rig.seal(&one, &[10]), Err(Refusal::Exists { path: at }) if at == path("/f")));
    assert_eq!(rig.stat("/f").unwrap().bytes, 20);
    // Nothing of the loser stays.
    assert_eq!(rig.namenode.catalog().block_count(), 1);
    let third = rig.replacing("/f", absent);
    assert!(matches!(rig.create_with(third), Err(Refusal::Exists { .. })));
}

#[test]
fn object_is_replaced_only_while_it_is_the_expected_one() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/f", MIB);
    let old = rig.stat("/f").unwrap().object;
    let is_old = Some(Condition::Is(old));
    let late = rig.replacing("/f", is_old);
    let late = rig.create_with(late).unwrap();
    let request = rig.replacing("/f", is_old);
    let new = rig.put_value(request).unwrap();
    assert!(matches!(
        rig.seal(&late, &[10]),
        Err(Refusal::Changed { expected, .. }) if expected == old
    ));
    let request = rig.replacing("/f", is_old);
    assert!(matches!(rig.put_value(request), Err(Refusal::Changed { .. })));
    assert_eq!(rig.stat("/f").unwrap().object, new);
    let request = rig.replacing("/nothing", is_old);
    assert!(matches!(rig.put_value(request), Err(Refusal::Changed { .. })));
    let contradiction = Create { condition: is_old, ..rig.file("/g") };
    assert!(rig.create_with(contradiction).is_err());
    let contradiction = Create { condition: Some(Condition::Is(new)), ..rig.file("/f") };
    assert!(rig.create_with(contradiction).is_err());
    assert_eq!(rig.namenode.catalog().object_count(), 2);
}

#[test]
fn writer_that_vanishes_takes_its_condition_and_attributes_along() {
    let mut rig = Rig::with_nodes(1);
    let request =
        Create { attributes: of(&[("a", "1")]), ..rig.replacing("/f", Some(Condition::Absent)) };
    rig.create_with(request).unwrap();
    rig.pass(Millis(600_000));
    assert_eq!(rig.namenode.catalog().object_count(), 1);
    let request = rig.replacing("/f", Some(Condition::Absent));
    rig.put_value(request).unwrap();
    assert_eq!(rig.stat("/f").unwrap().attributes, Attributes::none());
}

#[test]
fn key_value_is_replaced_only_while_it_is_the_expected_one_whatever_the_mode() {
    let mut rig = Rig::with_nodes(1);
    let (kind, parents, is_listed) = (ObjectKind::Table, true, true);
    rig.call(Request::MakeDirectory { path: path("/t"), kind, parents, is_listed }).unwrap();
    let value = |rig: &mut Rig, condition| {
        let request = Create { kind: CreateKind::KeyValue, condition, ..rig.file("/t/k") };
        rig.put_value(request)
    };
    let old = value(&mut rig, Some(Condition::Absent)).unwrap();
    let new = value(&mut rig, Some(Condition::Is(old))).unwrap();
    assert!(matches!(
        value(&mut rig, Some(Condition::Is(old))),
        Err(Refusal::Changed { expected, .. }) if expected == old
    ));
    assert_eq!(rig.stat("/t/k").unwrap().object, new);
}

#[test]
fn catalog_that_takes_its_memory_refuses_what_makes_it_larger_until_something_goes() {
    let mut rig = Rig::with_nodes(1);
    let empty = rig.namenode.catalog().memory_bytes();
    rig.namenode.config.memory_max = empty + 8_000;
    let mut made = 0;
    let refused = loop {
        let inline = Some(vec![7; 100]);
        let request = Create { inline, ..rig.file(&format!("/d/{made}")) };
        match rig.call(Request::Create(request)) {
            Ok(_) => made += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
    assert!((10..25).contains(&made), "{made} objects of 320 bytes and a little more");
    let mut many = Attributes::none();
    (0..50).for_each(|number| many.set(format!("{number}"), "x"));
    let set = |many: &Attributes| Request::SetAttributes {
        path: path("/d/0"),
        expected: None,
        attributes: many.clone(),
    };
    assert!(matches!(rig.call(set(&many)), Err(Refusal::RetryAfter { .. })));
    let to = path("/renamed");
    rig.call(Request::Rename { from: path("/d/1"), to, replace: false }).unwrap();
    rig.call(Request::Delete { path: path("/d/2"), recursive: false }).unwrap();
    let before = rig.namenode.catalog().memory_bytes();
    rig.call(set(&many)).unwrap();
    let more = rig.namenode.catalog().memory_bytes() - before;
    assert!(more > 50 * 96, "an attribute takes more than its bytes: {more}");
    rig.call(Request::Delete { path: path("/d"), recursive: true }).unwrap();
    rig.call(Request::Delete { path: path("/renamed"), recursive: true }).unwrap();
    assert_eq!(rig.namenode.catalog().memory_bytes(), empty);
}
