//! The table of conformance/semantics.toml through this client, against a namenode and datanodes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "conformance/calls.rs"]
mod calls;
mod cluster;
#[path = "../../../conformance/table.rs"]
mod table;

use calls::Calls;
use cluster::Cluster;

const NAME: &str = "rust";

const DATANODES: usize = 3;

#[test]
fn client_answers_as_the_table_requires_and_wrong_cases_fail() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::start(DATANODES));
    let client = runtime.block_on(cluster.client());
    let begin = |root: &str| Calls::begin(&runtime, &client, root);
    table::check(&table::run(table::SEMANTICS, NAME, begin), NAME);
    table::check_all_fail(&table::run(table::WRONG, NAME, begin));
}
