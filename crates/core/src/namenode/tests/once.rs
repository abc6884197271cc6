//! Changes that arrive again: made once, and answered as the first time.

use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{
    Change, ClientId, Concat, CreateMode, JobHints, JobLimits, ObjectKind, Once, RegisterJob,
    RegisterLimitedJob, Repetition,
};
use sanderling_protocol::{JobId, NodeSelector, ObjectId, Term, TokenId, TokenSelector};

use super::*;
use crate::namenode::{CommitWork, GroupCommit};

/// Puts a change into what makes it once.
pub(super) fn once(client: ClientId, sequence: u64, request: Request) -> Request {
    let (settled_below, change) = (0, Change::new(request));
    Request::Once(Box::new(Once { client, sequence, settled_below, change }))
}

/// A rig in which everything is there that one of each change needs.
struct World {
    rig: Rig,
    client: ClientId,
    sequence: u64,
}

impl World {
    fn new() -> Self {
        let mut rig = Rig::with_nodes(3);
        let client = open(&mut rig);
        let mut world = Self { rig, client, sequence: 0 };
        for name in ["/file", "/from", "/object", "/part", "/spare"] {
            world.put(name);
        }
        world.rig.call(register_job("/job")).unwrap();
        world
    }

    fn put(&mut self, name: &str) {
        let grant = self.rig.create(name).unwrap();
        let blocks: Vec<_> = grant.blocks.iter().map(|granted| length(granted.block, 9)).collect();
        let (object, lease, attributes) = (grant.object, grant.lease, Attributes::none());
        let seal = Request::Seal { object, lease, lengths: blocks, attributes };
        self.rig.call(seal).unwrap();
    }

    fn object(&self, name: &str) -> ObjectId {
        self.rig.namenode.catalog().stat(&path(name), self.rig.now).unwrap().object
    }

    /// Makes one change of each kind. The match names every request, so that a new one cannot be
    /// forgotten.
    fn one_of_each(&mut self) -> Vec<Request> {
        let nonce = Nonce(900);
        let grant = self.rig.create("/open").unwrap();
        let given_up = self.rig.create("/given-up").unwrap();
        let (object, lease) = (grant.object, grant.lease);
        let lengths = vec![length(grant.blocks[0].block, 5)];
        let node = |number: u32| NodeSelector(format!("node-{number}"));
        let (avoid, reason) = (Vec::new(), "a test".to_owned());
        let value = Create {
            mode: CreateMode::Replace,
            inline: Some(b"x".to_vec()),
            ..Create::new(path("/file"), Nonce(901))
        };
        let concat = Concat {
            parts: vec![path("/part")],
            to: path("/whole"),
            condition: None,
            parents: false,
            is_listed: true,
            ttl: None,
            attributes: Attributes::none(),
            writer: Nonce(902),
        };
        let (attributes, seal) = (Attributes::none(), lengths.clone());
        vec![
            Request::Create(value),
            Request::Create(Create::new(path("/new"), Nonce(903))),
            Request::MakeDirectory {
                path: path("/dir"),
                kind: ObjectKind::Directory,
                parents: false,
                is_listed: true,
            },
            Request::Append { path: path("/spare"), writer: nonce },
            Request::AddBlocks { object, lease, ended: Vec::new(), count: 2, avoid },
            Request::Publish { object, lease, lengths },
            Request::Seal { object, lease, lengths: seal, attributes: attributes.clone() },
            Request::Abort { object: given_up.object, lease: given_up.lease },
            Request::Rename { from: path("/from"), to: path("/to"), replace: true },
            Request::Delete { path: path("/to"), recursive: false },
            Request::DeleteObject {
                path: path("/object"),
                object: self.object("/object"),
                recursive: false,
            },
            Request::SetTtl { path: path("/file"), ttl: Some(Millis(60_000)) },
            Request::SetAttributes { path: path("/file"), expected: None, attributes },
            Request::Concat(concat),
            register_job("/job-2"),
            limited_job("/job-3"),
            Request::EndJob { job: JobId(1) },
            Request::Recommend { node: node(1), reason: reason.clone(), is_withdrawn: false },
            Request::Notice { node: node(1), deadline_millis: 60_000, reason: reason.clone() },
            Request::Cancel { node: node(1) },
            Request::Decommission { node: node(2), reason },
            Request::RevokeTokens { tokens: TokenSelector::Id(TokenId(1)), until: Some(u64::MAX) },
        ]
    }

