//! Callers that claim to be members of a group. Without the rights of a namenode they change
//! nothing; with them, no message of theirs stops the group for good.

use crate::cluster;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, assert_there, client, config, put};
use crate::cluster::{SOON, block_on, path, run, sanderling, until};
use crate::faulty_files::{FaultyFiles, FileFaults};
use bytes::Bytes;
use sanderling_client::Client;
use sanderling_core::catalog::Catalog;
use sanderling_core::replica::{
    Body, Envelope, Group as Members, GroupGeneration, LogPlace, MemberAddress,
};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::message::{Attributes, Concat, Hello, Role};
use sanderling_protocol::{ClusterId, Header, MemberId, Nonce, Op, Refusal, Request, Token};
use sanderling_transport::{CallError, Connection, ConnectionOptions, Credentials, TokenSource};
use serde_json::Value;
use tokio::time::Instant;

/// By how many terms a message may be ahead, as the documentation has it.
const TERMS_BEHIND_MAX: u64 = 1 << 20;

/// The version of the messages between members.
const MESSAGES: u32 = 4;

/// Terms of one generation.
const TERMS: u64 = 1 << 32;

/// Sends a namenode what only members send.
pub(crate) struct RogueMember {
    connection: Connection,
    cluster: ClusterId,
}

impl RogueMember {
    pub(crate) async fn connect(
        address: &str,
        role: Role,
        token: Option<&Token>,
    ) -> Result<Self, CallError> {
        let token = token.map(|token| TokenSource::Given(token.clone()));
        let credentials = Credentials { token, tls: None };
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let hello = Hello { role, cluster: None, node: None, token: None };
        let limit = Instant::now() + SOON;
        let (connection, welcome) =
            Connection::connect_with(address, hello, limit, &options).await?;
        Ok(Self { connection, cluster: welcome.cluster.expect("a namenode has one") })
    }

    fn envelope(&self, from: u32, to: u32, term: u64, body: Body) -> Envelope {
        Envelope {
            cluster: self.cluster,
            generation: self.connection.generation().0,
            from: MemberId(from.into()),
            // The members of these tests have started once.
            incarnation: 1,
            to: MemberId(to.into()),
            term,
            round: 1,
            transfers_ended: 0,
            time: None,
            body,
        }
    }

    /// Sends a message in the name of one member to another.
    async fn send(&self, from: u32, to: u32, term: u64, body: Body) -> Result<(), Refusal> {
        let envelope = self.envelope(from, to, term, body);
        // The first kind of a frame of the group, where its sender is, and the message.
        let frame = encode_body(&(0_u32, "127.0.0.1:1", envelope.encode()));
        self.call(frame).await
    }

    /// Sends the file of a snapshot in one part, with the message that it belongs to, under the
    /// number of a sending.
    async fn send_snapshot(
        &self,
        sending: u64,
        envelope: &Envelope,
        file: &[u8],
    ) -> Result<(), Refusal> {
        let format = (MESSAGES, Catalog::RULES, Catalog::FORMAT);
        let (offset, total) = (0_u64, file.len() as u64);
        let bytes = Bytes::copy_from_slice(file);
        let part = (format, sending, offset, total, crc32c(file), envelope.encode(), bytes);
        self.call(encode_body(&(2_u32, part))).await
    }

    async fn call(&self, frame: Vec<u8>) -> Result<(), Refusal> {
        let (header, limit) = (Header::new(Op::Group, 0), Instant::now() + SOON);
        match self.connection.call(header, vec![Bytes::from(frame)], limit).await {
            Ok(_) => Ok(()),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("the namenode answers: {error}"),
        }
    }
}

/// More elections than a busy machine makes necessary in one test, and much less than impostors add
/// to a term.
const ELECTIONS_MAX: u64 = 200;

