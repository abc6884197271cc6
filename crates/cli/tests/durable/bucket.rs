//! A store in a bucket, which a gateway of another cluster serves: its credentials, and its end in
//! the middle of a deletion.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::cluster::relay::Relay;
use crate::cluster::stores::{make, put};
use crate::cluster::{
    Cluster, Port, SOON, Server, Shape, Starting, block_on, bytes_of, path, sanderling, until,
};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Op, Request};
use tokio::runtime::Runtime;

/// The secret key of the access key `drain`.
const SECRET: &str = "the-right-secret-key";

/// Another one, which no output may have either.
const WRONG: &str = "another-secret-key";

/// An object of several blocks.
const BYTES: usize = 3 << 20;

/// A cluster with a durable directory, and another one with the bucket of its store.
struct InBucket {
    cluster: Cluster,
    /// The one with the bucket.
    archive: Cluster,
    gateway: Server,
    /// The gateway's, which may start there again.
    port: Port,
}

impl InBucket {
    fn start() -> Self {
        let archive = Self::archive();
        let namenode = archive.namenode.address.clone();
        Self::of(archive, &namenode)
    }

    /// Starts the cluster with the bucket.
    fn archive() -> Cluster {
        let archive = Cluster::of(2);
        let made = archive.cli(&["fs", "mkdir", "/archive"]);
        assert_eq!(made.code, 0, "{made}");
        archive
    }

    /// Starts the rest, with a gateway that finds the namenode of the bucket at that address.
    fn of(archive: Cluster, namenode: &str) -> Self {
        let keys = archive.path("keys.json");
        let text = format!(r#"{{"keys": [{{"access_key": "drain", "secret_key": "{SECRET}"}}]}}"#);
        fs::write(&keys, text).expect("written");
        fs::set_permissions(&keys, Permissions::from_mode(0o600)).expect("set");
        let port = Port::new();
        let gateway = gateway(&archive, namenode, &port);
        let cluster = Cluster::start(Shape { datanodes: 1, ..Shape::default() });
        Self { cluster, archive, gateway, port }
    }

    /// Starts a datanode that finds the bucket, with further variables in its environment.
    fn datanode(&self, name: &str, variables: &[(&str, &str)]) -> Server {
        self.datanode_of("archive=s3://archive/out", name, variables)
    }

    /// The same with a store of its own choice.
    fn datanode_of(&self, store: &str, name: &str, variables: &[(&str, &str)]) -> Server {
        let mut program = sanderling();
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.to_string_lossy().starts_with("AWS_")) {
            program.env_remove(name);
        }
        program.env("AWS_ENDPOINT_URL", format!("http://{}", self.gateway.address));
        program.env("AWS_REGION", "us-east-1").envs(variables.iter().copied());
        let words = ["datanode", "--namenode", &self.cluster.namenode.address, "--name", name];
        let flags = ["--dram", "64MiB", "--durable", store];
        let words = [&words[..], &flags].concat();
        Starting::by(program, &self.cluster.path(""), name, &words).serves()
    }

    fn with_secret(&self, name: &str, secret: &str) -> Server {
        self.datanode(name, &keys_with(secret))
    }

    /// Puts objects, and waits until the reason of the stall, of `fs stat` and of the event, has
    /// this text. Returns it.
    fn stalls(&self, expected: &str) -> String {
        make(&self.cluster, "/out");
        block_on(async {
            let client = self.cluster.client().await;
            put(&client, "/out/large", 1, BYTES).await;
            put(&client, "/out/small", 2, 100).await;
        });
        let why = until(&format!("the reason {expected:?}"), SOON, || {
            let shown = self.cluster.json(&["fs", "stat", "/out"]);
            let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
            why.contains(expected).then(|| why.to_owned())
        });
        assert!(why.contains("the store archive at s3://archive/out: "), "{why}");
        let events = self.cluster.cli(&["events", "--kind", "durable_stalled"]);
        assert!(events.stdout.contains(expected), "{events}");
        why
    }

    /// Moves all bytes off a datanode, and ends it.
    fn take(&self, mut datanode: Server) {
        let name = datanode.name.clone();
        let emptied = self.cluster.cli(&["node", "decommission", &name, "--wait", "--yes"]);
        assert_eq!(emptied.code, 0, "{emptied}");
        datanode.kill();
    }

