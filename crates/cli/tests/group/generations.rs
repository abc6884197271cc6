//! Beginnings of a group that exclude each other: an old majority that comes back after a recovery,
//! and two recoveries from two survivors. Greetings name the generation.

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, OpenClient, assert_there, client, put, until_up, up};
use crate::cluster::{
    Port, SOON, block_on, bytes_of, path, run, sanderling, spawn_with, until, until_node,
};
use sanderling_client::PutOptions;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op, Order, OrderReply, Refusal, Reply, Request};
use sanderling_transport::{CallError, Connection, ConnectionOptions};

/// Begins the group anew from a member's directory. Returns the name of the generation.
fn recover(group: &Group, place: usize) -> String {
    let directory = text(group.catalog(place));
    let recovered = run(sanderling().args(["group", "recover", "--json", "--dir", &directory]));
    assert_eq!(recovered.code, 0, "{recovered}");
    let shown: serde_json::Value = serde_json::from_str(&recovered.stdout).unwrap_or_default();
    assert_eq!(shown["group"], 1, "{recovered}");
    shown["group_name"].as_str().expect("a name").to_owned()
}

/// Greets a namenode as a process that has a generation of its group.
fn greet(address: &str, role: Role, known: GroupGeneration) -> Result<GroupGeneration, CallError> {
    block_on(async {
        let hello = Hello { role, cluster: None, node: None, token: None };
        let options = ConnectionOptions::default();
        options.generation.set(known);
        let deadline = tokio::time::Instant::now() + SOON;
        let connected = Connection::connect_with(address, hello, deadline, &options).await;
        connected.map(|(connection, _)| connection.generation())
    })
}

#[test]
fn old_majority_that_comes_back_is_refused_by_all_that_have_the_later_generation() {
    let mut group = Group::start(3, &[]);
    // The later generation begins where no older member looks for it.
    let port = Port::new();
    let anew = port.address();
    let all = format!("{},{anew}", group.addresses.join(","));
    let _datanode = group.datanode("one", &all, &[]);
    let open = OpenClient::connect(&all);
    open.block_on(put(&open.client, 0));
    for place in 0..3 {
        group.kill(place);
    }
    let name = recover(&group, 0);
    let directory = text(group.catalog(0));
    let words = ["namenode", "--listen", &anew, "--http", "127.0.0.1:0", "--dir", &directory];
    let mut server = spawn_with(group.directory.path(), "anew", &words, &[]).serves();
    open.block_on(async {
        put(&open.client, 1).await;
        assert_there(&open.client, 0..2).await;
    });
    until_up(&anew, 1);
    // Two of the three have a majority, elect, and answer any client that has none.
    for place in [1, 2] {
        group.restart(place);
    }
    let old = group.leader();
    let old = group.addresses[old].clone();
    open.block_on(async { put(&client(&old).await, 5).await });
    server.kill();
    open.assert_stores_nothing_at(&old);
    let later = greet(&old, Role::Client, GroupGeneration::default()).expect("it has none");
    let later = later.next(7);
    assert!(name.starts_with("1-"), "{name}");
    for role in [Role::Client, Role::Datanode, Role::Manager, Role::Namenode] {
        let refused = greet(&old, role, later);
        let is_refused =
            |it: &CallError| matches!(it, CallError::Refused(Refusal::OtherGeneration { .. }));
        assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
    }
    // What is only claimed has ended no member.
    open.block_on(async { put(&client(&old).await, 6).await });
    let seen = greet(&old, Role::Client, GroupGeneration::default()).expect("it serves");
    assert_eq!(seen.number(), 0);
    let refused = greet(&old, Role::Client, later).expect_err("refused").to_string();
    assert!(refused.contains("begun anew") && refused.contains("1-00000007"), "{refused}");
    // The datanode sends its heartbeats to none of them.
    until("the older members have no datanode", SOON, || (up(&old) == 0).then_some(()));
}