/// What an impostor may claim: that it leads, tries to lead, has been elected, or has everything.
fn claims(last: u64) -> Vec<Body> {
    let place = LogPlace { term: 1, index: last };
    vec![
        Body::Heartbeat { committed: 0 },
        Body::Append { before: place, committed: 0, entries: Vec::new() },
        Body::VoteRequest { is_pre: false, last: place, committed: place, transfer: Some(1) },
        Body::VoteRequest { is_pre: true, last: place, committed: place, transfer: None },
        Body::VoteAnswer { is_pre: false, is_granted: true, committed: place },
        Body::Appended { last, committed: last },
        Body::HeartbeatAnswer { committed: last },
        Body::Lead { transfer: 1 },
    ]
}

fn page(ran: &cluster::Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_default()
}

fn term(group: &Group) -> u64 {
    page(&group.cli(group.leader(), &["group", "ls", "--json"]))["term"].as_u64().expect("a term")
}

/// Returns the number of the member that leads, and those of the others.
fn numbers(group: &Group) -> (u32, Vec<u32>) {
    let page = page(&group.cli(group.leader(), &["group", "ls", "--json"]));
    let rows = page["members"].as_array().expect("members").clone();
    let number = |row: &Value| row["id"].as_u64().and_then(|id| u32::try_from(id).ok());
    let leads = |row: &&Value| row["role"] == "Leader";
    let leader = rows.iter().find(leads).and_then(number).expect("one leads");
    (leader, rows.iter().filter_map(number).filter(|id| *id != leader).collect())
}

/// The namenodes send a change to one another in one frame. One that fits no frame with what
/// belongs to it would hold up all that follow.
#[test]
fn change_that_fills_its_frame_holds_up_no_other_one() {
    let group = Group::start(3, &[]);
    // With its length it has 802 bytes of a request.
    let part = path(&format!("/{0}/{0}/{0}/{0}", "x".repeat(199)));
    let concat = |parts: &usize| {
        Request::Concat(Concat {
            parts: vec![part.clone(); *parts],
            to: path("/whole"),
            condition: None,
            parents: false,
            is_listed: true,
            ttl: None,
            attributes: Attributes::none(),
            writer: Nonce(1),
        })
    };
    let send = |parts: &[usize]| {
        // A long change may cost a slow machine its lease.
        let leader = group.leader();
        let requests: Vec<Request> = parts.iter().map(concat).collect();
        block_on(async {
            let caller = RogueMember::connect(&group.addresses[leader], Role::Client, None).await;
            let body = vec![Bytes::from(encode_body(&requests))];
            let (header, limit) = (Header::new(Op::Meta, 0), Instant::now() + SOON);
            caller.expect("any peer may connect").connection.call(header, body, limit).await
        })
    };
    let refused = send(&[20_000]);
    let is_too_large = matches!(&refused, Err(CallError::Refused(Refusal::TooLarge { .. })));
    assert!(is_too_large, "a request is as long as its frame: {refused:?}");
    block_on(async { put(&client(&group.addresses.join(",")).await, 0).await });
    until("two of the longest requests in one frame are taken", SOON, || {
        send(&[10_000, 9_700]).ok().map(drop)
    });
    block_on(async { put(&client(&group.addresses.join(",")).await, 1).await });
}

