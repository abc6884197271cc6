//! The machines of a whole group are suspended, those of its datanodes, too.

use crate::cluster::leased::{ABSENCE, Leased};
use crate::cluster::namenodes::{Group, client};
use crate::cluster::{Server, block_on};
use sanderling_protocol::{EventKind, Millis};

/// No other member has led meanwhile. The clock of the leader's lease goes on.
#[test]
fn suspension_of_all_machines_of_a_group_ends_no_lease_and_no_node() {
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let datanodes = ["d0", "d1"].map(|name| group.datanode(name, &all, &[]));
    let servers = || group.members.iter().flatten().chain(&datanodes);
    block_on(async {
        let client = client(&all).await;
        let leased = Leased::begin(&client).await;
        servers().for_each(Server::pause);
        // This is the fault: so long no process runs.
        tokio::time::sleep(ABSENCE).await;
        servers().for_each(Server::resume);
        leased.must_be_whole(&client).await;
        let events = client.events(0, 1000, Millis(0)).await.expect("a leader answers");
        let is_end = |kind: &EventKind| matches!(kind, EventKind::NodeGone { .. });
        assert!(!events.iter().any(|event| is_end(&event.kind)), "{events:?}");
        let nodes = client.nodes(false).await.expect("a leader answers");
        let mut ids: Vec<u32> = nodes.iter().map(|node| node.id.0).collect();
        ids.sort_unstable();
        let mut before = datanodes.each_ref().map(|server| server.node);
        before.sort_unstable();
        assert_eq!(ids, before, "a node has begun anew");
    });
}
