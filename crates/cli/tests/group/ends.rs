//! The ends of blocks when another member begins to lead.

use std::time::{Duration, Instant};

use crate::cluster::bytes_of;
use crate::cluster::namenodes::{Group, OpenClient, until_up};
use crate::cluster::silent_writer::SilentWriter;
use crate::journals::lead;

/// How long no block is trimmed to its end, as the documentation has it; but for a second, in which
/// the test has looked at it.
const KEPT: Duration = Duration::from_secs(29);

/// Writes a whole block and ends it with a byte.
async fn write_short(client: &OpenClient, datanode: &str, name: &str) -> SilentWriter {
    let whole = bytes_of(1, 1 << 20);
    let writer = SilentWriter::create(datanode, &client.client, name, whole.len()).await;
    writer.write(0, &whole).await;
    writer.seal(&client.client, 1).await;
    writer
}

#[test]
fn no_block_is_trimmed_at_first_after_a_change_of_leader() {
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let datanode = group.datanode("d0", &all, &[]);
    let leader = group.leader();
    until_up(&group.addresses[leader], 1);
    let client = OpenClient::connect(&all);
    client.block_on(async {
        // No earlier start or change of leader counts any more.
        write_short(&client, &datanode.address, "/before").await.until_trimmed(2).await;
    });
    let began = Instant::now();
    lead(&group, (leader + 1) % 3);
    client.block_on(async {
        let writer = write_short(&client, &datanode.address, "/after").await;
        while began.elapsed() < KEPT {
            assert!(writer.is_held(2).await, "it is trimmed after {:?}", began.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        writer.until_trimmed(2).await;
    });
}