#[test]
fn absurd_terms_of_a_member_change_nothing_and_later_ones_stop_no_group() {
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    block_on(async { put(&client(&all).await, 0).await });
    let before = term(&group);
    let (leader, others) = numbers(&group);
    let own = GroupGeneration(before).number();
    let absurd = [0, before + TERMS_BEHIND_MAX + (1 << 21), (own + 1) * TERMS + 7, 1 << 62];
    let absurd = [&absurd[..], &[u64::MAX, u64::MAX - 1]].concat();
    block_on(async {
        let client = client(&all).await;
        for address in &group.addresses {
            let rogue = RogueMember::connect(address, Role::Namenode, None).await.expect("open");
            for term in &absurd {
                for (from, to) in [(others[0], leader), (leader, others[0]), (leader, others[1])] {
                    for body in claims(1 << 40) {
                        let sent = rogue.send(from, to, *term, body).await;
                        assert!(sent.is_ok(), "it is counted, not answered: {sent:?}");
                    }
                }
            }
        }
        put(&client, 1).await;
    });
    let now = term(&group);
    assert!(now < before + ELECTIONS_MAX, "a term was moved: {now}, {before} before");
    // One that a member may have: the group follows it, and goes on.
    let mut reached = before;
    for (round, body) in (2..).zip(claims(1 << 40)) {
        let (leader, others) = numbers(&group);
        let address = &group.addresses[group.leader()];
        block_on(async {
            let rogue = RogueMember::connect(address, Role::Namenode, None).await.expect("open");
            let far = reached + TERMS_BEHIND_MAX / 2;
            let _ = rogue.send(others[0], leader, far, body).await;
            put(&client(&all).await, round).await;
        });
        reached = until("a leader", SOON, || Some(term(&group)).filter(|term| *term >= reached));
    }
    assert!(reached > before + TERMS_BEHIND_MAX, "the claims have moved it: {reached}");
    block_on(async {
        let client = client(&all).await;
        assert_there(&client, 0..10).await;
        put(&client, 10).await;
    });
    group.until_voters(3);
    let checked = group.cli(group.leader(), &["fsck"]);
    assert_eq!(checked.code, 0, "{checked}");
}

/// A snapshot of far more than the group has agreed on, with three members.
fn snapshot(term: u64) -> Body {
    let address = |number: u64| {
        let address = format!("127.0.0.1:{number}");
        MemberAddress { http_address: address.clone(), address, nonce: Nonce(number) }
    };
    let members = Members::of_voters(1, (1..=3).map(address).collect());
    Body::Snapshot { place: LogPlace { term, index: 1 << 40 }, group: members }
}

/// Returns the names in the directory of a member's catalog that begin so.
fn files_of(group: &Group, place: usize, begin: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(group.catalog(place)).expect("listed").flatten();
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin));
    found.map(|entry| entry.path()).collect()
}

#[test]
fn snapshots_that_are_no_leaders_or_lack_their_catalog_end_no_member_and_leave_no_file() {
    let mut group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    block_on(async { put(&client(&all).await, 0).await });
    let (leader, others) = numbers(&group);
    let (to, now) = (others[0], term(&group));
    // Members have the numbers in which they joined.
    let place = to as usize - 1;
    // Each member that has joined got one.
    let there = (0..3).find_map(|place| files_of(&group, place, "snapshot-").pop());
    let file = fs::read(there.expect("a snapshot")).expect("it can be read");
    block_on(async {
        let address = &group.addresses[place];
        let rogue = RogueMember::connect(address, Role::Namenode, None).await.expect("open");
        // One of an earlier term.
        let envelope = rogue.envelope(leader, to, now - 1, snapshot(now - 1));
        let sent = rogue.send_snapshot(1, &envelope, &file).await;
        assert!(sent.is_ok(), "it arrives as a whole: {sent:?}");
        until("its file is removed", SOON, || {
            files_of(&group, place, "group-snapshot-").is_empty().then_some(())
        });
        // One of this term, whose catalog did not come before it.
        let sent = rogue.send(leader, to, now, snapshot(now)).await;
        assert!(sent.is_ok(), "it is ignored, not answered: {sent:?}");
        put(&client(&all).await, 1).await;
    });
    until("the member has everything that came behind it", SOON, || {
        let server = group.members[place].as_mut().expect("it runs");
        assert!(server.ended().is_none(), "it ended: {}", server.log());
        let page = page(&group.cli(group.leader(), &["group", "ls", "--json"]));
        let mut rows = page["members"].as_array()?.iter();
        let is_there =
            |row: &Value| row["id"] == to && row["is_active"] == true && row["behind_entries"] == 0;
        let is_there = rows.any(is_there) || page["members"][place]["role"] == "Leader";
        is_there.then_some(())
    });
    block_on(async { assert_there(&client(&all).await, 0..2).await });
}