    fn send(&mut self, request: Request) -> (Request, Result<Reply, Refusal>) {
        self.sequence += 1;
        let request = once(self.client, self.sequence, request);
        let answer = self.rig.call(request.clone());
        (request, answer)
    }
}

pub(super) fn open(rig: &mut Rig) -> ClientId {
    let key = Nonce(44);
    match rig.call(Request::OpenClient { key }) {
        Ok(Reply::Client { number }) => ClientId { number, key },
        other => panic!("{other:?}"),
    }
}

fn register_job(name: &str) -> Request {
    let (lease, hints) = (Millis(60_000), JobHints::default());
    Request::RegisterJob(RegisterJob { path: path(name), lease, quota_bytes: None, hints })
}

fn limited_job(name: &str) -> Request {
    let Request::RegisterJob(job) = register_job(name) else { panic!("it registers a job") };
    let limits = JobLimits { names: Some(9), attribute_bytes: None };
    Request::RegisterLimitedJob(Box::new(RegisterLimitedJob { job, limits }))
}

/// Takes out of an answer what shows how late it is.
fn timeless(answer: Result<Reply, Refusal>) -> Result<Reply, Refusal> {
    match answer {
        Ok(Reply::Node(mut info)) => {
            (info.deadline_in, info.heartbeat_age, info.age) = (None, Millis(0), Millis(0));
            info.expected_life = None;
            Ok(Reply::Node(info))
        }
        answer => answer,
    }
}

/// Fails to compile with a new request, which belongs into `one_of_each` if it is a change.
const fn is_sampled(request: &Request) -> bool {
    match request {
        Request::Create(_)
        | Request::MakeDirectory { .. }
        | Request::Append { .. }
        | Request::AddBlocks { .. }
        | Request::Publish { .. }
        | Request::Seal { .. }
        | Request::Abort { .. }
        | Request::Rename { .. }
        | Request::Delete { .. }
        | Request::DeleteObject { .. }
        | Request::SetTtl { .. }
        | Request::SetAttributes { .. }
        | Request::Concat(_)
        | Request::RegisterJob(_)
        | Request::EndJob { .. }
        | Request::Notice { .. }
        | Request::Decommission { .. }
        | Request::Cancel { .. }
        | Request::Recommend { .. }
        | Request::RevokeTokens { .. }
        | Request::RegisterLimitedJob(_) => true,
        // Of these one is a change, which needs a node with a store: its own test sends it twice.
        Request::Durable(_) => false,
        Request::RenewLeases { .. }
        | Request::RenewJob { .. }
        | Request::Register(_)
        | Request::Join(_)
        | Request::Manage { .. }
        | Request::Heartbeat(_)
        | Request::Beat(_)
        | Request::Suspect { .. }
        | Request::Fenced { .. }
        | Request::Reserve { .. }
        | Request::Commit { .. }
        | Request::Abandon { .. }
        | Request::DropCopies { .. }
        | Request::Forecast { .. }
        | Request::OpenClient { .. }
        | Request::Once(_)
        | Request::Lookup { .. }
        | Request::LookupObject { .. }
        | Request::LookupMany { .. }
        | Request::List { .. }
        | Request::Stat { .. }
        | Request::Usage { .. }
        | Request::Jobs
        | Request::BlockReport { .. }
        | Request::Nodes { .. }
        | Request::Drains { .. }
        | Request::DrainBlocks { .. }
        | Request::NodeBlocks { .. }
        | Request::Events { .. }
        | Request::Report
        | Request::Fsck
        | Request::MintToken(_)
        | Request::Room
        | Request::Repeat(_)
        | Request::SourceNotice(_)
        | Request::ReportDamage { .. }
        | Request::ExpectedBlocks { .. }
        | Request::Revocations { .. }
        | Request::JobAccount { .. }
        | Request::Members
        | Request::Within { .. }
        | Request::CountedBlocks { .. } => false,
    }
}

/// Kinds of changes that are made once: as many as [`is_sampled`] selects.
const KINDS: usize = 21;

