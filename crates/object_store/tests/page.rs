//! The examples of docs/RUST.md: the page shows them as they are, and they run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;

use std::collections::BTreeSet;

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

const PAGE: &str = include_str!("../../../docs/RUST.md");
const EXAMPLES: [&str; 2] =
    [include_str!("../examples/client.rs"), include_str!("../examples/store.rs")];

#[test]
fn page_shows_the_examples() {
    for example in EXAMPLES {
        let shown: String = example.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert!(PAGE.contains(&shown), "docs/RUST.md does not hold this any more:\n{shown}");
    }
}

/// Returns the crates that an example uses, by `use` and by attributes.
fn used(example: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let path = line.trim_start().strip_prefix("use ").or_else(|| line.strip_prefix("#["))?;
        let (name, _) = path.split_once("::")?;
        (!["std", "core", "crate", "self", "super"].contains(&name)).then(|| name.to_owned())
    };
    example.lines().filter_map(line).collect()
}

#[test]
fn dependencies_of_the_page_are_the_crates_that_its_examples_use() {
    let (_, block) = PAGE.split_once("```toml\n[dependencies]\n").expect("the page has them");
    let (block, _) = block.split_once("```").expect("the block ends");
    let named = block.lines().filter_map(|line| line.split_once(" = "));
    let named: BTreeSet<String> = named.map(|(name, _)| name.replace('-', "_")).collect();
    let used: BTreeSet<String> = EXAMPLES.into_iter().flat_map(used).collect();
    assert!(used.contains("object_store") && used.contains("tokio"), "{used:?}");
    assert_eq!(named, used, "the crates that docs/RUST.md names, and those of its examples");
}
