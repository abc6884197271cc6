//! What becomes of the catalog when the namenode's files are damaged under it.

use std::fs;
use std::path::PathBuf;

use crate::cluster::{Cluster, Shape, block_on, http, path};
use sanderling_client::{Client, PutOptions};

/// Objects that each test stores: small enough for the catalog itself, so no datanode is needed.
const OBJECTS: usize = 300;

/// Starts a namenode whose acknowledged changes are on the disk.
fn cluster() -> Cluster {
    let namenode = vec!["--sync".to_owned(), "always".to_owned()];
    Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() })
}

async fn store(client: &Client, objects: usize) {
    for object in 0..objects {
        let value = format!("value of {object}");
        let to = path(&format!("/{object}"));
        client.put(&to, value.into(), &PutOptions::default()).await.expect("it is stored");
    }
}

/// Returns how many of the first objects can be read; those after them must be missing.
async fn readable(client: &Client) -> usize {
    let mut found = Vec::new();
    for object in 0..OBJECTS {
        if let Ok(value) = client.get(&path(&format!("/{object}"))).await {
            assert_eq!(value, format!("value of {object}"));
            found.push(object);
        }
    }
    assert_eq!(found, (0..found.len()).collect::<Vec<_>>(), "objects are missing in the middle");
    found.len()
}

fn journal(cluster: &Cluster) -> PathBuf {
    let entries = fs::read_dir(cluster.path("catalog")).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.to_string_lossy().contains("/journal-"));
    files.sort();
    files.pop().expect("there is a journal")
}

#[test]
fn flipped_bit_in_the_journal_refuses_the_start_until_the_loss_is_accepted() {
    for percent in [10, 50] {
        let mut cluster = cluster();
        block_on(async { store(&cluster.client().await, OBJECTS).await });
        cluster.namenode.kill();
        let journal = journal(&cluster);
        let mut bytes = fs::read(&journal).expect("it can be read");
        let at = bytes.len() * percent / 100;
        bytes[at] ^= 0x10;
        fs::write(&journal, &bytes).expect("it can be written");
        // Twice: a start that was refused changes nothing.
        let mut stderr = String::new();
        for _ in 0..2 {
            let ran = cluster.refused_namenode(&["--sync", "always"]);
            assert_eq!(ran.code, 1, "{ran}");
            assert!(ran.stderr.contains(journal.to_str().expect("a name in UTF-8")), "{ran}");
            assert!(ran.stderr.contains("is damaged at byte"), "{ran}");
            assert!(ran.stderr.contains("whole records in"), "{ran}");
            stderr = ran.stderr;
        }
        assert_eq!(fs::read(&journal).expect("it can be read"), bytes);
        let (_, flag) = stderr.split_once("--accept-journal-loss ").expect("the flag is named");
        let flag = flag.split_whitespace().next().expect("and its value");
        // The operator's word is for this damage and no other.
        let wrong = cluster.refused_namenode(&["--accept-journal-loss", "journal-0.log:7"]);
        assert_eq!(wrong.code, 1, "{wrong}");
        cluster.start_namenode(&["--sync", "always", "--accept-journal-loss", flag]);
        assert_is_reported(&cluster, percent);
        // Without the flag, too: the damage is behind it.
        cluster.namenode.kill();
        cluster.start_namenode(&["--sync", "always"]);
        assert_is_reported(&cluster, percent);
    }
}

/// The catalog is what was acknowledged up to the damage, and every interface shows what is gone.
fn assert_is_reported(cluster: &Cluster, percent: usize) {
    let kept = block_on(async { readable(&cluster.client().await).await });
    assert!(kept > OBJECTS * percent / 200 && kept < OBJECTS, "{kept} objects are there");
    let events = cluster.cli(&["events"]);
    assert!(events.stdout.contains("accepted damage"), "{events}");
    let fsck = cluster.cli(&["fsck"]);
    assert!(fsck.stdout.contains("damage of the journal was accepted"), "{fsck}");
    let fsck = cluster.json(&["fsck"]);
    let why = fsck["report"]["losses"][0]["why"].as_str().expect("a loss").to_owned();
    assert!(why.contains("records of changes"), "{why}");
    let lost = block_on(async {
        let page = http::page(&cluster.namenode.http_address, "/metrics").await;
        let name = "sanderling_namenode_journal_lost_records ";
        let found = page.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        found.expect("the metric is there").parse::<usize>().expect("a number")
    });
    // One record a put, and a few of the namenode's own.
    assert!(lost + 1 + kept >= OBJECTS, "{lost} lost, {kept} kept");
    assert!(cluster.namenode.log().contains("LOST"), "{}", cluster.namenode.log());
}

#[test]
fn journal_torn_at_any_byte_starts_by_itself() {
    let mut cluster = cluster();
    block_on(async { store(&cluster.client().await, 40).await });
    cluster.namenode.kill();
    let journal = journal(&cluster);
    let whole = fs::read(&journal).expect("it can be read");
    for tenth in [99, 97, 90, 83, 71, 50, 31] {
        let cut = whole.len() * tenth / 100;
        let mut torn = whole[..cut].to_vec();
        if tenth % 2 == 0 {
            torn.resize(cut.next_multiple_of(4096), 0);
            let sector = cut / 512 * 512;
            torn[sector..].fill(0);
        }
        fs::write(&journal, &torn).expect("it can be written");
        cluster.start_namenode(&["--sync", "always"]);
        let kept = block_on(async { readable(&cluster.client().await).await });
        // A sector that is lost takes a few records along, and the first records are no objects.
        assert!(kept <= 40 && kept + 10 >= 40 * tenth / 100, "{kept} of {tenth} %");
        cluster.namenode.kill();
    }
}