#[test]
fn two_recoveries_from_two_survivors_refuse_each_other_by_name() {
    let mut group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let _datanodes = ["one", "two"].map(|name| group.datanode(name, &all, &[]));
    let open = OpenClient::connect(&all);
    let large = |seed| bytes_of(seed, 20_000);
    let put_large = |seed: u64| {
        let to = path(&format!("/{seed}"));
        open.block_on(open.client.put(&to, large(seed), &PutOptions::default())).expect("stored");
    };
    put_large(0);
    for place in 0..3 {
        group.kill(place);
    }
    let (one, other) = (recover(&group, 0), recover(&group, 1));
    assert!(one.starts_with("1-") && other.starts_with("1-") && one != other, "{one} {other}");
    group.restart(0);
    until_up(&group.addresses[0], 2);
    put_large(1);
    group.restart(1);
    let both = group.addresses[..2].join(",");
    let refused = run(sanderling().args(["fs", "ls", "/", "--namenode", &both]));
    let names = |text: &str| refused.stderr.contains(text);
    assert!(refused.code != 0 && names("two recoveries have begun generation 1"), "{refused}");
    assert!(names(&one) && names(&other), "{refused}");
    // Those of the first recovery go on with it, and the other one has none of them.
    for seed in 0..2 {
        let read = open.block_on(open.client.get(&path(&format!("/{seed}")))).expect("readable");
        assert!(read == large(seed), "/{seed} has other bytes");
    }
    put_large(2);
    open.block_on(async {
        let stat = client(&group.addresses[1]).await.stat(&path("/2")).await;
        assert!(stat.is_err(), "the other recovery has it");
    });
    let first = greet(&group.addresses[0], Role::Client, GroupGeneration::default());
    let first = first.expect("it serves");
    assert_eq!(first.to_string(), one);
    for role in [Role::Client, Role::Datanode, Role::Namenode] {
        let refused = greet(&group.addresses[1], role, first).expect_err("refused").to_string();
        assert!(refused.contains(&one) && refused.contains(&other), "{refused}");
    }
    group.kill(0);
    open.assert_stores_nothing_at(&group.addresses[1]);
}

/// Gives a datanode an order as the leader of a term.
async fn order_in(term: u64, address: &str, order: &Order) -> Result<OrderReply, Refusal> {
    let deadline = tokio::time::Instant::now() + SOON;
    let hello = Hello { role: Role::Namenode, cluster: None, node: None, token: None };
    let options = ConnectionOptions::default();
    let connected = Connection::connect_with(address, hello, deadline, &options).await;
    let (connection, _) = connected.expect("a datanode without a secret lets it in");
    let header = Header { offset: term, ..Header::new(Op::Order, 0) };
    match connection.call(header, vec![encode_body(order).into()], deadline).await {
        Ok(frame) => Ok(decode_body(&frame.body).expect("a reply to an order")),
        Err(CallError::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("the datanode answers: {error}"),
    }
}

/// An order may be on its way for as long as its leader stands still.
#[test]
fn datanode_refuses_late_orders_of_an_earlier_leader() {
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let one = group.datanode("one", &all, &[]);
    let first = group.leader();
    let term = |place: usize| {
        let listed = group.cli(place, &["group", "ls", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
        shown["term"].as_u64().expect("a number")
    };
    let earlier = term(first);
    block_on(async {
        let client = client(&all).await;
        let bytes = bytes_of(1, 100_000);
        client.put(&path("/a"), bytes.clone(), &PutOptions::default()).await.expect("stored");
        let lookup = Request::Lookup { path: path("/a"), offset: 0, bytes: 1 };
        let Ok(Reply::Layout(layout)) = client.request(lookup).await else { panic!("its place") };
        let block = layout.blocks[0];
        let moved = group.cli(first, &["group", "move-leader"]);
        assert_eq!(moved.code, 0, "{moved}");
        // The later leader orders the datanode to fence, and to end that.
        let words = ["node", "notice", "one", "--deadline", "1h", "--yes", "--namenode", &all];
        let noticed = run(sanderling().args(words));
        assert_eq!(noticed.code, 0, "{noticed}");
        until_node(&client, "one", "draining", |node| node.policy.is_draining()).await;
        until("the fence has arrived", SOON, || {
            one.log().contains("ordered to fence").then_some(())
        });
        let cancelled = run(sanderling().args(["node", "cancel", "one", "--namenode", &all]));
        assert_eq!(cancelled.code, 0, "{cancelled}");
        let drop = Order::Drop { blocks: vec![(block.block, block.epoch)] };
        let late = order_in(earlier, &one.address, &drop).await;
        assert!(matches!(late, Err(Refusal::NotLeader { .. })), "{late:?}");
        let late = order_in(earlier, &one.address, &Order::FenceNode { deadline_in: None }).await;
        assert!(matches!(late, Err(Refusal::NotLeader { .. })), "{late:?}");
        assert_eq!(client.get(&path("/a")).await.expect("it is there"), bytes);
        // The present leader's orders are carried out.
        let present = order_in(term(first), &one.address, &drop).await;
        assert!(matches!(present, Ok(OrderReply::Done)), "{present:?}");
    });
}