/// Each is a whole catalog in the member's memory, and none of them is dropped that it may await.
#[test]
fn snapshots_that_a_busy_member_has_not_taken_are_two_at_most() {
    let mut group = Group::start(3, &[]);
    let Some(files) = FaultyFiles::build(group.directory.path(), "rounds-") else {
        return eprintln!("SKIPPED: no C compiler makes the files that wait");
    };
    let all = group.addresses.join(",");
    let place = (group.leader() + 1) % 3;
    group.kill(place);
    group.variables = files.variables();
    group.restart(place);
    group.until_voters(3);
    let there = (0..3).find_map(|place| files_of(&group, place, "snapshot-").pop());
    let file = fs::read(there.expect("a snapshot")).expect("it can be read");
    let arrived = || files_of(&group, place, "group-snapshot-").len();
    let number = |place: usize| u32::try_from(place % 3 + 1).expect("small");
    let now = term(&group);
    block_on(async {
        let rogue = RogueMember::connect(&group.addresses[place], Role::Namenode, None).await;
        let rogue = rogue.expect("open");
        // Of an earlier term, in the name of a member that has started once: it is not awaited.
        let (from, to) = (number(place + 1), number(place));
        let envelope = rogue.envelope(from, to, now - 1, snapshot(now - 1));
        files.set(FileFaults { waits: true, ..FileFaults::default() });
        let client = client(&all).await;
        let mut refused = None;
        for sending in 1..50 {
            // The member's writer waits for the log once it has one of these.
            put(&client, sending).await;
            if let Err(refusal) = rogue.send_snapshot(sending, &envelope, &file).await {
                refused = Some(refusal);
                break;
            }
        }
        let is_refused = matches!(refused, Some(Refusal::RetryAfter { .. }));
        assert!(is_refused, "too many wait: {refused:?}, {} files", arrived());
        assert!(arrived() <= 2, "{} files: one that was refused stays", arrived());
        files.set(FileFaults::default());
        until("the writer has taken both", SOON, || (arrived() == 0).then_some(()));
        let sent = rogue.send_snapshot(50, &envelope, &file).await;
        assert!(sent.is_ok(), "there is a place again: {sent:?}");
        until("its file is removed", SOON, || (arrived() == 0).then_some(()));
        put(&client, 50).await;
    });
    let server = group.members[place].as_mut().expect("it runs");
    assert!(server.ended().is_none(), "it ended: {}", server.log());
    group.until_voters(3);
}

/// Three namenodes with a secret.
pub(crate) struct Guarded {
    pub(crate) group: Group,
    pub(crate) secret: String,
    pub(crate) admin: String,
}