#[test]
fn every_change_is_made_once_and_answered_alike_also_from_the_log_or_a_snapshot() {
    let mut world = World::new();
    let requests = world.one_of_each();
    let mut kinds: Vec<_> = requests.iter().map(Request::kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), KINDS, "{kinds:?}");
    let mut sent = Vec::new();
    for request in requests {
        assert!(is_sampled(&request) && request.repeat() == Repetition::Once, "{request:?}");
        let (request, answer) = world.send(request);
        assert!(answer.is_ok(), "{request:?}: {answer:?}");
        let commands = world.rig.log.len();
        assert_eq!(timeless(world.rig.call(request.clone())), timeless(answer.clone()));
        assert_eq!(world.rig.log.len(), commands, "{} was made twice", request.kind());
        sent.push((request, answer));
    }
    // What ended a lease makes the grants of it worth nothing; all else is answered as it was.
    let has_grant = |answer: &Result<Reply, Refusal>| matches!(answer, Ok(Reply::Grant(_)));
    let rows = |answer: &Result<Reply, Refusal>| matches!(answer, Ok(Reply::Node(_)));
    sent.retain(|(_, answer)| !has_grant(answer) && !rows(answer));
    let catalog = world.rig.namenode.catalog().image();
    let read: Catalog = decode_body(&encode_body(&catalog)).unwrap();
    let config = NamenodeConfig::default();
    let mut of_snapshot = Namenode::restore(config.clone(), read, world.rig.now);
    let mut of_log = Namenode::new(config, ClusterId(7));
    for command in &world.rig.log {
        let _ = of_log.apply(command);
    }
    for (request, first) in sent {
        for namenode in [&mut world.rig.namenode, &mut of_snapshot, &mut of_log] {
            match namenode.prepare(world.rig.now, request.clone()) {
                Prepared::Answer(answer) => assert_eq!(answer, first),
                Prepared::Log(command) => panic!("made again: {command:?}"),
            }
        }
    }
}

#[test]
fn what_is_no_change_is_not_made_once() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    for request in [Request::Jobs, Request::Suspect { node: NodeId(1) }] {
        assert!(request.repeat() != Repetition::Once && !is_sampled(&request));
        let answer = rig.call(once(client, 1, request));
        assert!(matches!(answer, Err(Refusal::BadRequest { .. })), "{answer:?}");
    }
    let nested = once(client, 2, Request::Delete { path: path("/x"), recursive: false });
    let answer = rig.call(once(client, 1, nested));
    assert!(matches!(answer, Err(Refusal::BadRequest { .. })), "{answer:?}");
}

#[test]
fn repeat_that_was_prepared_before_the_first_was_applied_is_not_made() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    rig.call(Request::Create(Create {
        inline: Some(vec![1]),
        ..Create::new(path("/f"), Nonce(1))
    }))
    .unwrap();
    let delete = once(client, 1, Request::Delete { path: path("/f"), recursive: false });
    let prepare = |rig: &mut Rig| match rig.namenode.prepare(rig.now, delete.clone()) {
        Prepared::Log(command) => command,
        Prepared::Answer(answer) => panic!("{answer:?}"),
    };
    let (first, second) = (prepare(&mut rig), prepare(&mut rig));
    let answer = rig.log_and_apply(first);
    assert!(matches!(answer, Ok(Reply::Deleted { objects: 1, .. })), "{answer:?}");
    rig.call(Request::Create(Create {
        inline: Some(vec![2]),
        ..Create::new(path("/f"), Nonce(2))
    }))
    .unwrap();
    assert_eq!(rig.log_and_apply(second), answer);
    assert!(rig.namenode.catalog().stat(&path("/f"), rig.now).is_ok());
}

#[test]
fn refusal_for_good_is_an_outcome_and_one_for_a_while_is_none() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    let delete = once(client, 1, Request::Delete { path: path("/f"), recursive: false });
    let answer = rig.call(delete.clone());
    assert!(matches!(answer, Err(Refusal::NotFound { .. })));
    let value = |nonce| Create { inline: Some(vec![1]), ..Create::new(path("/f"), Nonce(nonce)) };
    rig.call(Request::Create(value(1))).unwrap();
    assert_eq!(rig.call(delete), answer);
    // No node has this name: refused before there is a command, and an outcome all the same.
    let notice = Request::Notice {
        node: NodeSelector("node-2".to_owned()),
        deadline_millis: 1000,
        reason: String::new(),
    };
    let notice = once(client, 2, notice);
    let answer = rig.call(notice.clone());
    assert!(matches!(answer, Err(Refusal::UnknownNode { .. })));
    rig.register("node-2").unwrap();
    assert_eq!(rig.call(notice), answer);
    // Another writer has the file for a while.
    let grant = rig.create("/g").unwrap();
    let append = once(client, 3, Request::Append { path: path("/g"), writer: Nonce(9) });
    assert!(matches!(rig.call(append.clone()), Err(Refusal::SecondWriter { .. })));
    let (object, lease) = (grant.object, grant.lease);
    let lengths = vec![length(grant.blocks[0].block, 9)];
    rig.call(Request::Seal { object, lease, lengths, attributes: Attributes::none() }).unwrap();
    assert!(matches!(rig.call(append), Ok(Reply::Grant(_))));
}

