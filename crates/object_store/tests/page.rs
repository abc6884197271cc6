//! The examples of docs/RUST.md: the page shows them as they are, and they run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;

use cluster::Cluster;

#[allow(dead_code, missing_docs, unreachable_pub, reason = "the page's text is not bent")]
#[path = "../examples/client.rs"]
mod client;

#[allow(dead_code, missing_docs, unreachable_pub, reason = "the page's text is not bent")]
#[path = "../examples/store.rs"]
mod store;

#[tokio::test(flavor = "multi_thread")]
async fn examples_of_the_page_run() {
    let cluster = Cluster::start(3).await;
    let namenode = cluster.namenode.address().to_string();
    client::run(&namenode).await.unwrap();
    store::run(&namenode).await.unwrap();
    assert!(cluster.client().await.fsck().await.unwrap().problems.is_empty());
}

#[test]
fn page_shows_the_examples() {
    let page = include_str!("../../../docs/RUST.md");
    for example in [include_str!("../examples/client.rs"), include_str!("../examples/store.rs")] {
        let shown: String = example.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert!(page.contains(&shown), "docs/RUST.md does not hold this any more:\n{shown}");
    }
}