impl Guarded {
    /// Starts them with these variables in their environment.
    pub(crate) fn start(variables: Vec<(&'static str, PathBuf)>) -> Self {
        let mut group = Group { variables, ..Group::start(0, &[]) };
        let secret = text(group.directory.path().join("secret"));
        let made = run(sanderling().args(["token", "secret", "--out", &secret]));
        assert_eq!(made.code, 0, "{made}");
        for _ in 0..3 {
            let first = group.addresses.first().cloned();
            group.add("127.0.0.1:0", first.as_deref(), &["--secret-file", &secret]);
        }
        let address = group.addresses[0].clone();
        let words = ["token", "new", "--secret-file", &secret, "-q", "--namenode", &address];
        let made = run(sanderling().args(words).args(["--role", "admin"]));
        assert_eq!(made.code, 0, "{made}");
        Self { group, secret, admin: made.stdout.trim().to_owned() }
    }

    pub(crate) fn token(&self, flags: &[&str]) -> Token {
        let address = &self.group.addresses[0];
        let words = ["token", "new", "--secret-file", &self.secret, "-q", "--namenode", address];
        let made = run(sanderling().args(words).args(flags));
        assert_eq!(made.code, 0, "{made}");
        Token::new(&made.stdout)
    }

    pub(crate) fn page(&self, place: usize) -> Value {
        let address = &self.group.addresses[place];
        let words = ["group", "ls", "--json", "--namenode", address];
        page(&run(sanderling().args(words).env("SANDERLING_TOKEN", &self.admin)))
    }

    /// Returns which members vote and which one leads, and its term.
    pub(crate) fn settled(&self) -> (String, u64) {
        until("three vote, and one leads", SOON, || {
            let page = self.page(0);
            let rows = page["members"].as_array()?;
            let is = |role: &str| rows.iter().filter(|row| row["role"] == role).count();
            let is_settled = is("Leader") == 1 && is("Voter") == 2;
            is_settled.then(|| (page["members"].to_string(), page["term"].as_u64().unwrap_or(0)))
        })
    }
}

/// Sends everything that a member and an operator may send, in each member's name.
async fn assert_all_forbidden(rogue: &RogueMember, term: u64) {
    let is_forbidden = |sent: &Result<(), Refusal>| matches!(sent, Err(Refusal::Forbidden { .. }));
    for term in [term, term + 1000, u64::MAX] {
        for (from, to) in [(1, 2), (2, 1), (3, 1), (2, 3), (1, 3), (3, 2)] {
            let removed = Body::Removed { next: MemberId(100) };
            for body in claims(1 << 40).into_iter().chain([removed]) {
                let sent = rogue.send(from, to, term, body).await;
                assert!(is_forbidden(&sent), "{sent:?}");
            }
        }
    }
    // An order that removes the second member, and a notice for this one's machine.
    let order = encode_body(&(3_u32, (1_u32, MemberId(2))));
    let notice = encode_body(&(6_u32, Some(1000_u64), "a rogue member's"));
    for frame in [order, notice] {
        let sent = rogue.call(frame).await;
        assert!(is_forbidden(&sent), "{sent:?}");
    }
}

#[test]
fn caller_without_the_rights_of_a_namenode_moves_no_term_and_no_member() {
    let guarded = Guarded::start(Vec::new());
    let (_, before) = guarded.settled();
    let addresses = guarded.group.addresses.clone();
    let tokens = [
        guarded.token(&[]),
        guarded.token(&["--rights", "read"]),
        guarded.token(&["--rights", "read,write,admin,metrics"]),
        guarded.token(&["--role", "datanode"]),
        guarded.token(&["--role", "manager"]),
    ];
    block_on(async {
        for address in &addresses {
            for role in [Role::Namenode, Role::Client, Role::Datanode, Role::Manager] {
                let refused = RogueMember::connect(address, role, None).await.err();
                let is_refused =
                    matches!(&refused, Some(CallError::Refused(Refusal::Unauthenticated { .. })));
                assert!(is_refused, "{refused:?}");
            }
            for (token, role) in
                tokens.iter().flat_map(|it| [(it, Role::Namenode), (it, Role::Client)])
            {
                // What it greets as gives it no right.
                let rogue = RogueMember::connect(address, role, Some(token)).await;
                assert_all_forbidden(&rogue.expect("the token is good"), before).await;
            }
        }
    });
    let (_, after) = guarded.settled();
    assert!(after < before + ELECTIONS_MAX, "a term was moved: {after}, {before} before");
    block_on(async {
        let token = Some(TokenSource::Given(Token::new(&guarded.admin)));
        let credentials = Credentials { token, tls: None };
        let config = sanderling_client::ClientConfig { credentials, ..config() };
        let within = tokio::time::timeout(Duration::from_secs(30), async {
            let client = Client::connect(&addresses.join(","), config).await.expect("one leads");
            put(&client, 0).await;
        });
        within.await.expect("the group goes on");
    });
}