    /// Asserts that the bucket has the objects, whole, and that nothing was lost.
    fn assert_drained(&self) {
        let synced = self.cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
        assert_eq!(synced.code, 0, "{synced}");
        block_on(async {
            let (client, archive) = (self.cluster.client().await, self.archive.client().await);
            for (name, seed, bytes) in [("large", 1, BYTES), ("small", 2, 100)] {
                let expected = bytes_of(seed, bytes);
                let stored = archive.get(&path(&format!("/archive/out/{name}"))).await;
                assert!(stored.expect("it is in the bucket") == expected, "{name}");
                let read = client.get(&path(&format!("/out/{name}"))).await.expect("it is here");
                assert!(read == expected, "{name}");
            }
            let report = client.report().await.expect("answered");
            assert!(report.losses.is_empty() && report.bytes == 0, "{report:?}");
        });
    }
}

/// Returns the variables of a datanode with this secret key.
const fn keys_with(secret: &str) -> [(&str, &str); 2] {
    [("AWS_ACCESS_KEY_ID", "drain"), ("AWS_SECRET_ACCESS_KEY", secret)]
}

/// Starts a gateway of the cluster with the bucket.
fn gateway(archive: &Cluster, namenode: &str, port: &Port) -> Server {
    let keys = archive.path("keys.json");
    let keys = keys.to_str().expect("a name in UTF-8");
    let listen = port.address();
    let words = ["gateway", "s3", "--namenode", namenode, "--keys", keys];
    let here = ["--listen", &listen, "--http", "none"];
    archive.serve("gateway", &[&words[..], &here].concat())
}

/// Chooses deletions of what the bucket has below `old`.
fn deletion(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Meta {
        return None;
    }
    let requests: Vec<Request> = decode_body(body).ok()?;
    // It may be a part of one that is made once.
    let mut texts = requests.iter().map(|request| format!("{request:?}"));
    let has_one = texts.any(|text| text.contains("DeleteObject") && text.contains("out/old"));
    has_one.then(|| "a deletion".to_owned())
}

#[test]
fn datanode_with_wrong_keys_stalls_with_what_to_check_and_one_with_the_right_ones_goes_on() {
    let world = InBucket::start();
    let wrong = world.with_secret("wrong", WRONG);
    let denied = "the server denies access (SignatureDoesNotMatch): check AWS_ACCESS_KEY_ID and";
    let why = world.stalls(denied);
    assert!(why.contains("AWS_SECRET_ACCESS_KEY of the datanode"), "{why}");
    // Writers go on.
    block_on(async {
        let client = world.cluster.client().await;
        let read = client.get(&path("/out/large")).await.expect("it is served meanwhile");
        assert!(read == bytes_of(1, BYTES));
    });
    assert!(!wrong.log().contains(WRONG) && !why.contains(WRONG), "{why}\n{}", wrong.log());
    // It has read its environment once. Another one does its work while it is there.
    let right = world.with_secret("right", SECRET);
    world.assert_drained();
    world.take(wrong);
    world.assert_drained();
    assert!(!right.log().contains(SECRET), "{}", right.log());
}

#[test]
fn datanode_without_keys_stalls_with_what_is_missing_and_one_with_keys_goes_on() {
    let world = InBucket::start();
    // Where the library looks for keys of the machine no server listens.
    let bare = world.datanode("bare", &[("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")]);
    let why = world.stalls("there are no credentials: start the datanode with AWS_ACCESS_KEY_ID");
    assert!(why.contains("or give its machine a role"), "{why}");
    let _right = world.with_secret("right", SECRET);
    world.assert_drained();
    world.take(bare);
    world.assert_drained();
}

/// The manager cannot find out whether the server of the bucket has ended, or only the connection.
/// Here the deletion that the gateway has sent takes effect after its end.
#[test]
fn bucket_whose_gateway_is_killed_in_a_deletion_shows_nothing_later_for_30_s_and_goes_on() {
    const SETTLES: Duration = Duration::from_secs(30);
    let relaying = Runtime::new().expect("a runtime");
    let archive = InBucket::archive();
    let relay = relaying.block_on(Relay::before(&archive.namenode.address, deletion));
    let mut world = InBucket::of(archive, &relay.address);
    let _datanode = world.with_secret("right", SECRET);
    make(&world.cluster, "/out");
    let sync = |world: &InBucket| {
        let synced = world.cluster.cli(&["fs", "sync", "/out", "--timeout", "100s"]);
        assert_eq!(synced.code, 0, "{synced}");
    };
    block_on(async {
        let client = world.cluster.client().await;
        for (name, seed) in [("/out/old/a", 1), ("/out/old/b", 2)] {
            put(&client, name, seed, 5000).await;
        }
    });
    sync(&world);
    relay.close();
    let removed = world.cluster.cli(&["fs", "rm", "-r", "/out/old"]);
    assert_eq!(removed.code, 0, "{removed}");
    relaying.block_on(relay.held());
    let killed = Instant::now();
    world.gateway.kill();
    relay.open();
    block_on(async { put(&world.cluster.client().await, "/out/new", 3, 5000).await });
    until("the directory is stalled", SOON, || {
        let shown = world.cluster.json(&["fs", "stat", "/out"]);
        let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
        (!why.is_empty()).then_some(())
    });
    world.gateway = gateway(&world.archive, &world.archive.namenode.address, &world.port);
    sync(&world);
    let took = killed.elapsed();
    assert!(took >= SETTLES, "the next object is there after {took:?}");
    block_on(async {
        let archive = world.archive.client().await;
        let stored = archive.get(&path("/archive/out/new")).await.expect("it is in the bucket");
        assert!(stored == bytes_of(3, 5000));
        for name in ["/archive/out/old/a", "/archive/out/old/b"] {
            archive.stat(&path(name)).await.expect_err("it was removed");
        }
    });
}

