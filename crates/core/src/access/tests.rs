//! What every request needs, and what follows for every sort of token.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{
    Affinity, Attributes, Concat, Create, Forecast, Heartbeat, Hello, JobHints, JobInfo,
    ObjectKind, Register, RegisterJob, Repeat, SourceNotice,
};
use sanderling_protocol::node::{Load, NodeSelector};
use sanderling_protocol::{
    BlockId, ClusterId, Instant, LeaseId, Millis, NodeId, Nonce, Token, TokenSelector,
};

use super::*;

/// Objects 1 (`/jobs/x/a`) and 2 (`/jobs/y`), jobs 1 (`/jobs/x`) and 2 (`/jobs/y`).
struct Known(BTreeMap<u64, &'static str>);

impl PathLookup for Known {
    fn path_of_object(&self, object: ObjectId) -> Option<Path> {
        self.0.get(&object.0).map(|path| path.parse().unwrap())
    }

    fn path_of_job(&self, job: JobId) -> Option<Path> {
        self.path_of_object(ObjectId(job.0))
    }
}

fn known() -> Known {
    Known([(1, "/jobs/x/a"), (2, "/jobs/y")].into())
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn claims(part: TokenRole, subtree: &str, rights: Rights) -> Claims {
    let subject = "somebody".to_owned();
    let lineage = Lineage::default();
    Claims { subject, role: part, subtree: path(subtree), rights, expires_at: 100, lineage }
}

fn create(at: &str, affinity: Option<Affinity>) -> Request {
    Request::Create(Create { affinity, ..Create::new(path(at), Nonce(1)) })
}

fn concat(parts: &[&str], to: &str) -> Request {
    Request::Concat(Concat {
        parts: parts.iter().map(|part| path(part)).collect(),
        to: path(to),
        condition: None,
        parents: true,
        is_listed: true,
        ttl: None,
        attributes: Attributes::none(),
        writer: Nonce(1),
    })
}

/// Requests that touch one place of the namespace, that of object and job `id`.
fn at_place(at: &str, id: u64) -> (Vec<Request>, Vec<Request>) {
    let (object, lease, job, path) = (ObjectId(id), LeaseId(1), JobId(id), path(at));
    let (ttl, writer) = (None, Nonce(1));
    let reads = vec![
        Request::Lookup { path: path.clone(), offset: 0, bytes: 1 },
        Request::LookupObject { object, offset: 0, bytes: 1 },
        Request::LookupMany { paths: [&path].into_iter().collect() },
        Request::List { path: path.clone(), after: String::new(), limit: 1, with_attributes: true },
        Request::Stat { path: path.clone() },
        Request::Usage { path: path.clone() },
    ];
    let hints = JobHints::default();
    let writes = vec![
        create(at, None),
        create(at, Some(Affinity::Host("h".to_owned()))),
        Request::MakeDirectory {
            path: path.clone(),
            kind: ObjectKind::Directory,
            parents: true,
            is_listed: true,
        },
        Request::Append { path: path.clone(), writer },
        Request::AddBlocks { object, lease, ended: Vec::new(), count: 1, avoid: Vec::new() },
        Request::Publish { object, lease, lengths: Vec::new() },
        Request::Seal { object, lease, lengths: Vec::new(), attributes: Attributes::none() },
        Request::Abort { object, lease },
        Request::RenewLeases { leases: vec![(object, lease)] },
        Request::Rename { from: path.clone(), to: path.clone(), replace: false },
        Request::Delete { path: path.clone(), recursive: false },
        Request::SetTtl { path: path.clone(), ttl },
        Request::SetAttributes {
            path: path.clone(),
            expected: None,
            attributes: Attributes::none(),
        },
        Request::RegisterJob(RegisterJob { path, lease: Millis(1), quota_bytes: None, hints }),
        Request::RenewJob { job },
        Request::EndJob { job },
    ];
    (reads, writes)
}

fn node() -> NodeSelector {
    NodeSelector("n".to_owned())
}

fn observed() -> Vec<Request> {
    vec![
        Request::Nodes { all: true },
        Request::NodeBlocks { node: node(), after: BlockId(0), limit: 1 },
        Request::Events { after: 0, limit: 1, wait: Millis(0) },
        Request::Report,
        Request::Room,
    ]
}

fn noticed() -> Vec<Request> {
    let reason = String::new();
    vec![
        Request::Notice { node: node(), deadline_millis: 1, reason: reason.clone() },
        Request::Cancel { node: node() },
        Request::Recommend { node: node(), reason, is_withdrawn: false },
        Request::Revocations { known: 0 },
    ]
}

fn administrated() -> Vec<Request> {
    let tokens = TokenSelector::Subject("x".to_owned());
    vec![
        Request::Decommission { node: node(), reason: String::new() },
        Request::Fsck,
        Request::RevokeTokens { tokens, until: None },
    ]
}

fn of_datanodes() -> Vec<Request> {
    let (node, nonce) = (NodeId(1), Nonce(1));
    vec![
        Request::Register(Register {
            cluster: None,
            nonce,
            name: String::new(),
            address: String::new(),
            http_address: String::new(),
            host: String::new(),
            tiers: Vec::new(),
            notice_min: None,
            egress_bytes_per_second: None,
        }),
        Request::Heartbeat(Heartbeat { node, nonce, load: Load::default() }),
        Request::BlockReport { node, blocks: Vec::new() },
        Request::Within { subtree: path("/a"), blocks: Vec::new() },
        Request::CountedBlocks { node, subtree: path("/"), blocks: Vec::new() },
        Request::SourceNotice(SourceNotice {
            node,
            nonce,
            number: 1,
            deadline_millis: None,
            reason: String::new(),
            is_withdrawn: true,
        }),
        Request::Repeat(Repeat {
            node,
            nonce,
            deadline_millis: None,
            reason: String::new(),
            known_ago: Millis(1),
        }),
    ]
}

fn of_managers() -> Vec<Request> {
    let (holder, node) = (Nonce(1), NodeId(1));
    vec![
        Request::Manage { holder, name: String::new(), lease: Millis(1) },
        Request::Drains { holder },
        Request::DrainBlocks { holder, node, after: BlockId(0), limit: 1 },
        Request::Reserve { holder, moves: Vec::new() },
        Request::Commit { holder, moves: Vec::new() },
        Request::Abandon { holder, blocks: Vec::new() },
        Request::DropCopies { holder, blocks: Vec::new() },
        Request::Forecast { holder, node, forecast: Forecast::default() },
        Request::Fenced { node },
    ]
}

fn allowed(claims: &Claims, requests: &[Request]) {
    for request in requests {
        assert_eq!(claims.check(request, &known()), Ok(()), "{request:?}");
    }
}

fn refused(claims: &Claims, requests: &[Request]) {
    for request in requests {
        let refusal = claims.check(request, &known()).expect_err(request.kind());
        let is_by_id = matches!(refusal, Refusal::ObjectGone { .. } | Refusal::UnknownJob { .. });
        assert!(is_by_id || matches!(refusal, Refusal::Forbidden { .. }), "{refusal}");
        assert_ne!(refusal.recovery(), sanderling_protocol::refusal::Recovery::Report);
    }
}

#[test]
fn scoped_token_reaches_its_own_subtree_alone() {
    let own = claims(TokenRole::Client, "/jobs/x", Rights::READ.and(Rights::WRITE));
    let (reads, writes) = at_place("/jobs/x/a", 1);
    allowed(&own, &reads);
    allowed(&own, &writes);
    for (place, id) in [("/jobs/y", 2), ("/jobs/y", 9), ("/jobs", 2), ("/", 2), ("/jobs/xa", 2)] {
        let (reads, writes) = at_place(place, id);
        refused(&own, &reads);
        refused(&own, &writes);
    }
    for requests in [observed(), noticed(), administrated(), of_datanodes(), of_managers()] {
        refused(&own, &requests);
    }
    allowed(&own, &[Request::Jobs, Request::Suspect { node: NodeId(1) }]);
}

#[test]
fn another_s_job_and_one_that_is_not_there_look_the_same() {
    let own = claims(TokenRole::Client, "/jobs/x", Rights::WRITE);
    for job in [JobId(2), JobId(9)] {
        for request in [Request::EndJob { job }, Request::RenewJob { job }] {
            assert_eq!(own.check(&request, &known()), Err(Refusal::UnknownJob { job }));
        }
    }
}

#[test]
fn both_ends_of_what_touches_two_places_are_checked() {
    let own = claims(TokenRole::Client, "/jobs/x", Rights::READ.and(Rights::WRITE));
    let rename = |from, to| Request::Rename { from: path(from), to: path(to), replace: true };
    let near = |at| Some(Affinity::Object(path(at)));
    allowed(
        &own,
        &[
            rename("/jobs/x/a", "/jobs/x/b"),
            concat(&["/jobs/x/a", "/jobs/x/b"], "/jobs/x/c"),
            create("/jobs/x/a", near("/jobs/x/b")),
        ],
    );
    refused(
        &own,
        &[
            rename("/jobs/x/a", "/jobs/y/a"),
            rename("/jobs/y/a", "/jobs/x/a"),
            concat(&["/jobs/x/a", "/jobs/y"], "/jobs/x/b"),
            concat(&["/jobs/x/a"], "/jobs/y"),
            create("/jobs/x/a", near("/jobs/y")),
            Request::LookupMany { paths: [&path("/jobs/x/a"), &path("/b")].into_iter().collect() },
            Request::RenewLeases {
                leases: vec![(ObjectId(1), LeaseId(1)), (ObjectId(2), LeaseId(1))],
            },
        ],
    );
}

#[test]
fn rights_are_apart() {
    let (reads, writes) = at_place("/jobs/x/a", 1);
    for subtree in ["/", "/jobs/x"] {
        let reader = claims(TokenRole::Client, subtree, Rights::READ);
        allowed(&reader, &reads);
        refused(&reader, &writes);
        let writer = claims(TokenRole::Client, subtree, Rights::WRITE);
        allowed(&writer, &writes);
        refused(&writer, &reads);
    }
    let metrics = claims(TokenRole::Client, "/jobs/x", Rights::METRICS);
    allowed(&metrics, &observed());
    refused(&metrics, &noticed());
    assert_eq!(metrics.check_page(HttpResource::Look), Ok(()));
    assert!(metrics.check_page(HttpResource::Change).is_err());
    let operator = claims(TokenRole::Client, "/", Rights::ADMIN);
    allowed(&operator, &[observed(), noticed(), administrated()].concat());
    assert_eq!(operator.check_page(HttpResource::Change), Ok(()));
    refused(&operator, &[reads, writes, of_datanodes(), of_managers()].concat());
    // The right to administrate holds for the whole cluster or not at all.
    refused(&claims(TokenRole::Client, "/jobs/x", Rights::ALL), &administrated());
}

#[test]
fn parts_do_their_own_work() {
    let datanode = claims(TokenRole::Datanode, "/", Rights::default());
    allowed(&datanode, &[of_datanodes(), noticed(), observed()].concat());
    refused(&datanode, &[administrated(), of_managers()].concat());
    let manager = claims(TokenRole::Manager, "/", Rights::default());
    allowed(&manager, &[of_managers(), observed()].concat());
    refused(&manager, &[administrated(), of_datanodes(), noticed()].concat());
    let whole = claims(TokenRole::Client, "/", Rights::ALL);
    refused(&whole, &[of_datanodes(), of_managers()].concat());
    let admin = claims(TokenRole::Admin, "/", Rights::default());
    let (reads, writes) = at_place("/jobs/y", 2);
    allowed(&admin, &[reads, writes, observed(), noticed(), administrated()].concat());
    allowed(&admin, &[of_datanodes(), of_managers()].concat());
    assert!(admin.may_order() && admin.may_store() && !datanode.may_order());
    assert!(datanode.may_store() && !whole.may_store() && !whole.may_order());
}

#[test]
fn servers_make_change_and_mint_nothing_and_datanodes_read_blocks_alone() {
    let (reads, writes) = at_place("/jobs/y", 2);
    let joined = [concat(&["/jobs/x/a"], "/jobs/y")];
    let asked = MintToken {
        subject: "task".to_owned(),
        subtree: path("/"),
        rights: vec!["read".to_owned()],
        lifetime: Millis(1),
    };
    for role in [TokenRole::Namenode, TokenRole::Datanode, TokenRole::Manager] {
        let server = claims(role, "/", Rights::ALL);
        refused(&server, &writes);
        refused(&server, &joined);
        assert!(!server.may_change() && !server.allows(Rights::WRITE), "{role}");
        // On the data plane, where managers and uploads of datanodes read.
        assert!(server.allows(Rights::READ), "{role}");
        let minted = server.narrower(&asked, 10, TokenId(7));
        assert!(matches!(minted, Err(Refusal::Forbidden { .. })), "{role}");
    }
    refused(&claims(TokenRole::Datanode, "/", Rights::ALL), &reads);
    allowed(&claims(TokenRole::Manager, "/", Rights::ALL), &reads);
}

#[test]
fn refusal_of_a_change_names_the_rights_that_are_missing() {
    let reader = claims(TokenRole::Client, "/", Rights::READ);
    let refused = reader.check(&Request::OpenClient { key: Nonce(1) }, &known());
    let why = refused.expect_err("it may change nothing").to_string();
    assert!(why.contains("has no right to write, and none to administrate"), "{why}");
}

#[test]
fn account_of_a_job_is_open_to_all_that_see_the_job_in_the_list() {
    let account = |job| Request::JobAccount { job: JobId(job) };
    for (rights, may_end) in [(Rights::READ, false), (Rights::WRITE, true)] {
        let own = claims(TokenRole::Client, "/jobs/x", rights);
        allowed(&own, &[account(1)]);
        refused(&own, &[account(2), account(9)]);
        assert_eq!(own.check(&Request::EndJob { job: JobId(1) }, &known()).is_ok(), may_end);
    }
    let metrics = claims(TokenRole::Client, "/jobs/x", Rights::METRICS);
    allowed(&metrics, &[account(1)]);
    refused(&metrics, &[account(2)]);
    allowed(&claims(TokenRole::Client, "/", Rights::ADMIN), &[account(1), account(2)]);
    // An administrator of a part of the cluster is none, and sees nothing.
    refused(&claims(TokenRole::Client, "/jobs/x", Rights::ADMIN), &[account(1)]);
}

#[test]
fn minted_token_is_never_wider() {
    let own = claims(TokenRole::Client, "/jobs/x", Rights::READ.and(Rights::WRITE));
    let mint = |subtree: &str, rights: &[&str], millis: u64| MintToken {
        subject: "task".to_owned(),
        subtree: path(subtree),
        rights: rights.iter().map(|word| (*word).to_owned()).collect(),
        lifetime: Millis(millis),
    };
    let minted = own.narrower(&mint("/jobs/x/a", &["read"], 20_001), 10, TokenId(7)).unwrap();
    assert_eq!((minted.rights, minted.expires_at), (Rights::READ, 31));
    assert_eq!(minted.role, TokenRole::Client);
    let longest =
        own.narrower(&mint("/jobs/x", &["read", "write"], u64::MAX), 10, TokenId(7)).unwrap();
    assert_eq!(longest.expires_at, own.expires_at);
    for wider in [
        mint("/", &["read"], 1),
        mint("/jobs", &["read"], 1),
        mint("/jobs/y", &["read"], 1),
        mint("/jobs/x", &["admin"], 1),
        mint("/jobs/x", &["read", "metrics"], 1),
    ] {
        assert!(
            matches!(own.narrower(&wider, 10, TokenId(7)), Err(Refusal::Forbidden { .. })),
            "{wider:?}"
        );
    }
    for bad in
        [mint("/jobs/x", &[], 1), mint("/jobs/x", &["fly"], 1), mint("/jobs/x", &["read"], 0)]
    {
        assert!(
            matches!(own.narrower(&bad, 10, TokenId(7)), Err(Refusal::BadRequest { .. })),
            "{bad:?}"
        );
    }
    let admin = claims(TokenRole::Admin, "/", Rights::default());
    let minted = admin
        .narrower(&mint("/", &["read", "write", "admin", "metrics"], 1), 10, TokenId(7))
        .unwrap();
    assert_eq!((minted.role, minted.rights), (TokenRole::Client, Rights::ALL));
}

#[test]
fn token_ends_with_each_of_those_that_it_was_minted_from() {
    let asked = |subject: &str| MintToken {
        subject: subject.to_owned(),
        subtree: path("/jobs/x"),
        rights: vec!["read".to_owned()],
        lifetime: Millis(1000),
    };
    let revoked = |name: TokenSelector| Revoked::from_iter([name]);
    let (by_id, by_subject) = (
        |id| revoked(TokenSelector::Id(TokenId(id))),
        |subject: &str| revoked(TokenSelector::Subject(subject.to_owned())),
    );
    let mut first = claims(TokenRole::Client, "/jobs/x", Rights::READ);
    first.lineage.id = Some(TokenId(1));
    first.lineage.cluster = Some(ClusterId(9));
    let second = first.narrower(&asked("task"), 10, TokenId(2)).unwrap();
    let third = second.narrower(&asked("another one"), 10, TokenId(3)).unwrap();
    assert_eq!(third.lineage.cluster, Some(ClusterId(9)));
    for (token, ends) in [(&first, [true, false, false]), (&second, [true, true, false])] {
        for (id, is_ended) in (1..).zip(ends) {
            assert_eq!(token.check_revoked(&by_id(id)).is_err(), is_ended);
        }
    }
    for ended in [by_id(1), by_id(2), by_id(3), by_subject("somebody"), by_subject("task")] {
        let refused = third.check_revoked(&ended);
        assert!(matches!(refused, Err(Refusal::Unauthenticated { .. })), "{ended:?}");
    }
    assert_eq!(third.check_revoked(&by_id(4)), Ok(()));
    // Not without end.
    let mut last = third;
    let refused = (4..).find_map(|id| match last.narrower(&asked("task"), 10, TokenId(id)) {
        Ok(next) if id < 100 => {
            last = next;
            None
        }
        refused => Some(refused),
    });
    assert!(matches!(refused, Some(Err(Refusal::BadRequest { .. }))), "{refused:?}");
    // What servers make for themselves can only be taken back with the secret.
    let mut own = claims(TokenRole::Datanode, "/", Rights::ALL);
    own.subject = "datanode".to_owned();
    assert_eq!(own.check_revoked(&by_subject("datanode")), Ok(()));
    own.subject = "x".to_owned();
    assert!(own.check_revoked(&by_subject("x")).is_err());
}

#[test]
fn token_holds_in_its_own_cluster_or_in_all() {
    let mut token = claims(TokenRole::Admin, "/", Rights::ALL);
    assert_eq!(token.check_cluster(ClusterId(1)), Ok(()));
    token.lineage.cluster = Some(ClusterId(1));
    assert_eq!(token.check_cluster(ClusterId(1)), Ok(()));
    let refused = token.check_cluster(ClusterId(2)).unwrap_err();
    assert!(matches!(refused, Refusal::Unauthenticated { .. }));
    let text = refused.to_string();
    assert!(text.contains("cluster 0000000000000001") && text.contains("--cluster 00000000000000"));
}

#[test]
fn jobs_of_others_are_not_listed() {
    let job = |id, root: &str| JobInfo {
        job: JobId(id),
        path: path(root),
        created_at: Instant(0),
        lease: Millis(1),
        remaining: Millis(1),
        quota_bytes: None,
        used_bytes: 0,
        hints: JobHints::default(),
    };
    let mut reply = Reply::Jobs(vec![job(1, "/jobs/x"), job(2, "/jobs/y"), job(3, "/jobs")]);
    claims(TokenRole::Client, "/jobs/x", Rights::READ).narrow(&mut reply);
    assert_eq!(reply, Reply::Jobs(vec![job(1, "/jobs/x")]));
}

proptest! {
    #[test]
    fn greetings_are_read_or_refused(bytes: Vec<u8>, text in ".{0,64}") {
        // Whatever comes is refused, never asserted; what is read is written back as it was.
        if let Ok(hello) = decode_body::<Hello>(&bytes) {
            prop_assert_eq!(decode_body::<Hello>(&encode_body(&hello)).unwrap(), hello);
        }
        let token = Some(Token::new(&text));
        let hello = Hello { role: Role::Client, cluster: None, node: None, token };
        let body = encode_body(&hello);
        let shown = format!("{hello:?}");
        let quoted = format!("{text:?}");
        prop_assert!(shown.contains("hidden") && !shown.contains(&quoted));
        for cut in 0..body.len() {
            prop_assert!(decode_body::<Hello>(&body[..cut]).is_err());
        }
        prop_assert_eq!(decode_body::<Hello>(&body).unwrap(), hello);
    }
}
