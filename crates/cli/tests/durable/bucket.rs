//! A store in a bucket, which a gateway of another cluster serves: its credentials.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::cluster::stores::{make, put};
use crate::cluster::{
    Cluster, SOON, Server, Shape, Starting, block_on, bytes_of, path, sanderling, until,
};

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
}

impl InBucket {
    fn start() -> Self {
        let archive = Cluster::of(2);
        let made = archive.cli(&["fs", "mkdir", "/archive"]);
        assert_eq!(made.code, 0, "{made}");
        let keys = archive.path("keys.json");
        let text = format!(r#"{{"keys": [{{"access_key": "drain", "secret_key": "{SECRET}"}}]}}"#);
        fs::write(&keys, text).expect("written");
        fs::set_permissions(&keys, Permissions::from_mode(0o600)).expect("set");
        let keys = keys.to_str().expect("a name in UTF-8");
        let words = ["gateway", "s3", "--namenode", &archive.namenode.address, "--keys", keys];
        let here = ["--listen", "127.0.0.1:0", "--http", "none"];
        let gateway = archive.serve("gateway", &[&words[..], &here].concat());
        let cluster = Cluster::start(Shape { datanodes: 1, ..Shape::default() });
        Self { cluster, archive, gateway }
    }

    /// Starts a datanode that finds the bucket, with further variables in its environment.
    fn datanode(&self, name: &str, variables: &[(&str, &str)]) -> Server {
        let mut program = sanderling();
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.to_string_lossy().starts_with("AWS_")) {
            program.env_remove(name);
        }
        program.env("AWS_ENDPOINT_URL", format!("http://{}", self.gateway.address));
        program.env("AWS_REGION", "us-east-1").envs(variables.iter().copied());
        let words = ["datanode", "--namenode", &self.cluster.namenode.address, "--name", name];
        let flags = ["--dram", "64MiB", "--durable", "archive=s3://archive/out"];
        let words = [&words[..], &flags].concat();
        Starting::by(program, &self.cluster.path(""), name, &words).serves()
    }

    fn with_secret(&self, name: &str, secret: &str) -> Server {
        let keys = [("AWS_ACCESS_KEY_ID", "drain"), ("AWS_SECRET_ACCESS_KEY", secret)];
        self.datanode(name, &keys)
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