/// Returns a path of 128 names, as many as a path has. The gateway has two of its own before those
/// of a key, and refuses the key as too long.
fn too_deep(begin: &str) -> String {
    let names = 128 - path(begin).components().count();
    format!("{begin}{}", "/d".repeat(names))
}

#[test]
fn object_whose_name_the_bucket_refuses_can_be_deleted_and_the_rest_gets_there() {
    let world = InBucket::start();
    let _datanode = world.with_secret("right", SECRET);
    make(&world.cluster, "/out");
    let [alone, in_tree] = ["/out/a", "/out/b"].map(too_deep);
    let stalls = |number: usize| {
        let why = until(&format!("stall {number}"), SOON, || {
            let shown = world.cluster.json(&["fs", "stat", "/out"]);
            let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
            why.contains("takes no object of this name").then(|| why.to_owned())
        });
        assert!(why.contains("KeyTooLongError"), "{why}");
    };
    let stored = |name: &str, seed: u64, bytes: usize| {
        block_on(async { put(&world.cluster.client().await, name, seed, bytes).await });
    };
    let removed = |words: &[&str]| {
        let removed = world.cluster.cli(words);
        assert_eq!(removed.code, 0, "{words:?}: {removed}");
        let synced = world.cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
        assert_eq!(synced.code, 0, "{synced}");
    };
    stored(&alone, 1, BYTES);
    stored("/out/first", 2, 5000);
    stalls(1);
    let waits = world.cluster.cli(&["fs", "rm", "/out/first", "--timeout", "2s"]);
    assert_ne!(waits.code, 0, "{waits}");
    removed(&["fs", "rm", &alone]);
    // A tree with such an object goes, too, when the store has the rest of it.
    stored(&in_tree, 3, 100);
    stored("/out/b/second", 4, 5000);
    stored("/out/third", 5, 5000);
    stalls(2);
    removed(&["fs", "rm", "-r", "/out/b", "--timeout", "60s"]);
    block_on(async {
        let archive = world.archive.client().await;
        for (name, seed) in [("first", 2), ("third", 5)] {
            let stored = archive.get(&path(&format!("/archive/out/{name}"))).await;
            assert!(stored.expect("it is in the bucket") == bytes_of(seed, 5000), "{name}");
        }
        archive.stat(&path("/archive/out/b/second")).await.expect_err("it was removed");
    });
}

/// Below so many names the gateway takes no record of an owner, which is two names deeper: a path
/// has 128 names at most.
const PREFIX_NAMES: usize = 127;

#[test]
fn bucket_that_refuses_the_record_of_its_owner_refuses_no_name_of_an_object() {
    let world = InBucket::start();
    let store = format!("archive=s3://archive{}", "/d".repeat(PREFIX_NAMES));
    let _datanode = world.datanode_of(&store, "deep", &keys_with(SECRET));
    make(&world.cluster, "/out");
    block_on(async { put(&world.cluster.client().await, "/out/first", 1, 5000).await });
    let why = until("the directory is stalled", SOON, || {
        let shown = world.cluster.json(&["fs", "stat", "/out"]);
        let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
        (!why.is_empty()).then(|| why.to_owned())
    });
    // The reason is cut before the code of the server: the prefix is long.
    assert!(why.contains("the store archive at s3://archive/d/d/"), "{why}");
    assert!(!why.contains("takes no object of this name"), "{why}");
    // The name is good in a store that goes on: its change waits.
    let removed = world.cluster.cli(&["fs", "rm", "/out/first", "--timeout", "2s"]);
    assert_ne!(removed.code, 0, "{removed}");
}