/// Otherwise a client that is refused again and again would fill the log.
#[test]
fn refusal_of_a_client_that_the_log_has_just_noted_leaves_no_record() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    let logged = rig.log.len();
    for sequence in 1..100 {
        let delete = Request::Delete { path: path("/f"), recursive: false };
        let change = Change::new(delete);
        let once = Once { client, sequence, settled_below: sequence, change };
        let answer = rig.call(Request::Once(Box::new(once)));
        assert!(matches!(answer, Err(Refusal::NotFound { .. })), "{answer:?}");
    }
    assert_eq!(rig.log.len(), logged);
    assert_eq!(rig.namenode.refusals_kept(), 1, "what is settled is forgotten");
}

#[test]
fn leader_of_a_group_logs_what_it_refuses_for_good() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    let rename = Request::Rename { from: path("/f"), to: path("/g"), replace: false };
    let rename = once(client, 1, rename);
    for command in rig.namenode.take_over(rig.now, Term(9), Millis(0)) {
        rig.log_and_apply(command).unwrap();
    }
    let answer = rig.call(rename.clone());
    assert!(matches!(answer, Err(Refusal::NotFound { .. })));
    let value = Create { inline: Some(vec![1]), ..Create::new(path("/f"), Nonce(1)) };
    rig.call(Request::Create(value)).unwrap();
    // The next leader has nothing but the log.
    let config = rig.namenode.config().clone();
    let mut next = Namenode::new(config, rig.namenode.catalog().cluster());
    for command in &rig.log {
        next.apply(command);
    }
    rig.namenode = next;
    assert_eq!(rig.call(rename), answer);
}

#[test]
fn settled_change_and_unknown_client_are_refused() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    let delete = || Request::Delete { path: path("/f"), recursive: false };
    let late = once(client, 1, delete());
    let change = Change::new(delete());
    let next = Once { client, sequence: 3, settled_below: 3, change };
    let _ = rig.call(Request::Once(Box::new(next)));
    let is_unknown =
        |answer: &Result<Reply, Refusal>| matches!(answer, Err(Refusal::OutcomeUnknown { .. }));
    assert!(is_unknown(&rig.call(late)));
    let other_key = ClientId { key: Nonce(45), ..client };
    assert!(is_unknown(&rig.call(once(other_key, 4, delete()))));
    let never_opened = ClientId { number: client.number + 1, ..client };
    assert!(is_unknown(&rig.call(once(never_opened, 1, delete()))));
    let other = Request::Delete { path: path("/g"), recursive: false };
    assert!(matches!(rig.call(once(client, 3, other)), Err(Refusal::BadRequest { .. })));
}

#[test]
fn copy_of_a_change_that_waits_for_its_frame_is_answered_as_the_change_is() {
    let mut rig = Rig::with_nodes(1);
    let client = open(&mut rig);
    let make = Request::MakeDirectory {
        path: path("/p"),
        kind: ObjectKind::Directory,
        parents: false,
        is_listed: true,
    };
    let create =
        Create { inline: Some(vec![1]), parents: false, ..Create::new(path("/p/x"), Nonce(9)) };
    let create = once(client, 1, Request::Create(create));
    // The copy has come by another connection, and its parent is not there yet.
    let work =
        [vec![make, create.clone()], vec![create]].map(|frame| CommitWork::Frame(frame, None));
    let mut batch = GroupCommit::new(rig.now).take(rig.now, &mut rig.namenode, work);
    while batch.must_prepare() || batch.commands().len() > 0 {
        if batch.must_prepare() {
            batch.prepare(rig.now, &mut rig.namenode);
        }
        batch.apply(|command, _| {
            rig.log.push(command.clone());
            rig.namenode.apply(command)
        });
    }
    let answers = batch.finish();
    assert!(answers[0].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[1][0], answers[0][1]);
}
